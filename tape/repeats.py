"""Operations repeated in Python: on operands of specs seen before nothing is left to check, and the form is known."""

from __future__ import annotations

from typing import Any

from kernels.forms import Form
from kernels.layouts import Spec
from tape import modes, tapes
from tape.tensor import Array, Tensor, new


def ears() -> tuple[Any, modes.Observer | None]:
    """Return the tape to record on, False without gradients and None for the longer way, and who else is to hear."""
    tape = modes.listening()
    return tape, None if tape is None or modes.active() is not None else modes.current().recorder


def repeats(result: Tensor) -> Form | None:
    """Return the form that the next call on the same specs may use: of what the tape alone recorded, and small."""
    form = result._form
    if type(form) is not Form or type(result._slot) is not int or modes.listening() is None:
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
