"""`backward` and `grad`: the short way in native code, and the general way."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kernels.foundation.specs import FreedError, GradientObserver, Spec
from kernels.kinds.routine import Unsettled
from kernels.native.structs import PYTHON, TAPE_BITS
from kernels.sweeps import reverse
from tape import errors
from tape.engine import graph_observers
from tape.engine.accumulate_grad import accumulate, deliver
from tape.engine.double_backward import Derivation, derived, gradients, settled, swept, takes_part
from tape.engine.nodes import note_shape, tensors_of
from tape.engine.sweep_run import batch_of, ending, weights_of
from tape.errors import shorten
from tape.recording import record
from tape.recording.views import stack
from tape.tensors import modes
from tape.tensors.modes import user
from tape.tensors.tapes import LONG, Tape, living
from tape.tensors.tensor import Tensor, constant_tensor, leaf, method, scalar_or_array

_HERE = globals()

# The short way of a backward: from one root on this thread's tape to leaves, without hooks or observers.


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
    if free and not alone:
        frame = sys._getframe(2)
        note_shape(tape, (frame.f_back or frame).f_code if frame.f_globals is _HERE else frame.f_code)
    form, value = x._form, None if gradient is None else _value(gradient, x._form.spec)
    seen = _seen(tape, free=free, accumulates=targets is None) if tape.hooks or tape.nodes or tape.retained else ()
    if value is None and (gradient is not None or form.spec.size != 1):
        return NotImplemented
    try:
        how = value, targets, alone, tensors, free, seen
        run = reverse.handed_over if form.kind == PYTHON else reverse.short_backward
        outcome = run(tape.entries, x, _root, tape, how)
    except Unsettled:
        return NotImplemented
    except FreedError:
        raise errors.GradError(errors.SECOND_TIME) from None
    if tape.swept > LONG:
        tape.leave(x)
    return outcome


def _root(x: Tensor) -> tuple[int, Spec, int | None]:
    return x._slot, x._form.spec, graph_observers.family_offset(x)


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
        return reverse.leads(tape.entries, y, tape, inputs)
    except FreedError:  # the longer way says so
        return False


def short_gradients(outputs: Any, inputs: Any, weights: Any, *, free: bool) -> tuple[Tensor, ...] | None:
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


# ``backward`` and ``grad``: they check roots, weights and inputs, make seeds, and hand back the gradients.


@method()
def backward(
    x: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Add the gradient of this tensor, weighted by ``gradient``, to ``.grad`` of the leaves it was computed from.

    ``gradient`` has the tensor's shape and may be left out for one element. The graph is freed unless
    ``retain_graph``. ``inputs``: the only tensors whose ``.grad`` is to change.
    """
    try:
        if user.depth >= graph_observers.MOST:
            graph_observers.run_in_fresh_thread(partial(backward, x, gradient, retain_graph, create_graph, inputs))
        elif (
            inputs is not None
            or create_graph
            or (leaves := native_backward(x, gradient, None, False, False, not retain_graph)) is NotImplemented
        ):
            _backward((x,), (gradient,), retain_graph, create_graph, inputs)
        elif leaves:
            deliver(leaves)
    except Exception as error:
        shorten(error)
        raise


def backward_all(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Run backward from several tensors at once; see ``Tensor.backward``. They, and inputs, may be gradient edges."""
    if user.depth >= graph_observers.MOST:
        rerun = partial(backward_all, tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        return graph_observers.run_in_fresh_thread(rerun)
    try:
        tensors, inputs = tensors_of(tensors), tensors_of(inputs)
        roots = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        weights = grad_tensors if grad_variables is None else grad_variables
        return _backward(roots, weights_of(roots, weights), retain_graph, create_graph, inputs)
    except Exception as error:
        shorten(error)
        raise


def _backward(roots: Sequence[Tensor], weights: Any, retain: bool | None, create: bool, inputs: Any) -> None:
    targets = None if inputs is None else tuple({id(t): t for t in _checked(inputs, "backward")}.values())
    if create:
        warnings.warn(errors.CYCLE, UserWarning, stacklevel=3)
    with ending(recorded=create):
        run, observers = _run(roots, weights, targets, create=create, free=not retain, accumulates=True)
        for target, observer in zip(targets or (), observers, strict=True):
            gradient = run.result(observer)
            if gradient is not None:
                accumulate(target, gradient, create=create)
        run.deliver()
    for root in roots:
        tape = living.get(root._slot >> TAPE_BITS) if type(root._slot) is int else None
        if tape is not None:
            tape.leave(root)


def _run(
    roots: Sequence[Tensor], weights: Any, targets: Sequence[Tensor] | None, *, create: bool, batch: int = 0,
    accumulates: bool = False, **options: bool,
) -> tuple[Any, list[GradientObserver]]:  # fmt: skip
    """Sweep back from the roots, see :func:`swept`, again where cotangents alone do not tell the gradients."""
    sweep = partial(swept, roots, weights, targets, create=create, batch=batch, accumulates=accumulates, **options)
    outcome = sweep() if create else settled(sweep, roots, weights, batch)
    _note(roots, asked=not accumulates)
    return outcome


def _note(roots: Sequence[Tensor], *, asked: bool) -> None:
    """Note that a gradient was taken, to a recorder that takes no part in it, or was not asked to."""
    if modes.active() is None and not (asked and takes_part(modes.current().recorder)):
        for root in roots:
            record.note_unrecorded(root, "a gradient")


def _checked(inputs: Any, function: str) -> tuple[Tensor, ...]:
    """Return ``inputs`` as a tuple; raise for what is no tensor, or requires no grad."""
    wanted = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if not wanted:
        raise RuntimeError(f"`inputs` argument to `{function}()` cannot be empty.")
    for i, target in enumerate(wanted):
        if not isinstance(target, Tensor):
            raise TypeError(f"inputs are tensors, but argument {i} is of type {type(target).__name__}")
        if target._slot is None:
            raise RuntimeError(f"One of the differentiated Tensors does not require grad (the one at index {i})")
    return wanted


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the outputs' sum, weighted by ``grad_outputs``, with respect to the inputs.

    ``.grad`` is left alone. Outputs and inputs are tensors or gradient edges. An input that the outputs do not depend
    on raises, or with ``allow_unused`` gives None, or with ``materialize_grads`` zeros.
    """
    del only_inputs
    if allow_unused is False and materialize_grads:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    try:
        outputs, inputs = tensors_of(outputs), tensors_of(inputs)
        if user.depth >= graph_observers.MOST:
            more = (create_graph, allow_unused, is_grads_batched, materialize_grads)
            return graph_observers.run_in_fresh_thread(
                partial(_grad_by_options, outputs, inputs, grad_outputs, retain_graph, *more)
            )
        if not (create_graph or is_grads_batched):
            short_way = short_gradients(outputs, inputs, grad_outputs, free=not retain_graph)
            if short_way is not None:
                return short_way
        return _grad_by_options(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, is_grads_batched, materialize_grads
        )
    except Exception as error:
        shorten(error)
        raise


def _grad_by_options(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool | None,
    is_grads_batched: bool,
    materialize_grads: bool,
) -> tuple[Tensor | None, ...]:
    """Return gradients by the general way, which serves every option."""
    roots = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    wanted = _checked(inputs, "grad")
    weights = weights_of(roots, grad_outputs)
    retain = create_graph if retain_graph is None else retain_graph
    required = not (allow_unused or materialize_grads)
    batch = batch_of(weights) if is_grads_batched else 0
    zeros = (batch, create_graph) if materialize_grads else None
    if takes_part(modes.current().recorder):
        run = partial(_grad_general, retain=retain, create=create_graph)
        derivation = Derivation(run, pulls=True, create=create_graph)
        mapped = derived(derivation, roots, wanted, _ones(roots, weights), batch)
        unused = [i for i, g in enumerate(mapped) if g is None]
        if required and unused:
            raise errors.GradError(errors.UNUSED.format(unused[0]))
        return tuple(_gradient(g, x, zeros) for g, x in zip(mapped, wanted, strict=True))
    results = _grad_general(roots, wanted, weights, batch, retain=retain, create=create_graph, required=required)
    return tuple(_gradient(result, x, zeros) for result, x in zip(results, wanted, strict=True))


def _grad_general(
    roots: Sequence[Tensor],
    wanted: Sequence[Tensor],
    weights: Any,
    batch: int,
    *,
    retain: bool,
    create: bool,
    required: bool = False,
    again: bool = False,
) -> list[Tensor | None]:
    """Return gradients, without asking a recorder to take part; ``again``: they will be asked for once more."""
    if create and not batch and (recorded := gradients(roots, wanted, weights)) is not None:
        return list(recorded)
    if batch and create:  # one recorded sweep for each cotangent
        cotangents = [[None if w is None else w[k] for w in weights] for k in range(batch)]
        rows = [grad(roots, wanted, row, create_graph=True, allow_unused=not required) for row in cotangents]
        return [None if column[0] is None else stack(column) for column in zip(*rows, strict=True)]
    with ending(recorded=create):
        run, observers = _run(
            roots, weights, wanted, create=create, batch=batch, free=not (retain or again), required=required
        )
        run.check_used(observers)
        results = [run.result(observer) for observer in observers]
        run.deliver()
    return results


def _ones(roots: Sequence[Tensor], weights: Sequence[Any]) -> list[Tensor]:
    """Return cotangents, ones for None."""
    ones = [None if w is not None else np.ones(r.spec.shape, r.spec.dtype) for r, w in zip(roots, weights, strict=True)]
    return [w if o is None else constant_tensor(scalar_or_array(o)) for o, w in zip(ones, weights, strict=True)]


def _gradient(gradient: Tensor | None, target: Tensor, zeros: tuple[int, bool] | None) -> Tensor | None:
    """Return a gradient; zeros where there is none, of a batch, with or without a graph, if they are asked for."""
    if gradient is not None or zeros is None:
        return gradient
    batch, recorded = zeros
    lead = (batch,) if batch else ()
    return leaf(scalar_or_array(np.zeros((*lead, *target.spec.shape), target.spec.dtype)), requires_grad=recorded)
