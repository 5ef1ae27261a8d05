"""Operations repeated: on operands of specs seen before nothing is left to check, and the form is known."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import numpy as np

from kernels.forms import Form
from kernels.layouts import Spec
from kernels.op import Reduction
from tape import modes, tapes
from tape.tensor import Array, Tensor, as_array, carried, new


def listening() -> tuple[modes.Observer, Any] | tuple[None, None]:
    """Return the recorder in force, if nobody else is to hear, and the tape to record on, False without gradients."""
    grad, recorder, pack, _, anomaly, inference, thread = modes._mode.get()
    if recorder is None or pack is not None or anomaly is not None or inference:
        return None, None
    if thread != get_ident():
        modes.current()  # says so
    return recorder, grad and modes.own_tape()


def ears() -> tuple[Any, modes.Observer | None]:
    """Return the tape to record on, False without gradients and None for the longer way, and who else is to hear."""
    tape = modes.active()
    if tape is not None:
        return tape, None
    recorder, tape = listening()
    return tape, recorder


def heard() -> bool:
    """Whether what is done now may be repeated: the tape alone hears of it, or a recorder too."""
    return ears()[0] is not None


def repeats(result: Tensor) -> Form | None:
    """Return the form that the next call on the same specs may use: of what the tape alone recorded, and small."""
    form = result._form
    if type(form) is not Form or type(result._slot) is not int or not heard():
        return None
    return form if form.spec.bytes < tapes.LARGE else None


def bare(spec: Spec, value: Array | float) -> Tensor:
    """Return the result of an operation that nobody wants gradients of."""
    result = new(Tensor)
    result._value, result._slot, result._form = value, None, spec
    return result


def again(tape: tapes.Tape, form: Form, slots: list[Any], value: Array | float, kept: tuple[Any, ...] = ()) -> Tensor:
    """Return the result of an operation that has been recorded with this form before."""
    result = new(Tensor)
    result._value = value
    tape.record(result, form.code, tuple(slots), kept)
    return result


class Reduced:
    """What is known of a reduction: its axes, how many elements meet in one result, and what that is."""

    __slots__ = ("axes", "count", "form", "keepdims", "spec")

    def __init__(self, x: Tensor, result: Tensor, axes: tuple[int, ...], keepdims: bool) -> None:
        self.axes, self.keepdims, self.spec = axes, keepdims, result.spec
        self.count = float(x.spec.size // self.spec.size)
        form = result._form
        self.form = form if type(form) is Form and type(result._slot) is int else None


def reduction(op: Reduction, x: Tensor, like: Reduced) -> Tensor | None:
    """Reduce as an earlier call did on a tensor of the same spec; None where that is not all there is to do."""
    (tape, recorder), slot = ears(), x._slot
    if tape is None:
        return None
    wanted, form = bool(tape) and slot is not None, like.form
    if wanted and form is None:
        return None
    axes, keepdims, array = like.axes, like.keepdims, as_array(x)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    value = op.ufunc.reduce(array, axes, None, None, keepdims)
    if op.scale:
        value = value / value.dtype.type(like.count)
    if not like.spec.shape:
        value = carried(value)
    if not wanted or form is None:
        result = bare(like.spec, value)
    else:
        kept = _kept(op, x, like, array, value) if form.saved else ()
        if kept is None:
            return None
        result = again(tape, form, [slot], value, kept)
    if recorder is not None:
        recorder.note(op, (x,), result, (axes, keepdims))
    return result


def _kept(op: Reduction, x: Tensor, like: Reduced, array: Array, value: Any) -> tuple[Any, ...] | None:
    """Return what the tape keeps; None where nan stands in place of an extremum."""
    kept: dict[str, Any] = {"n": like.count, "x": x._value, "y": value}
    if op.selects:
        wide = value if like.keepdims or not like.spec.shape else op.ufunc.reduce(array, like.axes, None, None, True)
        ties = np.sum(array == wide, like.axes, array.dtype, keepdims=like.keepdims)
        if not ties.all():  # nan ties with nan
            return None
        kept["n"] = carried(ties)
    assert like.form is not None
    return tuple([kept[name] for name in like.form.saved])
