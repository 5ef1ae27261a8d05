"""A backward that is recorded itself: the same sweep, in Python, with tensors for cotangents."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from kernels.entries import Instruction
from kernels.graphs import Graph, key_of, relevant
from kernels.layouts import Spec
from kernels.observing import Seed
from kernels.op import Gather
from kernels.plain import State
from kernels.stopping import by_slot
from kernels.words import ADDS, CLEARS, PULLS, PYTHON, VIEW
from tape import indexing, modes, shaping
from tape.autograd import anomaly, crossing, hooks, rules
from tape.autograd.arrivals import own_offset
from tape.autograd.gathered import Gathered
from tape.autograd.primals import Primals
from tape.autograd.run import reached, reaching
from tape.autograd.shadows import Shadow, owned
from tape.packing import Packed
from tape.tapes import Tape
from tape.tensor import AccumulateGrad, Tensor, plain

_ALIASES = (VIEW, CLEARS, ADDS)


class _Sweep:
    """The sweep of a graph."""

    def __init__(self, run: Gathered, graph: Graph, tapes: list[Tape], roots: set[int]) -> None:
        self.run_, self.anomaly, self.err = run, anomaly.current(), np.geterr()
        self.hooks = {slot: own for tape in tapes for slot, own in list(tape.hooks.items())}
        references = [ref for tape in tapes for ref in list(tape.retained.values())] if run.accumulates else []
        retained = [r for r in (ref() for ref in references) if r is not None]
        for x in retained:
            run.retained.setdefault(x._slot, []).append(x)
        self.watched = {x._slot: x for x in (*run.asked.values(), *retained)}
        kept = {*self.watched, *self.hooks, *roots, *graph.split}
        self.graph = graph
        self.state = State(graph.marked, {key_of(k) for k in kept}, 0)
        asked = {key_of(k) for k in run.asked}
        if run.restrict and not graph.ends.keys() <= asked:
            self.state.relevant = relevant(graph, asked)
        self.primals = Primals(graph.marked)
        self.shadows: dict[Any, Shadow] = {}

    def run(self) -> list[tuple[AccumulateGrad, Tensor]]:
        """Sweep; return the gradients of leaves. Native sweeps do not warn of overflows and the like, either."""
        step, wanted, stops = anomaly.induced(self._step), self.state.relevant, self._stops()
        with np.errstate(all="ignore"):
            for instruction in self.graph.marked:
                if wanted is None or instruction.slot in wanted:
                    step(instruction)
                    self._serve(stops.get(instruction.slot, ()))
        ends = [(key, leaf) for key, (leaf, _) in self.graph.ends.items() if self.shadows.get(key)]
        ends = [(key, leaf) for key, leaf in ends if leaf not in self.run_.served]
        return [(leaf, self._read(key, leaf.spec, 0)) for key, leaf in ends]

    def _serve(self, leaves: Iterable[AccumulateGrad]) -> None:
        for leaf in leaves:
            if self.shadows.get(key_of(leaf)):
                with np.errstate(**self.err):
                    self.run_.serve(leaf, self._read(key_of(leaf), leaf.spec, 0))

    def _stops(self) -> dict[int, list[AccumulateGrad]]:
        """Return the leaves with hooks by the slot of the instruction after which all of their gradient is there."""
        run = self.run_
        early = [*run.leaves, *run.found]  # roots: something is still to come for these
        ends = [leaf for leaf, _ in self.graph.ends.values() if id(leaf) in hooks.LEAVES]
        wanted = {id(leaf) for leaf in ends if leaf not in early and (leaf in run.asked or not run.restrict)}
        return by_slot(self.graph, self.state.relevant, wanted)

    def _shadow(self, key: Any, spec: Spec) -> Shadow:
        return self.shadows.setdefault(key, Shadow(spec))

    def contribute(self, top: Any, offset: int, spec: Spec, value: Tensor) -> None:
        """Add to the part of a shadow that belongs to a tensor of this spec."""
        shadow = self._shadow(top, spec)
        if owned(spec) and offset == 0:
            shadow.add(value)
        else:
            shadow.add_part(spec, offset, value)

    def _read(self, top: Any, spec: Spec, offset: int) -> Tensor:
        """Return the gradient of a tensor of this spec."""
        shadow = self.shadows[top]
        if owned(spec) and offset == 0 and shadow.whole is not None:
            whole = shadow.whole
            return whole if whole.spec.shape == spec.shape else shaping.reshape(whole, spec.shape)
        return shaping.clone(shadow.part(spec, offset))

    def _step(self, instruction: Instruction) -> None:
        """Run the pullbacks of one instruction; an observed view, or version, folds into the shadow above it."""
        form, slot, state = instruction.form, instruction.slot, self.state
        self._observe(instruction)
        apart = slot in state.homes and slot in state.kept
        if form.kind == VIEW:
            if apart and self.shadows.get(slot):
                self._fold(instruction)
            return
        home = state.above(instruction) if slot in state.homes and not apart else slot
        if form.kind == PYTHON:
            self._python(instruction)
        elif self.shadows.get(home):
            if form.kind == PULLS:
                self._pulls(instruction, self._read(home, form.spec, 0))
            else:
                self._unwrite(instruction, self.shadows[home])
            if apart:
                self._fold(instruction)
            if home == slot:
                del self.shadows[slot]

    def _fold(self, instruction: Instruction) -> None:
        """Add the shadow of a view, or of a version, to the one above it."""
        above = self._shadow(self.state.above(instruction), instruction.form.spec)
        above.add_flat(self.shadows[instruction.slot].flattened())

    def _observe(self, instruction: Instruction) -> None:
        """Show the gradient that has arrived to hooks, and note it for whoever asked."""
        slot = instruction.slot
        if not self.hooks and slot not in self.watched:
            return
        own = self.hooks.get(slot)
        shadow = self.shadows.get(slot)
        if not shadow or (own is None and slot not in self.watched):
            return
        x: Any = self.watched.get(slot)
        spec, offset = (own.spec, own.offset) if own is not None else (x.spec, own_offset(x) or 0)
        value = self._read(slot, spec, offset)
        given = value
        if own is not None:
            with np.errstate(**self.err):
                given = own.on_tensor(value)
        if x is not None:
            self.run_.keep(slot, given)
            if self.hooks or hooks.LEAVES:  # which could notice
                self.run_.arrived(slot)
        if own is not None and own.before and self._works(instruction):
            with np.errstate(**self.err):
                (left,) = own.before_node([given])
            given = plain(np.full(value.spec.shape, -0.0, value.spec.dtype)) if left is None else left
        if given is not value:
            shadow.part(spec, offset).copy_(given)

    def _works(self, instruction: Instruction) -> bool:
        """Whether an instruction has anything to do: of what is asked for, only its own gradient may be wanted."""
        return any(o is not None and self._relevant(o) for o in instruction.operands)

    def _pulls(self, instruction: Instruction, g: Tensor) -> None:
        form, operands = instruction.form, instruction.operands
        if isinstance(form.op, Gather):
            self._scatter(instruction, g)
            return
        values = self.primals.of(instruction)
        wanted = [i for i, pull in enumerate(form.pulls) if pull is not None and self._relevant(operands[i])]
        if self.anomaly is None and not self.hooks:
            for i in wanted:
                top, offset = self.state.home(key_of(operands[i]))
                self.contribute(top, offset, form.specs[i], rules.pull(instruction, i, g, values))  # type: ignore[arg-type]
            return
        found: list[Tensor | None] = [None] * len(form.specs)
        for i in wanted:
            found[i] = rules.pull(instruction, i, g, values)
        self._give(instruction, found, g)

    def _scatter(self, instruction: Instruction, g: Tensor) -> None:
        """Add a cotangent to the places that were picked, each an element of the shadow."""
        operand, spec = instruction.operands[0], instruction.form.specs[0]
        assert spec is not None
        if self._relevant(operand):
            top, offset = self.state.home(key_of(operand))
            flat = self._shadow(top, spec).flattened()
            places = instruction.saved[0] + offset // spec.dtype.itemsize
            indexing.assign_at(flat, (places,), g, instruction.form.op.name, adds=True)

    def _give(self, instruction: Instruction, found: list[Tensor | None], g: Tensor | None) -> None:
        own = self.hooks.get(instruction.slot) if self.hooks else None
        if own is not None and own.after and self._works(instruction):
            with np.errstate(**self.err):
                found = own.after_node(found, (g,))
        if self.anomaly is not None:
            self.anomaly.look(instruction, found, g, self.state.relevant)
        for operand, spec, value in zip(instruction.operands, instruction.form.specs, found, strict=True):
            if operand is not None and spec is not None and value is not None and self._relevant(operand):
                top, offset = self.state.home(key_of(operand))
                self.contribute(top, offset, spec, value)

    def _relevant(self, operand: Any) -> bool:
        relevant = self.state.relevant
        return relevant is None or key_of(operand) in relevant

    def _unwrite(self, instruction: Instruction, shadow: Shadow) -> None:
        """Give the gradient of what was written to the value, and clear it unless the value was added."""
        form, (before, source) = instruction.form, instruction.operands
        region, offset = form.params[0], instruction.saved[0]
        places = instruction.saved[1] if len(instruction.saved) > 1 else None
        item = form.spec.dtype.itemsize
        if source is not None and self._relevant(source):
            spec = form.specs[1]
            assert spec is not None
            if places is None:
                value = shaping.clone(shadow.part(region, offset))
            else:
                value = indexing.index(shadow.flattened(), (places + offset // item,))
            top, at = self.state.home(key_of(source))
            self.contribute(top, at, spec, rules.onto(value, spec.shape))
        if form.kind == CLEARS and before is not None:
            if places is None:
                shadow.part(region, offset).fill_(-0.0)
            else:
                indexing.assign_at(shadow.flattened(), (places + offset // item,), -0.0, form.op.name)

    def _python(self, instruction: Instruction) -> None:
        """Let the instruction's own object run its pullback on tensors."""
        g = self._read(instruction.slot, instruction.form.spec, 0) if self.shadows.get(instruction.slot) else None
        if isinstance(instruction.saved[0], Packed):
            if g is not None:
                self._pulls(instruction.saved[0].unpacked(instruction), g)
            self.shadows.pop(instruction.slot, None)
            return
        with np.errstate(**self.err):
            found = instruction.saved[0].pull_tensors(instruction, g, self.run_.stash, self.primals)
        self._give(instruction, found, g)
        self.shadows.pop(instruction.slot, None)


class RecordedRun(Gathered):
    """One backward whose operations are recorded; it frees nothing."""

    def sweep(self, seeds: list[tuple[Tensor, Tensor]]) -> None:
        """Sweep from roots with their cotangents."""
        computed = [(root, value) for root, value in seeds if type(root._slot) is int]
        with modes.enable_grad():
            for root, value in seeds:
                if type(root._slot) is not int:
                    self.leaf(root._slot, value)
            if computed:
                starts = [Seed(root._slot, root.spec, 1.0, own_offset(root) or 0) for root, _ in computed]
                with crossing.reading(starts) as (graph, tapes):
                    sweep = _Sweep(self, graph, list(tapes.values()), {seed.slot for seed in starts})
                    for seed, (_, value) in zip(starts, computed, strict=True):
                        sweep.contribute(seed.slot, seed.offset or 0, seed.spec, value)
                    asked = self.asked if self.restrict else None
                    with reaching(partial(reached, graph, asked)):
                        found = sweep.run()
                for leaf, value in found:
                    self.leaf(leaf, value)
