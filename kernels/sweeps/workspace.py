"""The memory that a native sweep works in: its header, buckets, order and marks."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.debug import checks
from kernels.language import jit
from kernels.native import pool
from kernels.native.memory import data_of
from kernels.native.structs import FIRST_STAMP, Bucket, FoundLeaf, SweepHeader

_FIRST = 1 << 16
LARGE = 1 << 18


class _Rows:
    """Makes the sweep's arrays; with ``TAPE_DEBUG`` :class:`kernels.native.pool.Rows` does."""

    @staticmethod
    def zeros(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:  # noqa: ARG004 (the other's)
        return np.zeros(shape, np.int64)


class Workspace:
    """The native sweep's memory: kept from sweep to sweep, given back when it grew large."""

    def __init__(self) -> None:
        pool.linked()
        marks, sweeps = jit.load_module("sweeps.native.mark_native"), jit.load_module("sweeps.native.reverse_native")
        self.rows: Any = pool.GuardedArrays() if pool.DEBUG else _Rows
        self.mark, self.relevant = marks.mark.entry_point, marks.relevant.entry_point
        self.sweep, self.abandon, self.place = (
            native.entry_point for native in (sweeps.sweep, sweeps.abandon, sweeps.place)
        )
        self.find = jit.load_module("programs.replay_back_native").find.entry_point
        replays = jit.load_module("programs.replay_back_native")
        self.arrived, self.release = replays.arrived.entry_point, replays.release.entry_point
        self.header = self.rows.zeros("header", (SweepHeader.SIZE,))
        self.begin = jit.bound("sweeps.native.short_backward_native", "begin", self.header)
        self.end = jit.bound("sweeps.native.gathering_native", "end", self.header)
        if pool.DEBUG:
            self.mark = checks.marking(self.mark, self.rows)
            self.begin = checks.beginning(self.begin, self.rows)
        self.words = memoryview(self.header)
        self.address = data_of(self.header)
        self.pointers = self.rows.zeros("pointers", (64,))
        self._reserve_presets(8)
        self.held: list[Any] = []
        self.busy = False
        drop = jit.load_module("sweeps.native.release_native").drop
        self.drop = drop.entry_point
        called = {
            SweepHeader.marks: marks.mark,
            SweepHeader.restricts: marks.relevant,
            SweepHeader.sweeps: sweeps.sweep,
        }
        for at, function in {**called, SweepHeader.drops: drop}.items():
            self.words[at] = function.address
        self.words[SweepHeader.pointers] = data_of(self.pointers)
        self.words[SweepHeader.stamp] = FIRST_STAMP
        self.reserve(_FIRST)

    def load_walk(self) -> None:
        """Load the sweep for graphs of numbers, which many programs never need."""
        self.words[SweepHeader.walks] = jit.load_module("sweeps.native.scalar_walk_native").walk.address

    def _reserve_presets(self, rows: int) -> None:
        self.presets = self.rows.zeros("presets", (rows, 4))
        self.preset_words = memoryview(self.presets).cast("B").cast("q")
        self.words[SweepHeader.presets] = data_of(self.presets)

    def reserve(self, least: int) -> None:
        """Make room for at least this many buckets. Memory that no sweep uses is never touched, so room is cheap."""
        self.bucket_room = buckets = 1 << (least - 1).bit_length()
        self.buckets = self.rows.zeros("buckets", (buckets, Bucket.SIZE))
        self.order = self.rows.zeros("order", (buckets,))
        self.leaves = self.rows.zeros("leaves", (buckets, FoundLeaf.SIZE))
        header = self.words
        for at, array in (
            (SweepHeader.buckets, self.buckets),
            (SweepHeader.order, self.order),
            (SweepHeader.leaves, self.leaves),
        ):
            header[at] = data_of(array)
        header[SweepHeader.room] = buckets
        self.flat = memoryview(self.buckets).cast("B").cast("q")
        self.floats = self.flat.cast("B").cast("d")
        self.leaf_rows = memoryview(self.leaves).cast("B").cast("q")

    def bucket(self, key: int) -> int:
        """Return where the bucket of a key begins among the words of buckets, or the empty one where it belongs."""
        return int(self.find(self.address, key) - self.words[SweepHeader.buckets]) // 8

    def rest(self) -> list[Any]:
        """Free the memory of a large sweep; return what the last one held, for the caller to release."""
        held = self.held
        if held:
            self.held = []
        if self.bucket_room > LARGE:
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
