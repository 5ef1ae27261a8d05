"""How the rows of a loop find one another: distances between them, and what iterations save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.native.memory import where
from kernels.native.tape_structs import RUN_GUARD, ProgramRow
from kernels.programs.lowering.loop_tasks import Body, LoopTasks

Array = np.ndarray[Any, Any]

PLACES = 2
"""Of each row: those of the loop and of the stack come first."""


def steer(rows: Array, heads: Array, loops: Sequence[LoopTasks], sizes: dict[int, list[int]]) -> list[Array]:
    """Write the distances into the rows of loops, outer loops first; return the tables that rows refer to.

    ``heads`` are the tasks that rows begin with; ``sizes`` the words that tasks save, or restore.
    """
    tables: list[Array] = []

    def row(task: int) -> int:
        return int(np.searchsorted(heads, task))

    def table(at: int, numbers: Sequence[int]) -> None:
        tables.append(np.array(numbers, np.int64))
        rows[at, ProgramRow.layout] = where(tables[-1])

    def save(task: int, loop: LoopTasks) -> None:
        at = row(task)
        table(at, [1 + sum(sizes[task]), *sizes[task]])
        rows[at, ProgramRow.operands], rows[at, ProgramRow.accumulate] = len(sizes[task]), loop.back >= 0

    for k, loop in enumerate(sorted(loops, key=lambda loop: loop.start)):
        start, end = row(loop.start), row(loop.end)
        rows[start, ProgramRow.address], rows[start, ProgramRow.accumulate] = end - start, k == 0
        begins = [row(body.begin) for body in loop.bodies]
        for body, following in zip(loop.bodies, [*begins[1:], None if loop.counted else end], strict=True):
            if following is not None:
                _steer_guards(rows[row(body.begin) : row(body.again)], following - row(body.begin))
            last = row(body.next)
            rows[last, ProgramRow.address], rows[last, ProgramRow.layout] = begins[0] - last, end - last
            save(body.again, loop)
        if loop.back >= 0:
            choose = row(loop.choose)
            rows[choose, ProgramRow.address] = row(loop.back_end) - choose
            table(choose, [row(body.restore) - choose for body in loop.bodies])
            for body in loop.bodies:
                rows[row(body.before), ProgramRow.address] = choose - row(body.before)
                save(body.restore, loop)
    return tables


def _steer_guards(rows: Array, distance: int) -> None:
    """Let the guards of a body go on so many rows behind its first, where they miss; others end the program."""
    guards = np.flatnonzero(rows[:, ProgramRow.kind] == RUN_GUARD)
    rows[guards, ProgramRow.address] = distance - guards


def outlived(used: Array, times: Array, loops: Sequence[LoopTasks]) -> tuple[Array, Array]:
    """Add uses to a list of values and times: what a loop uses and did not make is needed until it ends."""
    spans = [(loop.start, loop.end) for loop in loops]
    spans += [(loop.back, loop.back_end) for loop in loops if loop.back >= 0]
    values, at = np.unique(used, return_index=True)  # times are in order
    first = dict(zip(values.tolist(), times[at].tolist(), strict=True))
    more = []
    for start, end in spans:
        inside = used[(times >= start) & (times < end)]
        more += [(value, end) for value in np.unique(inside).tolist() if first[value] <= start]
    added = np.array(more, np.int64).reshape(-1, 2)
    used, times = np.concatenate([used, added[:, 0]]), np.concatenate([times, added[:, 1]])
    order = np.argsort(times, kind="stable")
    return used[order], times[order]


def words_of(bodies: Sequence[Body]) -> list[int]:
    """Return the tasks of bodies that save or restore."""
    return [task for body in bodies for task in (body.again, body.restore) if task >= 0]
