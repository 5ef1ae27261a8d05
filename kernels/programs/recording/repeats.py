"""Which parts of a program repeat: a loop in Python, unrolled while it was recorded, is found again in its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

_MOST_PERIODS = 48
_MOST_RUNS = 512
_TRIES = 16
_TWO = 2
"""Copies from which on something repeats."""
_FEW = 3
"""Copies by which a start is judged, before all are."""


class Repeat(NamedTuple):
    """Steps that are followed by as many like them, ``count`` copies end to end; ``inner`` repeat in the first copy."""

    start: int
    length: int
    count: int
    inner: tuple[Repeat, ...] = ()

    @property
    def stop(self) -> int:
        """The step behind the last copy."""
        return self.start + self.length * self.count


def repeats(symbols: Array, sources: Array) -> list[Repeat]:
    """Return the repeats of a program, in order, without overlaps; the longest first come to their right.

    ``symbols`` says what each step does, as a number; ``sources``, a row a step, which step each operand is the result
    of; it is negative for what no step made. Copies do the same steps in the same order. An operand of theirs comes
    from before the first copy, or from always as many steps ago: from the same copy, or from an earlier one, where the
    first copies take theirs from before.
    """
    return _within(symbols, sources, 0, len(symbols))


def representatives(parts: Iterable[Repeat], low: int, high: int) -> Array:
    """Return for each step from ``low`` to ``high`` the one that stands for it: in the first copy of what repeats."""
    steps = np.arange(low, high)
    for part in parts:
        first = representatives(part.inner, part.start, part.start + part.length)
        steps[part.start - low : part.stop - low] = np.tile(first, part.count)
    return steps


def _within(symbols: Array, sources: Array, low: int, high: int) -> list[Repeat]:
    """Return the repeats of the steps from ``low`` to ``high``."""
    taken = np.zeros(high - low, np.bool_)
    chosen = []
    for period, begin, end in _runs(symbols[low:high]):
        free = np.flatnonzero(~taken[begin:end]) + begin
        for part in np.split(free, np.flatnonzero(np.diff(free) > 1) + 1):
            if len(part) >= _TWO * period:
                for start, count in _regular(sources, low + int(part[0]), low + int(part[-1]) + 1, period):
                    chosen.append((start, period, count))
                    taken[start - low : start - low + period * count] = True
    return [Repeat(*c, tuple(_within(symbols, sources, c[0], c[0] + c[1]))) for c in sorted(chosen)]


def _runs(symbols: Array) -> list[tuple[int, int, int]]:
    """Return periods with the parts that have them, from the longest part on: as far as copies are whole."""
    runs = []
    for period in _periods(symbols):
        same = np.concatenate([[False], symbols[:-period] == symbols[period:], [False]])
        begins, ends = np.flatnonzero(np.diff(same.astype(np.int8))).reshape(-1, 2).T
        for k in np.flatnonzero(ends - begins >= max(period, 2)).tolist():  # so many steps are saved
            begin, end = int(begins[k]), int(ends[k]) + period
            runs.append((-((end - begin) // period * period), period, begin, end))
    return [(period, begin, end) for _, period, begin, end in sorted(runs)[:_MOST_RUNS]]


def _periods(symbols: Array) -> list[int]:
    """Return the likely periods: distances between parts that are alike, of one step, of two, of four and so on."""
    scores: dict[int, int] = {}
    names, width = np.unique(symbols, return_inverse=True)[1], 1
    while len(names) > width:
        order = np.argsort(names, kind="stable")
        alike = names[order[1:]] == names[order[:-1]]
        distances, counts = np.unique(np.diff(order)[alike], return_counts=True)
        for distance, count in zip(distances.tolist(), counts.tolist(), strict=True):
            scores[distance] = scores.get(distance, 0) + count
        if not len(distances):
            break
        names = np.unique(names[:-width] * (int(names.max()) + 1) + names[width:], return_inverse=True)[1]
        width *= 2
    likely = sorted(scores, key=lambda distance: (-scores[distance], distance))[:_MOST_PERIODS]
    return [distance for distance in likely if _TWO * distance <= len(symbols)]


def _regular(sources: Array, start: int, stop: int, period: int) -> list[tuple[int, int]]:
    """Return where in a part, whose steps have this period, copies with regular operands begin, and how many."""
    regular, least = [], _TWO + (period == 1)  # drawn once, one operation of two is more to read
    for _ in range(_TRIES):
        if (stop - start) // period < least:
            break
        few = sources[start : start + min((stop - start) // period, _FEW) * period]
        copies = _copies(few, start, period)
        if copies.min(initial=len(few)) >= least:
            whole = sources[start : start + (stop - start) // period * period]
            count = int(_copies(whole, start, period).min(initial=len(whole) // period))
            regular.append((start, count))
            start += count * period
        else:
            start = _next_start(few, copies < least, start)
    return regular


def _copies(sources: Array, start: int, period: int) -> Array:
    """Return for each operand of the first copy how many copies have it in a regular way."""
    blocks = sources.reshape(-1, period, sources.shape[1])
    count, step = len(blocks), np.arange(period)[:, None]
    nth = np.arange(count)[:, None, None]
    ago = start + nth * period + step - blocks
    usual = ago[min(2, count - 1)]  # by then two-step methods have come to their usual operands
    lag = np.maximum(-((step - usual) // period), 0)
    before = blocks < start
    moving = np.where(nth < lag, before, ago == usual)
    return np.maximum(*(np.cumprod(ways, axis=0).sum(axis=0) for ways in (before, moving)))


def _next_start(sources: Array, irregular: Array, start: int) -> int:
    """Return the first start behind what is irregular: the operand's source, or where that is before, the step."""
    steps, columns = np.nonzero(irregular)
    origins = sources[steps, columns]
    return int(np.where(origins >= start, origins + 1, start + steps + 1).max())
