"""Which values and shadows of a program share memory: those that are not needed at the same time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Sequence

from kernels.program import Recipe
from kernels.tasks import Fill, Place, Task

Key = tuple[int, bool]
"""A node, and whether its shadow is meant."""


def places_in(task: Task) -> tuple[Place, ...]:
    """Return the places that a task reads or writes."""
    return (task.place,) if isinstance(task, Fill) else task.places


def offsets(recipe: Recipe, tasks: Sequence[Task], rooms: dict[Key, int]) -> tuple[dict[Key, int], int]:
    """Return where each value and shadow stands in one block of memory, and the size of the block.

    ``rooms`` has the bytes of each. What is given or asked for from outside, and numbers that are there from the
    start, have memory of their own; the others have it from the first task that names them to the last. What no task
    names has none.
    """
    first: dict[Key, int] = {}
    last: dict[Key, int] = {}
    for t, task in enumerate(tasks):
        for place in places_in(task):
            key = (place.node if place.shadow else recipe.base_of(place.node), place.shadow)
            first.setdefault(key, t)
            last[key] = t
    fixed = set(_outside(recipe, first))
    found: dict[Key, int] = {}
    size = 0
    for key in fixed & rooms.keys():
        found[key], size = size, size + rooms[key]
    born, dying = _by_task(first, rooms, fixed), _by_task(last, rooms, fixed)
    free = Free(size)
    for t in range(len(tasks)):
        for key in sorted(born.get(t, ()), key=lambda key: -rooms[key]):
            found[key] = free.take(rooms[key])
        for key in dying.get(t, ()):
            free.give(found[key], rooms[key])
    return found, free.size


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
        """Take what is missing behind the end."""
        start = self._ends.get(self.size, self.size)
        if start < self.size:
            self._remove(start, self.size - start)
        self.size = start + room
        return start

    def give(self, start: int, room: int) -> None:
        """Take bytes back, joined with what is free before and behind."""
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


def _outside(recipe: Recipe, named: Container[Key]) -> Iterable[Key]:
    """Yield what is given or asked for, and the numbers that tasks read."""
    for node in (*recipe.arguments, *recipe.outputs):
        yield recipe.base_of(node), False
        yield recipe.family_of(node), True
    for node, about in enumerate(recipe.nodes):
        if about.constant is not None and ((node, False) in named or about.constant.ndim):
            yield node, False


def _by_task(times: dict[Key, int], rooms: dict[Key, int], fixed: set[Key]) -> dict[int, list[Key]]:
    found: dict[int, list[Key]] = {}
    for key, t in times.items():
        if key in rooms and key not in fixed:
            found.setdefault(t, []).append(key)
    return found
