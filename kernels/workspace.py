"""The memory that a native sweep works in: its header, cells, order and marks."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels import jit, words
from kernels.entries import take_out
from kernels.memory import data_of

_FIRST = 1 << 16
LARGE = 1 << 18
_KNOWN: tuple[tuple[int, Any], ...] = (
    (words.H_NONE, None), (words.H_INT, int), (words.H_FLOAT, float), (words.H_ARRAY, np.ndarray),
    (words.H_CODE, words.Opcode),
)  # fmt: skip
"""Objects and types that native code knows by their addresses."""


class Workspace:
    """The native sweep's memory: kept from sweep to sweep, given back when it grew large."""

    def __init__(self) -> None:
        marks, sweeps = jit.load_module("mark_native"), jit.load_module("sweep_native")
        self.mark, self.relevant = jit.entry(marks.mark), jit.entry(marks.relevant)
        self.sweep, self.abandon, self.place = map(jit.entry, (sweeps.sweep, sweeps.abandon, sweeps.place))
        self.find = jit.entry(jit.load_module("cells_native").find)
        self.header = np.zeros(words.HEADER, np.int64)
        self.words = memoryview(self.header)
        self.address = data_of(self.header)
        self.pointers = np.zeros(64, np.int64)
        self._reserve_presets(8)
        self.keep = np.zeros(0, np.uint8)
        self.keep_room = 0
        self.held: list[Any] = []
        self.busy = False
        for at, thing in _KNOWN:
            self.words[at] = id(thing)
        self.words[words.H_PTRS] = data_of(self.pointers)
        self.reserve(_FIRST)

    def _reserve_presets(self, rows: int) -> None:
        self.presets = np.zeros((rows, 4), np.int64)
        self.given = memoryview(self.presets).cast("B").cast("q")
        self.words[words.H_PRESETS] = data_of(self.presets)

    @functools.cached_property
    def mark_used(self) -> Any:
        """The native code that finds what a sweep has used, loaded when the first instructions are dropped."""
        return jit.entry(jit.load_module("release_native").drop)

    @functools.cached_property
    def mark_dead(self) -> Any:
        """The native code that finds what nobody can reach."""
        return jit.entry(jit.load_module("release_native").collect)

    def reserve(self, least: int) -> None:
        """Make room for at least this many cells. Memory that no sweep uses is never touched, so room is cheap."""
        self.cell_room = cells = 1 << (least - 1).bit_length()
        self.cells = np.zeros((cells, words.CELL), np.int64)
        self.order = np.empty(cells, np.int64)
        self.leaves = np.empty((cells, words.FOUND), np.int64)
        own = self.words
        for at, array in ((words.H_CELLS, self.cells), (words.H_ORDER, self.order), (words.H_LEAVES, self.leaves)):
            own[at] = data_of(array)
        own[words.H_ORDERS] = own[words.H_LEAFCAP] = cells
        self.flat = memoryview(self.cells).cast("B").cast("q")
        self.floats = self.flat.cast("B").cast("d")
        self.found = memoryview(self.leaves).cast("B").cast("q")

    def cell(self, key: int) -> int:
        """Return where the cell of a key begins among the words of cells, or the empty one where it belongs."""
        cells = self.words[words.H_CELLS]
        return int(self.find(cells, self.words[words.H_MASK], key) - cells) // 8

    def rest(self) -> list[Any]:
        """Give back what a large sweep needed; return what the last one held, to be let go."""
        held = self.held
        if held:
            self.held = []
        if self.keep_room > LARGE or self.cell_room > LARGE:
            self.reserve(_FIRST)
            self.keep, self.keep_room = np.zeros(0, np.uint8), 0
            self.words[words.H_KEEPS] = 0
        return held

    def preset(self, rows: list[tuple[int, int, int, int]]) -> None:
        """Give the sweep the shadows to begin with, a row of four words each."""
        if len(rows) > len(self.presets):
            self._reserve_presets(2 * len(rows))
        flat, at = self.given, 0
        for row in rows:
            flat[at], flat[at + 1], flat[at + 2], flat[at + 3] = row
            at += 4
        self.words[words.H_PRESET] = len(rows)

    def mark_room(self, size: int) -> None:
        """Make room for one byte an entry."""
        if self.keep_room < size:
            self.keep = np.empty(max(2 * len(self.keep), size, _FIRST), np.uint8)
            self.words[words.H_KEEP] = data_of(self.keep)
            self.words[words.H_KEEPS] = self.keep_room = len(self.keep)

    def drop(self, entries: list[Any], gone: int) -> list[Any] | None:
        """Take the entries marked with 0 off the tape; others may be appending meanwhile.

        Returns what stood there: whoever lets go of it runs finalizers, which may record, write and sweep.
        """
        if gone <= 0:
            return None
        low, size = self.words[words.H_LOW], self.words[words.H_SIZE]
        if gone == size - low:
            there = entries[low:size]
            del entries[low:size]
            return there
        return take_out(entries, slice(low, size), self.keep[: size - low].tobytes())
