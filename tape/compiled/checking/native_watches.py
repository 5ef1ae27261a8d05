"""Watches as checks of words, so that native code sees whether what a function reads from outside is as it was.

A check compares more strictly than a watch does, by identity, and never less so: where one fails, Python looks.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kernels.native.memory import HEADER, where
from kernels.native.object_structs import ArrayObject, TensorObject
from tape.compiled.checking.native_checks import Check, Draft
from tape.compiled.checking.object_places import places_in_functions
from tape.tensors.tensor import Tensor
from tape.watching.plain_attributes import MISSING, dictionary_of
from tape.watching.snapshots import Content, unchanged
from tape.watching.watched import ClassWatch, CodeWatch, Unseen, Watch, step

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

    def _add(self, watch: Watch | Content, draft: Draft | None) -> None:
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
        draft = Draft()
        for x, value in pairs:
            draft.word(x, TensorObject.value, value)
            self.holds = self.holds and x._value is value
        self.checks += draft.checks
        self.kept += draft.kept

    @property
    def rest(self) -> Callable[[], bool] | None:
        """What tells whether the rest is as it was; None if there is no rest."""
        return functools.partial(_are_current, tuple(self._rest)) if self._rest else None


def _are_current(watches: Sequence[Watch | Content]) -> bool:
    return not any(watch.changed() for watch in watches)


def _checks_of(watch: Watch) -> Draft | None:
    """Return the checks of a watch; None where native code cannot see what it watches."""
    draft = Draft()
    if type(watch) is CodeWatch:
        place = places_in_functions()[0]
        draft.word(watch.function, place, watch.expected)
        return draft if place else None
    if type(watch) is ClassWatch:
        return draft if _is_class(draft, watch) else None
    if type(watch) is not Watch:
        return None
    value = watch.read()
    if not unchanged(watch.expected, value) or not _located(draft, watch.read):
        return None
    return draft if draft.parts(watch.expected, value) else None


def _located(draft: Draft, read: Callable[[], Any]) -> bool:
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
        case {"receiver": _}:
            pass
        case _:
            return _reached(draft, named)
    return True


def _reached(draft: Draft, named: dict[str, Any]) -> bool:
    """Check what leads to a value: the parts of a function, or a path."""
    match named:
        case {"function": types.FunctionType() as function}:
            return _defaults(draft, function)
        case {"partial": functools.partial() as partial}:
            return draft.partial(partial)
        case {"start": start, "steps": steps}:
            return _located(draft, start) and _stepped(draft, start(), steps)
    return False


def _defaults(draft: Draft, function: types.FunctionType) -> bool:
    """Check which defaults a function has."""
    _, *places = places_in_functions()
    for at, defaults in zip(places, (function.__kwdefaults__, function.__defaults__), strict=True):
        draft.word(function, at, MISSING if defaults is None else defaults)
    return 0 not in places


def _is_class(draft: Draft, watch: ClassWatch) -> bool:
    """Check that a class is as it was, and what its data hold."""
    variables, (_, _, parts) = dictionary_of(watch.kind), watch.expected
    return (
        not watch.changed()
        and draft.state(watch.kind)
        and all(draft.parts(x, variables.get(name)) for name, x in parts)
    )


def _stepped(draft: Draft, value: Any, steps: Sequence[tuple[str, Any, Any]]) -> bool:
    """Check the steps of a path: attributes, and items of containers."""
    for kind, key, _ in steps:
        if kind == "attribute":
            if type(value) is types.ModuleType and key in vars(value):
                draft.entry(vars(value), key)
            elif not draft.attribute(value, key):
                return False
        elif not _item(draft, value, key):
            return False
        value = step(value, kind, key)
    return True


def _item(draft: Draft, value: Any, key: Any) -> bool:
    """Check an item of a container."""
    if type(value) is dict and type(key) is str:
        draft.entry(value, key)
    elif type(value) is list and type(key) is int:
        draft.item(value, key % len(value))
    else:
        return type(value) is tuple
    return True


def _checks_of_content(content: Content) -> Draft | None:
    """Return the checks of what an array holds."""
    array, held = content.array, content.held
    alike = array.flags.c_contiguous and held.flags.c_contiguous and array.nbytes == held.nbytes
    if type(array) is not np.ndarray or not alike or array.nbytes > _MOST_BYTES:
        return None
    draft = Draft()
    draft.array(array)
    draft.number(array, ArrayObject.data, where(array))
    draft.memory(where(array), held)
    return draft
