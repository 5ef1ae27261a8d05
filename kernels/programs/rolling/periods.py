"""Where rows may repeat: tokens say what a row does, and periods are the distances at which tokens come again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kernels.programs.rolling.rows import UNWANTED, Rows, Table

Array = np.ndarray[Any, Any]

_WINDOWS = 4
"""From one window to the next that is looked at, as a factor."""
_LIKELY = 3
"""Distances of each window that are tried."""
FEWEST_STEPS = 3
"""Steps of which a loop is made."""


class Run(NamedTuple):
    """Rows from ``start`` on that come again after ``period`` rows, ``times`` times in all; ``rest`` more follow."""

    start: int
    period: int
    times: int
    rest: int

    @property
    def rows(self) -> int:
        """How many rows whole periods cover."""
        return self.period * self.times


def tokens(rows: Rows, table: Table) -> Array:
    """Return a number for each row: equal for one operation on operands alike, wherever these come from."""
    patterns = np.append(table.patterns.pattern, -1)[rows.spec]
    slot = _mixed(patterns.astype(np.uint64) + _ODD * _nth(rows) + _SALTS[0])
    results = table.spec[rows.first : rows.first + len(rows)]
    result = np.append(table.patterns.pattern, -1)[results]
    row = _mixed(rows.op.astype(np.uint64) * _ODD + result.astype(np.uint64) + _SALTS[1])
    return row + _summed(slot, rows.starts)


def with_distances(names: Array, rows: Rows) -> Array:
    """Return tokens that tell apart, too, how many rows ago operands were computed, and where gradients stop."""
    numbers = rows.first + np.arange(len(rows)).repeat(np.diff(rows.starts))
    within = (rows.value >= rows.first) & (rows.value < rows.first + len(rows))
    distance = np.where(within, numbers - rows.value, 0)
    stops = (rows.gradient == UNWANTED) & (rows.value >= 0)
    slots = _mixed((2 * distance + stops).astype(np.uint64) + _ODD * _nth(rows) + _SALTS[2])
    return names + _summed(slots, rows.starts)


def with_offsets(names: Array, rows: Rows) -> Array:
    """Return tokens that tell apart, too, which parts of values are read."""
    offsets = rows.offset.reshape(-1, len(rows.value))[0] if len(rows.value) else rows.value
    return names + _summed(_mixed(offsets.astype(np.uint64) + _ODD * _nth(rows) + _SALTS[3]), rows.starts)


_ODD = np.uint64(0x9E3779B97F4A7C15)
_SALTS = np.array([0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3], np.uint64)
"""What tells apart hashes of operands, operations, distances and offsets: sums of them must not be alike."""
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)


def _mixed(numbers: Array) -> Array:
    """Return hashes of 64 bits (Steele, Lea and Flood 2014)."""
    for shift, factor in _ROUNDS:
        numbers = (numbers ^ (numbers >> shift)) * factor
    mixed: Array = numbers ^ (numbers >> _LAST)
    return mixed


def _nth(rows: Rows) -> Array:
    """Return the place of each slot among those of its row."""
    places: Array = np.arange(1, len(rows.value) + 1) - np.repeat(rows.starts[:-1], np.diff(rows.starts))
    return places.astype(np.uint64)


def _summed(slots: Array, starts: Array) -> Array:
    """Return the sums over the slots of each row, modulo 2^64."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(slots, dtype=np.uint64)])
    of_rows: Array = sums[starts[1:]] - sums[starts[:-1]]
    return of_rows


def runs(names: Array) -> list[Run]:
    """Return the longest run of each likely period, those that cover most first, then the shortest periods."""
    longest = (_longest(names, period) for period in _periods(names))
    return sorted((run for run in longest if run.times >= FEWEST_STEPS), key=lambda run: (-run.rows, run.period))


def _periods(names: Array) -> list[int]:
    """Return the distances at which windows most often come again; long windows see the outer of nested loops."""
    likely: dict[int, None] = {}
    for window in _windows(names):
        order = np.argsort(window, kind="stable")  # of 16 bits: by radix
        alike = window[order[1:]] == window[order[:-1]]
        counts = np.bincount(np.diff(order)[alike], minlength=1)
        for distance in np.argsort(counts)[: -_LIKELY - 1 : -1].tolist():
            if counts[distance] and distance * FEWEST_STEPS <= len(names):
                likely[distance] = None
    return list(likely)


def _windows(names: Array) -> Iterator[Array]:
    """Yield short hashes of windows of one row, of four rows and so on."""
    width = 1
    while width == 1 or 2 * width <= len(names):
        yield (names >> np.uint64(48)).astype(np.uint16)
        for _ in range(_WINDOWS.bit_length() - 1):
            if len(names) <= width:
                return
            names = _mixed(names[:-width] * _ODD + names[width:])
            width *= 2


def _longest(names: Array, period: int) -> Run:
    """Return the longest run of a period."""
    differ = np.flatnonzero(names[period:] != names[:-period])
    edges = np.concatenate([[-1], differ, [len(names) - period]])
    lengths = np.diff(edges) - 1
    best = int(np.argmax(lengths))
    length = int(lengths[best])
    count = (length + period) // period if length else 0
    return Run(int(edges[best]) + 1, period, count, length + period - count * period)


def phase(run: Run, rows: Rows, writes: Array, splits: Array, low: int) -> int:
    """Return where the first step of a run best begins: where the fewest values are passed on to the next.

    Of several such rows, the first that has a step in front which does the same, from row ``low`` on. No step begins
    with a row that ``splits`` something, if that can be.
    """
    if not run.rest:
        return run.start
    middle = slice(begin := run.start + run.times // 2 * run.period, begin + run.rest + 1)
    passed = _passed(run, rows, writes)[middle] + _WRITTEN * splits[middle]
    fewest = run.start + np.flatnonzero(passed == passed.min())
    first = max(run.start - run.period, low)
    ops = rows.op[first : run.start + run.rest + run.period]
    differ = np.concatenate([[0], np.cumsum(ops[run.period :] != ops[: -run.period])])
    begins = fewest[fewest - run.period >= first]
    begins = begins[differ[begins - first] == differ[begins - run.period - first]]
    return int(begins[0] if len(begins) else fewest[0])


def _passed(run: Run, rows: Rows, writes: Array) -> Array:
    """Return how many values of a run are used from each row on that were computed before it."""
    stop = run.start + run.rows + run.rest
    slots = slice(int(rows.starts[run.start]), int(rows.starts[stop]))
    readers = np.arange(run.start, stop).repeat(np.diff(rows.starts[run.start : stop + 1]))
    source = rows.value[slots] - rows.first
    weights = np.zeros(len(rows) + 2, np.int64)
    within = (source >= run.start) & (source < stop)
    for chosen, weight in ((within, 1), (within & writes[slots], _WRITTEN)):
        last = np.full(len(rows), -1, np.int64)
        last[source[chosen]] = readers[chosen]  # the last of equal places stays
        made = np.flatnonzero(last >= 0)
        np.add.at(weights, made + 1, weight)
        np.add.at(weights, last[made] + 1, -weight)
    return np.cumsum(weights)


_WRITTEN = 1 << 20
"""What it weighs that a write would be in another step than what it writes to, or a loop in two steps."""
