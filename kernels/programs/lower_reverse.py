"""From steps to reverse tasks: the pullbacks of a program, last step first."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import add_to
from kernels.foundation.specs import Array, Strides
from kernels.kinds.custom import LoopEnd
from kernels.kinds.form import Form, restrided
from kernels.kinds.routine import RoutineCall
from kernels.native.structs import (
    ALWAYS,
    CLEARS,
    IF_INPUT_IS,
    NEVER,
    PULLS,
    PYTHON,
    RUN_BACK,
    RUN_BEFORE,
    RUN_CHOOSE,
    RUN_RESTORE,
)
from kernels.programs.lower_forward import ForwardLowering, operand_named
from kernels.programs.program import Recipe
from kernels.programs.structs import HEAD, Step
from kernels.programs.task_blocks import (
    EXTRA,
    OPERAND,
    OPERAND_GRADIENT,
    RESULT,
    RESULT_GRADIENT,
    Columns,
    LoopTasks,
    Source,
    StepCalls,
    TaskBatches,
    TaskBody,
    crosses,
)
from kernels.rules import loop_printer
from kernels.rules.loop_printer import KernelOperand, PrintedLoop
from kernels.rules.scalar_loops import ConstantFill, KernelCall, NodeRef, OperandPlace, PythonCall, node_of, same
from kernels.rules.symbols import passed


class Reverse:
    """The pullbacks of a program, last step first; what is stored and what accumulated is known here."""

    def __init__(self, recipe: Recipe, lowering: ForwardLowering) -> None:
        self.recipe = recipe
        self.lowering = lowering
        self.tasks = lowering.tasks
        self.buffers: dict[int, int] = {}
        self.touched: set[int] = set()
        self.constant_buffers: set[int] = set()
        self.blocks = TaskBatches(recipe, self.tasks, lowering.number, lowering.extra)
        self.apart: list[tuple[int, int, int]] = []  # steps whose pullbacks are not just called, as in the forward pass

    def run(self, output: int) -> None:
        """Start from one floating element, with the cotangent 1."""
        node = self.recipe.nodes[output]
        base = self._buffer_of(output)
        self._fill(base, node.spec.dtype, -0.0)
        self.tasks.append(
            ConstantFill(OperandPlace(base, gradient=True, offset=node.buffer_offset), 1, node.spec.dtype, 1.0)
        )
        self._all_steps()

    def run_from(self, pairs: list[tuple[int, int]]) -> None:
        """Start from results, each with the node of its cotangent, which is dense."""
        for output, cotangent in pairs:
            self._give(OperandPlace(cotangent), self.recipe.nodes[cotangent].spec.strides, output)
        self._all_steps()

    def _all_steps(self) -> None:
        self.columns, steps = Columns(self.recipe.nodes), self.recipe.steps
        self._family, self._wanted = self.columns.family.tolist(), self.columns.wants.tolist()
        self._starts, self._words = steps.starts, steps.words.tolist()
        self._forms = [None if kind.form is None or kind.form.is_view else kind.form for kind in steps.kinds]
        self._ways = {form: self._way(form) for form in self._forms if form is not None}
        self._ends = {number for number, kind in enumerate(steps.kinds) if isinstance(kind.op, LoopEnd)}
        self._some_steps(0, len(self._starts))
        self.blocks.finish(self.columns)

    def _some_steps(self, first: int, stop: int) -> None:
        """Add the pullbacks of the steps from ``first`` on, the last before ``stop`` at the beginning."""
        family, wanted, nodes = self._family, self._wanted, self.recipe.nodes
        starts, words, touched, copies = self._starts, self._words, self.touched, self.lowering.copies
        forms, ways, skipped = self._forms, self._ways, stop
        blocks, order, owners = self.blocks, self.blocks.order, self.blocks.steps
        for at in range(stop - 1, first - 1, -1):
            if at >= skipped:
                continue
            start = starts[at]
            form = forms[words[start]]
            if form is None or family[words[start + 1]] not in touched:
                if words[start] in self._ends:
                    skipped = self._loop(self.lowering.loops.ending_with(at))
                continue
            way = None if self.constant_buffers or at in copies else ways[form]
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
                owners.append(at)

    def _loop(self, loop: LoopTasks) -> int:
        """Add the pullbacks of a loop's bodies, which run as often as these did; return the loop's first step."""
        phis = [node for node in loop.phis if self._wanted[node]]
        if not any(self._family[node] in self.touched for node in phis):
            return loop.step
        self.blocks.flush()
        for node in {self._family[node]: node for node in (*phis, *self._reached(loop))}.values():
            self._ready(node, self.recipe.nodes[node].spec, covers=False)
        before, tasks = set(self.touched), self.tasks
        loop.back = len(tasks)
        self.lowering.loops.steer(loop, RUN_BACK)
        loop.choose = len(tasks)
        self.lowering.loops.steer(loop, RUN_CHOOSE)
        for number, body in enumerate(loop.bodies):
            body.restore = len(tasks)
            self.lowering.loops.steer(loop, RUN_RESTORE, number)
            self._carry_back(loop, body)
            self._some_steps(body.first, body.last)
            self.blocks.flush()
            self.touched &= before
            self.constant_buffers &= before
            body.before = len(tasks)
            self.lowering.loops.steer(loop, RUN_BEFORE, body.before - body.restore)
        loop.back_end = len(tasks)
        return loop.step

    def _reached(self, loop: LoopTasks) -> list[int]:
        """Return nodes from before a loop whose gradients its steps may add to."""
        words, made, read = self._words, set(), list[int]()
        for at in range(loop.step, loop.bodies[-1].last):
            start = self._starts[at]
            kind = self.recipe.steps.kinds[words[start]]
            if kind.form is not None and not kind.form.is_view:
                made.add(self._family[words[start + 1]])
                read += [n for n in words[start + HEAD : start + HEAD + kind.count] if n >= 0 and self._wanted[n]]
        return [node for node in read if self._family[node] not in made]

    def _carry_back(self, loop: LoopTasks, body: TaskBody) -> None:
        nodes = self.recipe.nodes
        pairs = zip(loop.phis, body.updates, strict=True)
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
        strides = self.recipe.nodes[kept].spec.strides
        target = KernelOperand("target", spec.dtype, 0, strides)
        loop = PrintedLoop(same, spec.shape, (target, KernelOperand("x", spec.dtype, 1, spec.gradient)), pullback=False)
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
        short = form.kind == PULLS and all(form.constant_result(i) == NEVER for i, _ in pulls)
        if not short or not {"y", "n", "i", *names}.issuperset(form.saved):
            return None
        made: dict[str, Source] = {"y": (RESULT, 0), "n": (EXTRA, 0), "i": (EXTRA, 0)}
        saved = [made.get(name) or (OPERAND, names.index(name)) for name in form.saved]
        ways = []
        for i, pull in pulls:
            places = [(OPERAND_GRADIENT, i), (RESULT_GRADIENT, 0), *saved]
            called = StepCalls([self.tasks.kernel(pull, len(places))], [True], places)
            ways.append((i, self.blocks.add(called), form.covers[i]))
        return ways

    def _apart(self, step: Step, form: Form) -> None:
        first = len(self.tasks)
        if form.kind == PYTHON:
            self._python(step, form)
        else:
            for name, node in self.lowering.copies.get(step.at, {}).items():
                form = restrided(form, form.saved.index(name), self.recipe.nodes[node].spec.strides)
            self._pull(step, form)
        self.apart.append((first, len(self.tasks), step.at))

    def _buffer_of(self, node: int) -> int:
        """Make room for a node's gradient; return the base that it belongs to."""
        base = self.recipe.family_of(node)
        self.buffers.setdefault(base, self.recipe.nodes[node].spec.buffer_size)
        return base

    def _fill(self, base: int, dtype: np.dtype[Any], value: float) -> None:
        self.tasks.append(ConstantFill(OperandPlace(base, gradient=True), self.buffers[base], dtype, value))
        self.touched.add(base)

    def _pull(self, step: Step, form: Form) -> None:
        """Add the pullbacks of one step, for the operands whose gradient is wanted; a write then clears its part."""
        base = self.recipe.family_of(step.result)
        cotangent = OperandPlace(base, gradient=True, offset=self.recipe.nodes[step.result].buffer_offset)
        saved = tuple([self._saved(step, form, name) for name in form.saved])
        if base in self.constant_buffers and not all(
            form.reads_constant(i) for i, pull in enumerate(form.pulls) if pull is not None
        ):
            self._write_out(base)
        for i, pull in enumerate(form.pulls):
            operand = step.operands[i]
            if pull is not None and isinstance(operand, NodeRef) and not (i == 0 and form.kind == CLEARS):
                self._contribute(step, form, i, (cotangent, *saved))
        if form.kind == CLEARS and form.pulls[0] is not None:
            self.tasks.append(KernelCall(form.pulls[0], (cotangent, cotangent, *saved)))

    def _python(self, step: Step, form: Form) -> None:
        if (base := self.recipe.family_of(step.result)) in self.constant_buffers:
            self._write_out(base)
        (call,), at = form.params, step.at
        names = form.saved[1:]
        kept = [self._saved(step, form, name).node for name in names]
        wanted = [
            i
            for i, (operand, spec) in enumerate(zip(step.operands, form.specs, strict=True))
            if spec is not None and isinstance(operand, NodeRef) and self.recipe.wants(operand.node)
        ]
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
        places = tuple(
            OperandPlace(self.recipe.family_of(n), gradient=True) if gradient else OperandPlace(n)
            for n, gradient in nodes
        )
        self.tasks.append(PythonCall(run, nodes, places))

    def _ready(self, node: int, spec: Any, covers: bool) -> bool:
        """Make a gradient ready to be added to; whether it may be stored: nothing has been contributed yet."""
        base = self._buffer_of(node)
        first = base not in self.touched
        if base in self.constant_buffers:
            self._write_out(base)
        if first and not covers:
            self._fill(base, spec.dtype, -0.0)
        self.touched.add(base)
        return first and bool(covers)

    def _contribute(self, step: Step, form: Form, i: int, reads: tuple[OperandPlace, ...]) -> None:
        """Add one pullback, stored where it is the first to reach all of its target: whole, or one number."""
        operand, spec, pull = step.operands[i], form.specs[i], form.pulls[i]
        assert isinstance(operand, NodeRef)
        assert spec is not None
        if not self.recipe.wants(operand.node):
            return
        base = self._buffer_of(operand.node)
        is_constant = self.recipe.family_of(step.result) in self.constant_buffers
        node = self.recipe.nodes[base]  # a gradient that is a result of the program is no intermediate
        seen = base in self.touched or node.argument or node.constant is not None
        constant = not seen and form.constant_result(i) >= (IF_INPUT_IS if is_constant else ALWAYS)
        stored = self._ready(operand.node, spec, form.covers[i])
        if constant:
            pull = loop_printer.computing_constant(pull)
            self.constant_buffers.add(base)
        elif is_constant:
            pull = loop_printer.reading_constant(pull)
        target = OperandPlace(base, gradient=True, offset=self.recipe.nodes[operand.node].buffer_offset)
        self.tasks.append(KernelCall(pull, (target, *reads), not stored))

    def _write_out(self, base: int) -> None:
        """Write out a constant gradient: give every element the number that the first one holds."""
        dtype, place = self.recipe.nodes[base].spec.dtype, OperandPlace(base, gradient=True)
        operands = (KernelOperand("target", dtype, 0, (dtype.itemsize,)), KernelOperand("x", dtype, 1, (0,)))
        loop = PrintedLoop(same, (self.buffers[base],), operands, pullback=False)
        self.tasks.append(KernelCall(loop, (place, place)))
        self.constant_buffers.discard(base)

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
