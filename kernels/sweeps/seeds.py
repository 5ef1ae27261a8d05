"""What native sweeps start from: buffers of roots and observers in the buckets, and what leads to them marked."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from kernels.foundation.numpy_arrays import Array, FreedError, GradientObserver, Seed, Task, pattern, plant
from kernels.foundation.specs import Spec
from kernels.native.structs import GROW, KEPT, MISSING, OK, PAUSED, RELEVANT, TOUCHED, UNLOADED, USED, SweepHeader
from kernels.sweeps.workspace import Workspace

FLOAT64 = np.dtype(np.float64)
_PRESET = SweepHeader.preset
ROOT = USED | TOUCHED | KEPT
ONE = struct.unpack("q", struct.pack("d", 1.0))[0]


def preset(space: Workspace, task: Task) -> list[Array]:
    """Preset roots and observers; return the gradient buffers of the observers."""
    seeds, observers, batch = task.seeds, task.observers, task.batch
    seed = seeds[0]
    if len(seeds) == 1 and not (batch or observers) and seed.spec.size == 1 and type(seed.value) is float:
        preset_one(space, seed.slot, seed.spec, seed.value, seed.offset)
        return []
    starts = {seed.slot: seed_buffer(seed, batch, shared=len(seeds) > 1 or bool(observers)) for seed in seeds}
    buffers = [starts[o.key] if type(o.key) is int and o.key in starts else empty(o.spec, batch) for o in observers]
    rows = [(seed.slot, -id(starts[seed.slot]), 0, ROOT) for seed in seeds]
    space.preset(rows + [_observer_row(*pair) for pair in zip(observers, buffers, strict=True)])
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


def preset_root(space: Workspace, slot: int, spec: Spec, value: Array | float, offset: int | None) -> None:
    """Preset a single root, with a cotangent of its shape, or a float for one element."""
    if type(value) is float:
        preset_one(space, slot, spec, value, offset)
        return
    buffer = seed_buffer(Seed(slot, spec, value, offset), 0, shared=False)
    row = space.preset_words
    row[0], row[1], row[2], row[3] = slot, -id(buffer), 0, ROOT
    space.words[_PRESET] = 1
    space.held = [buffer]


def empty(spec: Spec, batch: int) -> Array:
    """Return a gradient buffer to which nothing has been contributed."""
    gradient_buffer = np.empty((batch, spec.buffer_size) if batch else spec.buffer_size, spec.dtype)
    gradient_buffer.fill(-0.0)
    return gradient_buffer


def seed_buffer(seed: Seed, batch: int, *, shared: bool = True) -> Array:
    """Return a gradient buffer with the seed in it; a view's seed stands in a gradient buffer of its base's shape.

    Unless others may write to it too (``shared``), that of an operation's own result may be the array given.
    """
    spec = seed.spec
    lead = (batch,) if batch else ()
    if spec.covers and spec.in_order and not seed.offset and np.shape(seed.value) == (*lead, *spec.shape):
        if not (batch or shared) and seed.offset is None and _is_whole(seed.value, spec):
            return seed.value.reshape(-1)
        return np.add(seed.value, 0.0, order="C", dtype=spec.dtype).reshape((*lead, spec.size))
    buffer = empty(spec, batch)
    plant(buffer, seed)
    return buffer


def _is_whole(value: Any, spec: Spec) -> bool:
    """Whether an array can stand for the buffer: in order, and without -0.0, whose bits are the least integer's."""
    if type(value) is not np.ndarray or value.dtype != spec.dtype or not value.flags.c_contiguous or not value.size:
        return False
    integers = value.view(f"i{spec.dtype.itemsize}")
    return bool(integers.min() != np.iinfo(integers.dtype).min)


def key_of(key: Any) -> int:
    """Return the key of a bucket: a slot, or a leaf by its address."""
    return key if type(key) is int else -id(key)


def _observer_row(observer: GradientObserver, buffer: Array) -> tuple[int, int, int, int]:
    flags = KEPT | (RELEVANT if observer.asked else 0)
    return key_of(observer.key), -id(buffer), 0, flags | (PAUSED if observer.hook or observer.after else 0)


def observe(space: Workspace, observer: GradientObserver, buffer: Array) -> None:
    """Give an observer what has come into its gradient buffer."""
    observer.gradient, spec = None, observer.spec
    if space.flat[space.bucket(key_of(observer.key)) + 3] & TOUCHED:
        if spec.in_order and spec.covers and buffer.shape[-1] == spec.size:  # a base's: the buffer is the sweep's own
            observer.gradient = np.add(buffer, 0.0, buffer).reshape((*buffer.shape[:-1], *spec.shape))
        else:
            observer.gradient = pattern(buffer, spec, observer.offset) + spec.dtype.type(0.0)


def mark(space: Workspace, entries: Any) -> None:
    """Mark what leads to the roots of a sweep; FreedError if it is no longer there."""
    while (status := space.mark(space.address)) != OK:
        mend_mark(space, entries, status)


def mend_mark(space: Workspace, entries: Any, status: int) -> None:
    """Do what marking needs to be done before it can go on; FreedError where nothing helps."""
    if status == GROW:
        space.reserve(space.words[SweepHeader.at])
    elif status == MISSING:
        entries.form(space.words[SweepHeader.at]).compile()
    elif status == UNLOADED:
        space.load_walk()
    else:
        raise FreedError
