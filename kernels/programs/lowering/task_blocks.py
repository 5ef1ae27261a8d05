"""Tasks in blocks: those of most steps follow a pattern, so the places of many steps' tasks are computed as arrays."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kernels.codegen.tasks import Tasks
from kernels.programs.lowering.node_columns import Columns
from kernels.programs.recording.notifying_structs import HEAD
from kernels.programs.recording.program import Node, Recipe

Array = np.ndarray[Any, Any]
_FLOAT64 = np.dtype(np.float64)

OPERAND, RESULT, NODE, TEMPORARY, EXTRA, OPERAND_GRADIENT, RESULT_GRADIENT = range(7)
"""What a place holds: an operand (by number), the result, a node that all steps share, a temporary (by number), a value
that the forward pass made for the pullback, the gradient of an operand or of the result."""
FEW = 32
"""Up to so many steps are appended one by one: for few, arrays are slower."""
Source = tuple[int, int]
"""What a place holds, and its number or the node."""


@dataclass(slots=True)
class Pattern:
    """The calls of a step, and what each of their places holds."""

    calls: list[int]
    adds: list[int]
    places: list[Source]
    offsets: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of places, by the places' numbers, where they are not 0."""
    temporaries: list[Node] = field(default_factory=list)
    extra: Source | None = None
    """The node that the forward pass makes for the pullback."""
    dtypes: dict[int, np.dtype[Any]] = field(default_factory=dict)
    """The dtypes of operands that are Python numbers; float64 for other operands."""


class Owners(NamedTuple):
    """The tables that tell which step tasks belong to: of each step the pattern, of patterns where their calls end."""

    rows: array[int]
    call_ends: array[int]

    def table(self) -> Array:
        """Return, a row a step: the number of its tasks, the step, where the places of these begin."""
        rows = np.array(self.rows, np.int64).reshape(-1, 3)
        calls = np.diff(np.array(self.call_ends))
        return np.column_stack([calls[rows[:, 0]], rows[:, 1:]]) if len(rows) else rows


class Blocks:
    """Tasks that follow patterns, in order, between other tasks.

    ``order`` has their patterns, ``~pattern`` where the first place is stored to instead of added to; ``steps`` has the
    steps. :meth:`flush` appends them to the tasks, before any other task is appended; :meth:`finish` writes their
    places.
    """

    def __init__(self, recipe: Recipe, tasks: Tasks, number: Callable[..., int], extra: dict[int, int]) -> None:
        self.recipe, self.tasks, self.number, self.extra = recipe, tasks, number, extra
        self.patterns: list[Pattern] = []
        self.order: list[int] = []
        self.steps: list[int] = []
        self._calls, self._adds, self._call_ends = array("q"), array("b"), array("q", [0])
        self._sources, self._numbers, self._place_ends = array("q"), array("q"), array("q", [0])
        self._words = self._starts = np.zeros(0, np.int64)
        self._rows = array("q")
        """For each step: the pattern, its position among the steps, and where its places begin."""
        self.owners = Owners(self._rows, self._call_ends)

    def add(self, pattern: Pattern) -> int:
        """Return the number of a new pattern."""
        self.patterns.append(pattern)
        self._calls.extend(pattern.calls)
        self._adds.extend(pattern.adds)
        self._call_ends.append(len(self._calls))
        self._sources.extend([source for source, _ in pattern.places])
        self._numbers.extend([k for _, k in pattern.places])
        self._place_ends.append(len(self._sources))
        return len(self.patterns) - 1

    def flush(self) -> None:
        """Append the tasks that wait, with room for their places."""
        if len(self.order) < FEW:
            for signed, at in zip(self.order, self.steps, strict=True):
                self._append(signed, at)
        else:
            self._append_all(np.array(self.order))
        self.order.clear()
        self.steps.clear()

    def _append(self, signed: int, at: int) -> None:
        k, tasks = signed if signed >= 0 else ~signed, self.tasks
        self._rows.extend((k, at, len(tasks.places)))
        calls, adds = self.patterns[k].calls, self.patterns[k].adds
        tasks.call_numbers.extend(calls)
        tasks.adds.extend(adds if signed >= 0 else [0] * len(calls))
        tasks.places.extend([0] * len(self.patterns[k].places))

    def _append_all(self, signed: Array) -> None:
        tasks, order = self.tasks, np.where(signed < 0, ~signed, signed)
        nth, sizes = _spread(self._call_ends, order)
        rooms = np.diff(np.array(self._place_ends))[order]
        begins = len(tasks.places) + rooms.cumsum() - rooms
        self._rows.frombytes(np.stack([order, np.array(self.steps), begins], axis=1).tobytes())
        tasks.call_numbers.frombytes(np.array(self._calls)[nth].tobytes())
        tasks.adds.frombytes((np.array(self._adds)[nth] * np.repeat(signed >= 0, sizes)).tobytes())
        tasks.places.frombytes(bytes(8 * int(rooms.sum())))

    def finish(self, columns: Columns | None = None) -> None:
        """Write the places; ``columns`` say where gradients are."""
        self.flush()
        if not self._rows:
            return
        order, at, begins = np.array(self._rows).reshape(-1, 3).T
        self._words, self._starts = np.array(self.recipe.steps.words), np.array(self.recipe.steps.starts)
        first, (nth, rooms) = self._temporaries(order), _spread(self._place_ends, order)
        rows = np.repeat(np.arange(len(at)), rooms)
        places = begins[rows] + nth - np.array(self._place_ends)[order[rows]]
        sources = np.array(self._sources)[nth]
        nodes = self._nodes_of(sources, np.array(self._numbers)[nth], at[rows], first[rows])
        if columns is not None:
            gradients = sources >= OPERAND_GRADIENT
            offsets = columns.buffer_offset[nodes[gradients]]
            moved = np.flatnonzero(offsets)
            self.tasks.offsets.update(zip(places[gradients][moved].tolist(), offsets[moved].tolist(), strict=True))
            nodes[gradients] = ~columns.family[nodes[gradients]]
        for i in np.flatnonzero((sources == OPERAND) & (nodes < 0)).tolist():
            dtype = self.patterns[order[rows[i]]].dtypes.get(self._numbers[nth[i]], _FLOAT64)
            nodes[i] = self.number(self.recipe.steps.numbers[~nodes[i]], dtype)
        np.frombuffer(self.tasks.places, np.int64)[places] = nodes
        for i in _those(order, [bool(p.offsets) for p in self.patterns]):
            self.tasks.offsets.update({int(begins[i]) + j: n for j, n in self.patterns[order[i]].offsets})
        self._keep_extras(order, at, first)

    def _temporaries(self, order: Array) -> Array:
        """Make the temporaries; return the first node of each step's."""
        made = np.array([len(p.temporaries) for p in self.patterns])[order]
        first = len(self.recipe.nodes) + made.cumsum() - made
        for k in order[made > 0].tolist():
            self.recipe.nodes.extend(self.patterns[k].temporaries)
        return first

    def _nodes_of(self, sources: Array, numbers: Array, at: Array, first: Array) -> Array:
        """Return the nodes at places of these steps; for Python numbers their words."""
        words, starts, nodes = self._words, self._starts[at], numbers.copy()
        of_operands = (sources == OPERAND) | (sources == OPERAND_GRADIENT)
        nodes[of_operands] = words[starts[of_operands] + HEAD + numbers[of_operands]]
        of_results = (sources == RESULT) | (sources == RESULT_GRADIENT)
        nodes[of_results] = words[starts[of_results] + 1]
        nodes[sources == TEMPORARY] += first[sources == TEMPORARY]
        nodes[sources == EXTRA] = [self.extra[i] for i in at[sources == EXTRA].tolist()]
        return nodes

    def _keep_extras(self, order: Array, at: Array, first: Array) -> None:
        rows = _those(order, [p.extra is not None for p in self.patterns])
        sources = np.array([self.patterns[k].extra for k in order[rows].tolist()], np.int64).reshape(-1, 2)
        nodes = self._nodes_of(sources[:, 0], sources[:, 1], at[rows], first[rows])
        self.extra.update(zip(at[rows].tolist(), nodes.tolist(), strict=True))


def _those(order: Array, wanted: list[bool]) -> list[int]:
    """Return the positions in the order whose patterns are wanted."""
    return np.flatnonzero(np.array(wanted)[order]).tolist()  # type: ignore[no-any-return]


def _spread(ends: array[int], order: Array) -> tuple[Array, Array]:
    """Return the indices of all items of these parts in a table of parts end to end, and the parts' sizes."""
    bounds = np.array(ends)
    begins, sizes = bounds[:-1][order], np.diff(bounds)[order]
    return np.repeat(begins - (sizes.cumsum() - sizes), sizes) + np.arange(sizes.sum()), sizes
