"""Pullbacks of whole rows in native code: a handwritten kernel in the place of a printed one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.layouts import Strides
from kernels.observing import Array
from kernels.structs import dataclass


@dataclass(frozen=True)
class RowPull:
    """A linear map of each row, its own transpose: of cotangents back, and of tangents forward.

    ``where`` compiles the kernel, whose layout is the count and the length of rows; its pointers are those of
    target, cotangent and what the form saves, all C-contiguous. ``rule`` is the same on arrays.
    """

    shape: Strides
    dtype: np.dtype[Any]
    where: Callable[[np.dtype[Any]], int]
    rule: Callable[..., Array]
    covers: bool = True

    @property
    def steps(self) -> int:
        """How often the innermost expression runs."""
        return math.prod(self.shape)

    def kernel(self) -> tuple[int, Array]:
        """Compile, or find, the kernel; return its address and layout."""
        return self.where(self.dtype), _layout(self.shape)

    def contribute(self, shadow: Array, offset: int, cotangent: Array, saved: tuple[Any, ...]) -> None:
        """Run the rule on arrays and add what it finds."""
        start = offset // shadow.itemsize
        given = cotangent.reshape(-1)[: self.steps].reshape(self.shape)
        shadow[start : start + self.steps] += self.rule(given, *saved).reshape(-1)


@functools.lru_cache(256)
def _layout(shape: Strides) -> Array:
    return np.array([math.prod(shape[:-1]), shape[-1]], np.int64)
