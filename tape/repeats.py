"""Operations repeated: on operands of specs seen before nothing is left to check, and the form is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.forms import Form
from kernels.op import Reduction
from tape import modes, tapes
from tape.tensor import Array, Tensor, as_array, carried, new


def repeats(result: Tensor) -> Form | None:
    """Return the form that the next call on the same specs may use: of what the tape alone recorded, and small."""
    form = result._form
    if type(form) is not Form or type(result._slot) is not int or modes.active() is None:
        return None
    return form if form.spec.bytes < tapes.LARGE else None


def again(tape: tapes.Tape, form: Form, slots: list[Any], value: Array | float, kept: tuple[Any, ...] = ()) -> Tensor:
    """Return the result of an operation that has been recorded with this form before."""
    result = new(Tensor)
    result._value = value
    result._form = form
    result._slot = slot = tape.fresh()
    tape.extend((slot, *slots, *kept, form.code))
    return result


def reduction(op: Reduction, x: Tensor, like: Form, count: float) -> Tensor | None:
    """Reduce as an earlier call did on a tensor of the same spec; None where that is not all there is to do."""
    tape, slot = modes.active(), x._slot
    if not tape or slot is None:
        return None
    axes, keepdims = like.params
    array = as_array(x)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    value = op.ufunc.reduce(array, axes, None, None, keepdims)
    if op.scale:
        value = value / value.dtype.type(count)
    if not like.saved:
        return again(tape, like, [slot], value if like.spec.shape else carried(value))
    kept = {"n": count, "x": x._value, "y": value if like.spec.shape else carried(value)}
    if op.selects:
        wide = value if keepdims or not like.spec.shape else op.ufunc.reduce(array, axes, None, None, True)
        ties = np.sum(array == wide, axes, array.dtype, keepdims=keepdims)
        if not ties.all():  # nan ties with nan
            return None
        kept["n"] = carried(ties)
    return again(tape, like, [slot], kept["y"], tuple([kept[name] for name in like.saved]))
