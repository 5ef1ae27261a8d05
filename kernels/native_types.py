"""Types made by CPython's ``PyType_FromSpec``, with slots that are machine code.

References: https://docs.python.org/3/c-api/type.html#heap-types
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, TypeVar

from kernels import jit, words
from kernels.memory import readable

Class = TypeVar("Class", bound=type)

NATIVE = readable() and not os.environ.get("TAPE_PLAIN") and jit.makes_native_code()
"""False where this interpreter keeps its objects otherwise, where ``TAPE_PLAIN`` is set (tests), or without sources."""

_DEFAULT, _BASETYPE, _HAVE_GC = 1 << 18, 1 << 10, 1 << 14
"""Flags of types: CPython's Py_TPFLAGS."""
_CLEAR, _DEALLOC, _TRAVERSE, _MEMBERS = 51, 52, 71, 72
"""Numbers of slots, as CPython's typeslots.h fixes them."""
_OBJECT, _SSIZE, _READONLY = 16, 19, 1
"""Kinds of members: T_OBJECT_EX, T_PYSSIZET; and a flag of theirs."""


class _Member(ctypes.Structure):
    """CPython's PyMemberDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("offset", ctypes.c_ssize_t), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _Slot(ctypes.Structure):
    """CPython's PyType_Slot."""

    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    """CPython's PyType_Spec."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int), ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )  # fmt: skip


_kept: list[Any] = []
"""What types go on reading of their specs."""

TENSOR = {
    "_value": words.O_VALUE, "_form": words.O_FORM, "_slot": words.O_SLOT, "_base": words.O_BASE,
    "_views": words.O_VIEWS, "_shared": words.O_SHARED, "_rare": words.O_RARE,
}  # fmt: skip
"""Where a tensor's references stand."""


def tensor_type(cls: Class) -> Class:
    """Return the native type with the methods of a class, for use as its decorator; the class, without native code."""
    if not NATIVE:
        return cls
    members = [_Member(name.encode(), _OBJECT, offset, 0, None) for name, offset in TENSOR.items()]
    members.append(_Member(b"_offset", _SSIZE, words.O_OFFSET, 0, None))
    members.append(_Member(b"__weaklistoffset__", _SSIZE, words.O_WEAK, _READONLY, None))
    table = (_Member * (len(members) + 1))(*members)
    native = jit.load_module("tensor_native")
    found = _made(cls, object, {_MEMBERS: ctypes.addressof(table), **_memory(native)}, words.O_SIZE)
    _kept.append(table)
    return found


def same_layout(cls: Class) -> Class:
    """Return the native type of a class that derives from one: their instances may change from one to the other."""
    if not NATIVE:
        return cls
    return _made(cls, cls.__base__, _memory(jit.load_module("tensor_native")), 0)


def _memory(native: Any) -> dict[int, int]:
    return {_TRAVERSE: native.traverse.address, _CLEAR: native.clear.address, _DEALLOC: native.dealloc.address}


def _made(cls: Any, base: Any, slots: dict[int, int], size: int) -> Any:
    rows = (_Slot * (len(slots) + 1))(*[_Slot(*pair) for pair in slots.items()])
    name = f"{cls.__module__}.{cls.__qualname__}".encode()
    spec = _Spec(name, size, 0, _DEFAULT | _BASETYPE | _HAVE_GC, rows)
    _kept.append((name, rows, spec))
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object]
    found = make(ctypes.addressof(spec), (base,))
    for name_, value in vars(cls).items():
        if name_ not in ("__dict__", "__weakref__", "__slots__", "__module__", *TENSOR, "_offset"):
            setattr(found, name_, value)
    return found
