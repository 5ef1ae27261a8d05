"""Matrix products by the inner loop of ``np.matmul``, which calls NumPy's BLAS: forward and pullbacks alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Strides
from kernels.codegen.loop_printer import Loop, Operand
from kernels.compiler import jit
from kernels.foundation.data_classes import dataclass

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
        loop = numpy_loops.find(np.matmul, (self.dtype,) * 3)
        (m, n, k), item = self.extents, self.dtype.itemsize
        words = [loop.address, loop.data, item, self.left.place, self.right.place, self.target.place]
        extents = [1, m, k, n]
        strides = [0, 0, 0, *self.left.strides, *self.right.strides, *self.target.strides]
        layout = np.array(words + extents + strides, np.int64)
        return int(jit.load_module("codegen.matmul_native").kernel.address), layout


def product(
    dtype: np.dtype[Any], extents: tuple[int, int, int], target: Factor, left: Factor, right: Factor
) -> Loop | Product:
    """Return the pullback that is a matrix product; of a column and a row, a loop takes one pass."""
    m, n, inner = extents
    if inner != 1:
        return Product(dtype, extents, target, left, right)
    factors = (left.place, (left.strides[0], 0)), (right.place, (0, right.strides[1]))
    (g, of_g), (x, of_x) = sorted(factors)  # the cotangent's place is 1
    operands = (Operand("target", dtype, 0, target.strides), Operand("g", dtype, g, of_g), Operand("x", dtype, x, of_x))
    return Loop(lambda g, x: g * x, (m, n), operands)


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
