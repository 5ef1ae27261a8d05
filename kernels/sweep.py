"""The reverse sweep of a tape: the native one where memory can be read, else plain Python (kernels/plain.py)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from kernels import words
from kernels.forms import FORMS
from kernels.layouts import SCALAR, Spec
from kernels.observing import Array, FreedError, Observer, Outcome, Seed
from kernels.workspace import LARGE, Workspace

_FLOAT64 = np.dtype(np.float64)
_LIST, _TAPE, _RESTRICT, _LEAF = words.H_LIST, words.H_TAPE, words.H_RESTRICT, words.H_LEAF
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
    free: bool,
    required: bool = False,
) -> Outcome:
    """Sweep a tape back from the seeds.

    ``observers`` receive their gradients. With ``restrict`` only what leads to an observer is computed, and no
    leaf is delivered. With ``free`` the instructions that saved values are dropped,
    and those that need them, unless an observer is ``required`` and nothing reached it.
    Raises FreedError, leaving everything as it was, if a needed instruction is gone; MemoryError likewise.
    """
    own = space.words
    own[_LIST], own[_TAPE], own[_RESTRICT] = id(entries), number, restrict
    buffers: list[Array] = []
    if observers or len(seeds) > 1 or not _preset_one(space, seeds[0]):
        buffers = _preset_all(space, seeds, observers)
    _mark(space, entries)
    if restrict:
        space.marks.relevant(space.address)
    placed = _place_leaves(space, entries, observers) if own[_LEAF] else []
    if space.sweeps.sweep(space.address) != words.OK:
        space.sweeps.abandon(space.address)
        raise MemoryError("no memory for the gradients of a backward sweep")
    gradients = _read(space, placed, restrict)
    if observers:
        for observer, buffer in zip(observers, buffers, strict=True):
            _observe(space, observer, buffer)
    if free and not (required and any(o.gradient is None for o in observers)):
        if len(space.keep) < len(entries) - own[words.H_LOW]:
            space.mark_room(len(entries) - own[words.H_LOW])
        space.drop(entries, space.releases.drop(space.address))
    space.held = []
    if len(space.cells) > LARGE or len(space.keep) > LARGE:
        space.trim()
    return gradients


def _preset_all(space: Workspace, seeds: list[Seed], observers: list[Observer]) -> list[Array]:
    """Preset roots and observers; return the shadows of the observers."""
    starts = {seed.slot: _seed_buffer(seed) for seed in seeds}
    buffers = [starts[o.key] if type(o.key) is int and o.key in starts else _empty(o.spec) for o in observers]
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


def _preset_one(space: Workspace, seed: Seed) -> bool:
    """Preset a single root of one element; False for others. Its own cell can hold a double, but not a view's."""
    spec, value, row = seed.spec, seed.value, space.given
    if type(value) is not float or spec.size != 1:
        return False
    row[0], row[3] = seed.slot, _ROOT
    space.words[words.H_PRESET] = 1
    if seed.offset is None and spec.shadow == 1 and spec.dtype == _FLOAT64:
        row[1], row[2] = 0, _ONE if value == 1.0 else struct.unpack("q", struct.pack("d", value))[0]
    else:
        buffer = _seed_buffer(seed)
        row[1], row[2] = -id(buffer), 0
        space.held = [buffer]
    return True


def _empty(spec: Spec) -> Array:
    shadow = np.empty(spec.shadow, spec.dtype)
    shadow.fill(-0.0)
    return shadow


def _seed_buffer(seed: Seed) -> Array:
    """Return a shadow with the seed in it; a view's seed stands in a shadow of its base's shape."""
    buffer = _empty(seed.spec)
    plant(buffer, seed)
    return buffer


def _cell_key(observer: Observer) -> int:
    """Return the key of an observer's cell: a slot, or a leaf by its address."""
    return observer.key if type(observer.key) is int else -id(observer.key)


def _observer_row(observer: Observer, buffer: Array) -> tuple[int, int, int, int]:
    return _cell_key(observer), -id(buffer), 0, words.KEPT | words.RELEVANT


def _place_leaves(space: Workspace, entries: list[Any], observers: list[Observer]) -> list[tuple[Any, ...]]:
    """Give each leaf found a place for its gradient: (leaf or slot, spec, its cell, array or None)."""
    found, flat, placed = space.found, space.flat, []
    observed = {o.key for o in observers} if observers else ()
    for at in range(0, words.FOUND * space.words[_LEAF], words.FOUND):
        leaf = entries[found[at]]
        if observed and leaf in observed:
            continue
        cell = words.CELL * found[at + 2]
        if type(leaf) is int:
            spec = _operand_spec(entries, found[at], found[at + 1])
            array = np.empty(spec.shadow, spec.dtype)
        else:
            spec = leaf.spec
            if spec is SCALAR:
                placed.append((leaf, spec, cell, None))
                continue
            array = np.empty(spec.shape, spec.dtype)
        flat[cell + 1] = -id(array)
        placed.append((leaf, spec, cell, array))
    return placed


def _operand_spec(entries: list[Any], operand: int, last: int) -> Spec:
    form = FORMS[entries[last]]
    start = last - int(form.block[words.B_ENTRIES]) + 1
    spec = form.specs[operand - start - 1]
    assert spec is not None
    return spec


def _read(space: Workspace, placed: list[tuple[Any, ...]], restrict: bool) -> Outcome:
    leaves: list[Any] = []
    foreign: list[Any] = []
    floats = space.floats
    for leaf, spec, cell, array in placed:
        if type(leaf) is int:
            foreign.append((leaf, spec, pattern(array, spec, 0).copy()))
        elif not restrict:
            leaves.append((leaf, floats[cell + 2] if array is None else array))
    return leaves, foreign


def _observe(space: Workspace, observer: Observer, buffer: Array) -> None:
    cells = space.words[words.H_CELLS]
    at = (space.cell_table.find(cells, space.words[words.H_MASK], _cell_key(observer)) - cells) // 8
    flags = space.flat[at + 3]
    if flags & words.TOUCHED:
        observer.gradient = pattern(buffer, observer.spec, observer.offset) + observer.spec.dtype.type(0.0)
    else:
        observer.gradient = np.zeros(observer.spec.shape, observer.spec.dtype) if flags & words.USED else None


def plant(shadow: Array, seed: Seed) -> None:
    """Write a seed into a shadow; where the pattern meets an element many times, their sum."""
    spec = seed.spec
    if spec.size == 1:
        shadow[(seed.offset or 0) // spec.dtype.itemsize] = np.add(seed.value, 0.0).item()
        return
    value = np.broadcast_to(np.add(seed.value, 0.0), spec.shape)
    repeated = tuple(i for i, (n, s) in enumerate(zip(spec.shape, spec.gradient, strict=True)) if s == 0 and n > 1)
    first = tuple(slice(0, 1) if i in repeated else slice(None) for i in range(len(spec.shape)))
    pattern(shadow, spec, seed.offset or 0)[(*first, ...)] = (
        value.sum(axis=repeated, keepdims=True) if repeated else value
    )


def pattern(shadow: Array, spec: Spec, offset: int) -> Array:
    """Return the part of a shadow that is the gradient of a tensor of this spec."""
    flat = shadow.reshape(-1).view(np.uint8)[offset:]
    if spec.size == 0:
        return np.zeros(spec.shape, spec.dtype)
    return np.ndarray(spec.shape, spec.dtype, flat, 0, spec.gradient)


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
