"""The reverse sweep of a tape: the native one where memory can be read, else plain Python (kernels/plain.py)."""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any

from kernels import custom, words
from kernels.entries import DROPPING, MOVES, settled
from kernels.layouts import Spec
from kernels.leaves import gradients, place_leaves, read, touched
from kernels.observing import Array, Observer, Outcome, Readers, Task
from kernels.pausing import Pauses
from kernels.presets import FLOAT64, ONE, ROOT, key_of, mark, observe, preset, preset_one
from kernels.workspace import LARGE, Workspace

_LIST, _TAPE, _RESTRICT, _LEAF = words.H_LIST, words.H_TAPE, words.H_RESTRICT, words.H_LEAF
_BATCH, _AT, _LOW, _OK = words.H_BATCH, words.H_AT, words.H_LOW, words.OK
_PRESET, _WHOLE = words.H_PRESET, words.H_WHOLE


def sweep(space: Workspace, task: Task) -> Outcome:
    """Sweep a tape.

    Raises, leaving everything as it was, FreedError if a needed instruction is gone, CrossingError if the graph leads
    to other tapes and may not, and MemoryError.
    """
    own, entries, observers = space.words, task.entries, task.observers
    own[_LIST], own[_TAPE], own[_RESTRICT], own[_BATCH] = id(entries), task.number, task.restrict, task.batch or 1
    buffers = preset(space, task)
    mark(space, entries)
    if task.restrict:
        space.relevant(space.address)
    placed = place_leaves(space, entries, observers, task.batch, task.crossing) if own[_LEAF] else []
    if (status := space.sweep(space.address)) != words.OK:
        _go_on(space, entries, status, observers, buffers, task.batch)
    if custom.RAN:
        custom.check_failed()
    outcome = read(space, placed, task.restrict)
    for observer, buffer in zip(observers, buffers, strict=True):
        observe(space, observer, buffer)
    if (readers := task.releasing()) is not None:
        _drop(space, entries, readers)
    space.rest()
    return outcome


def sweep_one(
    space: Workspace,
    entries: list[Any],
    number: int,
    slot: int,
    spec: Spec,
    offset: int | None,
    readers: Readers,
    *,
    free: bool,
) -> list[tuple[Any, Array | float]]:
    """Return the gradients of leaves: as :func:`sweep`, for the usual call, from one element where nobody looks on.

    It counts itself among the readers. Its few calls are what the backward of a small graph takes its time for.
    """
    own = space.words
    try:
        readers.readers.append(None)  # within: an interrupt may follow at once
        if MOVES.locked():
            settled()
        own[_LIST], own[_TAPE], own[_RESTRICT], own[_BATCH] = id(entries), number, 0, 1
        if offset is None and spec.shadow == 1 and spec.dtype is FLOAT64:  # as preset_one does
            row = space.given
            row[0], row[1], row[2], row[3] = slot, 0, ONE, ROOT
            own[_PRESET] = 1
        else:
            preset_one(space, slot, spec, 1.0, offset)
        own[_WHOLE] = 0
        if space.mark(space.address) != _OK:
            mark(space, entries)
        placed = place_leaves(space, entries, (), 0, crossing=False) if own[_LEAF] else []
        if (status := space.sweep(space.address)) != _OK:
            _go_on(space, entries, status, (), [], 0)
        if custom.RAN:
            custom.check_failed()
        found = gradients(space, touched(space, placed) if own[_AT] else placed)
        if free:
            _drop(space, entries, readers)
    finally:
        readers.readers.pop()
    if space.held or space.keep_room > LARGE or space.cell_room > LARGE:
        space.rest()
    return found


def _drop(space: Workspace, entries: list[Any], readers: Readers) -> None:
    """Drop what the sweep has used, unless others read the tape."""
    size = len(entries) - space.words[_LOW]
    readers.swept += size
    if space.keep_room < size:
        space.mark_room(size)
    with MOVES:
        if len(readers.readers) == 1:
            try:
                DROPPING.append(get_ident())
                space.drop(entries, space.mark_used(space.address))
            finally:
                DROPPING.clear()


def _go_on(
    space: Workspace, entries: list[Any], status: int, observers: Sequence[Observer], buffers: list[Array], batch: int
) -> None:
    """Act where the native sweep pauses, until it is done; free what it holds if anything fails."""
    watched = {key_of(o.key): (o, buffer) for o, buffer in zip(observers, buffers, strict=True)}
    pauses = Pauses(space, entries, watched, batch)
    try:
        while status in (words.PAUSE, words.BREATH):
            if status == words.PAUSE:
                space.busy = True
                pauses.act()
                space.busy = False
            status = space.sweep(space.address)
    except BaseException:
        space.held, space.busy = [], False
        space.abandon(space.address)
        raise
    if status != words.OK:
        space.abandon(space.address)
        raise MemoryError("no memory for the gradients of a backward sweep")


def collect(space: Workspace, entries: list[Any], number: int, dying: int) -> int:
    """Drop the instructions whose results nobody can reach; return how many entries that were."""
    own = space.words
    own[words.H_LIST], own[words.H_TAPE], own[words.H_DYING] = id(entries), number, dying
    space.mark_room(len(entries))
    while (gone := space.mark_dead(space.address)) < 0:
        space.reserve(8 * space.cell_room)
    space.drop(entries, gone)
    space.rest()
    return int(gone)
