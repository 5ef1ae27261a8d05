"""The types of native code, which annotations name: words, memory with named fields, functions called from outside.

A subclass of :class:`Struct` declares its fields in order. For Python, ``Tape.size`` is where the field is: the number
of its word, or with ``step=8`` the offset in bytes. In native code ``t.size`` is the field of the struct at an address,
which can be assigned, and ``Tape(address)`` says that an address is that of a struct; a parameter's annotation says so,
too. ``Tape.SIZE`` is where the fields end.

A function whose result is annotated is exported: with ``Word``, ``Int32`` or ``Void`` C calls it by its address, with
``int`` or ``None`` Python, too. All other functions are part of those that call them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Generic, TypeVar

from numba import types

from kernels.foundation.tables import dataclass

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Word = int
"""An integer of 64 bits, or an address."""
Void = None
"""Nothing, where C calls."""
Words = int
"""A pointer to integers of 64 bits."""
Int32 = int
"""An integer of 32 bits: C's ``int``."""
_ARRAY = re.compile(r"Array\[(\w+)\]")


class Array(int, Generic[T]):
    """The type of a field, or a parameter, that is the address of words: integers, or addresses of structs."""


@dataclass(frozen=True)
class ArrayKind:
    """The type of the address of words in native code; ``element``: the struct whose addresses they are, or int64."""

    element: Any


class StructType(type):
    """The type of structs: places their fields."""

    FIELDS: dict[str, tuple[int, str]]  # where each field is, and its type, as it is written
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

    def byte_of(cls, field: str) -> int:
        """Return where a field is, in bytes."""
        return cls.FIELDS[field][0] * (8 if cls.STEP == 1 else 1)

    def row(cls, **fields: int) -> list[int]:
        """Return the words of a struct whose other fields are 0."""
        words = [0] * cls.SIZE
        for field, value in fields.items():
            words[cls.FIELDS[field][0]] = value
        return words

    def kind_of(cls, field: str) -> Any:
        """Return the type of a field."""
        return kind_named(cls.FIELDS[field][1], vars(sys.modules[cls.__module__]))


class Struct(int, metaclass=StructType):
    """Memory with named fields; see the module. It is an address."""


def kind_named(annotation: str, names: dict[str, Any]) -> Any:
    """Return what an annotation says of a word: a struct, an array, or a type of numbers; None if it says nothing."""
    array = _ARRAY.fullmatch(annotation)
    if array:
        return ArrayKind(kind_named(array[1], names))
    named = names.get(annotation)
    return named if isinstance(named, StructType) else _KINDS.get(annotation)


def is_address(kind: Any) -> bool:
    """Whether a type is that of an address of which is known what is there."""
    return isinstance(kind, (StructType, ArrayKind))


_KINDS = {
    "int": types.int64, "Word": types.int64, "Int32": types.int32, "Words": types.CPointer(types.int64),
    "float": types.float64, "None": types.void, "Void": types.void,
}  # fmt: skip
SIGNATURE = types.void(types.CPointer(types.int64), types.CPointer(types.int64), types.int64)
"""Every kernel: layout, pointers (target, cotangent, saved ...), and 1 to accumulate or 0 to store."""


def kept_apart(function: F) -> F:
    """Keep a function out of its only caller: rare work would take that caller's registers."""
    function.kept_apart = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True)
class NativeSignature:
    """Types of arguments and result, and whether Python calls the function."""

    arguments: tuple[Any, ...]
    result: Any
    from_python: bool


def signature_of(function: Callable[..., Any]) -> NativeSignature | None:
    """Return the signature of a function that is called from outside, None for any other."""
    annotations, code = function.__annotations__, function.__code__
    if "return" not in annotations:
        return None
    try:
        kinds = [_KINDS.get(annotations[name], types.int64) for name in code.co_varnames[: code.co_argcount]]
    except KeyError as error:
        raise TypeError(f"{function.__name__} is called from outside: annotate its parameter {error}") from None
    result = annotations["return"]
    return NativeSignature(tuple(kinds), _KINDS[result], result in ("int", "None"))


SOURCE = "__native_source__"
"""The name, among a module's globals, of its source."""


class Source:
    """The text of a native module, whose functions others may call, and what its names mean."""

    def __init__(self, name: str, text: str, names: dict[str, Any]) -> None:
        self.name, self.text, self.names = name, text, names
        self.trees: dict[str, ast.FunctionDef] = {}
        names[SOURCE] = self

    def has(self, thing: Any) -> bool:
        """Whether a thing is a function of this module."""
        return isinstance(thing, FunctionType) and thing.__globals__ is self.names

    def tree(self, name: str) -> ast.FunctionDef:
        """Return a function of the source, which is parsed when one is wanted."""
        if not self.trees:
            functions = [node for node in ast.parse(self.text).body if isinstance(node, ast.FunctionDef)]
            self.trees = {function.name: function for function in functions}
        return self.trees[name]
