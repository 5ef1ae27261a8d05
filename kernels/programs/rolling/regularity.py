"""Whether rows that look alike are the steps of a loop: what each operand is, from one step to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.data_classes import dataclass
from kernels.foundation.locks import cached_property
from kernels.programs.rolling.periods import FEWEST_STEPS
from kernels.programs.rolling.rows import NOWHERE, Rows, Table

Array = np.ndarray[Any, Any]
Renaming = Callable[[Rows, int, int], tuple[Array, Array]]
"""Returns values and places of what the rows from one to another read, loops before them being known."""

NUMBER, FIXED, LOCAL, LAGGED, STACKED, BEFORE = range(6)
"""What a slot is in all steps: a number; one value; what the same step computes, or an earlier one; a constant each; or
anything that was computed before the loop.
"""
_LAGS = 64
"""Steps back that a loop carries values over."""
_EARLIER = 2
"""Steps in front that do the same operations on operands of other kinds: the first ones of a loop."""


@dataclass(slots=True, eq=False)
class Regular:
    """Steps of a loop: ``count`` from row ``start`` on, and what each slot of a step is.

    That is its ``kind``, its ``lag``, and in ``source`` the row of the step that computes it; ``moving`` are parts of
    what is carried that differ from step to step.
    """

    start: int
    period: int
    count: int
    kind: Array
    lag: Array
    source: Array
    moving: Array
    steps: Steps
    first: int
    """The first step, counted among ``steps``."""
    reference: int
    """A step that is like the others."""

    @property
    def worth(self) -> float:
        """The rows that the loop stands for; fewer where it passes values on for many steps."""
        lagged = self.kind == LAGGED
        longest = np.zeros(self.period, np.int64)
        np.maximum.at(longest, self.source[lagged], self.lag[lagged] - 1)
        return self.period * self.count * self.period / (self.period + int(longest.sum()))


class Steps:
    """Rows in steps of ``period``: columns of slots with an axis of steps; ``base`` are the values of first rows."""

    def __init__(self, rows: Rows, table: Table, renamed: Renaming, start: int, period: int, count: int) -> None:
        self.rows, self.table, self.start, self.period, self.count = rows, table, start, period, count
        stop = start + period * count
        low, high = int(rows.starts[start]), int(rows.starts[stop])
        value, place = renamed(rows, start, stop)
        self.starts = rows.starts[start : start + period + 1] - low
        self.slots = slice(low, high)
        self.value, self.spec = value.reshape(count, -1), self._cut(rows.spec)
        self.place, self.offset, self.literal = place, self._cut(rows.offset), self._cut(rows.literal)
        self.place = place.reshape(*place.shape[:-1], count, -1)
        self.gradient = self._cut(rows.gradient)
        self.base = rows.first + start + period * np.arange(count)
        patterns = table.patterns
        self.pattern = np.append(patterns.pattern, -1)[self.spec]
        self.shape = np.append(patterns.shape, -1)[self.spec]
        self.row = np.arange(period).repeat(np.diff(self.starts))

    def _cut(self, column: Array) -> Array:
        cut = column[..., self.slots]
        return cut.reshape(*cut.shape[:-1], self.count, -1)

    @cached_property
    def operation(self) -> Array:
        """What rows do, and the patterns of their results, a step a row."""
        span = slice(self.start, self.start + self.period * self.count)
        results = self.table.spec[self.rows.first :][span]
        pattern = np.append(self.table.patterns.pattern, -1)[results]
        return np.stack([self.rows.op[span], pattern], -1).reshape(self.count, -1)


class Span(NamedTuple):
    """Rows that may be a loop: ``times`` steps of ``period`` rows from ``start`` on, perhaps more back to ``low``."""

    start: int
    period: int
    times: int
    low: int


def regular(
    rows: Rows, table: Table, renamed: Renaming, span: Span, writes: Array, *, strict: bool = True
) -> Regular | None:
    """Return the most steps of a span that are those of a loop; None if they are fewer than a loop has.

    ``writes`` says which slots are parts that are written. If not ``strict``, steps may read whatever was computed
    before them: what loops in front are made of may be known later.
    """
    start, period, count, low = span
    counts = np.diff(rows.starts[start : start + period * count + 1]).reshape(count, period)
    if (counts != counts[0]).any():  # tokens are hashes
        return None
    extra = _earlier(rows, start, period, low)
    steps = Steps(rows, table, renamed, start - extra * period, period, count + extra)
    best: Regular | None = None
    for reference in sorted({extra + 1, extra + 2, steps.count // 2}):
        if reference + 1 < steps.count and (best is None or best.count < count):
            judged = _Judgement(steps, reference, writes[steps.slots][: steps.value.shape[1]], strict=strict).result()
            if judged is not None and (best is None or judged.count > best.count):
                best = judged
    return best


def _earlier(rows: Rows, start: int, period: int, low: int) -> int:
    """Return how many steps in front of a row do the same operations on as many operands."""
    counts = np.diff(rows.starts)
    for extra in range(1, _EARLIER + 1):
        before = slice(start - extra * period, start - (extra - 1) * period)
        here = slice(start, start + period)
        if before.start < low or not all((c[before] == c[here]).all() for c in (rows.op, counts)):
            return extra - 1
    return _EARLIER


class _Judgement:
    """What slots are by a step and the one behind it, and which other steps agree."""

    def __init__(self, steps: Steps, reference: int, writes: Array, *, strict: bool) -> None:
        self.steps, self.reference, self.writes, self.strict = steps, reference, writes, strict
        self.patterns = steps.table.patterns
        value, base = steps.value, steps.base
        here, behind = value[reference], value[reference + 1]
        distance = here - base[reference]
        same, moves = here == behind, behind - base[reference + 1] == distance
        within = (here >= steps.rows.first) & (distance < steps.period) & (distance >= -_LAGS * steps.period)
        constants = np.append(steps.table.is_constant, np.False_)
        stacked = constants[here] & constants[behind]
        kinds = [here < 0, same, moves & within & (distance >= 0), moves & within, stacked]
        self.kind = np.select(kinds, [NUMBER, FIXED, LOCAL, LAGGED, STACKED], BEFORE)
        self.lag = np.where(self.kind == LAGGED, -(distance // steps.period), 0)
        self.source = np.where(self.kind >= LOCAL, distance % steps.period, 0)
        self.distance = distance
        self.stop = 0

    def result(self) -> Regular | None:
        """Return the steps around the reference that agree, with those in front that a loop begins with."""
        if (self.writes & (self.lag > 0)).any() or (self.strict and (self.kind == BEFORE).any()):
            return None  # a write would change what the loop carries
        good, alike = self._good(), self._alike()
        full = good.all(1) & alike
        if not full[self.reference]:
            return None
        wrong = np.flatnonzero(~full)
        begin = int(max(wrong[wrong < self.reference], default=-1)) + 1
        self.stop = int(min(wrong[wrong > self.reference], default=self.steps.count))
        least = self._behind_fixed()
        begin = max(begin, least)
        if begin > self.reference:
            return None
        self._prepare()
        longest = int(self.lag.max(initial=0))
        for first in range(max(begin - longest, least), begin + 1):
            count = self.stop - first
            if count < max(FEWEST_STEPS, longest + 2):
                return None
            if self._begins(first, begin, good, alike):
                steps = self.steps
                at = steps.start + first * steps.period
                columns = self.kind, self.lag, self.source, self.moving
                return Regular(at, steps.period, count, *columns, steps, first, self.reference)
        return None

    def _behind_fixed(self) -> int:
        """Return the first step behind all that steps read of always the same one."""
        value, base = self.steps.value[self.reference], self.steps.base
        end = base[0] + self.steps.period * self.stop
        inside = (self.kind == FIXED) & (value >= base[0]) & (value < end)
        return int(((value - base[0]) // self.steps.period)[inside].max(initial=-1)) + 1

    def _good(self) -> Array:
        """Return, for steps and slots, whether a slot is what it is in the reference."""
        steps, value, ref = self.steps, self.steps.value, self.reference
        distance = value - steps.base[:, None]
        constants = np.append(steps.table.is_constant, np.False_)
        spec = np.append(self._pattern_of(slice(None)), -1)
        as_kind = [
            value < 0,
            value == value[ref],
            distance == self.distance,
            distance == self.distance,
            constants[value] & (spec[value] == spec[value[ref]]),
            value < steps.base[0],
        ]
        good = np.choose(self.kind, as_kind) & (steps.pattern == steps.pattern[ref])
        gradient = steps.gradient
        alike: Array = good & ((gradient == gradient[ref]) | (gradient == NOWHERE) | (gradient[ref] == NOWHERE))
        return alike

    def _pattern_of(self, values: Any) -> Array:
        """Return the patterns of whole values."""
        patterns: Array = np.append(self.patterns.pattern, -1)[self.steps.table.spec[values]]
        return patterns

    def _alike(self) -> Array:
        """Return which steps do what the reference does."""
        operation = self.steps.operation
        alike: Array = (operation == operation[self.reference]).all(1)
        return alike

    def _prepare(self) -> None:
        """Find what is moving and whole of what the loop carries, and what its steps write."""
        steps, lagged = self.steps, self.kind == LAGGED
        offset = steps.offset[..., self.reference : self.stop, :]
        steady = offset[..., -1:, :]
        self.moving = lagged & (offset != steady).any(axis=tuple(range(offset.ndim - 1)))
        zero = (steady == 0).all(axis=tuple(range(offset.ndim - 1)))
        self.whole_pattern = self._pattern_of(steps.rows.first + steps.start + self.source)
        self.whole = lagged & zero & ~self.moving & (steps.pattern[self.reference] == self.whole_pattern)
        self.written = np.unique(steps.value[:, self.writes])

    def _begins(self, first: int, begin: int, good: Array, alike: Array) -> bool:
        """Whether the loop may begin with a step: what differs in it is carried, and has a beginning that serves."""
        for k in range(first, max(begin, first + int(self.lag.max(initial=0)))):
            starting = self.lag > k - first
            if not alike[k] or not (good[k] | starting).all() or not self._serves(k, first)[starting].all():
                return False
        return True

    def _serves(self, k: int, first: int) -> Array:
        """Return which slots of a step hold what a value that is carried may begin as."""
        steps = self.steps
        value, base = steps.value[k], steps.base
        end = base[first] + steps.period * (self.stop - first)
        outside = ((value < base[first]) | (value >= end)) & ~np.isin(value, self.written)
        same = steps.pattern[k] == steps.pattern[self.reference]
        alike = same & (self._pattern_of(value) == self.whole_pattern)
        moved = same & ~self.moving & self.within(k)
        shaped = self.whole & (steps.shape[k] == steps.shape[self.reference])
        serves: Array = outside & np.where(value < 0, self.whole, moved | alike | shaped)
        return serves

    def within(self, k: int) -> Array:
        """Return whether the whole of what begins, whose part a slot of a step reads, lies in its value's memory."""
        return begins_within(self.steps, k, self.stop - 1, self.source)


def begins_within(steps: Steps, k: int, steady: int, source: Array) -> Array:
    """Return whether all that a later step knows as a whole lies in the memory of what a slot of a step reads."""
    table, patterns = steps.table, steps.table.patterns
    moved = steps.offset[..., k, :] - steps.offset[..., steady, :]
    axes = tuple(range(moved.ndim - 1))
    whole, of = table.spec[steps.rows.first + steps.start + source], table.spec[steps.value[k]]
    low = moved.min(axis=axes) + patterns.low[whole]
    high = moved.max(axis=axes) + patterns.high[whole]
    fits: Array = (low >= patterns.low[of]) & (high <= patterns.high[of])
    return fits
