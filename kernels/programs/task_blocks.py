"""Tasks in blocks: those of most steps follow a pattern, so the places of many steps' tasks are computed as arrays."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.foundation.specs import FLOAT64, Array
from kernels.kinds.form import Lowering, ProgramStep
from kernels.native.memory import where
from kernels.native.structs import RUN_AGAIN, RUN_BODY, RUN_GUARD, RUN_LOOP, RUN_NEXT, LoopStack, ProgramRow
from kernels.programs.program import HEAD, ProgramNode, Recipe, RecipeLoop
from kernels.rules.scalar_loops import OperandPlace, Steering, Tasks, node_of


class Columns:
    """The nodes of a recipe; a number for each.

    ``base`` and ``family`` are the nodes whose memory and whose gradient a node's are part of: itself where it is no
    view; ``offset`` and ``buffer_offset`` its places there, in bytes. ``wants``: whether it has a gradient.
    """

    def __init__(self, nodes: Sequence[ProgramNode]) -> None:
        ids = np.fromiter(map(id, nodes), np.int64, len(nodes))
        _, first, self._place = np.unique(ids, return_index=True, return_inverse=True)
        self._distinct = [nodes[i] for i in first.tolist()]
        everyone = np.arange(len(nodes))
        base = self.of(lambda node: -1 if node.base is None else node.base)
        family = self.of(lambda node: -1 if node.family is None else node.family)
        self.base, self.family = (np.where(column < 0, everyone, column) for column in (base, family))
        self.offset, self.buffer_offset = self.of(lambda node: node.offset), self.of(lambda node: node.buffer_offset)
        differentiable = self.of(lambda node: node.differentiable)
        self.wants = (differentiable | differentiable[self.family]) != 0

    def of(self, attribute: Callable[[ProgramNode], int]) -> Array:
        """Return an attribute of each node."""
        return np.array([attribute(node) for node in self._distinct], np.int64)[self._place]


OPERAND, RESULT, NODE, TEMPORARY, EXTRA, OPERAND_GRADIENT, RESULT_GRADIENT = range(7)
"""What a place holds: an operand (by number), the result, a node that all steps share, a temporary (by number), a value
that the forward pass made for the pullback, the gradient of an operand or of the result."""
FEW = 32  # up to so many steps are appended one by one: for few, arrays are slower
Source = tuple[int, int]  # what a place holds, and its number or the node


@dataclass(slots=True)
class StepCalls:
    """The calls of a step, and what each of their places holds."""

    calls: list[int]
    adds: list[int]
    places: list[Source]
    offsets: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of places, by the places' numbers, where they are not 0."""
    temporaries: list[ProgramNode] = field(default_factory=list)
    extra: Source | None = None  # the node that the forward pass makes for the pullback
    dtypes: dict[int, np.dtype[Any]] = field(default_factory=dict)
    """The dtypes of operands that are Python numbers; float64 for other operands."""


class TaskBatches:
    """Tasks that follow patterns, in order, between other tasks.

    ``order`` has their patterns, ``~pattern`` where the first place is stored to instead of added to; ``steps`` has the
    steps. :meth:`flush` appends them to the tasks, before any other task is appended; :meth:`finish` writes their
    places.
    """

    def __init__(self, recipe: Recipe, tasks: Tasks, number: Callable[..., int], extra: dict[int, int]) -> None:
        self.recipe, self.tasks, self.number, self.extra = recipe, tasks, number, extra
        self.patterns: list[StepCalls] = []
        self.order: list[int] = []
        self.steps: list[int] = []
        self._calls, self._adds, self._call_ends = array("q"), array("b"), array("q", [0])
        self._sources, self._numbers, self._place_ends = array("q"), array("q"), array("q", [0])
        self._words = self._starts = np.zeros(0, np.int64)
        self._rows = array("q")  # for each step: the pattern, its position among the steps, and where its places begin

    def add(self, pattern: StepCalls) -> int:
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
                k, tasks = signed if signed >= 0 else ~signed, self.tasks
                self._rows.extend((k, at, len(tasks.places)))
                calls, adds = self.patterns[k].calls, self.patterns[k].adds
                tasks.call_numbers.extend(calls)
                tasks.adds.extend(adds if signed >= 0 else [0] * len(calls))
                tasks.steps.extend([at] * len(calls))
                tasks.places.extend([0] * len(self.patterns[k].places))
        else:
            self._append_all(np.array(self.order))
        self.order.clear()
        self.steps.clear()

    def _append_all(self, signed: Array) -> None:
        tasks, order = self.tasks, np.where(signed < 0, ~signed, signed)
        nth, sizes = _spread(self._call_ends, order)
        rooms = np.diff(np.array(self._place_ends))[order]
        begins = len(tasks.places) + rooms.cumsum() - rooms
        self._rows.frombytes(np.stack([order, np.array(self.steps), begins], axis=1).tobytes())
        tasks.call_numbers.frombytes(np.array(self._calls)[nth].tobytes())
        tasks.adds.frombytes((np.array(self._adds)[nth] * np.repeat(signed >= 0, sizes)).tobytes())
        tasks.steps.frombytes(np.repeat(np.array(self.steps), sizes).tobytes())
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
            dtype = self.patterns[order[rows[i]]].dtypes.get(self._numbers[nth[i]], FLOAT64)
            nodes[i] = self.number(self.recipe.steps.numbers[~nodes[i]], dtype)
        np.frombuffer(self.tasks.places, np.int64)[places] = nodes
        for i in _those(order, [bool(p.offsets) for p in self.patterns]):
            self.tasks.offsets.update({int(begins[i]) + j: n for j, n in self.patterns[order[i]].offsets})
        those = _those(order, [p.extra is not None for p in self.patterns])
        extras = np.array([self.patterns[k].extra for k in order[those].tolist()], np.int64).reshape(-1, 2)
        nodes = self._nodes_of(extras[:, 0], extras[:, 1], at[those], first[those])
        self.extra.update(zip(at[those].tolist(), nodes.tolist(), strict=True))

    def _temporaries(self, order: Array) -> Array:
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


def _those(order: Array, wanted: list[bool]) -> list[int]:
    return np.flatnonzero(np.array(wanted)[order]).tolist()  # type: ignore[no-any-return]


def _spread(ends: array[int], order: Array) -> tuple[Array, Array]:
    """Return the indices of all items of these parts in a table of parts end to end, and the parts' sizes."""
    bounds = np.array(ends)
    begins, sizes = bounds[:-1][order], np.diff(bounds)[order]
    return np.repeat(begins - (sizes.cumsum() - sizes), sizes) + np.arange(sizes.sum()), sizes


# An iteration tries the bodies in order. What it saves for its pullbacks is pushed on a stack; the reverse pops it, and
# runs the pullbacks of the body that made it. What is phis stands in nodes of its own, and so do its gradients.


@dataclass(slots=True)
class TaskBody:
    """One body: the values that it carries on, and where its tasks are."""

    begin: int  # its first task
    updates: list[int] = field(default_factory=list)
    again: int = 0  # the task that saves
    next: int = 0  # its last task
    restore: int = -1  # the first of its pullbacks
    before: int = -1  # the last of these


@dataclass(slots=True)
class LoopTasks:
    """One loop: its node, its bodies, and where its tasks are, forward and back; -1 if there are none."""

    recorded: RecipeLoop
    state: int
    start: int  # the first task
    bodies: list[TaskBody] = field(default_factory=list)
    end: int = 0  # the one behind the last
    back: int = -1  # likewise, of its pullbacks
    choose: int = -1  # the row that picks the body of an iteration
    back_end: int = -1

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first of its tasks, and the one behind the last, forward and, if it has pullbacks, back."""
        return [(self.start, self.end), (self.back, self.back_end)][: 1 + (self.back >= 0)]


class Loops:
    """The loops of a program that is being lowered, in the order of their ends."""

    def __init__(self, recipe: Recipe, tasks: Tasks) -> None:
        self.recipe, self.tasks, self.all = recipe, tasks, list[LoopTasks]()
        self._recorded = {loop.begin: loop for loop in recipe.steps.loops()}
        self.stack = -1  # the node of what all loops share: where values are kept for the way back
        self._open: list[LoopTasks] = []

    def begin(self, step: ProgramStep, lowering: Lowering) -> None:
        """Begin a loop, and its first body."""
        loop = self._recorded[step.at]
        if self.stack < 0:
            self.stack = lowering.temporary((LoopStack.SIZE,), np.dtype(np.int64))
        places = [OperandPlace(step.result), OperandPlace(self.stack)]
        if loop.has_count:
            places.append(OperandPlace(lowering.operand(step.operands[-1], FLOAT64)))
        self._open.append(LoopTasks(loop, step.result, len(self.tasks)))
        self.tasks.append(Steering(RUN_LOOP, tuple(places), -1 if loop.limit is None else loop.limit))
        self._begin_body()

    def _begin_body(self) -> None:
        loop = self._open[-1]
        loop.bodies.append(TaskBody(len(self.tasks)))
        self.steer(loop, RUN_BODY)

    def steer(self, loop: LoopTasks, kind: int, number: int = 0) -> None:
        """Append a row that steers a loop."""
        self.tasks.append(Steering(kind, (OperandPlace(loop.state), OperandPlace(self.stack)), number))

    def again(self, step: ProgramStep, lowering: Lowering) -> None:
        """End a body: save, carry values on, and go back to the first body."""
        loop = self._open[-1]
        body = loop.bodies[-1]
        body.updates, body.again = [node_of(o) for o in step.operands], len(self.tasks)
        self.steer(loop, RUN_AGAIN, len(loop.bodies) - 1)
        pairs = [(o, c) for o, c in zip(body.updates, loop.recorded.phis, strict=True) if o != c]
        if crosses(self.recipe, loop, body):
            pairs = [(lowering.cast(o, lowering.spec(o).dtype), c) for o, c in pairs]
        for o, c in pairs:
            lowering.copy_between(o, c)
        body.next = len(self.tasks)
        self.steer(loop, RUN_NEXT)
        if step.at + 1 < loop.recorded.end:
            self._begin_body()

    def end(self, step: ProgramStep) -> None:
        """End a loop."""
        loop = self._open.pop()
        loop.end = len(self.tasks)
        self.all.append(loop)

    def finish(self) -> None:
        """Note which values each iteration saves: what its pullbacks read and the next iteration computes anew."""
        tasks, recipe = self.tasks, self.recipe
        if not self.all:
            return
        numbers = np.array(tasks.call_numbers, np.int64)
        ends = np.concatenate([[0], np.array(tasks.counts, np.int64)[numbers].cumsum()])
        places = np.array(tasks.places, np.int64)

        def named(first: int, last: int) -> set[int]:
            used = places[ends[first] : ends[last]]
            return {recipe.base_of(node) for node in used[used >= 0].tolist()}

        for loop in self.all:
            if loop.back < 0:
                continue
            before = named(0, loop.start + 1) - set(loop.recorded.phis)
            for body in loop.bodies:
                made = named(body.begin + 1, body.next) - before
                read = named(body.restore + 1, body.before) & made
                saved = sorted(n for n in read if recipe.nodes[n].constant is None and not recipe.nodes[n].argument)
                for task in (body.again, body.restore):
                    tasks.calls[tasks.call_numbers[task]].saved[:] = saved


def crosses(recipe: Recipe, loop: LoopTasks, body: TaskBody) -> bool:
    """Whether an update is a phi, or a part of one, but not its own."""
    phis = loop.recorded.phis
    return any(o != c and recipe.base_of(o) in phis for o, c in zip(body.updates, phis, strict=True))


PLACES = 2  # of each row: those of the loop and of the stack come first


def steer(
    rows: Array, heads: Array, loops: Sequence[LoopTasks], sizes: dict[int, list[int]], work: Array
) -> list[Array]:
    """Write distances, and the work between them, into the rows of loops, outer loops first; return their tables.

    ``heads`` are the tasks that rows begin with; ``sizes`` the words that tasks save, or restore.
    """
    tables: list[Array] = []

    def row(task: int) -> int:
        return int(np.searchsorted(heads, task))

    def table(at: int, numbers: Sequence[int]) -> None:
        tables.append(np.array(numbers, np.int64))
        rows[at, ProgramRow.layout] = where(tables[-1])

    def save(task: int, loop: LoopTasks) -> None:
        at = row(task)
        table(at, [1 + sum(sizes[task]), *sizes[task]])
        rows[at, ProgramRow.operands], rows[at, ProgramRow.accumulate] = len(sizes[task]), loop.back >= 0

    for k, loop in enumerate(sorted(loops, key=lambda loop: loop.start)):
        start, end = row(loop.start), row(loop.end)
        rows[start, ProgramRow.address], rows[start, ProgramRow.accumulate] = end - start, k == 0
        begins = [row(body.begin) for body in loop.bodies]
        for body, following in zip(loop.bodies, [*begins[1:], None if loop.recorded.counted else end], strict=True):
            first = row(body.begin)
            if following is not None:  # where a guard misses, the next body is tried; without one the program ends
                guards = first + np.flatnonzero(rows[first : row(body.again), ProgramRow.kind] == RUN_GUARD)
                rows[guards, ProgramRow.address] = following - guards
            last = row(body.next)
            rows[last, ProgramRow.address], rows[last, ProgramRow.layout] = begins[0] - last, end - last
            rows[last, ProgramRow.data] = work[first:last].sum()
            save(body.again, loop)
        if loop.back >= 0:
            choose = row(loop.choose)
            rows[choose, ProgramRow.address] = row(loop.back_end) - choose
            table(choose, [row(body.restore) - choose for body in loop.bodies])
            for body in loop.bodies:
                first, last = row(body.restore), row(body.before)
                rows[last, ProgramRow.address], rows[last, ProgramRow.data] = choose - last, work[first:last].sum()
                save(body.restore, loop)
    return tables


def outlived(used: Array, times: Array, loops: Sequence[LoopTasks]) -> tuple[Array, Array]:
    """Add uses to a list of values and times: what a loop uses and did not make is needed until it ends."""
    values, at = np.unique(used, return_index=True)  # times are in order
    first = dict(zip(values.tolist(), times[at].tolist(), strict=True))
    more = []
    for start, end in [span for loop in loops for span in loop.spans]:
        inside = used[(times >= start) & (times < end)]
        more += [(value, end) for value in np.unique(inside).tolist() if first[value] <= start]
    added = np.array(more, np.int64).reshape(-1, 2)
    used, times = np.concatenate([used, added[:, 0]]), np.concatenate([times, added[:, 1]])
    order = np.argsort(times, kind="stable")
    return used[order], times[order]
