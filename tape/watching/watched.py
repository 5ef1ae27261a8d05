"""What a function's own code reads from outside: closure cells, globals, defaults, attributes and items of these.

A program holds only while they are what they were when it was recorded. They are found in the bytecode of the function
and of the Python functions that it calls by such names.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tape.random import Generator
from tape.tensors.tensor import Array, Tensor
from tape.watching.code_reads import is_written

_SKIPPED = ("tape", "kernels", "numpy", "scipy", "math", "builtins", "functools", "itertools", "operator", "typing")
"""Packages whose functions are not looked into."""
_DEEPEST = 4
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MISSING = object()
_OBJECT, _ARRAY = object(), object()
"""In snapshots: what is compared by identity, and arrays, whose contents are looked at apart."""
_MOST = 256
"""Parts of a container or object that are looked at."""
_WHOLE = (Tensor, np.ndarray, np.generic, types.ModuleType, types.FunctionType, types.MethodType)

Path = tuple[tuple[str, Any], ...]
"""Steps from a function to a value: a cell or a global by its name, then attributes and items."""


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


class Unseen(Watch):
    """Something that the function reads, and that nobody can watch: its calls stay dynamic."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        self.name, self.expected = name, None

    def changed(self) -> bool:
        """Nobody can tell."""
        return False


class Content:
    """What an array from outside held: NumPy may have read it, where no recorder sees that.

    ``trusted`` once operations of tape read it by reference, and each of its elements has changed without another
    effect: then nothing else is taken to read it.
    """

    __slots__ = ("array", "held", "moved", "trusted")

    def __init__(self, array: Array) -> None:
        self.array, self.held, self.trusted = array, array.copy(order="K"), False
        self.moved = np.zeros(array.shape, np.bool_)

    def changed(self) -> bool:
        """Whether the array holds something else now, and that matters."""
        return not self.trusted and self.array.tobytes() != self.held.tobytes()

    def verify(self, *, live: bool) -> None:
        """Take in that a call with what the array holds now did the same; ``live``: tape reads it by reference."""
        self.moved |= self.array != self.held
        self.held = self.array.copy(order="K")
        self.trusted = live and bool(self.moved.all())


def contents_of(watches: Iterable[Watch]) -> list[Content]:
    """Return the contents of all arrays that are watched, and of those in lists, tuples and dicts that are."""
    arrays: dict[int, Array] = {}
    for watch in watches:
        _collect(watch.expected, arrays)
    return [Content(array) for array in arrays.values()]


def _collect(expected: Any, arrays: dict[int, Array]) -> None:
    if type(expected) is tuple:
        kind, value, parts = expected
        if kind is _ARRAY:
            arrays[id(value)] = value
        elif kind is not _OBJECT:
            for _, part in parts:
                _collect(part, arrays)


def tensors_in(expected: Any) -> list[Tensor]:
    """Return the tensors of a snapshot."""
    if type(expected) is not tuple:
        return []
    kind, value, parts = expected
    if kind is _OBJECT:
        return [value] if isinstance(value, Tensor) else []
    return [] if kind is _ARRAY else [x for _, part in parts for x in tensors_in(part)]


def snapshot(value: Any, depth: int = 0) -> Any:
    """Return what a later value is compared with: contents of plain values, containers and objects with attributes.

    Others, and what is nested deeper or holds very many, are compared by identity.
    """
    kind = type(value)
    if isinstance(value, _PLAIN) or value is _MISSING:
        return value
    if kind is np.ndarray:
        return _ARRAY, value, (value.shape, value.dtype)
    parts = _parts(value) if depth < _DEEPEST else None
    if parts is None or len(parts) > _MOST:
        return _OBJECT, value, ()
    return kind, value, [(key, snapshot(part, depth + 1)) for key, part in parts]


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    """Return what a container or an object is made of, by key; None for what is compared by identity."""
    kind = type(value)
    if kind in (list, tuple):
        return list(enumerate(value))
    if kind is dict:
        return list(value.items())
    whole = isinstance(value, (*_WHOLE, type)) or hasattr(value, "__wrapped__")  # functions, compiled ones, too
    if whole or _is_known(value) or isinstance(value, Generator) or not hasattr(value, "__dict__"):
        return None
    return list(vars(value).items())


def unchanged(expected: Any, value: Any) -> bool:
    """Whether a value is what a snapshot was taken of."""
    if type(expected) is not tuple:
        return value is expected or (type(value) is type(expected) and repr(value) == repr(expected))
    kind, before, parts = expected
    if kind is _OBJECT:
        return value is before
    if kind is _ARRAY:
        return value is before and (value.shape, value.dtype) == parts
    if type(value) is not kind or (value is not before and kind not in (list, tuple, dict)):
        return False
    now = _parts(value)
    return (
        now is not None
        and len(now) == len(parts)
        and all(key == other and unchanged(part, x) for (key, part), (other, x) in zip(parts, now, strict=True))
    )


def watches_of(function: Any, fixed: Iterable[Any] = ()) -> list[Watch]:
    """Return what the code of a function reads from outside, and of ``fixed`` arguments, with what that is now."""
    watches: dict[str, Watch] = {}
    _look(function, _MISSING, watches, set(), 0)
    for i, value in enumerate(fixed):
        if not isinstance(value, _PLAIN):
            watches[f"fixed argument {i}"] = Watch(f"fixed argument {i}", functools.partial(_itself, value))
            _look_into(value, watches, set(), 0)
    return list(watches.values())


def _itself(value: Any) -> Any:
    return value


def _look_into(value: Any, watches: dict[str, Watch], seen: set[Any], depth: int) -> None:
    """Look into a function, and into those in a container."""
    if _has_code(value):
        _look(value, _MISSING, watches, seen, depth + 1)
    elif type(value) in (list, tuple, dict) and len(value) <= _MOST:
        for part in value.values() if type(value) is dict else value:
            if _has_code(part):
                _look(part, _MISSING, watches, seen, depth + 1)


def _has_code(value: Any) -> bool:
    """Whether something is a function of Python's, bound, decorated or compiled or not."""
    return isinstance(value, (types.FunctionType, types.MethodType)) or hasattr(value, "__wrapped__")


def _look(function: Any, receiver: Any, watches: dict[str, Watch], seen: set[Any], depth: int) -> None:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if isinstance(function, functools.partial):
        arguments = functools.partial(_itself, (function.args, function.keywords))
        watches[f"arguments of {function!r}"] = Watch(f"arguments of {function!r}", arguments)
        function = function.func
    if not isinstance(function, (types.FunctionType, types.MethodType)) and not _is_known(function):
        function = getattr(function, "__call__", function)  # noqa: B004 (its code is looked at)
    if isinstance(function, types.MethodType):
        function, receiver = function.__func__, function.__self__
    if isinstance(function, types.FunctionType) is False or function in seen or depth > _DEEPEST:
        return
    seen.add(function)
    watches[f"code of {function.__qualname__}"] = CodeWatch(function)
    if function.__defaults__ or function.__kwdefaults__:
        name = f"defaults of {function.__name__}"
        watches[name] = Watch(name, lambda: (function.__defaults__, function.__kwdefaults__))
    for path in paths_within(function.__code__, receiver is not _MISSING):
        _follow(function, receiver, path, watches, seen, depth)


def paths(code: types.CodeType, method: bool) -> Iterator[Path]:
    """Yield what a function's code reads from outside."""
    receiver = code.co_varnames[0] if method and code.co_argcount else None
    path: list[tuple[str, Any]] = []
    pending: Any = None
    for step in dis.get_instructions(code):
        name = step.opname
        if name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            yield tuple(path)
            path = [("cell" if "DEREF" in name else "global", step.argval)] if is_written(step.argval) else []
        elif name == "LOAD_FAST" and step.argval == receiver:
            yield tuple(path)
            path = [("self", receiver)]
        elif path and name in ("LOAD_ATTR", "LOAD_METHOD"):
            path.append(("attribute", step.argval))
        elif name == "LOAD_ATTR" and step.argval == "grad":
            yield (("unseen", ".grad"),)
        elif path and name == "LOAD_CONST":
            pending = step.argval
            continue
        elif path and name == "BINARY_SUBSCR" and isinstance(pending, (str, int)):
            path.append(("item", pending))
        elif name not in ("PRECALL", "CACHE", "RESUME", "COPY_FREE_VARS"):
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


def _follow(
    function: types.FunctionType, receiver: Any, path: Path, watches: dict[str, Watch], seen: set[Any], depth: int
) -> None:
    """Watch the values along a path, and look into a function at its end."""
    if path and path[0][0] == "unseen":
        watches[f"{path[0][1]} in {function.__qualname__}"] = Unseen(f"{path[0][1]} in {function.__qualname__}")
        return
    value: Any = _MISSING
    for count in range(1, len(path) + 1):
        part = path[:count]
        read = _reader(function, receiver, part)
        try:
            value = read()
        except Exception:  # noqa: BLE001 (the call itself will raise it)
            return
        if value is _MISSING or isinstance(value, types.ModuleType):
            continue
        if _is_known(value) or (count > 1 and _is_property(function, receiver, part)):
            return
        last = count == len(path)
        if part[-1][0] in ("global", "cell") or last or isinstance(value, (Tensor, np.ndarray, list, tuple, dict)):
            name = _name(function, part)
            if name not in watches:
                watches[name] = Watch(name, read)
        _look_into(value, watches, seen, depth)


def _is_known(value: Any) -> bool:
    """Whether something is part of a package that is taken to stay as it is."""
    module = getattr(value, "__module__", None)
    if isinstance(value, (types.BuiltinFunctionType, types.BuiltinMethodType, np.ufunc, type)):
        return True
    return callable(value) and isinstance(module, str) and module.partition(".")[0] in _SKIPPED


def _is_property(function: types.FunctionType, receiver: Any, path: Path) -> bool:
    try:
        owner = _reader(function, receiver, path[:-1])()
    except Exception:  # noqa: BLE001
        return True
    kind, name = path[-1]
    if isinstance(owner, Tensor) and name == "grad":
        return False
    return kind == "attribute" and isinstance(getattr(type(owner), name, None), property)


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
    return lambda: variables.get(name, _MISSING)


def _cell_reader(function: types.FunctionType, name: str) -> Callable[[], Any]:
    names = function.__code__.co_freevars
    if name not in names or function.__closure__ is None:
        return lambda: _MISSING
    cell = function.__closure__[names.index(name)]

    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # not bound yet
            return _MISSING

    return read


def _name(function: types.FunctionType, path: Path) -> str:
    (_, name), *steps = path
    shown = "".join(f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in steps)
    return f"{name}{shown} of {function.__qualname__}"
