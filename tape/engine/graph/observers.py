"""Who looks on in a backward: hooks, tensors that retain their gradient, who asked; in PyTorch's order.

Of a computed tensor: its own hooks, then whoever keeps its gradient, the hooks before its node, those after it. Of a
leaf: its hooks, those before its node, what is added to ``.grad``, the hooks after that, as soon as all is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kernels.arrays.specs import SCALAR, Spec
from kernels.arrays.sweep_interface import Array, Observer, Seed
from kernels.native.words import PULLS, TAPE_BITS, VIEW
from kernels.sweeps import graph as graphs
from tape.engine.rules.accumulate_grad import accumulate, shares, take_in
from tape.tensors import hooks
from tape.tensors.tapes import Tape
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, carried, plain, rare, seldom


def own_offset(x: Tensor) -> int | None:
    """Return where a gradient begins in the shadow of its family; None for a tensor whose shadow is its own."""
    form = x._form
    if type(x._slot) is not int or form.kind == PULLS:  # type: ignore[union-attr]
        return None
    return x._offset if form.kind == VIEW else 0  # type: ignore[union-attr]


def check_apart(x: Tensor) -> None:
    """Raise for a tensor whose elements share a gradient."""
    if shares(x.spec):
        raise NotImplementedError(
            "the gradient of an expanded tensor is not kept apart; take x = x.clone() before using it"
        )


class Arrivals:
    """What one backward tells of gradients as they arrive.

    ``accumulates``: leaves asked for are served as any leaf; else their gradients are only looked at.
    """

    def __init__(self, *, restrict: bool, batch: int, accumulates: bool) -> None:
        self.restrict, self.batch, self.accumulates = restrict, batch, accumulates
        self.asked: dict[Any, Observer] = {}
        self.arrived: dict[Any, Array] = {}
        """Gradients asked for, where hooks change what goes on."""
        self.done: set[AccumulateGrad] = set()
        """Leaves with hooks that have been served."""
        self.retained: list[tuple[Tensor, Observer]] = []
        self.looking: dict[int, list[Tensor]] = {}
        self.given: list[Tensor] = []
        """Those that had no gradient, and have been given one."""

    def observe(self, tensors: Sequence[Tensor]) -> list[Observer]:
        """Ask for the gradients of leaves or computed tensors; one observer for each slot."""
        found = []
        for x in tensors:
            check_apart(x)
            found.append(self.asked.setdefault(x._slot, Observer(x._slot, x.spec, own_offset(x) or 0)))
        return found

    def undo(self) -> None:
        """Take gradients back from tensors that had none: the backward has failed."""
        for tensor in self.given:
            rare(tensor).grad = None

    def again(self) -> None:
        """Forget who has been found: the sweep begins anew."""
        self.retained.clear()
        self.looking.clear()

    def observers(self, tape: Tape, seeds: list[Seed]) -> list[Observer]:
        """Return who looks on: what is asked for, hooks, tensors that retain their gradient; one for each slot."""
        found = {key: o for key, o in self.asked.items() if type(key) is not int or key >> TAPE_BITS == tape.number}
        own = dict(tape.hooks)
        self._retain(tape, found, noticed=bool(own or hooks.LEAVES))
        for slot, hooked in own.items():
            observer = found.setdefault(slot, Observer(slot, hooked.spec, hooked.offset, asked=False))
        idle = self._idle(tape, seeds, own)
        for slot, observer in found.items():
            seen, tensors = own.get(slot, _NONE), self.looking.get(slot, ())
            before = slot not in idle and bool(seen.before)
            if seen.tensor or before or tensors:
                observer.hook = partial(self._arrive, slot, seen, tensors, before=before)
            observer.after = seen.after_arrays if seen.after and slot not in idle else None
        return list(found.values())

    def _retain(self, tape: Tape, found: dict[Any, Observer], *, noticed: bool) -> None:
        """Look on for tensors that retain their gradient, not for autograd.grad; at once where hooks could notice."""
        for reference in list(tape.retained.values()) if tape.retained and self.accumulates else ():
            tensor = reference()
            if tensor is not None:
                new = Observer(tensor._slot, tensor.spec, own_offset(tensor) or 0, asked=False)
                observer = found.setdefault(tensor._slot, new)
                if noticed:
                    self.looking.setdefault(tensor._slot, []).append(tensor)
                else:
                    self.retained.append((tensor, observer))

    def _idle(self, tape: Tape, seeds: list[Seed], own: dict[int, hooks.Hooks]) -> set[Any]:
        """Return the slots asked for whose nodes have nothing to do: their hooks do not run."""
        wanted = {key for key in self.asked if key in own and (own[key].before or own[key].after)}
        if not wanted or not self.restrict:
            return set()
        with tape.reading():
            graph = graphs.mark(tape.entries, tape.number, seeds)
        leading = graphs.relevant(graph, {graphs.key_of(key) for key in self.asked})
        leads = {i.slot for i in graph.marked if any(graphs.key_of(o) in leading for o in i.operands if o is not None)}
        return wanted - leads

    def _arrive(
        self, slot: int, own: hooks.Hooks, tensors: Sequence[Tensor], gradient: Array, *, before: bool
    ) -> Array:
        """Run the hooks of a tensor, keep its gradient for who asked, then run those before its node."""
        if gradient.ndim > len(own.spec.shape) and own is not _NONE:
            rows = [own.on_tensor(plain(carried(row.copy()))) for row in gradient]
            kept = np.stack([as_array(row) for row in rows])
            given = [own.before_node([row])[0] for row in rows] if before else []
            changed = np.stack([_contribution(row, own.spec) for row in given]) if before else kept
        else:
            seen = own.on_tensor(plain(carried(gradient)))
            kept = changed = as_array(seen)
            for tensor in tensors:
                self.given += [tensor] if seldom(tensor).grad is None else []
                accumulate(tensor, plain(carried(kept.copy())))
            if before:
                kept = kept.copy()
                changed = _contribution(own.before_node([seen])[0], own.spec)
        if before and slot in self.asked:
            self.arrived[slot] = kept
        return changed

    def hooked(self, roots: Sequence[AccumulateGrad]) -> set[int]:
        """Return the leaves that have hooks, by id, but not roots: something is still to come for these."""
        if not hooks.LEAVES or not (self.accumulates or self.asked):
            return set()
        asked = [o.key for o in self.asked.values() if o.gradient is not None]
        return set(hooks.LEAVES).difference(map(id, roots), map(id, asked))

    def reached(self, leaf: AccumulateGrad, value: Array | float) -> None:
        """Serve a leaf with hooks, all of whose gradient is there."""
        own = hooks.found_on(leaf)
        if own is None:  # taken away meanwhile
            own = hooks.of_leaf(leaf)
        self.done.add(leaf)
        if self.accumulates:
            take_in(leaf, own, own.on_tensor(plain(value)))
        else:
            self.arrived[leaf] = self.of_leaf(own, np.asarray(value))

    def of_leaf(self, own: hooks.LeafHooks, value: Array) -> Array:
        """Return the gradient of a leaf after its tensor's hooks, of a batch row by row."""
        if self.batch:
            return np.stack([as_array(own.on_tensor(plain(carried(row.copy())))) for row in value])
        return as_array(own.on_tensor(plain(carried(value))))

    def result(self, observer: Observer) -> Tensor | None:
        """Return an observer's gradient as a tensor of its own, after a leaf's hooks; None if it has been added."""
        if observer.gradient is None:
            return None
        own, value = hooks.found_on(observer.key), observer.gradient.copy()
        if observer.key in self.done:
            return None if self.accumulates else plain(carried(value))
        return plain(carried(self.of_leaf(own, value) if own else value))

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of tensors that retain theirs."""
        for tensor, observer in self.retained:
            if observer.gradient is not None:
                accumulate(tensor, plain(carried(observer.gradient.copy())))


_NONE = hooks.Hooks(SCALAR)


def _contribution(given: Tensor | None, spec: Spec) -> Array:
    """Return what hooks before a node left of its gradient; without any, what contributes nothing."""
    return np.full(spec.shape, -0.0, spec.dtype) if given is None else as_array(given)
