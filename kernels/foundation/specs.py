"""Specs: shape, dtype, strides and memory interval of an array, and the loop nest that walks it in NumPy's order."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from kernels.foundation.locks import Lock
from kernels.foundation.tables import Recent

Array = np.ndarray[Any, Any]
FLOAT64, FLOAT32, INT64, BOOL = map(np.dtype, (np.float64, np.float32, np.int64, np.bool_))

_LEAST = 6  # ranges up to 64 bytes, a cache line, are filed in blocks of the same size
_FEW = 64


class Intervals:
    """Items by the range of bytes [low, high) that they stand for.

    An item is filed in blocks of a power of two just above its own length, so that it stands in one or two, and a
    question looks into the blocks of each length that it touches: both take a time that does not grow with the rest.
    Threads, and finalizers in the middle of a method, may add, ask and discard: a list of a block is never replaced,
    and is copied before it is gone through. A dict is copied as a whole: ``list(items())`` allocates, and a garbage
    collection in its midst lets another thread run.
    """

    def __init__(self) -> None:
        self._levels: dict[int, dict[int, list[tuple[int, int, Any]]]] = {}

    def add(self, low: int, high: int, item: Any) -> None:
        """File an item; one of no bytes meets nothing."""
        if high <= low:
            return
        level = max(_LEAST, (high - low - 1).bit_length())
        blocks = self._levels.setdefault(level, {})
        entry = low, high, item
        for block in range(low >> level, ((high - 1) >> level) + 1):
            blocks.setdefault(block, []).append(entry)

    def meeting(self, low: int, high: int) -> list[Any]:
        """Return the items whose range meets [low, high), each once, in no order."""
        if high <= low or not self._levels:
            return []
        entries = {id(entry): entry for entry in self._near(low, high)}
        return [item for a, b, item in entries.values() if a < high and low < b]

    def discard(self, low: int, high: int, item: Any) -> None:
        """Take an item out again, filed under the same range."""
        level = max(_LEAST, (high - low - 1).bit_length())
        blocks = self._levels.get(level, {})
        for block in range(low >> level, ((high - 1) >> level) + 1):
            with contextlib.suppress(ValueError):
                blocks.get(block, []).remove((low, high, item))

    def _near(self, low: int, high: int) -> Iterator[tuple[int, int, Any]]:
        for level, blocks in self._levels.copy().items():
            first, last = low >> level, (high - 1) >> level
            if last - first < _FEW:
                for block in range(first, last + 1):
                    yield from tuple(blocks.get(block, ()))
            else:
                for block, entries in blocks.copy().items():
                    if first <= block <= last:
                        yield from tuple(entries)


Strides = tuple[int, ...]

Key = tuple[Strides, Strides, np.dtype[Any], Strides, int]

_SPECS: WeakValueDictionary[Key, Spec] = WeakValueDictionary()
_lock = Lock(waited_for=True)


class Spec:
    """The pattern of an operand: shape, dtype, strides of its value and of its gradient, all strides in bytes.

    ``buffer_size`` is the number of elements of the family's gradient buffer. A base tensor's gradient is dense and its
    own; a view's is a pattern in the gradient buffer of its base; ``in_order`` if it stands there as in a C array.
    ``bytes`` are those of the elements. ``alike``: the strides of value and gradient are the same. ``overlaps``:
    elements share memory. Specs are interned: of those that something refers to, equal ones are one object, so that
    they serve as dictionary keys by identity.
    """

    __slots__ = (
        "__weakref__", "alike", "buffer_size", "bytes", "covers", "dtype", "gradient", "in_order", "inference",
        "overlaps", "shape", "size", "spec", "strides", "words",
    )  # fmt: skip

    def __init__(
        self, shape: Strides, strides: Strides, dtype: np.dtype[Any], gradient: Strides, buffer_size: int
    ) -> None:
        self.spec = self  # so that a tensor's form may be a bare spec; a property is read at a call's cost
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.gradient = gradient
        self.buffer_size = buffer_size
        self.size = math.prod(shape)
        # Whether the gradient pattern meets each element of the gradient buffer exactly once.
        apart = all(stride != 0 for stride, n in zip(gradient, shape, strict=True) if n > 1)
        self.covers = self.size == buffer_size and apart
        self.bytes = min(self.size, buffer_size) * dtype.itemsize
        self.overlaps = self.size > 0 and any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True))
        self.alike = strides == gradient
        self.words: np.ndarray[Any, Any] | None = None  # what native code makes gradients of leaves by
        self.inference: Any = None  # the spec of the same pattern in inference mode, made when it is asked for
        self.in_order = self.size == 0 or gradient == dense(shape, dtype.itemsize)

    def native_shape_words(self) -> np.ndarray[Any, Any]:
        """Return how many dims there are, the number of the dtype, and the shape, as native code reads them."""
        if self.words is None:
            self.words = np.array([len(self.shape), self.dtype.num, *self.shape], np.int64)
        return self.words

    def __repr__(self) -> str:
        return f"Spec({self.shape}, {self.strides}, {self.dtype}, {self.gradient}, {self.buffer_size})"


def intern_spec(shape: Strides, strides: Strides, dtype: np.dtype[Any], gradient: Strides, buffer_size: int) -> Spec:
    """Return the one spec of these values: equal specs are the same object."""
    key = (shape, strides, dtype, gradient, buffer_size)
    spec = _LATELY.get(key)
    return spec if spec is not None else _interned(key)


def _interned(key: Key) -> Spec:
    new = Spec(*key)
    with _lock:
        spec = _SPECS.get(key)
        if spec is None:
            spec = _SPECS[key] = new
    _LATELY[key] = spec
    return spec


_LATELY: Recent[Key, Spec] = Recent()
_BASES: Recent[tuple[Any, ...], Spec] = Recent()


def spec_of(value: np.ndarray[Any, Any] | float) -> Spec:
    """Return the spec of a base tensor holding this value."""
    if type(value) is float:
        return SCALAR
    dtype = value.dtype
    key = (value.shape, value.strides, dtype.num, dtype.isnative)  # a dtype's own hash costs more than the rest
    spec = _BASES.get(key)
    if spec is None:
        if not dtype.isnative:
            raise TypeError(
                f"dtype {dtype.str!r} has a foreign byte order; convert it: a.astype(a.dtype.newbyteorder('='))"
            )
        if dtype.kind not in "fiub" or dtype.itemsize > _LARGEST:
            raise TypeError(unsupported(dtype))
        gradient = value.strides if fills(value) else dense(value.shape, value.itemsize)
        spec = _BASES[key] = intern_spec(value.shape, value.strides, value.dtype, gradient, value.size)
    return spec


def unsupported(dtype: np.dtype[Any]) -> str:
    """Return why there are no tensors of a dtype, for errors."""
    if dtype.kind == "c":
        return f"complex numbers are not supported, got {dtype}: convert to two tensors, z.real and z.imag"
    also = "; Python integers beyond 64 bits make it: write them as floats" if dtype.kind == "O" else ""
    return f"tensors hold floats, integers and booleans, not dtype {dtype}{also}; convert with astype"


_LARGEST = 8  # bytes of the largest numbers that tensors hold


def fills(value: np.ndarray[Any, Any]) -> bool:
    """Whether an array meets each element of a block of memory once, from its first on, in whatever order of axes."""
    step = value.itemsize
    for stride, n in sorted(zip(value.strides, value.shape, strict=True)):
        if stride != step:
            return False
        step *= n
    return True


def dense(shape: Strides, itemsize: int) -> Strides:
    """Return the strides of a C-contiguous array."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


SCALAR = intern_spec((), (), np.dtype(np.float64), (), 1)
"""The spec of every 0-d float64 tensor, whether a Python float carries it or an array."""


def is_dense(spec: Spec) -> bool:
    """Whether the elements fill their memory in C order."""
    return spec.strides == dense(spec.shape, spec.dtype.itemsize) or math.prod(spec.shape) <= 1


def part_of(spec: Spec, shape: Strides, strides: Strides) -> Spec:
    """Return the spec of some elements of another's."""
    return intern_spec(shape, strides, spec.dtype, strides, spec.size)


def broadcast(shape: Strides, strides: Strides, to: Strides) -> Strides:
    """Return the strides by which an operand of ``shape`` is read over the space ``to``."""
    if 1 in shape:
        strides = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
    return (0,) * (len(to) - len(shape)) + strides


def nest(shape: Strides, operands: list[Strides]) -> tuple[list[int], list[list[int]]]:
    """Return extents and strides by operand, merged outermost first as NumPy's ``nditer_constr.c`` does for sums."""
    axes = [(n, [s[i] for s in operands]) for i, n in enumerate(shape) if n != 1]
    axes.reverse()
    for i in range(1, len(axes)):
        _insert(axes, i)
    merged: list[tuple[int, list[int]]] = []
    for n, strides in axes:
        if merged:
            m, inner = merged[-1]
            if all(a * m == b for a, b in zip(inner, strides, strict=True)):
                merged[-1] = (m * n, inner)
                continue
        merged.append((n, strides))
    merged.reverse()
    if not merged:
        return [], [[] for _ in operands]
    extents = [n for n, _ in merged]
    return extents, [[strides[k] for _, strides in merged] for k in range(len(operands))]


def _insert(axes: list[tuple[int, list[int]]], i: int) -> None:
    """One step of the iterator's insertion sort: smaller strides inward, conflicts left in C order."""
    place = i
    for j in range(i - 1, -1, -1):
        swap, ambiguous = False, True
        for p, q in zip(axes[i][1], axes[j][1], strict=True):
            if p and q:
                if abs(q) <= abs(p):
                    swap = False
                elif ambiguous:
                    swap = True
                ambiguous = False
        if not ambiguous:
            if not swap:
                break
            place = j
    axes.insert(place, axes.pop(i))


def view_spec(shape: Strides, strides: Strides, dtype: np.dtype[Any], gradient: Strides, buffer_size: int) -> Spec:
    """Return the spec of a view, which may meet an element twice; Spec itself sees only axes without a stride."""
    spec = intern_spec(shape, strides, dtype, gradient, buffer_size)
    spec.overlaps = spec.overlaps or meets_itself(shape, strides, dtype.itemsize)
    spec.covers = spec.covers and not meets_itself(shape, gradient, dtype.itemsize)
    return spec


def meets_itself(shape: Strides, strides: Strides, itemsize: int) -> bool:
    """Whether a pattern may meet an element twice, as the windows that overlap do."""
    reach = itemsize
    for stride, n in sorted((abs(stride), n) for stride, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach:
            return 0 not in shape
        reach += stride * (n - 1)
    return False
