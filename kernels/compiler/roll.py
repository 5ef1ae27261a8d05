"""A recipe as a program of loops: what repeats in its rows, the longest parts first, and within these again."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from kernels.compiler import loop_bodies, periods
from kernels.compiler.loop_bodies import (
    Item,
    Lagged,
    LoopBody,
    RecordedLoop,
    Regular,
    RowLoop,
    Straight,
)
from kernels.compiler.periods import FEWEST_STEPS, WANTED, Extraction, RowSpan, SlotRead, StepTable
from kernels.foundation.specs import Array, Spec
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.routine import Guard
from kernels.kinds.views import Write
from kernels.native.structs import WINDOW
from kernels.operations.views import CLONE
from kernels.programs import rolled_program
from kernels.programs.program import Recipe, Skipped
from kernels.programs.rolled_program import Index, Loop, Numbers, Operand, Phi, Ref, RolledInstruction, RolledProgram
from kernels.programs.several_ways import in_one_way

_ZERO = Index(0)
Path: TypeAlias = tuple[RowLoop, ...]  # loops around each other, outermost first


class Slots:
    """The slots of rows as lists: what they are in the first steps of the loops, and which differ in others."""

    def __init__(self, rows: StepTable) -> None:
        self.rows = rows
        self.starts, self.value, self.spec = rows.starts.tolist(), rows.value.tolist(), rows.spec.tolist()
        self.wanted = (rows.gradient == WANTED).tolist()
        self.source, bits = rows.source.tolist(), np.ascontiguousarray(rows.literal).view(np.int64)
        columns = [column.reshape(-1, len(rows.value) or 1) for column in (rows.offset, rows.place, bits)]
        self.offset, self.place = (column[:1].ravel().tolist() for column in columns[:2])
        self.literal = columns[2][:1].ravel().view(np.float64).tolist()
        self.varies = np.any([(column != column[:1]).any(axis=0) for column in columns], axis=0).tolist()


class Emission:
    """One program on its way."""

    def __init__(self, extraction: Extraction, items: list[Item], places: Array) -> None:
        self.extraction, self.items, self.places = extraction, items, places
        self.table, self.recipe = extraction.table, extraction.recipe
        self.kinds, self.kind = self.recipe.steps.kinds, extraction.kind.tolist()
        self.specs, self._spec = self.table.patterns.specs, self.table.spec.tolist()
        self.kept = [isinstance(kind.op, Write | Guard) for kind in self.kinds]
        self.values: list[rolled_program.Value] = []
        self.numbers: dict[int, int] = {}  # of values in the program, by those of the table
        self.paths: dict[int, Path] = {}  # the loops that values are made in
        self.loops: list[Loop] = []
        self.slots: dict[int, Slots] = {}
        self.needed = bytearray()  # by value of the table: whether an output, a write or a guard needs it

    def program(self) -> RolledProgram:
        """Return the whole program."""
        self.needed = bytearray(len(self.table))
        for value in self.extraction.outputs.value.tolist():
            self.needed[value] = 1
        while self._mark(self.items) and any(isinstance(item, RowLoop) for item in self.items):
            pass
        self.behind = self._read_behind() if self.extraction.is_mark.any() else set[int]()
        arguments = [self._new(place, ()) for place in range(len(self.recipe.arguments))]
        for place, number in enumerate(arguments):
            self.values[number].argument = place
        body = self._items(self.items, ())
        guards, conditional = self.extraction.whole.guards, self.extraction.whole.conditional
        return RolledProgram(self.values, body, self.loops, arguments, self._outputs(), guards, conditional)

    def _mark(self, items: list[Item]) -> bool:
        """Mark what needed rows read, the last first; return whether what a loop carries turned out to be needed."""
        again, needed = False, self.needed
        for item in reversed(items):
            if isinstance(item, Straight):
                self._mark_rows(item)
                continue
            again |= self._mark(item.items)
            if item.limit is not None:
                needed[item.limit.value] = 1
            for phi in reversed(item.phis):
                for read in (phi.update, phi.initial) if needed[phi.value] else ():
                    if read.value >= 0:
                        again |= not needed[read.value]
                        needed[read.value] = 1
        return again

    def _mark_rows(self, item: Straight) -> None:
        slots, first, needed = self._slots(item.rows), item.rows.first, self.needed
        starts, value, source, kind, kept = slots.starts, slots.value, slots.source, self.kind, self.kept
        for row in range(item.high - 1, item.low - 1, -1):
            if needed[first + row] or kept[kind[source[row]]]:
                for operand in value[starts[row] : starts[row + 1]]:
                    if operand >= 0:
                        needed[operand] = 1

    def _slots(self, rows: StepTable) -> Slots:
        known = self.slots.get(id(rows))
        if known is None:
            known = self.slots[id(rows)] = Slots(rows)
        return known

    def _new(self, value: int, path: Path) -> int:
        node = int(self.table.node[value])
        differentiable = node >= 0 and bool(self.extraction.columns.wants[node])
        loop = path[-1].number if path else -1
        constant = self.table.constants.get(value)
        made = rolled_program.Value(self.specs[self._spec[value]], -1, constant, loop, differentiable=differentiable)
        self.values.append(made)
        self.numbers[value] = len(self.values) - 1
        self.paths[value] = path
        return len(self.values) - 1

    def _number(self, value: int) -> int:
        number = self.numbers.get(value)
        return self._new(value, ()) if number is None else number

    def _items(self, items: list[Item], path: Path) -> list[RolledInstruction | Loop]:
        made: list[RolledInstruction | Loop] = []
        for item in items:
            if isinstance(item, Straight):
                self._straight(item, path, made)
            elif self._is_needed(item):
                made.append(self._loop(item, path))
                made += self._carried_out(item, path)
        return made

    def _carried_out(self, item: RowLoop, path: Path) -> Iterator[RolledInstruction]:
        """Yield copies of what an inner recorded loop carried in the end: of numbers, and of what is read later."""
        for value in item.ends.phis if item.ends is not None and path else ():
            spec = self.specs[self._spec[value]]
            if self.needed[value] and (spec.size <= rolled_program.SMALL or value in self.behind):
                wanted = self.values[self.numbers[value]].differentiable
                end = Ref(self.numbers[value], _ZERO, spec, wanted, self._at(value, np.int64(0), path))
                form = CLONE.form((spec,), spec, (True,)) if wanted else None
                line = int(self.extraction.steps[item.ends.begin])
                yield RolledInstruction(CLONE, (), form, (end,), self._new(value, path), line=line)

    def _read_behind(self) -> set[int]:
        """Return what recorded loops carry that is read where a loop around these is not around."""
        made: dict[int, Path] = {}
        read = [(value, ()) for value in self.extraction.outputs.value.tolist()]
        self._find_reads(self.items, (), made, read)
        return {value for value, path in read if value in made and path[: len(made[value])] != made[value]}

    def _find_reads(self, items: list[Item], path: Path, made: dict[int, Path], read: list[tuple[int, Path]]) -> None:
        for item in items:
            if isinstance(item, Straight):
                slots = self._slots(item.rows)
                read += [(value, path) for value in slots.value[slots.starts[item.low] : slots.starts[item.high]]]
                continue
            read += [(phi.initial.value, path) for phi in item.phis]
            made |= {phi.value: path for phi in item.phis} if item.ends is not None else {}
            self._find_reads(item.items, (*path, item), made, read)

    def _is_needed(self, item: Item) -> bool:
        if isinstance(item, RowLoop):
            return any(self._is_needed(inner) for inner in item.items)
        slots, first = self._slots(item.rows), item.rows.first
        rows = range(item.low, item.high)
        return any(self.needed[first + row] or self.kept[self.kind[slots.source[row]]] for row in rows)

    def _loop(self, item: RowLoop, path: Path) -> Loop:
        item.number = len(self.loops)
        loop = Loop(item.number, item.count, path[-1].number if path else -1)
        self.loops.append(loop)
        inner = (*path, item)
        phis = [phi for phi in item.phis if self.needed[phi.value]]
        initials = [self._read(phi.initial, path) for phi in phis]
        if item.ends is not None:
            limit = item.ends.recorded.limit if item.limit is None else self._read(item.limit, path)
            loop.ends = rolled_program.Ends(limit, item.ends.recorded.counted)
        else:
            first, guards = item.rows.first - self.extraction.first, self.extraction.whole.guards
            begin, end = (bisect_left(guards, self.extraction.steps[row]) for row in (first, first + len(item.rows)))
            loop.guards = end - begin
        for phi in phis:
            self._new(phi.value, inner)
        loop.body = self._items(item.items, inner)
        for phi, initial in zip(phis, initials, strict=True):
            update = self._read(phi.update, inner)
            if not isinstance(update, Ref):
                line = -1 if item.ends is None else int(self.extraction.steps[item.ends.begin])
                raise rolled_program.Uncompiled("a loop carries a number", line)
            loop.phis.append(Phi(self.numbers[phi.value], initial, update))
        return loop

    def _read(self, read: SlotRead, path: Path) -> Operand:
        if read.value < 0:
            return _literal(read.literal, path)
        number, at = self._number(read.value), self._at(read.value, read.place, path)
        return Ref(number, _index(read.offset, path), self.specs[read.spec], read.wanted, at)

    def _straight(self, item: Straight, path: Path, made: list[RolledInstruction | Loop]) -> None:
        rows, slots = item.rows, self._slots(item.rows)
        first, starts, source, lines = rows.first, slots.starts, slots.source, rows.line.tolist()
        for row in range(item.low, item.high):
            number = self.kind[source[row]]
            if not self.needed[first + row] and not self.kept[number]:
                continue
            op, form, params, _ = self.kinds[number]
            operands = tuple([self._operand(slots, slot, path) for slot in range(starts[row], starts[row + 1])])
            result, target = -1, None
            if isinstance(op, Write):
                part, *rest = operands
                assert isinstance(part, Ref)
                target, operands = part, tuple(rest)
                self.values[part.value].written = True
            elif not isinstance(op, Guard):
                result = self._new(first + row, path)
                node = int(self.extraction.result[source[row]])
                self.values[result].differentiable = bool(self.extraction.columns.wants[node])
            extras = self._extras(int(self.extraction.kept[source[row]])) if op.extras and not params[1:] else ()
            made.append(RolledInstruction(op, params, form, operands, result, target, lines[row], extras))

    def _extras(self, at: int) -> tuple[tuple[tuple[Any, ...], Spec], ...]:
        steps, nodes = self.recipe.steps, self.recipe.nodes
        after = steps[at + 1 : at + 1 + len(steps[at].op.extras)]
        return tuple([(step.params, nodes[step.result].spec) for step in after])

    def _operand(self, slots: Slots, slot: int, path: Path) -> Operand:
        value, offset = slots.value[slot], slots.offset[slot]
        if slots.varies[slot]:
            return self._read(slots.rows.read(slot), path)
        if value < 0:
            return slots.literal[slot]
        number = self._number(value)
        within = bool(self.paths[value]) and self.paths[value] != path
        at = self._at(value, np.int64(slots.place[slot]), path) if within else ()
        index = Index(offset) if offset else _ZERO
        return Ref(number, index, self.specs[slots.spec[slot]], slots.wanted[slot], at)

    def _at(self, value: int, place: Any, path: Path) -> tuple[Index, ...]:
        """Return the steps of the loops around a value that are not around its reader, of which ``place`` is one."""
        loops = self.paths.get(value, ())
        shared = sum(mine is other for mine, other in zip(loops, path, strict=False))
        inner = loops[shared:]
        steps = []
        for k, loop in enumerate(inner):
            if loop.ends is not None:
                steps.append(Index(0, ((loop.number, 1),)))
                continue
            after = math.prod([behind.count for behind in inner[k + 1 :] if behind.ends is None])
            steps.append(_index(np.asarray(place) // after % loop.count, path))
        return tuple(steps)

    def _outputs(self) -> list[Ref]:
        outputs, refs = self.extraction.outputs, []
        columns = outputs.value, outputs.spec, outputs.gradient, outputs.offset, self.places
        for value, spec, gradient, offset, place in zip(*(column.tolist() for column in columns), strict=True):
            number, at = self._number(value), self._at(value, place, ())
            refs.append(Ref(number, Index(offset), self.specs[spec], gradient == WANTED, at))
        return refs


def _with_axes(path: Path) -> Path:
    """Return the loops that columns have an axis for: all but recorded ones."""
    return tuple([loop for loop in path if loop.ends is None])


def _index(entries: Array, path: Path) -> Index:
    """Return integers, which have an axis for each loop, as an index: multiples of steps as far as may be."""
    entries = np.asarray(entries)
    path = _with_axes(path)
    if not entries.ndim or (entries == entries.flat[0]).all():
        return Index(int(entries.flat[0]))
    terms: list[tuple[int, int]] = []
    loops: list[int] = []
    for axis in range(entries.ndim - 1, -1, -1):
        steps = np.diff(entries, axis=axis)
        if (steps == steps.flat[0]).all():
            if steps.flat[0]:
                terms.insert(0, (path[axis].number, int(steps.flat[0])))
            entries = entries.take(0, axis=axis)
        else:
            loops.insert(0, path[axis].number)
    if not entries.ndim:
        return Index(int(entries), tuple(terms))
    return Index(0, tuple(terms), (tuple(loops), np.ascontiguousarray(entries)))


def _literal(entries: Array, path: Path) -> float | Numbers:
    """Return numbers, which have an axis for each loop, as one, or as those that change with some of the loops."""
    entries = np.ascontiguousarray(entries)
    path = _with_axes(path)
    bits: Array = entries.view(np.int64).reshape(entries.shape)
    loops: list[int] = []
    for axis in range(entries.ndim - 1, -1, -1):
        if (bits == bits.take([0], axis=axis)).all():
            bits = np.asarray(bits.take(0, axis=axis))
        else:
            loops.insert(0, path[axis].number)
    numbers = np.ascontiguousarray(bits).view(np.float64).reshape(np.shape(bits))
    return Numbers(tuple(loops), numbers) if loops else float(numbers)


LEAST_ROWS = 12  # rows that a loop stands for, at least
LEAST_ROWS_WITHIN = 300  # the same of a loop in another one's body: shorter ones run faster step by step
MOST_ITERATIONS = 1 << 20
"""Iterations of a recorded loop that machine code goes through, at most, unless they need much memory."""
_TURNS = 2, 3  # how many arrays may take turns in the steps of a loop
_TRIES = 8  # runs that are judged of those that tokens suggest
_ENOUGH = 0.9  # part of the rows that a loop stands for if none better is looked for
_LOOKS = 60  # how often, on average, a row is looked at, at most: a program without loops is found to be so quickly


def rolled(recipe: Recipe, *, roll: bool = True) -> RolledProgram:
    """Return a recorded program without views and, with ``roll``, repetitions as loops; Uncompiled where impossible.

    Unabsorbed where the iterations that it has not kept are no loop's: then with :func:`recording.whole`.
    """
    extraction = Extraction(in_one_way(recipe))
    rolling = _Rolling(extraction, loop_bodies.recorded_loops(extraction), roll=roll)
    rows = extraction.rows
    read = rows.value.copy() if recipe.skipped else rows.value
    items, outputs = rolling.roll(rows, 0, len(rows), LEAST_ROWS), extraction.outputs
    rolling.check(read)
    place = np.zeros(len(outputs.value), np.int64)
    within = outputs.value >= rows.first
    place[within] = rolling.place[outputs.value[within]]
    outputs.value[within] = rolling.value[outputs.value[within]]
    return Emission(extraction, items, place).program()


class Unabsorbed(Exception):  # noqa: N818 (no error: the whole recipe serves)
    """No loop goes on where the recording has not kept iterations."""


class _Rolling:
    """Rolls rows; ``value``, ``place`` of ``times``: which value each row is that went into a loop."""

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
        self.gaps = [_Gap(extraction, skipped) for skipped in extraction.recipe.skipped]
        for loop in recorded:
            self.depth[loop.first + 1 : loop.again + 2] += 1

    def _pieces(self, rows: StepTable, low: int, high: int) -> Iterator[Item]:
        """Yield rows, and the recorded loops among them, as they are."""
        shift = rows.first - self.extraction.first
        while (loop := self._next(low + shift, high + shift)) is not None:
            yield self._straight(rows, low, loop.begin + 1 - shift)
            yield self._recorded(rows, loop, shift)
            low = loop.again + 2 - shift
        if high > low:
            yield self._straight(rows, low, high)

    def _next(self, low: int, high: int) -> RecordedLoop | None:
        """Return the first recorded loop that begins with one of these rows."""
        number = bisect_left(self.recorded, low, key=lambda loop: loop.first)
        loop = self.recorded[number] if number < len(self.recorded) else None
        return loop if loop is not None and loop.again + 1 < high else None

    def _recorded(self, rows: StepTable, loop: RecordedLoop, shift: int) -> RowLoop:
        begin, again = loop.begin - shift, loop.again - shift
        made = RowLoop(MOST_ITERATIONS, rows, ends=loop)
        made.items = self.roll(rows, begin + 1, again, LEAST_ROWS)
        self._straight(rows, again, again + 1)
        first, last = int(rows.starts[begin]), int(rows.starts[again])
        made.phis = [Lagged(v, rows.read(first + k), rows.read(last + k)) for k, v in enumerate(loop.phis)]
        made.limit = rows.read(int(rows.starts[begin + 1]) - 1) if loop.recorded.has_count else None
        return made

    def renamed(self, rows: StepTable, low: int, high: int) -> tuple[Array, Array]:
        """Return the values and places that rows read, where loops before them are known."""
        slots = slice(int(rows.starts[low]), int(rows.starts[high]))
        value, place = rows.value[slots], rows.place[..., slots]
        within = (value >= rows.first) & (value < rows.first + len(rows))
        number = np.where(within, value, 0)
        return np.where(within, self.value[number], value), np.where(within, self.place[number], place)

    def roll(self, rows: StepTable, low: int, high: int, least: int) -> list[Item]:
        """Return the rows from ``low`` to ``high`` as loops and what is between them."""
        items: list[Item] = []
        refused: set[int] = set()
        while (judged := self._best(rows, low, high, least, refused)) is not None:
            at, period, stop = judged.start, judged.period, judged.start + judged.period * judged.count
            items += self.roll(rows, low, at, least) if at > low else []
            low = at
            strict = self._judged(rows, RowSpan(at, period, judged.count, low=at))
            while strict is not None and strict.start > low:
                items += self.roll(rows, low, strict.start, least)
                low = strict.start
                strict = self._judged(rows, RowSpan(low, period, (stop - low) // period, low=low))
            loop = self._loop(strict) if strict is not None and strict.count * period >= least else None
            if loop is None or strict is None:
                refused.add(period)
                continue
            items.append(loop)
            low += strict.count * period
            refused.clear()
        return [*items, *self._pieces(rows, low, high)]

    def _straight(self, rows: StepTable, low: int, high: int) -> Straight:
        slots = slice(int(rows.starts[low]), int(rows.starts[high]))
        rows.value[slots], rows.place[..., slots] = self.renamed(rows, low, high)
        return Straight(rows, low, high)

    def _judged(self, rows: StepTable, span: RowSpan, *, strict: bool = True) -> Regular | None:
        return loop_bodies.regular(rows, self.table, self.renamed, span, self._writes(rows), strict=strict)

    def _writes(self, rows: StepTable) -> Array:
        writes = np.zeros(len(rows.value), np.bool_)
        writes[rows.starts[:-1][self.extraction.is_write[rows.source]]] = True
        return writes

    def _best(self, rows: StepTable, low: int, high: int, least: int, refused: set[int]) -> Regular | None:
        """Return the loop that stands for the most rows; what it reads of rows before is not looked at yet."""
        self.looks -= high - low
        if high - low < max(least, FEWEST_STEPS) or self.looks < 0 or not self.rolls:
            return None
        names, best = periods.tokens(rows, self.table), None
        for further in (None, periods.with_distances, periods.with_offsets):
            names = names if further is None else further(names, rows)
            # of arrays that take turns: so many steps as one
            more = {k * period for period in refused for k in _TURNS if k * period * FEWEST_STEPS <= high - low}
            likely = [run for run in periods.runs(names[low:high], more) if run.period not in refused]
            best = self._best_of(rows, likely[:_TRIES], (low, high), least, best)
            if best is not None and best.worth >= _ENOUGH * (high - low):
                break
        return best

    def _best_of(
        self, rows: StepTable, likely: list[RowSpan], span: tuple[int, int], least: int, best: Regular | None
    ) -> Regular | None:
        """Return the best of some runs, or what was better before."""
        low, high = span
        first = rows.first - self.extraction.first
        depth = self.depth[first : first + len(rows) + 1]
        writes, splits = self._writes(rows), depth > depth[low]  # where a step would split a recorded loop
        for run in likely:
            longest = run.rows + 2 * run.period
            if longest < least or (best is not None and longest <= best.worth):
                continue
            start = periods.phase(run._replace(start=low + run.start, low=low), rows, writes, splits)
            apart = int(np.argmin(splits[start : start + run.period]))
            if splits[start + apart]:  # it is within a recorded loop
                continue
            whole = RowSpan(start + apart, run.period, run.times - (apart > 0), low=low)
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
        made = LoopBody(judged, self.table, self.elementwise).made()
        if made is None:
            return None
        body_rows, phis = made
        first, period, steps = body_rows.first, judged.period, np.arange(judged.count)[:, None]
        start = first - self.extraction.first
        gap = next((gap for gap in self.gaps if gap.is_in(start, start + period * judged.count)), None)
        more = 0
        if gap is not None:
            more = gap.iterations(period)
            gap.lengthen(body_rows, start, period, judged.count)
            steps[gap.first_later(start, period) :] += more
        loop = RowLoop(judged.count + more, body_rows, phis)
        loop.items = self.roll(body_rows, 0, period, LEAST_ROWS_WITHIN)
        for _, _, update in loop.phis:
            if first <= update.value < first + period:
                update.place, update.value = self.place[update.value], int(self.value[update.value])
                update.spec = int(self.table.spec[update.value])
        one = slice(first, first + period)
        value, place, times = self.value[one].copy(), self.place[one].copy(), self.times[one].copy()
        whole = slice(first, first + period * judged.count)
        self.value[whole] = np.tile(value, judged.count)
        self.place[whole] = (steps * times + place).ravel()
        self.times[whole] = np.tile(times * loop.count, judged.count)
        return loop

    def check(self, read: Array) -> None:
        """Raise Unabsorbed where a loop does not go on through iterations that are not kept."""
        outputs = self.extraction.outputs.value
        for gap in self.gaps:
            low, high = (self.extraction.first + row for row in gap.doubtful)
            behind = np.concatenate([read[self.extraction.rows.starts[gap.behind] :], outputs])
            if not gap.absorbed or ((behind >= low) & (behind < high)).any():
                raise Unabsorbed


class _Gap:
    """Iterations that are not among the rows: a loop that comes to where they would be goes on through them."""

    def __init__(self, extraction: Extraction, skipped: Skipped) -> None:
        self.extraction, self.skipped = extraction, skipped
        self.row, begin = np.searchsorted(extraction.kept, (skipped.step, skipped.step - skipped.steps)).tolist()
        self.period = self.row - begin
        self.absorbed, self.doubtful, self.behind = False, (0, 0), 0

    def is_in(self, start: int, stop: int) -> bool:
        """Whether rows go through the last iterations that are kept, and reach the place."""
        window = self.row - (WINDOW + 1) * self.period
        return not self.absorbed and start <= window and stop > self.row - self.period

    def iterations(self, period: int) -> int:
        """Return how many more steps a loop of this period does."""
        times, rest = divmod(period, self.period)
        if rest or self.skipped.count % times:
            raise Unabsorbed
        return self.skipped.count // times

    def first_later(self, start: int, period: int) -> int:
        """Return the first step of a loop that stands for a later one where rows behind it read it."""
        return (self.row - WINDOW * self.period - start) // period

    def lengthen(self, rows: StepTable, start: int, period: int, count: int) -> None:
        """Let the columns of a loop go on, where steps are not kept, as in the steps before."""
        if rows.offset.ndim != 2 or count <= WINDOW:  # noqa: PLR2004 (steps, and slots)
            raise Unabsorbed
        more, row = self.iterations(period), np.repeat(np.arange(period), np.diff(rows.starts))
        kept = np.minimum(-((start + row - self.row) // period), count)  # how many steps of a slot come before
        rows.offset, rows.place = (_going_on(column, kept, more) for column in (rows.offset, rows.place))
        literal = np.ascontiguousarray(rows.literal)
        if self.skipped.values is None and (literal.view(np.int64) == literal[:1].view(np.int64)).all():
            rows.literal = _alike(literal[0], count + more)
        else:
            made = _going_on(literal, kept, more, moves=False)
            for slot in np.flatnonzero(rows.value < 0).tolist():
                k, first = int(kept[slot]), int(rows.starts[row[slot]])
                numbers = self._numbers(start + (k - 1) * period + int(row[slot]), slot - first, period)
                made[k : k + more, slot] = numbers
            rows.literal = made
        first = self.first_later(start, period)
        self.absorbed, self.behind = True, start + period * count
        self.doubtful = start + first * period, self.row - WINDOW * self.period

    def _numbers(self, row: int, nth: int, period: int) -> list[float]:
        """Return the numbers that stand where one of a row does, in the steps that are not kept."""
        skipped, steps = self.skipped, self.extraction.recipe.steps
        word = steps.raw(int(self.extraction.kept[row])).operands[nth]
        number = ~word - skipped.number  # from those of the steps that are not kept on: negative
        size = skipped.numbers
        values = np.array(steps.numbers[skipped.number + number :: size][: -(number // size)])
        later = np.repeat(values[-1:], skipped.count) if skipped.values is None else skipped.values[:, number % size]
        times = period // self.period
        return np.concatenate([values[1:], later])[times - 1 :: times][: skipped.count // times].tolist()


def _alike(row: Array, count: int) -> Array:
    """Return so many rows of one memory; what is written there is the same for all."""
    return np.lib.stride_tricks.as_strided(row.copy(), (count, len(row)), (0, row.itemsize))


def _going_on(column: Array, kept: Array, more: int, *, moves: bool = True) -> Array:
    """Return a column with more entries behind those that are ``kept``, which go on by the same differences."""
    if moves and (column == column[:1]).all():
        return _alike(column[0], len(column) + more)
    made = np.empty((len(column) + more, column.shape[1]), column.dtype)
    for k in set(kept.tolist()):
        slots = np.flatnonzero(kept == k)
        part = column[:, slots]
        by = part[k - 1] - part[k - 2] if moves else part[0] * 0
        if moves and (part[k - 2] - part[k - 3] != by).any():
            raise Unabsorbed
        made[:k, slots], made[k + more :, slots] = part[:k], part[k:]
        made[k : k + more, slots] = part[k - 1] + by * np.arange(1, more + 1)[:, None]
    return made
