"""Operations of three operands or more, repeated on operands of specs seen before; what rows are for one and two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.forms import Form
from kernels.op import Elementwise
from kernels.recent import Recent
from kernels.scipy_ufuncs import resolved
from kernels.words import PYTHON
from tape import modes, tapes
from tape.operands import LARGEST, as_saved
from tape.promotion import by_rows, calls_scipy
from tape.tensor import Tensor, new


class WideRow:
    """What is known of an operation on operands of these specs, of which these are wanted."""

    __slots__ = ("form", "picks", "post")

    def __init__(self, op: Elementwise, result: Tensor) -> None:
        self.form: Any = result._form
        form = self.form
        order = (*op.inputs, "y")
        self.picks = tuple(order.index(name) for name in form.saved) if isinstance(form, Form) else ()
        spec = result.spec
        self.post = None if spec.shape else float if spec.dtype == np.float64 else np.asarray


def wide(op: Elementwise) -> Callable[..., Tensor]:
    """Return the function of an operation: tensors, arrays and Python numbers."""
    seen: Recent[Any, WideRow] = Recent()

    def run(*operands: Any) -> Tensor:
        tape = modes.active()
        if tape is None or (specs := _specs(operands)) is None:
            return by_rows(op, *operands)
        slots = [o._slot if type(o) is Tensor else None for o in operands] if tape else [None]
        wants = slots.count(None) < len(slots)
        key = (specs, *[slot is None for slot in slots]) if wants else specs
        row = seen.get(key)
        if row is None:
            result = by_rows(op, *operands)
            if _can_repeat(op, operands, result, wants=wants):
                seen[key] = WideRow(op, result)
            return result
        values = [o._value if type(o) is Tensor else o for o in operands]
        value = resolved(op.ufunc)(*values)
        if row.post is not None:
            value = row.post(value)
        result = new(Tensor)
        result._value = value
        form = row.form
        if not wants:
            result._slot, result._form = None, form
            return result
        values.append(value)
        tape.record(result, form.code, tuple(slots), tuple([as_saved(values[k]) for k in row.picks]))
        return result

    return run


def _specs(operands: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the specs of tensors and None for numbers; None in all if an operand is something else."""
    found: list[Any] = []
    for o in operands:
        kind = type(o)
        if kind is Tensor:
            found.append(o._form.spec)
        elif kind is float or (kind is int and -LARGEST <= o <= LARGEST):
            found.append(None)
        else:
            return None
    return tuple(found)


def _can_repeat(op: Elementwise, operands: tuple[Any, ...], result: Tensor, *, wants: bool) -> bool:
    """Whether all tensors, a condition apart, are of the result's float dtype, and none is large, which are watched."""
    given = [o for o in operands[op.condition :] if isinstance(o, Tensor)]
    same = {o.spec.dtype for o in (*given, result)}
    if len(same) > 1 or not given or result.spec.dtype.kind != "f" or calls_scipy(op):
        return False
    if any(o.spec.bytes >= tapes.LARGE for o in (*operands, result) if isinstance(o, Tensor)):
        return False
    form = result._form
    return isinstance(form, Form) and form.kind != PYTHON if wants else not isinstance(form, Form)
