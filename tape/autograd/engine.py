"""The entries to backward: roots, weights and inputs checked, seeds made, the gradients handed back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels import backend
from kernels.forms import Form
from kernels.observing import Array, FreedError, Observer, Seed
from kernels.words import TAPE_BITS
from tape import errors, modes, recording
from tape.autograd.accumulation import accumulate, deliver
from tape.autograd.run import Run, offset_of, own_offset
from tape.tensor import Tensor, carried, method, plain


@method()
def backward(
    x: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Add the gradient of this tensor, weighted by ``gradient``, to ``.grad`` of the leaves it was computed from.

    ``gradient`` has the tensor's shape and may be left out for one element. The graph is freed unless
    ``retain_graph``. ``inputs``: the only tensors whose ``.grad`` is to change.
    """
    if gradient is not None or inputs is not None or create_graph or not _from_one(x, not retain_graph):
        _backward((x,), (gradient,), retain_graph, create_graph, inputs)


def _from_one(x: Tensor, free: bool) -> bool:
    """Run the usual call, from one element back to leaves of this thread; False where more is asked for."""
    tape = modes.active() or modes.own_tape()
    slot, form = x._slot, x._form
    usual = type(slot) is int and slot >> TAPE_BITS == tape.number and form.spec.size == 1
    if not usual or tape.retained or modes.active() is None:
        return False
    seed = Seed(slot, form.spec, 1.0, x._offset if type(form) is Form and form.is_view else None)
    with tape.lock:
        try:
            leaves, foreign = backend.run(tape.entries, tape.number, [seed], (), restrict=False, free=free)
        except FreedError:
            raise errors.GradError(errors.SECOND_TIME) from None
    deliver(leaves)
    if foreign:
        run = Run(free=free, restrict=False)
        run.sweep([Seed(other, spec, value, offset_of(other)) for other, spec, value in foreign])
        run.deliver()
    return True


def backward_all(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Run backward from several tensors at once; see ``Tensor.backward``."""
    roots = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    weights = grad_tensors if grad_variables is None else grad_variables
    _backward(roots, _weights(roots, weights), retain_graph, create_graph, inputs)


def _weights(roots: Sequence[Tensor], weights: Any) -> tuple[Any, ...]:
    if weights is None:
        return (None,) * len(roots)
    if isinstance(weights, np.ndarray):
        raise TypeError("gradients can be either Tensors or None, but got numpy.ndarray")
    given: tuple[Any, ...] = (weights,) if isinstance(weights, Tensor) else tuple(weights)
    if len(given) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(given)} gradients")
    return given


def _backward(roots: Sequence[Tensor], weights: Any, retain: bool | None, create: bool, inputs: Any) -> None:
    _refuse_create_graph(create)
    seeds = _seeds(roots, weights)
    targets = _targets(inputs)
    run = Run(free=not retain, restrict=targets is not None)
    observers = run.observe(targets or ())
    run.sweep(seeds)
    for target, observer in zip(targets or (), observers, strict=True):
        if observer.gradient is not None:
            accumulate(target, observer.gradient)
    if targets is None:
        run.deliver()


def _refuse_create_graph(create: bool) -> None:
    if create:
        raise NotImplementedError(errors.LATER.format("create_graph=True", "differentiate the gradient by differences"))


def _targets(inputs: Any) -> tuple[Tensor, ...] | None:
    if inputs is None:
        return None
    targets = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if not targets:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    _check_inputs(targets)
    return tuple({id(t): t for t in targets}.values())


def _check_inputs(inputs: Sequence[Tensor]) -> None:
    for i, target in enumerate(inputs):
        if not isinstance(target, Tensor):
            raise TypeError(f"inputs are tensors, but argument {i} is of type {type(target).__name__}")
        if target._slot is None:
            raise RuntimeError(f"One of the differentiated Tensors does not require grad (the one at index {i})")


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

    ``.grad`` is left alone. An input that the outputs do not depend on raises, or with ``allow_unused`` gives
    None, or with ``materialize_grads`` zeros.
    """
    del only_inputs
    _refuse_create_graph(create_graph)
    if is_grads_batched:
        raise NotImplementedError(errors.LATER.format("is_grads_batched", "call grad once for each cotangent"))
    if allow_unused is False and materialize_grads:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    roots = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    wanted = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if not wanted:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    _check_inputs(wanted)
    run = Run(free=not retain_graph, restrict=True, required=not (allow_unused or materialize_grads))
    observers = run.observe(wanted)
    run.sweep(_seeds(roots, _weights(roots, grad_outputs)))
    run.check_used(observers)
    return tuple(_gradient(o, t, materialize_grads) for o, t in zip(observers, wanted, strict=True))


def _gradient(observer: Observer, target: Tensor, materialize: bool) -> Tensor | None:
    if observer.gradient is not None:
        return plain(carried(observer.gradient.copy()))
    return plain(carried(np.zeros(target.spec.shape, target.spec.dtype))) if materialize else None


def _seeds(roots: Sequence[Tensor], weights: Sequence[Any]) -> list[Seed]:
    """Check the roots and their cotangents; return a seed for each, of a slot or a leaf."""
    seeds = []
    for i, (root, weight) in enumerate(zip(roots, weights, strict=True)):
        if not isinstance(root, Tensor):
            raise TypeError(f"element {i} of tensors is a {type(root).__name__}, not a Tensor")
        spec = root._form.spec
        value = 1.0 if weight is None and spec.size == 1 else _cotangent(i, root, weight)
        if root._slot is None:
            raise errors.GradError(errors.NO_GRAPH.format(i))
        recording.left(root)
        seeds.append(Seed(root._slot, spec, value, own_offset(root)))
    return seeds


def _cotangent(i: int, root: Tensor, weight: Any) -> Array | float:
    if weight is None:
        if root._slot is None:
            raise errors.GradError(errors.NO_GRAPH.format(i))
        raise errors.GradError(f"{errors.NOT_SCALAR}; this one has shape {list(root.spec.shape)}: give gradient=")
    if not isinstance(weight, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(weight).__name__}")
    if weight.spec.shape != root.spec.shape:
        raise errors.GradError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {recording.size_of(weight)} and output[{i}] has a "
            f"shape of {recording.size_of(root)}."
        )
    if weight.spec.dtype.kind != "f":
        raise TypeError(f"gradient of dtype {weight.spec.dtype.name} for an output of dtype {root.spec.dtype.name}")
    return weight._value
