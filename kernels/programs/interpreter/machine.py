"""Replay: a recipe lowered to rows of words, each machine with memory of its own; native from first row to last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernels.arrays.specs import dense, intern_spec
from kernels.compiler import jit
from kernels.kinds import custom
from kernels.kinds.guard import Guard
from kernels.native.memory import where
from kernels.native.tape_structs import ROW, RUN_GUARD, RUN_INLINE, WORK_BETWEEN_CHECKS, LoopStack, ProgramRow
from kernels.programs.lowering.assembly import Placing, Plan, Rows, block
from kernels.programs.lowering.lower_forward import Lowering
from kernels.programs.lowering.lower_reverse import Reverse
from kernels.programs.recording.program import Node, ProgramError, Recipe
from kernels.programs.running.exchange import Exchange, native

Array = np.ndarray[Any, Any]
_WIDTH = 8 * ROW
"""Bytes of a row."""
_FIRST_STACK = 1 << 9
"""Words that the iterations of loops may save at first."""
_LARGEST_STACK = 1 << 16
"""Words of the stack that a machine keeps when it has run."""
_LONG = 10_000
"""Elements that a program computes, from which on other threads may run Python meanwhile: some ten microseconds."""


def plan(recipe: Recipe, *, reverse: bool) -> Plan:
    """Lower a recipe; its reverse starts from the first output, if that is one floating element."""
    return lowered(recipe, reverse=reverse)[0]


def lowered(recipe: Recipe, *, reverse: bool) -> tuple[Plan, Lowering, Reverse]:
    """Return the plan of a recipe, and what made it."""
    copied = recipe.copy()
    lowering = Lowering(copied, reverse=reverse)
    tasks = lowering.run()
    forward, back = len(tasks), Reverse(copied, lowering)
    if reverse and copied.wants(copied.outputs[0]):
        back.run(copied.outputs[0])
    return _planned(lowering, back, forward, differentiates=reverse), lowering, back


def _planned(lowering: Lowering, back: Reverse, forward: int, *, differentiates: bool) -> Plan:
    loops = lowering.loops
    loops.finish()
    buffers = back.buffers
    return Plan(lowering.recipe, lowering.tasks, forward, buffers, differentiates, loops=loops.all, stack=loops.stack)


def pullback_plan(recipe: Recipe, *, results: bool = False) -> Plan:
    """Lower a recipe and its reverse, from cotangents of its results, which are further arguments.

    It has no results, unless they are asked for. Cotangents are those of the results that have a gradient, each dense.
    """
    copied = replace(recipe.copy(), arguments=[*recipe.arguments], outputs=[*recipe.outputs] if results else [])
    pairs = []
    for output in recipe.outputs:
        if copied.wants(output):
            spec = copied.nodes[output].spec
            strides = dense(spec.shape, spec.dtype.itemsize)
            copied.nodes.append(Node(intern_spec(spec.shape, strides, spec.dtype, strides, spec.size), argument=True))
            copied.arguments.append(len(copied.nodes) - 1)
            pairs.append((output, len(copied.nodes) - 1))
    lowering = Lowering(copied)
    tasks = lowering.run()
    forward, back = len(tasks), Reverse(copied, lowering)
    back.run_from(pairs)
    return _planned(lowering, back, forward, differentiates=True)


class GuardMissed(ProgramError):  # noqa: N818 (no error where there is another program, or the function)
    """A guard found another value than the recorded one: its number among the program's guards, and the value's bytes.

    The results of the program are not there, and nothing outside of its memory has changed.
    """

    def __init__(self, number: int, value: bytes, line: str) -> None:
        super().__init__(f"at {line} another value leaves for Python than when the program was recorded")
        self.number, self.value = number, value


class Machine:
    """A plan with memory and rows of its own: runs one call at a time. The plan is not kept.

    ``exactly``: :meth:`whole` takes floats and C-contiguous arrays only, where others also ints and any layout.
    ``marks``: it returns gradients alone, in which -0.0 marks what nothing reached.
    """

    def __init__(self, plan: Plan, *, exactly: bool = False, marks: bool = False) -> None:
        self.exactly, self.marks = exactly, marks
        self.native = jit.load_module("programs.running.replay_native").run.entry_point
        placing = Placing(plan)
        self.memory, self.start, self.size = placing.memory, placing.start, placing.size
        self.contexts = placing.contexts
        self.forward, self.reverse = placing.rows(plan.forward)
        nodes = plan.recipe.nodes
        self.inputs = [placing.view(i) for i in plan.recipe.arguments]
        self.outputs = [placing.view(i) for i in plan.recipe.outputs]
        self.gradients = [
            placing.view(i, gradient=True) if i in plan.buffers else np.zeros_like(placing.view(i))
            for i in plan.recipe.arguments
            if nodes[i].differentiable and plan.differentiates
        ]
        self.shared = placing.view(plan.stack) if plan.loops else None
        """What loops know of the stack."""
        self._open()
        steps = plan.recipe.steps
        self.guards = [steps[at].params[0] for at in steps.of_kind(Guard)]
        """The line of each guard."""
        constants = [node.constant for node in nodes if node.constant is not None and node.constant.ndim]
        self.kept = [plan.compiled, placing.layouts, constants]

    def copy(self) -> Machine:
        """Return another with memory of its own, for a call while this one runs: it needs no plan."""
        clone: Machine = object.__new__(Machine)
        clone.native, clone.kept, clone.size = self.native, self.kept, self.size
        clone.guards, clone.contexts = self.guards, {}
        clone.exactly, clone.marks = self.exactly, self.marks
        clone.memory, clone.start = block(self.size)
        first, start = self.start - where(self.memory), clone.start - where(clone.memory)
        clone.memory[start : start + self.size] = self.memory[first : first + self.size]  # constants are in it
        clone.inputs, clone.outputs, clone.gradients = (
            [self._moved(x, clone) for x in group] for group in (self.inputs, self.outputs, self.gradients)
        )
        clone.shared = None if self.shared is None else self._moved(self.shared, clone)
        clone.forward, clone.reverse = self._moved_rows(self.forward, clone), self._moved_rows(self.reverse, clone)
        clone._open()
        return clone

    def _open(self) -> None:
        """Set up the exchange of arguments and results; where there is little work, all rows run in one native call."""
        rows = [self.forward, self.reverse]
        joined = np.concatenate([row_set.words for row_set in rows])
        begin = 0
        for row_set in rows:
            row_set.words = joined[begin : begin + len(row_set.words)]
            row_set.start = where(row_set.words)
            begin += len(row_set.words)
        releases = sum(row_set.work for row_set in rows) >= _LONG
        simple = all(len(row_set.stretches) <= 1 for row_set in rows) and not custom.RUNNING
        whole = (where(joined), len(joined), releases) if simple else None
        behind = {len(self.forward.words) + k: call for k, call in self.reverse.calls.items()}
        self._joined = where(joined), len(joined), self.forward.calls | behind
        if self.shared is not None:
            self.stack = np.empty(_FIRST_STACK, np.int64)
            self.shared[:] = where(self.stack), len(self.stack), 0, WORK_BETWEEN_CHECKS, 0
        self.is_short = simple and not releases and self.shared is None and not self._joined[2] and native()
        """Whether it runs natively throughout, in so little time that other threads can wait."""
        results, gradients = (self.outputs, self.gradients) if not self.marks else (self.gradients, [])
        self.exchange = Exchange(self.inputs, results, gradients, whole, exactly=self.exactly)

    def _moved(self, array: Array, clone: Machine) -> Array:
        """Return the array at the same place in a clone's memory; arrays outside this machine's memory as they are."""
        if not array.size or not self.start <= where(array) < self.start + self.size:
            return array
        at = where(array) - self.start + clone.start - where(clone.memory)
        return np.ndarray(array.shape, array.dtype, clone.memory, at, array.strides)

    def _moved_rows(self, rows: Rows, clone: Machine) -> Rows:
        moved, pointers = rows.words.copy(), rows.pointers.copy()
        for addresses in (moved[:, ProgramRow.address], pointers):  # addresses of kernels are out of this range
            addresses[(addresses >= self.start) & (addresses <= self.start + self.size)] += clone.start - self.start
        moved[:, ProgramRow.pointers] += where(pointers) - where(rows.pointers)
        moved[moved[:, ProgramRow.kind] == RUN_INLINE, ProgramRow.data] = clone.start
        calls = {
            k: partial(call.func, [self._moved(x, clone) for x in call.args[0]], clone.contexts)
            for k, call in rows.calls.items()
        }
        return Rows(moved, pointers, rows.stretches, calls, rows.work)

    def run(self, rows: Rows) -> None:
        """Run rows of the native program; :class:`GuardMissed` where a guard stops it."""
        if rows is self.forward:
            self.contexts.clear()
        for first, stop in rows.stretches:  # between them Python can take an interrupt
            self.through(rows, first, stop)
        if rows is self.reverse:
            self._shrink()
        if custom.RUNNING:
            custom.check_failed()

    def through(self, rows: Rows, first: int, stop: int) -> None:
        """Run rows from one to another."""
        self._resumed(self.native(rows.start, first, stop), rows.start, stop, rows.calls)

    def _resumed(self, came_to: int, rows: int, stop: int, calls: dict[int, partial[None]]) -> None:
        """Go on where native code has paused: Python runs what it has to, takes interrupts, and gives loops room."""
        while came_to < -1:
            at = -2 - came_to
            if self.shared is not None and self.shared[LoopStack.needed]:
                self._enlarge(int(self.shared[LoopStack.needed]))
            elif at in calls:
                calls[at]()
                at += 1
            came_to = self.native(rows, at, stop)
        if came_to >= 0:
            raise self.missed(came_to)

    def _enlarge(self, size: int) -> None:
        """Give the stack room for so many more words, at least."""
        before = self.stack
        self._put_stack(np.empty(2 * len(before) + size, np.int64))
        self.stack[: len(before)] = before

    def _shrink(self) -> None:
        """Give back a large stack."""
        if self.shared is not None and len(self.stack) > _LARGEST_STACK:
            self._put_stack(np.empty(_FIRST_STACK, np.int64))

    def _put_stack(self, stack: Array) -> None:
        assert self.shared is not None
        for place, value in ((LoopStack.stack, where(stack)), (LoopStack.room, len(stack)), (LoopStack.needed, 0)):
            self.shared[place] = value
        self.stack = stack

    def missed(self, row: int) -> GuardMissed:
        """Return which guard stopped the program, and the value that it found."""
        rows = self.forward.words
        number = int(np.count_nonzero(rows[:row, ProgramRow.kind] == RUN_GUARD))
        if rows[row, ProgramRow.kind] != RUN_GUARD:
            return GuardMissed(-1, b"", "the begin of a loop")
        pointers = self.forward.pointers
        value = int(pointers[(int(rows[row, ProgramRow.pointers]) - where(pointers)) // 8]) - where(self.memory)
        bits = self.memory[value : value + int(rows[row, ProgramRow.operands])].tobytes()
        return GuardMissed(number, bits, self.guards[number])

    def whole(self, args: Sequence[Any]) -> tuple[Any, ...] | None:
        """Run on floats and arrays as they were recorded; return results and gradients, None for other arguments."""
        if self.exchange.whole is not None:
            results = self.exchange.whole(*args)
            if type(results) is not int:
                return results  # type: ignore[no-any-return]
            if results > 0:
                raise self.missed(results - 1)
            if results == 0:
                return None
            self.contexts.clear()
            self._resumed(results, *self._joined)
            self._shrink()
            return self.exchange.leave()
        if not self.exchange.enter(*args):
            return None
        self.run(self.forward)
        self.run(self.reverse)
        return self.exchange.leave()
