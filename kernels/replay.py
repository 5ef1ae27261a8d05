"""Replay: a recipe lowered to rows of words, each machine with memory of its own; native from first row to last."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from kernels import custom, jit, sharing, words
from kernels.exchange import Exchange
from kernels.lowering import Lowering
from kernels.memory import address_of
from kernels.program import Recipe
from kernels.recent import Recent
from kernels.reverse import Reverse
from kernels.tasks import Call, Fill, Place, PythonCall, Task, UfuncCall, nest_layout

Array = np.ndarray[Any, Any]
_ALIGN = 64
_WIDTH = 8 * words.ROW
"""Bytes of a row."""


@dataclass(slots=True)
class Plan:
    """A recipe made ready: forward and reverse tasks, and which nodes have a shadow."""

    recipe: Recipe
    forward: list[Task]
    reverse: list[Task]
    shadows: dict[int, int]
    """Elements of the shadow of each base node that has one."""
    differentiates: bool
    compiled: dict[int, tuple[int, Array]] = field(default_factory=dict)
    """Kernels and layouts by the id of what the tasks call."""


def plan(recipe: Recipe, *, reverse: bool) -> Plan:
    """Lower a recipe; its reverse starts from the first output, if that is one floating element."""
    own = recipe.copy()
    lowering = Lowering(own, reverse=reverse)
    forward = lowering.run()
    back = Reverse(own, lowering)
    if reverse and own.wants(own.outputs[0]):
        back.run(own.outputs[0])
    return Plan(own, forward, back.tasks, back.shadows, reverse)


@dataclass(slots=True)
class Rows:
    """Rows of words, the table of all their pointers, in the order of use, and stretches between which Python acts."""

    words: Array
    pointers: Array
    stretches: list[tuple[int, int, partial[None] | None]]
    start: int = field(init=False)
    """Where the words begin."""

    def __post_init__(self) -> None:
        self.start = address_of(self.words)


class Machine:
    """A plan with memory and rows of its own: runs one call at a time. The plan is not kept."""

    def __init__(self, plan: Plan) -> None:
        self.native = jit.entry(jit.load_module("replay_native").run)
        placing = _Placing(plan)
        self.memory, self.start, self.size = placing.memory, placing.start, placing.size
        self.forward, self.reverse = placing.rows(plan.forward), placing.rows(plan.reverse)
        nodes = plan.recipe.nodes
        self.inputs = [placing.view(i) for i in plan.recipe.arguments]
        self.outputs = [placing.view(i) for i in plan.recipe.outputs]
        self.gradients = [
            placing.view(i, shadow=True) if i in plan.shadows else np.zeros_like(placing.view(i))
            for i in plan.recipe.arguments
            if nodes[i].differentiable and plan.differentiates
        ]
        self._open()
        constants = [node.constant for node in nodes if node.constant is not None and node.constant.ndim]
        self.kept = [plan.compiled, placing.layouts, constants]

    def copy(self) -> Machine:
        """Return another with memory of its own, for a call while this one runs: it needs no plan."""
        other: Machine = object.__new__(Machine)
        other.native, other.kept, other.size = self.native, self.kept, self.size
        other.memory, other.start = _block(self.size)
        first, start = self.start - address_of(self.memory), other.start - address_of(other.memory)
        other.memory[start : start + self.size] = self.memory[first : first + self.size]  # numbers stand in it
        other.inputs, other.outputs, other.gradients = (
            [self._moved(x, other) for x in group] for group in (self.inputs, self.outputs, self.gradients)
        )
        other.forward, other.reverse = self._moved_rows(self.forward, other), self._moved_rows(self.reverse, other)
        other._open()
        return other

    def _open(self) -> None:
        """Let arguments in and results out; where nothing else is to be done between, by one call."""
        rows = [self.forward, self.reverse]
        joined = np.concatenate([own.words for own in rows])
        begin = 0
        for own in rows:
            own.words = joined[begin : begin + len(own.words)]
            own.start = address_of(own.words)
            begin += len(own.words)
        simple = [len(own.stretches) <= 1 and all(call is None for *_, call in own.stretches) for own in rows]
        whole = (address_of(joined), len(joined)) if all(simple) and not custom.RAN else None
        self.exchange = Exchange(self.inputs, self.outputs, self.gradients, whole)

    def _moved(self, array: Array, other: Machine) -> Array:
        """Return, of an array in this machine's memory, the one at that place in another's; others as they are."""
        if not array.size or not self.start <= address_of(array) < self.start + self.size:
            return array
        at = address_of(array) - self.start + other.start - address_of(other.memory)
        return np.ndarray(array.shape, array.dtype, other.memory, at, array.strides)

    def _moved_rows(self, rows: Rows, other: Machine) -> Rows:
        own, pointers = rows.words.copy(), rows.pointers.copy()
        for addresses in (own[:, words.R_ADDRESS], pointers):  # of kernels, too: they are elsewhere
            addresses[(addresses >= self.start) & (addresses <= self.start + self.size)] += other.start - self.start
        own[:, words.R_POINTERS] += address_of(pointers) - address_of(rows.pointers)
        stretches = [
            (first, stop, call and partial(call.func, [self._moved(x, other) for x in call.args[0]]))
            for first, stop, call in rows.stretches
        ]
        return Rows(own, pointers, stretches)

    def run(self, rows: Rows) -> None:
        """Run rows of the native program."""
        for first, stop, call in rows.stretches:  # between them Python can take an interrupt
            self.native(rows.start + first * _WIDTH, stop - first)
            if call is not None:
                call()
        if custom.RAN:
            custom.check_failed()

    def whole(self, given: Sequence[Any]) -> tuple[Any, ...] | None:
        """Run on floats and arrays as they were recorded; return results and gradients. None for what else is given."""
        if self.exchange.whole is not None:
            return self.exchange.whole(*given) or None
        if not self.exchange.enter(*given):
            return None
        self.run(self.forward)
        self.run(self.reverse)
        return self.exchange.leave()


def _block(size: int) -> tuple[Array, int]:
    """Return memory for so many bytes, and the address of the first that is aligned."""
    memory = np.zeros(size + _ALIGN, np.uint8)
    start = address_of(memory)
    return memory, start + -start % _ALIGN


class _Placing:
    """Where the nodes and shadows of a plan stand: one block of memory, constants that are arrays in their own."""

    def __init__(self, plan: Plan) -> None:
        self.recipe, self.compiled = plan.recipe, plan.compiled
        self.layouts: list[Array] = []
        nodes = self.recipe.nodes
        rooms = {
            (i, False): _room(node.spec.size * node.spec.dtype.itemsize)
            for i, node in enumerate(nodes)
            if node.base is None and (node.constant is None or node.constant.ndim == 0)
        }
        for i, elements in plan.shadows.items():
            rooms[i, True] = _room(elements * nodes[i].spec.dtype.itemsize)
        offsets, self.size = sharing.offsets(self.recipe, [*plan.forward, *plan.reverse], rooms)
        self.memory, self.start = _block(self.size)
        self.shadows = {i: self.start + offset for (i, shadow), offset in offsets.items() if shadow}
        self.values = [self.start + offsets.get((i, False), -1) for i in range(len(nodes))]
        for i, node in enumerate(nodes):
            if node.constant is not None and node.constant.ndim:
                self.values[i] = address_of(node.constant)
            elif node.base is not None:
                self.values[i] = self.values[node.base] + node.offset
        for i, node in enumerate(nodes):
            if node.constant is not None and not node.constant.ndim and (i, False) in offsets:
                self.view(i)[...] = node.constant

    def address(self, place: Place) -> int:
        """Return where a place begins."""
        start = self.shadows[place.node] if place.shadow else self.values[place.node]
        return start + place.offset

    def view(self, i: int, *, shadow: bool = False) -> Array:
        """Return a node's value, or its gradient, as an array of this memory."""
        node = self.recipe.nodes[i]
        base = self.recipe.family_of(i)
        address = self.address(Place(base, shadow=True, offset=node.shadow) if shadow else Place(i))
        strides = node.spec.gradient if shadow else node.spec.strides
        if node.spec.size == 0:
            return np.zeros(node.spec.shape, node.spec.dtype)
        at = address - address_of(self.memory)
        if 0 <= at < len(self.memory):
            return np.ndarray(node.spec.shape, node.spec.dtype, self.memory, at, strides)
        constant = self.recipe.nodes[self.recipe.base_of(i)].constant
        assert constant is not None
        return np.ndarray(node.spec.shape, node.spec.dtype, constant.ravel("K"), node.offset, strides)

    def rows(self, tasks: list[Task]) -> Rows:
        """Lower tasks to rows; all their pointers stand in one table, in the order of use."""
        own, table, starts = np.zeros((len(tasks), words.ROW), np.int64), array("q"), array("q")
        for k, task in enumerate(tasks):
            starts.append(len(table))
            own[k, :-1] = self._row(task, table)
        pointers = np.array(table, np.int64)
        own[:, words.R_POINTERS] = address_of(pointers) + 8 * np.array(starts, np.int64)
        stretches = [(first, stop, self._call(tasks[stop - 1] if stop else None)) for first, stop in _breaths(tasks)]
        return Rows(own, pointers, stretches)

    def _call(self, task: Task | None) -> partial[None] | None:
        """Return what Python does at the end of a stretch, if that is its last task."""
        if not isinstance(task, PythonCall):
            return None
        return partial(task.run, [self.view(node, shadow=shadow) for node, shadow in task.nodes])

    def _row(self, task: Task, table: array[int]) -> tuple[int, ...]:
        """Return a row without its pointers, which go to the table."""
        if isinstance(task, Fill):
            kind = words.RUN_FILL8 if task.dtype.itemsize == _DOUBLE else words.RUN_FILL4
            return kind, self.address(task.place), 0, 0, 0, _bits(task.value, task.dtype), task.elements
        if isinstance(task, PythonCall):
            return words.RUN_FILL8, 0, 0, 0, 0, 0, 0
        table.extend([self.address(place) for place in task.places])
        count = len(task.places)
        if isinstance(task, Call):
            address, layout = _compiled(task, self.compiled)
            return words.RUN_KERNEL, address, address_of(layout), 0, task.accumulate, 0, count
        layout = nest_layout(task)
        self.layouts.append(layout)
        table.extend([0] * (2 * count + 1))  # room for the call's arguments
        return words.RUN_NEST, task.loop.address, address_of(layout), 0, 0, task.loop.data, count


def _breaths(tasks: list[Task]) -> list[tuple[int, int]]:
    """Return stretches of tasks of about equal work."""
    found, first, work = [], 0, 0
    for k, task in enumerate(tasks):
        if isinstance(task, Fill):
            work += task.elements
        elif isinstance(task, PythonCall):
            work = words.PATIENCE + 1
        else:
            work += math.prod(task.shape) if isinstance(task, UfuncCall) else task.kernel.steps
        if work > words.PATIENCE:
            found.append((first, k + 1))
            first, work = k + 1, 0
    return [*found, (first, len(tasks))] if first < len(tasks) else found


_DOUBLE = 8
_kernels: Recent[Any, tuple[int, Array]] = Recent()


def _compiled(task: Call, known: dict[int, tuple[int, Array]]) -> tuple[int, Array]:
    """Return a task's kernel and layout, made once for equal tasks; known, and kept, by id within a plan."""
    kernel = task.kernel
    found = known.get(id(kernel))
    if found is None:
        found = _kernels.get(kernel)
        if found is None:
            found = _kernels.setdefault(kernel, kernel.kernel())
        # setdefault: rows hold the address of a layout, so the one that another thread made first must stay.
        found = known.setdefault(id(kernel), found)
    return found


def _room(size: int) -> int:
    """Return the bytes set aside for a value: whole words, and of larger ones whole lines of the cache."""
    unit = _ALIGN if size >= 8 * _ALIGN else 8
    return max(-(-size // unit) * unit, unit)


def _bits(value: float, dtype: np.dtype[Any]) -> int:
    """Return the bits of a number in a dtype of 4 or 8 bytes as an int64."""
    raw = np.array(value, dtype).tobytes()
    return int(struct.unpack("q" if len(raw) == _DOUBLE else "i", raw)[0])
