"""Derivatives between tensors, in either direction, for ``tape.autograd.functional`` and ``tape.func``.

Forward mode is a native sweep over the tape's instructions, from leaves with tangents to results. Where the outcome
is to be differentiated again, it is the derivative of a recorded backward by its cotangents, which is linear in them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import GradientObserver, Seed
from kernels.foundation.specs import Array
from kernels.native.structs import TAPE_BITS
from kernels.sweeps import forward as sweeps
from tape.engine import backward
from tape.engine.accumulate_grad import tape_of
from tape.engine.backward import grad
from tape.engine.double_backward import Derivation, Derivatives, derived
from tape.engine.graph_observers import family_offset
from tape.engine.sweep_run import family_offset_of, leaves_of
from tape.recording import record
from tape.recording.views import clone, stack
from tape.tensors import grad_modes, modes
from tape.tensors.tensor import AccumulateGrad, Tensor, constant_tensor, leaf, root, scalar_or_array


def fresh_input(x: Tensor, *, linked: bool = True) -> Tensor:
    """Return a new tensor that requires grad, of an input's value: what a transform differentiates by.

    ``linked``: a copy in the graph, if the input requires grad. RuntimeError for a dtype that has no gradients.
    """
    if x.spec.dtype.kind != "f":
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    if modes.current().recorder is None and not (linked and x._slot is not None):
        return leaf(x._value, requires_grad=True)
    copy = clone(x)
    if copy._slot is not None:
        return copy
    grad_modes.check_requires_grad(copy)
    return root(copy)


def needs_graph(outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor] = ()) -> bool:
    """Whether outputs, or their derivatives by these inputs, depend on anything else that requires grad."""
    if not modes.is_grad_enabled():
        return False
    if any(w._slot is not None for w in weights):
        return True
    if len(outputs) == 1 and backward.leads(outputs[0], tuple(inputs)):  # the usual case
        return False
    known = {x._slot for x in inputs}
    return any(x not in known and not hasattr(x, "over") for x in leaves_of(outputs))


def reaches_out(outputs: Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> bool:
    """Whether outputs depend on an input, other than these, of a transform whose function is running up the stack.

    Those who run functions hold what they made of the arguments in a local variable ``inputs``.
    """
    if not modes.is_grad_enabled():
        return False
    owners = {id(x.owner()) for x in leaves_of(outputs) if not hasattr(x, "over")} - {id(None), *map(id, inputs)}
    frame: FrameType | None = sys._getframe(1) if owners else None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("tape."):
            held = frame.f_locals.get("inputs")
            if isinstance(held, (list, tuple)) and any(id(x) in owners for x in held):
                return True
        frame = frame.f_back
    return False


def settle(inputs: Sequence[Tensor]) -> None:
    """Mark the inputs of a transform that is over: nobody can differentiate by them any more."""
    for x in inputs:
        if type(x._slot) is AccumulateGrad:
            x._slot.over = True


def pushed_arrays(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], tangents: Sequence[Any], batch: int = 0
) -> list[Array | None]:
    """Return the tangents of outputs for those of inputs, which are leaves; None where an output does not depend.

    With ``batch`` tangents have a leading axis of that length.
    """
    sources = {x._slot: Seed(x._slot, x.spec, t) for x, t in zip(inputs, tangents, strict=True)}
    targets: dict[Any, GradientObserver] = {}
    for y in outputs:
        record.note_unrecorded(y, "a derivative")
        if type(y._slot) is int:
            targets[y._slot] = GradientObserver(y._slot, y.spec, family_offset(y) or 0)
    _push(list(targets.values()), sources, batch)
    arrays: list[Array | None] = []
    for y in outputs:
        tangent = targets[y._slot].gradient if y._slot in targets else None
        if y._slot in sources:
            tangent = np.asarray(sources[y._slot].value)
        arrays.append(None if tangent is None else tangent.copy())
    return arrays


def _push(targets: list[GradientObserver], sources: dict[Any, Seed], batch: int) -> None:
    groups: dict[int, list[GradientObserver]] = {}
    for observer in targets:
        groups.setdefault(observer.key >> TAPE_BITS, []).append(observer)
    for group in groups.values():
        tape = tape_of(group[0].key)
        with tape.reading():
            reached = sweeps.forward(tape.entries, tape.number, list(sources.values()), group, batch)
        if reached:
            foreign = [
                GradientObserver(slot, spec, family_offset_of(slot) or 0) for slot, spec in reached if spec is not None
            ]
            _push(foreign, sources, batch)
            foreign_seeds = [Seed(o.key, o.spec, o.gradient, 0) for o in foreign if o.gradient is not None]
            fixed = [o.key for o in foreign if o.gradient is None]
            with tape.reading():
                sweeps.forward(tape.entries, tape.number, [*sources.values(), *foreign_seeds], group, batch, fixed)


def pulled(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    *,
    batch: int = 0,
    create: bool | None = None,
    retain: bool = False,
) -> Derivatives:
    """Return the gradients of inputs for cotangents of outputs; None where no output depends on an input.

    ``create``: record how they are computed, or, for None, if anything but the inputs requires grad.
    """
    if create is None and batch:  # asked once, where a function is mapped: of one example
        create = needs_graph(outputs, inputs, weights)
    run = partial(_pull, create=create, retain=retain)
    return derived(Derivation(run, pulls=True, create=create), outputs, inputs, weights, batch)


def pushed(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    tangents: Sequence[Tensor],
    *,
    batch: int = 0,
    create: bool | None = None,
) -> Derivatives:
    """Return the tangents of outputs for those of inputs; None where an output depends on no input. See pulled."""
    derivation = Derivation(partial(_pushed, create=create), pulls=False, create=create)
    return derived(derivation, outputs, inputs, tangents, batch)


def _pull(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch: int,
    *,
    create: bool | None,
    retain: bool,
    again: bool = False,
) -> Derivatives:
    pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if y._slot is not None]
    if not pairs:
        return [None] * len(inputs)
    roots, cotangents = zip(*pairs, strict=True)
    create = needs_graph(roots, inputs, cotangents) if create is None else create
    gradients = grad(
        roots,
        inputs,
        cotangents,
        retain_graph=retain or create or again,
        create_graph=create,
        allow_unused=True,
        is_grads_batched=batch > 0,
    )
    return list(gradients)


def _pushed(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    tangents: Sequence[Tensor],
    batch: int,
    *,
    create: bool | None,
    again: bool = False,
) -> Derivatives:
    del again  # a forward sweep frees nothing
    roots = [y for y in outputs if y._slot is not None]
    if needs_graph(roots, inputs, tangents) if create is None else create:
        return _pushed_rows(outputs, inputs, tangents, batch) if batch else _pulled_twice(outputs, inputs, tangents)
    arrays = pushed_arrays(outputs, inputs, [t._value for t in tangents], batch)
    return [None if t is None else constant_tensor(scalar_or_array(t)) for t in arrays]


def _pulled_twice(outputs: Sequence[Tensor], inputs: Sequence[Tensor], tangents: Sequence[Tensor]) -> Derivatives:
    with grad_modes.enable_grad():
        weights = [filled_with(1.0, y).requires_grad_() for y in outputs]
        gradients = _pull(outputs, inputs, weights, 0, create=True, retain=True)
        pairs = [(g, t) for g, t in zip(gradients, tangents, strict=True) if g is not None and g._slot is not None]
        if not pairs:
            return [None] * len(outputs)
        pulled_back, directions = zip(*pairs, strict=True)
        return _pull(pulled_back, weights, directions, 0, create=True, retain=True)


def _pushed_rows(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], tangents: Sequence[Tensor], batch: int
) -> Derivatives:
    rows = [_pulled_twice(outputs, inputs, [t[k] for t in tangents]) for k in range(batch)]
    return [None if any(t is None for t in column) else stack(column) for column in zip(*rows, strict=True)]


def zeros_for(derivatives: Derivatives, like: Sequence[Tensor], lead: tuple[int, ...] = ()) -> list[Tensor]:
    """Return derivatives, zeros for None; ``lead`` are the extents of a leading axis."""
    return [filled_with(0.0, x, lead) if d is None else d for d, x in zip(derivatives, like, strict=True)]


def filled_with(value: float, like: Tensor, lead: tuple[int, ...] = ()) -> Tensor:
    """Return a tensor of one number, of the shape and dtype of another."""
    return constant_tensor(scalar_or_array(np.full((*lead, *like.spec.shape), value, like.spec.dtype)))
