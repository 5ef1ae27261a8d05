"""What values from outside were, so that later ones can be compared with them: snapshots, and contents of arrays."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from tape.random import Generator
from tape.tensors.tensor import Array, Tensor
from tape.watching.code_reads import is_decided

SKIPPED = ("tape", "kernels", "numpy", "scipy", "math", "builtins", "functools", "itertools", "operator", "typing")
"""Packages whose functions are not looked into."""
DEEPEST = 4
MOST = 256
"""Parts of a container or object that are looked at."""
PLAIN = (bool, int, float, complex, str, bytes, type(None))
MISSING = object()
_OBJECT, _ARRAY, _METHOD = object(), object(), object()
"""In snapshots: what is compared by identity; arrays, with contents that are looked at apart; bound functions."""
_WHOLE = (Tensor, np.ndarray, np.generic, types.ModuleType, types.FunctionType, type)
_INTEGERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FEW = 1 << 17
"""Bytes up to which copies are compared, which is faster."""
_BLOCK = 1 << 15
_CONTAINERS = (list, tuple, dict, functools.partial)


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
        return not self.trusted and not _same_memory(self.array, self.held)

    def verify(self, *, live: bool) -> None:
        """Take in that a call with what the array holds now did the same; ``live``: tape reads it by reference."""
        self.moved |= self.array != self.held
        self.held = self.array.copy(order="K")
        self.trusted = live and bool(self.moved.all())


def _same_memory(a: Array, b: Array) -> bool:
    """Whether arrays of the same layout hold the same bits."""
    if a.nbytes < _FEW or not (a.flags.c_contiguous and b.flags.c_contiguous) or a.itemsize not in _INTEGERS:
        return a.tobytes() == b.tobytes()
    bits = _INTEGERS[a.itemsize]
    one, other = a.view(bits).reshape(-1), b.view(bits).reshape(-1)
    return all(
        bool((one[at : at + _BLOCK] == other[at : at + _BLOCK]).all()) for at in range(0, len(one), _BLOCK)
    )  # by parts that stay in the cache


def contents_of(snapshots: Iterable[Any]) -> list[Content]:
    """Return the contents of all arrays in snapshots, those in lists, tuples, dicts and objects, too."""
    arrays: dict[int, Array] = {}
    for expected in snapshots:
        _collect(expected, arrays)
    return [Content(array) for array in arrays.values()]


def _collect(expected: Any, arrays: dict[int, Array]) -> None:
    if type(expected) is tuple:
        kind, value, parts = expected
        if kind is _ARRAY:
            arrays[id(value)] = value
        elif kind not in (_OBJECT, _METHOD):
            for _, part in parts:
                _collect(part, arrays)


def tensors_in(expected: Any) -> list[Tensor]:
    """Return the tensors of a snapshot."""
    if type(expected) is not tuple:
        return []
    kind, value, parts = expected
    if kind is _OBJECT:
        return [value] if isinstance(value, Tensor) else []
    return [] if kind in (_ARRAY, _METHOD) else [x for _, part in parts for x in tensors_in(part)]


def snapshot(value: Any, depth: int = 0) -> Any:
    """Return what a later value is compared with: contents of plain values, containers and objects with attributes.

    Others, and what is nested deeper or holds very many, are compared by identity.
    """
    kind = type(value)
    if isinstance(value, PLAIN) or value is MISSING:
        return value
    if kind is np.ndarray:
        return _ARRAY, value, (value.shape, value.dtype)
    if kind is types.MethodType:
        return _METHOD, value.__func__, value.__self__
    parts = _parts(value) if depth < DEEPEST else None
    if parts is None or len(parts) > MOST:
        return _OBJECT, value, ()
    return kind, value, [(key, snapshot(part, depth + 1)) for key, part in parts]


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    """Return what a container or an object is made of, by key; None for what is compared by identity."""
    if type(value) not in _CONTAINERS:
        whole = isinstance(value, _WHOLE) or hasattr(value, "__wrapped__")  # functions, compiled ones, too
        if whole or is_known(value) or isinstance(value, Generator):
            return None
    return opened(value)


def opened(value: Any) -> list[tuple[Any, Any]]:
    """Return the parts of a container, or the attributes of an object."""
    kind = type(value)
    if kind is dict:
        return list(value.items())
    if kind in _CONTAINERS:
        return list(enumerate(value if kind is not functools.partial else (value.func, value.args, value.keywords)))
    variables = getattr(value, "__dict__", None)
    slots = [(name, getattr(value, name)) for name in slots_of(kind) if hasattr(value, name)]  # type: ignore[arg-type]
    return [*variables.items(), *slots] if type(variables) is dict else slots


@functools.lru_cache(1024)
def slots_of(kind: Any) -> tuple[str, ...]:
    """Return the names of the slots that a class and its bases declare."""
    slots = [x.__dict__.get("__slots__", ()) for x in classes_of(kind)]
    return tuple([name for names in slots for name in ((names,) if isinstance(names, str) else names)])


def classes_of(kind: type) -> list[type]:
    """Return a class and its bases, but those of packages that are taken to stay as they are."""
    return [x for x in kind.__mro__ if not is_decided(x.__module__)]


def classes_in(expected: Any) -> set[type]:
    """Return the classes of the objects in a snapshot."""
    if type(expected) is not tuple or not isinstance(expected[0], type):
        return set()
    kind, _, parts = expected
    below = [classes_in(part) for _, part in parts]
    return set(classes_of(kind)).union(*below) if kind not in _CONTAINERS else set().union(*below)


def parts_of(kind: type) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return the data of a class, and its functions and other descriptors, with their names."""
    named = [
        (name, x) for name, x in kind.__dict__.items() if not name.startswith(("__", "_abc_")) or name == "__call__"
    ]
    data = [(name, x) for name, x in named if not hasattr(type(x), "__get__")]
    return data, [(name, x) for name, x in named if hasattr(type(x), "__get__")]


def item_in(expected: Any, key: Any) -> Any:
    """Return what a snapshot has of an item of a container; MISSING where that has to be watched itself."""
    if type(expected) is not tuple or expected[0] not in (list, tuple, dict):
        return MISSING
    part = next((part for name, part in expected[2] if name == key), MISSING)
    deep = type(part) is tuple and part[0] is _OBJECT and type(part[1]) in _CONTAINERS
    return MISSING if deep else part


def is_known(value: Any) -> bool:
    """Whether something is part of a package that is taken to stay as it is."""
    if isinstance(value, type):
        return is_decided(value.__module__)
    if isinstance(value, (types.BuiltinFunctionType, types.BuiltinMethodType, np.ufunc)):
        return True
    module = getattr(value, "__module__", None)
    return callable(value) and isinstance(module, str) and module.partition(".")[0] in SKIPPED


def unchanged(expected: Any, value: Any) -> bool:
    """Whether a value is what a snapshot was taken of. It runs at each call."""
    if type(expected) is not tuple:
        return value is expected or (type(value) is type(expected) and repr(value) == repr(expected))
    kind, before, parts = expected
    if type(kind) is object:
        return _is_same(expected, value)
    if type(value) is not kind or (value is not before and kind not in (list, tuple, dict)):
        return False
    now: Any = value.items() if kind is dict else opened(value)
    if len(now) != len(parts):
        return False
    for (key, part), (other, x) in zip(parts, now):  # noqa: B905 (as many)
        if key != other or not (x is part or unchanged(part, x)):
            return False
    return True


def _is_same(expected: Any, value: Any) -> bool:
    """Whether a value is what a snapshot by identity was taken of."""
    kind, before, more = expected
    if kind is _METHOD:
        return type(value) is types.MethodType and value.__func__ is before and value.__self__ is more
    return value is before and (kind is not _ARRAY or (value.shape, value.dtype) == more)
