"""The steps of a loop as one: its rows, and what it carries from one step to the next."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from kernels.arrays.specs import spec_of
from kernels.foundation.data_classes import dataclass
from kernels.programs.rolling.recorded_loops import RecordedLoop
from kernels.programs.rolling.regularity import FIXED, LAGGED, LOCAL, STACKED, Regular, begins_within
from kernels.programs.rolling.rows import NOWHERE, UNWANTED, WANTED, Rows, Table

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class Initial:
    """What a loop carries at first, as the columns of a slot; arrays have an axis for each loop around this one."""

    value: int
    spec: int
    offset: Array
    place: Array
    literal: Array
    wanted: bool = False


@dataclass(slots=True, eq=False)
class Lagged:
    """What a loop carries: ``value`` is ``initial``, then what ``source`` was in the step before.

    ``place``: which of the values of inner loops that is.
    """

    value: int
    source: int
    initial: Initial
    wanted: bool
    place: int = 0


@dataclass(slots=True, eq=False)
class RowLoop:
    """``count`` steps of ``items``, made of ``rows``; ``number`` is that in the compiler's program.

    ``ends`` is the loop that was recorded, if it is one; it has at most so many steps.
    """

    count: int
    rows: Rows
    phis: list[Lagged] = field(default_factory=list)
    items: list[Straight | RowLoop] = field(default_factory=list)
    number: int = -1
    ends: RecordedLoop | None = None


@dataclass(slots=True, eq=False)
class Straight:
    """Rows from ``low`` to ``high``, one after the other."""

    rows: Rows
    low: int
    high: int


Item = Straight | RowLoop


def body(regular: Regular, table: Table, elementwise: Array) -> tuple[Rows, list[Lagged]] | None:
    """Return the rows of a loop's step, and what it carries; None where gradients are wanted in some steps only.

    ``elementwise`` says which rows of all take numbers for operands.
    """
    return _Body(regular, table, elementwise).made()


class _Body:
    """One loop's body on its way."""

    def __init__(self, regular: Regular, table: Table, elementwise: Array) -> None:
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

    def made(self) -> tuple[Rows, list[Lagged]] | None:
        steps, regular = self.steps, self.regular
        merged = self._merged()
        chosen = self._sources(merged) if merged is not None else None
        if merged is None or chosen is None:
            return None
        value = np.where(regular.kind == LOCAL, self.first + regular.source, steps.value[regular.reference])
        spec = steps.spec[regular.reference].copy()
        self._stack(value, spec, chosen)
        self._carry(value, merged)
        at = regular.start
        rows = Rows(
            self.first,
            steps.rows.op[at : at + regular.period],
            steps.rows.line[at : at + regular.period],
            chosen,
            steps.starts,
            value,
            spec,
            merged,
            self.offset,
            self.place,
            self.literal,
        )
        return rows, self.phis

    def _merged(self) -> Array | None:
        """Return which gradients are wanted; None if some are in some steps only."""
        wanted, dropped = (((self.gradient == flag) & ~self.starting).any(axis=0) for flag in (WANTED, UNWANTED))
        if (wanted & dropped).any():
            return None
        return np.where(wanted, WANTED, np.where(dropped, UNWANTED, NOWHERE))

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
        for slot in np.flatnonzero(self.regular.kind == STACKED).tolist():
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
                known[key] = self._end_to_end(arrays)
            value[slot], width = known[key]
            self.offset[..., slot] += width * np.arange(len(arrays))

    def _end_to_end(self, arrays: list[Array]) -> tuple[int, int]:
        """Return a constant that has arrays of one spec in its rows, and the bytes of a row."""
        pattern = arrays[0]
        reach = sum((n - 1) * stride for n, stride in zip(pattern.shape, pattern.strides, strict=True))
        width = reach + pattern.itemsize if pattern.size else 0
        memory = np.zeros(width * len(arrays), np.uint8)
        shape, strides = (len(arrays), *pattern.shape), (width, *pattern.strides)
        whole: Array = np.ndarray(shape, pattern.dtype, memory, 0, strides)
        for k, array in enumerate(arrays):
            whole[k] = array
        return self.table.add(self.table.patterns.number(spec_of(whole)), -1, whole), width

    def _carry(self, value: Array, merged: Array) -> None:
        """Let slots that read what an earlier step computed read what the loop carries."""
        regular, steps = self.regular, self.steps
        lags = range(int(regular.lag.max(initial=0)))
        steady = regular.first + regular.count - 1
        fits = [begins_within(steps, regular.first + t, steady, regular.source) for t in lags]
        slots = np.flatnonzero(regular.kind == LAGGED)
        for slot in sorted(slots.tolist(), key=lambda slot: merged[slot] != WANTED):
            lag = int(regular.lag[slot])
            source = self.first + int(regular.source[slot])
            initials = [self._initial(slot, t, fits[t]) for t in range(lag)]
            for initial in reversed(initials):
                source = self._phi(source, initial, wanted=bool(merged[slot] == WANTED)).value
            value[slot] = source
            self.place[..., slot] = 0

    def _initial(self, slot: int, t: int, fits: Array) -> Initial:
        """Return what a slot reads in a step in which the loop carries what is from before it."""
        regular, steps = self.regular, self.steps
        k = regular.first + t
        offset, literal = steps.offset[..., k, slot], steps.literal[..., k, slot]
        wanted = bool(steps.gradient[k, slot] == WANTED)
        number, spec = int(steps.value[k, slot]), int(steps.spec[k, slot])
        initial = Initial(number, spec, offset, steps.place[..., k, slot], literal, wanted)
        if number >= 0 and steps.pattern[k, slot] == steps.pattern[regular.reference, slot]:
            initial.spec = int(self.table.spec[self.first + regular.source[slot]])
            if regular.moving[slot] or not fits[slot]:  # the whole of another value, of which this is a part
                initial.offset = np.zeros_like(offset)
                return initial
            initial.offset = offset - steps.offset[..., regular.first + regular.count - 1, slot]
        self.offset[..., t, slot] = steps.offset[..., regular.first + regular.count - 1, slot]
        return initial

    def _phi(self, source: int, initial: Initial, *, wanted: bool) -> Lagged:
        """Return what the loop carries of a source, from this beginning; each is carried once."""
        columns = initial.offset, initial.place, initial.literal
        key = source, initial.value, initial.spec, *[np.asarray(column).tobytes() for column in columns]
        known = self._known.setdefault(key, [])
        for phi in known:
            if not wanted or (phi.wanted and phi.initial.wanted == initial.wanted):
                return phi
        spec, node = int(self.table.spec[source]), int(self.table.node[source])
        initial.wanted = initial.wanted and wanted
        phi = Lagged(self.table.add(spec, node), source, initial, wanted)
        known.append(phi)
        self.phis.append(phi)
        return phi


__all__ = ["FIXED", "Initial", "Item", "Lagged", "RowLoop", "Straight", "body"]
