"""The pullback of elements picked along an axis: each gradient goes to the place that it came from."""

from __future__ import annotations

import numpy as np

from kernels.arrays.specs import Spec, dense
from kernels.codegen.loop_printer import Loop, Operand
from kernels.records.symbols import passed

_INT64 = np.dtype(np.int64)


def scattered(source: Spec, spec: Spec, axis: int, place: int) -> Loop:
    """Return the pullback; the places, dense and int64, are the pointer of this number.

    The result has the axis, of whatever length, or has it not.
    """
    target = list(source.gradient)
    step = target[axis] if target else 0
    if target:
        target[axis] = 0
        if len(spec.shape) < len(source.shape):
            target.pop(axis)
    operands = (
        Operand("target", source.dtype, 0, tuple(target)),
        Operand("g", spec.dtype, 1, spec.gradient),
        Operand("i", _INT64, place, dense(spec.shape, _INT64.itemsize)),
    )
    return Loop(passed, spec.shape, operands, scatter=step)
