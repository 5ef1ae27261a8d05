"""The short way of a backward: from one root on this thread's tape to leaves, without hooks or observers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.foundation.numpy_arrays import FreedError
from kernels.foundation.specs import Spec
from kernels.kinds.routine import Unsettled
from kernels.native.structs import PULLS, VIEW
from kernels.sweeps import backend
from tape import errors
from tape.tensors import modes
from tape.tensors.tapes import LONG, Tape
from tape.tensors.tensor import Tensor


def native_backward(
    x: Tensor, gradient: Any, targets: tuple[Any, ...] | None, alone: bool, tensors: bool, free: bool
) -> Any:
    """Run a backward natively, see ``ShortOptions``; NotImplemented, with nothing freed, where it cannot be.

    With targets, return their gradients. Else set ``.grad`` of the leaves, and return the gradients that Python has to
    add to an existing one, or None.
    """
    tape = modes.active()
    if not tape:
        if tape is modes.ASK_MODE:
            return NotImplemented
        tape = modes.own_tape()
    form, value = x._form, None
    seen = _seen(tape, free=free, accumulates=targets is None) if tape.hooks or tape.nodes or tape.retained else ()
    if gradient is not None:
        value = _value(gradient, form.spec)
        if value is None:
            return NotImplemented
    elif form.spec.size != 1:
        return NotImplemented
    try:
        how = value, targets, alone, tensors, free, seen
        outcome = backend.short_backward(tape.entries, x, _root, tape, how)
    except Unsettled:
        return NotImplemented
    except FreedError:
        raise errors.GradError(errors.SECOND_TIME) from None
    if tape.swept > LONG:
        tape.leave(x)
    return outcome


def _root(x: Tensor) -> tuple[int, Spec, int | None]:
    form = x._form
    kind = form.kind  # type: ignore[union-attr]
    return x._slot, form.spec, None if kind == PULLS else x._offset if kind == VIEW else 0


def _seen(tape: Tape, *, free: bool, accumulates: bool) -> list[int]:
    observed = [*tape.hooks, *(tape.nodes if free else ())]
    if accumulates:
        slots = [x._slot for reference in list(tape.retained.values()) if (x := reference()) is not None]
        observed += [slot for slot in slots if type(slot) is int]
    return observed


def _value(gradient: Any, spec: Spec) -> Any:
    gradient_spec = gradient._form.spec if type(gradient) is Tensor else None
    fits = gradient_spec is not None and gradient_spec.shape == spec.shape and gradient_spec.dtype is spec.dtype
    return gradient._value if fits else None


def pulled(y: Any, cotangent: Any, inputs: Sequence[Any], *, tensors: bool, free: bool) -> Sequence[Any] | None:
    """Return the gradients of a root by leaves, if it leads to no others; None where that cannot be.

    The cotangent may be None for one element. Gradients are tensors, or arrays and floats. The leaves are marked as
    those of a finished transform.
    """
    outcome: Any = NotImplemented
    if type(y) is Tensor:
        outcome = native_backward(y, cotangent, tuple(inputs), True, tensors, free)
    return None if outcome is NotImplemented else outcome


def leads(y: Any, inputs: tuple[Any, ...]) -> bool:
    """Return whether a tensor was computed on this thread's tape from these leaves alone, without observers."""
    tape = modes.active()
    if type(y) is not Tensor or not tape or tape.hooks or tape.nodes or tape.retained:
        return False
    try:
        return backend.leads(tape.entries, y, tape, inputs)
    except FreedError:  # the longer way says so
        return False


def gradients(outputs: Any, inputs: Any, weights: Any, *, free: bool) -> tuple[Tensor, ...] | None:
    """Return what ``grad`` does for one root and leaves that it leads to; None where only the general way serves."""
    root, weight = _only(outputs), None if weights is None else _only(weights)
    targets: Sequence[Any] = (inputs,) if type(inputs) is Tensor else inputs
    if root is None or (weight is None and weights is not None) or not isinstance(targets, (tuple, list)):
        return None
    outcome: Any = native_backward(root, weight, tuple(targets), False, True, free)
    return None if outcome is NotImplemented else outcome


def _only(tensors: Any) -> Tensor | None:
    if isinstance(tensors, (list, tuple)) and len(tensors) == 1:
        tensors = tensors[0]
    return tensors if type(tensors) is Tensor else None
