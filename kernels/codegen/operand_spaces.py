"""The operands of a loop, and its layout: words that kernels read, and the pattern that their source depends on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.arrays.specs import Strides, nest
from kernels.foundation.data_classes import dataclass


@dataclass(frozen=True)
class Operand:
    """What a kernel reads: its name in the rule, its dtype, its place among the pointers, its strides.

    ``offset``: where it begins behind its pointer, in bytes; None for an operand that always begins there.
    """

    name: str
    dtype: np.dtype[Any]
    place: int
    strides: Strides
    offset: int | None = None


def laid_out(shape: Strides, operands: tuple[Operand, ...], tail: list[int]) -> tuple[np.ndarray[Any, Any], str]:
    """Return ``[rows, n, outer axes, extents ..., strides of each operand ..., tail ...]``, innermost first.

    And the pattern of the inner strides: for each operand "1" for the next element, "0" for the same, "s" for another;
    "+" behind them for outer axes. It is empty for a single element.
    """
    count = len(operands)
    if 0 in shape:
        return np.array([0] * (3 + count) + tail, np.int64), "s" * count
    extents, nested = nest(shape, [operand.strides for operand in operands])
    if not extents:
        return np.array([1, 1] + [0] * (1 + count) + tail, np.int64), ""
    *outer, inner = extents
    words = [math.prod(outer), inner, len(outer), *reversed(outer)]
    for operand_strides in nested:
        words += reversed(operand_strides)
    kinds = [
        {0: "0", operand.dtype.itemsize: "1"}.get(operand_strides[-1], "s")
        for operand, operand_strides in zip(operands, nested, strict=True)
    ]
    return np.array(words + tail, np.int64), "".join(kinds) + "+" * bool(outer)


def printed(operands: Sequence[Operand]) -> tuple[Any, ...]:
    """Return what a kernel's text has of its operands; their strides are in the layout and in the pattern."""
    return tuple([(o.name, o.dtype.num, o.place, o.offset is None) for o in operands])
