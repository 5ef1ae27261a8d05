"""Recorded calls of compiled functions: the recorder, and what a call did.

A recorder never raises: what it cannot follow is noted, with the line, and the call goes on as in dynamic mode.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any
from weakref import ref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.foundation.specs import Spec, dense, fills, intern_spec, spec_of
from kernels.foundation.tables import cached_property
from kernels.kinds.reference_tape import Instruction, root_of
from kernels.kinds.routine import FUNCTION, Callback, Routine
from kernels.native.c_api import NATIVE
from kernels.native.memory import where
from kernels.native.structs import StepWords
from kernels.operations.views import GUARD
from kernels.programs.program import ProgramError, ProgramNode, Recipe
from kernels.programs.recording import with_iterations
from kernels.rules.loop_printer import DTYPES
from kernels.rules.scalar_loops import NodeRef
from tape.compiled.body_maker import Rolled, rolled
from tape.compiled.call_key import kept, owned
from tape.compiled.function_calls import RAISED, Attempt, FunctionCall, Inside, KnownTensors, comparisons_of, number_of
from tape.compiled.loop_spans import Heads, RecordedTrace, Visit, unrolled
from tape.engine import custom_function
from tape.engine.double_backward import Derivation, Derivatives
from tape.random import Draw
from tape.recording import attributes
from tape.tensors import modes
from tape.tensors.pytrees import Structure, flattened
from tape.tensors.recorder import CLONE, ProgramRecorder, caller
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array, constant_tensor, scalar_or_array
from tape.tensors.view_families import base_of, counter_of, is_view
from tape.transforms import value_and_grad
from tape.transforms.points import Tensors, needs_graph
from tape.watching import frame_events
from tape.watching.loop_numbers import LoopNumber, kept_views
from tape.watching.python_loops import HeadVisit, HeadWatch, Unfit
from tape.watching.snapshots import ArrayContent
from tape.watching.watched import Finder

REFUSED = (ProgramError, NotImplementedError)
_UNROLLED = "a gradient is taken through its iterations"
_MOST_STEPS = 1 << 17  # steps that a Jacobian may have


def _until_stopped(method: Callable[..., None]) -> Callable[..., None]:
    """Return a recorder's method that does nothing once it has stopped, and stops it where it refuses."""

    def notified(self: CallRecorder, *args: Any) -> None:
        if not self.stopped:
            try:
                method(self, *args)
            except REFUSED as error:
                self.stop(str(error))

    return notified


@dataclass(slots=True)
class Escape:
    """A value that left for Python: where, what it was, and the tensor, which may share its memory with NumPy."""

    tensor: Tensor | None
    value: bytes
    line: str


class KeptViews(Unfit):
    """A part by an index tensor must be a view, which a copy stands for."""


class CallRecorder(ProgramRecorder):
    """Records a call. ``stopped`` says why, and where, no program can be made of it."""

    has_guards = True

    def __init__(self, *, lines: bool = False, repeats: bool = False, views: bool = False) -> None:
        super().__init__(lines=lines, repeats=repeats)
        self.stopped, self.views, self.picked = "", views, False
        """``views``: parts by index tensors of no dims are views, by numbers; ``picked``: some are copies instead."""
        self.guards: list[Escape] = []
        self.caught, self.catches = "", False
        """Which error the call went on behind that programs do not look for; whether there are guards of errors."""
        self.outer: list[Tensor | Draw] = []
        """Tensors from outside that require grad, and random numbers: further arguments, in the order of their use."""
        self.parts, self.draws, self.kept = list[Tensor](), list[int](), list[int]()
        """Views of these from outside; how many words there were when numbers were drawn, or Python kept something."""
        self.sources: dict[int, Any] = {}
        """What was read from outside, by its constant's node: an array, or a tensor that holds a number."""
        self.readers: dict[int, Tensor] = {}
        """The tensor through which it was read, which may be given another array later."""
        self.begun: list[ArrayContent] = []  # what arrays from outside held when the call began
        self.refilled: list[Array] = []
        """Arrays that were read after the call itself had NumPy write to them: constants, not read from outside."""
        self.taken_over: dict[int, Array] = {}
        self.replaced: list[Tensor] = []
        """What the call wrote to: memory, perhaps from outside, by the step that copies it; tensors given others."""
        self.rounds = False
        """Whether a backward was followed, whose gradients in turn may sum in another order than in dynamic mode."""
        self._deriving = 0  # within how many gradients another one is taken
        self.unrolled: set[int] = set()  # the entries of loops through whose iterations a gradient was taken
        self.visits: list[Visit] = []
        self.streams = sys.stdout, sys.stderr  # which others may be printed to while the call runs

    @cached_property
    def tensors(self) -> KnownTensors:
        """What is known of the tensors that it holds, for gradients that are taken inside."""
        return KnownTensors(self.tables, self.recipe)

    def stop(self, reason: str) -> None:
        """Note why no program can be made of this call; the first reason counts."""
        self.stopped = self.stopped or f"{reason} at {caller()}"

    _notify = _until_stopped(ProgramRecorder._notify)
    overwrites = _until_stopped(ProgramRecorder.overwrites)
    wrote = _until_stopped(ProgramRecorder.wrote)
    _replaces = _until_stopped(ProgramRecorder.replaces)

    def replaces(self, x: Tensor, other: Tensor) -> None:
        """Prepare for an assignment to ``.data``."""
        self.replaced.append(x)
        self._replaces(x, other)

    def is_argument(self, x: Tensor) -> bool:
        """Return whether what is written to a tensor goes into its memory; leaves are refused as in dynamic mode."""
        return type(x._slot) is not AccumulateGrad and super().is_argument(x)

    def becomes_view(self, x: Tensor, name: str) -> None:
        """Note that an argument is given another shape."""
        if super().is_argument(x):
            self.stop(f"{name} of an argument")

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Identify a tensor that has taken over another's value with that one."""
        if self.node_of(x) is None:
            self.replaced.append(x)
        super().taken(x, value)

    def let_go(self, since: tuple[int, int]) -> None:
        """Hold no longer what nobody else does of the tensors that are held since then: what they held is constant."""
        sources = [(n, as_array(x), ref(x)) for n, x in self.sources.items() if isinstance(x, Tensor)]
        readers, replaced = [(n, ref(x)) for n, x in self.readers.items()], list(map(ref, self.replaced))
        self.sources.update((node, array) for node, array, _ in sources)
        self.readers.clear()
        self.replaced.clear()
        super().let_go(since)
        self.sources.update((node, x()) for node, _, x in sources if x() is not None)
        self.readers.update((node, living) for node, x in readers if (living := x()) is not None)
        self.replaced += [living for x in replaced if (living := x()) is not None]

    def note_unrecorded(self, tensor: Tensor | None, what: str) -> None:
        """Note that the call does something that programs do not hold."""
        del tensor
        self.stop(what)

    def follows_indices(self, indices: Tensors, *, adds: bool) -> bool:
        """Whether index tensors are operands: of what they pick, and of what is added there; elsewhere they guard."""
        self.picked |= (one := any(type(index) is LoopNumber or self._varies(index) for index in indices))
        return adds or one

    def _varies(self, index: Tensor) -> bool:
        node = None if self.views or index.spec.shape else self.node_of(index)
        return node is not None and self.recipe.nodes[node].constant is None

    def note_drawn(self, tensor: Tensor, draw: Draw) -> None:
        """Let random numbers be an argument, drawn for each replay; the tensor is a copy, which may be written."""
        if self.stopped:
            return
        source = self.argument(constant_tensor(scalar_or_array(np.array(tensor._value, order="K"))))
        self.outer.append(draw)
        self.draws.append(self.recipe.steps.head[StepWords.used])
        node = self._cloned(NodeRef(source), tensor.spec)
        self.know(tensor, node)
        self.held.append(tensor)
        if type(tensor._value) is not float and tensor.spec.size:
            self._take_memory(*byte_bounds(as_array(tensor)), node)

    def function_called(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], positional: int) -> Any:
        """Make a call of an ``autograd.Function``, and record it as a call of Python."""
        if self.stopped:
            return custom_function.called(cls, args, kwargs, positional)
        operands = [x for x in args if isinstance(x, Tensor)]
        refs = self._references(operands)
        try:
            result = custom_function.called(cls, args, kwargs, positional, Inside(self._is_made, self.stop, args))
        except Exception:
            self._went_on(f"{cls.__name__}.forward")
            raise
        if not self.stopped:
            outputs = list(result) if isinstance(result, (tuple, list)) else [result]
            try:
                call = FunctionCall(cls, args, kwargs, positional, outputs)
                if any(call.graded):
                    self.kept.append(self.recipe.steps.head[StepWords.used])
                self._called(call, operands, refs, outputs)
            except REFUSED as error:
                self.stop(str(error))
        return result

    def derived(
        self, derivation: Derivation, outputs: Tensors, inputs: Tensors, weights: Tensors, rows: int
    ) -> Derivatives:
        """Take a gradient, and record the operations that compute it: its backward as one that creates a graph."""
        if rows and rows * (len(self.recipe.steps) - self.tensors.first(inputs)) > _MOST_STEPS:
            self.stop(f"a Jacobian of {rows} rows")
        if not self.stopped:
            self.tables.keep_all()
            self.rounds, self.tensors.earliest = True, len(self.recipe.steps)
            create = needs_graph(outputs, inputs, weights) if derivation.create is None else derivation.create
            self._deriving += 1
            try:
                gradients = derivation.run(outputs, inputs, weights, rows, create=True, again=True)
            except REFUSED as error:
                self.stop(str(error))
            except Exception:
                self._went_on("a gradient")
                raise
            finally:
                self._deriving -= 1
            self._keep_unrolled(self.tensors.earliest)
            if not self.stopped:
                return gradients if create else [g if g is None else attributes.detach(g) for g in gradients]
        if self._deriving:  # what it is part of is taken anew, without a recorder
            raise NotImplementedError(self.stopped)
        with modes.under(modes.current()._replace(recorder=None)):
            return derivation.run(outputs, inputs, weights, rows)

    def _keep_unrolled(self, earliest: int) -> None:
        """Keep loops Python that were run through since a step: the gradient goes back as many iterations."""
        starts = self.recipe.steps.starts
        begin = starts[earliest] if earliest < len(starts) else self.recipe.steps.head[StepWords.used]
        later = takewhile(lambda visit: visit.at > begin, reversed(self.visits))
        entries = {visit.entry for visit in later} - self.unrolled
        self.unrolled |= entries
        for visit in self.visits if entries else ():
            visit.reason = visit.reason or (_UNROLLED if visit.entry in self.unrolled else "")

    def with_tensors(self, instruction: Instruction) -> Instruction:
        """Return an instruction with tensors, known here, for what it saved; NotImplementedError for unknown ones."""
        saved = self.tensors.saved_by(instruction)
        if saved is None:
            self.tables.keep_all()
            self.tables.needs_more()
            raise NotImplementedError(f"the gradient of {instruction.form.name or instruction.form.op.name}")
        return replace(instruction, saved=saved)

    def negative_zeros(self, value: Tensor) -> Any:
        """Return where a cotangent has -0.0, the mark of what was not contributed to."""
        return (value == 0) & value.signbit()

    def _references(self, operands: Tensors) -> list[NodeRef]:
        try:
            return [self.reference(x) for x in operands]
        except REFUSED as error:
            self.stop(str(error))
            return []

    def _is_made(self, x: Tensor) -> bool:
        """Whether a tensor is an argument, or was made by the call."""
        node = self.node_of(x)
        node = self.node_of(base_of(x)) if node is None else node
        return node is not None and self.recipe.nodes[self.recipe.base_of(node)].constant is None

    def note_raised(self, op: Any, operands: tuple[Any, ...], params: dict[str, Any], error: Exception) -> None:
        """Guard which error a routine raises, since the call may go on; others make the recording one of this call."""
        if not isinstance(op, Routine):
            self._went_on(op.name)
        refs = [] if self.stopped or self.caught else self._references(operands)
        if refs and not self.stopped:
            number, self.catches = constant_tensor(number_of(error)), True
            self._called(Attempt(op, params), operands, refs, [number], RAISED)
            self.note_escape(number)

    def _went_on(self, name: str) -> None:
        self.caught = self.caught or f"{name} raised an error, which the function caught, at {caller()}"

    def _called(
        self, call: Any, operands: Tensors, refs: Sequence[NodeRef], outputs: Tensors, op: Callback = FUNCTION
    ) -> None:
        self.mark_line()
        nodes, graded = self.recipe.nodes, [x._slot is not None for x in outputs]
        wants = [x._slot is not None and self.recipe.wants(r.node) for x, r in zip(operands, refs, strict=False)]
        specs = tuple([x.spec if want else None for x, want in zip(operands, wants, strict=False)])
        wanted = any(wants) and any(graded)
        if len(outputs) == 1:
            spec = outputs[0].spec
            result = self._add(outputs[0], ProgramNode(spec, differentiable=wanted))
        else:
            spec = spec_of(np.empty(sum(x.spec.size for x in outputs), outputs[0].spec.dtype))
            nodes.append(ProgramNode(spec, differentiable=wanted))
            result = len(nodes) - 1
        form = FUNCTION.form(specs, spec, tuple(wants), (call,)) if wanted else None
        self._step(op, refs, result, (call,), form)
        self.tables.nodes_added(outputs[0]._form if wanted and len(outputs) == 1 else None)
        if len(outputs) > 1:
            self._apart(result, outputs)

    def _apart(self, packed: int, outputs: Tensors) -> None:
        """Copy each of several results from where they stand end to end."""
        nodes, offset = self.recipe.nodes, 0
        for x in outputs:
            spec, graded = x.spec, x._slot is not None and nodes[packed].differentiable
            strides = dense(spec.shape, spec.dtype.itemsize)
            part = intern_spec(spec.shape, strides, spec.dtype, strides, nodes[packed].spec.size)
            nodes.append(ProgramNode(part, packed, offset, offset, family=packed if graded else None))
            source = NodeRef(len(nodes) - 1)
            result = self._add(x, ProgramNode(spec, differentiable=graded))
            self._step(CLONE, (source,), result, (), CLONE.form((part,), spec) if graded else None)
            self.tables.nodes_added(x._form if graded else None)
            offset += spec.bytes

    def note_number(self, tensor: Tensor) -> None:
        """Guard a number; where the user's code just compares it, what that gives."""
        flags = None if self.stopped else comparisons_of(tensor, self.streams)
        for each in [tensor] if flags is None else flags:
            self.note_escape(each)

    def note_escape(self, tensor: Tensor) -> None:
        """Guard a value that leaves for Python: a replay stops where it differs."""
        if self.stopped or not self._depends(tensor):
            return
        try:
            at = self.reference(tensor).node
        except REFUSED as error:
            self.stop(str(error))
            return
        expected, line, nodes = np.array(tensor._value, order="C"), caller(), self.recipe.nodes
        nodes.append(ProgramNode(spec_of(expected), constant=expected))
        number = len(nodes) - 1
        kind = self.tables.kind(GUARD, None, (line,), (nodes[at].spec, spec_of(expected), nodes[at].spec))
        self.recipe.steps.add(kind, at, [at, number])
        self.tables.nodes_added()
        self.guards.append(Escape(tensor, expected.tobytes(), line))

    def visited(self, visit: HeadVisit) -> bool:
        """Note a visit of the head of a loop; False if further ones of this entry do not count.

        So it is within a mapped function: what is recorded is what is done for all examples, behind it.
        """
        if self.stopped or modes.current().recorder is not self:
            return False
        try:
            nodes = [self.reference(x).node for x in visit.state.tensors]
            count = None if visit.count is None else self.reference(visit.count).node
        except REFUSED:
            return False
        counters = [counter_of(x) for x in visit.state.tensors]
        self.visits.append(
            Visit(visit, len(self.visits), self.recipe.steps.head[StepWords.used], nodes, counters, count)
        )
        self.visits[-1].reason = visit.reason or (_UNROLLED if visit.entry in self.unrolled else "")
        return not visit.reason

    def _depends(self, x: Any) -> bool:
        """All tensors count: what the call reads from outside is read anew at each replay."""
        return isinstance(x, Tensor)

    def _is_part(self, x: Tensor) -> bool:
        if is_part := super()._is_part(x):
            self.parts += [x] * any(x._base is y for y in self.outer)
        return is_part

    def _constant(self, x: Tensor) -> int:
        if x._slot is not None:
            outer = base_of(x) if is_view(x) else x
            if outer._slot is None or not fills(as_array(outer)):
                raise NotImplementedError("a tensor from outside that requires grad is part of other memory")
            self.argument(outer)
            self.outer.append(outer)
            return int(super().reference(x).node)
        if type(x._value) is float:
            return self._number(x)
        array = as_array(x)
        node = self._of_array(array, x.spec)
        if not any(array is other for other in self.refilled):
            self.readers.setdefault(node, x)
        return node

    def _number(self, x: Tensor) -> int:
        key, value = (id(x), x.spec), np.array(x._value)
        known = self._known(key, value)
        if known is None:
            self.held.append(x)
            known = self.copies[key] = self._new(x.spec, value, x)
        return known

    def _known(self, key: Any, value: Array) -> int | None:
        """Return the node of a copy that holds a value; None if there is none."""
        known = self.copies.get(key)
        return known if known is not None and self._copied(known).tobytes() == value.tobytes() else None

    def _of_array(self, array: Array, spec: Spec) -> int:
        key = where(array), spec
        known = self._known(key, array)
        if known is not None:
            return known
        self._look(array)
        self.held.append(array)  # its address stays its own
        if fills(array) or not array.size:
            node = self._new(spec, array.copy(order="K"), array)
        else:
            root = root_of(array)
            if not fills(root):
                raise NotImplementedError("an array with gaps, of memory with gaps")
            try:
                whole = spec_of(root)
            except TypeError:  # a column of a table, or the real part of complex numbers
                raise NotImplementedError(f"an array with gaps, of memory of dtype {root.dtype}") from None
            above = self._of_array(root, whole)
            self.recipe.nodes.append(ProgramNode(spec, base=above, offset=where(array) - where(root)))
            node = len(self.recipe.nodes) - 1
        self.copies[key] = node
        if (copy := self.recipe.nodes[node].constant) is not None:
            self.tables.uses(array, spec, node, copy)
        return node

    def _new(self, spec: Spec, value: Array, source: Any) -> int:
        self.recipe.nodes.append(ProgramNode(spec, constant=value))
        node = len(self.recipe.nodes) - 1
        if isinstance(source, np.ndarray) and any(
            np.may_share_memory(source, content.array) and content.changed() for content in self.begun
        ):
            self.refilled.append(source)
        else:
            self.sources[node] = source
        return node

    def _owned(self, x: Tensor) -> int | None:
        node = super()._owned(x)
        if node is not None and self.recipe.nodes[self.recipe.base_of(node)].argument:
            raise NotImplementedError("what is read from outside has the memory of an argument")
        return node

    def _take_over(self, x: Tensor) -> None:
        self.taken_over[len(self.recipe.steps)] = root_of(as_array(x))
        super()._take_over(x)

    def _begun(self, kept: Array, x: Tensor) -> int:
        spec = spec_of(kept)
        known = self._known((where(kept), spec) if (where(kept), spec) in self.copies else (id(x), spec), kept)
        # what a loop began with, perhaps
        return super()._begun(kept, x) if known is None else self._cloned(NodeRef(known), spec)


(_ALONE,) = map(sys.getrefcount, [object()])  # what is counted of an object that a list alone holds


class Recording:
    """One call: the recipe, its guards, what it read from outside, its results, and why it is ``stopped``, if so."""

    def __init__(self, recorder: CallRecorder, inputs: int) -> None:
        self.recipe: Recipe = recorder.recipe
        self.inputs = inputs
        self.guards, self.stopped = recorder.guards, recorder.stopped
        self.caught, self.catches = recorder.caught, recorder.catches
        self.outer, self.sources, self.readers = recorder.outer, recorder.sources, recorder.readers
        self.draws, self.kept_calls, self.refilled = recorder.draws, recorder.kept, recorder.refilled
        self.rounds = recorder.rounds or not NATIVE
        """Whether gradients may round otherwise than in dynamic mode, as plain sweeps do."""
        self.original_sources, self.original_readers = self.sources, self.readers
        """Sources as recorded, by the nodes of the unrolled recipe."""
        self.path = tuple([guard.value for guard in self.guards])
        """The values that left for Python, in order: which way the call went; a loop is one mark."""
        self.is_sure = recorder.bounds >= len(self.guards)  # whether the next call is to go the same way
        self.guard_positions = list(range(len(self.path)))
        self.rolled: Rolled | None = None
        """What the recipe is of which loops were found: that has these without their bodies."""
        self.unrolled = ""  # why a loop stays Python
        self.is_trial = False  # whether the next recording has numbers of a loop as tensors, numbers in this one
        self.numbers = frozenset[Any]()  # the loops whose numbers were tensors
        self.taken_over, self.written_outside = recorder.taken_over, [*recorder.taken_over.values(), *recorder.replaced]
        self.template: Structure
        self.kept: dict[int, Any] = {}
        self.discarded = False  # whether it tells of this call alone
        self.lost = recorder.tables.lost
        """Whether it has not kept iterations or results that were needed: it tells nothing."""
        self.drawn = self.impure = ""
        """Why the call cannot be replayed, if it drew random numbers of NumPy's or Python's; why no call can be."""

    def stop(self, reason: str) -> None:
        """Note why no program can be made of this call; the first reason counts."""
        self.stopped = self.stopped or reason

    def keep_all(self) -> None:
        """Take in the iterations that were not kept."""
        for skipped in reversed(self.recipe.skipped):
            recipe, steps, node = with_iterations(self.recipe, skipped), skipped.count * skipped.steps, skipped.later
            begin, end = len(self.recipe.steps.words), len(recipe.steps.words)
            first = self.recipe.steps.starts[skipped.step] if skipped.step < len(self.recipe.steps) else begin
            self.draws, self.kept_calls = (
                [at + end - begin if at >= first else at for at in places] for places in (self.draws, self.kept_calls)
            )
            self.sources, self.readers = ({node(k): x for k, x in d.items()} for d in (self.sources, self.readers))
            self.taken_over = {k + steps * (k >= skipped.step): x for k, x in self.taken_over.items()}
            self.recipe = recipe
        self.recipe.skipped = []
        self.original_sources, self.original_readers = self.sources, self.readers

    def writes(self, values: Sequence[Any]) -> bool:
        """Whether the call wrote to an argument that is no number."""
        arguments = zip(self.recipe.arguments, values, strict=False)
        return any(node in self.recipe.written and isinstance(x, (np.ndarray, Tensor)) for node, x in arguments)

    def check_written(self, values: Sequence[Any]) -> None:
        """Discard the recording where an argument was written that has memory of another."""
        arguments = self.recipe.arguments[: self.inputs]
        written = [i for i, node in enumerate(arguments) if node in self.recipe.written]
        try:
            if written:
                value_and_grad.check_written([f"argument {i}" for i in range(len(values))], values, written)
        except ProgramError:
            self.discarded = True

    def slim(self, live: dict[int, Any]) -> None:
        """Keep only what a later recording is compared with; what is read by reference need not be copied."""
        self.readers, self.taken_over, self.written_outside = {}, {}, []
        for guard in self.guards:
            guard.tensor = None
        for node, source in live.items():
            if isinstance(source, np.ndarray):
                self.recipe.nodes[node] = replace(self.recipe.nodes[node], constant=source)


def record_call(
    function: Callable[[list[Tensor]], Any],
    inputs: list[Tensor],
    *,
    earlier: Sequence[Recording],
    finder: Finder,
    contents: Iterable[ArrayContent] = (),
    graded: bool = False,
    keeps_all: bool = False,
    views: bool = False,
) -> tuple[Any, Recording]:
    """Call a function on its arguments' tensors, recorded; return its result, whose tensors own their memory.

    Where there were ``earlier`` calls, the user's lines are kept, and ``finder`` hears what code runs; where values
    left for Python in them, loops are found. ``contents`` are of arrays that code reads. ``graded`` turns gradient
    mode on. Iterations that do what the one before did are not kept, and few results held, unless ``keeps_all``.
    """
    guarded = any(recording.guards for recording in earlier)
    before, hears = modes.current(), frame_events.CodeListener
    recorder = CallRecorder(lines=bool(earlier), repeats=not (guarded or keeps_all), views=views)
    mode = before._replace(recorder=recorder, grad=graded or before.grad)
    if keeps_all:
        recorder.tables.hold_more()
    recorder.begun = [ArrayContent(content.array) for content in contents]
    watch = HeadWatch(recorder.visited, finder.note, recorder) if guarded else hears(finder.note) if earlier else None
    under = mode, _called, recorder, function, inputs, watch
    with recorder.tables.counting():
        leaves, template, outputs = frame_events.rarely_collected(modes.call_under, *under)
        recorder.release()
    recording = Recording(recorder, len(inputs))
    recording.template, recording.recipe.outputs = template, outputs
    recorder.finish()
    recording.kept = {i: kept(x) for i, x in enumerate(leaves) if not isinstance(x, Tensor)}
    if recording.guards:
        recording.keep_all()
    _look_for_changes(recorder, recording)
    if names := recorder.tables.dtypes() - DTYPES:
        recording.stop(f"programs hold no {min(names)}")
    if not recording.stopped and (escaped := _escaped(recorder, inputs, leaves)):
        if isinstance(watch, HeadWatch) and watch.substituted:
            watch.give_up(f"a number of a loop, or {escaped}, stays behind")
        recording.impure = f"a tensor that the call made, {escaped}, stays behind somewhere else than in its result"
    recording.stop("" if watch is None else watch.unseen)
    if isinstance(watch, HeadWatch):
        _find_loops(recording, recorder, watch)
    return template.filled(owned(leaves, inputs)), recording


def _find_loops(recording: Recording, recorder: CallRecorder, watch: HeadWatch) -> None:
    recording.unrolled = watch.reason
    if watch.reason or recording.stopped:
        return
    trace = RecordedTrace(recording)
    recording.rolled, spans, recording.unrolled = rolled(Heads(trace, recorder.visits))
    recording.unrolled = unrolled(trace, recorder.visits, watch.left, spans, recording.unrolled)
    recording.numbers = frozenset(watch.substituted)
    if recording.rolled is not None:
        recording.rolled.put(recording, least=None)


def _called(recorder: CallRecorder, function: Any, inputs: list[Tensor], watch: Any) -> tuple[Any, ...]:
    for x in inputs:
        recorder.argument(x)
    result = function(inputs) if watch is None else watch.call(function, inputs)
    if recorder.picked and (kept := kept_views(recorder.recipe, recorder.tables.left)):
        if isinstance(watch, HeadWatch) and watch.substituted:
            watch.give_up(kept)
        raise KeptViews(kept)
    leaves, template = flattened(result, none=True)
    outputs, tensors = list[int](), [x for x in leaves if isinstance(x, Tensor)]
    try:
        outputs = [] if recorder.stopped else [recorder.reference(x).node for x in tensors]
        if any(x._slot is not None and not recorder.recipe.wants(o) for x, o in zip(tensors, outputs, strict=False)):
            recorder.stop("a result requires grad by a tensor that the call itself made a leaf")
    except REFUSED as error:
        recorder.stop(str(error))
    return leaves, template, outputs


def _look_for_changes(recorder: CallRecorder, recording: Recording) -> None:
    """Stop where memory changed unseen: what NumPy shares, and what was read from outside."""
    for guard in recorder.guards:
        x = guard.tensor
        if x is not None and getattr(x, "_shared", False) and as_array(x).tobytes() != guard.value:
            recording.stop(f"memory that NumPy shares since {guard.line} was written to")
    written = recording.recipe.written
    if any(recording.recipe.arguments.index(node) >= recording.inputs for node in written):
        recording.stop("a tensor from outside that requires grad was written to")
    try:
        recorder.check()
    except ProgramError as error:
        recording.stop(str(error))


def _escaped(recorder: CallRecorder, inputs: list[Tensor], leaves: list[Any]) -> str:
    """Return which tensor that the call made is held by anything but its results; empty if none is."""
    tables = recorder.tables
    outside = [*inputs, *recorder.outer, *recorder.parts, *recorder.readers.values(), *recorder.sources.values()]
    held = [x for x in [*leaves, *[g.tensor for g in recorder.guards]] if isinstance(x, Tensor)]
    held += [x._base for x in held if is_view(x)]
    counts, ours = Counter(map(id, held)), {id(x) for x in outside}
    results = list({id(x): x for x in held if id(x) not in ours}.values())
    for at, count in enumerate(map(sys.getrefcount, results)):
        if count > _ALONE + 2 * counts[id(results[at])]:  # here, and where it was found
            return _named(recorder, results[at])
    known = {id(x): x for x in [*outside, *held] if isinstance(x, Tensor)}
    alive = tables.alive()
    if alive is None or alive > sum(tables.node_of(x) is not None for x in known.values()):
        for x in gc.get_objects():
            if isinstance(x, Tensor) and id(x) not in known and tables.node_of(x) is not None:
                return _named(recorder, x)
    return ""


def _named(recorder: CallRecorder, x: Tensor) -> str:
    names = [step.op.name for step in recorder.recipe.steps if step.result == recorder.node_of(x)]
    return f"a result of {names[0]}" if names else "a constant"
