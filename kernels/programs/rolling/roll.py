"""A recipe as a program of loops: what repeats in its rows, the longest parts first, and within these again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.programs.recording.program import Recipe
from kernels.programs.rolling.emission import Emission
from kernels.programs.rolling.loop_bodies import Initial, Item, Lagged, RowLoop, Straight, body
from kernels.programs.rolling.periods import FEWEST_STEPS, Run, phase, runs, tokens, with_distances, with_offsets
from kernels.programs.rolling.recorded_loops import RecordedLoop, recorded_loops
from kernels.programs.rolling.regularity import Regular, Span, regular
from kernels.programs.rolling.rolled_program import RolledProgram
from kernels.programs.rolling.rows import Extraction, Rows
from kernels.programs.rolling.several_ways import in_one_way

Array = np.ndarray[Any, Any]

LEAST_ROWS = 12
"""Rows that a loop stands for, at least."""
LEAST_ROWS_WITHIN = 300
"""The same of a loop in another one's body: shorter ones run faster step by step."""
MOST_ITERATIONS = 1 << 20
"""Iterations of a recorded loop that machine code goes through, at most, unless they need much memory."""
_TRIES = 8
"""Runs that are judged of those that tokens suggest."""
_ENOUGH = 0.9
"""Part of the rows that a loop stands for if none better is looked for."""
_LOOKS = 60
"""How often, on average, a row is looked at, at most: a program without loops is found to be so quickly."""


def rolled(recipe: Recipe, *, roll: bool = True) -> RolledProgram:
    """Return a recorded program without its views, what repeats in it as loops; Uncompiled where that cannot be.

    Without ``roll`` there are no loops.
    """
    extraction = Extraction(in_one_way(recipe))
    rolling = _Rolling(extraction, recorded_loops(extraction), roll=roll)
    rows = extraction.rows
    items, outputs = rolling.roll(rows, 0, len(rows), LEAST_ROWS), extraction.outputs
    place = np.zeros(len(outputs.value), np.int64)
    within = outputs.value >= rows.first
    place[within] = rolling.place[outputs.value[within]]
    outputs.value[within] = rolling.value[outputs.value[within]]
    return Emission(extraction, items, place).program()


class _Rolling:
    """Rolls rows; knows for each row that went into a loop which value that is: ``value``, ``place`` of ``times``.

    ``recorded`` are the loops that were recorded, in order.
    """

    def __init__(self, extraction: Extraction, recorded: Sequence[RecordedLoop], *, roll: bool) -> None:
        self.extraction, self.table, self.rolls = extraction, extraction.table, roll
        count, rows = len(self.table), len(extraction.rows)
        self.value, self.place, self.times = np.arange(count), np.zeros(count, np.int64), np.ones(count, np.int64)
        kinds = extraction.recipe.steps.kinds
        is_elementwise = np.array([isinstance(kind.op, Elementwise) for kind in kinds], np.bool_)
        self.elementwise = is_elementwise[extraction.kind]
        self.looks = _LOOKS * rows
        self.recorded = recorded
        self.depth = np.zeros(rows + 1, np.int64)
        """In how many recorded loops a row is, so that a step that began with it would split them."""
        for loop in recorded:
            self.depth[loop.first + 1 : loop.end + 1] += 1

    def _pieces(self, rows: Rows, low: int, high: int) -> Iterator[Item]:
        """Yield rows, and the recorded loops among them, as they are."""
        shift = rows.first - self.extraction.first
        while (loop := self._next(low + shift, high + shift)) is not None:
            yield self._straight(rows, low, loop.begin + 1 - shift)
            yield self._recorded(rows, loop, shift)
            low = loop.end + 1 - shift
        if high > low:
            yield self._straight(rows, low, high)

    def _next(self, low: int, high: int) -> RecordedLoop | None:
        """Return the first recorded loop that begins with one of these rows."""
        number = bisect_left(self.recorded, low, key=lambda loop: loop.first)
        loop = self.recorded[number] if number < len(self.recorded) else None
        return loop if loop is not None and loop.end < high else None

    def _recorded(self, rows: Rows, loop: RecordedLoop, shift: int) -> RowLoop:
        """Return a recorded loop, which is so many rows before these in all."""
        begin, again = loop.begin - shift, loop.again - shift
        made = RowLoop(MOST_ITERATIONS, rows, ends=loop)
        made.items = self.roll(rows, begin + 1, again, LEAST_ROWS)
        self._straight(rows, again, again + 1)
        first, last = int(rows.starts[begin]), int(rows.starts[again])
        for k, value in enumerate(loop.phis):
            zero = np.zeros((), np.int64)
            initial = Initial(int(rows.value[first + k]), -1, zero, zero, zero)
            made.phis.append(Lagged(value, int(rows.value[last + k]), initial, wanted=True))
        return made

    def renamed(self, rows: Rows, low: int, high: int) -> tuple[Array, Array]:
        """Return the values and places that rows read, where loops before them are known."""
        slots = slice(int(rows.starts[low]), int(rows.starts[high]))
        value, place = rows.value[slots], rows.place[..., slots]
        within = (value >= rows.first) & (value < rows.first + len(rows))
        number = np.where(within, value, 0)
        return np.where(within, self.value[number], value), np.where(within, self.place[number], place)

    def roll(self, rows: Rows, low: int, high: int, least: int) -> list[Item]:
        """Return the rows from ``low`` to ``high`` as loops and what is between them."""
        items: list[Item] = []
        refused: set[int] = set()
        while (judged := self._best(rows, low, high, least, refused)) is not None:
            at, period, stop = judged.start, judged.period, judged.start + judged.period * judged.count
            items += self.roll(rows, low, at, least) if at > low else []
            low = at
            strict = self._judged(rows, Span(at, period, judged.count, at))
            while strict is not None and strict.start > low:
                items += self.roll(rows, low, strict.start, least)
                low = strict.start
                strict = self._judged(rows, Span(low, period, (stop - low) // period, low))
            loop = self._loop(strict) if strict is not None and strict.count * period >= least else None
            if loop is None or strict is None:
                refused.add(period)
                continue
            items.append(loop)
            low += strict.count * period
            refused.clear()
        return [*items, *self._pieces(rows, low, high)]

    def _straight(self, rows: Rows, low: int, high: int) -> Straight:
        slots = slice(int(rows.starts[low]), int(rows.starts[high]))
        rows.value[slots], rows.place[..., slots] = self.renamed(rows, low, high)
        return Straight(rows, low, high)

    def _judged(self, rows: Rows, span: Span, *, strict: bool = True) -> Regular | None:
        return regular(rows, self.table, self.renamed, span, self._writes(rows), strict=strict)

    def _writes(self, rows: Rows) -> Array:
        """Return which slots are parts that are written."""
        writes = np.zeros(len(rows.value), np.bool_)
        writes[rows.starts[:-1][self.extraction.is_write[rows.source]]] = True
        return writes

    def _splits(self, rows: Rows, low: int) -> Array:
        """Return with which rows from one on no step may begin: it would be part of a recorded loop."""
        first = rows.first - self.extraction.first
        depth = self.depth[first : first + len(rows) + 1]
        splits: Array = depth > depth[low]
        return splits

    def _best(self, rows: Rows, low: int, high: int, least: int, refused: set[int]) -> Regular | None:
        """Return the loop that stands for the most rows; what it reads of rows before is not looked at yet."""
        self.looks -= high - low
        if high - low < max(least, FEWEST_STEPS) or self.looks < 0 or not self.rolls:
            return None
        names, best = tokens(rows, self.table), None
        for further in (None, with_distances, with_offsets):
            names = names if further is None else further(names, rows)
            likely = [run for run in runs(names[low:high]) if run.period not in refused]
            best = self._best_of(rows, likely[:_TRIES], (low, high), least, best)
            if best is not None and best.worth >= _ENOUGH * (high - low):
                break
        return best

    def _best_of(
        self, rows: Rows, likely: list[Run], span: tuple[int, int], least: int, best: Regular | None
    ) -> Regular | None:
        """Return the best of some runs, or what was better before."""
        low, high = span
        writes, splits = self._writes(rows), self._splits(rows, low)
        for run in likely:
            longest = run.rows + 2 * run.period
            if longest < least or (best is not None and longest <= best.worth):
                continue
            start = phase(run._replace(start=low + run.start), rows, writes, splits, low)
            apart = int(np.argmin(splits[start : start + run.period]))
            if splits[start + apart]:  # it is within a recorded loop
                continue
            whole = Span(start + apart, run.period, run.times - (apart > 0), low)
            judged = self._judged(rows, whole, strict=False)
            if judged is None or judged.period * judged.count < least:
                continue
            if best is None or judged.worth > best.worth:
                best = judged
            if best.worth >= _ENOUGH * (high - low):
                break
        return best

    def _loop(self, judged: Regular) -> RowLoop | None:
        """Return a loop; its body is rolled, and its rows are known by the step they are of."""
        made = body(judged, self.table, self.elementwise)
        if made is None:
            return None
        body_rows, phis = made
        loop = RowLoop(judged.count, body_rows, phis)
        first, period = body_rows.first, judged.period
        loop.items = self.roll(body_rows, 0, period, LEAST_ROWS_WITHIN)
        for phi in loop.phis:
            if first <= phi.source < first + period:
                phi.place, phi.source = int(self.place[phi.source]), int(self.value[phi.source])
        one = slice(first, first + period)
        value, place, times = self.value[one].copy(), self.place[one].copy(), self.times[one].copy()
        whole = slice(first, first + period * judged.count)
        steps = np.arange(judged.count)[:, None]
        self.value[whole] = np.tile(value, judged.count)
        self.place[whole] = (steps * times + place).ravel()
        self.times[whole] = np.tile(times * judged.count, judged.count)
        return loop
