"""The reverse sweep as Python starts it, its leaves, and what Python does in its middle: hooks, callbacks."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np

from kernels.calls.object_types import header_of
from kernels.foundation.specs import (
    SCALAR,
    Array,
    CrossingError,
    GradientObserver,
    Outcome,
    Readers,
    Seed,
    Spec,
    Task,
    add_to,
    pattern,
    shaped,
    silently,
)
from kernels.kinds.reference_tape import Instruction, instruction_at
from kernels.kinds.routine import RUNNING, check_failed
from kernels.language import jit
from kernels.native import c_api, pool, structs
from kernels.native.structs import FormBlock, InputBlock, SweepHeader
from kernels.sweeps import reference_pullbacks
from kernels.sweeps.reference_pullbacks import ArraySweep
from kernels.sweeps.workspace import (
    LARGE_BUCKETS,
    Workspace,
    key_of,
    last_uses,
    observe,
    preset,
    resolve_mark_status,
    run_mark,
)

# The leaves that a sweep reaches, with their gradients, and what Python does in its middle: hooks, callbacks.

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
) -> list[PlacedLeaf]:
    """Give each leaf found a place for its gradient."""
    placed: list[PlacedLeaf] = []
    observed = {o.key for o in observers} if observers else ()
    for leaf, spec, bucket in space.marked_leaves(entries):
        if observed and leaf in observed:
            continue
        foreign = type(leaf) is int
        if foreign and not cross_tape:
            space.held = []
            raise CrossingError
        if spec is SCALAR and not (batch or foreign):
            placed.append((leaf, spec, bucket, None))
            continue
        shape = spec.shape if spec.in_order and not foreign else (spec.buffer_size,)
        array = pool.empty((batch, spec.buffer_size) if batch else shape, spec)
        space.flat[bucket + 1] = -id(array)
        placed.append((leaf, spec, bucket, array))
    return placed


def read(space: Workspace, placed: list[PlacedLeaf], restrict: bool) -> Outcome:
    """Return the gradients of leaves, with ``restrict`` of none, and the cotangents of slots on other tapes."""
    if space.words[SweepHeader.at]:
        placed = [row for row in placed if space.flat[row[2] + 3] & structs.TOUCHED]  # some received no contribution
    foreign = [(slot, spec, pattern(array, spec, 0).copy()) for slot, spec, _, array in placed if type(slot) is int]
    leaves = [] if restrict else [row for row in placed if type(row[0]) is not int]
    return gradients(space, leaves), foreign


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
        jit.bound("sweeps.short_backward_native", "added", None) if c_api.NATIVE else None
    )

    def add(into: Array, value: Any) -> None:
        if added is None or into.nbytes >= structs.LARGE or not added(into, value):
            silently(np.add, into, value, out=into)

    return add


# Leaves with hooks: a sweep stops as soon as the gradient of such a leaf is complete, and delivers it.


class LeafHookSchedule:
    """When a native sweep hands over leaves with hooks: as soon as all of their gradient is there."""

    def __init__(self, space: Workspace, task: Task, placed: list[PlacedLeaf], buffers: list[Array]) -> None:
        self.space, self.task = space, task
        self.count, self.leaves = space.words[SweepHeader.count], space.words[SweepHeader.leaf]
        asked = [(o, b) for o, b in zip(task.observers, buffers, strict=True) if id(o.key) in task.hooked]
        rows: dict[int, Any] = {id(o.key): (o, buffer) for o, buffer in asked}
        if not task.restrict:
            rows.update({id(row[0]): row for row in placed if id(row[0]) in task.hooked})
        order = space.order[: self.count].tolist()
        steps = ((k, task.entries.at(order[k])[3]) for k in range(self.count - 1, -1, -1))
        uses = last_uses(steps, set(rows)) if rows else {}
        ordered = [(place + 1, k, key) for k, (key, place) in enumerate(uses.items())]
        self.places = [(place, key) for place, _, key in sorted(ordered)][::-1]
        self.rows, self.reached = rows, set[int]()

    def sweep(self, address: int) -> int:
        """Sweep as the native sweep does, delivering leaves with hooks on the way."""
        header = self.space.words
        while self.places:
            place = self.places[-1][0]
            header[SweepHeader.count], header[SweepHeader.leaf] = place, 0  # leaves are settled at the end
            status = int(self.space.sweep(address))
            if status != structs.OK:
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
        if space.flat[bucket + 3] & structs.TOUCHED:
            self.reached.add(key)
            self.task.reached(leaf, value + 0.0 if type(value) is float else value + value.dtype.type(0.0))


# What Python does in the middle of a native sweep: hooks, and instructions that only Python can run.

_ACTED, _RAN = 1, 2
"""Where a sweep goes on (H_RESUME): at the instruction before which Python has acted; behind the one that it has run
(sweep_native.RAN)."""


class PausedSweep(ArraySweep):
    """What Python does in the middle of a native sweep, whose gradient buffers it reads and adds to."""

    def __init__(  # it has no graph of its own: native code has marked what it sweeps
        self,
        space: Workspace,
        entries: Any,
        observers: Sequence[GradientObserver],
        buffers: Sequence[Array],
        batch: int,
    ) -> None:
        self.space, self.entries, self.batch = space, entries, batch
        self.watched = {o.key: o for o in observers}
        self.buffers = dict(zip(self.watched, buffers, strict=True))
        self.stash: dict[Any, Any] = {}
        self.hooked = -1

    def act(self) -> None:
        """Do what the instruction at ``position`` asks for, and say where the sweep goes on."""
        header = self.space.words
        at = header[SweepHeader.position]
        instruction = instruction_at(self.entries, int(self.space.order[at]))
        form, slot = instruction.form, instruction.slot
        bucket = self.space.bucket(slot)
        flags = self.space.flat[bucket + 3]
        if flags & structs.PAUSED and self.hooked != at:
            if self.watched[slot].hook is not None:
                self.observe(instruction)
            self.hooked = at
            if form.kind != structs.PYTHON and self.watched[slot].after is None:
                header[SweepHeader.resume] = _ACTED
                return
        gradient = self._memory(self.space.flat[bucket + 1], form.spec) if flags & structs.TOUCHED else None
        role = form.block[FormBlock.SIZE + InputBlock.kernel] if form.kind == structs.PYTHON else 0
        if role in (structs.REPLAYED, structs.RERUN):
            self._gather(instruction)
        self.call(instruction, gradient)
        header[SweepHeader.resume] = _RAN

    def _gather(self, instruction: Instruction) -> None:
        """Hand the cotangents of a program's results, which the sweep has left in their buffers, to the call."""
        call, space = instruction.saved[0], self.space
        if len(call.specs) == 1:
            return
        cotangents = self.stash.setdefault(instruction.slot, {})
        for k, spec in enumerate(call.specs):
            slot = call.output(instruction.slot, k)
            bucket = space.arrived(space.address, slot) if slot is not None else 0
            if bucket:
                address = space.flat[(bucket - space.words[SweepHeader.buckets]) // 8 + 1]
                cotangents[k] = pattern(self._memory(address, spec), spec, 0).copy()
                space.release(space.address, slot)

    def home(self, key: Any) -> tuple[Any, int]:
        """Return a slot or leaf, and where its gradient begins in its family's buffer."""
        bucket = self.space.bucket(key_of(key))
        return key, int(self.space.flat[bucket + 2]) if self.space.flat[bucket + 3] & structs.ALIAS else 0

    def wants(self, operand: Any) -> bool:
        """Whether an operand leads to a gradient that is asked for."""
        if operand is None or not self.space.words[SweepHeader.restrict]:
            return operand is not None
        return bool(self.space.flat[self.space.bucket(key_of(operand)) + 3] & structs.RELEVANT)

    def add(self, key: Any, offset: int, spec: Spec, value: Array) -> None:
        """Add to a part of a native buffer."""
        space, elements = self.space, spec.buffer_size * self.space.words[SweepHeader.batch]
        address = space.place(space.address, key_of(key), elements, spec.dtype.itemsize, spec.covers)
        if address == 0:
            raise MemoryError("no memory for the gradients of a backward sweep")
        target = pattern(self._memory(abs(address), spec), spec, offset)
        if address < 0:  # nothing has been contributed to any of it
            target[...] = value
        else:
            add_to(target, value)

    def _memory(self, address: int, spec: Spec) -> Array:
        """Return a gradient buffer in native memory as an array."""
        shape = (self.batch, spec.buffer_size) if self.batch else (spec.buffer_size,)
        size = max(spec.buffer_size * (self.batch or 1) * spec.dtype.itemsize, 1)
        memory = (ctypes.c_char * size).from_address(address)
        return np.ndarray(shape, spec.dtype, memory)


# The reverse sweep of a tape as Python starts it: native code where that can read memory, else plain Python.

_TAPE, _RESTRICT, _LEAF = SweepHeader.tape, SweepHeader.restrict, SweepHeader.leaf
_BATCH, _AT, _LOW, _OK = SweepHeader.batch, SweepHeader.at, SweepHeader.low, structs.OK
_IN_HEADER: Final = False  # in place of the root's cotangent for native code: it is in the sweep's header already


NATIVE = c_api.NATIVE  # whether native code sweeps; tests turn it off

_spaces = threading.local()


def workspace() -> Workspace:
    """Return this thread's memory for native sweeps."""
    space: Workspace | None = getattr(_spaces, "space", None)
    if space is None or space.busy:  # the user's code has started another sweep in the middle of one
        inner: Workspace | None = getattr(_spaces, "inner", None)
        if inner is None or inner.busy:
            inner = Workspace()
        _spaces.space, _spaces.inner = inner, space
        space = inner
    return space


def run(task: Task) -> Outcome:
    """Sweep a tape.

    Raises, leaving everything as it was, FreedError if a needed instruction is gone, CrossingError if the graph leads
    to other tapes and may not, and MemoryError.
    """
    return _swept(workspace(), task) if NATIVE else reference_pullbacks.sweep(task)


def _swept(space: Workspace, task: Task) -> Outcome:
    header, entries, observers = space.words, task.entries, task.observers
    try:
        space.busy = True
        header[_TAPE], header[_RESTRICT], header[_BATCH] = header_of(entries), task.restrict, task.batch or 1
        buffers = preset(space, task.seeds, task.observers, task.batch)
        run_mark(space, entries)
        if task.restrict:
            space.relevant(space.address)
        placed = (
            place_leaves(space, entries, observers, task.batch, cross_tape=task.cross_tape) if header[_LEAF] else []
        )
        schedule = LeafHookSchedule(space, task, placed, buffers) if task.hooked else None
        if schedule is not None and schedule.places:
            run_until_done(space, entries, structs.INTERRUPT_CHECK, observers, buffers, task.batch, schedule.sweep)
            placed = [row for row in placed if id(row[0]) not in schedule.reached]
        elif (status := space.sweep(space.address)) != structs.OK or (RUNNING and RUNNING[0][0]):
            run_until_done(space, entries, status, observers, buffers, task.batch, space.sweep)
        outcome = read(space, placed, task.restrict)
        for observer, buffer in zip(observers, buffers, strict=True):
            observe(space, observer, buffer)
        if (readers := task.releasing()) is not None:
            readers.swept += len(entries) - header[_LOW]
            header[SweepHeader.readers] = id(readers.readers)
            if space.drop(space.address) < 0:  # unless others read the tape: finalizers run then, record and sweep
                raise MemoryError("no memory to free what a backward has used")
        held = space.shrink_and_release()
    finally:
        space.busy = False
    del held  # finalizers run now; they may record and sweep
    return outcome


Root = tuple[int, Spec, int | None]
"""A slot, its spec, and where its gradient begins in the buffer of its family; None for a buffer of its own."""

ShortOptions = tuple[Array | float | None, tuple[Any, ...] | None, bool, bool, bool, Collection[int]]
"""The root's cotangent, None for 1; the tensors wanted, None for all leaves; whether the root must lead to no others,
inputs of a transform that is over then; whether gradients are to be tensors; whether what was used is freed; slots at
which somebody looks, which the graph must not reach."""


def short_backward(entries: Any, x: Any, root: Callable[[Any], Root], readers: Readers, options: ShortOptions) -> Any:
    """Run a short backward: from one root, without observers; NotImplemented where the general one is needed.

    Leaves get their gradients; those that Python has to add are returned, or None. With targets, their gradients are
    returned as a tuple instead. ``root`` describes ``x``. Registers itself as a reader. The cost of a small backward is
    that of these few calls.
    """
    (value, targets, alone, tensors, free, seen), arrays = options, []
    if not NATIVE or (seen and not _passes_by(entries, x, readers, seen)):
        return NotImplemented
    space = workspace()
    try:
        space.busy = True  # finalizers that run meanwhile take another workspace
        readers.readers.append(None)  # within: an interrupt may follow at once
        status = space.begin(entries, x, value, targets, alone, arrays)
        while status > _OK:
            if status == structs.NEEDS_SEED:
                slot, spec, offset = root(x)
                preset(space, [Seed(slot, spec, 1.0 if value is None else value, offset)])
                value = _IN_HEADER
            elif status in (structs.PAUSE, structs.INTERRUPT_CHECK, structs.MEMORY):
                break
            elif status == structs.USE_GENERAL_PATH:
                return NotImplemented
            else:
                resolve_mark_status(space, entries, status)
            status = space.begin(entries, x, value, targets, alone, arrays)
        if status != _OK or (RUNNING and RUNNING[0][0]):
            run_until_done(space, entries, status, (), [], 0, space.sweep)
        result = space.end(targets, arrays, tensors, alone, readers.readers if free else None)
        if free and result is not NotImplemented:
            readers.swept += space.words[SweepHeader.swept]
        if space.bucket_room > LARGE_BUCKETS:
            space.shrink_and_release()
    finally:
        readers.readers.pop()
        space.busy = False
        if space.held:
            space.held = []
    return result


@functools.cache
def _handing() -> Callable[[Any, Any, list[None]], Any]:
    return jit.bound("sweeps.short_backward_native", "hand_over", None)  # type: ignore[no-any-return]


def handed_over(entries: Any, x: Any, root: Callable[[Any], Root], readers: Readers, options: ShortOptions) -> Any:
    """Do what :func:`short_backward` does; of a call that has kept its gradients, leaves are given these."""
    value, targets, _, _, free, seen = options
    if NATIVE and value is None and targets is None and free and not seen:
        handed = _handing()(entries, x, readers.readers)
        if handed is not NotImplemented:
            return handed
    return short_backward(entries, x, root, readers, options)


def leads(entries: Any, x: Any, readers: Readers, targets: tuple[Any, ...] | None) -> bool:
    """Whether a tensor depends on exactly these leaves, None for any; False, too, where that is not easily told."""
    if not NATIVE:
        return False
    space = workspace()
    try:
        space.busy = True
        readers.readers.append(None)
        while (status := space.begin(entries, x, None, targets, True, None)) not in (_OK, structs.USE_GENERAL_PATH):
            resolve_mark_status(space, entries, status)
    finally:
        readers.readers.pop()
        space.busy = False
    return bool(status == _OK)


def _passes_by(entries: Any, x: Any, readers: Readers, slots: Collection[int]) -> bool:
    """Whether a short backward may serve a tensor, and reaches none of these slots."""
    if not leads(entries, x, readers, None):
        return False
    space = workspace()
    first = entries.at(space.order[space.words[SweepHeader.count] - 1].__index__())[2]
    return not any(first <= slot <= x._slot for slot in slots)  # noqa: SLF001 (tensors know no more of sweeps)


def run_until_done(
    space: Workspace,
    entries: Any,
    status: int,
    observers: Sequence[GradientObserver],
    buffers: list[Array],
    batch: int,
    advance: Callable[[int], int],
) -> None:
    """Act where the native sweep pauses, until it is done; free what it holds if anything fails."""
    paused = PausedSweep(space, entries, observers, buffers, batch)
    try:
        while status in (structs.PAUSE, structs.INTERRUPT_CHECK):
            if status == structs.PAUSE:
                paused.act()
            status = advance(space.address)
        check(status, "gradients of a backward")
        check_failed()
    except BaseException:
        space.held = []
        space.abandon(space.address)
        raise


def check(status: int, sweep_name: str) -> None:
    """Raise what the status of a native sweep says."""
    if status != structs.OK:
        raise MemoryError(f"no memory for the {sweep_name} sweep")
