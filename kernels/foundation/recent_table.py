"""Tables with a bounded number of entries, so that programs with ever new shapes take no more memory."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, ClassVar, TypeVar

import numpy as np

Key = TypeVar("Key")
Item = TypeVar("Item")

MOST = 1 << 14
"""Entries of all tables together: some fifty megabytes, or 4,000 to 5,000 operations each on shapes of its own."""


class Recent(dict[Key, Item]):
    """A dictionary that drops every other entry when all of its kind together are full.

    A loop over more shapes than there is room for so finds some again, where without the older half it found none.

    What it held is made again when it is asked for again: nothing may rely on an entry's being there, and whoever
    uses one by address keeps it himself. There is one a module, an operation, or a program: those of programs that are
    gone count no more.
    """

    __slots__ = ("__weakref__",)
    _all: ClassVar[dict[int, weakref.ref[Recent]]] = {}
    _counted = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        number = id(self)
        self._all[number] = weakref.ref(self, lambda _, known=self._all: known.pop(number, None))

    def __setitem__(self, key: Key, item: Item) -> None:
        self._make_room()
        super().__setitem__(key, item)

    def setdefault(self, key: Key, item: Item) -> Item:  # type: ignore[override]
        """Return what stands under a key; the item, if nothing does."""
        self._make_room()
        return super().setdefault(key, item)

    @classmethod
    def tables(cls) -> list[Recent]:
        """Return all tables that there are."""
        return [table for known in list(cls._all.values()) if (table := known()) is not None]

    def _make_room(self) -> None:
        if next(self._counted) >= MOST:
            tables = self.tables()
            for table in tables:
                table.halve()
            Recent._counted = itertools.count(sum(map(len, tables)))

    def halve(self) -> None:
        """Drop every other entry, a single one too: tables of one entry each, one a program, would else stay full."""
        for key in list(self.copy())[::2]:  # of a copy: other threads write meanwhile
            self.pop(key, None)


# Keys of tables: values, with their types, so that 1, True and 1.0 are three, and 0.0 and -0.0 two.

_PLAIN = frozenset((int, bool, str, bytes, type(None), type(Ellipsis)))


def exact(value: Any) -> Any:
    """Return what a table may know a value by, for as long as it likes. TypeError for what can change meanwhile.

    Values that compare equal and mean different things have different keys; nan has one. Objects that equal only
    themselves, as functions do, stand for themselves: the key keeps them.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is tuple or kind is slice:
        return (kind, *map(exact, value if kind is tuple else (value.start, value.stop, value.step)))
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    if isinstance(value, np.dtype):
        return kind, value.str
    if kind.__eq__ is object.__eq__ or isinstance(value, type):
        return kind, value
    raise TypeError(f"a {kind.__name__} can change, and so cannot be part of a key")
