"""Results of small rows by handwritten kernels, in the place of several calls of NumPy's.

Dynamic mode and replays choose alike, by operation, dtype and shape, and so agree in every bit.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides
from kernels.arrays.sweep_interface import Array
from kernels.codegen.rows import row_pulls
from kernels.codegen.rows.row_pulls import address, extents
from kernels.compiler.jit import callable_at
from kernels.foundation.data_classes import dataclass
from kernels.native.heap_types import NATIVE
from kernels.native.memory import where
from kernels.native.pool.pool_structs import LARGE

_FILE = "codegen.rows.row_values_native"
SHORT = 64
"""Elements of a row up to which counting, or moving elements one by one, is the fastest way to order them."""


@dataclass(frozen=True)
class RowValue:
    """How the results of rows are computed: a kernel of row_values_native, of a dtype, with its layout."""

    name: str
    dtype: np.dtype[Any]
    shape: Strides
    """Of the result."""
    words: tuple[int, ...]
    places: bool
    """Whether the places of its elements are written too."""

    @property
    def steps(self) -> int:
        """How much it computes, in elements."""
        return math.prod(self.words[:3])

    def kernel(self) -> tuple[int, Array]:
        """Compile, or find, the kernel; return its address and layout."""
        return row_pulls.address(_FILE, self.name, self.dtype), _layout(self.words)

    def run(self, x: Array) -> Any:
        """Return the result of an array, and its places where there are some."""
        call, layout = _called(self)
        x, y = np.ascontiguousarray(x), np.empty(self.shape, self.dtype)
        operands = [y, np.empty(self.shape, np.int64), x] if self.places else [y, x]
        pointers = np.array([where(array) for array in operands], np.int64)
        call(where(layout), where(pointers), 0)
        return (y, operands[1]) if self.places else y


@functools.lru_cache(256)
def _called(how: RowValue) -> tuple[Any, Array]:
    address, layout = how.kernel()
    return callable_at(address), layout


@functools.lru_cache(256)
def _layout(words: tuple[int, ...]) -> Array:
    return np.array(words, np.int64)


@functools.lru_cache(1024)
def row_value(
    shape: Strides,
    dtype: np.dtype[Any],
    name: str,
    dims: Strides,
    number: float = 0.0,
    *,
    keepdim: bool | None = None,
    longest: int = LARGE,
    length: int | None = None,
    places: bool = False,
) -> RowValue | None:
    """Return how results along dims of small arrays are computed; None of what does not suit a kernel.

    With ``keepdim`` there is one number for each row, with ``length`` so many; else as many as in the row.
    """
    rows = extents(shape, dims)
    if rows is None or dtype not in (np.float64, np.float32) or not _compiles():
        return None
    if 0 in rows or rows[0] * rows[1] * rows[2] * dtype.itemsize >= LARGE or rows[1] > longest or length == 0:
        return None
    if keepdim is None:
        out = tuple(length if length is not None and i in dims else n for i, n in enumerate(shape))
    else:
        out = tuple(1 if i in dims else n for i, n in enumerate(shape) if keepdim or i not in dims)
    words = (*rows, int(np.float64(number).view(np.int64)), rows[1] if length is None else length)
    return RowValue(name, dtype, out, words, places)


@functools.cache
def _compiles() -> bool:
    return NATIVE and row_pulls.have_text(_FILE)


# The extremum along an axis and its first place, as NumPy's argmax finds it: nan wins, then the first of equals.


@dataclass(frozen=True)
class Pick:
    """Values and int64 places, both dense, of each row of ``spec`` along ``axis``."""

    spec: Spec
    axis: int
    largest: bool

    @property
    def steps(self) -> int:
        """The elements looked at."""
        return self.spec.size

    def kernel(self) -> tuple[int, np.ndarray[Any, Any]]:
        """Return the address of the kernel and its layout."""
        shape, strides = list(self.spec.shape), list(self.spec.strides)
        length, step = (shape.pop(self.axis), strides.pop(self.axis)) if shape else (1, 0)
        rows = int(np.prod(shape, dtype=np.int64))
        head = [rows, length, step, self.largest, self.spec.dtype.itemsize, len(shape)]
        layout = np.array([*head, *reversed(shape), *reversed(strides)], np.int64)
        return address("codegen.rows.row_values_native", "pick", self.spec.dtype), layout


def pick(locate: Any, array: Array, *, axis: int, keepdims: bool) -> tuple[Array, Array]:
    """Return the same in NumPy, of any dtype; both are fresh."""
    wide = np.asarray(locate(array, axis=axis, keepdims=True)) if array.ndim else np.zeros((), np.int64)
    value = np.take_along_axis(array, wide, axis) if array.ndim else array
    places = np.array(wide if keepdims or not array.ndim else wide.squeeze(axis), np.int64, order="C")
    return np.array(value.reshape(places.shape), order="C"), places
