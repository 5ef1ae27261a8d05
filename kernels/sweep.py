"""The reverse sweep of a tape: the native one where memory can be read, else plain Python (kernels/plain.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from kernels import words
from kernels.custom import RAN, check_failed
from kernels.layouts import Spec
from kernels.leaves import gradients, place, place_leaves, read, refuse_seen, touched
from kernels.observing import Array, Observer, Outcome, Readers, Task, Wanted
from kernels.pausing import Pauses
from kernels.presets import FLOAT64, ONE, ROOT, key_of, mark, observe, preset, preset_root
from kernels.stopping import Stops
from kernels.tape_words import header_of
from kernels.workspace import LARGE, Workspace

_TAPE, _RESTRICT, _LEAF = words.H_TAPE, words.H_RESTRICT, words.H_LEAF
_BATCH, _AT, _LOW, _OK = words.H_BATCH, words.H_AT, words.H_LOW, words.OK
_PRESET = words.H_PRESET


def sweep(space: Workspace, task: Task) -> Outcome:
    """Sweep a tape.

    Raises, leaving everything as it was, FreedError if a needed instruction is gone, CrossingError if the graph leads
    to other tapes and may not, and MemoryError.
    """
    own, entries, observers = space.words, task.entries, task.observers
    try:
        space.busy = True
        own[_TAPE], own[_RESTRICT], own[_BATCH] = header_of(entries), task.restrict, task.batch or 1
        buffers = preset(space, task)
        mark(space, entries)
        if task.restrict:
            space.relevant(space.address)
        placed = place_leaves(space, entries, observers, task.batch, crossing=task.crossing) if own[_LEAF] else []
        stops = Stops(space, task, placed, buffers) if task.hooked else None
        if stops is not None and stops.places:
            _go_on(space, entries, words.BREATH, observers, buffers, task.batch, stops.sweep)
            placed = [row for row in placed if id(row[0]) not in stops.reached]
        elif (status := space.sweep(space.address)) != words.OK or (RAN and RAN[0][0]):
            _go_on(space, entries, status, observers, buffers, task.batch, space.sweep)
        outcome = read(space, placed, task.restrict)
        for observer, buffer in zip(observers, buffers, strict=True):
            observe(space, observer, buffer)
        if (readers := task.releasing()) is not None:
            _drop(space, entries, readers)
        held = space.rest()
    finally:
        space.busy = False
    del held  # finalizers run now, which may record and sweep
    return outcome


Root = tuple[int, Spec, int | None]
"""A slot, its spec, and where its gradient begins in the shadow of its family; None for a shadow of its own."""
How = tuple[Array | float | None, Wanted | None, Collection[int], Collection[int]]
"""The root's cotangent, None for 1; the leaves that are wanted, None for all; the ids of leaves that have hooks, and
slots at which somebody looks."""


def sweep_one(
    space: Workspace, entries: Any, root: Root, readers: Readers, free: bool, how: How
) -> list[tuple[Any, Array | float]] | None:
    """Return the gradients of leaves: as :func:`sweep`, for the usual call, from one root where nobody looks on.

    None, nothing being freed, where :func:`sweep` must tell which leaves it comes to; HookedError where somebody may
    look at what it comes to. It counts itself among the readers. A small graph's backward is its few calls.
    """
    (slot, spec, offset), (value, only, hooked, seen) = root, how
    own, found = space.words, None
    try:
        space.busy = True  # what runs meanwhile, as a finalizer may anywhere, takes another workspace
        readers.readers.append(None)  # within: an interrupt may follow at once
        own[_TAPE], own[_RESTRICT], own[_BATCH] = header_of(entries), 0, 1
        if value is None and offset is None and spec.shadow == 1 and spec.dtype is FLOAT64:  # as preset_one does
            row = space.given
            row[0], row[1], row[2], row[3] = slot, 0, ONE, ROOT
            own[_PRESET] = 1
        else:
            preset_root(space, slot, spec, 1.0 if value is None else value, offset)
        if space.mark(space.address) != _OK:
            mark(space, entries)
        if seen:
            refuse_seen(space, entries, seen, slot)
        arrays: list[Array] = []
        natively = only is None and not hooked and space.lay(space.address, id(arrays)) == _OK
        placed = [] if natively else place(space, entries, only, hooked)
        if placed is not None:
            if (status := space.sweep(space.address)) != _OK or (RAN and RAN[0][0]):
                _go_on(space, entries, status, (), [], 0, space.sweep)
            if natively:
                check(space.gather(space.address, id(arrays), id(found := [])), "gradients of a backward")
            else:
                found = gradients(space, touched(space, placed) if own[_AT] else placed)
            if only is not None and len(found) < len(only[0]):
                found = None
            elif free:
                _drop(space, entries, readers)
        if space.held or space.cell_room > LARGE:
            space.rest()
    finally:
        readers.readers.pop()
        space.busy = False
    return found


def _drop(space: Workspace, entries: Any, readers: Readers) -> None:
    """Drop what the sweep has used, unless others read the tape: finalizers run then, which may record and sweep."""
    readers.swept += len(entries) - space.words[_LOW]
    space.words[words.H_READERS] = id(readers.readers)
    if space.drop(space.address) < 0:
        raise MemoryError("no memory to free what a backward has used")


def _go_on(
    space: Workspace,
    entries: Any,
    status: int,
    observers: Sequence[Observer],
    buffers: list[Array],
    batch: int,
    advance: Callable[[int], int],
) -> None:
    """Act where the native sweep pauses, until it is done; free what it holds if anything fails."""
    watched = {key_of(o.key): (o, buffer) for o, buffer in zip(observers, buffers, strict=True)}
    pauses = Pauses(space, entries, watched, batch)
    try:
        while status in (words.PAUSE, words.BREATH):
            if status == words.PAUSE:
                pauses.act()
            status = advance(space.address)
        check(status, "gradients of a backward")
        check_failed()
    except BaseException:
        space.held = []
        space.abandon(space.address)
        raise


def check(status: int, what: str) -> None:
    """Raise what the status of a native sweep says."""
    if status != words.OK:
        raise MemoryError(f"no memory for the {what} sweep")
