"""Tables with a bounded number of entries, so that programs with ever new shapes take no more memory."""

from __future__ import annotations

import itertools
from typing import ClassVar, TypeVar

Key = TypeVar("Key")
Item = TypeVar("Item")

MOST = 1 << 11
"""Entries of all tables together: two megabytes, or 700 operations each on shapes of its own."""


class Recent(dict[Key, Item]):
    """A dictionary that drops the older half of its entries when all of its kind together are full.

    What it held is made again when it is asked for again: nothing may rely on an entry's being there, and whoever
    uses one by address keeps it himself. Tables are never deleted: one a module, or one an operation.
    """

    __slots__ = ()
    _all: ClassVar[list[Recent]] = []
    _counted = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self._all.append(self)

    def __setitem__(self, key: Key, item: Item) -> None:
        self._make_room()
        super().__setitem__(key, item)

    def setdefault(self, key: Key, item: Item) -> Item:  # type: ignore[override]
        """Return what stands under a key; the item, if nothing does."""
        self._make_room()
        return super().setdefault(key, item)

    def _make_room(self) -> None:
        if next(self._counted) >= MOST:
            for table in list(self._all):
                table.halve()
            Recent._counted = itertools.count(sum(map(len, self._all)))

    def halve(self) -> None:
        """Drop the older half."""
        for key in list(self.copy())[: len(self) // 2]:  # of a copy: other threads write meanwhile
            self.pop(key, None)
