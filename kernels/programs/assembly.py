"""Tasks to rows of words: where values, buffers and constants stand, and what the rows and their pointers say."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.foundation.tables import Recent, dataclass
from kernels.language import jit
from kernels.native import structs
from kernels.native.memory import where
from kernels.native.structs import ROW, WORK_BETWEEN_CHECKS, ProgramRow
from kernels.programs import task_blocks
from kernels.programs.program import ProgramNode, Recipe
from kernels.programs.task_blocks import Columns, LoopTasks
from kernels.rules import scalar_loops
from kernels.rules.loop_printer import nest_layout
from kernels.rules.scalar_loops import ByteComparison, ConstantFill, PythonCall, Steering, Tasks, UfuncCall

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
    born, dying = (np.argsort(times[small], kind="stable") for times in (first, last))
    starts, behind, heads = np.empty_like(small), np.empty_like(small), np.full(1 + SMALL // 8, -1)
    tables = (born, dying, first[small], last[small], rooms[small], starts, behind, heads)
    more = jit.load_module("programs.replay_native").share(len(small), *map(where, tables))
    places_found[small] = starts + size
    free = Free(size + more + -(size + more) % SMALL)
    _place(free, np.flatnonzero(shared & (rooms > SMALL)), first, last, rooms, places_found)
    return places_found, free.size


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
        if at == len(self._sizes):  # enlarge the block by what is missing
            start = self._ends.get(self.size, self.size)
            if start < self.size:
                self._remove(start, self.size - start)
            self.size = start + room
            return start
        gap, start = self._sizes[at]
        self._remove(start, gap)
        if gap > room:
            self._add(start + room, gap - room)
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


_ALIGN = 64
_DOUBLE = 8


@dataclass(slots=True)
class ProgramPlan:
    """A recipe made ready: tasks, of which so many compute forward, and which nodes have a gradient buffer."""

    recipe: Recipe
    tasks: Tasks
    forward: int
    buffers: dict[int, int]  # elements of the gradient buffer of each base node that has one
    differentiates: bool
    loops: list[LoopTasks] = field(default_factory=list)
    stack: int = -1  # the node by which loops know where to save; -1 without loops


@dataclass(slots=True)
class KernelRows:
    """Rows of words, the table of all their pointers, in the order of use, and what Python does between them."""

    words: Array
    pointers: Array
    forward: int  # how many compute results; the others gradients
    stretches: list[tuple[int, int]]  # rows of about equal work, between which Python can take an interrupt
    calls: dict[int, partial[None]]  # what Python runs in the place of rows
    work: int  # how many elements are computed
    work_back: int  # those that the gradients take
    start: int = field(init=False)  # where the words begin

    def __post_init__(self) -> None:
        self.start = where(self.words)


def block(size: int) -> tuple[Array, int]:
    """Return memory for so many bytes, and a word behind them, and the address of the first that is aligned."""
    memory = np.zeros(size + _ALIGN + 8, np.uint8)
    start = where(memory)
    return memory, start + -start % _ALIGN


class MemoryLayout:
    """Where the nodes and buffers of a plan go in one block of memory; constants that are arrays stand in their own.

    ``rooms`` are the bytes of each node's value, then of each one's gradient buffer; ``offsets`` where they begin, -1
    where they are not in the block; ``size`` its bytes.
    """

    def __init__(self, plan: ProgramPlan) -> None:
        self.recipe, self.tasks = plan.recipe, plan.tasks
        nodes, tasks = self.recipe.nodes, plan.tasks
        count = len(nodes)
        self.columns = columns = Columns(nodes)
        self.kinds = np.array(tasks.call_numbers, np.int64)
        self.counts = np.array(tasks.counts, np.int64)[self.kinds] if len(tasks) else self.kinds
        self.places = np.array(tasks.places, np.int64)
        base = columns.base
        used = np.where(self.places < 0, count + ~self.places, base[self.places])
        rooms = np.zeros(2 * count, np.int64)
        rooms[:count] = columns.of(_room_of)
        for node, elements in plan.buffers.items():
            rooms[count + node] = _room(elements * nodes[node].spec.dtype.itemsize)
        times = np.repeat(np.arange(len(tasks)), self.counts)
        self.rooms, self.fixed, self.loops = rooms, self._fixed(used, count), plan.loops
        if plan.loops:
            self.fixed[plan.stack] = True
            used, times = task_blocks.outlived(used, times, plan.loops)
        self.offsets, self.size = offsets(used, times, rooms, self.fixed)

    def _fixed(self, used: Array, count: int) -> Array:
        """Whether a value or a gradient buffer is an argument or a result, or is a number that tasks read."""
        columns, outside = self.columns, [*self.recipe.arguments, *self.recipe.outputs]
        fixed, named = np.zeros((2, 2 * count), np.bool_)
        fixed[columns.base[outside]] = True
        fixed[count + columns.family[outside]] = True
        named[used] = True
        fixed[:count] |= named[:count] & (columns.of(lambda node: node.constant is not None) != 0)
        return fixed


class ProgramMemory(MemoryLayout):
    """Where the nodes and buffers of a plan stand: a layout with its memory."""

    def __init__(self, plan: ProgramPlan) -> None:
        super().__init__(plan)
        self.layouts: list[Array] = []  # that rows hold the addresses of
        self.contexts: dict[int, list[Any]] = {}  # what Python keeps from its calls forward for those back, by step
        nodes, columns, offsets, count = self.recipe.nodes, self.columns, self.offsets, len(self.recipe.nodes)
        self.memory, self.start = block(self.size)
        constants = np.flatnonzero(columns.of(lambda node: node.constant is not None)).tolist()
        addresses = self.start + offsets[:count]
        for i in constants:
            constant = nodes[i].constant
            assert constant is not None
            if constant.ndim:
                addresses[i] = where(constant)
        self.values, self.buffers = addresses[columns.base] + columns.offset, self.start + offsets[count:]
        for i in constants:
            if offsets[i] >= 0:
                self.view(i)[...] = nodes[i].constant

    def view(self, i: int, *, gradient: bool = False) -> Array:
        """Return a node's value, or its gradient, as an array of this memory."""
        node = self.recipe.nodes[i]
        address = int(self.buffers[self.recipe.family_of(i)] + node.buffer_offset if gradient else self.values[i])
        strides = node.spec.gradient if gradient else node.spec.strides
        if node.spec.size == 0:
            return np.zeros(node.spec.shape, node.spec.dtype)
        at = address - where(self.memory)
        if 0 <= at < len(self.memory):
            return np.ndarray(node.spec.shape, node.spec.dtype, self.memory, at, strides)
        constant = self.recipe.nodes[self.recipe.base_of(i)].constant
        assert constant is not None
        return np.ndarray(node.spec.shape, node.spec.dtype, constant.ravel("K"), node.offset, strides)

    def rows(self, forward: int) -> KernelRows:
        """Return the rows of the tasks, of which so many compute forward."""
        addresses = np.where(self.places < 0, self.buffers[~self.places], self.values[self.places])
        for place, offset in self.tasks.offsets.items():
            addresses[place] += offset
        begins = self.counts.cumsum() - self.counts
        # the kind of each task that is computed without a call, -1 of others
        kinds = [scalar_loops.kind_of(call, n) for call, n in zip(self.tasks.calls, self.tasks.counts, strict=True)]
        numbers = np.array([-1 if kind is None else kind for kind in kinds], np.int64)[self.kinds]
        behind = addresses - self.start
        reached = (behind >= 0) & (behind < min(self.size, scalar_loops.REACH)) & (behind % _DOUBLE == 0)
        missed = np.concatenate([[0], np.cumsum(~reached)])
        inline = np.where(missed[begins + self.counts] == missed[begins], numbers, -1)
        heads = _heads(inline >= 0, forward)
        row_words, work = np.zeros((len(heads), ROW), np.int64), np.diff(np.append(heads, len(inline)))
        apart = np.flatnonzero(inline[heads] < 0)
        tasks = heads[apart]
        call_words, work[apart] = self._call_words(tasks)
        counts, sizes = self.counts[tasks], call_words[:, 5]
        starts = sizes.cumsum() - sizes
        pointers, within = np.zeros(int(sizes.sum()), np.int64), np.arange(counts.sum())
        nth = within - np.repeat(counts.cumsum() - counts, counts)
        pointers[np.repeat(starts, counts) + nth] = addresses[np.repeat(begins[tasks], counts) + nth]
        columns = [ProgramRow.kind, ProgramRow.address, ProgramRow.layout, ProgramRow.data, ProgramRow.operands]
        row_words[apart[:, None], columns] = call_words[:, :5]
        row_words[apart, ProgramRow.accumulate] = np.array(self.tasks.adds, np.int64)[tasks]
        row_words[apart, ProgramRow.pointers] = where(pointers) + 8 * starts
        fills = np.flatnonzero((call_words[:, 0] == structs.RUN_FILL8) | (call_words[:, 0] == structs.RUN_FILL4))
        row_words[apart[fills], ProgramRow.address] = pointers[starts[fills]]
        self._put_inline(row_words, heads, inline, addresses, begins)
        if self.loops:
            self._put_loops(row_words, heads, pointers, work)
        return self._rows(row_words, pointers, int(np.searchsorted(heads, forward)), work, heads)

    def _put_loops(self, row_words: Array, heads: Array, pointers: Array, work: Array) -> None:
        sizes = {}
        bodies = [body for loop in self.loops for body in loop.bodies]
        for task in [task for body in bodies for task in (body.again, body.restore) if task >= 0]:
            saved, row = self.tasks.calls[self.kinds[task]].saved, row_words[np.searchsorted(heads, task)]
            at = (int(row[ProgramRow.pointers]) - where(pointers)) // _DOUBLE + task_blocks.PLACES
            pointers[at : at + len(saved)] = self.values[saved]
            specs = [self.recipe.nodes[node].spec for node in saved]
            sizes[task] = [-(-spec.size * spec.dtype.itemsize // _DOUBLE) for spec in specs]
        self.layouts += task_blocks.steer(row_words, heads, self.loops, sizes, work)

    def _rows(self, row_words: Array, pointers: Array, forward: int, work: Array, heads: Array) -> KernelRows:
        calls = {}
        for k in np.flatnonzero(row_words[:, ProgramRow.kind] == structs.RUN_PYTHON).tolist():
            task = self.tasks.calls[self.kinds[heads[k]]]
            arrays = [self.view(node, gradient=gradient) for node, gradient in task.nodes]
            calls[k] = partial(task.run, arrays, self.contexts)
        done, ends = work.cumsum(), [0]
        while ends[-1] < len(work):
            before = int(done[ends[-1] - 1]) if ends[-1] else 0
            ends.append(min(int(np.searchsorted(done, before + WORK_BETWEEN_CHECKS, "right")) + 1, len(work)))
        # a loop, which looks for interrupts itself, jumps to rows of its own and behind: these are in one stretch
        spans = [np.searchsorted(heads, span) for loop in self.loops for span in loop.spans]
        stretches = list(pairwise([end for end in ends if not any(low < end < high for low, high in spans)]))
        whole, back = int(work.sum()), int(work[forward:].sum())
        return KernelRows(row_words, pointers, forward, stretches, calls, whole, back)

    def _put_inline(self, row_words: Array, heads: Array, inline: Array, addresses: Array, begins: Array) -> None:
        """Add the entries of what is computed without a call, and the rows that run them."""
        tasks = np.flatnonzero(inline >= 0)
        entries = np.zeros((len(tasks), scalar_loops.ENTRY), np.int32)
        entries[:, 0] = inline[tasks] + scalar_loops.ACCUMULATES * np.array(self.tasks.adds, np.int64)[tasks]
        for k in range(scalar_loops.ENTRY - 1):
            has = self.counts[tasks] > k
            entries[has, 1 + k] = (addresses[begins[tasks[has]] + k] - self.start) // _DOUBLE
        self.layouts.append(entries)
        rows = np.flatnonzero(inline[heads] >= 0)
        row_words[rows, ProgramRow.kind] = structs.RUN_INLINE
        row_words[rows, ProgramRow.address] = where(entries) + entries.itemsize * scalar_loops.ENTRY * np.searchsorted(
            tasks, heads[rows]
        )
        row_words[rows, ProgramRow.layout] = scalar_loops.address() if len(rows) else 0
        row_words[rows, ProgramRow.data] = self.start
        row_words[rows, ProgramRow.operands] = np.diff(np.append(heads, len(inline)))[rows]

    def _call_words(self, tasks: Array) -> tuple[Array, Array]:
        """Return kind, address, layout, data, operands and pointers of rows, and how long each takes."""
        if not len(tasks):
            return np.zeros((0, 6), np.int64), np.zeros(0, np.int64)
        used, which = np.unique(self.kinds[tasks], return_inverse=True)
        called = [self._called(self.tasks.calls[k], self.tasks.counts[k]) for k in used.tolist()]
        return np.array([row for row, _ in called], np.int64)[which], np.array([w for _, w in called])[which]

    def _called(self, call: Any, count: int) -> tuple[tuple[int, ...], int]:
        """Return kind, address, layout, data, operands and pointers of what rows call, and how long it takes."""
        if isinstance(call, ConstantFill):
            kind = structs.RUN_FILL8 if call.dtype.itemsize == _DOUBLE else structs.RUN_FILL4
            bits = np.array(call.value, call.dtype).view(f"i{call.dtype.itemsize}").item()
            return (kind, 0, 0, bits, call.elements, count), call.elements
        if isinstance(call, ByteComparison):
            return (structs.RUN_GUARD, 0, 0, 0, call.size, count), call.size
        if isinstance(call, Steering):
            return (call.kind, 0, 0, call.number, count, count + len(call.saved)), 1
        if isinstance(call, PythonCall):
            return (structs.RUN_PYTHON, 0, 0, 0, 0, count), 1
        if isinstance(call, UfuncCall):
            layout = nest_layout(call.shape, *call.strides)
            self.layouts.append(layout)
            room = 3 * count + 1  # the call's arguments use it, too
            row = structs.RUN_NEST, call.loop.address, where(layout), call.loop.data, count, room
            return row, math.prod(call.shape)
        address, layout = _kernels.get(call) or _kernels.setdefault(call, call.kernel())
        self.layouts.append(layout)
        return (structs.RUN_KERNEL, address, where(layout), 0, count, count), call.steps


def _heads(inline: Array, forward: int) -> Array:
    """Return the tasks that rows begin with: each has its own, but of those computed without a call many have one."""
    number = np.arange(len(inline))
    begins = ~inline
    begins[1:] |= ~inline[:-1]
    begins[:1] = True
    begins[forward : forward + 1] = True
    since = number - np.maximum.accumulate(np.where(begins, number, 0)) if len(number) else number
    return np.flatnonzero(begins | (since % scalar_loops.MOST == 0))


_kernels: Recent[Any, tuple[int, Array]] = Recent()


def _room_of(node: ProgramNode) -> int:
    if node.base is not None or (node.constant is not None and node.constant.ndim):
        return 0
    return _room(node.spec.size * node.spec.dtype.itemsize)


def _room(size: int) -> int:
    """Return the bytes set aside for a value: whole words, and of larger ones whole lines of the cache."""
    unit = _ALIGN if size >= 8 * _ALIGN else 8
    return max(-(-size // unit) * unit, unit)
