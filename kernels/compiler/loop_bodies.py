"""The steps of a loop as one: its rows, and what it carries from one step to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from kernels.compiler.periods import (
    FEWEST_STEPS,
    NOWHERE,
    UNWANTED,
    WANTED,
    Extraction,
    RowSpan,
    SlotRead,
    StepTable,
    ValueTable,
)
from kernels.foundation.specs import Array, spec_of
from kernels.foundation.tables import cached_property, dataclass
from kernels.programs.program import RecipeLoop

Renaming = Callable[[StepTable, int, int], tuple[Array, Array]]
"""Returns values and places of what the rows from one to another read, loops before them being known."""

LITERAL, INVARIANT, SAME_ITERATION, LOOP_CARRIED, PER_ITERATION_CONST, OUTSIDE = range(6)
"""Class of an operand slot across iterations: literal; loop-invariant; produced in the same iteration; loop-carried; a
different constant per iteration; produced before the loop."""
_ZERO = np.zeros((), np.int64)
_LAGS = 64  # steps back that a loop carries values over
_EARLIER = 2  # steps in front that do the same operations on operands of other kinds: the first ones of a loop


@dataclass(slots=True, eq=False)
class Regular:
    """Steps of a loop: ``count`` from row ``start`` on, and what each slot of a step is."""

    start: int
    period: int
    count: int
    kind: Array
    lag: Array
    source: Array  # the row of the step that computes it
    moving: Array  # parts of what is carried that differ from step to step
    steps: StepColumns
    first: int  # the first step, counted among ``steps``
    reference: int  # a step that is like the others

    @property
    def worth(self) -> float:
        """The rows that the loop stands for; fewer where it passes values on for many steps."""
        lagged = self.kind == LOOP_CARRIED
        longest = np.zeros(self.period, np.int64)
        np.maximum.at(longest, self.source[lagged], self.lag[lagged] - 1)
        return self.period * self.count * self.period / (self.period + int(longest.sum()))


class StepColumns:
    """Rows in steps of ``period``: columns of slots with an axis of steps; ``base`` are the values of first rows."""

    def __init__(
        self, rows: StepTable, table: ValueTable, renamed: Renaming, start: int, period: int, count: int
    ) -> None:
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


def regular(
    rows: StepTable, table: ValueTable, renamed: Renaming, span: RowSpan, writes: Array, *, strict: bool = True
) -> Regular | None:
    """Return the most steps of a span that are a loop's, or None; ``strict``: they read nothing unknown before them."""
    start, period, count, _, low = span
    counts = np.diff(rows.starts[start : start + period * count + 1]).reshape(count, period)
    if (counts != counts[0]).any():  # tokens are hashes
        return None
    extra = _earlier(rows, start, period, low)
    steps = StepColumns(rows, table, renamed, start - extra * period, period, count + extra)
    best: Regular | None = None
    for reference in sorted({extra + 1, extra + 2, steps.count // 2}):
        if reference + 1 < steps.count and (best is None or best.count < count):
            judged = _Judgement(steps, reference, writes[steps.slots][: steps.value.shape[1]], strict=strict).result()
            if judged is not None and (best is None or judged.count > best.count):
                best = judged
    return best


def _earlier(rows: StepTable, start: int, period: int, low: int) -> int:
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

    def __init__(self, steps: StepColumns, reference: int, writes: Array, *, strict: bool) -> None:
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
        self.kind = np.select(kinds, [LITERAL, INVARIANT, SAME_ITERATION, LOOP_CARRIED, PER_ITERATION_CONST], OUTSIDE)
        self.lag = np.where(self.kind == LOOP_CARRIED, -(distance // steps.period), 0)
        self.source = np.where(self.kind >= SAME_ITERATION, distance % steps.period, 0)
        self.distance = distance
        self.stop = 0

    def result(self) -> Regular | None:
        """Return the steps around the reference that agree, with those in front that a loop begins with."""
        if (self.writes & (self.lag > 0)).any() or (self.strict and (self.kind == OUTSIDE).any()):
            return None  # a write would change what the loop carries
        operation = self.steps.operation
        good, alike = self._good(), (operation == operation[self.reference]).all(1)
        full = good.all(1) & alike
        if not full[self.reference]:
            return None
        wrong = np.flatnonzero(~full)
        begin = int(max(wrong[wrong < self.reference], default=-1)) + 1
        self.stop = int(min(wrong[wrong > self.reference], default=self.steps.count))
        step_of = (self.steps.value[self.reference] - self.steps.base[0]) // self.steps.period
        inside = (self.kind == INVARIANT) & (step_of >= 0) & (step_of < self.stop)
        least = int(step_of[inside].max(initial=-1)) + 1  # behind all that steps read of always the same one
        begin = max(begin, least)
        if begin > self.reference:
            return None
        steps, lagged = self.steps, self.kind == LOOP_CARRIED
        offset = steps.offset[..., self.reference : self.stop, :]
        steady = offset[..., -1:, :]
        self.moving = lagged & (offset != steady).any(axis=tuple(range(offset.ndim - 1)))
        zero = (steady == 0).all(axis=tuple(range(offset.ndim - 1)))
        self.whole_pattern = self._pattern_of(steps.rows.first + steps.start + self.source)
        self.whole = lagged & zero & ~self.moving & (steps.pattern[self.reference] == self.whole_pattern)
        self.written = np.unique(steps.value[:, self.writes])
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

    def _good(self) -> Array:
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
        patterns: Array = np.append(self.patterns.pattern, -1)[self.steps.table.spec[values]]
        return patterns

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
        moved = same & ~self.moving & begins_within(self.steps, k, self.stop - 1, self.source)
        shaped = self.whole & (steps.shape[k] == steps.shape[self.reference])
        serves: Array = outside & np.where(value < 0, self.whole, moved | alike | shaped)
        return serves


def begins_within(steps: StepColumns, k: int, steady: int, source: Array) -> Array:
    """Return whether all that a later step knows as a whole lies in the memory of what a slot of a step reads."""
    table, patterns = steps.table, steps.table.patterns
    moved = steps.offset[..., k, :] - steps.offset[..., steady, :]
    axes = tuple(range(moved.ndim - 1))
    whole, of = table.spec[steps.rows.first + steps.start + source], table.spec[steps.value[k]]
    low = moved.min(axis=axes) + patterns.low[whole]
    high = moved.max(axis=axes) + patterns.high[whole]
    fits: Array = (low >= patterns.low[of]) & (high <= patterns.high[of])
    return fits


class RecordedLoop(NamedTuple):
    """A loop that was recorded, by rows."""

    first: int  # that copies what the loop starts from
    begin: int
    again: int  # where its body ends: the next row ends the loop
    phis: list[int]  # the values of the rows that copy what it starts from
    recorded: RecipeLoop


def recorded_loops(extraction: Extraction) -> list[RecordedLoop]:
    """Return the loops of a recipe, each with one body, in the order of their begins."""
    rows, loops = extraction.rows, list[RecordedLoop]()
    for loop in extraction.recipe.steps.loops():
        begin, again = np.searchsorted(extraction.kept, (loop.begin, loop.bodies[0][1])).tolist()
        phis = rows.value[rows.starts[begin] :][: len(loop.phis)].tolist()
        loops.append(RecordedLoop(begin - len(phis), begin, again, phis, loop))
    return loops


class Lagged(NamedTuple):
    """A loop-carried value: ``value`` is what ``initial`` reads, then what ``update`` read one step back."""

    value: int
    initial: SlotRead
    update: SlotRead


@dataclass(slots=True, eq=False)
class RowLoop:
    """``count`` steps of ``items``, made of ``rows``; with ``ends``, of a recorded loop, at most so many."""

    count: int
    rows: StepTable
    phis: list[Lagged] = field(default_factory=list)
    items: list[Straight | RowLoop] = field(default_factory=list)
    number: int = -1
    ends: RecordedLoop | None = None
    limit: SlotRead | None = None  # the most steps, where a value says that


@dataclass(slots=True, eq=False)
class Straight:
    """Rows from ``low`` to ``high``, one after the other."""

    rows: StepTable
    low: int
    high: int


Item = Straight | RowLoop


class LoopBody:
    """The rows of a loop's step, and what it carries."""

    def __init__(self, regular: Regular, table: ValueTable, elementwise: Array) -> None:
        self.regular, self.table, self.elementwise = regular, table, elementwise
        steps = self.steps = regular.steps
        self.span = slice(regular.first, regular.first + regular.count)
        self.first = int(steps.base[regular.first])
        self.gradient = steps.gradient[self.span]
        self.starting = regular.lag > np.arange(regular.count)[:, None]
        self.offset, self.place, self.literal = (
            column[..., self.span, :].copy() for column in (steps.offset, steps.place, steps.literal)
        )
        self.phis: list[Lagged] = []
        self._known: dict[Any, list[Lagged]] = {}

    def made(self) -> tuple[StepTable, list[Lagged]] | None:
        """Return both; None where gradients are wanted in some steps only."""
        steps, regular = self.steps, self.regular
        wanted, dropped = (((self.gradient == flag) & ~self.starting).any(axis=0) for flag in (WANTED, UNWANTED))
        merged = np.where(wanted, WANTED, np.where(dropped, UNWANTED, NOWHERE))
        chosen = None if (wanted & dropped).any() else self._sources(merged)
        if chosen is None:
            return None
        value = np.where(regular.kind == SAME_ITERATION, self.first + regular.source, steps.value[regular.reference])
        spec = steps.spec[regular.reference].copy()
        self._stack(value, spec, chosen)
        self._carry(value, merged)
        at = regular.start
        op, line = (column[at : at + regular.period] for column in (steps.rows.op, steps.rows.line))
        slots = value, spec, merged, self.offset, self.place, self.literal
        return StepTable(self.first, op, line, chosen, steps.starts, *slots), self.phis

    def _sources(self, merged: Array) -> Array | None:
        """Return rows of which each stands for those of all steps: gradients are wanted as they all are together."""
        steps, regular = self.steps, self.regular
        sums = np.cumsum(self.gradient == WANTED, axis=1)
        sums = np.concatenate([np.zeros((regular.count, 1), np.int64), sums], axis=1)
        counts = sums[:, steps.starts[1:]] - sums[:, steps.starts[:-1]]
        best = regular.count - 1 - np.argmax(counts[::-1], axis=0)
        slots = np.arange(len(merged))
        if ((self.gradient[best[steps.row], slots] == WANTED) != (merged == WANTED)).any():
            return None
        rows: Array = steps.rows.source[regular.start + best * regular.period + np.arange(regular.period)]
        return rows

    def _stack(self, value: Array, spec: Array, chosen: Array) -> None:
        """Put constants that differ from step to step end to end; those of one number are numbers."""
        steps, constants = self.steps, self.table.constants
        known: dict[bytes, tuple[int, int]] = {}
        for slot in np.flatnonzero(self.regular.kind == PER_ITERATION_CONST).tolist():
            numbers = steps.value[self.span, slot]
            arrays = [constants[number] for number in numbers.tolist()]
            if self.elementwise[chosen[steps.row[slot]]] and not arrays[0].shape and arrays[0].dtype == np.float64:
                self.literal[..., slot] = [float(array) for array in arrays]
                value[slot] = spec[slot] = -1
                continue
            if all(array.tobytes() == arrays[0].tobytes() for array in arrays):
                value[slot] = numbers[0]
                continue
            key = numbers.tobytes()
            if key not in known:
                pattern = arrays[0]
                reach = sum((n - 1) * stride for n, stride in zip(pattern.shape, pattern.strides, strict=True))
                width = reach + pattern.itemsize if pattern.size else 0
                memory = np.zeros(width * len(arrays), np.uint8)
                shape, strides = (len(arrays), *pattern.shape), (width, *pattern.strides)
                whole: Array = np.ndarray(shape, pattern.dtype, memory, 0, strides)
                for k, array in enumerate(arrays):
                    whole[k] = array
                known[key] = self.table.add(self.table.patterns.number(spec_of(whole)), -1, whole), width
            value[slot], width = known[key]
            self.offset[..., slot] += width * np.arange(len(arrays))

    def _carry(self, value: Array, merged: Array) -> None:
        """Let slots that read what an earlier step computed read what the loop carries."""
        regular, steps = self.regular, self.steps
        lags = range(int(regular.lag.max(initial=0)))
        steady = regular.first + regular.count - 1
        fits = [begins_within(steps, regular.first + t, steady, regular.source) for t in lags]
        slots = np.flatnonzero(regular.kind == LOOP_CARRIED)
        for slot in sorted(slots.tolist(), key=lambda slot: merged[slot] != WANTED):
            lag = int(regular.lag[slot])
            source = self.first + int(regular.source[slot])
            initials = [self._initial(slot, t, fits[t]) for t in range(lag)]
            for initial in reversed(initials):
                source = self._phi(source, initial, wanted=bool(merged[slot] == WANTED)).value
            value[slot] = source
            self.place[..., slot] = 0

    def _initial(self, slot: int, t: int, fits: Array) -> SlotRead:
        """Return what a slot reads in a step in which the loop carries what is from before it."""
        regular, steps = self.regular, self.steps
        k = regular.first + t
        offset, literal = steps.offset[..., k, slot], steps.literal[..., k, slot]
        wanted = bool(steps.gradient[k, slot] == WANTED)
        number, spec = int(steps.value[k, slot]), int(steps.spec[k, slot])
        initial = SlotRead(number, spec, offset, steps.place[..., k, slot], literal, wanted)
        if number >= 0 and steps.pattern[k, slot] == steps.pattern[regular.reference, slot]:
            initial.spec = int(self.table.spec[self.first + regular.source[slot]])
            if regular.moving[slot] or not fits[slot]:  # the whole of another value, of which this is a part
                initial.offset = np.zeros_like(offset)
                return initial
            initial.offset = offset - steps.offset[..., regular.first + regular.count - 1, slot]
        self.offset[..., t, slot] = steps.offset[..., regular.first + regular.count - 1, slot]
        return initial

    def _phi(self, source: int, initial: SlotRead, *, wanted: bool) -> Lagged:
        columns = initial.offset, initial.place, initial.literal
        key = source, initial.value, initial.spec, *[np.asarray(column).tobytes() for column in columns]
        known = self._known.setdefault(key, [])
        for phi in known:
            if not wanted or (phi.update.wanted and phi.initial.wanted == initial.wanted):
                return phi
        spec, node = int(self.table.spec[source]), int(self.table.node[source])
        initial.wanted = initial.wanted and wanted
        update = SlotRead(source, spec, _ZERO, _ZERO, _ZERO, wanted)
        phi = Lagged(self.table.add(spec, node), initial, update)
        known.append(phi)
        self.phis.append(phi)
        return phi
