"""What a sweep works in: the part of a tape that leads to its roots, its header, buckets, order and marks."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from kernels.calls.object_types import header_of
from kernels.foundation.specs import (
    FLOAT64,
    Array,
    FreedError,
    GradientObserver,
    Readers,
    Seed,
    Spec,
    empty,
    pattern,
    plant,
    word_at,
)
from kernels.foundation.tables import dataclass
from kernels.kinds.reference_tape import Instruction, instruction_at
from kernels.language import jit
from kernels.native import pool, structs
from kernels.native.memory import data_of
from kernels.native.structs import Bucket, FormBlock, FoundLeaf, SweepHeader
from kernels.sweeps import debug_checks

# The memory that a native sweep works in: its header, buckets, order and marks; and what stands there at first.

_PRESET = SweepHeader.preset
ROOT = structs.USED | structs.TOUCHED | structs.KEPT
ONE = struct.unpack("q", struct.pack("d", 1.0))[0]
_FIRST = 1 << 15
LARGE_BUCKETS = 1 << 18


class Workspace:
    """The native sweep's memory: kept from sweep to sweep, given back when it grew large."""

    def __init__(self) -> None:
        pool.linked()
        marks, sweeps = jit.load_module("sweeps.mark_native"), jit.load_module("sweeps.sweep_native")
        self.guarded = pool.GuardedArrays()
        self.mark, self.relevant = marks.mark.entry_point, marks.relevant.entry_point
        self.sweep, self.abandon, self.place = (
            native.entry_point for native in (sweeps.sweep, sweeps.abandon, sweeps.place)
        )
        replays = jit.load_module("programs.replay_back_native")
        self.find, self.arrived, self.release = (
            native.entry_point for native in (replays.find, replays.arrived, replays.release)
        )
        self.header = self._zeros("header", (SweepHeader.SIZE,))
        self.begin = jit.bound("sweeps.short_backward_native", "begin", self.header)
        self.end = jit.bound("sweeps.short_backward_native", "end", self.header)
        if pool.DEBUG:
            self.mark = debug_checks.checking(self.mark, self.guarded, lambda at: word_at(at + 8 * SweepHeader.tape))
            self.begin = debug_checks.checking(self.begin, self.guarded, header_of)
        self.words = memoryview(self.header)
        self.address = data_of(self.header)
        self.pointers = self._zeros("pointers", (64,))
        self._reserve_presets(8)
        self.held: list[Any] = []
        self.busy = False
        self.drop = marks.drop.entry_point
        self.words[SweepHeader.marks], self.words[SweepHeader.restricts] = marks.mark.address, marks.relevant.address
        self.words[SweepHeader.sweeps], self.words[SweepHeader.drops] = sweeps.sweep.address, marks.drop.address
        self.words[SweepHeader.pointers] = data_of(self.pointers)
        self.words[SweepHeader.stamp] = structs.FIRST_STAMP
        self.reserve(_FIRST)

    def _zeros(self, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return self.guarded.zeros(name, shape) if pool.DEBUG else np.zeros(shape, np.int64)

    def _reserve_presets(self, rows: int) -> None:
        self.presets = self._zeros("presets", (rows, 4))
        self.preset_words = memoryview(self.presets).cast("B").cast("q")
        self.words[SweepHeader.presets] = data_of(self.presets)

    def reserve(self, least: int) -> None:
        """Make room for at least this many buckets by distance, and for a sixteenth of that by key.

        Memory that no sweep uses is never touched, so room is cheap.
        """
        near = 1 << (least - 1).bit_length()
        self.bucket_room = near + near // 16
        self.buckets = self._zeros("buckets", (self.bucket_room, Bucket.SIZE))
        self.order = self._zeros("order", (self.bucket_room,))
        self.leaves = self._zeros("leaves", (near // 16, FoundLeaf.SIZE))
        header, at = self.words, SweepHeader
        header[at.buckets], header[at.order] = data_of(self.buckets), data_of(self.order)
        header[at.leaves], header[at.room] = data_of(self.leaves), near
        self.flat = memoryview(self.buckets).cast("B").cast("q")
        self.floats = self.flat.cast("B").cast("d")
        self.leaf_rows = memoryview(self.leaves).cast("B").cast("q")

    def bucket(self, key: int) -> int:
        """Return where the bucket of a key begins among the words of buckets, or the empty one where it belongs."""
        return int(self.find(self.address, key) - self.words[SweepHeader.buckets]) // 8

    def marked_leaves(self, entries: Any) -> Iterator[tuple[Any, Spec, int]]:
        """Yield the leaves that a mark has found, and slots of other tapes: each, its spec, where its bucket begins."""
        rows = self.leaf_rows
        for at in range(0, FoundLeaf.SIZE * self.words[SweepHeader.leaf], FoundLeaf.SIZE):
            operand, last = rows[at], rows[at + 1]
            leaf = entries.operand(operand, last)
            if type(leaf) is int:
                form = entries.form(last)
                spec = form.specs[operand - (last + 2 - form.block.item(FormBlock.entries))]
            else:
                spec = leaf.spec
            yield leaf, spec, Bucket.SIZE * rows[at + 2]

    def shrink_and_release(self) -> list[Any]:
        """Free the memory of a large sweep; return what the last one held, for the caller to release."""
        held = self.held
        if held:
            self.held = []
        if self.bucket_room > LARGE_BUCKETS:
            self.reserve(_FIRST)
        return held

    def preset(self, rows: list[tuple[int, int, int, int]]) -> None:
        """Give the sweep the gradient buffers to begin with, a row of four words each."""
        if len(rows) > len(self.presets):
            self._reserve_presets(2 * len(rows))
        flat, at = self.preset_words, 0
        for row in rows:
            flat[at], flat[at + 1], flat[at + 2], flat[at + 3] = row
            at += 4
        self.words[SweepHeader.preset] = len(rows)


# What sweeps start from: buffers of roots and observers in the buckets, and what leads to the roots marked.


def preset(
    space: Workspace, seeds: list[Seed], observers: Sequence[GradientObserver] = (), batch: int = 0
) -> list[Array]:
    """Preset roots and observers; return the gradient buffers of the observers."""
    seed = seeds[0]
    if len(seeds) == 1 and not (batch or observers) and seed.spec.size == 1 and type(seed.value) is float:
        preset_one(space, seed.slot, seed.spec, seed.value, seed.offset)
        return []
    starts = {seed.slot: seed_buffer(seed, batch, shared=len(seeds) > 1 or bool(observers)) for seed in seeds}
    buffers = [starts[o.key] if type(o.key) is int and o.key in starts else empty(o.spec, batch) for o in observers]
    rows = [(seed.slot, -id(starts[seed.slot]), 0, ROOT) for seed in seeds]
    for o, buffer in zip(observers, buffers, strict=True):
        flags = structs.KEPT | (structs.RELEVANT if o.asked else 0) | (structs.PAUSED if o.hook or o.after else 0)
        rows.append((key_of(o.key), -id(buffer), 0, flags))
    space.preset(rows)
    space.held = [*starts.values(), *buffers]
    return buffers


def preset_one(space: Workspace, slot: int, spec: Spec, value: float, offset: int | None) -> None:
    """Preset a single root of one element. Its own bucket can hold a double, but not a view's."""
    row = space.preset_words
    row[0], row[3] = slot, ROOT
    space.words[_PRESET] = 1
    if offset is None and spec.buffer_size == 1 and spec.dtype is FLOAT64:
        row[1], row[2] = 0, ONE if value == 1.0 else struct.unpack("q", struct.pack("d", value))[0]
    else:
        buffer = empty(spec, 0)
        buffer[(offset or 0) // spec.dtype.itemsize] = value + 0.0
        row[1], row[2] = -id(buffer), 0
        space.held = [buffer]


def seed_buffer(seed: Seed, batch: int, *, shared: bool = True) -> Array:
    """Return a gradient buffer with the seed in it; a view's seed stands in a gradient buffer of its base's shape.

    Unless others may write to it too (``shared``), that of an operation's own result may be the array given.
    """
    spec = seed.spec
    lead = (batch,) if batch else ()
    if spec.covers and spec.in_order and not seed.offset and np.shape(seed.value) == (*lead, *spec.shape):
        value = seed.value
        alone = not (batch or shared) and seed.offset is None and type(value) is np.ndarray and value.size
        if alone and value.dtype == spec.dtype and value.flags.c_contiguous:
            bits = value.view(f"i{spec.dtype.itemsize}")
            if bits.min() != np.iinfo(bits.dtype).min:  # the bits of -0.0
                return value.reshape(-1)
        return np.add(seed.value, 0.0, order="C", dtype=spec.dtype).reshape((*lead, spec.size))
    buffer = empty(spec, batch)
    plant(buffer, seed)
    return buffer


def key_of(key: Any) -> int:
    """Return the key of a bucket: a slot, or a leaf by its address."""
    return key if type(key) is int else -id(key)


def observe(space: Workspace, observer: GradientObserver, buffer: Array) -> None:
    """Give an observer what has come into its gradient buffer."""
    observer.gradient, spec = None, observer.spec
    if space.flat[space.bucket(key_of(observer.key)) + 3] & structs.TOUCHED:
        if spec.in_order and spec.covers and buffer.shape[-1] == spec.size:  # a base's: the buffer is the sweep's own
            observer.gradient = np.add(buffer, 0.0, buffer).reshape((*buffer.shape[:-1], *spec.shape))
        else:
            observer.gradient = pattern(buffer, spec, observer.offset) + spec.dtype.type(0.0)


def run_mark(space: Workspace, entries: Any) -> None:
    """Mark what leads to the roots of a sweep; FreedError if it is no longer there."""
    while (status := space.mark(space.address)) != structs.OK:
        resolve_mark_status(space, entries, status)


def resolve_mark_status(space: Workspace, entries: Any, status: int) -> None:
    """Do what marking needs to be done before it can go on; FreedError where nothing helps."""
    if status == structs.GROW:
        space.reserve(space.words[SweepHeader.at])
    elif status == structs.MISSING:
        entries.form(space.words[SweepHeader.at]).compile()
    else:
        raise FreedError


# The part of a tape that leads to the roots of a sweep: found, narrowed to what is asked for, dropped afterwards.


@dataclass(slots=True)
class MarkedGraph:
    """What leads from leaves to the roots of a sweep.

    ``marked`` are the instructions, last first; ``ends`` the leaves, and slots of other tapes, with their specs;
    ``split`` the writes that need gradient buffers apart: something later refers to the version before them.
    """

    marked: list[Instruction]
    ends: dict[Any, Spec]
    split: set[Any]

    def foreign(self) -> list[int]:
        """Return the slots of other tapes."""
        return [operand for operand in self.ends if type(operand) is int]

    def narrow(self, leading: set[Any], hooked: set[Any]) -> None:
        """Keep the instructions with operands that lead to what is asked for, and those of slots with hooks."""
        self.marked = [i for i in self.marked if i.slot in hooked or not leading.isdisjoint(i.operands)]


def mark(entries: Any, number: int, seeds: list[Seed], since: int = 0) -> MarkedGraph:
    """Find what leads to the roots of a sweep; FreedError if it is no longer there.

    Slots before ``since`` are ends, as those of other tapes.
    """
    low, high = max(since, number << structs.TAPE_BITS), number + 1 << structs.TAPE_BITS
    pending, split = {seed.slot for seed in seeds}, set()
    ends: dict[Any, Any] = {}
    marked: list[Instruction] = []
    stop = entries.find(max(pending)) if pending else 0
    while pending and stop > 0:
        instruction = instruction_at(entries, stop - 1)
        slot, operands, form, stop = instruction.slot, instruction.operands, instruction.form, instruction.start
        if slot not in pending:
            continue
        pending.discard(slot)
        marked.append(instruction)
        if (
            form.kind >= structs.CLEARS
            and form.kind <= structs.ADDS
            and (operands[0] in pending or operands[0] in ends)
        ):
            split.add(slot)
        for operand, spec in zip(operands, form.specs, strict=True):
            if type(operand) is int and low <= operand < high:
                pending.add(operand)
            elif operand is not None:
                ends[operand] = spec
    if pending:
        raise FreedError
    return MarkedGraph(marked, ends, split)


def relevant(graph: MarkedGraph, keys: set[Any]) -> set[Any]:
    """Return the slots that lead to these keys, or to other tapes, where what is asked for may stand."""
    leading = keys.union(graph.foreign())
    for instruction in reversed(graph.marked):
        if not leading.isdisjoint(instruction.operands):
            leading.add(instruction.slot)
    return leading


def drop(readers: Readers, entries: Any, marked: list[Instruction]) -> None:
    """Drop from a tape what saved values, and what needs that, if nobody else reads the tape."""
    readers.swept += sum(instruction.stop - instruction.start for instruction in marked)
    gone: set[int] = set()
    lasts: list[int] = []
    for instruction in reversed(marked):
        if instruction.form.block[FormBlock.frees] or any(type(o) is int and o in gone for o in instruction.operands):
            gone.add(instruction.slot)
            lasts.append(instruction.stop - 1)
    entries.remove(readers.readers, tuple(lasts))


class Families:
    """Which gradient buffer each tensor of a graph has its gradient in.

    A view's gradient is a part of its base's buffer; the versions of a tensor that is written in place share one
    buffer. Only slots that are ``kept``, since somebody looks at their gradient, have a buffer of their own.
    """

    def __init__(self, marked: list[Instruction], kept: set[Any]) -> None:
        aliases = (structs.VIEW, structs.CLEARS, structs.ADDS)
        self.homes = {i.slot: i for i in marked if i.form.kind in aliases and i.operands[0] is not None}
        self.kept = kept
        self.buffers: dict[Any, Any] = {}  # by slot or leaf, made at the first contribution

    def home(self, key: Any) -> tuple[Any, int]:
        """Return the slot or leaf whose buffer holds a gradient, and where in it the gradient begins."""
        alias = self.homes.get(key)
        if alias is None:
            return key, 0
        offset = alias.saved[0] if alias.form.kind == structs.VIEW else 0
        while key in self.homes and key not in self.kept:
            key = self.homes[key].operands[0]
        return key, offset

    def above(self, instruction: Instruction) -> Any:
        """Return whose buffer a view, or the version that a write made, contributes to."""
        return self.home(instruction.operands[0])[0]


# Leaves with hooks: their gradient is complete behind the instruction that uses them first, which is swept last.


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


def by_slot(graph: MarkedGraph, steps: set[Any] | None, wanted: Container[int]) -> dict[int, list[Any]]:
    """Return leaves, those of these ids, by the slot of the instruction that uses them for the last time.

    ``steps`` are the slots of the instructions that run; None for all.
    """
    leaves = {id(end): end for end in graph.ends if id(end) in wanted}
    order = (
        (instruction.slot, instruction.operands)
        for instruction in reversed(graph.marked)
        if steps is None or instruction.slot in steps
    )
    stops: dict[int, list[Any]] = {}
    for key, slot in last_uses(order, set(leaves)).items() if leaves else ():
        stops.setdefault(slot, []).append(leaves[key])
    return stops
