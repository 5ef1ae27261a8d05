"""The short way of a backward: from one root on this thread's tape back to leaves, where nobody looks on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels import backend
from kernels.layouts import Spec, spec_of
from kernels.observing import Array, CrossingError, FreedError, Wanted
from kernels.words import PULLS, TAPE_BITS, VIEW
from tape import errors, modes
from tape.autograd import hooks
from tape.tapes import LONG
from tape.tensor import AccumulateGrad, Tensor, new

Leaves = list[tuple[AccumulateGrad, Array | float]]


def swept(x: Tensor, gradient: Any, *, free: bool, only: Wanted | None = None) -> Leaves | None:
    """Return gradients of leaves for a cotangent of a tensor; None, with nothing freed, where more is asked for.

    The cotangent may be None for one element. With ``only`` those of these leaves: each of them, or None.
    """
    tape, hooked = modes.active(), hooks.LEAVES if only is None else ()
    if tape is None:
        return None
    if tape is False:
        tape = modes.own_tape()
    slot, form, value = x._slot, x._form, None
    usual = type(slot) is int and slot >> TAPE_BITS == tape.number and not tape.hooks and not (free and tape.nodes)
    if not usual or (only is None and tape.retained):
        return None
    if gradient is not None:
        value = _value(gradient, form.spec)
    if value is None and (gradient is not None or form.spec.size != 1):
        return None
    kind = form.kind  # type: ignore[union-attr]
    offset = None if kind == PULLS else x._offset if kind == VIEW else 0
    try:
        found = backend.run_one(
            tape.entries, tape.number, slot, form.spec, offset, tape, hooked, free=free, value=value, only=only
        )
    except CrossingError:
        return None
    except FreedError:
        raise errors.GradError(errors.SECOND_TIME) from None
    if tape.swept > LONG:
        tape.leave(x)
    return found


def _value(gradient: Any, spec: Spec) -> Any:
    """Return the value of a cotangent as it stands; None if it is to be checked, or converted, first."""
    own = gradient._form.spec if type(gradient) is Tensor else None
    fits = own is not None and own.shape == spec.shape and own.dtype is spec.dtype
    return gradient._value if fits else None


def gradients(outputs: Any, inputs: Any, weights: Any, *, free: bool, alone: bool = False) -> list[Tensor] | None:
    """Return what ``grad`` does for one root and leaves that it leads to; None where more is asked for.

    With ``alone`` for leaves that are all it leads to.
    """
    root, weight = _only(outputs), None if weights is None else _only(weights)
    targets: Sequence[Any] = (inputs,) if type(inputs) is Tensor else inputs
    if root is None or (weight is None and weights is not None) or not isinstance(targets, (tuple, list)):
        return None
    wanted = set()
    for x in targets:
        slot = x._slot if type(x) is Tensor else None
        if type(slot) is not AccumulateGrad or not slot.spec.in_order or id(slot) in hooks.LEAVES:
            return None
        wanted.add(slot)
    if not wanted or len(wanted) != len(targets):
        return None
    found = swept(root, weight, free=free, only=Wanted(wanted, alone))
    if found is None:
        return None
    by_leaf = dict(found)
    return [_tensor(x._slot, by_leaf[x._slot]) for x in targets]


def _only(given: Any) -> Tensor | None:
    """Return a tensor, or the only one of a list; None for anything else."""
    if isinstance(given, (list, tuple)) and len(given) == 1:
        given = given[0]
    return given if type(given) is Tensor else None


def _tensor(leaf: AccumulateGrad, value: Array | float) -> Tensor:
    gradient = new(Tensor)
    gradient._value, gradient._slot = value, None
    gradient._form = leaf.spec if leaf.spec.alike else spec_of(value)
    return gradient
