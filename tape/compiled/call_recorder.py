"""The recorder of one call of a compiled function: guards where values leave for Python, and what it read from outside.

It never raises: what it cannot follow is noted, with the line, and the call goes on as in dynamic mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any
from weakref import ref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from kernels.foundation.specs import Spec, dense, fills, intern_spec, spec_of
from kernels.kinds.reference_tape import Instruction, root_of
from kernels.kinds.routine import FUNCTION, Callback, Routine
from kernels.native.memory import where
from kernels.operations.views import GUARD
from kernels.programs.program import ProgramError, ProgramNode, StepWords
from kernels.rules.scalar_loops import NodeRef
from tape.compiled.function_calls import RAISED, Attempt, FunctionCall, Inside, KnownTensors, comparisons_of, number_of
from tape.compiled.loop_spans import Visit
from tape.engine import custom_function, kind_rules
from tape.engine.double_backward import Derivation, Derivatives
from tape.random import Draw
from tape.recording import attributes
from tape.tensors import modes
from tape.tensors.recorder import CLONE, ProgramRecorder, caller
from tape.tensors.tensor import AccumulateGrad, Array, Tensor, as_array, constant_tensor, scalar_or_array
from tape.tensors.view_families import base_of, counter_of, is_view
from tape.transforms.points import needs_graph
from tape.watching.python_loops import HeadVisit
from tape.watching.snapshots import ArrayContent

_REFUSED = (ProgramError, NotImplementedError)
_MOST_STEPS = 1 << 17
"""Steps that a Jacobian may have."""


class Escape:
    """A value that left for Python: where, what it was, and the tensor, which may share its memory with NumPy."""

    __slots__ = ("line", "tensor", "value")

    def __init__(self, tensor: Tensor, value: bytes, line: str) -> None:
        self.tensor: Tensor | None = tensor
        self.value, self.line = value, line


class CallRecorder(ProgramRecorder):
    """Records a call. ``stopped`` says why, and where, no program can be made of it."""

    has_guards = True

    def __init__(self, *, lines: bool = False) -> None:
        super().__init__(lines=lines)
        self.stopped = ""
        self.guards: list[Escape] = []
        self.caught = ""
        """Which error the call went on behind that programs do not look for."""
        self.catches = False
        """Whether there are guards of errors."""
        self.outer: list[Tensor | Draw] = []
        """Tensors from outside that require grad, and random numbers: further arguments, in the order of their use."""
        self.draws: list[int] = []
        """How many words had been recorded when random numbers were drawn."""
        self.kept: list[int] = []
        """How many, when a call of Python kept something for its way back."""
        self.sources: dict[int, Any] = {}
        """What was read from outside, by its constant's node: an array, or a tensor that holds a number."""
        self.readers: dict[int, Tensor] = {}
        """The tensor through which it was read, which may be given another array later."""
        self.begun: list[ArrayContent] = []
        """What arrays from outside held when the call began."""
        self.refilled: list[Array] = []
        """Arrays that were read after the call itself had NumPy write to them: constants, not read from outside."""
        self.taken_over: dict[int, Array] = {}
        """Memory, from outside if it is there before the call, that the call wrote to, by the step that copies it."""
        self.replaced: list[Tensor] = []
        """Tensors, likewise, that were given other memory."""
        self.tensors = KnownTensors(self.tables, self.recipe)
        self.rounds = False
        """Whether a backward was followed, whose gradients in turn may sum in another order than in dynamic mode."""
        self._deriving = 0
        """Within how many gradients another one is taken."""
        self.unrolled: set[int] = set()
        """The entries of loops through whose iterations a gradient was taken."""
        self.visits: list[Visit] = []
        """Those of the heads of loops."""

    def stop(self, reason: str) -> None:
        """Note why no program can be made of this call; the first reason counts."""
        self.stopped = self.stopped or f"{reason} at {caller()}"

    def _notify(self, op: Any, operands: tuple[Any, ...], result: Tensor, params: tuple[Any, ...]) -> None:
        if self.stopped:
            return
        try:
            super()._notify(op, operands, result, params)
        except _REFUSED as error:
            self.stop(str(error))

    def overwrites(self, x: Tensor, value: Any) -> None:
        """Prepare for a write into a tensor."""
        if not self.stopped:
            try:
                super().overwrites(x, value)
            except _REFUSED as error:
                self.stop(str(error))

    def wrote(self, op: Any, x: Tensor, value: Any, params: tuple[Any, ...]) -> None:
        """Record a write."""
        if not self.stopped:
            try:
                super().wrote(op, x, value, params)
            except _REFUSED as error:
                self.stop(str(error))

    def is_argument(self, x: Tensor) -> bool:
        """Return whether what is written to a tensor goes into its memory; leaves are refused as in dynamic mode."""
        return type(x._slot) is not AccumulateGrad and super().is_argument(x)

    def becomes_view(self, x: Tensor, name: str) -> None:
        """Note that an argument is given another shape."""
        if super().is_argument(x):
            self.stop(f"{name} of an argument")

    def taken(self, x: Tensor, value: Tensor) -> None:
        """Identify a tensor that has taken over another's value with that one."""
        if id(x) not in self.nodes:
            self.replaced.append(x)
        super().taken(x, value)

    def let_go(self, since: int) -> None:
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

    def replaces(self, x: Tensor, other: Tensor) -> None:
        """Prepare for an assignment to ``.data``."""
        self.replaced.append(x)
        if not self.stopped:
            try:
                super().replaces(x, other)
            except _REFUSED as error:
                self.stop(str(error))

    def note_unrecorded(self, tensor: Tensor | None, what: str) -> None:
        """Note that the call does something that programs do not hold."""
        del tensor
        self.stop(what)

    @staticmethod
    def follows_indices(indices: Sequence[Tensor], *, adds: bool) -> bool:
        """Whether index tensors are operands: of what they pick, and of what is added there; elsewhere they guard."""
        del indices
        return adds

    def note_drawn(self, tensor: Tensor, draw: Draw) -> None:
        """Let random numbers be an argument, drawn for each replay; the tensor is a copy, which may be written."""
        if self.stopped:
            return
        source = self.argument(constant_tensor(scalar_or_array(np.array(tensor._value, order="K"))))
        self.outer.append(draw)
        self.draws.append(self.recipe.steps.head[StepWords.used])
        node = self._cloned(NodeRef(source), tensor.spec)
        self.nodes[id(tensor)] = node
        self.held.append(tensor)
        if type(tensor._value) is not float and tensor.spec.size:
            self.owned.append((*byte_bounds(as_array(tensor)), node))

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
            except _REFUSED as error:
                self.stop(str(error))
        return result

    def derived(
        self,
        derivation: Derivation,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        weights: Sequence[Tensor],
        rows: int,
    ) -> Derivatives:
        """Take a gradient, and record the operations that compute it: its backward as one that creates a graph."""
        if not derivation.pulls:
            self.stop("a derivative in forward mode")
        elif rows * len(self.recipe.steps) > _MOST_STEPS:
            self.stop(f"a Jacobian of {rows} rows")
        if not self.stopped:
            self.rounds, self.tensors.earliest = True, len(self.recipe.steps)
            create = needs_graph(outputs, inputs, weights) if derivation.create is None else derivation.create
            self._deriving += 1
            try:
                gradients = derivation.run(outputs, inputs, weights, rows, create=True, again=True)
            except _REFUSED as error:
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
            visit.reason = visit.reason or self._reason_of(visit.entry)

    def _reason_of(self, entry: int) -> str:
        return "a gradient is taken through its iterations" if entry in self.unrolled else ""

    def with_tensors(self, instruction: Instruction) -> Instruction:
        """Return an instruction with tensors, known here, for what it saved; NotImplementedError for unknown ones."""
        saved = self.tensors.saved_by(instruction)
        if saved is None:
            raise NotImplementedError(f"the gradient of {instruction.form.name or instruction.form.op.name}")
        return replace(instruction, saved=saved)

    def negative_zeros(self, value: Tensor) -> Any:
        """Return where a cotangent has -0.0, the mark of what was not contributed to; None if nowhere: a guard."""
        marks = (value == 0) & value.signbit()
        if kind_rules.marks_of(value) is not None:
            return marks
        bool(marks.any())
        return None

    def _references(self, operands: Sequence[Tensor]) -> list[NodeRef]:
        try:
            return [self.reference(x) for x in operands]
        except _REFUSED as error:
            self.stop(str(error))
            return []

    def _is_made(self, x: Tensor) -> bool:
        """Whether a tensor is an argument, or was made by the call."""
        node = self.nodes.get(id(x), self.nodes.get(id(base_of(x))))
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
        self,
        call: Any,
        operands: Sequence[Tensor],
        refs: Sequence[NodeRef],
        outputs: Sequence[Tensor],
        op: Callback = FUNCTION,
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

    def _apart(self, packed: int, outputs: Sequence[Tensor]) -> None:
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
        flags = None if self.stopped else comparisons_of(tensor)
        for each in [tensor] if flags is None else flags:
            self.note_escape(each)

    def note_escape(self, tensor: Tensor) -> None:
        """Guard a value that leaves for Python: a replay stops where it differs."""
        if self.stopped or not self._depends(tensor):
            return
        try:
            at = self.reference(tensor).node
        except _REFUSED as error:
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
        except _REFUSED:
            return False
        counters = [counter_of(x) for x in visit.state.tensors]
        self.visits.append(
            Visit(visit, len(self.visits), self.recipe.steps.head[StepWords.used], nodes, counters, count)
        )
        self.visits[-1].reason = visit.reason or self._reason_of(visit.entry)
        return not visit.reason

    def _depends(self, x: Any) -> bool:
        """All tensors count: what the call reads from outside is read anew at each replay."""
        return isinstance(x, Tensor)

    def _outer_argument(self, x: Tensor) -> None:
        if x._slot is None or not fills(as_array(x)):
            raise NotImplementedError("a tensor from outside that requires grad is part of other memory")
        self.argument(x)
        self.outer.append(x)

    def _constant(self, x: Tensor) -> int:
        if x._slot is not None:
            self._outer_argument(base_of(x) if is_view(x) else x)
            return int(super().reference(x).node)
        if type(x._value) is float:
            return self._number(x)
        array = as_array(x)
        node = self._of_array(array, x.spec)
        if not any(array is other for other in self.refilled):
            self.readers.setdefault(node, x)
        return node

    def _number(self, x: Tensor) -> int:
        known = self.copies.get((id(x), x.spec))
        value = np.array(x._value)
        if known is not None and self._copied(known).tobytes() == value.tobytes():
            return known
        self.held.append(x)
        node = self._new(x.spec, value, x)
        self.copies[id(x), x.spec] = node
        return node

    def _of_array(self, array: Array, spec: Spec) -> int:
        key = where(array), spec
        known = self.copies.get(key)
        if known is not None and self._copied(known).tobytes() == array.tobytes():
            return known
        self._look(array)
        self.held.append(array)  # its address stays its own
        if fills(array) or not array.size:
            node = self._new(spec, array.copy(order="K"), array)
        else:
            root = root_of(array)
            if not fills(root):
                raise NotImplementedError("an array with gaps, of memory with gaps")
            above = self._of_array(root, spec_of(root))
            self.recipe.nodes.append(ProgramNode(spec, base=above, offset=where(array) - where(root)))
            node = len(self.recipe.nodes) - 1
        self.copies[key] = node
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
        known = self.copies.get((where(kept), spec_of(kept)), self.copies.get((id(x), spec_of(kept))))
        if known is not None and self._copied(known).tobytes() == kept.tobytes():
            return self._cloned(NodeRef(known), spec_of(kept))  # what a loop began with, perhaps
        return super()._begun(kept, x)
