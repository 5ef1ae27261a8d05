"""Specs by number: which are the same pattern in memory, which the same shape, how far each reaches."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Spec

Array = np.ndarray[Any, Any]


class Patterns:
    """Distinct specs, each with a number; the columns have an entry a spec.

    ``pattern`` is one for specs that are alike in shape, dtype and strides: those of axes of extent 1 tell nothing.
    ``shape`` is one for those alike in shape and dtype. Elements lie from ``low`` to ``high`` bytes from the first one.
    ``apart``: the gradient's strides differ from the value's.
    """

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self._numbers: dict[int, int] = {}
        self._patterns: dict[Any, int] = {}
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._columns = np.zeros((0, 5), np.int64)

    def number(self, spec: Spec) -> int:
        """Return the number of a spec."""
        number = self._numbers.get(id(spec))
        if number is None:
            number = self._numbers[id(spec)] = len(self.specs)
            self.specs.append(spec)
            self._rows.append(self._row(spec))
        return number

    def _row(self, spec: Spec) -> tuple[int, int, int, int, int]:
        extents = [n for n in spec.shape if n != 1]
        strides = tuple([s for s, n in zip(spec.strides, spec.shape, strict=True) if n != 1])
        gradient = tuple([s for s, n in zip(spec.gradient, spec.shape, strict=True) if n != 1])
        reach = [(n - 1) * s for n, s in zip(extents, strides, strict=True)] if spec.size else []
        low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
        pattern = self._patterns.setdefault((spec.shape, spec.dtype.num, strides), len(self._patterns))
        shape = self._patterns.setdefault((spec.shape, spec.dtype.num), len(self._patterns))
        return pattern, shape, low, high + spec.dtype.itemsize * (spec.size > 0), strides != gradient

    def _column(self, place: int) -> Array:
        if len(self._columns) < len(self._rows):
            self._columns = np.array(self._rows, np.int64).reshape(-1, 5)
        return self._columns[:, place]

    @property
    def pattern(self) -> Array:
        """Numbers that are equal for equal patterns in memory."""
        return self._column(0)

    @property
    def shape(self) -> Array:
        """Numbers that are equal for equal shapes and dtypes."""
        return self._column(1)

    @property
    def low(self) -> Array:
        """Where the elements begin, in bytes from the first one: not above 0."""
        return self._column(2)

    @property
    def high(self) -> Array:
        """Where the elements end, in bytes from the first one."""
        return self._column(3)

    @property
    def apart(self) -> Array:
        """Whether the gradient has other strides than the value."""
        return self._column(4)
