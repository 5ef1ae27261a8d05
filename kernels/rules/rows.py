"""Kernels that walk rows, forward and back, and products of matrices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Spec, Strides, dense, inner_loop
from kernels.foundation.tables import dataclass
from kernels.language import jit
from kernels.language.cache_files import PACKAGE, content_of
from kernels.language.jit import callable_at
from kernels.native.c_api import NATIVE
from kernels.native.memory import where
from kernels.native.structs import LARGE
from kernels.rules import elements
from kernels.rules.loop_printer import KernelOperand, PrintedLoop


@functools.cache
def have_text(*files: str) -> bool:
    """Whether the kernels' text is there, which a frozen application may lack."""
    return all(isinstance(content_of(f"{PACKAGE}.{file}"), str) for file in files)


@functools.cache
def address(file: str, name: str, dtype: np.dtype[Any]) -> int:
    """Compile one kernel of a file, or find it; return its address."""
    kernel = jit.load_function(file, name, dtype.name, {elements.__name__: elements.meaning(dtype)})
    return int(kernel.address)


@dataclass(frozen=True)
class RowPull:
    """A linear map of rows: of cotangents back, or of tangents forward.

    ``where`` compiles the kernel of a dtype, whose layout is ``words``; its pointers are those of target, cotangent and
    what the form saves, all C-contiguous. ``rule`` is the same on arrays of the shapes ``source_shape`` and ``shape``,
    that of the target. ``turned`` is its transpose; None where that is itself.
    """

    shape: Strides
    source_shape: Strides
    dtype: np.dtype[Any]
    words: tuple[int, ...]
    where: Callable[[np.dtype[Any]], int]
    rule: Callable[..., Array]
    turned: RowPull | None = None
    covers: bool = True

    @property
    def steps(self) -> int:
        """How often the innermost expression runs."""
        return max(math.prod(self.shape), math.prod(self.source_shape))

    def kernel(self) -> tuple[int, Array]:
        """Compile, or find, the kernel; return its address and layout."""
        return self.where(self.dtype), _layout(self.words)

    def contribute(self, buffer: Array, offset: int, cotangent: Array, saved: tuple[Any, ...]) -> None:
        """Run the rule on arrays and add what it finds."""
        start, size = offset // buffer.itemsize, math.prod(self.shape)
        rows = cotangent.reshape(-1)[: math.prod(self.source_shape)].reshape(self.source_shape)
        with np.errstate(all="ignore"):
            contribution = np.asarray(self.rule(rows, *saved)).reshape(-1) + 0.0
        if self.source_shape != self.shape:  # a number for each row: none where that is nothing
            outer, _, inner, *_ = self.words
            nothing = ((rows == 0) & np.signbit(rows)).reshape(outer, 1, inner)
            contribution = np.where(nothing, -0.0, contribution.reshape(outer, -1, inner)).reshape(-1)
        buffer[start : start + size] += contribution


@functools.lru_cache(256)
def _layout(words: tuple[int, ...]) -> Array:
    return np.array(words, np.int64)


def extents(shape: Strides, dims: Strides) -> tuple[int, int, int] | None:
    """Return how many rows along dims there are before each other, how long, how many side by side; None if apart."""
    dims = tuple(sorted(dims))
    if not dims or dims != tuple(range(dims[0], dims[-1] + 1)):
        return None
    return math.prod(shape[: dims[0]]), math.prod([shape[i] for i in dims]), math.prod(shape[dims[-1] + 1 :])


def row_pull(
    source: Spec,
    spec: Spec,
    dims: Strides,
    name: str,
    rule: Callable[..., Array],
    turned: str = "",
    jvp: Callable[..., Array] | None = None,
    *,
    number: float = 0.0,
) -> RowPull | None:
    """Return the pullback of small rows along dims (its transpose: ``turned``, ``jvp``, if others), or None."""
    item, rows = source.dtype.itemsize, extents(source.shape, dims)
    in_order = source.strides == source.gradient == dense(source.shape, item)
    in_order = in_order and spec.strides == spec.gradient == dense(spec.shape, item)
    if rows is None or not in_order or not 0 < source.bytes < LARGE or source.dtype not in (np.float64, np.float32):
        return None
    if not have_text("rules.rows_native"):
        return None
    words = (*rows, int(np.float64(number).view(np.int64)))
    back, forth = (functools.partial(address, "rules.rows_native", kernel) for kernel in (name, turned or name))
    push = None if jvp is None else RowPull(spec.shape, source.shape, source.dtype, words, forth, jvp)
    return RowPull(source.shape, spec.shape, source.dtype, words, back, rule, push)


# Results of small rows take a kernel in the place of several calls of NumPy's. Dynamic mode and replays choose alike,
# by operation, dtype and shape, and so agree in every bit.

_FILE = "rules.rows_native"
SHORT = 64
"""Elements of a row up to which counting, or moving elements one by one, is the fastest way to order them."""


@dataclass(frozen=True)
class RowValue:
    """How the results of rows are computed: a kernel of row_values_native, of a dtype, with its layout."""

    name: str
    dtype: np.dtype[Any]
    shape: Strides  # of the result
    words: tuple[int, ...]
    places: bool  # whether the places of its elements are written too

    @property
    def steps(self) -> int:
        """How much it computes, in elements."""
        return math.prod(self.words[:3])

    def kernel(self) -> tuple[int, Array]:
        """Compile, or find, the kernel; return its address and layout."""
        return address(_FILE, self.name, self.dtype), _layout(self.words)

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
    """Return how results along dims of small arrays are computed; None where no kernel suits them."""
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
    return NATIVE and have_text(_FILE)


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
        return address("rules.rows_native", "pick", self.spec.dtype), layout


def pick(locate: Any, array: Array, *, axis: int, keepdims: bool) -> tuple[Array, Array]:
    """Return the same in NumPy, of any dtype; both are fresh."""
    wide = np.asarray(locate(array, axis=axis, keepdims=True)) if array.ndim else np.zeros((), np.int64)
    value = np.take_along_axis(array, wide, axis) if array.ndim else array
    places = np.array(wide if keepdims or not array.ndim else wide.squeeze(axis), np.int64, order="C")
    return np.array(value.reshape(places.shape), order="C"), places


Pair = tuple[int, int]
LARGEST_LOOP = 1 << 12
"""Multiplications of one product up to which compiled programs have it as a loop, not as a call of BLAS."""


@dataclass(frozen=True)
class Factor:
    """A matrix among a kernel's pointers: its place, and its strides in bytes (0 for an axis it does not have)."""

    place: int
    strides: Pair

    @property
    def turned(self) -> Factor:
        """The matrix transposed."""
        return Factor(self.place, (self.strides[1], self.strides[0]))


@dataclass(frozen=True)
class Product:
    """``target (m, n) (+)= left (m, k) @ right (k, n)``; the extents are m, n and k."""

    dtype: np.dtype[Any]
    extents: tuple[int, int, int]
    target: Factor
    left: Factor
    right: Factor
    covers: bool = True

    @property
    def steps(self) -> int:
        """The multiplications, as many as a step of another loop takes time for together."""
        return math.prod(self.extents) // 16

    def kernel(self) -> tuple[int, np.ndarray[Any, Any]]:
        """Return the address of the kernel and its layout."""
        loop = inner_loop(np.matmul, (self.dtype,) * 3)
        (m, n, k), item = self.extents, self.dtype.itemsize
        words = [loop.address, loop.data, item, self.left.place, self.right.place, self.target.place]
        extents = [1, m, k, n]
        strides = [0, 0, 0, *self.left.strides, *self.right.strides, *self.target.strides]
        layout = np.array(words + extents + strides, np.int64)
        return int(jit.load_module("rules.rows_native").kernel.address), layout


def product(
    dtype: np.dtype[Any], extents: tuple[int, int, int], target: Factor, left: Factor, right: Factor
) -> PrintedLoop | Product:
    """Return the pullback that is a matrix product; of a column and a row, a loop takes one pass."""
    m, n, inner = extents
    if inner != 1:
        return Product(dtype, extents, target, left, right)
    factors = (left.place, (left.strides[0], 0)), (right.place, (0, right.strides[1]))
    (g, of_g), (x, of_x) = sorted(factors)  # the cotangent's place is 1
    operands = (
        KernelOperand("target", dtype, 0, target.strides),
        KernelOperand("g", dtype, g, of_g),
        KernelOperand("x", dtype, x, of_x),
    )
    return PrintedLoop(lambda g, x: g * x, (m, n), operands)


def matrices(
    a: Strides, a_strides: Strides, b: Strides, b_strides: Strides, result: Strides
) -> tuple[tuple[int, int, int], tuple[int, int], tuple[int, int], tuple[int, int]]:
    """See vectors as matrices of one row or column: (m, k, n) and the strides of left, right and result."""
    rows, row = (a[0], a_strides[0]) if len(a) == 2 else (1, 0)  # noqa: PLR2004 (ranks)
    columns, column = (b[1], b_strides[1]) if len(b) == 2 else (1, 0)  # noqa: PLR2004
    remaining = iter(result)
    out_row = next(remaining) if len(a) == 2 else 0  # noqa: PLR2004
    out_column = next(remaining) if len(b) == 2 else 0  # noqa: PLR2004
    return (rows, a[-1], columns), (row, a_strides[-1]), (b_strides[0], column), (out_row, out_column)
