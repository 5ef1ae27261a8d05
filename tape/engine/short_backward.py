"""The short way of a backward: from one root on this thread's tape to leaves, without hooks or observers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.foundation.numpy_arrays import CrossingError, FreedError, Wanted
from kernels.foundation.specs import Array, Spec
from kernels.kinds.routine import Unsettled
from kernels.native.structs import PULLS, TAPE_BITS, VIEW
from kernels.sweeps import backend
from tape import errors
from tape.engine.accumulate_grad import tensor_of
from tape.tensors import hooks, modes
from tape.tensors.tapes import LONG, Tape
from tape.tensors.tensor import AccumulateGrad, Tensor

Leaves = list[tuple[AccumulateGrad, Array | float]]


def delivered(x: Tensor, gradient: Any, *, free: bool) -> Leaves | None:
    """Set ``.grad`` of the leaves of a tensor; return the gradients that Python has to add to an existing ``.grad``.

    The cotangent may be None for one element. None, with nothing freed, where only the general way serves.
    """
    outcome = _asked(x, gradient, None, False, False, free)
    if outcome is NotImplemented:
        return swept(x, gradient, free=free)
    return outcome or []


def _asked(x: Tensor, gradient: Any, targets: tuple[Any, ...] | None, alone: bool, tensors: bool, free: bool) -> Any:
    """Run a backward natively (reverse.py, ``ask``); NotImplemented, with nothing freed, where that cannot be done."""
    tape = modes.active()
    if not tape:
        if tape is modes.ASK_MODE:
            return NotImplemented
        tape = modes.own_tape()
    if tape.hooks or tape.nodes or tape.retained:
        return NotImplemented
    form, value = x._form, None
    if gradient is not None:
        value = _value(gradient, form.spec)
        if value is None:
            return NotImplemented
    elif form.spec.size != 1:
        return NotImplemented
    try:
        how = value, targets, alone, tensors, free
        outcome = backend.short_backward(tape.entries, x, _root, tape, how)
    except Unsettled:
        return NotImplemented
    except FreedError:
        raise errors.GradError(errors.SECOND_TIME) from None
    if tape.swept > LONG:
        tape.leave(x)
    return outcome


def _root(x: Tensor) -> tuple[int, Spec, int | None]:
    """Return the slot of a computed tensor, its spec, and where its gradient begins in its family's buffer."""
    form = x._form
    kind = form.kind  # type: ignore[union-attr]
    return x._slot, form.spec, None if kind == PULLS else x._offset if kind == VIEW else 0


def swept(x: Tensor, gradient: Any, *, free: bool, only: Wanted | None = None) -> Leaves | None:
    """Return gradients of leaves for a cotangent of a tensor; None, with nothing freed, where this way does not serve.

    The cotangent may be None for one element. With ``only``: of these leaves, and None unless all were reached.
    """
    tape, hooked = modes.active(), hooks.LEAVES if only is None else ()
    if tape is modes.ASK_MODE:
        return None
    if not tape:
        tape = modes.own_tape()
    slot, form, value = x._slot, x._form, None
    if type(slot) is not int or slot >> TAPE_BITS != tape.number:
        return None
    if gradient is not None:
        value = _value(gradient, form.spec)
    if value is None and (gradient is not None or form.spec.size != 1):
        return None
    seen = _seen(tape, free=free, accumulates=only is None) if tape.hooks or tape.nodes or tape.retained else ()
    try:
        how = value, only, hooked, seen
        pairs = backend.run_one(tape.entries, tape.number, _root(x), tape, free, how)
    except (CrossingError, Unsettled):
        return None
    except FreedError:
        raise errors.GradError(errors.SECOND_TIME) from None
    if tape.swept > LONG:
        tape.leave(x)
    return pairs


def _seen(tape: Tape, *, free: bool, accumulates: bool) -> list[int]:
    """Return the observed slots of a tape: with hooks, with nodes that are held, with retained gradients."""
    observed = [*tape.hooks, *(tape.nodes if free else ())]
    if accumulates:
        slots = [x._slot for reference in list(tape.retained.values()) if (x := reference()) is not None]
        observed += [slot for slot in slots if type(slot) is int]
    return observed


def _value(gradient: Any, spec: Spec) -> Any:
    """Return the value of a cotangent of the right shape and dtype; None if it must be checked, or converted, first."""
    gradient_spec = gradient._form.spec if type(gradient) is Tensor else None
    fits = gradient_spec is not None and gradient_spec.shape == spec.shape and gradient_spec.dtype is spec.dtype
    return gradient._value if fits else None


def values(y: Any, inputs: Sequence[Any], *, tensors: bool) -> Sequence[Any] | None:
    """Return the gradients of a root of one element by leaves, if it leads to no others; None where that cannot be.

    As tensors, or as arrays and floats. The graph is freed, and the leaves are marked as those of a finished transform.
    """
    return None if type(y) is not Tensor else pulled(y, None, tuple(inputs), tensors=tensors, free=True)


def pulled(y: Tensor, cotangent: Any, inputs: tuple[Any, ...], *, tensors: bool, free: bool) -> Sequence[Any] | None:
    """Do what :func:`values` does, for a root of any shape and its cotangent."""
    outcome: Any = _asked(y, cotangent, inputs, True, tensors, free)
    if outcome is not NotImplemented:
        return outcome  # type: ignore[no-any-return]
    wanted = _wanted(inputs)
    pairs = None if wanted is None else swept(y, cotangent, free=free, only=(wanted, True))
    if pairs is None:
        return None
    by_leaf = dict(pairs)
    for x in inputs:
        x._slot.over = True
    return [tensor(x, by_leaf[x._slot]) if tensors else by_leaf[x._slot] for x in inputs]


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
    outcome: Any = _asked(root, weight, tuple(targets), False, True, free)
    if outcome is not NotImplemented:
        return outcome  # type: ignore[no-any-return]
    wanted = _wanted(targets)
    pairs = None if wanted is None else swept(root, weight, free=free, only=(wanted, False))
    if pairs is None:
        return None
    by_leaf = dict(pairs)
    return tuple([tensor(x, by_leaf[x._slot]) for x in targets])


def _wanted(targets: Sequence[Any]) -> set[AccumulateGrad] | None:
    """Return the leaves of tensors, if these are distinct leaves without hooks; else None."""
    wanted = set()
    for x in targets:
        slot = x._slot if type(x) is Tensor else None
        if type(slot) is not AccumulateGrad or not slot.spec.in_order or (hooks.LEAVES and id(slot) in hooks.LEAVES):
            return None
        wanted.add(slot)
    return wanted if wanted and len(wanted) == len(targets) else None


def _only(tensors: Any) -> Tensor | None:
    """Return a tensor, or the only one of a list; None for anything else."""
    if isinstance(tensors, (list, tuple)) and len(tensors) == 1:
        tensors = tensors[0]
    return tensors if type(tensors) is Tensor else None


def tensor(x: Tensor, value: Array | float) -> Tensor:
    """Return the gradient of a leaf as a tensor."""
    return tensor_of(x._slot, value)
