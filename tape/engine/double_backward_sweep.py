"""The sweep of a recorded backward (``create_graph=True``): in Python, its cotangents are tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kernels.foundation.specs import Spec
from kernels.kinds.reference_tape import Instruction
from kernels.native.structs import ADDS, CLEARS, PULLS, PYTHON, VIEW
from kernels.sweeps.graph import Graph, key_of, relevant
from kernels.sweeps.leaves import by_slot
from kernels.sweeps.reference import State
from tape.engine import graph_observers, kind_rules
from tape.engine.accumulate_grad import GradientBuffer, cotangent, owned, part_of, together
from tape.engine.graph_observers import family_offset
from tape.engine.kind_rules import full
from tape.engine.kinds import PickingPullbacks, pullbacks_of
from tape.engine.nodes import Gathered
from tape.engine.saved_tensors import SavedTensors
from tape.operations import indexing
from tape.recording import views
from tape.recording.packed_values import Packed
from tape.tensors import hooks, modes, view_families
from tape.tensors.tapes import Tape
from tape.tensors.tensor import AccumulateGrad, Tensor, constant_tensor

_ALIASES = (VIEW, CLEARS, ADDS)


class RecordedSweep:
    """The sweep of a graph."""

    def __init__(self, run: Gathered, graph: Graph, tapes: list[Tape], roots: set[int]) -> None:
        self.run_, self.anomaly, self.graph, marked = run, graph_observers.current(), graph, graph.marked
        self.hooks = {slot: registered for tape in tapes if tape.hooks for slot, registered in list(tape.hooks.items())}
        self.watched = dict(run.asked)
        for tape in tapes if run.accumulates else ():
            for x in [x for ref in list(tape.retained.values()) if (x := ref()) is not None]:
                run.retained.setdefault(x._slot, []).append(x)
                self.watched[x._slot] = x
        self.quiet = not self.hooks and self.anomaly is None and not any(type(key) is int for key in self.watched)
        self.state = State(marked, {*self.watched, *self.hooks, *roots, *graph.split}, 0)
        if run.restrict and not graph.ends.keys() <= run.asked.keys():
            self.state.relevant = relevant(graph, set(run.asked))
        self.saved_tensors = SavedTensors(marked)
        self.err: Any = None
        self.buffers: dict[Any, Tensor | GradientBuffer] = {}
        """A plain tensor where every contribution covered the whole family in order, without marks: the usual case."""

    def run(self) -> list[tuple[AccumulateGrad, Tensor]]:
        """Sweep; return the gradients of leaves. Native sweeps do not warn of overflows and the like, either."""
        step = (
            self._quick if self.quiet else self._step if self.anomaly is None else graph_observers.induced(self._step)
        )
        wanted, stops = self.state.relevant, self._stops() if hooks.LEAVES else None
        known = getattr(modes.current().recorder, "with_tensors", None)
        self.err = np.geterr()
        with np.errstate(all="ignore"):
            for instruction in self.graph.marked:
                if wanted is None or instruction.slot in wanted:
                    step(instruction if known is None else known(instruction))
                    if stops and instruction.slot in stops:
                        self._serve(stops[instruction.slot])
            ends = [(key, leaf) for key, (leaf, _) in self.graph.ends.items() if key in self.buffers]
            return [(leaf, self._end(key, leaf.spec)) for key, leaf in ends if leaf not in self.run_.served]

    def _serve(self, leaves: Iterable[AccumulateGrad]) -> None:
        for leaf in leaves:
            if key_of(leaf) in self.buffers:
                with np.errstate(**self.err):
                    self.run_.serve(leaf, self._read(key_of(leaf), leaf.spec, 0))

    def _stops(self) -> dict[int, list[AccumulateGrad]]:
        """Return the leaves with hooks by the slot of the instruction after which all of their gradient is there."""
        run = self.run_
        early = [*run.leaves, *run.gradients]  # roots: something is still to come for these
        ends = [leaf for leaf, _ in self.graph.ends.values() if id(leaf) in hooks.LEAVES]
        wanted = {id(leaf) for leaf in ends if leaf not in early and (leaf in run.asked or not run.restrict)}
        return by_slot(self.graph, self.state.relevant, wanted)

    def _buffer(self, key: Any, spec: Spec) -> GradientBuffer:
        """Return a gradient as a buffer whose parts can be read and written."""
        buffer = self.buffers.get(key)
        if not isinstance(buffer, GradientBuffer):
            whole = None if buffer is None else kind_rules.added(buffer)
            buffer = self.buffers[key] = GradientBuffer(spec, whole)
        return buffer

    def contribute(self, operand: Any, offset: int, spec: Spec, value: Tensor, clean: bool = False) -> None:
        """Add to the part of a gradient buffer that belongs to a tensor of this spec.

        An element of -0.0 means "nothing contributed here", unless ``clean``.
        """
        if offset == 0 and spec.in_order and spec.covers:
            buffer = self.buffers.get(operand)
            if clean and buffer is None:
                self.buffers[operand] = value
            elif clean and type(buffer) is Tensor:
                self.buffers[operand] = together(buffer, value)
            else:
                self._buffer(operand, spec).add(value, clean)
        else:
            self._buffer(operand, spec).add_part(spec, offset, value, clean)

    def _give_to(self, operand: Any, spec: Spec, value: Tensor, clean: bool = False) -> None:
        """Contribute to an operand, in the gradient buffer of its family."""
        top, offset = self.state.home(operand) if operand in self.state.homes else (operand, 0)
        self.contribute(top, offset, spec, value, clean)

    def _read(self, top: Any, spec: Spec, offset: int) -> Tensor:
        """Return the gradient of a tensor of this spec, for hooks and observers."""
        buffer = self.buffers[top]
        if owned(spec) and offset == 0:
            if isinstance(buffer, GradientBuffer):
                if buffer.whole is not None and not buffer.parts and not buffer.picked:
                    return full(buffer.whole, spec.shape)
            else:
                return full(buffer, spec.shape)
        return views.clone(self._buffer(top, spec).part(spec, offset))

    def _end(self, key: Any, spec: Spec) -> Tensor:
        """Return the gradient of a leaf, free of -0.0, in memory that it does not share."""
        buffer = self.buffers[key]
        value, _ = cotangent(buffer, spec, ends=True)
        value = full(kind_rules.added(value), spec.shape)
        return views.clone(value) if view_families.is_view(value) else value

    def _quick(self, instruction: Instruction) -> None:
        """Run the pullbacks of one instruction where there are no hooks, observers or anomaly mode."""
        form = instruction.form
        if form.kind != PULLS:
            self._step(instruction)
            return
        buffer, relevant = self.buffers.pop(instruction.slot, None), self.state.relevant
        if buffer is None:
            return
        if not isinstance(buffer, GradientBuffer) and form.spec.in_order and form.spec.covers:
            g, clean = buffer, True  # the usual case
        else:
            g, clean = cotangent(buffer, form.spec)
        pullbacks, operands = form.tensor_pullbacks or pullbacks_of(form), instruction.operands
        if isinstance(pullbacks, PickingPullbacks):
            self._scatter(instruction, pullbacks, g, clean)
            return
        wanted = pullbacks.pulled if relevant is None else [i for i in pullbacks.pulled if operands[i] in relevant]
        homes, buffers = self.state.homes, self.buffers
        for i, value, free in pullbacks.run(instruction, wanted, g, clean, self.saved_tensors):
            operand, spec = operands[i], form.specs[i]
            if free and operand not in buffers and operand not in homes and spec.in_order and spec.covers:  # type: ignore[union-attr]
                buffers[operand] = value
            else:
                self._give_to(operand, spec, value, free)  # type: ignore[arg-type]

    def _step(self, instruction: Instruction) -> None:
        """Run the pullbacks of one instruction; the buffer of an observed view, or version, is added to its base's."""
        form, slot, state = instruction.form, instruction.slot, self.state
        if self.hooks or slot in self.watched:
            self._observe(instruction)
        if form.kind == PULLS:
            buffer = self.buffers.pop(slot, None)
            if buffer is not None:
                self._pulls(instruction, *cotangent(buffer, form.spec))
            return
        apart = slot in state.homes and slot in state.kept
        if form.kind == VIEW:
            if apart and slot in self.buffers:
                self._fold(instruction)
            return
        home = state.above(instruction) if slot in state.homes and not apart else slot
        if form.kind == PYTHON:
            self._python(instruction)
        elif home in self.buffers:
            self._unwrite(instruction, home)
            if apart:
                self._fold(instruction)
            if home == slot:
                del self.buffers[slot]

    def _fold(self, instruction: Instruction) -> None:
        """Add the buffer of a view, or of a version, to that of its base, or of the version before."""
        spec, above, buffer = instruction.form.spec, self.state.above(instruction), self.buffers[instruction.slot]
        if not isinstance(buffer, GradientBuffer):
            self.contribute(above, 0, spec, cotangent(buffer, spec)[0], clean=True)
        elif buffer.flat is not None or buffer.whole is not None or buffer.picked:
            self._buffer(above, spec).add_flat(buffer.flattened())
        else:
            for (part, offset), value in buffer.parts.items():
                self.contribute(above, offset, part, value, clean=buffer.clean)

    def _observe(self, instruction: Instruction) -> None:
        """Pass the gradient that has arrived to hooks, and keep it if it was asked for."""
        slot = instruction.slot
        registered = self.hooks.get(slot)
        if slot not in self.buffers or (registered is None and slot not in self.watched):
            return
        x: Any = self.watched.get(slot)
        spec, offset = (
            (registered.spec, registered.offset) if registered is not None else (x.spec, family_offset(x) or 0)
        )
        value = self._read(slot, spec, offset)
        changed = value
        if registered is not None:
            with np.errstate(**self.err):
                changed = registered.on_tensor(value)
        if x is not None:
            self.run_.keep(slot, kind_rules.added(changed))
            if self.hooks or hooks.LEAVES:  # which could notice
                self.run_.arrived(slot)
        if registered is not None and registered.before and self._works(instruction):
            with np.errstate(**self.err):
                (passed_on,) = registered.before_node([changed])
            changed = passed_on
            if passed_on is None:
                changed = constant_tensor(np.full(value.spec.shape, -0.0, value.spec.dtype))
        if changed is not value:
            self._buffer(slot, spec).part(spec, offset).copy_(changed)

    def _works(self, instruction: Instruction) -> bool:
        """Whether an operand's gradient is wanted; if only the result's is, the instruction's pullback does not run."""
        return any(o is not None and self._relevant(o) for o in instruction.operands)

    def _pulls(self, instruction: Instruction, g: Tensor, clean: bool = False) -> None:
        form, operands, relevant = instruction.form, instruction.operands, self.state.relevant
        pullbacks = form.tensor_pullbacks or pullbacks_of(form)
        if isinstance(pullbacks, PickingPullbacks):
            self._scatter(instruction, pullbacks, g, clean)
            return
        wanted = pullbacks.pulled
        if relevant is not None:
            wanted = tuple([i for i in wanted if operands[i] in relevant])
        contributions = pullbacks.run(instruction, wanted, g, clean, self.saved_tensors)
        if self.anomaly is None and not self.hooks:
            for i, value, free in contributions:
                self._give_to(operands[i], form.specs[i], value, free)  # type: ignore[arg-type]
            return
        gradients: list[Tensor | None] = [None] * len(form.specs)
        for i, value, free in contributions:  # from here on -0.0 means that nothing was contributed
            gradients[i] = full(kind_rules.added(value) if free else value, form.specs[i].shape)  # type: ignore[union-attr]
        self._give(instruction, gradients, full(g, form.spec.shape))

    def _scatter(self, instruction: Instruction, pullbacks: PickingPullbacks, g: Tensor, clean: bool) -> None:
        """Add a cotangent to the places that were picked, each an element of the gradient buffer."""
        operand, spec = instruction.operands[0], instruction.form.specs[0]
        assert spec is not None
        if self._relevant(operand):
            top, offset = self.state.home(operand)
            places = pullbacks.places(instruction)
            places = places + offset // spec.dtype.itemsize if offset else places
            self._buffer(top, spec).add_at(places, full(g, instruction.form.spec.shape), clean)

    def _give(self, instruction: Instruction, gradients: list[Tensor | None], g: Tensor | None) -> None:
        registered = self.hooks.get(instruction.slot) if self.hooks else None
        if registered is not None and registered.after and self._works(instruction):
            with np.errstate(**self.err):
                gradients = registered.after_node(gradients, (g,))
        if self.anomaly is not None:
            self.anomaly.look(instruction, gradients, g, self.state.relevant)
        for operand, spec, value in zip(instruction.operands, instruction.form.specs, gradients, strict=True):
            if operand is not None and spec is not None and value is not None and self._relevant(operand):
                self._give_to(operand, spec, value, kind_rules.negative_zeros(value) is None)

    def _relevant(self, operand: Any) -> bool:
        relevant = self.state.relevant
        return relevant is None or key_of(operand) in relevant

    def _unwrite(self, instruction: Instruction, home: Any) -> None:
        """Give the gradient of what was written to the value, and clear it unless the value was added."""
        form, (before, source) = instruction.form, instruction.operands
        region, offset = form.params[0], instruction.saved[0]
        places = instruction.saved[1] if len(instruction.saved) > 1 else None
        item = form.spec.dtype.itemsize
        if source is not None and self._relevant(source):
            spec = form.specs[1]
            assert spec is not None
            if places is None:
                value, clean = self._written(instruction, home)
            else:
                flat = self._buffer(home, form.spec).flattened()
                value, clean = indexing.index(flat, (places + offset // item,)), False
            self._give_to(source, spec, kind_rules.onto(value, spec.shape), clean)
        if form.kind == CLEARS and before is not None:
            buffer = self._buffer(home, form.spec)
            if places is None:
                buffer.part(region, offset).fill_(-0.0)
            else:
                indexing.assign_at(buffer.flattened(), (places + offset // item,), -0.0, form.op.name)

    def _written(self, instruction: Instruction, home: Any) -> tuple[Tensor, bool]:
        """Return the gradient of a part that was written, and whether -0.0 marks nothing there."""
        form, buffer = instruction.form, self.buffers[home]
        region, offset = form.params[0], instruction.saved[0]
        if form.kind == ADDS and not isinstance(buffer, GradientBuffer):  # nothing will be cleared
            whole = full(buffer, form.spec.shape) if buffer._form.spec.shape == () else buffer
            if whole._form.spec.in_order and not view_families.is_view(whole):
                return part_of(whole, region, offset), True
        return views.clone(self._buffer(home, form.spec).part(region, offset)), False

    def _python(self, instruction: Instruction) -> None:
        """Let the instruction's own object run its pullback on tensors."""
        g, clean, spec = None, False, instruction.form.spec
        if (buffer := self.buffers.pop(instruction.slot, None)) is not None:
            g, clean = cotangent(buffer, spec)
            g = full(g, spec.shape)
        if not self._works(instruction):
            return
        if isinstance(instruction.saved[0], Packed):
            if g is not None:
                self._pulls(instruction.saved[0].unpacked(instruction), g, clean)
            return
        with np.errstate(**self.err):
            gradients = instruction.saved[0].pull_tensors(instruction, g, self.run_.stash, self.saved_tensors)
        self._give(instruction, gradients, g)
