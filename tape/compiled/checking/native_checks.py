"""Checks of values, as words that native code reads.

A check compares by identity, and in order. What it refers to is kept alive, so that an address stays that of one
object; before memory of an object is read, the class of what may change its class is checked.
"""

from __future__ import annotations

import array
import ctypes
import functools
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

import numpy as np

from kernels.native.memory import HEADER, where
from kernels.native.object_structs import ArrayObject, TensorObject
from kernels.programs.calling.direct_call_structs import (
    CHECK_ATTRIBUTES,
    CHECK_BYTES,
    CHECK_DICT,
    CHECK_ENTRY,
    CHECK_ITEM,
    CHECK_LIST,
    CHECK_WORD,
)
from tape.compiled.checking.object_places import (
    attributes_of,
    looks_up_alike,
    place_of_member,
    place_of_version,
    version_of,
    word_at,
)
from tape.watching.plain_attributes import MISSING, NAMED_FIELD, entry_of_class, member_of, variables_of
from tape.watching.snapshots import opened, slots_of

Check = tuple[int, int, int, int]
"""Kind, where it looks, what for, and what has to be there."""
_BOUND = (types.FunctionType, staticmethod, classmethod)
"""What a class has of which an attribute is made that depends on nothing else."""
_PYTHONS = (
    set,
    deque,
    OrderedDict,
    types.MappingProxyType,
    memoryview,
    bytearray,
    array.array,
    ctypes._SimpleCData,
    ctypes.Array,
    ctypes.Structure,
)
"""Containers that native code does not look into."""
_PARTIAL = ("func", "args", "keywords")


class Draft:
    """Checks under construction, with what they refer to.

    Methods that return whether they could leave a draft of no use where they could not.
    """

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.kept: list[Any] = []

    def word(self, holder: Any, at: int, expected: Any) -> None:
        """Check a reference in an object; MISSING stands for none."""
        self.kept += (holder, expected)
        self.checks.append((CHECK_WORD, id(holder), at, 0 if expected is MISSING else id(expected)))

    def number(self, holder: Any, at: int, expected: int) -> None:
        """Check a word of an object that is a number."""
        self.kept.append(holder)
        self.checks.append((CHECK_WORD, id(holder), at, expected))

    def entry(self, holder: dict[Any, Any], name: Any) -> None:
        """Check an entry of a dictionary."""
        expected = holder.get(name, MISSING)
        self.kept += (holder, name, expected)
        self.checks.append((CHECK_ENTRY, id(holder), id(name), 0 if expected is MISSING else id(expected)))

    def entries(self, holder: dict[Any, Any]) -> None:
        """Check all entries of a dictionary, and their order."""
        both = [x for pair in list(holder.items()) for x in pair]
        self.kept += (holder, both)
        self.checks.append((CHECK_DICT, id(holder), len(both) // 2, self._addresses(both)))

    def item(self, holder: list[Any], k: int) -> None:
        """Check the length of a list, and an item."""
        self.number(holder, HEADER, len(holder))
        self.kept.append(holder[k])
        self.checks.append((CHECK_ITEM, id(holder), k, id(holder[k])))

    def items(self, holder: list[Any]) -> None:
        """Check all items of a list."""
        held = list(holder)
        self.kept += (holder, held)
        self.checks.append((CHECK_LIST, id(holder), len(held), self._addresses(held)))

    def _addresses(self, objects: list[Any]) -> int:
        words = np.array([id(x) for x in objects], np.int64)
        self.kept.append(words)
        return where(words)

    def memory(self, place: int, expected: np.ndarray[Any, Any]) -> None:
        """Check bytes of memory, against those of an array."""
        self.kept.append(expected)
        self.checks.append((CHECK_BYTES, place, expected.nbytes, where(expected)))

    def array(self, array: np.ndarray[Any, Any]) -> None:
        """Check the dtype and the shape of an array."""
        start = id(array)
        self.word(array, ArrayObject.dtype, array.dtype)
        self.memory(start + ArrayObject.ndim, np.array([array.ndim], np.int32))
        self.number(array, ArrayObject.shape, word_at(start + ArrayObject.shape))
        if array.ndim:
            self.memory(word_at(start + ArrayObject.shape), np.array(array.shape, np.int64))

    def state(self, kind: type) -> bool:
        """Check that a class, and those above it, are as they were."""
        at = place_of_version()
        if at == 0 or version_of(kind) == 0:
            return False
        self.number(kind, at, word_at(id(kind) + at))
        return True

    def member(self, holder: Any, name: str) -> bool:
        """Check a slot of an object, or another member of it."""
        at = place_of_member(type(holder), name)
        self.word(holder, at, member_of(holder, name))
        return at != 0

    def partial(self, holder: functools.partial[Any]) -> bool:
        """Check what a partial function is of."""
        return all(self.member(holder, name) for name in _PARTIAL)

    def attributes(self, holder: Any) -> dict[str, Any] | None:
        """Check which dictionary an object has its attributes in; return it, None if there is none."""
        variables = attributes_of(holder)
        if variables is not None:
            self.kept += (holder, variables)
            self.checks.append((CHECK_ATTRIBUTES, id(holder), 0, id(variables)))
        return variables

    def attribute(self, holder: Any, name: str) -> bool:
        """Check what is looked up as an attribute of an object or of a class."""
        kind = type(holder)
        if type(holder) is np.ndarray and name in ("shape", "ndim", "size", "dtype"):
            self.array(holder)
            return True
        if isinstance(holder, type):
            entry = entry_of_class(holder, name)
            usual = looks_up_alike(kind, type) and entry_of_class(kind, name) is MISSING and entry is not MISSING
            return usual and _is_plain(entry) and self.state(kind) and self.state(holder)
        if not looks_up_alike(kind, object) or not self.state(kind):
            return False
        self.word(holder, TensorObject.type, kind)
        entry = entry_of_class(kind, name)
        if type(entry) is types.MemberDescriptorType:
            return self.member(holder, name)
        variables = self.attributes(holder)
        if variables is not None:
            self.entry(variables, name)
        in_object = variables is not None and name in variables
        return _is_plain(entry, in_object=in_object) and (in_object or entry is not MISSING)

    def parts(self, expected: Any, value: Any) -> bool:
        """Check what a snapshot says of a value beyond its identity."""
        if type(expected) is not tuple:
            return True
        kind, _, parts = expected
        if isinstance(kind, type):
            inside = zip(parts, opened(value), strict=False)
            return self._container(kind, value) and all(self.parts(part, x) for (_, part), (_, x) in inside)
        if type(value) is np.ndarray and isinstance(parts, tuple) and parts:
            self.array(value)
        return True

    def _container(self, kind: type, value: Any) -> bool:
        """Check the parts of a container or an object by their identity."""
        if kind is list:
            self.items(value)
        elif kind is dict:
            self.entries(value)
        elif kind is functools.partial:
            return self.partial(value)
        elif kind is not tuple and kind is not frozenset:
            return self._object(kind, value) and self._held(kind, value)
        return True

    def _held(self, kind: Any, value: Any) -> bool:
        """Check what an object holds as a container, by its identity."""
        if issubclass(kind, list):
            self.items(value)
        elif issubclass(kind, dict) and not issubclass(kind, OrderedDict):
            self.entries(value)
            return not issubclass(kind, defaultdict) or self.member(value, "default_factory")
        elif issubclass(kind, np.ndarray):
            self.array(value)
        return not issubclass(kind, _PYTHONS)

    def _object(self, kind: Any, value: Any) -> bool:
        """Check the class and all attributes of an object."""
        self.word(value, TensorObject.type, kind)
        variables = variables_of(value)
        if variables is not None:
            if self.attributes(value) is not variables:
                return False
            self.entries(variables)
        names = [name for name in slots_of(kind) if entry_of_class(kind, name) is not MISSING]
        return all(self.member(value, name) for name in names)


def _is_plain(entry: Any, *, in_object: bool = False) -> bool:
    """Whether what a class has by a name is given as it is, as a method, or hidden by what an object has."""
    kind = type(entry)
    if hasattr(kind, "__set__") or hasattr(kind, "__delete__"):
        return kind is NAMED_FIELD
    return in_object or kind in _BOUND or not hasattr(kind, "__get__")
