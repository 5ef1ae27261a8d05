"""Calls of compiled functions that need no Python: plans, by which native code sees that a program holds, and runs it.

A plan holds what :class:`CompiledFunction` looks at before a replay: the mode, what is outside, the arguments, and how
many calls there are until one is checked. Whatever a plan does not take, Python answers as without one.
"""

from __future__ import annotations

import itertools

import numpy as np

from kernels.foundation.locks import Lock
from kernels.native.memory import where
from kernels.programs.calling.callable_type import DirectlyCalled
from kernels.programs.calling.compiled_machine import CompiledMachine, Form
from kernels.programs.calling.direct_call_structs import FLAT, SINGLE, CallPlan
from tape.compiled.call_shape import CallShape
from tape.compiled.checking.native_checks import Checks
from tape.compiled.compiled_program import CompiledProgram
from tape.compiled.native_structures import Steps
from tape.compiled.specialization import Specialization
from tape.foundation.dtypes import DEFAULT
from tape.tensors import modes

MOST_PLANS = 4
"""Plans of a function that native code tries, one after the other."""
_FEW = 3
"""Pairs of arguments that are compared at each call, without a look whether they are those of the last one."""
_MOST_TIMES = 8
"""How many times a plan is made for one program: its watches may be others than native code can see."""
_NAME = next(name for name in DEFAULT if name == "dtype")


class Plan:
    """The plan of a program, with all that its words refer to."""

    def __init__(self, program: CompiledProgram, machine: CompiledMachine, checks: Checks, steps: Steps | None) -> None:
        self.program, self.machine, self.checks = program, machine, checks
        self.misses, self.rest = np.zeros(len(program.lines) + 1, np.int64), checks.rest
        self.mode, self.dtype = program.mode, program.dtype
        head = [0] * CallPlan.SIZE
        assert machine.words is not None
        head[CallPlan.machine], head[CallPlan.misses] = where(machine.words), where(self.misses)
        head[CallPlan.variable], head[CallPlan.mode] = id(modes._mode), id(self.mode)
        head[CallPlan.defaults], head[CallPlan.name], head[CallPlan.dtype] = id(DEFAULT), id(_NAME), id(self.dtype)
        head[CallPlan.rest], head[CallPlan.true] = 0 if self.rest is None else id(self.rest), id(True)
        self.steps, head[CallPlan.checks] = steps, len(checks.checks)
        self._steps = np.array([0] if steps is None else steps.words, np.int64)
        head[CallPlan.argument_count], head[CallPlan.steps] = 0 if steps is None else steps.count, where(self._steps)
        self._strangers = program.strangers
        pairs = [*program.alike, *[(i, id(x)) for i, x in self._strangers]]
        self._pairs = np.array(pairs or [(0, 0)], np.int64)
        head[CallPlan.count], head[CallPlan.pairs] = len(pairs), where(self._pairs)
        alike = {*itertools.chain(*program.alike), *[i for i, _ in self._strangers]} if len(pairs) > _FEW else ()
        self._places = np.array(sorted(alike), np.int64)
        self._seen = np.zeros(len(self._places), np.int64)
        head[CallPlan.alike], head[CallPlan.places], head[CallPlan.seen] = (
            len(self._seen),
            where(self._places),
            where(self._seen),
        )
        self.words = np.array([*head, *[word for check in checks.checks for word in check]], np.int64)
        self.limit()

    def limit(self) -> None:
        """Let it take calls up to the one that is checked."""
        self.words[CallPlan.left] = max(self.program.due - self.program.hits, 0)

    def settle(self) -> None:
        """Count, for the program, the calls that were taken."""
        taken = int(self.words[CallPlan.taken])
        if taken:
            self.words[CallPlan.taken] -= taken
            self.words[CallPlan.left] -= taken
            self.program.hits += taken
        if self.program.lines and self.misses.any():
            missed = self.misses.copy()
            self.misses -= missed
            self.program.misses = [n + int(more) for n, more in zip(self.program.misses, missed, strict=False)]

    @property
    def is_stale(self) -> bool:
        """Whether something that it looked at is no longer what it was, if perhaps of the same value."""
        return bool(self.words[CallPlan.stale])


class NativelyCalled(DirectlyCalled):
    """The part of a compiled function that has its calls made natively."""

    _lock: Lock
    _runs_back = False
    """Whether its programs compute gradients, too."""

    def _begin(self) -> None:
        self._dynamic = ""
        """Why no call is replayed; empty while some may be."""
        self._fast: tuple[CompiledProgram, Specialization, CallShape | None] | None = None
        """The program of the last call, if it can be tried at once, where it belongs, and how its values are found."""
        self._direct: list[Plan] = []
        """The plans that native code tries."""

    def _direct_form(self, program: CompiledProgram) -> Form | None:
        """Return how calls of a program return results; None where that takes Python."""
        return Form(FLAT) if program._tuple else Form(SINGLE) if program._single else None

    def _settle(self) -> None:
        """Count what has been called natively."""
        with self._lock:
            for plan in self._direct:
                plan.settle()

    def _forget(self) -> None:
        """Replay nothing at once, for now."""
        with self._lock:
            self._settle()
            self._fast, self._direct, self._plans = None, [], ()

    def _prepare(self, program: CompiledProgram, state: Specialization, shape: CallShape | None) -> None:
        """Have the next calls like this one, which has been replayed, made natively, if possible."""
        direct = self._direct
        if direct and direct[0].program is program and not direct[0].is_stale:
            return
        if state.planned.get(program, 0) >= _MOST_TIMES:
            return
        machine = program._first.get(self._runs_back)
        if type(machine) is not CompiledMachine or machine.words is None:
            return
        plan = state.plans.get(program)
        if plan is None or plan.is_stale:
            plan = self._new_plan(program, state, machine, shape)
        with self._lock:
            if self._dynamic or state.dynamic:  # another thread has found that out
                return
            kept = [p for p in direct if p.program is not program][: MOST_PLANS - 1]
            for left_out in direct:
                left_out.settle()
            if plan is not None:
                plan.limit()
            self._direct = [plan, *kept] if plan is not None else kept
            self._plans = tuple([x for p in self._direct for x in (p.words, p)])

    def _new_plan(
        self, program: CompiledProgram, state: Specialization, machine: CompiledMachine, shape: CallShape | None
    ) -> Plan | None:
        state.plans.pop(program, None)
        steps = None if shape is None else shape.steps()
        fits = shape is None or steps is not None
        form = self._direct_form(program) if fits and program.is_plain and not program.tensors else None
        state.planned[program] = state.planned.get(program, 0) + 1 if form is not None else _MOST_TIMES
        if form is None or state.dynamic:
            return None
        checks = Checks(state.watches, state.contents)
        checks.add_references(program._readers)
        if not checks.holds:
            return None
        plan = state.plans[program] = Plan(program, machine.formed(form), checks, steps)
        return plan
