"""The reverse sweep of a tape: the native one where memory can be read, else plain Python (kernels/plain.py)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import jit, words
from kernels.forms import FORMS
from kernels.layouts import Spec
from kernels.memory import address_of
from kernels.observing import Array, FreedError, Observer, Outcome, Seed

_FIRST = 256
_LARGE = 1 << 16
_WORD = 8
_FLOAT64 = np.dtype(np.float64)
_ONE = struct.unpack("q", struct.pack("d", 1.0))[0]


class Workspace:
    """The native sweep's memory: kept from sweep to sweep, given back when it grew large."""

    def __init__(self) -> None:
        self.native = jit.load_module("sweep_native")
        self.header = np.zeros(words.HEADER, np.int64)
        self.words = memoryview(self.header)
        self.address = address_of(self.header)
        self.pointers = np.zeros(64, np.int64)
        self.presets = np.zeros((8, 4), np.int64)
        self.keep = np.zeros(0, np.uint8)
        for at, thing in ((words.H_NONE, None), (words.H_INT, int), (words.H_FLOAT, float)):
            self.words[at] = id(thing)
        self.words[words.H_PTRS] = address_of(self.pointers)
        self.words[words.H_PRESETS] = address_of(self.presets)
        self.reserve(_FIRST)

    def reserve(self, cells: int) -> None:
        """Make room for this many cells, a power of two."""
        self.cells = np.zeros((cells, words.CELL), np.int64)
        self.order = np.empty(cells, np.int64)
        self.leaves = np.empty((cells, words.FOUND), np.int64)
        own = self.words
        own[words.H_CELLS], own[words.H_MASK] = address_of(self.cells), cells - 1
        own[words.H_ORDER], own[words.H_ORDERS] = address_of(self.order), cells
        own[words.H_LEAVES], own[words.H_LEAFCAP] = address_of(self.leaves), cells
        self.flat = memoryview(self.cells).cast("B").cast("q")
        self.floats = self.flat.cast("B").cast("d")
        self.found = memoryview(self.leaves).cast("B").cast("q")

    def grow(self, entries: list[Any]) -> None:
        """Make more room, but no more than the tape can need: an instruction has at least three entries."""
        most = 1 << (len(entries) // 3 * 8 // 7 + 8).bit_length()
        self.reserve(max(2 * len(self.cells), min(8 * len(self.cells), most)))

    def trim(self) -> None:
        """Give back what a large sweep needed."""
        if len(self.cells) > _LARGE:
            self.reserve(_FIRST)
        if len(self.keep) > _LARGE:
            self.keep = np.zeros(0, np.uint8)

    def preset(self, rows: list[tuple[int, int, int, int]]) -> None:
        if len(rows) > len(self.presets):
            self.presets = np.zeros((2 * len(rows), 4), np.int64)
            self.words[words.H_PRESETS] = address_of(self.presets)
        flat = memoryview(self.presets).cast("B").cast("q")
        at = 0
        for row in rows:
            flat[at], flat[at + 1], flat[at + 2], flat[at + 3] = row
            at += 4
        self.words[words.H_PRESET] = len(rows)

    def mark_room(self, size: int) -> None:
        """Make room for one byte an entry."""
        if len(self.keep) < size:
            self.keep = np.empty(max(2 * len(self.keep), size, _FIRST), np.uint8)
            self.words[words.H_KEEP] = address_of(self.keep)

    def drop(self, entries: list[Any], gone: int) -> None:
        """Take the entries marked with 0 off the tape; others may be appending meanwhile."""
        if gone <= 0:
            return
        low, size = self.words[words.H_LOW], self.words[words.H_SIZE]
        if gone == size - low:
            del entries[low:size]
        else:
            entries[low:size] = list(itertools.compress(entries[low:size], self.keep[: size - low].tobytes()))


def sweep(
    space: Workspace,
    entries: list[Any],
    number: int,
    seeds: list[Seed],
    observers: list[Observer],
    *,
    restrict: bool,
    free: Callable[[], bool],
) -> Outcome:
    """Sweep a tape back from the seeds.

    ``observers`` receive their gradients. With ``restrict`` only what leads to an observer is computed, and no
    leaf is delivered. ``free`` is asked at the end
    whether the instructions that saved values are to be dropped, and those that need them.
    Raises FreedError, leaving everything as it was, if a needed instruction is gone; MemoryError likewise.
    """
    own = space.words
    own[words.H_LIST], own[words.H_TAPE], own[words.H_RESTRICT] = id(entries), number, restrict
    inline = not observers
    starts = {seed.slot: None if inline and _one(seed) else _seed_buffer(seed) for seed in seeds}
    buffers = [starts[o.key] if type(o.key) is int and o.key in starts else _empty(o.spec) for o in observers]
    rows = [_seed_row(seed, starts[seed.slot]) for seed in seeds]
    space.preset(rows + [_observer_row(*pair) for pair in zip(observers, buffers, strict=True)])
    _mark(space, entries)
    if restrict:
        space.native.relevant(space.address)
    leaves = _place_leaves(space, entries, {id(o.key) for o in observers} if observers else (), restrict)
    if space.native.sweep(space.address) != words.OK:
        space.native.abandon(space.address)
        raise MemoryError("no memory for the gradients of a backward sweep")
    outcome = _read(space, leaves, observers, buffers)
    if free():
        space.mark_room(len(entries))
        space.drop(entries, space.native.drop(space.address))
    space.trim()
    return outcome


def _mark(space: Workspace, entries: list[Any]) -> None:
    while (status := space.native.mark(space.address)) != words.OK:
        if status == words.GROW:
            space.grow(entries)
        elif status == words.MISSING:
            FORMS[entries[space.words[words.H_AT]]].compile()
        else:
            raise FreedError


def _one(seed: Seed) -> bool:
    """Whether the seed is one double, which its cell can hold."""
    return type(seed.value) is float and seed.spec.shadow == 1 and seed.spec.dtype == _FLOAT64


def _empty(spec: Spec) -> Array:
    return np.full(spec.shadow, -0.0, spec.dtype)


def _seed_buffer(seed: Seed) -> Array:
    """Return a shadow with the seed in it; a view's seed stands in a shadow of its base's shape."""
    buffer = _empty(seed.spec)
    pattern(buffer, seed.spec, seed.offset)[...] = np.add(seed.value, 0.0)
    return buffer


def _seed_row(seed: Seed, buffer: Array | None) -> tuple[int, int, int, int]:
    flags = words.USED | words.TOUCHED | words.KEPT
    if buffer is not None:
        return seed.slot, -id(buffer), 0, flags
    value = seed.value
    return seed.slot, 0, _ONE if value == 1.0 else struct.unpack("q", struct.pack("d", value))[0], flags


def _observer_row(observer: Observer, buffer: Array) -> tuple[int, int, int, int]:
    key = observer.key if type(observer.key) is int else -id(observer.key)
    return key, -id(buffer), 0, words.KEPT | words.RELEVANT


def _place_leaves(space: Workspace, entries: list[Any], observed: Any, restrict: bool) -> list[tuple[Any, ...]]:
    """Give each leaf found a place for its gradient: (leaf or slot, spec, cell, array or None)."""
    found, flat, leaves = space.found, space.flat, []
    for at in range(0, words.FOUND * space.words[words.H_LEAF], words.FOUND):
        leaf, cell = entries[found[at]], words.CELL * found[at + 2]
        if id(leaf) in observed or (type(leaf) is int and leaf in observed):
            continue
        if type(leaf) is int:
            spec = _operand_spec(entries, found[at], found[at + 1])
        else:
            spec = leaf.spec
        if spec.shape == () and spec.dtype == _FLOAT64 and spec.shadow == 1:
            leaves.append((leaf, spec, cell, None))
        else:
            array = np.empty(spec.shadow if type(leaf) is int else spec.shape, spec.dtype)
            flat[cell + 1] = -id(array)
            leaves.append((leaf, spec, cell, array))
    return [] if restrict and not any(type(leaf[0]) is int for leaf in leaves) else leaves


def _operand_spec(entries: list[Any], operand: int, last: int) -> Spec:
    form = FORMS[entries[last]]
    start = last - int(form.block[words.B_ENTRIES]) + 1
    spec = form.specs[operand - start - 1]
    assert spec is not None
    return spec


def _read(space: Workspace, leaves: list[tuple[Any, ...]], observers: list[Observer], buffers: list[Any]) -> Outcome:
    outcome = Outcome()
    for leaf, spec, cell, array in leaves:
        value = space.floats[cell + 2] if array is None else array
        if type(leaf) is int:
            whole = np.full(1, value) if array is None else array
            outcome.foreign.append((leaf, spec, pattern(whole, spec, 0).copy()))
        else:
            outcome.leaves.append((leaf, value))
    for observer, buffer in zip(observers, buffers, strict=True):
        _observe(space, observer, buffer)
    return outcome


def _observe(space: Workspace, observer: Observer, buffer: Array) -> None:
    key = observer.key if type(observer.key) is int else -id(observer.key)
    at = (space.native.find(space.words[words.H_CELLS], space.words[words.H_MASK], key) - address_of(space.cells)) // 8
    if not space.flat[at + 3] & words.TOUCHED:
        observer.gradient = np.zeros(observer.spec.shape, observer.spec.dtype) if _used(space, at) else None
    else:
        observer.gradient = pattern(buffer, observer.spec, observer.offset) + observer.spec.dtype.type(0.0)


def _used(space: Workspace, at: int) -> bool:
    return bool(space.flat[at + 3] & words.USED)


def pattern(shadow: Array, spec: Spec, offset: int) -> Array:
    """Return the part of a shadow that is the gradient of a tensor of this spec."""
    flat = shadow.reshape(-1).view(np.uint8)[offset:]
    if spec.size == 0:
        return np.zeros(spec.shape, spec.dtype)
    return np.ndarray(spec.shape, spec.dtype, flat, 0, spec.gradient)


def collect(space: Workspace, entries: list[Any], number: int) -> int:
    """Drop the instructions whose results nobody can reach; return how many entries that were."""
    own = space.words
    own[words.H_LIST], own[words.H_TAPE] = id(entries), number
    space.mark_room(len(entries))
    while (gone := space.native.collect(space.address)) < 0:
        space.grow(entries)
    space.drop(entries, gone)
    space.trim()
    return int(gone)
