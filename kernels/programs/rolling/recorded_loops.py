"""Loops that were recorded as such: they go on as long as a guard holds, or as often as a value says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.kinds.loop import LoopAgain, LoopBegin
from kernels.ops.views import CLONE
from kernels.programs.rolling.rows import UNWANTED, Extraction


class RecordedPhi(NamedTuple):
    """What is carried: the value that is read from then on, and the operand of the begin that it starts from."""

    value: int
    operand: int


class RecordedLoop(NamedTuple):
    """Rows: where the loop begins, where its body ends, and its own end; then what it carries, and how it ends.

    ``limit`` is the most iterations, None if there may be any number; the last operand of its begin is that number if
    it ``has_count``. If it is ``counted`` no guard ends it. ``inner`` are the loops within its body.
    """

    begin: int
    again: int
    end: int
    phis: list[RecordedPhi]
    limit: int | None
    has_count: bool
    counted: bool
    inner: list[RecordedLoop]


def recorded_loops(extraction: Extraction) -> list[RecordedLoop]:
    """Return the loops of a recipe that are in no other, and let rows read what they carry."""
    kinds, begins, again = extraction.recipe.steps.kinds, list[int](), -1
    within = [list[RecordedLoop]()]
    for row in np.flatnonzero(extraction.is_mark).tolist():
        op = kinds[extraction.kind[row]].op
        if isinstance(op, LoopBegin):
            begins.append(row)
            within.append([])
        elif isinstance(op, LoopAgain):
            again = row
        else:
            begin, inner = begins.pop(), within.pop()
            limit, has_count, counted, _ = kinds[extraction.kind[begin]].params
            within[-1].append(RecordedLoop(begin, again, row, [], limit, has_count, counted, inner))
    _carry(extraction, within[0])
    return within[0]


def _carry(extraction: Extraction, loops: list[RecordedLoop]) -> None:
    """Find what loops carry, that of outer ones first: inner ones may start from it."""
    for loop in loops:
        loop.phis.extend(_phis_of(extraction, loop))
        _carry(extraction, loop.inner)


def _phis_of(extraction: Extraction, loop: RecordedLoop) -> list[RecordedPhi]:
    """Return what a loop carries; what is the same in all iterations is read from where it was before."""
    rows, phis = extraction.rows, list[RecordedPhi]()
    first, last = int(rows.starts[loop.begin]), int(rows.starts[loop.again])
    updates = rows.value[last : rows.starts[loop.again + 1]].tolist()
    for k, update in enumerate(updates):
        value = int(rows.value[first + k])
        if value == update:
            stands_for = _source(extraction, value)
        else:
            stands_for = extraction.table.add(int(extraction.table.spec[value]), int(extraction.table.node[value]))
            phis.append(RecordedPhi(stands_for, k))
        behind = rows.value[int(rows.starts[loop.begin + 1]) :]
        behind[behind == value] = stands_for
        extraction.outputs.value[extraction.outputs.value == value] = stands_for
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
