"""Numbers of tensors that the user's code just compares, as recorded comparisons."""

from __future__ import annotations

import sys

import numpy as np

from tape.foundation.call_sites import users_frame
from tape.tensors.tensor import Tensor
from tape.watching.compared_numbers import OPERATORS, Compared, compared_in

_LARGEST = 1 << 53
"""Integers up to this are floats, too."""
_CONVERSIONS = {
    ("tape.conversions.to_python", "item"): "item",
    ("tape.numpy_interface.methods", "_item"): "item",
    ("tape.conversions.to_python", "to_float"): "float",
}
"""What users call the functions of this package that give numbers, by where these are."""


def comparisons_of(x: Tensor) -> list[Tensor] | None:
    """Return the comparisons for which alone a tensor of one element becomes a number: bools of no dimensions.

    None if more becomes of the number. The comparisons are recorded, and have the values that Python's have.
    """
    frame, steps = users_frame(sys._getframe(1))
    inner = sys._getframe(steps)
    how = _CONVERSIONS.get((inner.f_globals.get("__name__", ""), inner.f_code.co_name))
    compared = None if how is None or frame is None else compared_in(frame, how)
    if compared is None or not all(_is_exact(x, each.other) for each in compared):
        return None
    return [_made(x.detach(), each) for each in compared]


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
    result: Tensor = OPERATORS[compared.operator](abs(x) if compared.absolute else x, compared.other)
    return result
