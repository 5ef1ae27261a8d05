"""Which values and shadows of a program share memory: those that are not needed at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    start, have memory of their own; the others have it from the first task that names them to the last.
    """
    first: dict[Key, int] = {}
    last: dict[Key, int] = {}
    for t, task in enumerate(tasks):
        for place in places_in(task):
            key = (place.node if place.shadow else recipe.base_of(place.node), place.shadow)
            first.setdefault(key, t)
            last[key] = t
    fixed = {key for key in rooms if key not in first} | set(_outside(recipe))
    found: dict[Key, int] = {}
    size = 0
    for key in fixed & rooms.keys():
        found[key], size = size, size + rooms[key]
    born, dying = _by_task(first, rooms, fixed), _by_task(last, rooms, fixed)
    free: dict[int, list[int]] = {}
    for t in range(len(tasks)):
        for key in born.get(t, ()):
            same = free.setdefault(rooms[key], [])
            if same:
                found[key] = same.pop()
            else:
                found[key], size = size, size + rooms[key]
        for key in dying.get(t, ()):
            free.setdefault(rooms[key], []).append(found[key])
    return found, size


def _outside(recipe: Recipe) -> Iterable[Key]:
    for node in (*recipe.arguments, *recipe.outputs):
        yield recipe.base_of(node), False
        yield recipe.family_of(node), True
    for node, about in enumerate(recipe.nodes):
        if about.constant is not None:
            yield node, False


def _by_task(times: dict[Key, int], rooms: dict[Key, int], fixed: set[Key]) -> dict[int, list[Key]]:
    found: dict[int, list[Key]] = {}
    for key, t in times.items():
        if key in rooms and key not in fixed:
            found.setdefault(t, []).append(key)
    return found
