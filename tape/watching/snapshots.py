"""What values from outside were, so that later ones can be compared with them: snapshots, and contents of arrays."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
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
_BEHAVIOUR = (types.FunctionType, property, classmethod, staticmethod)
"""What in a class is no data."""


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
    kind = type(value)
    if kind in (list, tuple):
        return list(enumerate(value))
    if kind is dict:
        return list(value.items())
    if kind is functools.partial:
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    whole = isinstance(value, _WHOLE) or hasattr(value, "__wrapped__")  # functions, compiled ones, too
    return None if whole or is_known(value) or isinstance(value, Generator) else list(attributes_of(value))


def attributes_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the attributes of an object with their names, and the data of its classes."""
    variables = getattr(value, "__dict__", None)
    if type(variables) is dict:
        yield from variables.items()
    for kind in type(value).__mro__:
        if not is_decided(kind.__module__):
            names = kind.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if hasattr(value, name):
                    yield (kind, name), getattr(value, name)
            yield from (((kind, name), x) for name, x in data_of(kind))


def data_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class that are no functions or descriptors, with their names."""
    for name, x in kind.__dict__.items():
        if not (name.startswith(("__", "_abc_")) or isinstance(x, _BEHAVIOUR) or hasattr(type(x), "__get__")):
            yield name, x


def is_known(value: Any) -> bool:
    """Whether something is part of a package that is taken to stay as it is."""
    if isinstance(value, type):
        return is_decided(value.__module__)
    if isinstance(value, (types.BuiltinFunctionType, types.BuiltinMethodType, np.ufunc)):
        return True
    module = getattr(value, "__module__", None)
    return callable(value) and isinstance(module, str) and module.partition(".")[0] in SKIPPED


def unchanged(expected: Any, value: Any) -> bool:
    """Whether a value is what a snapshot was taken of."""
    if type(expected) is not tuple:
        return value is expected or (type(value) is type(expected) and repr(value) == repr(expected))
    kind, before, parts = expected
    if kind is _OBJECT:
        return value is before
    if kind is _METHOD:
        return type(value) is types.MethodType and value.__func__ is before and value.__self__ is parts
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
