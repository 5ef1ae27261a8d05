"""The reverse sweep of a tape: the native one where memory can be read, else plain Python (reference.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from kernels.calls.object_types import header_of
from kernels.foundation.numpy_arrays import Array, GradientObserver, Outcome, Readers, Task, Wanted
from kernels.foundation.specs import Spec
from kernels.kinds.custom import RUNNING, check_failed
from kernels.native.structs import BARE, ELSEWHERE, INTERRUPT_CHECK, MEMORY, OK, PAUSE, SweepHeader
from kernels.sweeps.leaves import PythonCallbacks, Stops, gradients, place, place_leaves, read, refuse_seen, touched
from kernels.sweeps.seeds import key_of, mark, mend_mark, observe, preset, preset_root
from kernels.sweeps.workspace import LARGE, Workspace

_TAPE, _RESTRICT, _LEAF = SweepHeader.tape, SweepHeader.restrict, SweepHeader.leaf
_BATCH, _AT, _LOW, _OK = SweepHeader.batch, SweepHeader.at, SweepHeader.low, OK
_IN_HEADER: Final = False
"""In place of the root's cotangent for native code: it is in the sweep's header already."""


def sweep(space: Workspace, task: Task) -> Outcome:
    """Sweep a tape.

    Raises, leaving everything as it was, FreedError if a needed instruction is gone, CrossingError if the graph leads
    to other tapes and may not, and MemoryError.
    """
    header, entries, observers = space.words, task.entries, task.observers
    try:
        space.busy = True
        header[_TAPE], header[_RESTRICT], header[_BATCH] = header_of(entries), task.restrict, task.batch or 1
        buffers = preset(space, task)
        mark(space, entries)
        if task.restrict:
            space.relevant(space.address)
        placed = (
            place_leaves(space, entries, observers, task.batch, cross_tape=task.cross_tape) if header[_LEAF] else []
        )
        stops = Stops(space, task, placed, buffers) if task.hooked else None
        if stops is not None and stops.places:
            _go_on(space, entries, INTERRUPT_CHECK, observers, buffers, task.batch, stops.sweep)
            placed = [row for row in placed if id(row[0]) not in stops.reached]
        elif (status := space.sweep(space.address)) != OK or (RUNNING and RUNNING[0][0]):
            _go_on(space, entries, status, observers, buffers, task.batch, space.sweep)
        outcome = read(space, placed, task.restrict)
        for observer, buffer in zip(observers, buffers, strict=True):
            observe(space, observer, buffer)
        if (readers := task.releasing()) is not None:
            _drop(space, entries, readers)
        held = space.rest()
    finally:
        space.busy = False
    del held  # finalizers run now; they may record and sweep
    return outcome


Root = tuple[int, Spec, int | None]
"""A slot, its spec, and where its gradient begins in the buffer of its family; None for a buffer of its own."""
RootOptions = tuple[Array | float | None, Wanted | None, Collection[int], Collection[int]]
"""The root's cotangent, None for 1; the leaves that are wanted, None for all; the ids of leaves that have hooks, and
slots at which somebody looks."""
ShortOptions = tuple[Array | float | None, tuple[Any, ...] | None, bool, bool, bool]
"""The root's cotangent, None for 1; the tensors wanted, None for all leaves; whether the root must lead to no others,
inputs of a transform that is over then; whether gradients are to be tensors; whether what was used is freed."""


def short_backward(
    space: Workspace, entries: Any, x: Any, root: Callable[[Any], Root], readers: Readers, options: ShortOptions
) -> Any:
    """Run a short backward: from one root, without observers; NotImplemented where the general one is needed.

    Leaves get their gradients; those that Python has to add are returned, or None. With targets, their gradients are
    returned as a tuple instead. ``root`` describes ``x``. Registers itself as a reader. The cost of a small backward is
    that of these few calls.
    """
    (value, targets, alone, tensors, free), arrays = options, []
    try:
        space.busy = True  # finalizers that run meanwhile take another workspace
        readers.readers.append(None)  # within: an interrupt may follow at once
        status = space.begin(entries, x, value, targets, alone, arrays)
        while status > _OK:
            if status == BARE:
                slot, spec, offset = root(x)
                preset_root(space, slot, spec, 1.0 if value is None else value, offset)
                value = _IN_HEADER
            elif status in (PAUSE, INTERRUPT_CHECK, MEMORY):
                break
            elif status == ELSEWHERE:
                return NotImplemented
            else:
                mend_mark(space, entries, status)
            status = space.begin(entries, x, value, targets, alone, arrays)
        if status != _OK or (RUNNING and RUNNING[0][0]):
            _go_on(space, entries, status, (), [], 0, space.sweep)
        result = space.end(targets, arrays, tensors, alone, readers.readers if free else None)
        if free and result is not NotImplemented:
            readers.swept += space.words[SweepHeader.swept]
        if space.bucket_room > LARGE:
            space.rest()
    finally:
        readers.readers.pop()
        space.busy = False
        if space.held:
            space.held = []
    return result


def leads(space: Workspace, entries: Any, x: Any, readers: Readers, targets: tuple[Any, ...]) -> bool:
    """Return whether a tensor depends on exactly these leaves; False, too, where that is not easily found out."""
    try:
        space.busy = True
        readers.readers.append(None)
        while (status := space.begin(entries, x, None, targets, True, None)) not in (_OK, ELSEWHERE):
            mend_mark(space, entries, status)
    finally:
        readers.readers.pop()
        space.busy = False
    return bool(status == _OK)


def sweep_one(
    space: Workspace, entries: Any, root: Root, readers: Readers, free: bool, options: RootOptions
) -> list[tuple[Any, Array | float]] | None:
    """Return the gradients of leaves: as :func:`sweep`, for the usual call, from one root.

    None, freeing nothing, where only :func:`sweep` can find out which leaves it reaches; HookedError where an observed
    slot or a leaf with hooks may be reached. Registers itself as a reader.
    """
    (slot, spec, offset), (value, only, hooked, seen) = root, options
    header, result = space.words, None
    try:
        space.busy = True
        readers.readers.append(None)
        header[_TAPE], header[_RESTRICT], header[_BATCH] = header_of(entries), 0, 1
        preset_root(space, slot, spec, 1.0 if value is None else value, offset)
        mark(space, entries)
        if seen:
            refuse_seen(space, entries, seen, slot)
        placed = place(space, entries, only, hooked)
        if placed is not None:
            if (status := space.sweep(space.address)) != _OK or (RUNNING and RUNNING[0][0]):
                _go_on(space, entries, status, (), [], 0, space.sweep)
            result = gradients(space, touched(space, placed) if header[_AT] else placed)
            if only is not None and len(result) < len(only[0]):
                result = None
            elif free:
                _drop(space, entries, readers)
        if space.held or space.bucket_room > LARGE:
            space.rest()
    finally:
        readers.readers.pop()
        space.busy = False
    return result


def _drop(space: Workspace, entries: Any, readers: Readers) -> None:
    """Drop what the sweep has used, unless others read the tape: finalizers run then, which may record and sweep."""
    readers.swept += len(entries) - space.words[_LOW]
    space.words[SweepHeader.readers] = id(readers.readers)
    if space.drop(space.address) < 0:
        raise MemoryError("no memory to free what a backward has used")


def _go_on(
    space: Workspace,
    entries: Any,
    status: int,
    observers: Sequence[GradientObserver],
    buffers: list[Array],
    batch: int,
    advance: Callable[[int], int],
) -> None:
    """Act where the native sweep pauses, until it is done; free what it holds if anything fails."""
    watched = {key_of(o.key): (o, buffer) for o, buffer in zip(observers, buffers, strict=True)}
    callbacks = PythonCallbacks(space, entries, watched, batch)
    try:
        while status in (PAUSE, INTERRUPT_CHECK):
            if status == PAUSE:
                callbacks.act()
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
