"""Loops that were recorded as such: they go on as long as a guard holds, or as often as a value says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.kinds.loop import LoopAgain, LoopBegin
from kernels.programs.rolling.rows import Extraction


class RecordedLoop(NamedTuple):
    """Rows: where the loop begins, where its body ends, and its own end; then what it carries, and how it ends.

    ``phis`` are the values of the table that its body, and what follows, reads what is carried by. ``limit`` is the
    most iterations, None if there may be any number; the last operand of its begin is that number if it ``has_count``.
    If it is ``counted`` no guard ends it. ``inner`` are the loops within its body.
    """

    begin: int
    again: int
    end: int
    phis: tuple[int, ...]
    limit: int | None
    has_count: bool
    counted: bool
    inner: list[RecordedLoop]


def recorded_loops(extraction: Extraction) -> list[RecordedLoop]:
    """Return the loops of a recipe that are in no other, and let rows read what they carry."""
    kinds, open_loops = extraction.recipe.steps.kinds, [list[RecordedLoop]()]
    begins: list[tuple[int, tuple[int, ...]]] = []
    again = -1
    for row in np.flatnonzero(extraction.is_mark).tolist():
        op = kinds[extraction.kind[row]].op
        if isinstance(op, LoopBegin):
            begins.append((row, _phis_of(extraction, row)))
            open_loops.append([])
        elif isinstance(op, LoopAgain):
            again = row
        else:
            inner, (begin, phis) = open_loops.pop(), begins.pop()
            limit, has_count, counted, _ = kinds[extraction.kind[begin]].params
            open_loops[-1].append(RecordedLoop(begin, again, row, phis, limit, has_count, counted, inner))
    return open_loops[0]


def _phis_of(extraction: Extraction, begin: int) -> tuple[int, ...]:
    """Let what is behind the begin of a loop read its phis; return these."""
    rows, has_count = extraction.rows, extraction.recipe.steps.kinds[extraction.kind[begin]].params[1]
    first, stop = int(rows.starts[begin]), int(rows.starts[begin + 1]) - has_count
    phis = []
    for slot in range(first, stop):
        value = int(rows.value[slot])
        phi = extraction.table.add(int(extraction.table.spec[value]), int(extraction.table.node[value]))
        behind = rows.value[int(rows.starts[begin + 1]) :]
        behind[behind == value] = phi
        extraction.outputs.value[extraction.outputs.value == value] = phi
        phis.append(phi)
    return tuple(phis)
