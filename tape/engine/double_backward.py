"""``create_graph=True``: a backward that runs on tensors, and so is recorded itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.numpy_arrays import Seed
from kernels.foundation.specs import SCALAR, Spec
from kernels.kinds.reference_tape import Instruction, is_exposed
from kernels.native.structs import ADDS, CLEARS, PULLS, PYTHON, TAPE_BITS, VIEW
from kernels.sweeps.graph import MarkedGraph, mark
from kernels.sweeps.reference import Sweep
from tape import errors
from tape.engine import graph_observers, kind_rules
from tape.engine.accumulate_grad import (
    GradientBuffer,
    accumulate,
    cotangent,
    owned,
    part_of,
    take_in,
    tape_of,
    together,
)
from tape.engine.graph_observers import check_apart, family_offset
from tape.engine.kind_rules import full
from tape.engine.kinds import PickingPullbacks, pullbacks_of
from tape.engine.saved_tensors import SavedTensors
from tape.engine.sweep_run import REACH, reached
from tape.operations import indexing
from tape.recording import views
from tape.recording.record import Packed
from tape.recording.routine_calls import TensorCall
from tape.tensors import hooks, modes, view_families
from tape.tensors.tapes import Tape
from tape.tensors.tensor import AccumulateGrad, Tensor, constant_tensor


def gradients(roots: Sequence[Any], targets: Sequence[Tensor], weights: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return recorded gradients of one root on this thread's tape by leaves; None where only the general way serves."""
    modes.settle()
    tape, root, weight = modes.active(), roots[0], weights[0]
    if not tape or len(roots) > 1 or type(root) is not Tensor or hooks.LEAVES or tape.hooks:
        return None
    slot, form = root._slot, root._form
    spec: Spec = form.spec
    if type(slot) is not int or slot >> TAPE_BITS != tape.number or form.kind != PULLS:  # type: ignore[union-attr]
        return None
    if weight is None:
        weight = constant_tensor(1.0) if spec is SCALAR else None
    if type(weight) is not Tensor or weight._form.spec.shape != spec.shape or weight._form.spec.dtype is not spec.dtype:
        return None
    asked = {x._slot: x for x in targets}
    if len(asked) < len(targets) or not all(type(key) is AccumulateGrad and key.spec.in_order for key in asked):
        return None
    with tape.reading():
        graph = mark(tape.entries, tape.number, [Seed(slot, spec, 1.0)])
        if not graph.ends.keys() >= asked.keys() or graph.foreign() or any(map(_runs_user_code, graph.marked)):
            return None
        run = RecordedRun(restrict=True)
        run.asked = asked
        sweep = RecordedSweep(run, graph, [], {slot})
        sweep.add(slot, 0, spec, _unshared(weight), clean=True)
        by_leaf = dict(sweep.gradients())
    return tuple([by_leaf[key] for key in asked]) if len(by_leaf) == len(asked) else None


def _unshared(weight: Tensor) -> Tensor:
    """Return a cotangent, which may become a gradient as it is, as a tensor whose memory nobody else writes."""
    value = weight._value
    shared = weight._slot is None and type(value) is np.ndarray and is_exposed(value)
    return views.clone(weight) if shared else weight


def _runs_user_code(instruction: Instruction) -> bool:
    """Whether the user's code runs in the pullback of an instruction."""
    return instruction.form.kind == PYTHON and type(instruction.saved[0]) is not TensorCall


class RecordedRun:
    """One backward whose operations are recorded, and its gradients, delivered in PyTorch's order; it frees nothing."""

    def __init__(self, *, restrict: bool, required: bool = False, accumulates: bool = False) -> None:
        self.restrict, self.required, self.accumulates = restrict, required, accumulates
        self.gradients: dict[Any, Tensor] = {}
        self.asked: dict[Any, Tensor] = {}
        self.leaves: dict[AccumulateGrad, Tensor] = {}
        self.retained: dict[Any, list[Tensor]] = {}
        self.served: set[Any] = set()  # leaves whose hooks have seen their gradient
        self.stash: dict[Any, Any] = {}

    def observe(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Ask for the gradients of leaves or computed tensors."""
        for x in tensors:
            check_apart(x)
            self.asked[x._slot] = x
        return [x._slot for x in tensors]

    def leaf(self, leaf: Any, value: Tensor) -> None:
        """Add to the gradient of a leaf; the value is free of -0.0."""
        if leaf in self.asked:
            self.keep(leaf, value)
        elif not self.restrict:
            self.leaves[leaf] = self.leaves[leaf] + value if leaf in self.leaves else value

    def keep(self, key: Any, value: Tensor) -> None:
        """Add to a gradient that was asked for; the value is free of -0.0."""
        self.gradients[key] = self.gradients[key] + value if key in self.gradients else value

    def check_used(self, keys: list[Any]) -> None:
        """Raise for an input that no output depends on."""
        for i, key in enumerate(keys):
            if self.required and key not in self.gradients:
                raise errors.GradError(errors.UNUSED.format(i))

    def result(self, key: Any) -> Tensor | None:
        """Return a gradient asked for, after the hooks of a leaf; None if nothing reached it, or it has been added."""
        value, leaf_hooks = self.gradients.get(key), hooks.existing(key)
        if key in self.served:
            return None if self.accumulates else value
        return leaf_hooks.on_tensor(value) if leaf_hooks and value is not None else value

    def serve(self, leaf: AccumulateGrad, value: Tensor) -> None:
        """Run the hooks of a leaf whose gradient is complete, and add it to ``.grad`` if this backward does."""
        self.served.add(leaf)
        gradient = (leaf_hooks := hooks.of_leaf(leaf)).on_tensor(
            views.clone(kind_rules.added(value))
        )  # of its own: what follows may be written in place
        if leaf in self.asked:
            self.gradients[leaf] = gradient
        if self.accumulates:
            take_in(leaf, leaf_hooks, gradient, create=True)

    def arrived(self, key: Any) -> None:
        """Give a gradient to the tensors that retain it."""
        for tensor in self.retained.pop(key, ()) if key in self.gradients else ():
            accumulate(tensor, self.gradients[key], create=True)

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves, and of tensors that retain theirs."""
        for key in list(self.retained):
            self.arrived(key)
        for leaf, value in self.leaves.items():
            if hooks.existing(leaf) is None:
                accumulate(leaf, views.clone(value), create=True)
            else:
                self.serve(leaf, value)

    def sweep(self, seeds: list[tuple[Tensor, Tensor]]) -> None:
        """Sweep from roots with their cotangents."""
        computed = []
        for root, weight in seeds:
            value = _unshared(weight)
            if type(root._slot) is int:
                computed.append((Seed(root._slot, root.spec, 1.0, family_offset(root) or 0), value))
            else:
                self.leaf(root._slot, kind_rules.added(value))
        if not computed:
            return
        starts = [seed for seed, _ in computed]
        if len(starts) == 1 or len({seed.slot >> TAPE_BITS for seed in starts}) == 1:
            tape = tape_of(starts[0].slot)
            with tape.reading():
                graph = mark(tape.entries, tape.number, starts)
                if not graph.foreign():
                    self._sweep(graph, [tape], computed)
                    return
        with graph_observers.reading(starts) as (graph, tapes):
            self._sweep(graph, list(tapes.values()), computed)

    def _sweep(self, graph: MarkedGraph, tapes: list[Tape], starts: list[tuple[Seed, Tensor]]) -> None:
        sweep = RecordedSweep(self, graph, tapes, {seed.slot for seed, _ in starts})
        for seed, value in starts:
            sweep.add(seed.slot, seed.offset or 0, seed.spec, value, clean=True)
        token = REACH.set(partial(reached, graph, self.asked if self.restrict else None))
        try:
            leaf_gradients = sweep.gradients()
        finally:
            REACH.reset(token)
        for leaf, value in leaf_gradients:
            self.leaf(leaf, value)


class RecordedSweep(Sweep):
    """A sweep whose gradients are tensors.

    A buffer is a plain tensor where every contribution covered the whole family in order, without -0.0 as the mark of
    no contribution: the usual case. Otherwise it is a :class:`GradientBuffer`.
    """

    def __init__(self, results: RecordedRun, graph: MarkedGraph, tapes: list[Tape], roots: set[Any]) -> None:
        self.results, self.anomaly = results, graph_observers.current()
        self.hooks = {slot: registered for tape in tapes if tape.hooks for slot, registered in list(tape.hooks.items())}
        self.watched = dict(results.asked)
        for tape in tapes if results.accumulates else ():
            for x in [x for ref in list(tape.retained.values()) if (x := ref()) is not None]:
                results.retained.setdefault(x._slot, []).append(x)
                self.watched[x._slot] = x
        observed = {*self.watched, *self.hooks}
        super().__init__(graph, observed, roots, results.asked if results.restrict else None)
        self.saved_tensors = SavedTensors(graph.marked)
        self.err: Any = np.geterr()

    def gradients(self) -> list[tuple[AccumulateGrad, Tensor]]:
        """Sweep; return the gradients of leaves. Native sweeps do not warn of overflows and the like, either."""
        step = self.step if self.anomaly is None else graph_observers.induced(self.step)
        if (known := getattr(modes.current().recorder, "with_tensors", None)) is not None:
            step = _after(known, step)
        with np.errstate(all="ignore"):
            self.run(self._hooked() if hooks.LEAVES else (), step)
            ends = [leaf for leaf in self.graph.ends if leaf in self.buffers and leaf not in self.results.served]
            return [(leaf, self._end(leaf)) for leaf in ends]

    def _hooked(self) -> set[int]:
        """Return the ids of the leaves with hooks whose gradient this sweep completes: roots get more at the end."""
        results = self.results
        early = [*results.leaves, *results.gradients]
        leaves = [leaf for leaf in self.graph.ends if id(leaf) in hooks.LEAVES and leaf not in early]
        return {id(leaf) for leaf in leaves if leaf in results.asked or not results.restrict}

    def _end(self, leaf: AccumulateGrad) -> Tensor:
        """Return the gradient of a leaf, free of -0.0, in memory that it does not share."""
        value, _ = cotangent(self.buffers[leaf], leaf.spec, ends=True)
        value = full(kind_rules.added(value), leaf.spec.shape)
        return views.clone(value) if view_families.is_view(value) else value

    def add(self, key: Any, offset: int, spec: Spec, value: Tensor, clean: bool = False) -> None:
        """Add to a part of a buffer; a zero in a value that is ``clean`` is a zero, even if it is -0.0."""
        if offset == 0 and spec.in_order and spec.covers:
            buffer = self.buffers.get(key)
            if clean and buffer is None:
                self.buffers[key] = value
            elif clean and type(buffer) is Tensor:
                self.buffers[key] = together(buffer, value)
            else:
                self._buffer(key, spec).add(value, clean)
        else:
            self._buffer(key, spec).add_part(spec, offset, value, clean)

    def _buffer(self, key: Any, spec: Spec) -> GradientBuffer:
        """Return a gradient as a buffer whose parts can be read and written."""
        buffer = self.buffers.get(key)
        if not isinstance(buffer, GradientBuffer):
            whole = None if buffer is None else kind_rules.added(buffer)
            buffer = self.buffers[key] = GradientBuffer(spec, whole)
        return buffer

    def _read(self, key: Any, spec: Spec, offset: int) -> Tensor:
        """Return the gradient of a tensor of this spec, for hooks and observers."""
        buffer = self.buffers[key]
        if owned(spec) and offset == 0:
            whole = buffer.undivided() if isinstance(buffer, GradientBuffer) else buffer
            if whole is not None:
                return full(whole, spec.shape)
        return views.clone(self._buffer(key, spec).part(spec, offset))

    def pull(self, instruction: Instruction, gradient: Tensor | GradientBuffer) -> None:
        """Run the pullbacks of an instruction on tensors."""
        form, operands, leading = instruction.form, instruction.operands, self.relevant
        if type(gradient) is Tensor and form.spec.in_order and form.spec.covers:
            g, clean = gradient, True  # the usual case
        else:
            g, clean = cotangent(gradient, form.spec)
        pullbacks = form.tensor_pullbacks or pullbacks_of(form)
        if isinstance(pullbacks, PickingPullbacks):
            self._scatter(instruction, pullbacks, g, clean)
            return
        wanted = pullbacks.pulled if leading is None else [i for i in pullbacks.pulled if operands[i] in leading]
        contributions = pullbacks.run(instruction, wanted, g, clean, self.saved_tensors)
        if self.hooks or self.anomaly is not None:
            gradients: list[Tensor | None] = [None] * len(form.specs)
            for i, value, free in contributions:  # from here on -0.0 means that nothing was contributed
                gradients[i] = full(kind_rules.added(value) if free else value, form.specs[i].shape)  # type: ignore[union-attr]
            self._give(instruction, gradients, full(g, form.spec.shape))
            return
        homes, buffers = self.homes, self.buffers
        for i, value, free in contributions:
            operand, spec = operands[i], form.specs[i]
            if operand in homes:
                self.add(*self.home(operand), spec, value, free)  # type: ignore[arg-type]
            elif free and operand not in buffers and spec.in_order and spec.covers:  # type: ignore[union-attr]
                buffers[operand] = value
            else:
                self.add(operand, 0, spec, value, free)  # type: ignore[arg-type]

    def _give(self, instruction: Instruction, gradients: list[Tensor | None], g: Tensor | None) -> None:
        """Run the hooks behind an instruction, and anomaly mode; add what the operands get."""
        registered = self.hooks.get(instruction.slot)
        if registered is not None and registered.after and self.works(instruction):
            with np.errstate(**self.err):
                gradients = registered.after_node(gradients, (g,))
        if self.anomaly is not None:
            self.anomaly.look(instruction, gradients, g, self.relevant)
        for operand, spec, value in zip(instruction.operands, instruction.form.specs, gradients, strict=True):
            if spec is not None and value is not None and self.wants(operand):
                self.add(*self.home(operand), spec, value, kind_rules.negative_zeros(value) is None)

    def call(self, instruction: Instruction, gradient: Tensor | GradientBuffer | None) -> None:
        """Let the object that the instruction saved run its pullback on tensors, or unpack what the rules read."""
        spec, context = instruction.form.spec, instruction.saved[0]
        if not self.works(instruction):
            return
        if type(context) is Packed:
            if gradient is not None:
                self.pull(context.unpacked(instruction), gradient)
        else:
            g = None if gradient is None else full(cotangent(gradient, spec)[0], spec.shape)
            with np.errstate(**self.err):
                gradients = context.pull_tensors(instruction, g, self.results.stash, self.saved_tensors)
            self._give(instruction, gradients, g)

    def _scatter(self, instruction: Instruction, pullbacks: PickingPullbacks, g: Tensor, clean: bool) -> None:
        """Add a gradient to the places that were picked, each an element of the operand's buffer."""
        operand, spec = instruction.operands[0], instruction.form.specs[0]
        assert spec is not None
        if self.wants(operand):
            top, offset = self.home(operand)
            places = pullbacks.places(instruction)
            places = places + offset // spec.dtype.itemsize if offset else places
            self._buffer(top, spec).add_at(places, full(g, instruction.form.spec.shape), clean)

    def unwrite(self, instruction: Instruction, home: Any) -> None:
        """Give the gradient of what was written to the value, and clear it unless the value was added."""
        form, (before, source) = instruction.form, instruction.operands
        region, offset = form.params[0], instruction.saved[0]
        places = instruction.saved[1] + offset // form.spec.dtype.itemsize if len(instruction.saved) > 1 else None
        spec = form.specs[1]
        if spec is not None and self.wants(source):
            if places is None:
                value, clean = self._written(instruction, home)
            else:
                value, clean = indexing.index(self._buffer(home, form.spec).flattened(), (places,)), False
            self.add(*self.home(source), spec, kind_rules.onto(value, spec.shape), clean)
        if form.kind == CLEARS and before is not None:
            buffer = self._buffer(home, form.spec)
            if places is None:
                buffer.part(region, offset).fill_(-0.0)
            else:
                indexing.assign_at(buffer.flattened(), (places,), -0.0, form.op.name)

    def _written(self, instruction: Instruction, home: Any) -> tuple[Tensor, bool]:
        """Return the gradient of a part that was written, and whether -0.0 marks nothing there."""
        form, buffer = instruction.form, self.buffers[home]
        region, offset = form.params[0], instruction.saved[0]
        if form.kind == ADDS and not isinstance(buffer, GradientBuffer):  # nothing will be cleared
            whole = full(buffer, form.spec.shape) if buffer._form.spec.shape == () else buffer
            if whole._form.spec.in_order and not view_families.is_view(whole):
                return part_of(whole, region, offset), True
        return views.clone(self._buffer(home, form.spec).part(region, offset)), False

    def fold(self, instruction: Instruction, gradient: Tensor | GradientBuffer) -> None:
        """Add the buffer of a view, or of a version, to the one above; that of a view with hooks by way of these."""
        form, above = instruction.form, self.above(instruction)
        registered = self.hooks.get(instruction.slot)
        if form.kind == VIEW and registered is not None and registered.after:
            self._fold_shown(instruction, gradient, registered)
        elif not isinstance(gradient, GradientBuffer):
            self.add(above, 0, form.spec, cotangent(gradient, form.spec)[0], clean=True)
        elif gradient.flat is not None or gradient.whole is not None or gradient.picked:
            self._buffer(above, form.spec).add_flat(gradient.flattened())
        else:
            for (part, offset), value in gradient.parts.items():
                self.add(above, offset, part, value, clean=gradient.clean)

    def _fold_shown(self, instruction: Instruction, gradient: Tensor | GradientBuffer, registered: hooks.Hooks) -> None:
        """Show a view's gradient, and what it contributes to what it is a view of, to the hooks behind the view."""
        slot, spec = instruction.slot, instruction.form.specs[0]
        assert spec is not None
        self.buffers[slot] = gradient
        shown = self._read(slot, registered.spec, registered.offset)
        contribution = self._read(slot, spec, self.home(instruction.operands[0])[1])
        del self.buffers[slot]
        self._give(instruction, [contribution], shown)

    def observe(self, instruction: Instruction) -> None:
        """Pass the gradient that has arrived to hooks, and keep it if it was asked for."""
        slot = instruction.slot
        x: Any = self.watched.get(slot)
        registered = self.hooks.get(slot)
        spec, offset = (x.spec, family_offset(x) or 0) if registered is None else (registered.spec, registered.offset)
        changed = value = self._read(slot, spec, offset)
        if registered is not None:
            with np.errstate(**self.err):
                changed = registered.on_tensor(value)
        if x is not None:
            self.results.keep(slot, kind_rules.added(changed))
            if self.hooks or hooks.LEAVES:  # which could notice
                self.results.arrived(slot)
        if registered is not None and registered.before and self.works(instruction):
            with np.errstate(**self.err):
                (passed_on,) = registered.before_node([changed])
            changed = passed_on
            if passed_on is None:
                changed = constant_tensor(np.full(value.spec.shape, -0.0, value.spec.dtype))
        if changed is not value:
            self._buffer(slot, spec).part(spec, offset).copy_(changed)

    def serve(self, leaf: AccumulateGrad) -> None:
        """Hand the gradient of a leaf to the leaf's hooks."""
        with np.errstate(**self.err):
            self.results.serve(leaf, self._read(leaf, leaf.spec, 0))


def _after(known: Any, step: Any) -> Any:
    """Return a step for what a recorder makes of each instruction: one whose saved values are tensors it knows."""
    return lambda instruction: step(known(instruction))


# Derivatives between tensors in which a recorder takes part: vmap's maps them, that of a compiled call notes them.

Derivatives = list[Tensor | None]
"""A gradient for each input, or a tangent for each output; None where one does not depend on the other."""


class Derivation(NamedTuple):
    """How derivatives are computed, by ``run(outputs, inputs, weights, rows, again=False)``.

    With ``rows``, weights and results have a leading axis of that length. With ``again`` the graph is kept, since the
    derivatives will be asked for once more. ``pulls``: they are gradients, not tangents. ``create``: they can be
    differentiated; None: if outputs depend on anything but the inputs that requires grad.
    """

    run: Callable[..., Derivatives]
    pulls: bool
    create: bool | None


def takes_part(recorder: Any) -> bool:
    """Whether a recorder computes derivatives itself."""
    return hasattr(recorder, "derived")


def derived(
    derivation: Derivation, outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor], rows: int
) -> Derivatives:
    """Compute derivatives, or let the recorder do it, if it has a ``derived`` of its own."""
    recorder: Any = modes.current().recorder
    if takes_part(recorder):
        return recorder.derived(derivation, outputs, inputs, weights, rows)  # type: ignore[no-any-return]
    return derivation.run(outputs, inputs, weights, rows)
