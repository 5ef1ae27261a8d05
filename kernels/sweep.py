"""The reverse sweep of a tape: the native one where memory can be read, else plain Python (kernels/plain.py)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from threading import get_ident
from typing import Any

import numpy as np

from kernels import custom, words
from kernels.entries import DROPPING, MOVES, settled
from kernels.forms import FORMS
from kernels.layouts import Spec
from kernels.leaves import gradients, place_leaves, read, touched
from kernels.observing import Array, FreedError, Observer, Outcome, Readers, Seed
from kernels.patterns import pattern, plant
from kernels.pausing import Pauses
from kernels.workspace import LARGE, Workspace

_FLOAT64 = np.dtype(np.float64)
_LIST, _TAPE, _RESTRICT, _LEAF = words.H_LIST, words.H_TAPE, words.H_RESTRICT, words.H_LEAF
_BATCH, _PRESET, _AT = words.H_BATCH, words.H_PRESET, words.H_AT
_ROOT = words.USED | words.TOUCHED | words.KEPT
_ONE = struct.unpack("q", struct.pack("d", 1.0))[0]


def sweep(
    space: Workspace,
    entries: list[Any],
    number: int,
    seeds: list[Seed],
    observers: list[Observer],
    *,
    restrict: bool,
    free: Readers | None = None,
    crossing: bool = False,
    required: bool = False,
    batch: int = 0,
) -> Outcome:
    """Sweep a tape back from the seeds.

    ``observers`` receive their gradients. With ``restrict`` only what leads to an observer is computed, and no
    leaf is delivered. If nobody else of those who ``free`` counts reads the tape, the instructions that saved values
    are dropped, and those that need them, unless an observer is ``required`` and nothing reached it.
    With ``batch`` the seeds have a leading axis of that length, and all gradients do: so many sweeps in one.
    Raises, leaving everything as it was, FreedError if a needed instruction is gone, CrossingError if the graph leads
    to other tapes, unless ``crossing``, and MemoryError.
    """
    own = space.words
    own[_LIST], own[_TAPE], own[_RESTRICT], own[_BATCH] = id(entries), number, restrict, batch or 1
    buffers: list[Array] = []
    seed, single = seeds[0], not (batch or observers or len(seeds) > 1)
    if single and seed.spec.size == 1 and type(seed.value) is float:
        _preset_one(space, seed.slot, seed.spec, seed.value, seed.offset)
    else:
        buffers = _preset_all(space, seeds, observers, batch)
    _mark(space, entries)
    if restrict:
        space.marks.relevant(space.address)
    placed = place_leaves(space, entries, observers, batch, crossing) if own[_LEAF] else []
    if (status := space.sweeps.sweep(space.address)) != words.OK:
        _go_on(space, entries, status, observers, buffers, batch)
    if custom.RAN:
        custom.check_failed()
    outcome = read(space, placed, restrict)
    if observers:
        for observer, buffer in zip(observers, buffers, strict=True):
            _observe(space, observer, buffer)
    if free is not None and not (required and any(o.asked and o.gradient is None for o in observers)):
        _drop(space, entries, free)
    _rest(space)
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
        if offset is None and spec.shadow == 1 and spec.dtype is _FLOAT64:  # as _preset_one does
            row = space.given
            row[0], row[1], row[2], row[3] = slot, 0, _ONE, _ROOT
            own[_PRESET] = 1
        else:
            _preset_one(space, slot, spec, 1.0, offset)
        _mark(space, entries)
        placed = place_leaves(space, entries, (), 0, crossing=False) if own[_LEAF] else []
        if (status := space.sweeps.sweep(space.address)) != words.OK:
            _go_on(space, entries, status, (), [], 0)
        if custom.RAN:
            custom.check_failed()
        found = gradients(space, touched(space, placed) if own[_AT] else placed)
        if free:
            _drop(space, entries, readers)
    finally:
        readers.readers.pop()
    _rest(space)
    return found


def _drop(space: Workspace, entries: list[Any], readers: Readers) -> None:
    """Drop what the sweep has used, unless others read the tape."""
    size = len(entries) - space.words[words.H_LOW]
    readers.swept += size
    if len(space.keep) < size:
        space.mark_room(size)
    with MOVES:
        if len(readers.readers) == 1:
            try:
                DROPPING.append(get_ident())
                space.drop(entries, space.releases.drop(space.address))
            finally:
                DROPPING.clear()


def _rest(space: Workspace) -> None:
    """Give back what a large sweep needed."""
    space.held = []
    if len(space.cells) > LARGE or len(space.keep) > LARGE:
        space.trim()


def _go_on(
    space: Workspace, entries: list[Any], status: int, observers: Sequence[Observer], buffers: list[Array], batch: int
) -> None:
    """Act where the native sweep pauses, until it is done; free what it holds if anything fails."""
    watched = {_cell_key(o): (o, buffer) for o, buffer in zip(observers, buffers, strict=True)}
    pauses = Pauses(space, entries, watched, batch)
    try:
        while status in (words.PAUSE, words.BREATH):
            if status == words.PAUSE:
                space.busy = True
                pauses.act()
                space.busy = False
            status = space.sweeps.sweep(space.address)
    except BaseException:
        space.held, space.busy = [], False
        space.sweeps.abandon(space.address)
        raise
    if status != words.OK:
        space.sweeps.abandon(space.address)
        raise MemoryError("no memory for the gradients of a backward sweep")


def _preset_all(space: Workspace, seeds: list[Seed], observers: list[Observer], batch: int) -> list[Array]:
    """Preset roots and observers; return the shadows of the observers."""
    starts = {seed.slot: _seed_buffer(seed, batch) for seed in seeds}
    buffers = [starts[o.key] if type(o.key) is int and o.key in starts else _empty(o.spec, batch) for o in observers]
    rows = [(seed.slot, -id(starts[seed.slot]), 0, _ROOT) for seed in seeds]
    space.preset(rows + [_observer_row(*pair) for pair in zip(observers, buffers, strict=True)])
    space.held = [*starts.values(), *buffers]
    return buffers


def _mark(space: Workspace, entries: list[Any]) -> None:
    space.words[words.H_WHOLE] = 0
    while (status := space.marks.mark(space.address)) != 0:
        if status == words.GROW:
            space.reserve(8 * len(space.cells) + 4 * space.words[words.H_PRESET])
        elif status == words.MISSING:
            FORMS[entries[space.words[words.H_AT]]].compile()
        elif space.words[words.H_WHOLE]:
            raise FreedError
        else:
            space.words[words.H_WHOLE] = 1


def _preset_one(space: Workspace, slot: int, spec: Spec, value: float, offset: int | None) -> None:
    """Preset a single root of one element. Its own cell can hold a double, but not a view's."""
    row = space.given
    row[0], row[3] = slot, _ROOT
    space.words[words.H_PRESET] = 1
    if offset is None and spec.shadow == 1 and spec.dtype == _FLOAT64:
        row[1], row[2] = 0, _ONE if value == 1.0 else struct.unpack("q", struct.pack("d", value))[0]
    else:
        buffer = np.empty(spec.shadow, spec.dtype)
        buffer.fill(-0.0)
        buffer[(offset or 0) // spec.dtype.itemsize] = value + 0.0
        row[1], row[2] = -id(buffer), 0
        space.held = [buffer]


def _empty(spec: Spec, batch: int) -> Array:
    shadow = np.empty((batch, spec.shadow) if batch else spec.shadow, spec.dtype)
    shadow.fill(-0.0)
    return shadow


def _seed_buffer(seed: Seed, batch: int) -> Array:
    """Return a shadow with the seed in it; a view's seed stands in a shadow of its base's shape."""
    buffer = _empty(seed.spec, batch)
    plant(buffer, seed)
    return buffer


def _cell_key(observer: Observer) -> int:
    """Return the key of an observer's cell: a slot, or a leaf by its address."""
    return observer.key if type(observer.key) is int else -id(observer.key)


def _observer_row(observer: Observer, buffer: Array) -> tuple[int, int, int, int]:
    flags = words.KEPT | (words.RELEVANT if observer.asked else 0)
    return _cell_key(observer), -id(buffer), 0, flags | (words.PAUSED if observer.hook or observer.after else 0)


def _observe(space: Workspace, observer: Observer, buffer: Array) -> None:
    cells = space.words[words.H_CELLS]
    at = (space.cell_table.find(cells, space.words[words.H_MASK], _cell_key(observer)) - cells) // 8
    flags = space.flat[at + 3]
    if flags & words.TOUCHED:
        observer.gradient = pattern(buffer, observer.spec, observer.offset) + observer.spec.dtype.type(0.0)
    else:
        observer.gradient = None


def collect(space: Workspace, entries: list[Any], number: int, dying: int) -> int:
    """Drop the instructions whose results nobody can reach; return how many entries that were."""
    own = space.words
    own[words.H_LIST], own[words.H_TAPE], own[words.H_DYING] = id(entries), number, dying
    space.mark_room(len(entries))
    while (gone := space.releases.collect(space.address)) < 0:
        space.reserve(8 * len(space.cells))
    space.drop(entries, gone)
    if len(space.cells) > LARGE or len(space.keep) > LARGE:
        space.trim()
    return int(gone)
