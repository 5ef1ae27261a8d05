"""One run of a sweep over tapes, from its roots; hooks that wait for several gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from kernels.foundation.specs import SCALAR, Array, CrossingError, GradientObserver, Seed, Spec, Task
from kernels.native.structs import PULLS, TAPE_BITS, VIEW
from kernels.sweeps import reverse
from kernels.sweeps.reference_pullbacks import sweep_graph
from kernels.sweeps.workspace import MarkedGraph, relevant
from tape import errors
from tape.engine import graph_observers, nodes
from tape.engine.accumulate_grad import accumulate, deliver, separate_gradient, take_in, tape_of
from tape.engine.graph_observers import check_apart, family_offset
from tape.recording import record
from tape.recording.foreign_calls import REACH
from tape.tensors import hooks, modes
from tape.tensors.hooks import Hook, RemovableHandle
from tape.tensors.tapes import Tape
from tape.tensors.tensor import (
    AccumulateGrad,
    Tensor,
    as_array,
    constant_tensor,
    make_extras,
    method,
    read_extras,
    scalar_or_array,
)
from tape.tensors.view_families import is_view

# The roots of a backward and their cotangents: checked, with PyTorch's messages, and made into seeds.


def weights_of(roots: Sequence[Tensor], weights: Any) -> tuple[Any, ...]:
    """Return one cotangent, or None, for each root."""
    if weights is None:
        return (None,) * len(roots)
    if isinstance(weights, np.ndarray):
        raise TypeError("gradients can be either Tensors or None, but got numpy.ndarray")
    cotangents: tuple[Any, ...] = (weights,) if isinstance(weights, Tensor) else tuple(weights)
    if len(cotangents) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(cotangents)} gradients")
    return cotangents


def batch_of(weights: Sequence[Any]) -> int:
    """Return the extent of the leading axis that batched cotangents have."""
    tensors = [w for w in weights if w is not None]
    lengths = {w.spec.shape[0] if isinstance(w, Tensor) and w.spec.shape else None for w in tensors}
    if len(tensors) != len(weights) or len(lengths) != 1 or None in lengths or 0 in lengths:
        raise RuntimeError(
            "is_grads_batched: each of grad_outputs must be a tensor with the same, non-empty leading batch dim"
        )
    return int(next(iter(lengths)))  # type: ignore[arg-type]


def seeds_of(roots: Sequence[Tensor], weights: Sequence[Any], batch: int = 0) -> list[Seed]:
    """Check the roots and their cotangents; return a seed for each, of a slot or a leaf."""
    seeds = []
    for i, (root, weight) in enumerate(zip(roots, weights, strict=True)):
        if not isinstance(root, Tensor):
            raise TypeError(f"element {i} of tensors is a {type(root).__name__}, not a Tensor")
        spec = root._form.spec
        value = 1.0 if weight is None and spec.size == 1 else _cotangent(i, root, weight, batch)
        if root._slot is None:
            raise errors.GradError(errors.NO_GRAPH.format(i))
        seeds.append(Seed(root._slot, spec, value, family_offset(root)))
    return seeds


def starts_of(roots: Sequence[Tensor], weights: Sequence[Any]) -> list[Seed]:
    """Return the same with tensors for values."""
    if len(roots) == 1 and weights[0] is None and type(roots[0]) is Tensor:  # the usual case
        root = roots[0]
        if root._form.spec is SCALAR and root._slot is not None:
            return [Seed(root._slot, SCALAR, constant_tensor(1.0), family_offset(root))]
    seeds = seeds_of(roots, weights)
    for seed, weight in zip(seeds, weights, strict=True):
        spec = seed.spec
        if weight is None:
            seed.value = constant_tensor(1.0 if spec is SCALAR else np.full(spec.shape, 1.0, spec.dtype))
        else:
            seed.value = weight if weight.spec.dtype is spec.dtype else record.to_dtype(weight, spec.dtype)
    return seeds


def _cotangent(i: int, root: Tensor, weight: Any, batch: int) -> Array | float:
    if weight is None:
        if root._slot is None:
            raise errors.GradError(errors.NO_GRAPH.format(i))
        raise errors.GradError(f"{errors.NOT_SCALAR}; this one has shape {list(root.spec.shape)}: give gradient=")
    if not isinstance(weight, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(weight).__name__}")
    if weight.spec.shape[batch > 0 :] != root.spec.shape:
        raise errors.GradError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {record.size_of(weight)} and output[{i}] has a "
            f"shape of {record.size_of(root)}."
        )
    if weight.spec.dtype.kind != "f":
        return np.asarray(weight._value, root.spec.dtype)
    return weight._value


# One run of a sweep over tapes, and hooks that wait for several gradients.

ENDED: ContextVar[list[Callable[[], None]]] = ContextVar("tape_ended")
"""Functions to call when the backward that runs in this context has finished its sweeps."""


@contextmanager
def ending(*, recorded: bool) -> Iterator[None]:
    """Run a backward, with gradient mode on only if it is recorded; then call the functions in ENDED."""
    before, kept = modes.current(), modes.keep()
    token = ENDED.set([])
    try:
        if before.grad is recorded:
            modes.settle()
        else:
            modes.set_mode(before._replace(grad=recorded))
        yield
        for function in ENDED.get():
            function()
    finally:
        try:
            modes.restore(before)
        except BaseException:  # an interrupt
            modes.restore(before)
            raise
        kept = modes.keep()
        ENDED.reset(token)
        del kept


class BackwardRun:
    """One backward: sweeps the tapes that the graph touches, hands gradients to hooks as they arrive, delivers them.

    ``accumulates``: gradients are added to ``.grad``, also of leaves in ``inputs=``; else they are only returned.
    """

    def __init__(
        self, *, free: bool, restrict: bool, required: bool = False, batch: int = 0, accumulates: bool = False
    ) -> None:
        self.free = free
        self.restrict = restrict
        self.required = required
        self.batch = batch
        self.accumulates = accumulates
        self.asked: dict[Any, GradientObserver] = {}
        self.watched: dict[Any, GradientObserver] = {}
        """Those asked for, and those of tensors that retain their gradient."""
        self.arrived: dict[Any, Array] = {}
        """Gradients asked for, kept apart where a hook before the node replaces what the node receives."""
        self.served: set[Any] = set()  # leaves with hooks that have seen their gradient
        self.retained: dict[Any, list[Tensor]] = {}  # by slot
        self.newly_retained: list[Tensor] = []  # tensors that had no gradient before this backward gave them one
        self.leaves: Any = []  # pairs of a leaf and its gradient
        self.swept: Callable[[], MarkedGraph] | None = None  # returns the graph of the running sweep

    def observe(self, tensors: Sequence[Tensor]) -> list[GradientObserver]:
        """Ask for the gradients of leaves or computed tensors; one observer for each slot."""
        for x in tensors:
            check_apart(x)
            if x._slot not in self.asked:
                self.asked[x._slot] = self.watched[x._slot] = GradientObserver(x._slot, x.spec, family_offset(x) or 0)
        return [self.asked[x._slot] for x in tensors]

    def retain(self, tape: Tape) -> None:
        """Observe the tensors of a tape that retain their gradient, but not for ``grad``."""
        for reference in list(tape.retained.values()) if tape.retained and self.accumulates else ():
            if (x := reference()) is not None:
                observer = GradientObserver(x._slot, x.spec, family_offset(x) or 0, asked=False)
                self.watched.setdefault(x._slot, observer)
                self.retained.setdefault(x._slot, []).append(x)

    def sweep(self, seeds: list[Seed]) -> None:
        """Sweep from the seeds."""
        pending = [seed for seed in seeds if not self._reach_leaf(seed)]
        if not pending:
            return
        token = REACH.set(self.reach)
        try:
            self._sweep(pending)
        except BaseException:
            for tensor in self.newly_retained:
                make_extras(tensor).grad = None
            raise
        finally:
            REACH.reset(token)

    def _sweep(self, pending: list[Seed]) -> None:
        numbers = {seed.slot >> TAPE_BITS for seed in pending}
        if self.free:
            nodes.keep_edges(tape_of(number << TAPE_BITS) for number in numbers)
        try:
            if len(numbers) == 1:
                self.sweep_one(tape_of(pending[0].slot), merged(pending), crosses=False)
                return
        except CrossingError:
            self.retained.clear()  # the sweep begins anew
        tapes = graph_observers.order(seed.slot for seed in pending)
        if tapes is None:
            self._sweep_all(merged(pending))
        for tape in tapes or ():
            tape_seeds = [seed for seed in pending if seed.slot >> TAPE_BITS == tape.number]
            if tape_seeds:
                foreign = self.sweep_one(tape, merged(tape_seeds), crosses=True)
                pending += [Seed(slot, spec, value, family_offset_of(slot)) for slot, spec, value in foreign]

    def _sweep_all(self, seeds: list[Seed]) -> None:
        self._forget(*graph_observers.on_all_tapes(seeds, self._sweep_graph))

    def _sweep_graph(self, seeds: list[Seed], graph: MarkedGraph, tapes: Collection[Tape]) -> None:
        observers = list({o.key: o for tape in tapes for o in self.observers(tape, seeds)}.values())
        observers = graph_observers.observed(graph, observers, restrict=self.restrict)
        self.swept = lambda: graph
        self.leaves += sweep_graph(graph, seeds, observers, self.restrict, self.batch)[0]
        if self.free and not (self.required and any(o.asked and o.gradient is None for o in observers)):
            graph_observers.release(tapes, graph)

    def sweep_one(self, tape: Tape, seeds: list[Seed], *, crosses: bool) -> list[tuple[int, Spec, Array]]:
        """Sweep one tape; return the cotangents of slots on others, which raise CrossingError unless it ``crosses``."""
        observers = self.observers(tape, seeds)
        if graph_observers.current() is not None:
            graph = graph_observers.marked(tape, seeds)
            observers = graph_observers.observed(graph, observers, restrict=self.restrict)
        before = [o.gradient for o in observers]
        hooked = () if crosses else self._hooked()
        task = Task(tape.entries, tape.number, seeds, observers, self.restrict, tape if self.free else None, crosses)
        task.required, task.batch, task.hooked, task.reached = self.required, self.batch, hooked, self.serve
        self.swept = None if crosses else partial(graph_observers.marked, tape, seeds)
        with tape.reading():
            leaves, foreign = reverse.run(task)
        for observer, old in zip(observers, before, strict=True):
            observer.gradient = self.arrived.get(observer.key, observer.gradient)
            if old is not None:
                observer.gradient = old if observer.gradient is None else observer.gradient + old
        self.leaves += leaves
        self._forget(tape)
        return foreign

    def reach(self) -> set[Any] | None:
        """Return the slots and leaves that the running sweep will reach; None if that is not known before."""
        if self.swept is None:
            return None
        graph = self.swept()
        keys = {instruction.slot for instruction in graph.marked} | set(graph.ends)
        return keys & relevant(graph, set(self.asked)) if self.restrict else keys

    def _forget(self, *tapes: Tape) -> None:
        for tape in tapes:
            if self.free and (tape.hooks or tape.lines or tape.metadata) and not tape.readers:
                tape.forget_hooks()

    def _reach_leaf(self, seed: Seed) -> bool:
        slot = seed.slot
        if type(slot) is int:
            return False
        lead = (self.batch,) if self.batch else ()
        value = np.broadcast_to(np.asarray(seed.value, seed.spec.dtype), (*lead, *seed.spec.shape)).copy()
        observer = self.asked.get(slot)
        if observer is not None:
            observer.gradient = value if observer.gradient is None else observer.gradient + value
        elif not self.restrict:
            self.leaves.append((slot, scalar_or_array(value)))
        return True

    def observers(self, tape: Tape, seeds: list[Seed]) -> list[GradientObserver]:
        """Return one observer for each slot that is asked for, has hooks, or whose tensor retains its gradient."""
        self.retain(tape)
        watched = self.watched
        observers = {key: o for key, o in watched.items() if type(key) is not int or key >> TAPE_BITS == tape.number}
        tape_hooks = dict(tape.hooks)
        noticed = bool(tape_hooks or hooks.LEAVES)  # hooks see ``.grad`` of what retains it
        for slot, hooked in tape_hooks.items():
            observers.setdefault(slot, GradientObserver(slot, hooked.spec, hooked.offset, asked=False))
        idle = self._idle(tape, seeds, tape_hooks)
        for slot, observer in observers.items():
            seen, tensors = tape_hooks.get(slot, _NO_HOOKS), self.retained.pop(slot, ()) if noticed else ()
            before = slot not in idle and bool(seen.before)
            if seen.tensor or before or tensors:
                observer.hook = partial(self._arrive, slot, seen, tensors, before=before)
            observer.after = seen.after_arrays if seen.after and slot not in idle else None
        return list(observers.values())

    def _idle(self, tape: Tape, seeds: list[Seed], tape_hooks: dict[int, hooks.Hooks]) -> set[Any]:
        """Return the slots asked for whose nodes do not run, because none of their operands is wanted; nor do hooks."""
        wanted = {key for key in self.asked if key in tape_hooks and (tape_hooks[key].before or tape_hooks[key].after)}
        if not wanted or not self.restrict:
            return set()
        graph = graph_observers.marked(tape, seeds)
        leading = relevant(graph, set(self.asked))
        leads = {i.slot for i in graph.marked if not leading.isdisjoint(i.operands)}
        return wanted - leads

    def _arrive(
        self, slot: int, registered: hooks.Hooks, tensors: Sequence[Tensor], gradient: Array, *, before: bool
    ) -> Array:
        """Run the hooks of a tensor, keep its gradient if it was asked for, then run the hooks before its node."""
        if gradient.ndim > len(registered.spec.shape) and registered is not _NO_HOOKS:
            rows = [registered.on_tensor(constant_tensor(scalar_or_array(row.copy()))) for row in gradient]
            kept = np.stack([as_array(row) for row in rows])
            passed_on = [registered.before_node([row])[0] for row in rows] if before else []
            changed = np.stack([_contribution(row, registered.spec) for row in passed_on]) if before else kept
        else:
            seen = registered.on_tensor(constant_tensor(scalar_or_array(gradient)))
            kept = changed = as_array(seen)
            for tensor in tensors:
                self.newly_retained += [tensor] if read_extras(tensor).grad is None else []
                accumulate(tensor, constant_tensor(scalar_or_array(kept.copy())))
            if before:
                kept = kept.copy()
                changed = _contribution(registered.before_node([seen])[0], registered.spec)
        if before and slot in self.asked:
            self.arrived[slot] = kept
        return changed

    def _hooked(self) -> set[int]:
        """Return the ids of leaves with hooks, without roots, whose gradient is not complete before the end."""
        if not hooks.LEAVES or not (self.accumulates or self.asked):
            return set()
        asked = [o.key for o in self.asked.values() if o.gradient is not None]
        return set(hooks.LEAVES).difference([id(leaf) for leaf, _ in self.leaves], map(id, asked))

    def serve(self, leaf: AccumulateGrad, value: Any) -> None:
        """Run the hooks of a leaf whose gradient is complete, and add it to ``.grad`` if this backward does."""
        leaf_hooks = hooks.of_leaf(leaf)
        self.served.add(leaf)
        if self.accumulates:
            take_in(leaf, leaf_hooks, leaf_hooks.on_tensor(constant_tensor(value)))
        else:
            self.arrived[leaf] = self._of_leaf(leaf_hooks, np.asarray(value))

    def _of_leaf(self, leaf_hooks: hooks.LeafHooks, value: Array) -> Array:
        """Return the gradient of a leaf after its tensor's hooks, of a batch row by row."""
        if self.batch:
            rows = [constant_tensor(scalar_or_array(row.copy())) for row in value]
            return np.stack([as_array(leaf_hooks.on_tensor(row)) for row in rows])
        return as_array(leaf_hooks.on_tensor(constant_tensor(scalar_or_array(value))))

    def check_used(self, observers: list[GradientObserver]) -> None:
        """Raise for an input that no output depends on."""
        for i, observer in enumerate(observers):
            if self.required and observer.gradient is None:
                raise errors.GradError(errors.UNUSED.format(i))

    def result(self, observer: GradientObserver) -> Tensor | None:
        """Return an observer's gradient as a tensor of its own, after a leaf's hooks; None if it has been added."""
        if observer.gradient is None:
            return None
        leaf_hooks, value = hooks.existing(observer.key), observer.gradient.copy()
        if observer.key in self.served:
            return None if self.accumulates else constant_tensor(scalar_or_array(value))
        return constant_tensor(scalar_or_array(self._of_leaf(leaf_hooks, value) if leaf_hooks else value))

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves and of tensors that retain theirs."""
        deliver(_summed(self.leaves) if hooks.LEAVES else self.leaves)
        for slot, tensors in self.retained.items():
            gradient = self.watched[slot].gradient
            for tensor in tensors if gradient is not None else ():
                accumulate(tensor, constant_tensor(scalar_or_array(gradient.copy())))


_NO_HOOKS = hooks.Hooks(SCALAR)


def _contribution(gradient: Tensor | None, spec: Spec) -> Array:
    """Return the gradient that hooks before a node returned; if that is None, -0.0, which contributes nothing."""
    return np.full(spec.shape, -0.0, spec.dtype) if gradient is None else as_array(gradient)


def _summed(leaves: list[tuple[AccumulateGrad, Any]]) -> list[tuple[AccumulateGrad, Any]]:
    """Return one gradient a leaf: the hooks of a leaf see the sum of what several tapes give."""
    total: dict[AccumulateGrad, Any] = {}
    for leaf, value in leaves:
        total[leaf] = total[leaf] + value if leaf in total else value
    return list(total.items())


def merged(seeds: list[Seed]) -> list[Seed]:
    """Return one seed a slot."""
    if len(seeds) == 1:
        return seeds
    merged: dict[int, Seed] = {}
    for seed in seeds:
        first = merged.setdefault(seed.slot, seed)
        if first is not seed:
            first.value = np.add(first.value, seed.value)
    return list(merged.values())


def family_offset_of(slot: int) -> int | None:
    """Return where the gradient of a slot begins in its family's gradient buffer; None if it has its own buffer."""
    instruction = record.locate(slot)
    if instruction is None or instruction.form.kind == PULLS:
        return None
    return int(instruction.saved[0]) if instruction.form.kind == VIEW else 0


def leaves_of(tensors: Sequence[Tensor]) -> set[AccumulateGrad]:
    """Return the leaves that tensors were computed from, on whichever tapes."""
    slots: set[Any] = {x._slot for x in tensors}
    for _, ends in graph_observers.ends_by_tape([slot for slot in slots if type(slot) is int]):
        slots |= ends
    return {slot for slot in slots if type(slot) is AccumulateGrad}


@method()
def register_hook(x: Tensor, hook: Hook) -> RemovableHandle:
    """Call ``hook(gradient)`` when backward has this tensor's gradient; a tensor it returns takes its place.

    The hook stays with the version it was registered on: after a write in place it sees the gradient of the value
    before. Hooks run in the order of registration. RuntimeError if the tensor does not require grad.
    """
    if x._slot is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    record.note_unrecorded(x, "a hook")
    return RemovableHandle(hooks_of(x).tensor, hook)


def hooks_of(x: Tensor) -> hooks.Hooks:
    """Return the hooks of a tensor's version now, an empty set at first."""
    if type(x._slot) is AccumulateGrad:
        return hooks.of_leaf(x._slot)
    separate_gradient(x, "register_hook")
    hidden = is_view(x) and x._form.op.hides  # type: ignore[union-attr]
    slot = x._base._slot if hidden else x._slot  # since writes to the tensor pass its view by
    return hooks.of_slot(tape_of(slot), slot, x.spec, family_offset(x) or 0)


class _Handles(RemovableHandle):
    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Take the hook away from all."""
        for handle in self._handles:
            handle.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> _Handles:
    """Call ``fn`` once a backward: with all gradients, None where there was none, or with the first (``mode="any"``).

    With "all" it runs when the backward has reached as many of the tensors as it will. Its result is not used.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    seen: dict[int, Tensor] = {}
    keys = [_key(x) for x in tensors]  # not the tensors: they would hold their own graph
    due, current = [0], list[Any]()

    def ended() -> None:
        gradients = [seen.get(k) for k in range(len(keys))]
        if mode == "all" and seen:
            seen.clear()
            fn(gradients)

    def make_hook(k: int) -> Hook:
        def hook(gradient: Tensor) -> None:
            if not current or current[0] is not ENDED.get():
                current[:] = [ENDED.get()]
                seen.clear()
                ENDED.get().append(ended)
                due[0] = _reaching(keys) if mode == "all" else 0
                if mode == "any":
                    fn(gradient)
            seen[k] = gradient
            if len(seen) == due[0]:
                ended()

        return hook

    return _Handles([register_hook(x, make_hook(k)) for k, x in enumerate(tensors)])


def _key(x: Tensor) -> Any:
    """Return a slot as a number, or a weak reference to a leaf: neither keeps the tensor's graph."""
    return ref(x._slot) if type(x._slot) is AccumulateGrad else None if x._slot is None else x._slot ^ 0


def _reaching(keys: list[Any]) -> int:
    """Return how many of these slots and leaves the running backward will reach; -1 if that is not known before."""
    reached = REACH.get()()
    if reached is None:
        return -1
    return sum(key in reached if type(key) is int else key() in reached for key in keys)
