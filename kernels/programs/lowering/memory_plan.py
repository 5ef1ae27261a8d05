"""Which values and gradient buffers of a program share memory: those that are not needed at the same time."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import numpy as np

from kernels.compiler import jit
from kernels.native.memory import where

Array = np.ndarray[Any, Any]

SMALL = 64
"""Up to so many bytes a value takes the place of one of its own size; there are many, so they are placed natively."""


def offsets(used: Array, times: Array, rooms: Array, fixed: Array) -> tuple[Array, int]:
    """Return each value's offset in one block of memory, -1 for values that are not in it, and the block's size.

    ``used`` are the values that tasks use, ``times`` these tasks, in order; ``rooms`` the bytes of each value, 0 for
    values that are elsewhere. The ``fixed`` ones have memory of their own; others have it from the first task that uses
    them to the last. Values that no task uses have none.
    """
    first, last = np.full((2, len(rooms)), -1)
    first[used[::-1]] = times[::-1]
    last[used] = times
    places_found = np.full(len(rooms), -1)
    alone = np.flatnonzero(fixed & (rooms > 0))
    ends = rooms[alone].cumsum()
    places_found[alone] = ends - rooms[alone]
    size = int(ends[-1]) if len(ends) else 0
    shared = ~fixed & (rooms > 0) & (first >= 0)
    small = np.flatnonzero(shared & (rooms <= SMALL))
    places, more = _small(first[small], last[small], rooms[small])
    places_found[small] = places + size
    free = Free(size + more + -(size + more) % SMALL)
    _place(free, np.flatnonzero(shared & (rooms > SMALL)), first, last, rooms, places_found)
    return places_found, free.size


def _small(first: Array, last: Array, rooms: Array) -> tuple[Array, int]:
    """Return places for values of few bytes, and the size of them all."""
    born, dying = (np.argsort(times, kind="stable") for times in (first, last))
    starts, behind, heads = np.empty_like(first), np.empty_like(first), np.full(1 + SMALL // 8, -1)
    tables = (born, dying, first, last, np.ascontiguousarray(rooms), starts, behind, heads)
    return starts, jit.load_module("programs.lowering.memory_plan_native").share(len(first), *map(where, tables))


def _place(free: Free, values: Array, first: Array, last: Array, rooms: Array, offsets: Array) -> None:
    """Place the larger values: at each task the largest first; then values that it was the last to use are free."""
    born = values[np.lexsort((-rooms[values], first[values]))].tolist()
    dying = values[np.argsort(last[values], kind="stable")].tolist()
    gone, starts = 0, dict[int, int]()
    for value, begin, room in zip(born, first[born].tolist(), rooms[born].tolist(), strict=True):
        while last[dying[gone]] < begin:
            free.give(starts[dying[gone]], int(rooms[dying[gone]]))
            gone += 1
        starts[value] = free.take(room)
    offsets[born] = [starts[value] for value in born]


class Free:
    """The gaps in a block of memory that grows: what is asked for goes into the smallest gap that it fits."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._sizes: list[tuple[int, int]] = []
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def take(self, room: int) -> int:
        """Return where so many bytes are free."""
        at = bisect_left(self._sizes, (room, 0))
        if at == len(self._sizes):
            return self._grow(room)
        gap, start = self._sizes[at]
        self._remove(start, gap)
        if gap > room:
            self._add(start + room, gap - room)
        return start

    def _grow(self, room: int) -> int:
        """Enlarge the block by what is missing."""
        start = self._ends.get(self.size, self.size)
        if start < self.size:
            self._remove(start, self.size - start)
        self.size = start + room
        return start

    def give(self, start: int, room: int) -> None:
        """Free bytes, merging them with free neighbours."""
        before, behind = self._ends.get(start), self._starts.get(start + room)
        if before is not None:
            self._remove(before, start - before)
            start, room = before, room + start - before
        if behind is not None:
            self._remove(start + room, behind)
            room += behind
        self._add(start, room)

    def _add(self, start: int, size: int) -> None:
        self._starts[start], self._ends[start + size] = size, start
        insort(self._sizes, (size, start))

    def _remove(self, start: int, size: int) -> None:
        del self._starts[start], self._ends[start + size]
        del self._sizes[bisect_left(self._sizes, (size, start))]
