"""The leaves that a sweep reaches, with their gradients, and what Python does in its middle: hooks, callbacks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import (
    Array,
    CrossingError,
    GradientObserver,
    HookedError,
    Outcome,
    Task,
    Wanted,
    add_to,
    changed,
    pattern,
    shaped,
    silently,
)
from kernels.foundation.specs import SCALAR, Spec
from kernels.kinds.reference_tape import Instruction, instruction_at
from kernels.language import jit
from kernels.native import pool
from kernels.native.c_api import NATIVE
from kernels.native.structs import (
    ALIAS,
    LARGE,
    OK,
    PAUSED,
    PYTHON,
    RELEVANT,
    REPLAYED,
    TOUCHED,
    VIEW,
    Bucket,
    FormBlock,
    FoundLeaf,
    InputBlock,
    SweepHeader,
)
from kernels.sweeps.graph import Graph
from kernels.sweeps.reference_pullbacks import run
from kernels.sweeps.workspace import Workspace

PlacedLeaf = tuple[Any, Spec, int, Any]
"""A leaf, or a slot of another tape; its spec; where its bucket begins among the words of buckets; the array for its
gradient, None for a single double, which stands in the bucket."""


def place_leaves(
    space: Workspace,
    entries: Any,
    observers: Sequence[GradientObserver],
    batch: int,
    *,
    cross_tape: bool,
    only: set[Any] | None = None,
) -> list[PlacedLeaf]:
    """Give each leaf found, or only these, a place for its gradient."""
    leaf_rows, flat = space.leaf_rows, space.flat
    placed: list[PlacedLeaf] = []
    observed = {o.key for o in observers} if observers else ()
    for at in range(0, FoundLeaf.SIZE * space.words[SweepHeader.leaf], FoundLeaf.SIZE):
        leaf = entries.operand(leaf_rows[at], leaf_rows[at + 1])
        if (observed and leaf in observed) or (only is not None and leaf not in only):
            continue
        bucket = Bucket.SIZE * leaf_rows[at + 2]
        if type(leaf) is int:
            if not cross_tape:
                space.held = []
                raise CrossingError
            spec = operand_spec(entries, leaf_rows[at], leaf_rows[at + 1])
            array = pool.empty((batch, spec.buffer_size) if batch else spec.buffer_size, spec)
        else:
            spec = leaf.spec
            if spec is SCALAR and not batch:
                placed.append((leaf, spec, bucket, None))
                continue
            if batch:
                array = pool.empty((batch, spec.buffer_size), spec)
            else:
                array = pool.empty(spec.shape if spec.in_order else spec.buffer_size, spec)
        flat[bucket + 1] = -id(array)
        placed.append((leaf, spec, bucket, array))
    return placed


def place(space: Workspace, entries: Any, only: Wanted | None, hooked: Container[int]) -> list[PlacedLeaf] | None:
    """Give the wanted leaves that were found a place, and restrict the sweep to what leads to them.

    None, holding nothing, if one of them was not found, or one was found that is not allowed. HookedError if a leaf has
    hooks and all leaves are wanted.
    """
    count = space.words[SweepHeader.leaf]
    if only is None:
        placed = place_leaves(space, entries, (), 0, cross_tape=False) if count else []
        if hooked:
            refuse(placed, hooked)
        return placed
    leaf_rows, flat, wanted, (leaves, alone) = space.leaf_rows, space.flat, 0, only
    if count == len(leaves):  # the usual case: exactly the wanted leaves were found, or one of them is missing
        placed = place_leaves(space, entries, (), 0, cross_tape=False)
        return placed if leaves.issuperset([row[0] for row in placed]) else _none(space)
    for at in range(0, FoundLeaf.SIZE * count, FoundLeaf.SIZE):
        leaf = entries.operand(leaf_rows[at], leaf_rows[at + 1])
        if type(leaf) is int:
            space.held = []
            raise CrossingError
        if leaf in leaves:
            flat[Bucket.SIZE * leaf_rows[at + 2] + 3] |= RELEVANT
            wanted += 1
    if wanted < len(leaves) or (alone and wanted < count):
        return _none(space)
    space.words[SweepHeader.restrict] = 1
    space.relevant(space.address)
    return place_leaves(space, entries, (), 0, cross_tape=False, only=leaves)


def refuse_seen(space: Workspace, entries: Any, seen: Collection[int], root: int) -> None:
    """Raise HookedError if a sweep from this root may reach one of these slots."""
    first = entries.at(space.order[space.words[SweepHeader.count] - 1].__index__())[2]
    if any(first <= slot <= root for slot in seen):
        space.held = []
        raise HookedError


def refuse(placed: list[PlacedLeaf], hooked: Container[int]) -> None:
    """Raise HookedError if a leaf that was found has hooks."""
    if any(id(row[0]) in hooked for row in placed):
        raise HookedError


def operand_spec(entries: Any, operand: int, last: int) -> Spec:
    """Return the spec of an operand, by the places of it and of the last entry of its instruction."""
    form = entries.form(last)
    start = last - int(form.block[FormBlock.entries]) + 1
    spec: Spec = form.specs[operand - start - 1]
    return spec


def read(space: Workspace, placed: list[PlacedLeaf], restrict: bool) -> Outcome:
    """Return the gradients of leaves, with ``restrict`` of none, and the cotangents of slots on other tapes."""
    if space.words[SweepHeader.at]:
        placed = touched(space, placed)
    foreign = [(slot, spec, pattern(array, spec, 0).copy()) for slot, spec, _, array in placed if type(slot) is int]
    leaves = [] if restrict else [row for row in placed if type(row[0]) is not int]
    return gradients(space, leaves), foreign


def _none(space: Workspace) -> None:
    """Hold nothing, and return None."""
    space.held = []


def touched(space: Workspace, placed: list[PlacedLeaf]) -> list[PlacedLeaf]:
    """Return the leaves that received a contribution, where H_AT says that some did not."""
    flat = space.flat
    return [row for row in placed if flat[row[2] + 3] & TOUCHED]


def gradients(space: Workspace, placed: list[PlacedLeaf]) -> list[tuple[Any, Array | float]]:
    """Return leaves with their gradients."""
    floats = space.floats
    return [
        (leaf, floats[bucket + 2] if array is None else array if spec.in_order else shaped(array, spec))
        for leaf, spec, bucket, array in placed
    ]


def adder() -> Callable[[Array, Any], None]:
    """Return what adds a gradient to another of its shape, in place."""
    added: Callable[[Array, Any], bool] | None = (
        jit.bound("sweeps.native.gathering_native", "added", None) if NATIVE else None
    )

    def add(into: Array, value: Any) -> None:
        if added is None or into.nbytes >= LARGE or not added(into, value):
            silently(np.add, into, value, out=into)

    return add


# Leaves with hooks: a sweep stops as soon as the gradient of such a leaf is complete, and delivers it.


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
        if isinstance(row[0], GradientObserver):
            leaf, bucket = row[0].key, space.bucket(-key)
            value: Any = pattern(row[1], row[0].spec, row[0].offset)
        else:
            leaf, bucket = row[0], row[2]
            value = gradients(space, [row])[0][1]
        assert self.task.reached is not None
        if space.flat[bucket + 3] & TOUCHED:
            self.reached.add(key)
            self.task.reached(leaf, value + 0.0 if type(value) is float else value + value.dtype.type(0.0))


# What Python does in the middle of a native sweep: hooks, and instructions that only Python can run.

_ACTED, _RAN = 1, 2
"""Where a sweep goes on (H_RESUME): at the instruction before which Python has acted; behind the one that it has run
(reverse_native.RAN)."""


class PythonCallbacks:
    """Acts on the buffers of a paused native sweep; its instructions share the dictionary ``stash``."""

    def __init__(
        self, space: Workspace, entries: Any, watched: dict[int, tuple[GradientObserver, Array]], batch: int
    ) -> None:
        self.space, self.entries, self.watched, self.batch = space, entries, watched, batch
        self.stash: dict[Any, Any] = {}
        self.hooked = -1

    def act(self) -> None:
        """Do what the instruction at H_FROM asks for, and say where the sweep goes on."""
        header = self.space.words
        at = header[SweepHeader.position]
        instruction = instruction_at(self.entries, int(self.space.order[at]))
        bucket = self.space.bucket(instruction.slot)
        if self.space.flat[bucket + 3] & PAUSED and self.hooked != at:
            self._hook(instruction.slot)
            self.hooked = at
            if instruction.form.kind != PYTHON and self.watched[instruction.slot][0].after is None:
                header[SweepHeader.resume] = _ACTED
                return
        self._run(instruction, bucket)
        header[SweepHeader.resume] = _RAN

    def _hook(self, slot: int) -> None:
        observer, buffer = self.watched[slot]
        place = pattern(buffer, observer.spec, observer.offset)
        replacement = observer.hook(place + place.dtype.type(0.0)) if observer.hook is not None else None
        if replacement is not None:
            place[...] = changed(place, replacement)

    def _run(self, instruction: Instruction, bucket: int) -> None:
        """Let Python compute what the instruction contributes to its operands, and add that."""
        form, slot = instruction.form, instruction.slot
        gradient = None
        if self.space.flat[bucket + 3] & TOUCHED:
            gradient = self._memory(self.space.flat[bucket + 1], form.spec)
        if form.kind == PYTHON and form.block[FormBlock.SIZE + InputBlock.kernel] == REPLAYED:
            self._gather(instruction)
        observer = self.watched[slot][0] if slot in self.watched else None
        start = self._start(instruction.operands[0]) if form.kind == VIEW else 0
        contributions = run(instruction, gradient, observer, self.stash, batch=self.batch, start=start)
        for operand, source, value in zip(instruction.operands, form.specs, contributions, strict=True):
            if operand is not None and source is not None and value is not None:
                key = operand if type(operand) is int else -id(operand)
                self._contribute(key, source, value, form.op.nothing)

    def _gather(self, instruction: Instruction) -> None:
        """Hand the cotangents of a program's results, which the sweep has left in their buffers, to the call."""
        call, space = instruction.saved[0], self.space
        if len(call.specs) == 1:
            return
        cotangents = self.stash.setdefault(instruction.slot, {})
        for k, (slot, spec) in enumerate(zip(call.outputs, call.specs, strict=True)):
            bucket = space.arrived(space.address, slot) if slot is not None else 0
            if bucket:
                address = space.flat[(bucket - space.words[SweepHeader.buckets]) // 8 + 1]
                cotangents[k] = pattern(self._memory(address, spec), spec, 0).copy()
                space.release(space.address, slot)

    def _start(self, operand: Any) -> int:
        """Return where the operand of a view begins in the gradient buffer of its family."""
        flat = self.space.flat
        bucket = self.space.bucket(operand if type(operand) is int else -id(operand))
        return int(flat[bucket + 2]) if flat[bucket + 3] & ALIAS else 0

    def _contribute(self, key: int, spec: Spec, value: Any, zero: float) -> None:
        header, flat = self.space.words, self.space.flat
        bucket = self.space.bucket(key)
        if header[SweepHeader.restrict] and not flat[bucket + 3] & RELEVANT:
            return
        offset = flat[bucket + 2] if flat[bucket + 3] & ALIAS else 0
        elements = spec.buffer_size * header[SweepHeader.batch]
        address = self.space.place(self.space.address, key, elements, spec.dtype.itemsize, spec.covers)
        if address == 0:
            raise MemoryError("no memory for the gradients of a backward sweep")
        target = pattern(self._memory(abs(address), spec), spec, offset)
        if address < 0:
            np.add(value, zero, out=target)
        else:
            add_to(target, value)

    def _memory(self, address: int, spec: Spec) -> Array:
        """Return a gradient buffer in native memory as an array."""
        shape = (self.batch, spec.buffer_size) if self.batch else (spec.buffer_size,)
        size = max(spec.buffer_size * (self.batch or 1) * spec.dtype.itemsize, 1)
        memory = (ctypes.c_char * size).from_address(address)
        return np.ndarray(shape, spec.dtype, memory)
