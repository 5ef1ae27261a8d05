"""Types made by CPython's ``PyType_FromSpec``, with slots that are machine code.

References: https://docs.python.org/3/c-api/type.html#heap-types
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

from kernels.compiler import jit
from kernels.compiler.native_units import FASTCALL, Method
from kernels.native.memory import readable

NATIVE = readable() and not os.environ.get("TAPE_PLAIN") and jit.makes_native_code()
"""False where this interpreter lays out its objects differently, with ``TAPE_PLAIN`` set, or without source files."""

DEFAULT, BASETYPE, COLLECTED = 1 << 18, 1 << 10, 1 << 14
NOT_CALLED, VECTORCALL, METHOD = 1 << 7, 1 << 11, 1 << 17
"""CPython's Py_TPFLAGS: no instances by calling the type; vectorcall; method descriptor."""
CALL, DESCR_GET, DESCR_SET = 50, 54, 55
LENGTH, CLEAR, DEALLOC, METHODS, TRAVERSE, MEMBERS, GETSET = 45, 51, 52, 64, 71, 72, 73
"""Numbers of slots, as CPython's typeslots.h fixes them."""
MP_ASS_SUBSCRIPT, MP_SUBSCRIPT = 3, 5
NB_ADD, NB_SUBTRACT, NB_MULTIPLY, NB_TRUE_DIVIDE, NB_POWER, NB_NEGATIVE, NB_MATRIX_MULTIPLY = 7, 36, 29, 37, 33, 30, 75
OBJECT, WORD, SIZE, READONLY = 16, 17, 19, 1
"""Kinds of members: T_OBJECT_EX, T_LONGLONG, T_PYSSIZET; and a flag of theirs."""
_NOARGS = 0x4


class _Member(ctypes.Structure):
    """CPython's PyMemberDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("offset", ctypes.c_ssize_t), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _GetSet(ctypes.Structure):
    """CPython's PyGetSetDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("get", ctypes.c_void_p), ("set", ctypes.c_void_p), ("doc", ctypes.c_char_p),
        ("closure", ctypes.c_void_p),
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
"""Tables that the types refer to as long as they live."""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))  # kept until the process ends: objects may be deallocated last


def _table(kind: Any, rows: list[Any]) -> int:
    """Return the address of a table that ends with an empty row."""
    table = (kind * (len(rows) + 1))(*rows)
    _kept.append(table)
    return ctypes.addressof(table)


def members(rows: dict[str, tuple[int, int, int]]) -> int:
    """Return the table of members: by name the kind, the offset and flags."""
    return _table(_Member, [_Member(name.encode(), *row, None) for name, row in rows.items()])


def methods(functions: dict[str, Any], *, without: bool = False) -> int:
    """Return the table of methods: those in ``without`` take no arguments, the others any number."""
    flags = _NOARGS if without else FASTCALL
    _kept.extend(functions.values())
    return _table(Method, [Method(name.encode(), f.address, flags, None) for name, f in functions.items()])


def properties(rows: dict[str, tuple[Any, Any]]) -> int:
    """Return the table of attributes with native getters and setters."""
    _kept.extend(rows.values())
    return _table(_GetSet, [_GetSet(n.encode(), g.address, s.address, None, None) for n, (g, s) in rows.items()])


def made(name: str, base: type, slots: dict[int, Any], size: int, flags: int) -> Any:
    """Return a new type; slots are addresses of tables, or machine code. ``size`` 0 is the base's."""
    rows = [_Slot(number, value if isinstance(value, int) else value.address) for number, value in slots.items()]
    spec = _Spec(name.encode(), size, 0, DEFAULT | flags, ctypes.cast(_table(_Slot, rows), ctypes.POINTER(_Slot)))
    _kept.append((spec, slots))
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object]
    return make(ctypes.addressof(spec), (base,))


def instance(kind: type) -> Any:
    """Return a new object of a type, all its words 0."""
    allocate = ctypes.pythonapi.PyType_GenericAlloc
    allocate.restype, allocate.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_ssize_t]
    return allocate(kind, 0)
