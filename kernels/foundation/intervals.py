"""An index of memory ranges: finds those that overlap with a given range."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_LEAST = 6
"""Ranges up to 64 bytes, a cache line, are filed in blocks of the same size."""
_FEW = 64


class Intervals:
    """Items by the range of bytes [low, high) that they stand for.

    An item is filed in blocks of a power of two just above its own length, so that it stands in one or two, and a
    question looks into the blocks of each length that it touches: both take a time that does not grow with the rest.
    Threads, and finalizers in the middle of a method, may add, ask and discard: a list of a block is never replaced,
    and is copied before it is gone through.
    """

    def __init__(self) -> None:
        self._levels: dict[int, dict[int, list[tuple[int, int, Any]]]] = {}

    def add(self, low: int, high: int, item: Any) -> None:
        """File an item; one of no bytes meets nothing."""
        if high <= low:
            return
        level = max(_LEAST, (high - low - 1).bit_length())
        blocks = self._levels.setdefault(level, {})
        entry = low, high, item
        for block in range(low >> level, ((high - 1) >> level) + 1):
            blocks.setdefault(block, []).append(entry)

    def meeting(self, low: int, high: int) -> list[Any]:
        """Return the items whose range meets [low, high), each once, in no order."""
        if high <= low or not self._levels:
            return []
        entries = {id(entry): entry for entry in self._near(low, high)}
        return [item for a, b, item in entries.values() if a < high and low < b]

    def discard(self, low: int, high: int, item: Any) -> None:
        """Take an item out again, filed under the same range."""
        level = max(_LEAST, (high - low - 1).bit_length())
        blocks = self._levels.get(level, {})
        for block in range(low >> level, ((high - 1) >> level) + 1):
            with contextlib.suppress(ValueError):
                blocks.get(block, []).remove((low, high, item))

    def _near(self, low: int, high: int) -> Iterator[tuple[int, int, Any]]:
        for level, blocks in list(self._levels.items()):
            first, last = low >> level, (high - 1) >> level
            if last - first < _FEW:
                for block in range(first, last + 1):
                    yield from tuple(blocks.get(block, ()))
            else:
                for block, entries in list(blocks.items()):
                    if first <= block <= last:
                        yield from tuple(entries)
