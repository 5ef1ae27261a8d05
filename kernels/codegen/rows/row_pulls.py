"""Pullbacks of whole rows in native code: a handwritten kernel in the place of a printed one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides, dense
from kernels.arrays.sweep_interface import Array
from kernels.codegen import elements
from kernels.compiler import jit
from kernels.compiler.module_texts import PACKAGE, content_of
from kernels.foundation.data_classes import dataclass
from kernels.native.pool.pool_structs import LARGE

# Kernels out of a file of them, for float64 or float32: only what is called is compiled.


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
    """Return the pullback of small rows along dims, by a kernel of rows_native; None of what does not suit one.

    ``turned`` names the kernel of its transpose, and ``jvp`` is that on arrays; without they are the same.
    """
    item, rows = source.dtype.itemsize, extents(source.shape, dims)
    in_order = source.strides == source.gradient == dense(source.shape, item)
    in_order = in_order and spec.strides == spec.gradient == dense(spec.shape, item)
    if rows is None or not in_order or not 0 < source.bytes < LARGE or source.dtype not in (np.float64, np.float32):
        return None
    if not have_text("codegen.rows.row_pulls_native"):
        return None
    words = (*rows, int(np.float64(number).view(np.int64)))
    back, forth = (
        functools.partial(address, "codegen.rows.row_pulls_native", kernel) for kernel in (name, turned or name)
    )
    push = None if jvp is None else RowPull(spec.shape, source.shape, source.dtype, words, forth, jvp)
    return RowPull(source.shape, spec.shape, source.dtype, words, back, rule, push)
