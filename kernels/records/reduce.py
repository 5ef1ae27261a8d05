"""Reductions of arrays as their records say: by a ufunc, or what reduces as one, over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.records.kinds import Reduction

Array = np.ndarray[Any, Any]
_FLOAT64 = np.dtype(np.float64)


def counted(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Return how many elements meet in one result."""
    return math.prod([shape[axis] for axis in axes])


def reduced(op: Reduction, array: Array, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Reduce over axes, normalised.

    The array is made contiguous first: NumPy's order of summation, and so a sum's last bits, depends on strides.
    """
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    with np.errstate(all="ignore"):
        value = op.ufunc.reduce(array, axis=axes, keepdims=keepdims)
        if not op.scale:
            return value
        count = counted(array.shape, axes)
        return value / np.float64(count) if value.dtype == _FLOAT64 else value / value.dtype.type(count)
