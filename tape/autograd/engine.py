"""Backward: seeds in, one native sweep a tape, gradients out to leaves and observers."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels import backend, forms
from kernels.forms import Form
from kernels.layouts import Spec, spec_of
from kernels.observing import Array, FreedError, Observer, Seed
from kernels.tables import OPS
from kernels.words import TAPE_BITS
from tape import errors, modes, recording
from tape.modes import Tape
from tape.tensor import AccumulateGrad, Tensor, as_array, attribute, carried, fresh, method, plain

_FLOAT64 = np.dtype(np.float64)


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
    _deliver(leaves)
    if foreign:
        run = _Run(free=free, restrict=False)
        run.sweep([Seed(other, spec, value, _offset_of(other)) for other, spec, value in foreign])
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
    run = _Run(free=not retain, restrict=targets is not None)
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
    run = _Run(free=not retain_graph, restrict=True, required=not (allow_unused or materialize_grads))
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
        seeds.append(Seed(root._slot, spec, value, _own_offset(root)))
    return seeds


def _own_offset(x: Tensor) -> int | None:
    """Return where a view's gradient begins in the shadow of its family; None for other tensors."""
    form = x._form
    return x._offset if type(form) is Form and form.is_view and type(x._slot) is int else None


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


class _Run:
    """One backward: sweeps each tape that the graph touches, then hands out what they found."""

    def __init__(self, *, free: bool, restrict: bool, required: bool = False) -> None:
        self.free = free
        self.restrict = restrict
        self.required = required
        self.leaves: list[tuple[AccumulateGrad, Array | float]] = []
        self.observers: dict[int, Observer] = {}
        self.retained: list[tuple[Tensor, Observer]] = []

    def observe(self, tensors: Sequence[Tensor]) -> list[Observer]:
        """Ask for the gradients of leaves or computed tensors; one observer for each."""
        found = []
        for x in tensors:
            if _shares(x.spec):
                raise NotImplementedError(
                    "the gradient of an expanded tensor is not kept apart; take x = x.clone() before using it"
                )
            found.append(self.observers.setdefault(id(x._slot), Observer(x._slot, x.spec, _own_offset(x) or 0)))
        return found

    def sweep(self, seeds: list[Seed]) -> None:
        """Sweep from the seeds: tape by tape, where a graph crosses threads."""
        pending = [seed for seed in seeds if not self._reach_leaf(seed)]
        while pending:
            tape = _tape_of(pending[0].slot)
            number = tape.number
            own = pending if len(pending) == 1 else _merged([s for s in pending if s.slot >> TAPE_BITS == number])
            pending = [s for s in pending if s.slot >> TAPE_BITS != number]
            for slot, spec, value in self._sweep_one(tape, own):
                pending.append(Seed(slot, spec, value, _offset_of(slot)))

    def _sweep_one(self, tape: Tape, seeds: list[Seed]) -> list[tuple[int, Spec, Array]]:
        number, observers = tape.number, []
        if self.observers:
            observers = [o for o in self.observers.values() if type(o.key) is not int or o.key >> TAPE_BITS == number]
        if tape.retained and not self.restrict:
            observers += self._retained(tape)
        before = [o.gradient for o in observers]
        with tape.lock:
            try:
                leaves, foreign = backend.run(
                    tape.entries,
                    number,
                    seeds,
                    observers,
                    restrict=self.restrict,
                    free=self.free,
                    required=self.required,
                )
            except FreedError:
                raise errors.GradError(errors.SECOND_TIME) from None
        for observer, old in zip(observers, before, strict=True):
            if old is not None:
                observer.gradient = old if observer.gradient is None else observer.gradient + old
        self.leaves += leaves
        return foreign

    def check_used(self, observers: list[Observer]) -> None:
        """Raise for an input that no output depends on."""
        for i, observer in enumerate(observers):
            if self.required and observer.gradient is None:
                raise errors.GradError(
                    f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
                    "Set allow_unused=True if this is the desired behavior."
                )

    def _reach_leaf(self, seed: Seed) -> bool:
        """Deliver a seed whose root is a leaf; return whether it is."""
        slot = seed.slot
        if type(slot) is int:
            return False
        value = np.broadcast_to(np.asarray(seed.value, seed.spec.dtype), seed.spec.shape).copy()
        observer = self.observers.get(id(slot))
        if observer is not None:
            observer.gradient = value if observer.gradient is None else observer.gradient + value
        elif not self.restrict:
            self.leaves.append((slot, carried(value)))
        return True

    def _retained(self, tape: Tape) -> list[Observer]:
        found = []
        for reference in list(tape.retained.values()):
            tensor = reference()
            if tensor is None:
                continue
            offset = tensor._offset if tensor._form.is_view else 0
            observer = Observer(tensor._slot, tensor.spec, offset)
            self.retained.append((tensor, observer))
            found.append(observer)
        return found

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves and of tensors that retain theirs."""
        _deliver(self.leaves)
        for tensor, observer in self.retained:
            if observer.gradient is not None:
                accumulate(tensor, observer.gradient)


def _deliver(leaves: list[tuple[AccumulateGrad, Array | float]]) -> None:
    """Add gradients to ``.grad`` of leaves."""
    for slot, value in leaves:
        if slot.grad is None:
            slot.grad = fresh(value, slot.spec)
        else:
            _add_to(slot.grad, value)


def _merged(seeds: list[Seed]) -> list[Seed]:
    """Return one seed a slot, the sum of those given for it."""
    merged: dict[int, Seed] = {}
    for seed in seeds:
        other = merged.setdefault(seed.slot, seed)
        if other is not seed:
            other.value = np.add(other.value, seed.value)
    return list(merged.values())


def _tape_of(slot: int) -> Tape:
    tape = modes.tapes.get(slot >> TAPE_BITS)
    if tape is not None:
        return tape
    raise errors.GradError(
        f"{errors.SECOND_TIME} (or the thread that recorded this graph has ended, and its tape with it)"
    )


def _offset_of(slot: int) -> int | None:
    """Return where a view's gradient begins in the shadow of its family, by its slot; None for other results."""
    found = recording.locate(slot)
    return found.saved[0] if found is not None and found.form.is_view else None


def accumulate(x: Tensor, gradient: Array) -> None:
    """Add a gradient to ``.grad`` of a leaf or of a computed tensor."""
    value = carried(gradient)
    slot = x._slot
    old = slot.grad if type(slot) is AccumulateGrad else getattr(x, "_grad", None)
    if old is not None:
        _add_to(old, value)
    elif type(slot) is AccumulateGrad:
        slot.grad = plain(value)
    else:
        x._grad = plain(value)


def _add_to(old: Tensor, value: Array | float) -> None:
    """Add in place: whoever holds the gradient sees it grow, as in PyTorch."""
    if type(old._value) is float:
        old._value += float(value)
    else:
        np.add(old._value, value, out=as_array(old))


def _get_grad(x: Tensor) -> Tensor | None:
    """The gradient that backward accumulated; None where there is none."""
    slot = x._slot
    if type(slot) is AccumulateGrad:
        return slot.grad
    if slot is not None and not hasattr(x, "_grad") and not hasattr(x, "_retains"):
        warnings.warn(errors.NON_LEAF_GRAD, UserWarning, stacklevel=2)
    return getattr(x, "_grad", None)


def _set_grad(x: Tensor, value: Tensor | None) -> None:
    if value is not None:
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {kind}")
        if value.spec.shape != x.spec.shape:
            raise RuntimeError(
                f"attempting to assign a gradient of size '{list(value.spec.shape)}' to a tensor of size "
                f"'{list(x.spec.shape)}'. Please ensure that the gradient and the tensor are the same size"
            )
        if value.spec.dtype != x.spec.dtype:
            raise RuntimeError(
                f"attempting to assign a gradient of dtype {value.spec.dtype} to a tensor of dtype {x.spec.dtype}"
            )
    if type(x._slot) is AccumulateGrad:
        x._slot.grad = value
    elif value is None:
        if hasattr(x, "_grad"):
            del x._grad
    else:
        x._grad = value


method("grad")(property(_get_grad, _set_grad))


@method()
def retain_grad(x: Tensor) -> None:
    """Let backward keep this computed tensor's gradient in ``.grad``."""
    if x._slot is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if type(x._slot) is int and not hasattr(x, "_retains"):
        _give_shadow(x)
        retained, key = _tape_of(x._slot).retained, id(x)
        retained[key] = weakref.ref(x, lambda _: retained.pop(key, None))
        x._retains = True


_CLONE: Any = OPS["clone"]


def _give_shadow(x: Tensor) -> None:
    """Let an expanded view have a gradient of its own shape: until then its elements share one."""
    spec = x.spec
    if not _shares(spec):
        return
    if sys.getrefcount(x._slot) > _UNUSED:
        raise NotImplementedError(
            "retain_grad on an expanded tensor that has been used is not supported; call it right after expand"
        )
    form = recording.cached_form((_CLONE, spec, "shadow"), lambda: forms.copy(_CLONE, spec, spec_of(as_array(x))))
    tape, viewed = _tape_of(x._slot), x._slot
    form.name = x._form.name  # type: ignore[union-attr]
    x._form, x._slot = form, tape.fresh()
    tape.extend((x._slot, viewed, form.code))


_UNUSED = 3
"""References to a slot that nothing uses yet: the tape's, the tensor's, and the argument of getrefcount."""


def _shares(spec: Spec) -> bool:
    """Whether elements of a tensor share an element of its gradient, which an expanded view's do."""
    return any(stride == 0 and n > 1 for stride, n in zip(spec.gradient, spec.shape, strict=True))


@attribute
def retains_grad(x: Tensor) -> bool:
    """Whether a computed tensor keeps its gradient."""
    return hasattr(x, "_retains")
