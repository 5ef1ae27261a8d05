"""The extremum along an axis and its first place, as NumPy's argmax finds it: nan wins, then the first of equals."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.codegen.rows.row_kernels import address
from kernels.foundation.data_classes import dataclass

Array = np.ndarray[Any, Any]


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
        return address("codegen.rows.extrema_native", "pick", self.spec.dtype), layout


def pick(locate: Any, array: Array, *, axis: int, keepdims: bool) -> tuple[Array, Array]:
    """Return the same in NumPy, of any dtype; both are fresh."""
    wide = np.asarray(locate(array, axis=axis, keepdims=True)) if array.ndim else np.zeros((), np.int64)
    value = np.take_along_axis(array, wide, axis) if array.ndim else array
    places = np.array(wide if keepdims or not array.ndim else wide.squeeze(axis), np.int64, order="C")
    return np.array(value.reshape(places.shape), order="C"), places
