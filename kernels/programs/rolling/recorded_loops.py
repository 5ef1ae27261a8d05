"""Loops that were recorded as such: they go on as long as a guard holds, or as often as a value says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.kinds.loop import LoopAgain, LoopBegin
from kernels.ops.views import CLONE
from kernels.programs.rolling.rows import UNWANTED, Extraction


class RecordedPhi(NamedTuple):
    """What is carried: the value that is read from then on, and the operand of the begin that it starts from.

    Both are that of the row which copies what it starts from.
    """

    value: int
    operand: int


class RecordedLoop(NamedTuple):
    """Rows: the first that copies what the loop starts from, its begin, where its body ends, and its own end.

    Then what it carries, and how it ends: ``limit`` is the most iterations, None if there may be any number; the last
    operand of its begin is that number if it ``has_count``. If it is ``counted`` no guard ends it.
    """

    first: int
    begin: int
    again: int
    end: int
    phis: list[RecordedPhi]
    limit: int | None
    has_count: bool
    counted: bool


def recorded_loops(extraction: Extraction) -> list[RecordedLoop]:
    """Return the loops of a recipe in the order of their begins; what they do not change is read from before them."""
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
            first = begin - (int(rows.starts[again + 1]) - int(rows.starts[again]))
            loops.append(RecordedLoop(first, begin, again, row, [], limit, has_count, counted))
    loops.sort(key=lambda loop: loop.begin)
    for loop in loops:  # outer ones first: inner ones may start from what these carry
        loop.phis.extend(_phis_of(extraction, loop))
    return loops


def _phis_of(extraction: Extraction, loop: RecordedLoop) -> list[RecordedPhi]:
    """Return what a loop carries; what is the same in all iterations is read from where it was before."""
    rows, phis = extraction.rows, list[RecordedPhi]()
    first, last = int(rows.starts[loop.begin]), int(rows.starts[loop.again])
    updates = rows.value[last : rows.starts[loop.again + 1]].tolist()
    for k, update in enumerate(updates):
        value = int(rows.value[first + k])
        if value != update:
            phis.append(RecordedPhi(value, k))
            continue
        source = _source(extraction, value)
        behind = rows.value[int(rows.starts[loop.begin + 1]) :]
        behind[behind == value] = source
        extraction.outputs.value[extraction.outputs.value == value] = source
    return phis


def _source(extraction: Extraction, value: int) -> int:
    """Return the value that another is a copy of, if nobody writes to either; else that."""
    rows, row = extraction.rows, value - extraction.rows.first
    if row < 0 or extraction.recipe.steps.kinds[extraction.kind[row]].op is not CLONE:
        return value
    slot = int(rows.starts[row])
    source = int(rows.value[slot])
    written = rows.value[rows.starts[:-1][extraction.is_write]]
    is_whole = source >= 0 and rows.spec[slot] == extraction.table.spec[value] == extraction.table.spec[source]
    is_same = is_whole and rows.gradient[slot] != UNWANTED
    return source if is_same and not np.isin(written, (source, value)).any() else value
