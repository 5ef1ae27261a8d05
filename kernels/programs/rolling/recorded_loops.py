"""Loops that were recorded as such: they go on as long as a guard holds, or as often as a value says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.kinds.loop import LoopAgain, LoopBegin, LoopEnd
from kernels.programs.rolling.rolled_program import Uncompiled
from kernels.programs.rolling.rows import Extraction


class RecordedLoop(NamedTuple):
    """Rows: where the loop begins, where its body ends, and its own end; then what it carries, and how it ends.

    ``phis`` are the values of the table that its body, and what follows, reads what is carried by. ``limit`` is the
    most iterations, None if there may be any number; the last operand of its begin is that number if it ``has_count``.
    If it is ``counted`` no guard ends it.
    """

    begin: int
    again: int
    end: int
    phis: tuple[int, ...]
    limit: int | None
    has_count: bool
    counted: bool


def recorded_loops(extraction: Extraction) -> list[RecordedLoop]:
    """Return the loops of a recipe, and let rows read what they carry; Uncompiled for nested ones."""
    kinds, rows = extraction.recipe.steps.kinds, extraction.rows
    marks = np.flatnonzero(extraction.is_mark)
    loops: list[RecordedLoop] = []
    for k in range(0, len(marks), _MARKS):
        three = marks[k : k + _MARKS].tolist()
        ops = [type(kinds[extraction.kind[row]].op) for row in three]
        if ops != [LoopBegin, LoopAgain, LoopEnd]:
            line = int(rows.line[three[0]])
            raise Uncompiled("a loop in another", line)
        loops.append(_loop(extraction, *three))
    return loops


_MARKS = 3


def _loop(extraction: Extraction, begin: int, again: int, end: int) -> RecordedLoop:
    kind, rows = extraction.recipe.steps.kinds[extraction.kind[begin]], extraction.rows
    limit, has_count, counted, _ = kind.params
    first, stop = int(rows.starts[begin]), int(rows.starts[begin + 1]) - has_count
    phis = []
    for slot in range(first, stop):
        value = int(rows.value[slot])
        phi = extraction.table.add(int(extraction.table.spec[value]), int(extraction.table.node[value]))
        behind = rows.value[int(rows.starts[begin + 1]) :]
        behind[behind == value] = phi
        extraction.outputs.value[extraction.outputs.value == value] = phi
        phis.append(phi)
    return RecordedLoop(begin, again, end, tuple(phis), limit, has_count, counted)
