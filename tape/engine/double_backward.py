"""Gradients of gradients: the sweep with tensors for values, and gradients at equal eigenvalues."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kernels.foundation.specs import SCALAR, GradientObserver, Seed, Spec
from kernels.kinds.form import Form
from kernels.kinds.reference_tape import Instruction, is_exposed
from kernels.kinds.routine import Unsettled, kept_values
from kernels.native.structs import ADDS, CLEARS, PULLS, PYTHON, TAPE_BITS, VIEW
from kernels.operations import decompositions
from kernels.rules.op import turned
from kernels.sweeps.reference import Sweep
from kernels.sweeps.workspace import MarkedGraph, mark
from tape.engine import graph_observers, kind_rules
from tape.engine.accumulate_grad import (
    GradientBuffer,
    accumulate,
    cotangent,
    owned,
    part_of,
    take_in,
    together,
)
from tape.engine.kind_rules import full
from tape.engine.kinds import PickingPullbacks, pullbacks_of
from tape.engine.saved_tensors import SavedTensors
from tape.engine.sweep_run import BackwardRun, leaves_of, seeds_of, starts_of
from tape.operations import indexing
from tape.recording import record, views
from tape.recording.foreign_calls import SETTLED, TensorCall, hooked
from tape.recording.record import Packed
from tape.tensors import hooks, modes, view_families
from tape.tensors.hooks import implements
from tape.tensors.tapes import Tape
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor
from tape.tensors.view_families import base_of

# ``create_graph=True``: a backward that runs on tensors, and so is recorded itself.


def gradients(roots: Sequence[Any], targets: Sequence[Tensor], weights: Sequence[Any]) -> tuple[Tensor, ...] | None:
    """Return recorded gradients of one root on this thread's tape by leaves; None where only the general way serves."""
    modes.settle()
    tape, root, weight = modes.active(), roots[0], weights[0]
    if not tape or len(roots) > 1 or type(root) is not Tensor or hooks.LEAVES or tape.hooks:
        return None
    slot, form = root._slot, root._form
    spec: Spec = form.spec
    if type(slot) is not int or slot >> TAPE_BITS != tape.number or form.kind != PULLS:
        return None
    if weight is None:
        weight = constant_tensor(1.0) if spec is SCALAR else None
    if type(weight) is not Tensor or weight._form.spec.shape != spec.shape or weight._form.spec.dtype is not spec.dtype:
        return None
    asked: Any = {x._slot: x for x in targets}
    if len(asked) < len(targets) or not all(type(key) is AccumulateGrad and key.spec.in_order for key in asked):
        return None
    with tape.reading():
        graph = mark(tape.entries, tape.number, [Seed(slot, spec, 1.0)], graph_observers.begin_of(asked, tape.number))
        before = [key for key in graph.foreign() if key >> TAPE_BITS == tape.number]
        graph.ends = {key: end for key, end in graph.ends.items() if key not in before} if before else graph.ends
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


class RecordedRun(BackwardRun):
    """One backward whose operations are recorded, and its gradients, delivered in PyTorch's order; it frees nothing."""

    def __init__(self, **options: Any) -> None:
        super().__init__(free=False, **options)
        self.leaves: dict[AccumulateGrad, Tensor] = {}
        self.stash: dict[Any, Any] = {}

    def leaf(self, leaf: Any, value: Tensor) -> None:
        """Add to the gradient of a leaf; the value is free of -0.0."""
        if leaf in self.asked:
            self.keep(leaf, value)
        elif not self.restrict:
            self.leaves[leaf] = self.leaves[leaf] + value if leaf in self.leaves else value

    def keep(self, key: Any, value: Any) -> None:
        """Add to a gradient that is looked at; the value is free of -0.0."""
        observer = self.watched[key]
        observer.gradient = value if observer.gradient is None else observer.gradient + value

    def result(self, observer: GradientObserver) -> Tensor | None:
        """Return a gradient asked for, after the hooks of a leaf; None if nothing reached it, or it has been added."""
        value: Any = observer.gradient
        leaf_hooks = hooks.existing(observer.key)
        if observer.key in self.served:
            return None if self.accumulates else value
        return leaf_hooks.on_tensor(value) if leaf_hooks and value is not None else value

    def serve(self, leaf: AccumulateGrad, value: Tensor) -> None:
        """Run the hooks of a leaf whose gradient is complete, and add it to ``.grad`` if this backward does."""
        self.served.add(leaf)
        gradient: Any = (leaf_hooks := hooks.of_leaf(leaf)).on_tensor(
            views.clone(kind_rules.added(value))
        )  # of its own: what follows may be written in place
        if leaf in self.asked:
            self.asked[leaf].gradient = gradient
        if self.accumulates:
            take_in(leaf, leaf_hooks, gradient, create=True)

    def give(self, key: Any) -> None:
        """Give a gradient to the tensors that retain it."""
        gradient: Any = self.watched[key].gradient if key in self.retained else None
        for tensor in self.retained.pop(key) if gradient is not None else ():
            accumulate(tensor, gradient, create=True)

    def deliver(self) -> None:
        """Add the gradients found to ``.grad`` of leaves, and of tensors that retain theirs."""
        for key in list(self.retained):
            self.give(key)
        for leaf, value in self.leaves.items():
            if hooks.existing(leaf) is None:
                accumulate(leaf, views.clone(value), create=True)
            else:
                self.serve(leaf, value)

    def _reach_leaf(self, seed: Seed) -> bool:
        """Take in a seed, a tensor, at a leaf."""
        seed.value = _unshared(seed.value)
        if type(seed.slot) is int:
            return False
        self.leaf(seed.slot, kind_rules.added(seed.value))
        return True

    def _sweep(self, pending: list[Seed]) -> None:
        graph_observers.on_all_tapes(pending, self._sweep_graph, self.asked if self.restrict else ())

    def _sweep_graph(self, seeds: list[Seed], graph: MarkedGraph, tapes: Collection[Tape]) -> None:
        sweep, self.swept = RecordedSweep(self, graph, tapes, {seed.slot for seed in seeds}), lambda: graph
        for seed in seeds:
            sweep.add(seed.slot, seed.offset or 0, seed.spec, seed.value, clean=True)
        for leaf, value in sweep.gradients():
            self.leaf(leaf, value)


def swept(
    roots: Sequence[Tensor], weights: Sequence[Any], targets: Sequence[Tensor] | None, *, create: bool,
    free: bool = False, batch: int = 0, **options: Any,
) -> tuple[Any, list[GradientObserver]]:  # fmt: skip
    """Sweep back from the roots; return the run, and the observer of each target in it. ``options`` are a run's.

    Without targets the gradients of all leaves are computed.
    """
    restrict = targets is not None
    if create:
        run: BackwardRun = RecordedRun(restrict=restrict, **options)
    else:
        run = BackwardRun(free=free, restrict=restrict, batch=batch, **options)
    observers = run.observe(targets or ())
    run.sweep(starts_of(roots, weights) if create else seeds_of(roots, weights, batch))
    return run, observers


class RecordedSweep(Sweep):
    """A sweep whose gradients are tensors.

    A buffer is a plain tensor where every contribution covered the whole family in order, without -0.0 as the mark of
    no contribution: the usual case. Otherwise it is a :class:`GradientBuffer`.
    """

    def __init__(self, results: RecordedRun, graph: MarkedGraph, tapes: Collection[Tape], roots: set[Any]) -> None:
        self.results, self.anomaly = results, graph_observers.current()
        self.hooks = {slot: registered for tape in tapes for slot, registered in tape.hooks.copy().items()}
        for tape in tapes:
            results.retain(tape)
        observed = {*results.watched, *self.hooks}
        super().__init__(graph, observed, roots, results.asked if results.restrict else None)
        self.saved_tensors = SavedTensors(graph.marked)
        self.err: Any = np.geterr()

    def gradients(self) -> list[tuple[Any, Tensor]]:
        """Sweep; return the gradients of ends. Native sweeps do not warn of overflows and the like, either."""
        step = self.step if self.anomaly is None else graph_observers.induced(self.step)
        if (known := getattr(modes.current().recorder, "with_tensors", None)) is not None:
            step = _after(known, step)
        with np.errstate(all="ignore"):
            self.run(self._hooked() if hooks.LEAVES else (), step)
            ends = [end for end in self.graph.ends if end in self.buffers and end not in self.results.served]
            return [(end, self._end(end)) for end in ends]

    def _hooked(self) -> set[int]:
        """Return the ids of the leaves with hooks whose gradient this sweep completes: roots get more at the end."""
        results = self.results
        early = [*results.leaves, *(key for key, o in results.asked.items() if o.gradient is not None)]
        leaves = [leaf for leaf in self.graph.ends if id(leaf) in hooks.LEAVES and leaf not in early]
        return {id(leaf) for leaf in leaves if leaf in results.asked or not results.restrict}

    def _end(self, key: Any) -> Tensor:
        """Return the gradient of a leaf, or a slot that is an end, free of -0.0, in memory that it does not share."""
        spec = self.graph.ends[key] if type(key) is int else key.spec
        value, _ = cotangent(self.buffers[key], spec, ends=True)
        value = full(kind_rules.added(value), spec.shape)
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
        observer, registered = self.results.watched.get(slot), self.hooks.get(slot)
        place: Any = observer if registered is None else registered
        spec, offset = place.spec, place.offset
        changed = value = self._read(slot, spec, offset)
        if registered is not None:
            with np.errstate(**self.err):
                changed = registered.on_tensor(value)
        if observer is not None:
            self.results.keep(slot, kind_rules.added(changed))
            if self.hooks or hooks.LEAVES:  # which could notice
                self.results.give(slot)
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


# Gradients at equal eigenvalues and singular values, where cotangents alone do not tell them.
#
# There the vectors are any basis of theirs. With K(d) for how a function changes as two of them turn towards each
# other, d being how far their values are apart, the gradient has K(d) / d, and K(0) is 0 if the function is of the
# matrix at all. The limit K'(0) is a derivative of cotangents, so it needs a recorded backward (Daleckii and Krein's
# divided differences for functions of matrices, Lewis and Sendov's Hessian for those of eigenvalues, are instances).
# Sweeps that are not recorded ask for one where they come to such an instruction, and are run again.

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")
_ORDERS, _SHORT = 3, 2000
"""How often a function's change along turns of equal vectors is derived; once after more instructions than that."""
_UNITS = 1000
"""How many units of rounding may be left of what vanishes; ten times more each time that it is derived."""

_FIRST: ContextVar[Any] = ContextVar("tape_first", default=None)
"""The slot of an instruction whose gradient nobody will derive: first derivatives of cotangents are enough there."""
_WITHIN: ContextVar[bool] = ContextVar("tape_within", default=False)
"""Whether limits are being computed: those of other instructions, on the way, would need ever higher derivatives."""


def settled(
    sweep: Callable[[], Result], roots: Sequence[Tensor], weights: Sequence[Any], batch: int = 0, known: Any = None
) -> Result:
    """Run a sweep from these roots; again, where it needs derivatives of cotangents, with what they are."""
    try:
        if not known:
            return sweep()
    except Unsettled as raised:
        known = {raised.instruction.slot: _by_recording(raised.instruction, roots, weights, batch)}
    while True:
        token = SETTLED.set(known)
        try:
            return sweep()
        except Unsettled as raised:
            instruction = raised.instruction
        finally:
            SETTLED.reset(token)
        known = {**known, instruction.slot: _by_recording(instruction, roots, weights, batch)}


def _by_recording(instruction: Any, roots: Sequence[Tensor], weights: Sequence[Any], batch: int) -> Array | None:
    """Return the gradient of an instruction's operand by a recorded sweep; of a batch of cotangents row by row."""
    if batch:
        rows = [[None if w is None else w[k] for w in weights] for k in range(batch)]
        gradients = [_by_recording(instruction, roots, row, 0) for row in rows]
        return None if any(x is None for x in gradients) else np.stack(gradients)  # type: ignore[arg-type]
    tensors = SavedTensors([instruction])
    y = tensors.tensor(instruction.slot, kept_values(instruction)["y"], instruction.form.spec)
    token = _FIRST.set(y._slot)
    try:
        with modes.under(modes.current()._replace(grad=True, recorder=None, pack=None, anomaly=None)):
            gradient = _gradient(roots, weights, y)
            (result,) = instruction.saved[0].pull_tensors(instruction, gradient, {}, tensors)
    except (RuntimeError, NotImplementedError):  # what cannot be differentiated twice
        return None
    finally:
        _FIRST.reset(token)
    return as_array(result)


def _gradient(roots: Sequence[Tensor], weights: Sequence[Any], y: Tensor, *, create: bool = True) -> Tensor:
    """Return the gradient by an instruction's result, which can be derived again if ``create``."""
    linked = [(root, weight) for root, weight in zip(roots, weights, strict=True) if root._slot is not None]
    if linked:
        run, key = _stopped_at(y, *zip(*linked, strict=True), create=create, asked=(y,))
        if (gradient := run.result(*key)) is not None:
            return gradient  # type: ignore[no-any-return]
    return constant_tensor(np.zeros(y.spec.shape, y.spec.dtype))


def _stopped_at(y: Tensor, roots: Any, weights: Any, *, create: bool, asked: Sequence[Tensor]) -> tuple[Any, list[Any]]:
    """Sweep, but not on through the instruction of y; free nothing."""
    nothing = np.zeros(y._form.specs[0].shape, y.spec.dtype)  # type: ignore[union-attr]
    run = partial(swept, roots, weights, asked or None, create=create)
    return settled(run, roots, weights, known={**SETTLED.get(), y._slot: nothing})


@implements(decompositions.turned_over_gaps)
def _turned_over_gaps(x: Tensor, w: Tensor, touched: Any, g_w: Tensor, moves: Any) -> Any:
    """Return the quotients, and their limits where they are known."""
    plain = decompositions.over_gaps(decompositions.odd(x), w, touched)
    pairs, recorder = decompositions.near(as_array(w), wide=True) & np.asarray(touched), modes.current().recorder
    if recorder is not None and recorder.has_guards:
        bool(np.any(decompositions.near(w, wide=True) & touched))
    if not pairs.any() or not isinstance(base_of(w)._form, Form):
        return plain
    if recorder is not None:  # whose replays have other values
        record.note_unrecorded(w, "a derivative at equal eigenvalues or singular values")
        return plain
    if hooked() or _WITHIN.get():
        return plain
    token = _WITHIN.set(True)
    create = _FIRST.get() != base_of(w)._slot
    try:
        with modes.under(modes.current()._replace(grad=True, pack=None, anomaly=None)):
            limits = _Limits(x, w, g_w, moves, create)
            fits = pairs & limits.fit()
            return np.where(fits, limits.to_second_order(fits) if create else limits.first, plain)
    except (RuntimeError, NotImplementedError, Unsettled):  # what cannot be differentiated that often
        return plain
    finally:
        _WITHIN.reset(token)


@implements(decompositions.independent)
def _independent(w: Tensor, touched: Any, g_w: Tensor, made: Callable[[], Tensor]) -> Tensor | None:
    """Return the operand, to differentiate by it, where cotangents of the values alone depend on none of its leaves."""
    y = base_of(w)
    if modes.current().recorder is not None or not isinstance(y._form, Form) or np.any(np.asarray(touched)):
        return None
    instruction = record.locate(y._slot) if decompositions.near(as_array(w), wide=True).any() else None
    if instruction is None or not leaves_of((g_w,)).isdisjoint(leaves_of((y,))):
        return None
    with modes.under(modes.current()._replace(grad=False)):
        a = as_array(made())
    spec: Any = instruction.form.specs[0]
    return SavedTensors([instruction]).tensor(instruction.operands[0], a, spec)


class _Limits:
    """The limits of K_ij / (w_j - w_i) as these values part, and whether they are there."""

    def __init__(self, x: Tensor, w: Tensor, g_w: Tensor, moves: Callable[[Any], Any], create: bool) -> None:
        self.x, self.w, self.g_w, self.moves, self.y = x, w, g_w, moves, base_of(w)
        turns = [self._moved(g_w[..., k], create)[1] for k in range(w.shape[-1])]
        columns = [decompositions.odd(x)[..., :, k] for k, x in enumerate(turns)]
        self.column = np.stack(columns, axis=-1)
        self.first = (self.column + turned(self.column)) * 0.5

    def _moved(self, z: Tensor, create: bool) -> Any:
        return self.moves(_gradient((z.sum(),), (None,), self.y, create=create))

    def fit(self) -> Any:
        """Return for which pairs the limits are the quotients, as far as rounding lets one say that."""
        x, w, first = as_array(self.x), as_array(self.w), as_array(self.first)
        gaps = w[..., None, :] - w[..., :, None]
        scale = np.max(np.abs(w), axis=-1)
        scale = np.where(scale == 0, 1.0, scale)
        bound = np.sum(np.abs(x) + np.abs(first) * scale[..., None, None], axis=(-2, -1))
        bound = bound + np.sum(np.abs(as_array(self.g_w)), axis=-1) * scale
        units = _UNITS * np.finfo(w.dtype).eps
        close = np.abs(decompositions.odd(x) - gaps * first) <= units * bound[..., None, None]
        equal = decompositions.near(w)
        return close & (~equal | self._invariant(equal, scale, bound, units)[..., None, None])

    def _invariant(self, equal: Array, scale: Array, bound: Array, units: float) -> Array:
        """Return whether nothing changes as vectors of equal values turn, whatever the other operands."""
        numbers = np.random.default_rng(0).normal(size=equal.shape)
        turn = np.where(equal, numbers - turned(numbers), 0.0).astype(self.x.spec.dtype)
        z = start = (self.x * turn).sum((-2, -1))
        good, short = np.full(scale.shape, True), start._slot is not None and start._slot < self.y._slot + _SHORT
        for order in range(_ORDERS):
            again = short and order < _ORDERS - 1
            by_w, x = self._moved(z, again)
            bound = np.maximum(bound, np.sum(np.abs(as_array(x)), axis=(-2, -1)))
            bound = np.maximum(bound, np.sum(np.abs(as_array(by_w)), axis=-1) * scale)
            good &= np.abs(as_array(z)) <= units * 10**order * bound
            if order == 0:
                rest = as_array(by_w) + 2.0 * np.sum(turn * as_array(self.first), axis=-1)
                good &= np.max(np.abs(rest), axis=-1) * scale <= units * bound
            z = (x * turn).sum((-2, -1))
            if not again:
                break
        good &= np.abs(as_array(z)) <= units * 10**_ORDERS * bound
        return good & self._alone(start.sum(), scale.max(), units * bound.max())

    def _alone(self, z: Tensor, scale: float, bound: float) -> bool:
        """Whether what changes as vectors turn depends on nothing but the values and the vectors."""
        if z._slot is None:
            return True
        run, _ = _stopped_at(self.y, (z,), (None,), create=False, asked=())
        return all(np.max(np.abs(g), initial=0.0) * (_size(leaf) or scale) <= bound for leaf, g in run.leaves)

    def to_second_order(self, pairs: Array) -> Any:
        """Return the limits with their derivatives along the gaps d: K'(d) - K''(d) d / 2; third ones are nan."""
        second: Any = 0.0
        for *at, i, j in np.argwhere(np.triu(pairs)):
            by_w = self._moved(self.first[(*at, i, j)], True)[0][tuple(at)]
            place = np.zeros(pairs.shape, self.x.spec.dtype)
            place[(*at, i, j)], place[(*at, j, i)] = 0.25, -0.25
            second = second + (by_w[j] - by_w[i]) * place
        gaps = self.w[..., None, :] - self.w[..., :, None]
        nothing = abs(gaps - gaps.detach())
        return self.first - gaps * second + nothing**1.5


def _size(leaf: AccumulateGrad) -> float:
    x = leaf.owner()
    return 0.0 if x is None else float(np.max(np.abs(as_array(x)), initial=0.0))
