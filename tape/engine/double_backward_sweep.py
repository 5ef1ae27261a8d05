"""The sweep of a backward that is recorded itself: in Python, with tensors for cotangents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.native.words import ADDS, CLEARS, PULLS, PYTHON, VIEW
from kernels.sweeps.graph import Graph, key_of, relevant
from kernels.sweeps.leaf_hooks import by_slot
from kernels.sweeps.reference import State
from tape.engine.graph.observers import own_offset
from tape.engine.graph.recorded_results import Gathered
from tape.engine.rules import anomaly, tensor_rules
from tape.engine.rules.gradient_tensors import Shadow, cotangent, owned, part_of, together
from tape.engine.rules.saved_tensors import Primals
from tape.engine.rules.tensor_rules import full
from tape.engine.rules.tensor_steps import Picking, steps_of
from tape.operations import indexing
from tape.recording import views
from tape.recording.packed_values import Packed
from tape.tensors import hooks, view_families
from tape.tensors.tapes import Tape
from tape.tensors.tensor import AccumulateGrad, Tensor, plain

_ALIASES = (VIEW, CLEARS, ADDS)


class RecordedSweep:
    """The sweep of a graph."""

    def __init__(self, run: Gathered, graph: Graph, tapes: list[Tape], roots: set[int]) -> None:
        self.run_, self.anomaly, self.graph, marked = run, anomaly.current(), graph, graph.marked
        self.hooks = {slot: own for tape in tapes if tape.hooks for slot, own in list(tape.hooks.items())}
        self.watched = dict(run.asked)
        for tape in tapes if run.accumulates else ():
            for x in [x for ref in list(tape.retained.values()) if (x := ref()) is not None]:
                run.retained.setdefault(x._slot, []).append(x)
                self.watched[x._slot] = x
        self.quiet = not self.hooks and self.anomaly is None and not any(type(key) is int for key in self.watched)
        self.state = State(marked, {*self.watched, *self.hooks, *roots, *graph.split}, 0)
        if run.restrict and not graph.ends.keys() <= run.asked.keys():
            self.state.relevant = relevant(graph, set(run.asked))
        self.primals = Primals(marked)
        self.err: Any = None
        self.shadows: dict[Any, Tensor | Shadow] = {}
        """Tensors where all was contributed to all of a family in order, and nothing is marked: the usual case."""

    def run(self) -> list[tuple[AccumulateGrad, Tensor]]:
        """Sweep; return the gradients of leaves. Native sweeps do not warn of overflows and the like, either."""
        step = self._quick if self.quiet else self._step if self.anomaly is None else anomaly.induced(self._step)
        wanted, stops = self.state.relevant, self._stops() if hooks.LEAVES else None
        self.err = np.geterr()
        with np.errstate(all="ignore"):
            for instruction in self.graph.marked:
                if wanted is None or instruction.slot in wanted:
                    step(instruction)
                    if stops and instruction.slot in stops:
                        self._serve(stops[instruction.slot])
            ends = [(key, leaf) for key, (leaf, _) in self.graph.ends.items() if key in self.shadows]
            return [(leaf, self._end(key, leaf.spec)) for key, leaf in ends if leaf not in self.run_.served]

    def _serve(self, leaves: Iterable[AccumulateGrad]) -> None:
        for leaf in leaves:
            if key_of(leaf) in self.shadows:
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
        """Return a shadow as one that can be read and written in part."""
        have = self.shadows.get(key)
        if not isinstance(have, Shadow):
            have = self.shadows[key] = Shadow(spec, None if have is None else tensor_rules.added(have))
        return have

    def contribute(self, operand: Any, offset: int, spec: Spec, value: Tensor, clean: bool = False) -> None:
        """Add to the part of a shadow that belongs to a tensor of this spec; -0.0 is a mark unless ``clean``."""
        if offset == 0 and spec.in_order and spec.covers:
            have = self.shadows.get(operand)
            if clean and have is None:
                self.shadows[operand] = value
            elif clean and type(have) is Tensor:
                self.shadows[operand] = together(have, value)
            else:
                self._shadow(operand, spec).add(value, clean)
        else:
            self._shadow(operand, spec).add_part(spec, offset, value, clean)

    def _give_to(self, operand: Any, spec: Spec, value: Tensor, clean: bool = False) -> None:
        """Contribute to an operand, in the shadow of its family."""
        top, offset = self.state.home(operand) if operand in self.state.homes else (operand, 0)
        self.contribute(top, offset, spec, value, clean)

    def _read(self, top: Any, spec: Spec, offset: int) -> Tensor:
        """Return the gradient of a tensor of this spec, to be shown."""
        shadow = self.shadows[top]
        if owned(spec) and offset == 0:
            if isinstance(shadow, Shadow):
                if shadow.whole is not None and not shadow.parts and not shadow.picked:
                    return full(shadow.whole, spec.shape)
            else:
                return full(shadow, spec.shape)
        return views.clone(self._shadow(top, spec).part(spec, offset))

    def _end(self, key: Any, spec: Spec) -> Tensor:
        """Return the gradient of a leaf, free of -0.0, in memory that is no other's part."""
        shadow = self.shadows[key]
        value, _ = cotangent(shadow, spec, ends=True)
        value = full(tensor_rules.added(value), spec.shape)
        return views.clone(value) if view_families.is_view(value) else value

    def _quick(self, instruction: Instruction) -> None:
        """Run the pullbacks of one instruction where nobody looks on."""
        form = instruction.form
        if form.kind != PULLS:
            self._step(instruction)
            return
        shadow, relevant = self.shadows.pop(instruction.slot, None), self.state.relevant
        if shadow is None:
            return
        if not isinstance(shadow, Shadow) and form.spec.in_order and form.spec.covers:
            g, clean = shadow, True  # the usual case
        else:
            g, clean = cotangent(shadow, form.spec)
        steps, operands = form.steps or steps_of(form), instruction.operands
        if isinstance(steps, Picking):
            self._scatter(instruction, steps, g, clean)
            return
        wanted = steps.pulled if relevant is None else [i for i in steps.pulled if operands[i] in relevant]
        homes, shadows = self.state.homes, self.shadows
        for i, value, free in steps.run(instruction, wanted, g, clean, self.primals):
            operand, spec = operands[i], form.specs[i]
            if free and operand not in shadows and operand not in homes and spec.in_order and spec.covers:  # type: ignore[union-attr]
                shadows[operand] = value
            else:
                self._give_to(operand, spec, value, free)  # type: ignore[arg-type]

    def _step(self, instruction: Instruction) -> None:
        """Run the pullbacks of one instruction; an observed view, or version, folds into the shadow above it."""
        form, slot, state = instruction.form, instruction.slot, self.state
        if self.hooks or slot in self.watched:
            self._observe(instruction)
        if form.kind == PULLS:
            shadow = self.shadows.pop(slot, None)
            if shadow is not None:
                self._pulls(instruction, *cotangent(shadow, form.spec))
            return
        apart = slot in state.homes and slot in state.kept
        if form.kind == VIEW:
            if apart and slot in self.shadows:
                self._fold(instruction)
            return
        home = state.above(instruction) if slot in state.homes and not apart else slot
        if form.kind == PYTHON:
            self._python(instruction)
        elif home in self.shadows:
            self._unwrite(instruction, home)
            if apart:
                self._fold(instruction)
            if home == slot:
                del self.shadows[slot]

    def _fold(self, instruction: Instruction) -> None:
        """Add the shadow of a view, or of a version, to the one above it."""
        spec, above, own = instruction.form.spec, self.state.above(instruction), self.shadows[instruction.slot]
        if not isinstance(own, Shadow):
            self.contribute(above, 0, spec, cotangent(own, spec)[0], clean=True)
        elif own.flat is not None or own.whole is not None or own.picked:
            self._shadow(above, spec).add_flat(own.flattened())
        else:
            for (part, offset), value in own.parts.items():
                self.contribute(above, offset, part, value, clean=own.clean)

    def _observe(self, instruction: Instruction) -> None:
        """Show the gradient that has arrived to hooks, and note it for whoever asked."""
        slot = instruction.slot
        own = self.hooks.get(slot)
        if slot not in self.shadows or (own is None and slot not in self.watched):
            return
        x: Any = self.watched.get(slot)
        spec, offset = (own.spec, own.offset) if own is not None else (x.spec, own_offset(x) or 0)
        value = self._read(slot, spec, offset)
        given = value
        if own is not None:
            with np.errstate(**self.err):
                given = own.on_tensor(value)
        if x is not None:
            self.run_.keep(slot, tensor_rules.added(given))
            if self.hooks or hooks.LEAVES:  # which could notice
                self.run_.arrived(slot)
        if own is not None and own.before and self._works(instruction):
            with np.errstate(**self.err):
                (left,) = own.before_node([given])
            given = plain(np.full(value.spec.shape, -0.0, value.spec.dtype)) if left is None else left
        if given is not value:
            self._shadow(slot, spec).part(spec, offset).copy_(given)

    def _works(self, instruction: Instruction) -> bool:
        """Whether an instruction has anything to do: of what is asked for, only its own gradient may be wanted."""
        return any(o is not None and self._relevant(o) for o in instruction.operands)

    def _pulls(self, instruction: Instruction, g: Tensor, clean: bool = False) -> None:
        form, operands, relevant = instruction.form, instruction.operands, self.state.relevant
        steps = form.steps or steps_of(form)
        if isinstance(steps, Picking):
            self._scatter(instruction, steps, g, clean)
            return
        wanted = steps.pulled
        if relevant is not None:
            wanted = tuple([i for i in wanted if operands[i] in relevant])
        given = steps.run(instruction, wanted, g, clean, self.primals)
        if self.anomaly is None and not self.hooks:
            for i, value, free in given:
                self._give_to(operands[i], form.specs[i], value, free)  # type: ignore[arg-type]
            return
        found: list[Tensor | None] = [None] * len(form.specs)
        for i, value, free in given:  # what is -0.0 from now on is a mark
            found[i] = full(tensor_rules.added(value) if free else value, form.specs[i].shape)  # type: ignore[union-attr]
        self._give(instruction, found, full(g, form.spec.shape))

    def _scatter(self, instruction: Instruction, steps: Picking, g: Tensor, clean: bool) -> None:
        """Add a cotangent to the places that were picked, each an element of the shadow."""
        operand, spec = instruction.operands[0], instruction.form.specs[0]
        assert spec is not None
        if self._relevant(operand):
            top, offset = self.state.home(operand)
            places = steps.places(instruction)
            places = places + offset // spec.dtype.itemsize if offset else places
            self._shadow(top, spec).add_at(places, full(g, instruction.form.spec.shape), clean)

    def _give(self, instruction: Instruction, found: list[Tensor | None], g: Tensor | None) -> None:
        own = self.hooks.get(instruction.slot) if self.hooks else None
        if own is not None and own.after and self._works(instruction):
            with np.errstate(**self.err):
                found = own.after_node(found, (g,))
        if self.anomaly is not None:
            self.anomaly.look(instruction, found, g, self.state.relevant)
        for operand, spec, value in zip(instruction.operands, instruction.form.specs, found, strict=True):
            if operand is not None and spec is not None and value is not None and self._relevant(operand):
                self._give_to(operand, spec, value, tensor_rules.negative_zeros(value) is None)

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
                flat = self._shadow(home, form.spec).flattened()
                value, clean = indexing.index(flat, (places + offset // item,)), False
            self._give_to(source, spec, tensor_rules.onto(value, spec.shape), clean)
        if form.kind == CLEARS and before is not None:
            shadow = self._shadow(home, form.spec)
            if places is None:
                shadow.part(region, offset).fill_(-0.0)
            else:
                indexing.assign_at(shadow.flattened(), (places + offset // item,), -0.0, form.op.name)

    def _written(self, instruction: Instruction, home: Any) -> tuple[Tensor, bool]:
        """Return the gradient of a part that was written, and whether -0.0 marks nothing there."""
        form, shadow = instruction.form, self.shadows[home]
        region, offset = form.params[0], instruction.saved[0]
        if form.kind == ADDS and not isinstance(shadow, Shadow):  # nothing will be cleared
            whole = full(shadow, form.spec.shape) if shadow._form.spec.shape == () else shadow
            if whole._form.spec.in_order and not view_families.is_view(whole):
                return part_of(whole, region, offset), True
        return views.clone(self._shadow(home, form.spec).part(region, offset)), False

    def _python(self, instruction: Instruction) -> None:
        """Let the instruction's own object run its pullback on tensors."""
        g, clean, spec = None, False, instruction.form.spec
        if (shadow := self.shadows.pop(instruction.slot, None)) is not None:
            g, clean = cotangent(shadow, spec)
            g = full(g, spec.shape)
        if isinstance(instruction.saved[0], Packed):
            if g is not None:
                self._pulls(instruction.saved[0].unpacked(instruction), g, clean)
            return
        with np.errstate(**self.err):
            found = instruction.saved[0].pull_tensors(instruction, g, self.run_.stash, self.primals)
        self._give(instruction, found, g)
