"""Leaves with hooks: a sweep stops as soon as the gradient of such a leaf is complete, and delivers it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from kernels.arrays.sweep_interface import Array, Observer, Task
from kernels.native.tape_structs import OK, TOUCHED, SweepHeader
from kernels.sweeps.gradient_views import pattern
from kernels.sweeps.graph import Graph
from kernels.sweeps.leaves import PlacedLeaf, gradients
from kernels.sweeps.workspace import Workspace


def last_uses(order: Iterable[tuple[int, Sequence[Any]]], wanted: set[int]) -> dict[int, int]:
    """Return where leaves, by id, are used for the last time; ``order`` has places and operands, the last first."""
    places: dict[int, int] = {}
    for place, operands in order:
        for operand in operands:
            if id(operand) in wanted:
                places[id(operand)] = place
                wanted.discard(id(operand))
        if not wanted:
            break
    return places


def by_slot(graph: Graph, steps: set[Any] | None, wanted: Container[int]) -> dict[int, list[Any]]:
    """Return leaves, those of these ids, by the slot of the instruction that uses them for the last time.

    ``steps`` are the slots of the instructions that run; None for all.
    """
    leaves = {id(end): end for end, _ in graph.ends.values() if id(end) in wanted}
    order = (
        (instruction.slot, instruction.operands)
        for instruction in reversed(graph.marked)
        if steps is None or instruction.slot in steps
    )
    stops: dict[int, list[Any]] = {}
    for key, slot in last_uses(order, set(leaves)).items() if leaves else ():
        stops.setdefault(slot, []).append(leaves[key])
    return stops


class Stops:
    """The stops of a native sweep."""

    def __init__(self, space: Workspace, task: Task, placed: list[PlacedLeaf], buffers: list[Array]) -> None:
        self.space, self.task = space, task
        self.count, self.leaves = space.words[SweepHeader.count], space.words[SweepHeader.leaf]
        asked = [(o, b) for o, b in zip(task.observers, buffers, strict=True) if id(o.key) in task.hooked]
        rows: dict[int, Any] = {id(o.key): (o, buffer) for o, buffer in asked}
        if not task.restrict:
            rows.update({id(row[0]): row for row in placed if id(row[0]) in task.hooked})
        uses = last_uses(self._order(), set(rows)) if rows else {}
        ordered = [(place + 1, k, key) for k, (key, place) in enumerate(uses.items())]
        self.places = [(place, key) for place, _, key in sorted(ordered)][::-1]
        self.rows, self.reached = rows, set[int]()

    def _order(self) -> Iterable[tuple[int, Sequence[Any]]]:
        entries, order = self.task.entries, self.space.order[: self.count].tolist()
        for k in range(self.count - 1, -1, -1):
            yield k, entries.at(order[k])[3]

    def sweep(self, address: int) -> int:
        """Sweep as the native sweep does, delivering leaves with hooks on the way."""
        header = self.space.words
        while self.places:
            place = self.places[-1][0]
            header[SweepHeader.count], header[SweepHeader.leaf] = place, 0  # leaves are settled at the end
            status = int(self.space.sweep(address))
            if status != OK:
                return status
            while self.places and self.places[-1][0] == place:
                self._hand_over(self.places.pop()[1])
            header[SweepHeader.position], header[SweepHeader.resume] = place, 0
        header[SweepHeader.count], header[SweepHeader.leaf] = self.count, self.leaves
        return int(self.space.sweep(address))

    def _hand_over(self, key: int) -> None:
        row, space = self.rows[key], self.space
        if isinstance(row[0], Observer):
            leaf, bucket = row[0].key, space.bucket(-key)
            value: Any = pattern(row[1], row[0].spec, row[0].offset)
        else:
            leaf, bucket = row[0], row[2]
            value = gradients(space, [row])[0][1]
        assert self.task.reached is not None
        if space.flat[bucket + 3] & TOUCHED:
            self.reached.add(key)
            self.task.reached(leaf, value + 0.0 if type(value) is float else value + value.dtype.type(0.0))
