"""From steps to tasks: each kind of operation lowers its own, with the nodes that it needs between.

Correctly rounded elementwise operations, copies and joins run as printed kernels; everything else runs through
NumPy's own inner loops, so that a replay agrees with dynamic mode in every bit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation import numpy_arrays
from kernels.foundation.specs import FLOAT64, Intervals, Spec, Strides, broadcast, dense, intern_spec, spec_of
from kernels.kinds.form import ProgramStep as LoweredStep
from kernels.kinds.views import Write
from kernels.native.structs import VIEW
from kernels.programs.program import ProgramError, ProgramNode, Recipe
from kernels.programs.structs import HEAD, Step
from kernels.programs.task_blocks import NODE, OPERAND, RESULT, TEMPORARY, Loops, Source, StepCalls, TaskBatches
from kernels.rules.loop_printer import KernelOperand, PrintedLoop
from kernels.rules.scalar_loops import KernelCall, NodeRef, OperandPlace, PythonCall, Tasks, UfuncCall, node_of, same

Waiting = tuple[int, str]
"""A step's position, and the name by which its pullback reads the value that it waits for."""


def written(recipe: Recipe) -> set[int]:
    """Return the nodes whose memory the program writes to once it is there."""
    steps = recipe.steps
    writes = {number for number, kind in enumerate(steps.kinds) if type(kind.op) is Write}
    words = steps.words.tolist() if writes else []
    return {recipe.base_of(words[k + 1]) for k in steps.starts if words[k] in writes} if writes else set()


class Overwriting:
    """Follows the steps of a program: which values their pullbacks read, by the memory of these values."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._read_places: dict[int, Intervals] = {}
        self.written = written(recipe)
        self._saves = [kind.form is not None and bool(kind.form.saved) for kind in recipe.steps.kinds]
        self._words = recipe.steps.words if self.written else None

    def read_at(self, at: int) -> None:
        """Remember the values that the pullbacks of a step will read, where a write may replace them."""
        steps = self.recipe.steps
        if self._words is None or not self._saves[self._words[steps.starts[at]]]:
            return
        step = steps[at]
        for name in step.form.saved if step.form is not None else ():
            node = operand_named(step, name)
            if node is not None and self.recipe.base_of(node) in self.written:
                self._of(node).add(*self._bytes(node), (at, name, node))

    def by(self, step: Step) -> list[tuple[int, list[Waiting]]]:
        """Return the nodes that a write replaces, with the steps that wait for their values; once each."""
        places, low, high = self._of(step.result), *self._bytes(step.result)
        waiting: dict[int, list[Waiting]] = {}
        for item in places.meeting(low, high):
            other, name, node = item
            waiting.setdefault(node, []).append((other, name))
            places.discard(*self._bytes(node), item)
        return list(waiting.items())

    def _of(self, node: int) -> Intervals:
        return self._read_places.setdefault(self.recipe.base_of(node), Intervals())

    def _bytes(self, node: int) -> tuple[int, int]:
        written = self.recipe.nodes[node]
        if written.spec.size == 0:
            return 0, 0
        ends = [(n - 1) * s for n, s in zip(written.spec.shape, written.spec.strides, strict=True)]
        first, last = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        return written.offset + first, written.offset + last + written.spec.dtype.itemsize


def operand_named(step: Step, name: str) -> int | None:
    """Return the node that a pullback of a step calls by this name; None for what no write can reach."""
    if name == "y":
        return step.result
    names = step.op.inputs
    if name not in names:
        return None
    operand = step.operands[names.index(name)]
    return operand.node if isinstance(operand, NodeRef) else None


class Intermediates:
    """Adds nodes for what stands between the nodes of a program, and the tasks that fill them."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.tasks = Tasks()
        self._numbers: dict[tuple[bytes, np.dtype[Any]], int] = {}
        self._kernels: dict[Any, Any] = {}

    def spec(self, node: int) -> Spec:
        """Return the spec of a node."""
        return self.recipe.nodes[node].spec

    def kernel(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the kernel of a key, made at its first use in this program."""
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = make()
        return kernel

    def number(self, value: float, dtype: np.dtype[Any] = FLOAT64) -> int:
        """Return the node of a constant number."""
        key = (struct.pack("d", value), dtype)  # by bits: -0.0 and nan are keys of their own
        if key not in self._numbers:
            spec = intern_spec((), (), dtype, (), 1)
            self.recipe.nodes.append(ProgramNode(spec, constant=np.array(value, dtype)))
            self._numbers[key] = len(self.recipe.nodes) - 1
        return self._numbers[key]

    def constant(self, array: np.ndarray[Any, Any]) -> int:
        """Return a new node for a constant array."""
        self.recipe.nodes.append(ProgramNode(spec_of(array), constant=array))
        return len(self.recipe.nodes) - 1

    def temporary(self, shape: Strides, dtype: np.dtype[Any]) -> int:
        """Return a new node for a dense intermediate."""
        strides = dense(shape, dtype.itemsize)
        self.recipe.nodes.append(ProgramNode(intern_spec(shape, strides, dtype, strides, math.prod(shape))))
        return len(self.recipe.nodes) - 1

    def operand(self, operand: Any, dtype: np.dtype[Any]) -> int:
        """Return an operand as a node of this dtype, cast if it has another."""
        if not isinstance(operand, NodeRef):
            return self.number(operand, dtype)
        return operand.node if self.spec(operand.node).dtype == dtype else self.cast(operand.node, dtype)

    def cast(self, node: int, dtype: np.dtype[Any]) -> int:
        """Return the node of a dense copy in this dtype."""
        result = self.temporary(self.spec(node).shape, dtype)
        self.copy_between(node, result)
        return result

    def copy_between(
        self, source: int, target: int, strides: Strides | None = None, offset: int | None = None, *, adds: bool = False
    ) -> None:
        """Copy a node into another, broadcast; or into a part of it that has these strides."""
        a, b = self.spec(source), self.spec(target)

        def loop() -> PrintedLoop:
            shape = b.shape if strides is None else a.shape
            operands = (
                KernelOperand("target", b.dtype, 0, b.strides if strides is None else strides, offset),
                KernelOperand("x", a.dtype, 1, broadcast(a.shape, a.strides, shape)),
            )
            return PrintedLoop(same, shape, operands, pullback=False, adds=adds)

        kernel = self.kernel((a, b, strides, offset, adds), loop)
        self.tasks.append(KernelCall(kernel, (OperandPlace(target), OperandPlace(source))))

    def ufunc(self, ufunc: Any, operands: tuple[Any, ...], result: int) -> None:
        """Run a ufunc in the dtype that NumPy would choose."""
        out = self.spec(result)
        kinds = [self.spec(o.node).dtype if isinstance(o, NodeRef) else type(o) for o in operands]
        dtypes = ufunc.resolve_dtypes((*(np.dtype(bool) if kind is bool else kind for kind in kinds), None))
        nodes = [self.operand(o, dtype) for o, dtype in zip(operands, dtypes[:-1], strict=True)]
        target = result if dtypes[-1] == out.dtype else self.temporary(out.shape, dtypes[-1])
        self._loop(ufunc, dtypes, [*nodes, target], out.shape)
        if target != result:
            self.copy_between(target, result)

    def _loop(self, ufunc: Any, dtypes: tuple[np.dtype[Any], ...], nodes: list[int], shape: Strides) -> None:
        try:
            loop = numpy_arrays.find(ufunc, dtypes)
        except LookupError as error:
            raise ProgramError(f"{ufunc.__name__} cannot be replayed: {error}") from None
        specs = [self.spec(node) for node in nodes]
        strides = tuple(broadcast(s.shape, s.strides, shape) for s in specs)
        self.tasks.append(UfuncCall(loop, shape, strides, tuple(map(OperandPlace, nodes))))


class Repeating:
    """Remembers how the first step of each kind was lowered, and lowers others in the same way."""

    def __init__(self, lowering: Intermediates, extra: dict[int, int]) -> None:
        self.extra, self.steps = extra, lowering.recipe.steps
        self.nodes, self.tasks = lowering.recipe.nodes, lowering.tasks
        self.words = self.steps.words.tolist()
        self.blocks = TaskBatches(lowering.recipe, lowering.tasks, lowering.number, extra)
        self._patterns: dict[int, int] = {}
        self._silent = {number for number, kind in enumerate(self.steps.kinds) if kind.op.tape_kind == VIEW}
        self._before = (0, 0, 0)

    def repeat(self, at: int, start: int) -> bool:
        """Lower the step that begins at ``start`` like an earlier one of its kind; False if none can be repeated."""
        kind = self.words[start]
        pattern = self._patterns.get(kind)
        if pattern is None:
            if kind in self._silent:
                return True
            self.blocks.flush()
            self._before = (len(self.tasks), len(self.tasks.places), len(self.nodes))
            return False
        self.blocks.order.append(pattern)
        self.blocks.steps.append(at)
        return True

    def remember(self, at: int, start: int) -> None:
        """Remember how a step was lowered, if others can be lowered in the same way."""
        kind, result = self.words[start : start + HEAD]
        op, _, _, count = self.steps.kinds[kind]
        tasks, (before, place, node) = self.tasks, self._before
        calls = [tasks.calls[number] for number in tasks.call_numbers[before:]]
        if not op.repeatable or any(isinstance(call, PythonCall) for call in calls):
            return
        operands, places = self.words[start + HEAD : start + HEAD + count], tasks.places[place:].tolist()
        temporaries = [k for k in range(node, len(self.nodes)) if self.nodes[k].constant is None]
        asked = [*places, self.extra[at]] if at in self.extra else places
        single = len(calls) == 1 and not temporaries and not tasks.offsets
        names = self._in_order(asked, operands, result) if single else None
        names = names or self._by_nodes(asked, operands, result, temporaries)
        if names is not None:
            pattern = StepCalls(
                tasks.call_numbers[before:].tolist(),
                tasks.adds[before:].tolist(),
                names[: len(places)],
                [(k - place, offset) for k, offset in tasks.offsets.items() if k >= place] if tasks.offsets else [],
                [self.nodes[k] for k in temporaries],
                names[-1] if at in self.extra else None,
                {
                    k: self.nodes[node].spec.dtype
                    for node, (source, k) in zip(places, names, strict=False)
                    if source == OPERAND and self._is_number(node)
                },
            )
            self._patterns[kind] = self.blocks.add(pattern)

    def _in_order(self, places: list[int], operands: list[int], result: int) -> list[Source] | None:
        """Describe the places of a single call on all operands in order, its result first or last."""
        if len(places) != 1 + len(operands):
            return None
        for order, places_of_operands in enumerate((places[1:], places[:-1])):
            pairs = zip(places_of_operands, operands, strict=True)
            if places[-order] == result and all(self._is_number(n) if o < 0 else n == o for n, o in pairs):
                names = [(OPERAND, k) for k in range(len(operands))]
                return [*names, (RESULT, 0)] if order else [(RESULT, 0), *names]
        return None

    def _by_nodes(
        self, places: list[int], operands: list[int], result: int, temporaries: list[int]
    ) -> list[Source] | None:
        """Describe the places by the nodes that they hold; None where these are not unique."""
        named: dict[int, Source] = {result: (RESULT, 0)}
        for k, o in enumerate(operands):
            if o < 0 or o in named:
                return None
            named[o] = OPERAND, k
        named |= {node: (TEMPORARY, k) for k, node in enumerate(temporaries)}
        if not all(node in named or self._is_number(node) for node in places):
            return None
        return [named.get(node, (NODE, node)) for node in places]

    def _is_number(self, node: int) -> bool:
        if node < 0:
            return False
        constant = self.nodes[node].constant
        return constant is not None and not constant.ndim


class ForwardLowering(Intermediates):
    """Turns the steps of a recipe into forward tasks."""

    def __init__(self, recipe: Recipe, *, reverse: bool = True) -> None:
        super().__init__(recipe)
        self.overwriting = Overwriting(recipe) if reverse else None
        self.extra: dict[int, int] = {}  # nodes made for the pullback of a step
        self.extras: dict[int, tuple[int, ...]] = {}  # the further results of a routine
        self.copies: dict[int, dict[str, int]] = {}  # those of saved values of a step that a later write replaces
        self.loops = Loops(recipe, self.tasks)
        self.apart: list[tuple[int, int, int]] = []
        """Steps that were lowered by themselves: the first of their tasks, the one behind the last, the step."""

    def run(self) -> Tasks:
        """Lower each step; return the tasks in order."""
        steps, repeating = self.recipe.steps, Repeating(self, self.extra)
        self.owners = repeating.blocks.owners
        for at, start in enumerate(steps.starts):
            if not repeating.repeat(at, start):
                step, first = steps[at], len(self.tasks)
                if step.op.extras and not step.params[1:]:
                    self.extras[at] = tuple(s.result for s in steps[at + 1 : at + 1 + len(step.op.extras)])
                step.op.lower(step, self)
                self.apart.append((first, len(self.tasks), at))
                repeating.remember(at, start)
            if self.overwriting is not None and self.overwriting.written:
                self.overwriting.read_at(at)
        repeating.blocks.finish()
        return self.tasks

    def wants_pullback(self, step: LoweredStep, name: str) -> bool:
        """Whether the pullback of a step, which is part of the program, reads a value of this name."""
        return self.overwriting is not None and step.form is not None and name in step.form.saved

    def same_operands(self, step: LoweredStep) -> list[Step]:
        """Return the later steps of the same operation on the same operands."""
        steps = [s for s in self.recipe.steps if s.op is step.op and s.operands == step.operands]
        return [s for s in steps if s.result > step.result]

    def places(self, step: LoweredStep) -> int:
        """Return the node of a step's places: its last operand, or parameter; its pullback reads the gradient's."""
        if not step.params:
            self.extra[step.at] = node_of(step.operands[-1])
            return self.extra[step.at]
        memory, gradient = step.params
        node = self.constant(memory)
        self.extra[step.at] = node if gradient is memory else self.constant(gradient)
        return node

    def keep_overwritten(self, step: LoweredStep) -> None:
        """Copy what pullbacks still read of the memory that a step is about to write."""
        for node, waiting in self.overwriting.by(step) if self.overwriting is not None else ():
            kept = self.cast(node, self.spec(node).dtype)
            for at, name in waiting:
                self.copies.setdefault(at, {})[name] = kept
