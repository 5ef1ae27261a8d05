"""What a function's own code reads from outside: closure cells, globals, defaults, attributes and items of these.

A program holds only while they are what they were when it was recorded. They are found in the bytecode of the function
and of the Python functions that it calls by such names.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tape.tensors.tensor import Tensor

_SKIPPED = ("tape", "kernels", "numpy", "scipy", "math", "builtins", "functools", "itertools", "operator", "typing")
"""Packages whose functions are not looked into."""
_DEEPEST = 4
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MISSING = object()

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


def snapshot(value: Any, depth: int = 0) -> Any:
    """Return what a later value is compared with: contents of plain values and containers, else the object itself."""
    if isinstance(value, _PLAIN) or value is _MISSING:
        return value
    if type(value) is np.ndarray:
        return value, value.shape, value.dtype
    if type(value) in (list, tuple) and depth < _DEEPEST:
        return type(value), value, [snapshot(x, depth + 1) for x in value]
    if type(value) is dict and depth < _DEEPEST:
        return dict, value, [(key, snapshot(x, depth + 1)) for key, x in value.items()]
    return _Object(value)


class _Object:
    """An object that is compared by identity."""

    __slots__ = ("object",)

    def __init__(self, thing: Any) -> None:
        self.object = thing


def unchanged(expected: Any, value: Any) -> bool:
    """Whether a value is what a snapshot was taken of."""
    kind = type(expected)
    if kind is _Object:
        return expected.object is value
    if kind is tuple and len(expected) == len(("kind", "value", "parts")):
        first, second, third = expected
        if isinstance(first, np.ndarray):
            return value is first and value.shape == second and value.dtype == third
        if type(value) is not first or len(value) != len(third):
            return False
        if first is dict:
            pairs = zip(third, value.items(), strict=True)
            return all(key == other and unchanged(part, x) for (key, part), (other, x) in pairs)
        return all(map(unchanged, third, value))
    return type(value) is kind and (value is expected or repr(value) == repr(expected))


def watches_of(function: Any, receiver: Any = _MISSING) -> list[Watch]:
    """Return what the code of a function reads from outside, with what that is now."""
    watches: dict[str, Watch] = {}
    _look(function, receiver, watches, set(), 0)
    return list(watches.values())


def _look(function: Any, receiver: Any, watches: dict[str, Watch], seen: set[Any], depth: int) -> None:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if isinstance(function, types.MethodType):
        function, receiver = function.__func__, function.__self__
    if isinstance(function, types.FunctionType) is False or function in seen or depth > _DEEPEST:
        return
    seen.add(function)
    if function.__defaults__ or function.__kwdefaults__:
        name = f"defaults of {function.__name__}"
        watches[name] = Watch(name, lambda: (function.__defaults__, function.__kwdefaults__))
    for path in paths(function.__code__, receiver is not _MISSING):
        _follow(function, receiver, path, watches, seen, depth)


def paths(code: types.CodeType, method: bool) -> Iterator[Path]:
    """Yield what a function's code, and that of functions defined in it, reads from outside."""
    receiver = code.co_varnames[0] if method and code.co_argcount else None
    path: list[tuple[str, Any]] = []
    pending: Any = None
    for step in dis.get_instructions(code):
        name = step.opname
        if name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            yield tuple(path)
            path = [("cell" if "DEREF" in name else "global", step.argval)]
        elif name == "LOAD_FAST" and step.argval == receiver:
            yield tuple(path)
            path = [("self", receiver)]
        elif path and name in ("LOAD_ATTR", "LOAD_METHOD"):
            path.append(("attribute", step.argval))
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
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from paths(constant, method=False)


def _follow(
    function: types.FunctionType, receiver: Any, path: Path, watches: dict[str, Watch], seen: set[Any], depth: int
) -> None:
    """Watch the values along a path, and look into a function at its end."""
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
        if isinstance(value, (types.FunctionType, types.MethodType)):
            _look(value, _MISSING, watches, seen, depth + 1)


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
