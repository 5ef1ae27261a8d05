"""Numbers of tensors that the user's code just compares, as recorded comparisons."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tape.foundation.call_sites import is_ours
from tape.tensors.tensor import Tensor
from tape.watching.compared_numbers import Compared, compared_in

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_LARGEST = 1 << 53
"""Integers up to this are floats, too."""
_CONVERSIONS = {
    ("tape.conversions.to_python", "item"): "item",
    ("tape.numpy_interface.methods", "_item"): "item",
    ("tape.conversions.to_python", "to_float"): "float",
}
"""What users call the functions of this package that give numbers, by where these are."""


def comparison_of(x: Tensor) -> Tensor | None:
    """Return the comparison for which alone a tensor of one element becomes a number: a bool of no dimensions.

    None if more becomes of the number. The comparison is recorded, and has the value that Python's has.
    """
    frame, inner = sys._getframe(1), None
    while frame.f_back is not None and is_ours(frame):
        frame, inner = frame.f_back, frame
    if inner is None:
        return None
    how = _CONVERSIONS.get((inner.f_globals.get("__name__", ""), inner.f_code.co_name))
    compared = None if how is None else compared_in(frame, how)
    return None if compared is None or not _is_exact(x, compared.other) else _made(x.detach(), compared)


def _is_exact(x: Tensor, other: float) -> bool:
    """Whether tensors are compared as Python's numbers are."""
    if type(other) is int and abs(other) > _LARGEST:
        return False
    return x.spec.dtype.kind == "f" or (x.spec.dtype == np.int64 and type(other) is int)


def _made(x: Tensor, compared: Compared) -> Tensor:
    if x.spec.dtype.kind == "f" and x.spec.dtype != np.float64:
        x = x.double()
    if x.spec.shape:
        x = x.reshape(())
    result: Tensor = _OPERATORS[compared.operator](abs(x) if compared.absolute else x, compared.other)
    return result
