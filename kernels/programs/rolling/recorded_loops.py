"""Loops that were recorded as such: they go on as long as a guard holds, or as often as a value says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.kinds.loop import LoopAgain, LoopBegin
from kernels.programs.rolling.rows import Extraction


class RecordedLoop(NamedTuple):
    """Rows: the first that copies what the loop starts from, its begin, where its body ends, and its own end.

    Then what it carries, the values of the rows that copy what it starts from, and how it ends: ``limit`` is the most
    iterations, None if there may be any number; the last operand of its begin is that number if it ``has_count``. If
    it is ``counted`` no guard ends it.
    """

    first: int
    begin: int
    again: int
    end: int
    phis: list[int]
    limit: int | None
    has_count: bool
    counted: bool


def recorded_loops(extraction: Extraction) -> list[RecordedLoop]:
    """Return the loops of a recipe in the order of their begins."""
    rows, kinds, begins, again = extraction.rows, extraction.recipe.steps.kinds, list[int](), -1
    loops: list[RecordedLoop] = []
    for row in np.flatnonzero(extraction.is_mark).tolist():
        op = kinds[extraction.kind[row]].op
        if isinstance(op, LoopBegin):
            begins.append(row)
        elif isinstance(op, LoopAgain):
            again = row
        else:
            begin = begins.pop()
            limit, has_count, counted, _ = kinds[extraction.kind[begin]].params
            count = int(rows.starts[again + 1]) - int(rows.starts[again])
            phis = rows.value[rows.starts[begin] :][:count].tolist()
            loops.append(RecordedLoop(begin - count, begin, again, row, phis, limit, has_count, counted))
    return sorted(loops, key=lambda loop: loop.begin)
