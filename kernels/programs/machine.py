"""Replay: a recipe lowered to rows of words, each machine with memory of its own; native from first row to last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, dense, intern_spec
from kernels.kinds import routine
from kernels.kinds.routine import Guard
from kernels.language import jit
from kernels.native import structs
from kernels.native.memory import where
from kernels.native.structs import MOST_RESULTS, ROW, WORK_BETWEEN_CHECKS, LoopStack, ProgramRow
from kernels.programs.assembly import KernelRows, ProgramMemory, ProgramPlan, block
from kernels.programs.lowering import ForwardLowering, Reverse
from kernels.programs.program import Exchange, ProgramError, ProgramNode, Recipe

_WIDTH = 8 * ROW  # bytes of a row
_FIRST_STACK = 1 << 9  # words that the iterations of loops may save at first
_LARGEST_STACK = 1 << 16  # words of the stack that a machine keeps when it has run
_MOST_STRETCHES = 2  # that run in one native call
_LONG = 10_000
"""Elements that a program computes, from which on other threads may run Python meanwhile: some ten microseconds."""


def plan(recipe: Recipe, *, reverse: bool, cotangents: Mapping[int, int] | None = None) -> ProgramPlan:
    """Lower a recipe; its reverse starts from the first output, if that is one floating element.

    Or, with ``cotangents``, if any, from outputs, by their numbers, whose cotangents are arguments, by theirs.
    """
    pairs = [(recipe.outputs[k], recipe.arguments[i]) for k, i in (cotangents or {}).items()]
    starts = reverse and not pairs and recipe.wants(recipe.outputs[0])
    recipe = recipe.copy()
    lowering = ForwardLowering(recipe, reverse=reverse)
    forward, loops, back = len(lowering.run()), lowering.loops, Reverse(recipe, lowering)
    if starts or pairs:
        back.run(recipe.outputs[0] if starts else None, pairs)
    loops.finish()
    return ProgramPlan(recipe, lowering.tasks, forward, back.buffers, reverse, loops=loops.all, stack=loops.stack)


def pullback_recipe(recipe: Recipe) -> tuple[Recipe, dict[int, int]]:
    """Return a recipe with dense cotangents of the results that have a gradient as further arguments.

    And, by the numbers of these results, the numbers of these arguments.
    """
    copied, cotangents = replace(recipe.copy(), arguments=[*recipe.arguments]), dict[int, int]()
    for k, output in enumerate(recipe.outputs):
        if copied.wants(output):
            spec, cotangents[k] = copied.nodes[output].spec, len(copied.arguments)
            strides = dense(spec.shape, spec.dtype.itemsize)
            copied.arguments.append(len(copied.nodes))
            copied.nodes.append(
                ProgramNode(intern_spec(spec.shape, strides, spec.dtype, strides, spec.size), argument=True)
            )
    return copied, cotangents


def pullback_plan(recipe: Recipe, *, results: bool = False) -> ProgramPlan:
    """Lower a recipe and its reverse, which starts from cotangents: see :func:`pullback_recipe`."""
    copied, cotangents = pullback_recipe(recipe)
    made = plan(copied, reverse=True, cotangents=cotangents)
    made.recipe.outputs = copied.outputs if results else []
    return made


class GuardMissed(ProgramError):  # noqa: N818 (no error where there is another program, or the function)
    """A guard found another value (its bytes) than recorded; nothing outside of the program's memory has changed."""

    def __init__(self, number: int, value: bytes, line: str) -> None:
        super().__init__(f"at {line} another value leaves for Python than when the program was recorded")
        self.number, self.value = number, value


class Machine:
    """A plan with memory and rows of its own: runs one call at a time. The plan is not kept.

    ``exactly``: :meth:`whole` takes floats and C-contiguous arrays only, where others also ints and any layout.
    ``marks``: -0.0 marks, in gradients, what nothing reached.
    """

    call = 1e-6  # seconds that a call takes beside what is computed, about

    def __init__(self, plan: ProgramPlan, *, exactly: bool = False, marks: bool = False) -> None:
        self.exactly, self.marks = exactly, marks
        self.may_fail = any(isinstance(kind.op, routine.Custom) for kind in plan.recipe.steps.kinds)
        self.native = jit.load_module("programs.replay_native").run.entry_point
        placing = ProgramMemory(plan)
        self.memory, self.start, self.size = placing.memory, placing.start, placing.size
        self.contexts = placing.contexts
        self.rows = placing.rows(plan.forward)
        nodes = plan.recipe.nodes
        self.inputs = [placing.view(i) for i in plan.recipe.arguments]
        self.outputs = [placing.view(i) for i in plan.recipe.outputs]
        graded = [i for i in plan.recipe.arguments if nodes[i].differentiable and plan.differentiates]
        self.gradients = [
            placing.view(i, gradient=True) if i in plan.buffers else np.zeros_like(placing.view(i)) for i in graded
        ]
        self.shared = placing.view(plan.stack) if plan.loops else None  # what loops know of the stack
        self._open()
        steps = plan.recipe.steps
        self.guards = [steps[at].params[0] for at in steps.of_kind(Guard)]  # the line of each guard
        constants = [node.constant for node in nodes if node.constant is not None and node.constant.ndim]
        self.kept = [placing.layouts, constants]

    def copy(self) -> Machine:
        """Return another with memory of its own, for a call while this one runs: it needs no plan."""
        clone: Machine = copy(self)
        clone.contexts = {}
        clone.memory, clone.start = block(self.size)
        first, start = self.start - where(self.memory), clone.start - where(clone.memory)
        clone.memory[start : start + self.size] = self.memory[first : first + self.size]  # constants are in it
        clone.inputs, clone.outputs, clone.gradients = (
            [self._moved(x, clone) for x in group] for group in (self.inputs, self.outputs, self.gradients)
        )
        clone.shared = None if self.shared is None else self._moved(self.shared, clone)
        clone.rows = self._moved_rows(clone)
        clone._open()
        return clone

    def _open(self) -> None:
        """Set up the exchange of arguments and results; where there is little work, all rows run in one native call."""
        rows, releases = self.rows, self.rows.work >= _LONG
        simple = len(rows.stretches) <= _MOST_STRETCHES and not self.may_fail
        whole = (rows.start, len(rows.words), releases) if simple else None
        if self.shared is not None:
            self.stack = np.empty(_FIRST_STACK, np.int64)
            self.shared[:] = where(self.stack), len(self.stack), 0, WORK_BETWEEN_CHECKS, 0
        results, gradients = self.outputs, self.gradients
        if self.marks:
            results, gradients = [*results, *gradients], []
        self.exchange = Exchange(self.inputs, results, gradients, whole, exactly=self.exactly)
        self.is_one_run = self.exchange.whole is not None and self.shared is None and not rows.calls
        """Whether a call is one run of its rows, between which Python does nothing."""

    def _moved(self, array: Array, clone: Machine) -> Array:
        """Return the array at the same place in a clone's memory; arrays outside this machine's memory as they are."""
        if not array.size or not self.start <= where(array) < self.start + self.size:
            return array
        at = where(array) - self.start + clone.start - where(clone.memory)
        return np.ndarray(array.shape, array.dtype, clone.memory, at, array.strides)

    def _moved_rows(self, clone: Machine) -> KernelRows:
        rows = self.rows
        moved, pointers = rows.words.copy(), rows.pointers.copy()
        for addresses in (moved[:, ProgramRow.address], pointers):  # addresses of kernels are out of this range
            addresses[(addresses >= self.start) & (addresses <= self.start + self.size)] += clone.start - self.start
        moved[:, ProgramRow.pointers] += where(pointers) - where(rows.pointers)
        moved[moved[:, ProgramRow.kind] == structs.RUN_INLINE, ProgramRow.data] = clone.start
        calls = {
            k: partial(call.func, [self._moved(x, clone) for x in call.args[0]], clone.contexts)
            for k, call in rows.calls.items()
        }
        return replace(rows, words=moved, pointers=pointers, calls=calls)

    def run(self, values: Iterable[Any] | None = None) -> None:
        """Run on values, or those that are in ``inputs``; :class:`GuardMissed` where a guard stops it."""
        if values is not None:
            _put(self, values)
        self.contexts.clear()
        for first, stop in self.rows.stretches:  # between them Python can take an interrupt
            self.through(first, stop)
            if routine.RUNNING:
                routine.check_failed()
        self._shrink()

    def through(self, first: int, stop: int) -> None:
        """Run rows from one to another."""
        self._resumed(self.native(self.rows.start, first, stop), stop)

    def _resumed(self, came_to: int, stop: int) -> None:
        """Go on where native code has paused: Python runs what it has to, takes interrupts, and gives loops room."""
        calls = self.rows.calls
        while came_to < -1:
            at = -2 - came_to
            if self.shared is not None and self.shared[LoopStack.needed]:
                before = self.stack
                self._put_stack(np.empty(2 * len(before) + int(self.shared[LoopStack.needed]), np.int64))
                self.stack[: len(before)] = before
            elif at in calls:
                calls[at]()
                at += 1
            came_to = self.native(self.rows.start, at, stop)
        if came_to >= 0:
            raise self.missed(came_to)

    def _shrink(self) -> None:
        if self.shared is not None and len(self.stack) > _LARGEST_STACK:
            self._put_stack(np.empty(_FIRST_STACK, np.int64))

    def _put_stack(self, stack: Array) -> None:
        assert self.shared is not None
        for place, value in ((LoopStack.stack, where(stack)), (LoopStack.room, len(stack)), (LoopStack.needed, 0)):
            self.shared[place] = value
        self.stack = stack

    def missed(self, row: int) -> GuardMissed:
        """Return which guard stopped the program, and the value that it found."""
        rows, pointers = self.rows.words, self.rows.pointers
        number = int(np.count_nonzero(rows[:row, ProgramRow.kind] == structs.RUN_GUARD))
        if rows[row, ProgramRow.kind] != structs.RUN_GUARD:
            return GuardMissed(-1, b"", "the begin of a loop")
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
            self._resumed(results, len(self.rows.words))
            self._shrink()
            return self.exchange.leave()
        if not self.exchange.enter(*args):
            return None
        self.run()
        return self.exchange.leave()


_MOST_KEPT = 1 << 16  # bytes that a replay keeps: where it needs more, its forward runs again on the way back


class KeptReplay:
    """Machines of a program that runs forward now and back in a later sweep, from a copy of their memory.

    Only for what :func:`kept_replay` finds fit for it. ``graded`` are the numbers of the arguments that have a
    gradient.
    """

    def __init__(self, machine: Machine, count: int, graded: Sequence[int]) -> None:
        self.graded, self._count, self._back = graded, count, machine
        self._free: list[Machine] = []

    def forward(self, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the results of a replay on leaves, then its memory as words, the last 0; None as :meth:`whole`."""
        try:
            machine = self._free.pop()
        except IndexError:
            machine = self.machine()
        try:
            return machine.whole(values)
        finally:
            self._free.append(machine)

    def machine(self) -> Machine:
        """Return a machine that runs forward, and gives its memory as one more result."""
        machine = self._back.copy()
        first = machine.start - where(machine.memory)
        memory = machine.memory[first : first + machine.size + 8].view(np.int64)
        rows = (machine.rows.start, machine.rows.forward, False)
        inputs, outputs = machine.inputs[: self._count], [*machine.outputs, memory]
        machine.exchange = Exchange(inputs, outputs, [], rows, exactly=True)
        return machine

    def table(self, tensors: Sequence[int], slots: Sequence[int], reached: Sequence[frozenset[int]]) -> Array:
        """Return what a sweep runs the program back by: see kernels/native/structs.py.

        ``tensors`` are the numbers of the arguments that are operands, ``slots`` how far the slot of each result with a
        gradient is from that of the call, ``reached`` the arguments that each of these depends on.
        """
        back, rows = self._back, self._back.rows
        first, count = rows.start + _WIDTH * rows.forward, len(rows.words) - rows.forward
        words = [back.start, back.size, first, count, rows.work_back, len(slots)]
        for slot, cotangent in zip(slots, back.inputs[self._count :], strict=True):
            words += [slot, where(cotangent), cotangent.size, cotangent.itemsize]
        gradients = dict(zip(self.graded, back.gradients, strict=False))
        for i in tensors:
            reaches = sum(1 << k for k, arguments in enumerate(reached) if i in arguments)
            gradient = gradients.get(i)
            words += [0, 0, 0] if gradient is None else [where(gradient), gradient.size, reaches]
        return np.array(words, np.int64)


def kept_replay(recipe: Recipe, graded: Sequence[int]) -> KeptReplay | None:
    """Return it for a program that is small, has results with a gradient, and runs natively throughout."""
    with_gradient = list(filter(recipe.wants, recipe.outputs))
    least = sum(node.spec.bytes for node in recipe.nodes if node.base is None and not node.argument)
    if not 0 < len(with_gradient) <= MOST_RESULTS or least > _MOST_KEPT:
        return None
    machine = Machine(pullback_plan(recipe, results=True), exactly=True, marks=True)
    is_small = machine.is_one_run and machine.rows.work < _LONG and machine.size <= _MOST_KEPT
    fits = is_small and all(g.flags.c_contiguous for g in machine.gradients)
    return KeptReplay(machine, len(recipe.arguments), graded) if fits else None


_LEAST_TIMED, _MOST_TIMED = 3, 100  # repetitions
_ENOUGH = 500_000_000  # nanoseconds after which no more are begun
_LOOKS = 1000


@dataclass(slots=True)
class CallTimes:
    """What each call of a program took. The results are those of the last repetition."""

    steps: Array  # the operations that calls belong to
    nanoseconds: Array  # the least of all repetitions, without the clock's
    bytes: Array  # of the values and gradients that calls name
    forward: int  # how many calls compute results; the others gradients
    whole: int  # the time of all, run as usual
    repetitions: int
    outputs: list[Array]
    gradients: list[Array]


def call_times(recipe: Recipe, values: Sequence[Any], *, reverse: bool) -> CallTimes:
    """Run a program on these values, as the arguments of a machine, and return the times of its calls."""
    made = plan(recipe, reverse=reverse)
    machine = Machine(made)
    machine.run(values)  # for the first time, pages are touched
    least, whole, repetitions, begin = _apart(machine, values), _usual(machine, values), 1, perf_counter_ns()
    while repetitions < _MOST_TIMED and (repetitions < _LEAST_TIMED or perf_counter_ns() - begin < _ENOUGH):
        whole = min(whole, _usual(machine, values))
        least = np.minimum(least, _apart(machine, values))
        repetitions += 1
    rows = machine.rows.words
    inline = rows[:, ProgramRow.kind] == structs.RUN_INLINE
    tasks = np.where(inline, rows[:, ProgramRow.operands], 1)
    times = np.repeat(np.maximum(least - _clock(machine), 0) / tasks, tasks)
    assert len(times) == len(made.tasks), "the rows of a machine are those of its plan"
    outputs, gradients = ([np.array(x, order="C") for x in group] for group in (machine.outputs, machine.gradients))
    steps = np.array(made.tasks.steps, np.int64)
    return CallTimes(steps, times, _bytes(made), made.forward, whole, repetitions, outputs, gradients)


def _usual(machine: Machine, values: Sequence[Any]) -> int:
    """Run all rows as a call does; return the nanoseconds."""
    _put(machine, values)
    begin = perf_counter_ns()
    machine.run()
    return perf_counter_ns() - begin


def _apart(machine: Machine, values: Sequence[Any]) -> Array:
    """Run each row by itself; return the nanoseconds of each."""
    _put(machine, values)
    rows, native, now, times = machine.rows, machine.native, perf_counter_ns, list[int]()
    kinds, ahead = rows.words[:, ProgramRow.kind], rows.words[:, ProgramRow.address]
    ends = {int(k): int(k + ahead[k]) for k in np.flatnonzero(kinds == structs.RUN_LOOP)}
    ends |= {int(k): int(k + 1 + ahead[k + 1]) for k in np.flatnonzero(kinds == structs.RUN_BACK)}
    for k in range(len(rows.words)):
        if k < len(times):
            continue
        if k in ends:  # a loop is one call
            begin = now()
            machine.through(k, ends[k])
            times += [now() - begin] + [0] * (ends[k] - k - 1)
            continue
        address, call = rows.start + _WIDTH * k, rows.calls.get(k)
        begin = now()
        missed = native(address, 0, 1)
        if call is not None:
            call()
        times.append(now() - begin)
        if missed >= 0:
            raise machine.missed(k)
    if routine.RUNNING:
        routine.check_failed()
    return np.array(times, np.float64)


def _put(machine: Machine, values: Iterable[Any]) -> None:
    for place, value in zip(machine.inputs, values, strict=True):
        place[...] = value


def _clock(machine: Machine) -> int:
    """Return the nanoseconds that are measured where nothing runs."""
    native, now, start, call, times = machine.native, perf_counter_ns, machine.rows.start, None, []
    for _ in range(_LOOKS):
        begin = now()
        native(start, 0, 0)
        if call is not None:
            call()
        times.append(now() - begin)
    return sorted(times)[_LOOKS // 2]


def _bytes(plan: ProgramPlan) -> Array:
    """Return the bytes of the values, and of the gradient buffers, that each task names."""
    nodes, tasks = plan.recipe.nodes, plan.tasks
    places = np.array(tasks.places, np.int64)
    values = np.array([node.spec.size * node.spec.dtype.itemsize for node in nodes], np.int64)
    buffers = np.array([plan.buffers.get(i, 0) * node.spec.dtype.itemsize for i, node in enumerate(nodes)], np.int64)
    sizes = np.where(places < 0, buffers[~places], values[places]) if len(nodes) else places
    counts = np.array(tasks.counts, np.int64)[np.array(tasks.call_numbers, np.int64)]
    ends = np.concatenate([[0], sizes.cumsum()])
    stops = counts.cumsum()
    return np.asarray(ends[stops] - ends[stops - counts])


# How many calls the interpreter makes while a program is compiled.

MEANWHILE = 2  # times the calls until a program is compiled that go on while a thread compiles it, at least
_ROW, _ELEMENT, _CALLED = 12e-9, 0.4e-9, 30e-6
"""Seconds of a row of the interpreter, of an element that it computes, and of what Python runs for it, about."""
_ITERATIONS = 20  # of a recorded loop, whose number is not known, about
_ROLL_ROW = 15e-6  # seconds that it takes to find out whether a row repeats, about
_COMPILE, _COMPILE_ROW, _MOST_ROWS = 30e-3, 150e-6, 2_000
"""Seconds that compiling takes at least, and for a row, of so many: what repeats is compiled once."""


def calls_until_compiled(machine: Machine) -> int:
    """Return after how many calls the interpreter has taken as long as compiling would, about."""
    return max(calls_in(_COMPILE + _COMPILE_ROW * min(len(machine.rows.words), _MOST_ROWS), machine), 3)


def calls_meanwhile(machine: Machine) -> int:
    """Return how many calls go on beside the compiler until it says how long it takes, about."""
    return MEANWHILE * calls_until_compiled(machine) + calls_in(_ROLL_ROW * len(machine.rows.words), machine)


def calls_in(seconds: float, machine: Machine) -> int:
    """Return how many calls the interpreter does in a time, about."""
    times = 1 if machine.shared is None else _ITERATIONS
    rows = times * len(machine.rows.words)
    elements = times * machine.rows.work
    called = _CALLED * times * len(machine.rows.calls)
    return int(seconds / (_ROW * rows + _ELEMENT * elements + called + machine.call))


def dynamic_calls_in(seconds: float, recipe: Recipe) -> int:
    """Return how many calls dynamic mode does of a program in a time, about."""
    steps = recipe.steps
    sizes = np.zeros(len(steps.kinds))
    for step in map(steps.raw, range(min(len(steps), _LOOKED_AT))):
        sizes[step.kind] = recipe.nodes[step.result].spec.size
    elements = float(sizes[np.array(steps.each(range(len(steps.kinds))), np.int64)].sum())
    return int(seconds / ((_STEP * len(steps) + _STEP_ELEMENT * elements) * recipe.length / len(steps) + 1e-6))


def calls_analysed(recipe: Recipe) -> int:
    """Return how many calls go on in dynamic mode until the compiler says how long it takes, about."""
    return dynamic_calls_in(_COMPILE + _FOUND_ROW * len(recipe.steps), recipe) + MEANWHILE


LONG = 2_000
"""Steps from which on a program has no rows before there is machine code: laying them out takes many calls."""
_STEP, _STEP_ELEMENT = 0.5e-6, 2e-9  # seconds of a step in dynamic mode, forward and back, and of an element, about
_FOUND_ROW = 3e-6  # seconds that it takes the compiler to find loops among so many steps, for each, about
_LOOKED_AT = 1 << 14  # steps that are looked at for how large results are
