"""What a function's own code reads from outside: closure cells, globals, defaults, attributes and items of these.

A program holds only while they are what they were when it was recorded. They are found in the bytecode of the function,
of the Python functions that it calls by such names, and of whatever else ran while it was recorded.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tape.foundation.bytecode import steps_of
from tape.tensors.tensor import Tensor
from tape.watching.code_reads import is_written
from tape.watching.snapshots import (
    DEEPEST,
    MISSING,
    MOST,
    PLAIN,
    classes_in,
    is_known,
    item_in,
    parts_of,
    snapshot,
    unchanged,
)

Path = tuple[tuple[str, Any], ...]
"""Steps from a function to a value: a cell or a global by its name, then attributes and items."""
_VARIABLES = dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"), "global")
_VARIABLES |= dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), "cell")
CodeKey = tuple[int, int]
"""Numbers of a code object and of the globals that it runs with."""


class Watch:
    """One value from outside: where it is read, and what it was."""

    __slots__ = ("expected", "name", "read")

    def __init__(self, name: str, read: Callable[[], Any]) -> None:
        self.name, self.read = name, read
        self.expected = snapshot(read())

    def changed(self) -> bool:
        """Whether the value is another one now."""
        return not unchanged(self.expected, self.read())


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
        self.name, self.kind, self.count = f"class {kind.__qualname__}", kind, len(kind.__dict__)
        data, self.functions = parts_of(kind)
        self.expected = kind, kind, [(name, snapshot(x, 1)) for name, x in data]

    def changed(self) -> bool:
        """Whether the class has other data or functions now."""
        variables, (_, _, parts) = self.kind.__dict__, self.expected
        if len(variables) != self.count:
            return True
        for name, x in self.functions:
            if variables.get(name) is not x:
                return True
        return not all(name in variables and unchanged(part, variables[name]) for name, part in parts)


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
        self._functions: list[Any] = []

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
        """Look at a function, and those that it calls."""
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if isinstance(function, functools.partial):
            name = f"arguments of {function!r}"
            self.watches[name, id(function)] = Watch(name, _partial_reader(function))
            self._functions.append(function)
            function = function.func
        if not isinstance(function, (types.FunctionType, types.MethodType)) and not is_known(function):
            function = getattr(function, "__call__", function)  # noqa: B004 (its code is looked at)
        if isinstance(function, types.MethodType):
            function, receiver = function.__func__, function.__self__
        if not isinstance(function, types.FunctionType) or depth > DEEPEST or function in self._functions:
            return
        self._functions.append(function)
        self.watches["code", id(function)] = CodeWatch(function)
        if function.__defaults__ or function.__kwdefaults__:
            name = f"defaults of {function.__name__}"
            read = lambda: (function.__defaults__, function.__kwdefaults__)  # noqa: E731
            self.watches["defaults", id(function)] = Watch(name, read)
        self._look_at(function, receiver, depth)

    def _look_at(self, function: types.FunctionType, receiver: Any, depth: int) -> None:
        code, variables = function.__code__, function.__globals__
        self.codes[id(code), id(variables)] = code, variables
        for path in paths_within(function.__code__, receiver is not MISSING):
            self._follow(function, receiver, path, depth)

    def look_into(self, value: Any, depth: int = 0) -> None:
        """Look into a function, and into those in a container."""
        if _has_code(value):
            self.look(value, depth=depth + 1)
        elif type(value) in (list, tuple, dict) and len(value) <= MOST:
            for part in value.values() if type(value) is dict else value:
                if _has_code(part):
                    self.look(part, depth=depth + 1)

    def _watch(self, key: Any, watch: Watch) -> None:
        """Watch a value, and the data of the classes of all objects in it."""
        self.watches.setdefault(key, watch)
        for kind in classes_in(watch.expected):
            if ("class", kind) not in self.watches:
                self.watches["class", kind] = ClassWatch(kind)

    def _follow(self, function: types.FunctionType, receiver: Any, path: Path, depth: int) -> None:
        """Watch the values along a path, and look into a function at its end."""
        if path and path[0][0] == "unseen":
            name = f"{path[0][1]} in {function.__qualname__}"
            self.watches[name] = Unseen(name)
            return
        owner = value = expected = MISSING
        for count in range(1, len(path) + 1):
            part, owner = path[:count], value
            read = _reader(function, receiver, part)
            try:
                value = read()
            except Exception:  # noqa: BLE001 (the call itself will raise it)
                return
            if value is MISSING or isinstance(value, types.ModuleType):
                continue
            if is_known(value) and (isinstance(owner, types.ModuleType) or _is_method(value)):
                return
            if count > 1 and (_is_property(function, receiver, part) or _is_made_of(owner, value, read)):
                return
            expected = item_in(expected, part[-1][1]) if part[-1][0] == "item" else MISSING
            known, last = is_known(value), count == len(path)
            kept = isinstance(value, (Tensor, np.ndarray, list, tuple, dict))
            if expected is MISSING and (part[-1][0] in ("global", "cell") or last or kept or known):
                watch = Watch(_name(function, part), read)
                self._watch((_source(function, receiver, part), part), watch)
                expected = watch.expected
            if known:
                return
            self.look_into(value, depth)


def watches_of(function: Any, fixed: Iterable[Any] = ()) -> Finder:
    """Return what the code of a function reads from outside, and of ``fixed`` arguments, with what that is now."""
    finder = Finder()
    finder.look(function)
    for i, value in enumerate(fixed):
        if not isinstance(value, PLAIN):
            name = f"fixed argument {i}"
            finder._watch(name, Watch(name, functools.partial(_itself, value)))
            finder.look_into(value)
    return finder


def changed_of(watches: Iterable[Watch]) -> str:
    """Return the name of what is not as it was; empty if all is."""
    return next((watch.name for watch in watches if watch.changed()), "")


def _itself(value: Any) -> Any:
    return value


def _has_code(value: Any) -> bool:
    """Whether something is a function of Python's, bound, partial, decorated or compiled or not."""
    return isinstance(value, (types.FunctionType, types.MethodType, functools.partial)) or hasattr(value, "__wrapped__")


def _is_method(value: Any) -> bool:
    """Whether something is a method of a builtin object, made anew each time."""
    return hasattr(value, "__self__") and not isinstance(value.__self__, types.ModuleType)


def _source(function: types.FunctionType, receiver: Any, path: Path) -> int:
    """Return the number of what a path begins at: a dictionary of globals, a function with cells, an object."""
    kind = path[0][0]
    return id(function.__globals__ if kind == "global" else function if kind == "cell" else receiver)


def paths(code: types.CodeType, method: bool) -> Iterator[Path]:
    """Yield what a function's code reads from outside."""
    receiver = code.co_varnames[0] if method and code.co_argcount else None
    path: list[tuple[str, Any]] = []
    pending: Any = None
    for step in steps_of(code)[0]:
        name, value = step.name, step.value
        if name in _VARIABLES:
            yield tuple(path)
            path = [(_VARIABLES[name], value)] if is_written(value) else []
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


def _is_property(function: types.FunctionType, receiver: Any, path: Path) -> bool:
    try:
        owner = _reader(function, receiver, path[:-1])()
    except Exception:  # noqa: BLE001
        return True
    kind, name = path[-1]
    if isinstance(owner, Tensor) and name == "grad":
        return False
    return kind == "attribute" and isinstance(getattr(type(owner), name, None), property)


def _is_made_of(owner: Any, value: Any, read: Callable[[], Any]) -> bool:
    """Whether a value is a view or a copy of an array, another one each time: the array is watched, and what it holds.

    So are ``M[0]`` and ``M.T``.
    """
    both = isinstance(owner, (Tensor, np.ndarray)) and isinstance(value, (Tensor, np.ndarray))
    return both and read() is not value


def _reader(function: types.FunctionType, receiver: Any, path: Path) -> Callable[[], Any]:
    (kind, name), *steps = path
    start: Callable[[], Any]
    if kind == "global":
        start = _global_reader(function, name)
    elif kind == "cell":
        start = _cell_reader(function, name)
    else:
        start = lambda: receiver  # noqa: E731
    if not steps:
        return start

    def read() -> Any:
        value = start()
        for step, key in steps:
            value = getattr(value, key) if step == "attribute" else value[key]
        return value

    return read


def _global_reader(function: types.FunctionType, name: str) -> Callable[[], Any]:
    variables = function.__globals__
    return lambda: variables.get(name, MISSING)


def _cell_reader(function: types.FunctionType, name: str) -> Callable[[], Any]:
    names = function.__code__.co_freevars
    if name not in names or function.__closure__ is None:
        return lambda: MISSING
    cell = function.__closure__[names.index(name)]

    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # not bound yet
            return MISSING

    return read


def _partial_reader(partial: functools.partial[Any]) -> Callable[[], Any]:
    """Return what reads the parts of a partial function; as a method its function is compared by identity alone."""
    return lambda: (types.MethodType(partial.func, partial), partial.args, partial.keywords)


def _name(function: types.FunctionType, path: Path) -> str:
    (_, name), *steps = path
    shown = "".join(f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in steps)
    return f"{name}{shown} of {function.__qualname__}"
