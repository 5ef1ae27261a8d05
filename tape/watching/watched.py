"""What a function's own code reads from outside: closure cells, globals, defaults, attributes and items of these.

A program holds only while they are what they were when it was recorded. They are found in the bytecode of the function,
of the Python functions that it calls by such names, and of whatever else ran while it was recorded.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tape.tensors.bytecode import steps_of
from tape.tensors.tensor import Tensor
from tape.watching import snapshots
from tape.watching.frame_events import (
    GENERATORS,
    MISSING,
    dictionary_of,
    entry_of_class,
    module_of,
    read,
    variables_of,
    wrapped_by,
)

Path = tuple[tuple[str, Any], ...]
"""Steps from a function to a value: a cell or a global by its name, then attributes and items."""
_VARIABLES = dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"), "global")
_VARIABLES |= dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), "cell")
_MOST_WRAPPED, _INNER = 32, -2
"""Decorators of one function that are looked through; the depth where arguments stand in tuples of tuples."""
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
_KEPT = (Tensor, np.ndarray, list, tuple, dict, set, frozenset, deque, *GENERATORS)
"""What is watched even where code reads an attribute or item of it: its methods write."""
CodeKey = tuple[int, int]  # numbers of a code object and of the globals that it runs with


class Watch:
    """One value from outside: where it is read, and what it was."""

    __slots__ = ("expected", "name", "read")

    def __init__(self, name: str, read: functools.partial[Any], depth: int = 0) -> None:
        self.name, self.read = name, read
        self.expected = snapshots.snapshot(read(), depth)

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
    """The data and the functions in a class, of whose objects one is watched."""

    __slots__ = ("count", "functions", "kind")

    def __init__(self, kind: type) -> None:
        self.name, self.kind, self.count = f"class {_name_of(kind)}", kind, len(dictionary_of(kind))
        data, self.functions = snapshots.parts_of(kind)
        self.expected = kind, kind, [(name, snapshots.snapshot(x, 1)) for name, x in data]

    def changed(self) -> bool:
        """Whether the class has other data or functions now."""
        variables, (_, _, parts) = dictionary_of(self.kind), self.expected
        if len(variables) != self.count:
            return True
        for name, x in self.functions:
            if variables.get(name) is not x:
                return True
        return not all(name in variables and snapshots.unchanged(part, variables[name]) for name, part in parts)


class Unseen(Watch):
    """Something that the function reads, and that nobody can watch: its calls stay dynamic."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        self.name, self.expected = name, None

    def changed(self) -> bool:
        """Nobody can tell."""
        return False


class Finder:
    """Finds what code reads from outside, with what that is now; not of code that is ``known``."""

    def __init__(self, known: Mapping[CodeKey, Any] | None = None) -> None:
        self.watches: dict[Any, Watch] = {}
        self.codes: dict[CodeKey, Any] = dict(known or {})
        """The code that was looked at, with its globals, which stay alive so that their numbers are theirs."""
        self._functions: list[tuple[Any, Any]] = []  # what was looked at, with the object that it is a method of

    def note(self, code: types.CodeType, variables: dict[str, Any]) -> None:
        """Look at code that begins to run with these globals, reached in whatever way; its cells are not known."""
        if (id(code), id(variables)) in self.codes:
            return
        cells = tuple([types.CellType() for _ in code.co_freevars])
        try:
            self._look_at(types.FunctionType(code, variables, closure=cells), MISSING, 1)
        except Exception as error:  # noqa: BLE001 (an object that cannot be looked at; the user's call goes on)
            self.watches[code] = Unseen(f"{error!r} in {code.co_qualname}")

    def look(self, function: Any, receiver: Any = MISSING, depth: int = 0) -> None:
        """Look at a function, at what it wraps, and at those that it calls."""
        for _ in range(_MOST_WRAPPED):
            kind, inner = type(function), wrapped_by(function)
            if kind is functools.partial:
                name = f"arguments of a partial of {_name_of(function.func)}"
                self.watches[name, id(function)] = Watch(name, functools.partial(parts_of_partial, function), _INNER)
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

    def _look_at_function(self, function: types.FunctionType, receiver: Any, depth: int) -> None:
        if depth > snapshots.DEEPEST or any(function is known and receiver is of for known, of in self._functions):
            return
        self._functions.append((function, receiver))
        self.watches["code", id(function)] = CodeWatch(function)
        if function.__defaults__ or function.__kwdefaults__:
            name = f"defaults of {function.__name__}"
            self.watches["defaults", id(function)] = Watch(name, functools.partial(defaults_of, function), _INNER)
        self._look_at(function, receiver, depth)

    def _look_at(self, function: types.FunctionType, receiver: Any, depth: int) -> None:
        code, variables = function.__code__, function.__globals__
        self.codes[id(code), id(variables)] = code, variables
        for path in paths_within(function.__code__, receiver is not MISSING):
            self._follow(function, receiver, path, depth)

    def look_into(self, value: Any, depth: int = 0) -> None:
        """Look into a function, and into those in a container."""
        kind = type(value)
        if _has_code(value):
            self.look(value, depth=depth + 1)
        elif (kind is list or kind is tuple or kind is dict) and len(value) <= snapshots.MOST:
            for part in value.values() if kind is dict else value:
                if _has_code(part):
                    self.look(part, depth=depth + 1)

    def _watch(self, key: Any, watch: Watch) -> None:
        self.watches.setdefault(key, watch)
        for number, kind in snapshots.classes_in(watch.expected).items():
            if ("class", number) not in self.watches:
                self.watches["class", number] = ClassWatch(kind)

    def _follow(self, function: types.FunctionType, receiver: Any, path: Path, depth: int) -> None:
        if path and path[0][0] == "unseen":
            self._note_unseen(path[0][1], function)
            return
        owner = value = expected = MISSING
        for count in range(1, len(path) + 1):
            part, owner = path[:count], value
            value = _start_of(function, receiver, part[0])() if count == 1 else self._stepped(owner, part[-1], depth)
            kind = type(value)
            if value is MISSING:
                return
            if issubclass(kind, types.ModuleType):
                continue
            if snapshots.is_opaque(value, path[count : count + 1]):
                self._note_unseen(_name(function, part), function, f"a {_name_of(kind)}")
                return
            known, last = snapshots.is_known(value), count == len(path)
            is_method = kind is types.BuiltinMethodType and not isinstance(value.__self__, types.ModuleType)
            if known and (is_method or issubclass(type(owner), types.ModuleType)):
                return
            if count > 1 and _is_computed(owner, value, part[-1]):
                return
            expected = snapshots.item_in(expected, part[-1][1]) if part[-1][0] == "item" else MISSING
            if expected is MISSING and (part[-1][0] in ("global", "cell") or last or issubclass(kind, _KEPT) or known):
                watch = Watch(_name(function, part), _reader(function, receiver, part))
                sources = {"global": function.__globals__, "cell": function}
                self._watch((id(sources.get(part[0][0], receiver)), part), watch)
                expected = watch.expected
            if known:
                return
            self.look_into(value, depth)

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
        name = f"fixed argument {i}"
        if snapshots.is_opaque(value):
            finder.watches[name] = Unseen(f"{name}, a {_name_of(type(value))}")
        elif not issubclass(type(value), snapshots.PLAIN):
            finder._watch(name, Watch(name, functools.partial(itself, value)))
            finder.look_into(value)
    return finder


def changed_of(watches: Iterable[Watch]) -> str:
    """Return the name of what is not as it was; empty if all is."""
    return next((watch.name for watch in watches if watch.changed()), "")


def _has_code(value: Any) -> bool:
    return issubclass(type(value), _FUNCTIONS) or wrapped_by(value) is not MISSING


def _is_ours(module: Any) -> bool:
    """Whether code is the house's own, by the name of its module: it is taken to stay as it is."""
    return type(module) is str and module.partition(".")[0] == "tape"


def _name_of(value: Any) -> str:
    if issubclass(type(value), type):
        return str(vars(type)["__qualname__"].__get__(value))
    return value.__qualname__ if type(value) is types.FunctionType else f"a {_name_of(type(value))}"


def paths(code: types.CodeType, method: bool) -> Iterator[Path]:
    """Yield what a function's code reads from outside."""
    receiver = code.co_varnames[0] if method and code.co_argcount else None
    path: list[tuple[str, Any]] = []
    pending: Any = None
    for step in steps_of(code)[0]:
        name, value = step.name, step.value
        if name in _VARIABLES:
            yield tuple(path)
            path = [(_VARIABLES[name], value)] if not value.startswith("@") else []
        elif name == "LOAD_FAST" and value == receiver:
            yield tuple(path)
            path = [("self", receiver)]
        elif path and name in ("LOAD_ATTR", "LOAD_METHOD"):
            path.append(("attribute", value))
        elif name == "LOAD_ATTR" and value == "grad":
            yield (("unseen", ".grad"),)
        elif path and name == "LOAD_CONST":
            pending = value
            continue
        elif path and (name == "BINARY_SUBSCR" or value == "[]") and isinstance(pending, (str, int)):
            path.append(("item", pending))
        elif name not in ("RESUME", "COPY_FREE_VARS"):
            yield tuple(path)
            path = []
        pending = None
    yield tuple(path)


def paths_within(code: types.CodeType, method: bool) -> Iterator[Path]:
    """Yield what a function's code, and that of functions defined in it, reads from outside."""
    yield from paths(code, method)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from paths_within(constant, method=False)


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


def parts_of_partial(function: functools.partial[Any]) -> tuple[Any, ...]:
    """Return the parts of a partial function; as a method its function is compared by identity alone."""
    return types.MethodType(function.func, function), function.args, function.keywords


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
        return functools.partial(dict.get, function.__globals__, name, MISSING)
    if kind == "self":
        return functools.partial(itself, receiver)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    return functools.partial(content_of, cells[name]) if name in cells else functools.partial(itself, MISSING)


def _reader(function: types.FunctionType, receiver: Any, path: Path) -> functools.partial[Any]:
    first, *more = path
    start = _start_of(function, receiver, first)
    value, steps = start(), []
    for kind, key in more:
        variables = variables_of(value)
        usual = variables is not None and key in variables and entry_of_class(type(value), "__getattr__") is MISSING
        usual = type(value) in (list, tuple, dict) if kind == "item" else usual
        steps.append((kind, key, type(value) if usual else None))
        value = step(value, kind, key)
    return functools.partial(read_along, start, steps) if steps else start


def _name(function: types.FunctionType, path: Path) -> str:
    (_, name), *steps = path
    shown = "".join(f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in steps)
    return f"{name}{shown} of {function.__qualname__}"
