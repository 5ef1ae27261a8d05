"""A backward that is recorded itself: the same sweep, in Python, with tensors for cotangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.entries import Instruction
from kernels.graphs import Graph, key_of, relevant
from kernels.layouts import Spec
from kernels.observing import Seed
from kernels.op import Gather
from kernels.plain import State
from kernels.words import ADDS, CLEARS, PULLS, PYTHON, VIEW
from tape import errors, indexing, modes, shaping
from tape.autograd import anomaly, crossing, hooks, rules
from tape.autograd.accumulation import accumulate
from tape.autograd.primals import Primals
from tape.autograd.run import check_apart, own_offset
from tape.autograd.shadows import Shadow, owned
from tape.packing import Packed
from tape.tapes import Tape
from tape.tensor import AccumulateGrad, Tensor

_ALIASES = (VIEW, CLEARS, ADDS)


class RecordedRun:
    """One backward whose operations are recorded; it frees nothing."""

    def __init__(self, *, restrict: bool, required: bool = False) -> None:
        self.restrict, self.required = restrict, required
        self.found: dict[Any, Tensor] = {}
        self.asked: dict[Any, Tensor] = {}
        self.leaves: dict[AccumulateGrad, Tensor] = {}
        self.retained: list[tuple[Tensor, Any]] = []
        self.stash: dict[Any, Any] = {}

    def observe(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Ask for the gradients of leaves or computed tensors."""
        for x in tensors:
            check_apart(x)
            self.asked[x._slot] = x
        return [x._slot for x in tensors]

    def sweep(self, seeds: list[tuple[Tensor, Tensor]]) -> None:
        """Sweep from roots with their cotangents."""
        computed = [(root, value) for root, value in seeds if type(root._slot) is int]
        with modes.enable_grad():
            for root, value in seeds:
                if type(root._slot) is not int:
                    self._leaf(root._slot, value)
            if computed:
                starts = [Seed(root._slot, root.spec, 1.0, own_offset(root) or 0) for root, _ in computed]
                with crossing.reading(starts) as (graph, tapes):
                    sweep = _Sweep(self, graph, list(tapes.values()), {seed.slot for seed in starts})
                    for seed, (_, value) in zip(starts, computed, strict=True):
                        sweep.contribute(seed.slot, seed.offset or 0, seed.spec, value)
                    found = sweep.run()
                for leaf, value in found:
                    self._leaf(leaf, value)

    def _leaf(self, leaf: Any, value: Tensor) -> None:
        if leaf in self.asked:
            self.keep(leaf, value)
        elif not self.restrict:
            self.leaves[leaf] = self.leaves[leaf] + value if leaf in self.leaves else value

    def keep(self, key: Any, value: Tensor) -> None:
        """Note the gradient of what was asked for."""
        value = rules.added(value)
        self.found[key] = self.found[key] + value if key in self.found else value

    def check_used(self, keys: list[Any]) -> None:
        """Raise for an input that no output depends on."""
        for i, key in enumerate(keys):
            if self.required and key not in self.found:
                raise errors.GradError(errors.UNUSED.format(i))

    def result(self, key: Any) -> Tensor | None:
        """Return a gradient asked for, after the hooks of a leaf; None if nothing reached it."""
        value = self.found.get(key)
        own = hooks.found_on(key)
        return own.on_tensor(value) if own and value is not None else value

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves and of tensors that retain theirs."""
        for leaf, value in self.leaves.items():
            own = hooks.found_on(leaf)
            gradient = shaping.clone(rules.added(value))  # of its own: what follows may be written in place
            accumulate(leaf, own.on_tensor(gradient) if own else gradient)
        for tensor, key in self.retained:
            if key in self.found:
                accumulate(tensor, self.found[key])


class _Sweep:
    """The sweep of a graph."""

    def __init__(self, run: RecordedRun, graph: Graph, tapes: list[Tape], roots: set[int]) -> None:
        self.run_, self.anomaly, self.err = run, anomaly.current(), np.geterr()
        self.hooks = {slot: own for tape in tapes for slot, own in list(tape.hooks.items())}
        references = [] if run.restrict else [ref for tape in tapes for ref in list(tape.retained.values())]
        retained = [r for r in (ref() for ref in references) if r is not None]
        run.retained += [(x, x._slot) for x in retained]
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
        step, wanted = anomaly.induced(self._step), self.state.relevant
        with np.errstate(all="ignore"):
            for instruction in self.graph.marked:
                if wanted is None or instruction.slot in wanted:
                    step(instruction)
        ends = [(key, leaf) for key, (leaf, _) in self.graph.ends.items() if self.shadows.get(key)]
        return [(leaf, self._read(key, leaf.spec, 0)) for key, leaf in ends]

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
        if own:
            with np.errstate(**self.err):
                changed = own.on_tensor(value)
            if changed is not value:
                shadow.part(spec, offset).copy_(changed)
                value = changed
        if x is not None:
            self.run_.keep(slot, value)

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
        if own is not None and own.after:
            with np.errstate(**self.err):
                found = own.after_tensors(found, g)
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
