"""Observers of a sweep, and graphs that several threads recorded."""

from __future__ import annotations

import contextvars
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeVar

import numpy as np

from kernels.foundation.numpy_arrays import Array, Observer, Seed
from kernels.foundation.specs import SCALAR, Spec
from kernels.kinds.reference_tape import Instruction
from kernels.native.structs import ADDS, CLEARS, PULLS, TAPE_BITS, VIEW
from kernels.sweeps import forward as sweeps
from kernels.sweeps import graph as graphs
from kernels.sweeps.graph import Graph, drop, key_of, mark
from tape.engine.accumulate_grad import accumulate, shares, take_in, tape_of
from tape.tensors import hooks
from tape.tensors.tapes import Tape
from tape.tensors.tensor import (
    AccumulateGrad,
    Tensor,
    as_array,
    constant_tensor,
    make_extras,
    read_extras,
    scalar_or_array,
)

# The observers of a backward: hooks, tensors that retain their gradient, and ``inputs=``; in PyTorch's order.
#
# For a computed tensor: its hooks, ``.grad`` if it retains that and ``inputs=``, the hooks before its node, those
# after it. For a leaf, as soon as all of its gradient is there: its hooks, those before its node, ``.grad``, those
# after that.


def family_offset(x: Tensor) -> int | None:
    """Return where a gradient begins in the gradient buffer of its family; None for a tensor with its own buffer."""
    form = x._form
    if type(x._slot) is not int or form.kind == PULLS:  # type: ignore[union-attr]
        return None
    return x._offset if form.kind == VIEW else 0  # type: ignore[union-attr]


def check_apart(x: Tensor) -> None:
    """Raise NotImplementedError for a tensor whose elements share a gradient, as an expanded one's do."""
    if shares(x.spec):
        raise NotImplementedError(
            "the gradient of an expanded tensor is not kept apart; take x = x.clone() before using it"
        )


class Arrivals:
    """The gradients of one backward, handed to hooks and observers as they arrive.

    ``accumulates``: gradients are added to ``.grad``, also of leaves in ``inputs=``; else they are only returned.
    """

    def __init__(self, *, restrict: bool, batch: int, accumulates: bool) -> None:
        self.restrict, self.batch, self.accumulates = restrict, batch, accumulates
        self.asked: dict[Any, Observer] = {}
        self.arrived: dict[Any, Array] = {}
        """Gradients asked for, kept apart where a hook before the node replaces what the node receives."""
        self.done: set[AccumulateGrad] = set()
        """Leaves with hooks that have been served."""
        self.retained: list[tuple[Tensor, Observer]] = []
        self.retained_at_once: dict[int, list[Tensor]] = {}
        self.newly_retained: list[Tensor] = []
        """Tensors that had no gradient before this backward gave them one."""

    def observe(self, tensors: Sequence[Tensor]) -> list[Observer]:
        """Ask for the gradients of leaves or computed tensors; one observer for each slot."""
        observers = []
        for x in tensors:
            check_apart(x)
            observers.append(self.asked.setdefault(x._slot, Observer(x._slot, x.spec, family_offset(x) or 0)))
        return observers

    def undo(self) -> None:
        """Take gradients back from tensors that had none: the backward has failed."""
        for tensor in self.newly_retained:
            make_extras(tensor).grad = None

    def again(self) -> None:
        """Forget the tensors that retain their gradient: the sweep begins anew."""
        self.retained.clear()
        self.retained_at_once.clear()

    def observers(self, tape: Tape, seeds: list[Seed]) -> list[Observer]:
        """Return one observer for each slot that is asked for, has hooks, or whose tensor retains its gradient."""
        observers = {key: o for key, o in self.asked.items() if type(key) is not int or key >> TAPE_BITS == tape.number}
        tape_hooks = dict(tape.hooks)
        self._retain(tape, observers, noticed=bool(tape_hooks or hooks.LEAVES))
        for slot, hooked in tape_hooks.items():
            observer = observers.setdefault(slot, Observer(slot, hooked.spec, hooked.offset, asked=False))
        idle = self._idle(tape, seeds, tape_hooks)
        for slot, observer in observers.items():
            seen, tensors = tape_hooks.get(slot, _NO_HOOKS), self.retained_at_once.get(slot, ())
            before = slot not in idle and bool(seen.before)
            if seen.tensor or before or tensors:
                observer.hook = partial(self._arrive, slot, seen, tensors, before=before)
            observer.after = seen.after_arrays if seen.after and slot not in idle else None
        return list(observers.values())

    def _retain(self, tape: Tape, observers: dict[Any, Observer], *, noticed: bool) -> None:
        """Observe tensors that retain their gradient, but not for ``grad``; set it at once where hooks could notice."""
        for reference in list(tape.retained.values()) if tape.retained and self.accumulates else ():
            tensor = reference()
            if tensor is not None:
                new = Observer(tensor._slot, tensor.spec, family_offset(tensor) or 0, asked=False)
                observer = observers.setdefault(tensor._slot, new)
                if noticed:
                    self.retained_at_once.setdefault(tensor._slot, []).append(tensor)
                else:
                    self.retained.append((tensor, observer))

    def _idle(self, tape: Tape, seeds: list[Seed], tape_hooks: dict[int, hooks.Hooks]) -> set[Any]:
        """Return the slots asked for whose nodes do not run, because none of their operands is wanted; nor do hooks."""
        wanted = {key for key in self.asked if key in tape_hooks and (tape_hooks[key].before or tape_hooks[key].after)}
        if not wanted or not self.restrict:
            return set()
        with tape.reading():
            graph = graphs.mark(tape.entries, tape.number, seeds)
        leading = graphs.relevant(graph, {graphs.key_of(key) for key in self.asked})
        leads = {i.slot for i in graph.marked if any(graphs.key_of(o) in leading for o in i.operands if o is not None)}
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

    def hooked(self, roots: Sequence[AccumulateGrad]) -> set[int]:
        """Return the ids of leaves with hooks, without roots, whose gradient is not complete before the end."""
        if not hooks.LEAVES or not (self.accumulates or self.asked):
            return set()
        asked = [o.key for o in self.asked.values() if o.gradient is not None]
        return set(hooks.LEAVES).difference(map(id, roots), map(id, asked))

    def reached(self, leaf: AccumulateGrad, value: Array | float) -> None:
        """Run the hooks of a leaf whose gradient is complete, and add it to ``.grad`` if this backward does."""
        leaf_hooks = hooks.existing(leaf)
        if leaf_hooks is None:  # taken away meanwhile
            leaf_hooks = hooks.of_leaf(leaf)
        self.done.add(leaf)
        if self.accumulates:
            take_in(leaf, leaf_hooks, leaf_hooks.on_tensor(constant_tensor(value)))
        else:
            self.arrived[leaf] = self.of_leaf(leaf_hooks, np.asarray(value))

    def of_leaf(self, leaf_hooks: hooks.LeafHooks, value: Array) -> Array:
        """Return the gradient of a leaf after its tensor's hooks, of a batch row by row."""
        if self.batch:
            rows = [constant_tensor(scalar_or_array(row.copy())) for row in value]
            return np.stack([as_array(leaf_hooks.on_tensor(row)) for row in rows])
        return as_array(leaf_hooks.on_tensor(constant_tensor(scalar_or_array(value))))

    def result(self, observer: Observer) -> Tensor | None:
        """Return an observer's gradient as a tensor of its own, after a leaf's hooks; None if it has been added."""
        if observer.gradient is None:
            return None
        leaf_hooks, value = hooks.existing(observer.key), observer.gradient.copy()
        if observer.key in self.done:
            return None if self.accumulates else constant_tensor(scalar_or_array(value))
        return constant_tensor(scalar_or_array(self.of_leaf(leaf_hooks, value) if leaf_hooks else value))

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of tensors that retain theirs."""
        for tensor, observer in self.retained:
            if observer.gradient is not None:
                accumulate(tensor, constant_tensor(scalar_or_array(observer.gradient.copy())))


_NO_HOOKS = hooks.Hooks(SCALAR)


def _contribution(gradient: Tensor | None, spec: Spec) -> Array:
    """Return the gradient that hooks before a node returned; if that is None, -0.0, which contributes nothing."""
    return np.full(spec.shape, -0.0, spec.dtype) if gradient is None else as_array(gradient)


# Graphs that cross tapes: those of tensors that threads hand to each other.


@contextmanager
def reading(seeds: Iterable[Seed]) -> Iterator[tuple[Graph, dict[int, Tape]]]:
    """Mark what leads to the roots, on all tapes; yield the graph, and the tapes by number, which drop nothing."""
    graphs: dict[int, Graph] = {}
    tapes: dict[int, Tape] = {}
    roots = {seed.slot: seed for seed in seeds}
    todo = {slot >> TAPE_BITS for slot in roots}
    with ExitStack() as stack:
        while todo:
            number = todo.pop()
            if number not in tapes:
                tapes[number] = tape_of(number << TAPE_BITS)
                stack.enter_context(tapes[number].reading())
            tape_seeds = [seed for slot, seed in roots.items() if slot >> TAPE_BITS == number]
            graph = graphs[number] = mark(tapes[number].entries, number, tape_seeds)
            for slot, spec in graph.ends.values():
                if type(slot) is int and slot not in roots:
                    roots[slot] = Seed(slot, spec, 0.0)
                    todo.add(slot >> TAPE_BITS)
        yield _merged(list(graphs.values()), roots), tapes


def _merged(graphs: list[Graph], roots: dict[int, Seed]) -> Graph:
    """Return several tapes' graphs as one, each instruction before those of its operands."""
    if len(graphs) == 1:
        return graphs[0]
    marked = _in_order(graphs)
    referred, split = set(roots), set()
    for instruction in marked:
        if instruction.form.kind in (CLEARS, ADDS) and key_of(instruction.operands[0]) in referred:
            split.add(instruction.slot)
        referred.update(key_of(operand) for operand in instruction.operands)
    ends = {key: end for graph in graphs for key, end in graph.ends.items() if type(end[0]) is not int}
    return Graph(marked, ends, split)


def _in_order(graphs: list[Graph]) -> list[Instruction]:
    """Merge lists of instructions: an instruction's turn is when all that refer to it have had theirs."""
    waiting = Counter(o for graph in graphs for i in graph.marked for o in i.operands if type(o) is int)
    stacks = [graph.marked[::-1] for graph in graphs]
    merged: list[Instruction] = []
    while any(stacks):
        for stack in stacks:
            while stack and not waiting[stack[-1].slot]:
                merged.append(stack.pop())
                waiting.subtract(o for o in merged[-1].operands if type(o) is int)
    return merged


def release(tapes: Iterable[Tape], graph: Graph) -> None:
    """Drop what has been swept from its tapes."""
    for tape in tapes:
        drop(tape, tape.entries, [i for i in graph.marked if i.slot >> TAPE_BITS == tape.number])


def order(slots: Iterable[int]) -> list[Tape] | None:
    """Return the tapes that slots depend on, each before those it depends on; None if the order is a cycle."""
    wanted = set(slots)
    todo, edges = {slot >> TAPE_BITS for slot in wanted}, dict[int, set[int]]()
    while todo:
        number = todo.pop()
        tape = tape_of(number << TAPE_BITS)
        with tape.reading():
            tape_slots = [slot for slot in wanted if slot >> TAPE_BITS == number]
            reached = {slot for slot, _ in sweeps.leaves(tape.entries, number, tape_slots) if type(slot) is int}
        edges[number] = {slot >> TAPE_BITS for slot in reached}
        todo |= {slot >> TAPE_BITS for slot in reached - wanted}
        wanted |= reached
    try:
        return [tape_of(number << TAPE_BITS) for number in TopologicalSorter(edges).static_order()][::-1]
    except CycleError:
        return None


# Backwards inside backwards: beyond some depth they go on in another thread, where Python's stack begins anew.

Result = TypeVar("Result")
MOST = 12
"""Most backwards inside each other in one thread: each takes some twenty of the thousand frames that Python allows."""


def elsewhere(function: Callable[[], Result]) -> Result:
    """Run a function in a thread of its own, in this context, and wait for it."""
    context, outcome = contextvars.copy_context(), list[tuple[Any, BaseException | None]]()

    def run() -> None:
        try:
            outcome.append((context.run(function), None))
        except BaseException as error:  # noqa: BLE001 (it is raised again, in the thread that waits)
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="tape backward")
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]
