"""Steps of a recipe as tasks: forward, and in reverse."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.foundation.specs import (
    FLOAT64,
    Array,
    Intervals,
    Spec,
    Strides,
    add_to,
    broadcast,
    dense,
    inner_loop,
    intern_spec,
    spec_of,
)
from kernels.kinds.form import Form, restrided
from kernels.kinds.form import ProgramStep as LoweredStep
from kernels.kinds.routine import RoutineCall
from kernels.native import structs
from kernels.programs import task_blocks
from kernels.programs.program import HEAD, ProgramError, ProgramNode, Recipe, Step
from kernels.programs.task_blocks import Columns, Loops, LoopTasks, Source, StepCalls, TaskBatches, TaskBody, crosses
from kernels.rules import scalar_loops
from kernels.rules.loop_printer import KernelOperand, PrintedLoop
from kernels.rules.op import passed
from kernels.rules.scalar_loops import ConstantFill, KernelCall, NodeRef, OperandPlace, PythonCall, UfuncCall, node_of

# From steps to tasks: each kind of operation lowers its own, with the nodes that it needs between.
#
# Correctly rounded elementwise operations, copies and joins run as printed kernels; everything else runs through
# NumPy's own inner loops, so that a replay agrees with dynamic mode in every bit.

Waiting = tuple[int, str]  # A step's position, and the name by which its pullback reads the value that it waits for


class Overwriting:
    """Follows the steps of a program: which values their pullbacks read, by the memory of these values."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._read_places: dict[int, Intervals] = {}
        self.written = recipe.written_bases()
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


class ForwardLowering:
    """Turns the steps of a recipe into forward tasks; what stands between its nodes become nodes, too."""

    def __init__(self, recipe: Recipe, *, reverse: bool = True) -> None:
        self.recipe, self.tasks = recipe, scalar_loops.Tasks()
        self._numbers: dict[tuple[bytes, np.dtype[Any]], int] = {}
        self._kernels: dict[Any, Any] = {}
        self.overwriting = Overwriting(recipe) if reverse else None
        self.extra: dict[int, int] = {}  # nodes made for the pullback of a step
        self.extras: dict[int, tuple[int, ...]] = {}  # the further results of a routine
        self.copies: dict[int, dict[str, int]] = {}  # those of saved values of a step that a later write replaces
        self.loops = Loops(recipe, self.tasks)

    def run(self) -> scalar_loops.Tasks:
        """Lower each step; return the tasks in order."""
        steps, repeating = self.recipe.steps, Repeating(self)
        for at, start in enumerate(steps.starts):
            if not repeating.repeat(at, start):
                step, self.tasks.step = steps[at], at
                if step.op.extras and not step.params[1:]:
                    self.extras[at] = tuple(s.result for s in steps[at + 1 : at + 1 + len(step.op.extras)])
                step.op.lower(step, self)
                repeating.remember(at)
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
            target = KernelOperand("target", b.dtype, 0, b.strides if strides is None else strides, offset)
            x = KernelOperand("x", a.dtype, 1, broadcast(a.shape, a.strides, shape))
            return PrintedLoop(scalar_loops.same, shape, (target, x), pullback=False, adds=adds)

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
            loop = inner_loop(ufunc, dtypes)
        except LookupError as error:
            raise ProgramError(f"{ufunc.__name__} cannot be replayed: {error}") from None
        specs = [self.spec(node) for node in nodes]
        strides = tuple(broadcast(s.shape, s.strides, shape) for s in specs)
        self.tasks.append(UfuncCall(loop, shape, strides, tuple(map(OperandPlace, nodes))))


class Repeating:
    """Remembers how the first step of each kind was lowered, and lowers others in the same way."""

    def __init__(self, lowering: ForwardLowering) -> None:
        self.extra, self.steps = lowering.extra, lowering.recipe.steps
        self.nodes, self.tasks = lowering.recipe.nodes, lowering.tasks
        self.words = self.steps.words.tolist()
        self.blocks = TaskBatches(lowering.recipe, lowering.tasks, lowering.number, lowering.extra)
        self._patterns: dict[int, int] = {}
        self._silent = {number for number, kind in enumerate(self.steps.kinds) if kind.op.tape_kind == structs.VIEW}
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

    def remember(self, at: int) -> None:
        """Remember how a step was lowered, if others can be lowered in the same way."""
        kind, result, operands, _ = self.steps.raw(at)
        tasks, (before, place, node) = self.tasks, self._before
        calls = [tasks.calls[number] for number in tasks.call_numbers[before:]]
        if not self.steps.kinds[kind].op.repeatable or any(isinstance(call, PythonCall) for call in calls):
            return
        places = tasks.places[place:].tolist()
        temporaries = [k for k in range(node, len(self.nodes)) if self.nodes[k].constant is None]
        asked = [*places, self.extra[at]] if at in self.extra else places
        single = len(calls) == 1 and not temporaries and not tasks.offsets
        names = self._in_order(asked, operands, result) if single else None
        names = names or self._by_nodes(asked, operands, result, temporaries)
        if names is not None:
            numbers = [(k, n) for n, (source, k) in zip(places, names, strict=False) if source == task_blocks.OPERAND]
            dtypes = {k: self.nodes[node].spec.dtype for k, node in numbers if self._is_number(node)}
            offsets = [(k - place, offset) for k, offset in tasks.offsets.items() if k >= place]
            pattern = StepCalls(
                tasks.call_numbers[before:].tolist(), tasks.adds[before:].tolist(), names[: len(places)], offsets,
                [self.nodes[k] for k in temporaries], names[-1] if at in self.extra else None, dtypes,
            )  # fmt: skip
            self._patterns[kind] = self.blocks.add(pattern)

    def _in_order(self, places: list[int], operands: Sequence[int], result: int) -> list[Source] | None:
        """Describe the places of a single call on all operands in order, its result first or last."""
        if len(places) != 1 + len(operands):
            return None
        for order, places_of_operands in enumerate((places[1:], places[:-1])):
            pairs = zip(places_of_operands, operands, strict=True)
            if places[-order] == result and all(self._is_number(n) if o < 0 else n == o for n, o in pairs):
                names = [(task_blocks.OPERAND, k) for k in range(len(operands))]
                return [*names, (task_blocks.RESULT, 0)] if order else [(task_blocks.RESULT, 0), *names]
        return None

    def _by_nodes(
        self, places: list[int], operands: Sequence[int], result: int, temporaries: list[int]
    ) -> list[Source] | None:
        """Describe the places by the nodes that they hold; None where these are not unique."""
        named: dict[int, Source] = {result: (task_blocks.RESULT, 0)}
        for k, o in enumerate(operands):
            if o < 0 or o in named:
                return None
            named[o] = task_blocks.OPERAND, k
        named |= {node: (task_blocks.TEMPORARY, k) for k, node in enumerate(temporaries)}
        if not all(node in named or self._is_number(node) for node in places):
            return None
        return [named.get(node, (task_blocks.NODE, node)) for node in places]

    def _is_number(self, node: int) -> bool:
        if node < 0:
            return False
        constant = self.nodes[node].constant
        return constant is not None and not constant.ndim


# From steps to reverse tasks: the pullbacks of a program, last step first.


class Reverse:
    """The pullbacks of a program, last step first; what is stored and what accumulated is known here."""

    def __init__(self, recipe: Recipe, lowering: ForwardLowering) -> None:
        self.recipe = recipe
        self.lowering, self.tasks = lowering, lowering.tasks
        self.tasks.step = max(len(recipe.steps) - 1, 0)  # what it starts from is of the last one
        self.buffers: dict[int, int] = {}
        self.touched: set[int] = set()
        self.blocks = TaskBatches(recipe, self.tasks, lowering.number, lowering.extra)

    def run(self, output: int | None, pairs: Sequence[tuple[int, int]]) -> None:
        """Start from one floating element, with the cotangent 1, or from results and their cotangents, by nodes."""
        if output is not None:
            node, base = self.recipe.nodes[output], self._buffer_of(output)
            self._fill(base, node.spec.dtype, -0.0)
            place = OperandPlace(base, gradient=True, offset=node.buffer_offset)
            self.tasks.append(ConstantFill(place, 1, node.spec.dtype, 1.0))
        for result, cotangent in pairs:
            self._give(OperandPlace(cotangent), self.recipe.nodes[cotangent].spec.strides, result)
        self.columns, steps = Columns(self.recipe.nodes), self.recipe.steps
        self._family, self._wanted = self.columns.family.tolist(), self.columns.wants.tolist()
        self._starts, self._words = steps.starts, steps.words.tolist()
        self._forms = [None if kind.form is None or kind.form.is_view else kind.form for kind in steps.kinds]
        self._ways = {form: self._way(form) for form in self._forms if form is not None}
        self._loops = {loop.recorded.end: loop for loop in self.lowering.loops.all}
        self._some_steps(0, len(self._starts))
        self.blocks.finish(self.columns)

    def _some_steps(self, first: int, stop: int) -> None:
        """Add the pullbacks of the steps from ``first`` on, the last before ``stop`` at the beginning."""
        family, wanted, nodes = self._family, self._wanted, self.recipe.nodes
        starts, words, touched, copies = self._starts, self._words, self.touched, self.lowering.copies
        forms, ways, skipped = self._forms, self._ways, stop
        blocks, order, by_step, tasks = self.blocks, self.blocks.order, self.blocks.steps, self.tasks
        for at in range(stop - 1, first - 1, -1):
            if at >= skipped:
                continue
            start, tasks.step = starts[at], at
            form = forms[words[start]]
            if form is None or family[words[start + 1]] not in touched:
                if at in self._loops:
                    skipped = self._loop(self._loops[at])
                continue
            way = None if at in copies else ways[form]
            if way is None:
                blocks.flush()
                self._apart(self.recipe.steps[at], form)
                continue
            for i, pattern, covers in way:
                node = words[start + HEAD + i]
                if node < 0 or not wanted[node]:
                    continue
                base, stored = family[node], False
                if base not in touched:
                    self.buffers.setdefault(base, nodes[node].spec.buffer_size)
                    if covers:
                        stored = True
                        touched.add(base)
                    else:
                        blocks.flush()
                        self._fill(base, nodes[node].spec.dtype, -0.0)
                order.append(~pattern if stored else pattern)
                by_step.append(at)

    def _loop(self, loop: LoopTasks) -> int:
        """Add the pullbacks of a loop's bodies, which run as often as these did; return the loop's first step."""
        phis = [node for node in loop.recorded.phis if self._wanted[node]]
        if not any(self._family[node] in self.touched for node in phis):
            return loop.recorded.begin
        self.blocks.flush()
        for node in {self._family[node]: node for node in (*phis, *self._reached(loop))}.values():
            self._ready(node, self.recipe.nodes[node].spec, covers=False)
        before, tasks = set(self.touched), self.tasks
        loop.back = len(tasks)
        self.lowering.loops.steer(loop, structs.RUN_BACK)
        loop.choose = len(tasks)
        self.lowering.loops.steer(loop, structs.RUN_CHOOSE)
        for number, (body, steps) in enumerate(zip(loop.bodies, loop.recorded.bodies, strict=True)):
            body.restore = len(tasks)
            self.lowering.loops.steer(loop, structs.RUN_RESTORE, number)
            self._carry_back(loop, body)
            self._some_steps(*steps)
            self.blocks.flush()
            self.touched &= before
            body.before = len(tasks)
            self.lowering.loops.steer(loop, structs.RUN_BEFORE)
        loop.back_end = len(tasks)
        return loop.recorded.begin

    def _reached(self, loop: LoopTasks) -> list[int]:
        """Return nodes from before a loop whose gradients its steps may add to."""
        steps, made, read = self.recipe.steps, set(), list[int]()
        for step in map(steps.raw, range(loop.recorded.begin, loop.recorded.end)):
            if self._forms[step.kind] is not None:
                made.add(self._family[step.result])
                read += [n for n in step.operands if n >= 0 and self._wanted[n]]
        return [node for node in read if self._family[node] not in made]

    def _carry_back(self, loop: LoopTasks, body: TaskBody) -> None:
        nodes = self.recipe.nodes
        pairs = zip(loop.recorded.phis, body.updates, strict=True)
        pairs = [(c, o) for c, o in pairs if c != o and self._wanted[c]]
        apart = crosses(self.recipe, loop, body)
        kept = [self._kept_gradient(c) for c, _ in pairs] if apart else []
        if not apart:
            for c, o in pairs:
                self._give(OperandPlace(self._family[c], gradient=True), nodes[c].spec.gradient, o)
        for c, _ in pairs:
            self._fill(self._family[c], nodes[c].spec.dtype, -0.0)
        for (_, o), node in zip(pairs, kept, strict=bool(apart)):
            self._give(OperandPlace(node), nodes[node].spec.strides, o)

    def _kept_gradient(self, node: int) -> int:
        spec = self.recipe.nodes[node].spec
        kept = self.lowering.temporary(spec.shape, spec.dtype)
        target = KernelOperand("target", spec.dtype, 0, self.lowering.spec(kept).strides)
        x = KernelOperand("x", spec.dtype, 1, spec.gradient)
        loop = PrintedLoop(scalar_loops.same, spec.shape, (target, x), pullback=False)
        self.tasks.append(KernelCall(loop, (OperandPlace(kept), OperandPlace(self._family[node], gradient=True))))
        return kept

    def _give(self, source: OperandPlace, strides: Strides, node: int) -> None:
        if not self.recipe.wants(node):
            return
        spec = self.recipe.nodes[node].spec
        self._ready(node, spec, covers=False)
        target = KernelOperand("target", spec.dtype, 0, spec.gradient)
        loop = PrintedLoop(passed, spec.shape, (target, KernelOperand("g", spec.dtype, 1, strides)))
        place = OperandPlace(self.recipe.family_of(node), gradient=True, offset=self.recipe.nodes[node].buffer_offset)
        self.tasks.append(KernelCall(loop, (place, source), accumulate=True))

    def _way(self, form: Form) -> list[tuple[int, int, bool]] | None:
        """Return operand, pattern and whether it covers of pullbacks that only add; None if more is to be done."""
        pulls, names = [(i, pull) for i, pull in enumerate(form.pulls) if pull is not None], form.op.inputs
        if form.kind != structs.PULLS or not {"y", "n", "i", *names}.issuperset(form.saved):
            return None
        made: dict[str, Source] = {"y": (task_blocks.RESULT, 0), **dict.fromkeys("ni", (task_blocks.EXTRA, 0))}
        saved = [made.get(name) or (task_blocks.OPERAND, names.index(name)) for name in form.saved]
        ways = []
        for i, pull in pulls:
            places = [(task_blocks.OPERAND_GRADIENT, i), (task_blocks.RESULT_GRADIENT, 0), *saved]
            called = StepCalls([self.tasks.kernel(pull, len(places))], [True], places)
            ways.append((i, self.blocks.add(called), form.covers[i]))
        return ways

    def _apart(self, step: Step, form: Form) -> None:
        if form.kind == structs.PYTHON:
            self._python(step, form)
        else:
            for name, node in self.lowering.copies.get(step.at, {}).items():
                form = restrided(form, form.saved.index(name), self.recipe.nodes[node].spec.strides)
            base = self.recipe.family_of(step.result)
            cotangent = OperandPlace(base, gradient=True, offset=self.recipe.nodes[step.result].buffer_offset)
            saved = tuple([self._saved(step, form, name) for name in form.saved])
            for i, pull in enumerate(form.pulls):
                operand = step.operands[i]
                if pull is not None and isinstance(operand, NodeRef) and not (i == 0 and form.kind == structs.CLEARS):
                    self._contribute(step, form, i, (cotangent, *saved))
            if form.kind == structs.CLEARS and form.pulls[0] is not None:
                self.tasks.append(KernelCall(form.pulls[0], (cotangent, cotangent, *saved)))

    def _buffer_of(self, node: int) -> int:
        """Make room for a node's gradient; return the base that it belongs to."""
        base = self.recipe.family_of(node)
        self.buffers.setdefault(base, self.recipe.nodes[node].spec.buffer_size)
        return base

    def _fill(self, base: int, dtype: np.dtype[Any], value: float) -> None:
        self.tasks.append(ConstantFill(OperandPlace(base, gradient=True), self.buffers[base], dtype, value))
        self.touched.add(base)

    def _python(self, step: Step, form: Form) -> None:
        (call,), at = form.params, step.at
        names = form.saved[1:]
        kept = [self._saved(step, form, name).node for name in names]
        pairs = enumerate(zip(step.operands, form.specs, strict=True))
        wanted = [i for i, (o, s) in pairs if s is not None and isinstance(o, NodeRef) and self.recipe.wants(o.node)]
        targets = [node_of(step.operands[i]) for i in wanted]
        specs = tuple(spec if i in wanted else None for i, spec in enumerate(form.specs))
        asked = [spec for spec in specs if spec is not None]
        stored = [self._ready(node, spec, spec.covers) for node, spec in zip(targets, asked, strict=True)]

        gradients_of = call.replayed if isinstance(call, RoutineCall) else call.gradients

        def run(arrays: list[Array], contexts: dict[int, list[Any]]) -> None:
            g, *rest = arrays
            saved: dict[str, Any] = dict(zip(names, rest, strict=False))
            if at in contexts:
                saved["context"] = contexts[at].pop()
            gradients = gradients_of(g, saved, specs)
            for i, place, first in zip(wanted, rest[len(names) :], stored, strict=True):
                value = gradients[i]
                if first:
                    np.add(-0.0 if value is None else value, step.op.nothing, out=place)
                elif value is not None:
                    add_to(place, value)

        nodes = ((step.result, True), *((n, False) for n in kept), *((n, True) for n in targets))
        places = tuple([OperandPlace(self.recipe.family_of(n) if back else n, gradient=back) for n, back in nodes])
        self.tasks.append(PythonCall(run, nodes, places))

    def _ready(self, node: int, spec: Any, covers: bool) -> bool:
        """Make a gradient ready to be added to; whether it may be stored: nothing has been contributed yet."""
        base = self._buffer_of(node)
        first = base not in self.touched
        if first and not covers:
            self._fill(base, spec.dtype, -0.0)
        self.touched.add(base)
        return first and bool(covers)

    def _contribute(self, step: Step, form: Form, i: int, reads: tuple[OperandPlace, ...]) -> None:
        """Add one pullback, stored where it is the first to reach all of its target."""
        operand, spec, pull = step.operands[i], form.specs[i], form.pulls[i]
        assert isinstance(operand, NodeRef)
        assert spec is not None
        if not self.recipe.wants(operand.node):
            return
        base = self.recipe.family_of(operand.node)
        stored = self._ready(operand.node, spec, form.covers[i])
        target = OperandPlace(base, gradient=True, offset=self.recipe.nodes[operand.node].buffer_offset)
        self.tasks.append(KernelCall(pull, (target, *reads), not stored))

    def _saved(self, step: Step, form: Form, name: str) -> OperandPlace:
        copies = self.lowering.copies.get(step.at, {})
        if name in copies:
            return OperandPlace(copies[name])
        if name in ("n", "i"):
            return OperandPlace(self.lowering.extra[step.at])
        if name in form.op.extras:
            return OperandPlace(self.lowering.extras[step.at][form.op.extras.index(name)])
        node = operand_named(step, name)
        if node is None:  # a Python number; an offset's place is never read
            operand = 0.0 if name == "offset" else step.operands[form.op.inputs.index(name)]
            assert isinstance(operand, (int, float))
            node = self.lowering.number(operand)
        return OperandPlace(node)
