"""What a function's own code reads from outside: closure cells, globals, defaults, attributes and items of these.

A program holds only while they are what they were when it was recorded. They are found in the bytecode of the function,
of the Python functions that it calls by such names, and of whatever else ran while it was recorded.
"""

from __future__ import annotations

import abc
import builtins
import functools
import gc
import importlib.util
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from kernels import PACKAGES
from tape.tensors.bytecode import package_of, steps_of
from tape.tensors.tensor import Tensor
from tape.watching import frame_events, snapshots
from tape.watching.frame_events import MISSING, entry_of_class, is_decided, module_of, read
from tape.watching.number_uses import names_of
from tape.watching.snapshots import Snapshots

Path = tuple[tuple[str, Any], ...]
"""Steps from a function to a value: a cell or a global by its name, then attributes and items."""
_VARIABLES = dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"), "global")
_VARIABLES |= dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), "cell")
_NAMED = ("global", "cell", "import")
_MOST_WRAPPED, _DEEPEST = 32, 4
"""Decorators of one function that are looked through; functions that call one another, before they do."""
_KEPT = (Tensor, np.ndarray, list, tuple, dict, set, frozenset, deque, *frame_events.GENERATORS)
"""What is watched even where code reads an attribute or item of it: its methods write."""
CodeKey = tuple[int, int]  # numbers of a code object and of the globals that it runs with


class Watch:
    """One value from outside: where it is read, and what it was."""

    __slots__ = ("expected", "name", "read")

    def __init__(self, name: str, read: functools.partial[Any], take: Callable[[Any, str], Any]) -> None:
        self.name, self.read = name, read
        self.expected = take(read(), name)

    def changed(self) -> bool:
        """Whether the value is another one now, or is no more."""
        try:
            return not snapshots.unchanged(self.expected, self.read())
        except Exception:  # noqa: BLE001 (what leads to it is gone; the call itself will raise)
            return True


class CodeWatch(Watch):
    """The code of a function."""

    __slots__ = ("function",)

    def __init__(self, function: types.FunctionType) -> None:
        self.name, self.function, self.expected = f"code of {function.__qualname__}", function, function.__code__

    def changed(self) -> bool:
        """Whether the function has other code now."""
        return self.function.__code__ is not self.expected


class ClassWatch(Watch):
    """All that a class has, which code met, or an object of it."""

    __slots__ = ("kind",)

    def __init__(self, kind: type, held: Snapshots) -> None:
        self.name, self.kind = f"class {snapshots.name_of(kind)}", kind
        parts: list[tuple[str, Any]] = []
        more: list[tuple[str, Any]] = []
        for name, x in snapshots.entries_of(kind).items():  # functions are looked at when they run
            apart = is_decided(module_of(kind)) or snapshots.function_of(x) is not None
            (parts if apart else more).append((name, snapshots.as_it_is(x) if apart else x))
        self.expected = kind, kind, held.attributes(more, self.name, parts)

    def changed(self) -> bool:
        """Whether the class has other data or functions now."""
        now, (_, _, parts) = snapshots.entries_of(self.kind), self.expected
        return len(now) != len(parts) or not all(
            name in now and snapshots.unchanged(part, now[name]) for name, part in parts
        )


class CacheWatch(Watch):
    """The results that ``functools.lru_cache`` holds of a function; more may be added."""

    __slots__ = ("_held", "_take", "function")

    def __init__(self, function: Any, take: Callable[[Any, str], Any]) -> None:
        self.name, self.function, self._take = f"cache of {_name_of(frame_events.wrapped_by(function))}", function, take
        self.expected: Any = dict, function, []
        self._held: list[tuple[Any, Any]] = []

    def renew(self) -> None:
        """Take in which results there are now; what those hold that were there before is compared as it was."""
        pairs = zip(self._held, self.expected[2], strict=True)
        before = {(id(key), id(x)): part for (key, x), (_, part) in pairs}
        self._held = snapshots.cached_by(self.function)
        self.expected[2][:] = [
            (key, before[id(key), id(x)] if (id(key), id(x)) in before else self._take(x, self.name))
            for key, x in self._held
        ]

    def changed(self) -> bool:
        """Whether a result is gone, or another one now."""
        now = {id(key): x for key, x in snapshots.cached_by(self.function)}
        return not all(id(key) in now and snapshots.unchanged(part, now[id(key)]) for key, part in self.expected[2])


class NamesWatch(Watch):
    """Names in a dictionary, of which it is compared what they stand for, or that they stand for nothing."""

    __slots__ = ("holder",)

    def __init__(self, holder: dict[str, Any]) -> None:
        self.name, self.holder, self.expected = "", holder, {}

    def add(self, name: str, where: Any) -> None:
        """Compare one more name, of a module of this name."""
        if name not in self.expected:
            self.name += f"{', ' * bool(self.name)}{name} of {where}"
            self.expected[name] = dict.get(self.holder, name, MISSING)

    def changed(self) -> bool:
        """Whether one of the names stands for something else now."""
        get = self.holder.get
        for name, value in self.expected.items():  # noqa: SIM110 (in a fraction of the time)
            if get(name, MISSING) is not value:
                return True
        return False


class Unseen(Watch):
    """Something that the function reads, and that nobody can watch: its calls stay dynamic."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        self.name, self.expected = name, None

    def changed(self) -> bool:
        """Nobody can tell."""
        return False


class Finder:
    """Finds what code reads from outside, with what that is now."""

    def __init__(self) -> None:
        self.watches: dict[Any, Watch] = {}
        self.codes: dict[CodeKey, Any] = {}
        """The code that was looked at, with its globals, which stay alive so that their numbers are theirs."""
        self._functions: list[tuple[Any, Any]] = []  # what was looked at, with the object that it is a method of
        self._snapshots = Snapshots()
        self._modules: dict[int, types.ModuleType] = {}  # those of which any attribute may be read
        self._runs = self._unimported = False
        """Whether code has been seen to run; whether some imports what was not imported before."""
        self._by_code: defaultdict[int, list[types.FunctionType]] = defaultdict(list)
        """Functions that were met, by their code."""
        self._inner: dict[int, types.CodeType] = {}  # code of functions that code which was looked at makes

    def note(self, code: types.CodeType, variables: dict[str, Any]) -> None:
        """Look at code that begins to run with these globals, reached in whatever way."""
        if (id(code), id(variables)) in self.codes:
            return
        self._runs = True
        try:
            functions = self._by_code[id(code)]
            if not functions and code.co_freevars and id(code) not in self._inner:
                functions = [x for x in gc.get_referrers(code) if type(x) is types.FunctionType]
            for function in functions:
                self._look_at_function(function, MISSING, 1)
            if (id(code), id(variables)) not in self.codes:  # its cells are not known
                cells = tuple([types.CellType() for _ in code.co_freevars])
                self._look_at(types.FunctionType(code, variables, closure=cells), MISSING, 1)
        except Exception as error:  # noqa: BLE001 (an object that cannot be looked at; the user's call goes on)
            self.watches[code] = Unseen(f"{error!r} in {code.co_qualname}")

    def renew(self) -> None:
        """Look at what caches hold behind a call, which may add to them and remove from them."""
        for watch in [watch for watch in self.watches.values() if type(watch) is CacheWatch]:
            watch.renew()
            self._look_at_classes(snapshots.classes_in(watch.expected))
        self._look_at_met(0)

    def look(self, function: Any, receiver: Any = MISSING, depth: int = 0) -> None:
        """Look at a function, at what it wraps, and at those that it calls."""
        for _ in range(_MOST_WRAPPED):
            kind, inner = type(function), frame_events.wrapped_by(function)
            self._look_at_cache(function)
            if kind is functools.partial:
                name = f"a partial of {_name_of(function.func)}"
                self._watch(("partial", id(function)), name, functools.partial(itself, function))
                inner = function.func
            elif kind is types.MethodType:
                function, receiver = function.__func__, function.__self__
                continue
            elif kind is types.FunctionType:
                if not (_is_ours(function.__globals__.get("__name__")) or snapshots.is_known(function)):
                    self._look_at_function(function, receiver, depth)
            elif inner is MISSING and not snapshots.is_known(function):
                inner = read(function, "__call__")
            elif not _is_ours(module_of(kind)):  # an object that wraps a function: what it does when it is called
                called = entry_of_class(kind, "__call__")
                if type(called) is types.FunctionType:
                    self._look_at_function(called, function, depth)
            if inner is MISSING or inner is function:
                return
            function = inner

    def _look_at_cache(self, function: Any) -> None:
        if type(function) is snapshots.CACHED and not is_decided(read(function, "__module__")):
            self.watches.setdefault(("cache", id(function)), CacheWatch(function, self._snapshots.take))

    def _look_at_function(self, function: types.FunctionType, receiver: Any, depth: int) -> None:
        self._meet(function)
        if depth > _DEEPEST or any(function is known and receiver is of for known, of in self._functions):
            return
        self._functions.append((function, receiver))
        stays = is_decided(function.__globals__.get("__name__"))
        if not stays:
            self.watches["code", id(function)] = CodeWatch(function)
        if not stays and (function.__defaults__ or function.__kwdefaults__):
            name = f"defaults of {function.__name__}"
            self._watch(("defaults", id(function)), name, functools.partial(defaults_of, function))
        self._look_at(function, receiver, depth)

    def _meet(self, function: types.FunctionType | None) -> None:
        if function is not None and not any(function is x for x in self._by_code[id(function.__code__)]):
            self._by_code[id(function.__code__)].append(function)

    def _look_at(self, function: types.FunctionType, receiver: Any, depth: int) -> None:
        code, variables = function.__code__, function.__globals__
        self.codes[id(code), id(variables)] = code, variables
        self._name(set[str]().union(*map(names_of, _code_within(code))))
        self._inner |= {id(inner): inner for inner in _code_within(code) if inner is not code}
        for path in paths_within(code, receiver is not MISSING):
            self._follow(function, receiver, path, depth)
        self._look_at_met(depth)
        if self._unimported:
            self._unimported = False
            del self.codes[id(code), id(variables)]

    def _name(self, names: set[str]) -> None:
        """Take in that code names attributes, of whatever it meets."""
        new = names - self._snapshots.names
        self._snapshots.name(new)
        for module in list(self._modules.values()):
            self._watch_module(module, new)

    def _watch_module(self, module: types.ModuleType, names: Iterable[str]) -> None:
        if self._snapshots.reads_any:
            name = f"attributes of {module.__name__}"
            self._watch(("module", id(module)), name, functools.partial(attributes_of, module))
        for name in names:
            if name in vars(module):
                self._watch_in(module, name)

    def _watch_in(self, module: types.ModuleType, name: str) -> None:
        variables = vars(module)
        if is_decided(module.__name__):
            self._watch_name(variables, name)
        else:
            reader = functools.partial(dict.get, variables, name, MISSING)
            self._watch((id(variables), (("global", name),)), f"{name} of {module.__name__}", reader)

    def _watch_name(self, holder: dict[str, Any], name: str) -> None:
        """Watch what a name stands for, or that it stands for nothing, without looking into it."""
        watch = self.watches.get(("names", id(holder)))
        if watch is None:
            watch = self.watches["names", id(holder)] = NamesWatch(holder)
        assert isinstance(watch, NamesWatch)
        watch.add(name, dict.get(holder, "__name__"))

    def _watch(self, key: Any, name: str, reader: functools.partial[Any]) -> Watch:
        """Watch what is read somewhere; what that leads to is looked at, too."""
        watch = self.watches.get(key)
        if watch is None:
            watch = self.watches[key] = Watch(name, reader, self._snapshots.take)
            self._look_at_classes(snapshots.classes_in(watch.expected))
        return watch

    def _look_at_classes(self, kinds: dict[int, type]) -> None:
        for number, kind in kinds.items():
            if ("class", number) not in self.watches:
                self.watches["class", number] = made = ClassWatch(kind, self._snapshots)
                called = any(package_of(module_of(x)) in PACKAGES for x in frame_events.bases_of(kind))
                for function in map(snapshots.function_of, snapshots.entries_of(kind).values()):
                    if called and function is not None:  # replays call it as well
                        self._inner[id(function.__code__)] = function.__code__
                    else:
                        self._meet(function)
                self._look_at_classes(snapshots.classes_in(made.expected))

    def _look_at_met(self, depth: int) -> None:
        """Look at functions and modules that were met meanwhile, and note what nobody can compare."""
        met = self._snapshots.met
        while met:
            value = met.pop()
            if issubclass(type(value), types.ModuleType):
                if not is_decided(value.__name__) and id(value) not in self._modules:
                    self._modules[id(value)] = value
                    self._watch_module(value, self._snapshots.names)
            elif issubclass(type(value), snapshots.GETTERS):
                self._name({"attrgetter"})
            elif module_of(type(value)) == "decimal":
                self._watch("decimal", "decimal's context", functools.partial(_decimal_context))
            elif not issubclass(type(value), type):
                self.look(value, depth=depth + 1)
            elif "_abc_impl" in frame_events.dictionary_of(value):
                self._watch("abc", "registered classes", functools.partial(abc.get_cache_token))
        while self._snapshots.unseen:
            name = self._snapshots.unseen.pop()
            self.watches[name] = Unseen(name)

    def _follow(self, function: types.FunctionType, receiver: Any, path: Path, depth: int) -> None:
        if path[0][0] == "unseen":
            self._note_unseen(path[0][1], function)
            return
        owner = value = expected = MISSING
        for count in range(1, len(path) + 1):
            part, owner = path[:count], value
            start = self._start_of(function, receiver, part[0]) if count == 1 else None
            value = self._stepped(owner, part[-1], depth) if start is None else start()
            name, key = _name(function, part), (id(_source_of(function, receiver, part[0])), part)
            if value is MISSING:
                self._lacks(owner, part, key, name, start)
                return
            known = snapshots.is_known(value) or issubclass(type(value), types.ModuleType)
            if known and start is not None and start.func is dict.get:
                self._watch_name(*start.args[:2])
            if issubclass(type(value), types.ModuleType):
                self._snapshots.met += [value] * (count == len(path) or part[0][0] == "import")
                continue
            what = f"a {_name_of(type(value))}" if snapshots.is_opaque(value, path[count : count + 1]) else ""
            if what or snapshots.reads_state(value):
                self._note_unseen(name, function, what)
                return
            if self._is_given(owner, value, part[-1], start) or (count > 1 and _is_computed(owner, value, part[-1])):
                return
            expected = snapshots.item_in(expected, part[-1][1]) if part[-1][0] == "item" else MISSING
            held = part[-1][0] in _NAMED or count == len(path) or issubclass(type(value), _KEPT) or known
            if expected is MISSING and held and not _is_cache(function, part[0], value):
                expected = self._watch(key, name, _reader(function, receiver, part)).expected
            if known:
                return

    def _start_of(self, function: types.FunctionType, receiver: Any, first: tuple[str, Any]) -> functools.partial[Any]:
        variables, builtin = function.__globals__, first[0] == "global" and first[1] not in function.__globals__
        if builtin:
            self._watch_name(variables, first[1])
            self._watch_name(_builtins_of(variables), first[1])
        return _start_of(function, receiver, first)

    def _lacks(self, owner: Any, part: Path, key: Any, name: str, start: functools.partial[Any] | None) -> None:
        """Take in that there is nothing where code reads, so far."""
        if part[0][0] == "import" and not self._runs:
            self._unimported = True
        elif start is not None and part[0][0] != "global":
            self._watch(key, name, start)
        elif issubclass(type(owner), types.ModuleType):
            self._watch_in(owner, part[-1][1])

    def _is_given(self, owner: Any, value: Any, last: tuple[str, Any], start: functools.partial[Any] | None) -> bool:
        """Whether something is a known function, or a method of an object, of which nothing else is compared."""
        of_module, is_method = issubclass(type(owner), types.ModuleType), snapshots.is_method(value)
        named = start is not None and start.func is dict.get and not is_method
        if not snapshots.is_known(value) or not (of_module or named or (is_method and owner is not MISSING)):
            return False
        if of_module:
            self._watch_in(owner, last[1])
        if issubclass(type(value), type):
            self._look_at_classes({id(x): x for x in snapshots.classes_of(value)})
        return True

    def _stepped(self, owner: Any, last: tuple[str, Any], depth: int) -> Any:
        kind, name = last
        value = step(owner, kind, name)
        if value is not MISSING:
            return value
        for special in (name, "__getattr__", "__getattribute__") if kind == "attribute" else ("__getitem__",):
            entry = entry_of_class(type(owner), special)
            if type(entry) is property:
                function = entry.fget
            else:
                function = entry.func if type(entry) is functools.cached_property else entry
            if type(function) is types.FunctionType:
                self._look_at_function(function, owner, depth + 1)
        return MISSING

    def _note_unseen(self, what: str, function: types.FunctionType, kind: str = "") -> None:
        name = f"{what}, {kind}" if kind else f"{what} in {function.__qualname__}"
        self.watches[name] = Unseen(name)


def watches_of(function: Any, fixed: Iterable[Any] = ()) -> Finder:
    """Return what the code of a function reads from outside, and of ``fixed`` arguments, with what that is now."""
    finder = Finder()
    finder.look(function)
    for i, value in enumerate(fixed):
        if not snapshots.is_plain(value):
            finder._watch(f"fixed argument {i}", f"fixed argument {i}", functools.partial(itself, value))
    finder._look_at_met(0)
    return finder


def changed_of(watches: Iterable[Watch]) -> str:
    """Return the name of what is not as it was; empty if all is."""
    return next((watch.name for watch in watches if watch.changed()), "")


def _is_ours(module: Any) -> bool:
    """Whether code is the house's own, by the name of its module: it is taken to stay as it is."""
    return type(module) is str and package_of(module) == "tape"


def _name_of(value: Any) -> str:
    if issubclass(type(value), type):
        return snapshots.name_of(value)
    return value.__qualname__ if type(value) is types.FunctionType else f"a {_name_of(type(value))}"


def paths(code: types.CodeType, method: bool) -> Iterator[Path]:
    """Yield what a function's code reads from outside."""
    receiver = code.co_varnames[0] if method and code.co_argcount else None
    path: list[tuple[str, Any]] = []
    constants: list[Any] = []
    imported: list[tuple[str, Any]] = []
    for step in steps_of(code)[0]:
        name, value = step.name, step.value
        is_item = name == "BINARY_SUBSCR" or value == "[]"
        if name in _VARIABLES or (name == "LOAD_FAST" and value == receiver) or name == "IMPORT_NAME":
            yield tuple(path)
            started: tuple[str, Any] = (_VARIABLES.get(name, "self"), value)
            if name == "IMPORT_NAME":
                imported = [started := ("import", (constants[-2], value))]
            path = [] if value.startswith("@") else [started]
        elif value == "__subclasses__" or (value == "grad" and not path and name == "LOAD_ATTR"):
            yield (("unseen", f".{value}"),)
        elif path and not constants and name in ("LOAD_ATTR", "LOAD_METHOD"):
            path.append(("attribute", value))
        elif name == "IMPORT_FROM":
            yield (*path[:1], ("attribute", value))
            continue
        elif name == "LOAD_CONST":
            constants.append(value)
            continue
        elif path and len(constants) == 1 and is_item and isinstance(constants[0], (str, int)):
            path.append(("item", constants[0]))
        elif name not in ("RESUME", "COPY_FREE_VARS") and (name != "STORE_FAST" or path[:1] != imported):
            yield tuple(path)
            path = []
        constants.clear()
    yield tuple(path)


def _code_within(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_within(constant)


@functools.lru_cache(1 << 8)
def paths_within(code: types.CodeType, method: bool) -> tuple[Path, ...]:
    """Return what a function's code, and that of functions defined in it, reads from outside, each once."""
    each = (path for inner in _code_within(code) for path in paths(inner, method and inner is code) if path)
    return tuple(dict.fromkeys(each))


def _is_cache(function: types.FunctionType, start: tuple[str, Any], value: Any) -> bool:
    """Whether a value is what a package that is taken to stay as it is keeps for itself."""
    stays = is_decided(function.__globals__.get("__name__")) and type(value) is not types.FunctionType
    return stays and start[0] == "global" and start[1].startswith("_")


def _is_computed(owner: Any, value: Any, last: tuple[str, Any]) -> bool:
    """Whether a value is computed from a tensor or array, which is watched: another view or copy each time, say."""
    kind, name = last
    of_tensor = kind == "attribute" and issubclass(type(owner), Tensor) and name != "grad"
    if of_tensor and isinstance(entry_of_class(type(owner), name), property):
        return True
    both = issubclass(type(owner), (Tensor, np.ndarray)) and issubclass(type(value), (Tensor, np.ndarray))
    return both and step(owner, *last) is not value


def step(value: Any, kind: str, key: Any) -> Any:
    """Return an attribute or an item; MISSING where there is none, or a user's code would run for it."""
    plain = type(value) is Tensor or type(value) is np.ndarray
    try:
        if kind == "attribute":
            return getattr(value, key) if plain else read(value, key)
        container = next((x for x in (dict, list, tuple, deque) if issubclass(type(value), x)), None)
        if plain:
            return value[key]
        if container is None or entry_of_class(type(value), "__getitem__") is not container.__getitem__:
            return MISSING
        return dict.get(value, key, MISSING) if container is dict else container.__getitem__(value, key)
    except Exception:  # noqa: BLE001 (the call itself will raise it)
        return MISSING


# Readers are partial functions of these, so that native code sees what they read: see native_checks.py.


def itself(value: Any) -> Any:
    """Return an object that is always the same."""
    return value


def content_of(cell: types.CellType) -> Any:
    """Return what a cell holds; MISSING while it is not bound."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def defaults_of(function: types.FunctionType) -> tuple[Any, ...]:
    """Return the defaults of a function's arguments."""
    return function.__defaults__, function.__kwdefaults__


def _builtins_of(variables: dict[str, Any]) -> dict[str, Any]:
    """Return the builtins of code with these globals."""
    held = dict.get(variables, "__builtins__", builtins)
    return vars(held) if type(held) is types.ModuleType else held


def _decimal_context() -> str:
    """Return what decides how numbers of ``decimal`` are rounded, without the flags that they raise."""
    return repr(sys.modules["decimal"].getcontext()).partition(", flags")[0]


def attributes_of(module: types.ModuleType) -> dict[str, Any]:
    """Return what a module has, but what Python notes in it."""
    return {name: x for name, x in vars(module).items() if not name.startswith("__")}


def read_along(start: Callable[[], Any], steps: Sequence[tuple[str, Any, Any]]) -> Any:
    """Return what attributes and items lead to; ``steps`` have the class of which objects are read as usual."""
    value: Any = start()
    for kind, key, usual in steps:
        if type(value) is not usual:
            value = step(value, kind, key)
        else:
            value = getattr(value, key) if kind == "attribute" else value[key]
    return value


def _start_of(function: types.FunctionType, receiver: Any, first: tuple[str, Any]) -> functools.partial[Any]:
    kind, name = first
    if kind == "global":
        variables = function.__globals__
        holder = variables if name in variables else _builtins_of(variables)
        return functools.partial(dict.get, holder, name, MISSING)
    if kind == "import":
        package = dict.get(function.__globals__, "__package__") or ""
        level, relative = name
        full = importlib.util.resolve_name("." * level + relative, package) if level else relative
        return functools.partial(dict.get, sys.modules, full, MISSING)
    if kind == "self":
        return functools.partial(itself, receiver)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    return functools.partial(content_of, cells[name]) if name in cells else functools.partial(itself, MISSING)


def _source_of(function: types.FunctionType, receiver: Any, first: tuple[str, Any]) -> Any:
    """Return what a path begins in."""
    return {"global": function.__globals__, "cell": function, "import": sys.modules}.get(first[0], receiver)


def _reader(function: types.FunctionType, receiver: Any, path: Path) -> functools.partial[Any]:
    first, *more = path
    start = _start_of(function, receiver, first)
    value, steps = start(), []
    for kind, key in more:
        variables = frame_events.variables_of(value)
        usual = variables is not None and key in variables and entry_of_class(type(value), "__getattr__") is MISSING
        usual = type(value) in (list, tuple, dict) if kind == "item" else usual
        steps.append((kind, key, type(value) if usual else None))
        value = step(value, kind, key)
    return functools.partial(read_along, start, steps) if steps else start


def _name(function: types.FunctionType, path: Path) -> str:
    (start, name), *steps = path
    name = f"module {name[1]}" if start == "import" else name
    shown = "".join(f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in steps)
    return f"{name}{shown} of {function.__qualname__}"
