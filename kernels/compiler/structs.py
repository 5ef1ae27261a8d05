"""Memory with named fields: what Python and native code say of it once, in one place.

A subclass of :class:`Struct` declares its fields in order. For Python, ``Tape.size`` is where the field is: the number
of its word, or with ``step=8`` the offset in bytes. In native code ``t.size`` is the field of the struct at an address,
which can be assigned, and ``Tape(address)`` says that an address is that of a struct; a parameter's annotation says so,
too. ``Tape.SIZE`` is where the fields end.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Generic, TypeVar

from kernels.foundation.data_classes import dataclass

T = TypeVar("T")
Int32 = int
"""The type of a field of 32 bits."""
_ARRAY = re.compile(r"Array\[(\w+)\]")


class Array(Generic[T]):
    """The type of a field, or a parameter, that is the address of words: integers, or addresses of structs."""


@dataclass(frozen=True)
class ArrayKind:
    """The type of the address of words in native code; ``element``: the struct whose addresses they are, or int."""

    element: Any


class StructType(type):
    """The type of structs: places their fields."""

    FIELDS: dict[str, tuple[int, str]]
    """Where each field is, and its type, as it is written."""
    SIZE: int
    STEP: int

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], start: int = 0, step: int = 1
    ) -> Any:
        """Make a struct, whose first field is at ``start``, each next one ``step`` further, or where it is said."""
        at, fields = start, {}
        for field, annotation in namespace.get("__annotations__", {}).items():
            at = namespace.get(field, at)
            fields[field] = at, annotation
            at += step
        places = {field: place for field, (place, _) in fields.items()}
        return super().__new__(mcs, name, bases, {**namespace, **places, "FIELDS": fields, "SIZE": at, "STEP": step})

    def __init__(cls, *_: Any, **__: Any) -> None:
        """Take what :meth:`__new__` has taken."""

    def kind_of(cls, field: str) -> Any:
        """Return the type of a field."""
        return kind_named(cls.FIELDS[field][1], vars(sys.modules[cls.__module__]))


class Struct(metaclass=StructType):
    """Memory with named fields; see the module."""

    def __init__(self, address: int) -> None:
        """Say, in native code, that this is the address of such memory."""


def kind_named(annotation: str, names: dict[str, Any]) -> Any:
    """Return what an annotation says of a word: a struct, an array, or the name of a type of numbers."""
    array = _ARRAY.fullmatch(annotation)
    if array:
        return ArrayKind(kind_named(array[1], names))
    named = names.get(annotation)
    return named if isinstance(named, StructType) else annotation


def is_address(kind: Any) -> bool:
    """Whether a type is that of an address of which is known what is there."""
    return isinstance(kind, (StructType, ArrayKind))
