"""Times of a program's calls: its rows run one by one between two looks at the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from kernels.kinds import custom
from kernels.native.tape_structs import ROW, RUN_BACK, RUN_INLINE, RUN_LOOP, ProgramRow
from kernels.programs.interpreter.machine import Machine, lowered
from kernels.programs.lowering.assembly import Plan, Rows
from kernels.programs.lowering.lower_forward import Lowering
from kernels.programs.lowering.lower_reverse import Reverse
from kernels.programs.recording.program import Recipe

Array = np.ndarray[Any, Any]

_LEAST, _MOST = 3, 100
"""Repetitions."""
_ENOUGH = 500_000_000
"""Nanoseconds after which no more are begun."""
_LOOKS = 1000


@dataclass(slots=True)
class CallTimes:
    """What each call of a program took. The results are those of the last repetition.

    ``steps`` are the operations that calls belong to; ``nanoseconds`` their times, each the least of all repetitions,
    without that of the clock; ``bytes`` those of the values and gradients that they name. The first ``forward`` compute
    results, the others gradients. ``whole`` is the time of all, run as usual.
    """

    steps: Array
    nanoseconds: Array
    bytes: Array
    forward: int
    whole: int
    repetitions: int
    outputs: list[Array]
    gradients: list[Array]


def call_times(recipe: Recipe, values: Sequence[Any], *, reverse: bool) -> CallTimes:
    """Run a program on these values, as the arguments of a machine, and return the times of its calls."""
    plan, lowering, back = lowered(recipe, reverse=reverse)
    machine = Machine(plan)
    run = _Run(machine, values)
    run.usual()  # for the first time, pages are touched
    least, whole, repetitions, begin = run.apart(), run.usual(), 1, perf_counter_ns()
    while repetitions < _MOST and (repetitions < _LEAST or perf_counter_ns() - begin < _ENOUGH):
        whole = min(whole, run.usual())
        least = np.minimum(least, run.apart())
        repetitions += 1
    rows = np.concatenate([machine.forward.words, machine.reverse.words])
    inline = rows[:, ProgramRow.kind] == RUN_INLINE
    tasks = np.where(inline, rows[:, ProgramRow.operands], 1)
    times = np.repeat(np.maximum(least - run.clock(), 0) / tasks, tasks)
    assert len(times) == len(plan.tasks), "the rows of a machine are those of its plan"
    outputs, gradients = ([np.array(x, order="C") for x in group] for group in (machine.outputs, machine.gradients))
    owners = _owners(plan, lowering, back)
    return CallTimes(owners, times, _bytes(plan), plan.forward, whole, repetitions, outputs, gradients)


class _Run:
    """Runs a machine again and again, on the same values."""

    def __init__(self, machine: Machine, values: Sequence[Any]) -> None:
        self.machine, self.values = machine, values

    def _enter(self) -> None:
        for place, value in zip(self.machine.inputs, self.values, strict=True):
            place[...] = value

    def usual(self) -> int:
        """Run all rows as a call does; return the nanoseconds."""
        self._enter()
        begin = perf_counter_ns()
        self.machine.run(self.machine.forward)
        self.machine.run(self.machine.reverse)
        return perf_counter_ns() - begin

    def apart(self) -> Array:
        """Run each row by itself; return the nanoseconds of each."""
        self._enter()
        return np.array(self._timed(self.machine.forward) + self._timed(self.machine.reverse), np.float64)

    def _timed(self, rows: Rows) -> list[int]:
        native, now, times = self.machine.native, perf_counter_ns, []
        ends = _loops(rows)
        for k in range(len(rows.words)):
            if k < len(times):
                continue
            if k in ends:  # a loop is one call
                begin = now()
                self.machine.through(rows, k, ends[k])
                times += [now() - begin] + [0] * (ends[k] - k - 1)
                continue
            address, call = rows.start + 8 * ROW * k, rows.calls.get(k)
            begin = now()
            missed = native(address, 0, 1)
            if call is not None:
                call()
            times.append(now() - begin)
            if missed >= 0:
                raise self.machine.missed(k)
        if custom.RUNNING:
            custom.check_failed()
        return times

    def clock(self) -> int:
        """Return the nanoseconds that are measured where nothing runs."""
        native, now, start, call, times = self.machine.native, perf_counter_ns, self.machine.forward.start, None, []
        for _ in range(_LOOKS):
            begin = now()
            native(start, 0, 0)
            if call is not None:
                call()
            times.append(now() - begin)
        return sorted(times)[_LOOKS // 2]


def _loops(rows: Rows) -> dict[int, int]:
    """Return the rows with which loops, and the ways back through them, begin; and the rows behind these."""
    kinds, ahead = rows.words[:, ProgramRow.kind], rows.words[:, ProgramRow.address]
    begins, backs = (np.flatnonzero(kinds == kind) for kind in (RUN_LOOP, RUN_BACK))
    ends = {int(k): int(k + ahead[k]) for k in begins}
    return ends | {int(k): int(k + 1 + ahead[k + 1]) for k in backs}


def _owners(plan: Plan, lowering: Lowering, back: Reverse) -> Array:
    """Return the step that each task belongs to: where none asked for it, that of the next task."""
    owners = np.full(len(plan.tasks) + 1, -1)
    counts = np.array(plan.tasks.counts, np.int64)[np.array(plan.tasks.call_numbers, np.int64)]
    begins = counts.cumsum() - counts
    rows = np.concatenate([lowering.owners.table(), back.blocks.owners.table()])
    for first, (calls, step) in zip(np.searchsorted(begins, rows[:, 2]).tolist(), rows[:, :2].tolist(), strict=True):
        owners[first : first + calls] = step
    for first, stop, step in (*lowering.apart, *back.apart):
        owners[first:stop] = step
    owners[-1] = max(len(lowering.recipe.steps) - 1, 0)
    known = np.where(owners >= 0, np.arange(len(owners)), len(owners) - 1)
    return owners[np.minimum.accumulate(known[::-1])[::-1]][:-1]


def _bytes(plan: Plan) -> Array:
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
