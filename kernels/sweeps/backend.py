"""The reverse sweep of a tape as Python starts it: native code where that can read memory, else plain Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from kernels.calls.object_types import header_of
from kernels.foundation.numpy_arrays import GradientObserver, Outcome, Readers, Seed, Task
from kernels.foundation.specs import Array, Spec
from kernels.kinds.routine import RUNNING, check_failed
from kernels.native import c_api
from kernels.native.structs import INTERRUPT_CHECK, MEMORY, NEEDS_SEED, OK, PAUSE, USE_GENERAL_PATH, SweepHeader
from kernels.sweeps import reference_pullbacks
from kernels.sweeps.leaves import LeafHookSchedule, PausedSweep, place_leaves, read
from kernels.sweeps.workspace import LARGE, Workspace, mark, observe, preset, resolve_mark_status

_TAPE, _RESTRICT, _LEAF = SweepHeader.tape, SweepHeader.restrict, SweepHeader.leaf
_BATCH, _AT, _LOW, _OK = SweepHeader.batch, SweepHeader.at, SweepHeader.low, OK
_IN_HEADER: Final = False
"""In place of the root's cotangent for native code: it is in the sweep's header already."""


NATIVE = c_api.NATIVE
"""Whether native code sweeps; tests turn it off."""

_spaces = threading.local()


def workspace() -> Workspace:
    """Return this thread's memory for native sweeps."""
    space: Workspace | None = getattr(_spaces, "space", None)
    if space is None or space.busy:  # a hook has started another sweep in the middle of one
        space = _spaces.space = Workspace()
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
        mark(space, entries)
        if task.restrict:
            space.relevant(space.address)
        placed = (
            place_leaves(space, entries, observers, task.batch, cross_tape=task.cross_tape) if header[_LEAF] else []
        )
        schedule = LeafHookSchedule(space, task, placed, buffers) if task.hooked else None
        if schedule is not None and schedule.places:
            run_until_done(space, entries, INTERRUPT_CHECK, observers, buffers, task.batch, schedule.sweep)
            placed = [row for row in placed if id(row[0]) not in schedule.reached]
        elif (status := space.sweep(space.address)) != OK or (RUNNING and RUNNING[0][0]):
            run_until_done(space, entries, status, observers, buffers, task.batch, space.sweep)
        outcome = read(space, placed, task.restrict)
        for observer, buffer in zip(observers, buffers, strict=True):
            observe(space, observer, buffer)
        if (readers := task.releasing()) is not None:
            _drop(space, entries, readers)
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
            if status == NEEDS_SEED:
                slot, spec, offset = root(x)
                preset(space, [Seed(slot, spec, 1.0 if value is None else value, offset)])
                value = _IN_HEADER
            elif status in (PAUSE, INTERRUPT_CHECK, MEMORY):
                break
            elif status == USE_GENERAL_PATH:
                return NotImplemented
            else:
                resolve_mark_status(space, entries, status)
            status = space.begin(entries, x, value, targets, alone, arrays)
        if status != _OK or (RUNNING and RUNNING[0][0]):
            run_until_done(space, entries, status, (), [], 0, space.sweep)
        result = space.end(targets, arrays, tensors, alone, readers.readers if free else None)
        if free and result is not NotImplemented:
            readers.swept += space.words[SweepHeader.swept]
        if space.bucket_room > LARGE:
            space.shrink_and_release()
    finally:
        readers.readers.pop()
        space.busy = False
        if space.held:
            space.held = []
    return result


def leads(entries: Any, x: Any, readers: Readers, targets: tuple[Any, ...] | None) -> bool:
    """Whether a tensor depends on exactly these leaves, None for any; False, too, where that is not easily told."""
    if not NATIVE:
        return False
    space = workspace()
    try:
        space.busy = True
        readers.readers.append(None)
        while (status := space.begin(entries, x, None, targets, True, None)) not in (_OK, USE_GENERAL_PATH):
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


def _drop(space: Workspace, entries: Any, readers: Readers) -> None:
    """Drop what the sweep has used, unless others read the tape: finalizers run then, which may record and sweep."""
    readers.swept += len(entries) - space.words[_LOW]
    space.words[SweepHeader.readers] = id(readers.readers)
    if space.drop(space.address) < 0:
        raise MemoryError("no memory to free what a backward has used")


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
        while status in (PAUSE, INTERRUPT_CHECK):
            if status == PAUSE:
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
    if status != OK:
        raise MemoryError(f"no memory for the {sweep_name} sweep")
