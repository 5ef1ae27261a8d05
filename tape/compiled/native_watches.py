"""Watches as checks of words, so that native code sees whether what a function reads from outside is as it was.

A check compares more strictly than a watch does, by identity, and never less so: where one fails, Python looks.
"""

from __future__ import annotations

import ctypes
import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kernels.native.memory import HEADER, LIST_ITEMS, where
from kernels.native.words import A_DATA, A_DTYPE, A_NDIM, A_SHAPE, O_VALUE
from kernels.programs.calling.direct_call_words import CHECK_BYTES, CHECK_ENTRY, CHECK_ITEM, CHECK_WORD
from tape.tensors.tensor import Tensor
from tape.watching.snapshots import MISSING, Content, unchanged
from tape.watching.watched import CodeWatch, Unseen, Watch

Check = tuple[int, int, int, int]
"""Kind, where it looks, what for, and what has to be there."""
_MOST_PARTS = 16
"""Items of a list that native code looks at."""
_MOST_BYTES = 1 << 16
"""Bytes of an array that native code compares; for more, NumPy is faster."""


class Checks:
    """The checks of a program's watches, what they refer to, and the watches of which there are none."""

    def __init__(self, watches: Iterable[Watch], contents: Iterable[Content]) -> None:
        self.checks: list[Check] = []
        self.kept: list[Any] = []
        """What stays alive as long as the checks are used."""
        self._rest: list[Watch | Content] = []
        self.holds = True
        """Whether all was as it was when the checks were made."""
        for watch in watches:
            if not isinstance(watch, Unseen):
                self._add(watch, _checks_of(watch))
        for content in contents:
            if not content.trusted:
                self._add(content, _checks_of_content(content))

    def _add(self, watch: Watch | Content, draft: _Draft | None) -> None:
        """Take in the checks of a watch; one without, or with one that does not hold, remains Python's."""
        self.holds = self.holds and not watch.changed()
        if draft is None:
            self._rest.append(watch)
        else:
            known = set(self.checks)
            self.checks += [check for check in draft.checks if check not in known]
            self.kept += draft.kept

    def add_references(self, pairs: Iterable[tuple[Tensor, Any]]) -> None:
        """Check that tensors still have their values."""
        draft = _Draft()
        for x, value in pairs:
            draft.word(x, O_VALUE, value)
            self.holds = self.holds and x._value is value
        self.checks += draft.checks
        self.kept += draft.kept

    @property
    def rest(self) -> Callable[[], bool] | None:
        """What tells whether the rest is as it was; None if there is no rest."""
        return functools.partial(_are_current, tuple(self._rest)) if self._rest else None


def _are_current(watches: Sequence[Watch | Content]) -> bool:
    return not any(watch.changed() for watch in watches)


class _Draft:
    """Checks under construction, with what they refer to."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.kept: list[Any] = []

    def word(self, holder: Any, at: int, expected: Any) -> None:
        """Check a reference in an object; MISSING stands for none."""
        self.kept += (holder, expected)
        self.checks.append((CHECK_WORD, id(holder), at, 0 if expected is MISSING else id(expected)))

    def entry(self, holder: dict[str, Any], name: str) -> None:
        """Check an entry of a dictionary."""
        expected = holder.get(name, MISSING)
        self.kept += (holder, name, expected)
        self.checks.append((CHECK_ENTRY, id(holder), id(name), 0 if expected is MISSING else id(expected)))

    def item(self, holder: list[Any], k: int) -> None:
        """Check an item of a list, whose length is checked before."""
        self.kept += (holder, holder[k])
        self.checks.append((CHECK_ITEM, id(holder), k, id(holder[k])))

    def length(self, holder: list[Any]) -> None:
        """Check the length of a list."""
        self.kept.append(holder)
        self.checks.append((CHECK_WORD, id(holder), HEADER, len(holder)))

    def memory(self, place: int, expected: np.ndarray[Any, Any]) -> None:
        """Check bytes of memory, against those of an array."""
        self.kept.append(expected)
        self.checks.append((CHECK_BYTES, place, expected.nbytes, where(expected)))

    def array(self, array: np.ndarray[Any, Any]) -> None:
        """Check the dtype and the shape of an array."""
        start = id(array)
        self.word(array, A_DTYPE, array.dtype)
        self.memory(start + A_NDIM, np.array([array.ndim], np.int32))
        self.checks.append((CHECK_WORD, start, A_SHAPE, _word(start + A_SHAPE)))
        if array.ndim:
            self.memory(_word(start + A_SHAPE), np.array(array.shape, np.int64))

    def parts(self, expected: Any, value: Any) -> bool:
        """Check what a snapshot says of a value beyond its identity; False where native code cannot."""
        if type(expected) is not tuple:
            return True
        kind, _, parts = expected
        if kind is tuple:
            return all(self.parts(part, value[k]) for k, part in parts)
        if kind is list and len(parts) <= _MOST_PARTS:
            self.length(value)
            for k, _ in parts:
                self.item(value, k)
            return all(self.parts(part, value[k]) for k, part in parts)
        if isinstance(kind, type):
            return False
        if type(value) is np.ndarray and isinstance(parts, tuple) and parts:
            self.array(value)
        return type(value) is not types.MethodType


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _checks_of(watch: Watch) -> _Draft | None:
    """Return the checks of a watch; None where native code cannot see what it watches."""
    draft = _Draft()
    if type(watch) is CodeWatch:
        if _places()[0] == 0:
            return None
        draft.word(watch.function, _places()[0], watch.expected)
        return draft
    if type(watch) is not Watch:
        return None
    value = watch.read()
    if not unchanged(watch.expected, value) or not _located(draft, watch.read):
        return None
    return draft if draft.parts(watch.expected, value) else None


def _located(draft: _Draft, read: Callable[[], Any]) -> bool:
    """Check that a value is where it was read; False where native code cannot. The variables of readers tell where."""
    if isinstance(read, functools.partial):  # of an object that is always the same
        return True
    if not isinstance(read, types.FunctionType) or read.__closure__ is None:
        return False
    cells = zip(read.__code__.co_freevars, [cell.cell_contents for cell in read.__closure__], strict=True)
    named = dict(cells)
    match named:
        case {"variables": variables, "name": name} if type(variables) is dict and type(name) is str:
            draft.entry(variables, name)
        case {"cell": types.CellType() as cell}:
            draft.word(cell, HEADER, read())
        case {"function": types.FunctionType() as function} if function.__kwdefaults__ is None:
            return _defaults(draft, function)
        case {"receiver": _}:
            pass
        case {"start": start, "steps": steps}:
            return _located(draft, start) and _stepped(draft, start(), steps)
        case _:
            return False
    return True


def _defaults(draft: _Draft, function: types.FunctionType) -> bool:
    place, defaults = _places()[1:]
    if 0 in (place, defaults):
        return False
    draft.word(function, defaults, MISSING if function.__defaults__ is None else function.__defaults__)
    draft.word(function, place, MISSING)
    return True


def _stepped(draft: _Draft, value: Any, steps: Sequence[tuple[str, Any]]) -> bool:
    """Check the steps of a path: attributes of modules, items of tuples and lists."""
    for step, key in steps:
        if step == "attribute" and type(value) is types.ModuleType and key in vars(value):
            draft.entry(vars(value), key)
            value = vars(value)[key]
        elif step == "item" and type(value) in (tuple, list) and type(key) is int:
            if type(value) is list:
                draft.length(value)
                draft.item(value, key % len(value))
            value = value[key]
        else:
            return False
    return True


def _checks_of_content(content: Content) -> _Draft | None:
    """Return the checks of what an array holds."""
    array, held = content.array, content.held
    alike = array.flags.c_contiguous and held.flags.c_contiguous and array.nbytes == held.nbytes
    if type(array) is not np.ndarray or not alike or array.nbytes > _MOST_BYTES:
        return None
    draft = _Draft()
    draft.array(array)
    draft.kept.append(array)
    draft.checks.append((CHECK_WORD, id(array), A_DATA, where(array)))
    draft.memory(where(array), held)
    return draft


@functools.cache
def _places() -> tuple[int, int, int]:
    """Return where functions have their code, keyword defaults and defaults; 0 where that is not known."""

    def one(a: Any = 1.5, *, b: Any = 2.5) -> None:
        """Have defaults of both kinds."""

    def other(a: Any = 3.5, *, b: Any = 4.5) -> None:
        """Have other ones."""

    def place_of(name: str) -> int:
        size = types.FunctionType.__basicsize__
        both = [
            [at for at in range(HEADER, size, 8) if _word(id(f) + at) == id(getattr(f, name))] for f in (one, other)
        ]
        return both[0][0] if both[0] == both[1] and len(both[0]) == 1 else 0

    return place_of("__code__"), place_of("__kwdefaults__"), place_of("__defaults__")


assert LIST_ITEMS == HEADER + 8, "native code reads lists there"
