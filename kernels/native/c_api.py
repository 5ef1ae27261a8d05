"""CPython's and NumPy's C API for native code: objects' layouts, functions, types made on the heap."""

from __future__ import annotations

import ctypes
import functools
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from kernels.foundation.specs import word_at
from kernels.language import jit
from kernels.language.jit import API, FASTCALL, Method, intrinsic, types
from kernels.language.llvm_values import Array, Int32, Struct
from kernels.native.memory import HEADER, c_function, calling, instructions, readable
from kernels.native.structs import RegistryTable


class TensorObject(Struct, start=8, step=8):
    """A tensor: after its header references, then what is no reference."""

    type: int
    value: ArrayObject
    form: int
    base: int
    views: int
    shared: int
    extras: TensorExtras
    slot: int  # 0, a slot, one that the tensor does not hold (marked UNHELD), a leaf's address turned negative
    offset: int
    bytes: int
    node: int  # of the program that is recorded: its number, and the recorder's above that
    weak: int


MOST_SPARES = 32
"""Tensors that have died whose memory is kept for new ones, each with the address of the next for its value."""
UNHELD = 1 << 62
STALE = -1  # no slot: the tensor is a view of a version that has been overwritten


class LeafObject(Struct, start=16, step=8):
    """The slot of a leaf."""

    grad: int
    hooks: int
    is_transform_input_done: int  # whether it was an input of a transform that is done
    owner: int
    spec: int


SMALL_GRADIENT = 1 << 12
"""Bytes from which a gradient of a leaf is dropped with the leaf, not with the last instruction that refers to it."""


class TensorExtras(Struct, start=16, step=8):
    """What few tensors have."""

    counter: int
    grad: int
    leaf: int
    retains: int


class ShownObject(Struct, start=16, step=8):
    """What lives as long as the user's arrays of a tensor's memory."""

    array: int  # whose memory it is


class FunctionObject(Struct, start=16, step=8):
    """A function of tensors."""

    call: int  # its entry
    number: int
    slow: int  # who does what is no hit
    always: int  # who does what is always Python's
    attributes: int


class ArrayObject(Struct, start=16, step=8):
    """An array of NumPy's; kernels/native/memory.py and c_api.py check that it is so."""

    data: int
    ndim: Int32
    shape: Array[int]
    strides: Array[int]
    base: int
    dtype: DTypeObject
    flags: Int32


A_SIMPLE, A_ALIGNED, A_WRITEABLE, A_DENSE = 0x101, 0x100, 0x400, 0x3
"""Flags of arrays: C-contiguous and aligned; that may be written."""


class ListObject(Struct, start=HEADER, step=8):
    """A list; kernels/native/memory.py checks that it is so."""

    size: int
    items: Array[int]


class RecorderObject(Struct, start=16, step=8):
    """A :class:`tape.tensors.modes.SoleRecorder`."""

    notify: int
    tape: int
    thread: int
    words: int


class DTypeObject(Struct, start=28, step=8):
    """A dtype of NumPy's."""

    number: Int32


LONGS, SINGLES, DOUBLES = 7, 11, 12  # the numbers of the dtypes int64, float32 and float64 in NumPy


_I64, _I32 = ir.IntType(64), ir.IntType(32)


def _api(name: str, result: Any, *parameters: Any) -> Any:
    API.add(name)
    return c_function(name, result, *parameters)


COUNTED = (1 << 32) - 1  # the references to an object, in its first word: above them CPython may have marks
ARGUMENTS = (1 << 62) - 1  # the count of arguments of a vectorcall, without CPython's flag
_OBJECT, _WORD = types.int64, types.int64
Py_IncRef = _api("Py_IncRef", types.void, _OBJECT)
Py_DecRef = _api("Py_DecRef", types.void, _OBJECT)  # of 0 nothing, as Py_IncRef
PyBytes_FromStringAndSize = _api("PyBytes_FromStringAndSize", _OBJECT, _WORD, _WORD)
PyDict_DelItem = _api("PyDict_DelItem", types.int32, _OBJECT, _OBJECT)
PyDict_GetItemWithError = _api("PyDict_GetItemWithError", _OBJECT, _OBJECT, _OBJECT)
PyDict_New = _api("PyDict_New", _OBJECT)
PyDict_Next = _api("PyDict_Next", types.int32, _OBJECT, _WORD, _WORD, _WORD)
PyDict_SetItem = _api("PyDict_SetItem", types.int32, _OBJECT, _OBJECT, _OBJECT)
PyDict_Size = _api("PyDict_Size", _WORD, _OBJECT)
PyErr_BadArgument = _api("PyErr_BadArgument", types.int32)
PyErr_Clear = _api("PyErr_Clear", types.void)
PyErr_Fetch = _api("PyErr_Fetch", types.void, _WORD, _WORD, _WORD)
PyErr_Restore = _api("PyErr_Restore", types.void, _OBJECT, _OBJECT, _OBJECT)
PyErr_NoMemory = _api("PyErr_NoMemory", _OBJECT)
PyErr_Occurred = _api("PyErr_Occurred", _OBJECT)
PyErr_SetNone = _api("PyErr_SetNone", types.void, _OBJECT)
PyErr_WriteUnraisable = _api("PyErr_WriteUnraisable", types.void, _OBJECT)
PyEval_GetFrame = _api("PyEval_GetFrame", _OBJECT)  # borrowed
PyEval_RestoreThread = _api("PyEval_RestoreThread", types.void, _WORD)
PyEval_SaveThread = _api("PyEval_SaveThread", _WORD)
PyFloat_AsDouble = _api("PyFloat_AsDouble", types.float64, _OBJECT)
PyFloat_FromDouble = _api("PyFloat_FromDouble", _OBJECT, types.float64)
PyFrame_GetBack = _api("PyFrame_GetBack", _OBJECT, _OBJECT)
PyFrame_GetCode = _api("PyFrame_GetCode", _OBJECT, _OBJECT)
PyFrame_GetGlobals = _api("PyFrame_GetGlobals", _OBJECT, _OBJECT)
PyFrame_GetLasti = _api("PyFrame_GetLasti", types.int32, _OBJECT)
PyList_Append = _api("PyList_Append", types.int32, _OBJECT, _OBJECT)
PyList_GetItem = _api("PyList_GetItem", _OBJECT, _OBJECT, _WORD)
PyList_New = _api("PyList_New", _OBJECT, _WORD)
PyList_SetItem = _api("PyList_SetItem", types.int32, _OBJECT, _WORD, _OBJECT)
PyList_SetSlice = _api("PyList_SetSlice", types.int32, _OBJECT, _WORD, _WORD, _OBJECT)
PyList_Size = _api("PyList_Size", _WORD, _OBJECT)
PyLong_AsDouble = _api("PyLong_AsDouble", types.float64, _OBJECT)
PyLong_AsLongLong = _api("PyLong_AsLongLong", _WORD, _OBJECT)
PyLong_FromLongLong = _api("PyLong_FromLongLong", _OBJECT, _WORD)
PyMem_RawCalloc = _api("PyMem_RawCalloc", _WORD, _WORD, _WORD)
PyMem_RawFree = _api("PyMem_RawFree", types.void, _WORD)
PyMem_RawMalloc = _api("PyMem_RawMalloc", _WORD, _WORD)
PyMem_RawRealloc = _api("PyMem_RawRealloc", _WORD, _WORD, _WORD)
PyMethod_New = _api("PyMethod_New", _OBJECT, _OBJECT, _OBJECT)
PyObject_CallNoArgs = _api("PyObject_CallNoArgs", _OBJECT, _OBJECT)
PyObject_CallOneArg = _api("PyObject_CallOneArg", _OBJECT, _OBJECT, _OBJECT)
PyObject_ClearWeakRefs = _api("PyObject_ClearWeakRefs", types.void, _OBJECT)
PyObject_Free = _api("PyObject_Free", types.void, _OBJECT)
PyContextVar_Get = _api("PyContextVar_Get", types.int32, _OBJECT, _OBJECT, _WORD)
PyObject_Init = _api("PyObject_Init", _OBJECT, _OBJECT, _OBJECT)
PyObject_GC_Del = _api("PyObject_GC_Del", types.void, _OBJECT)
PyObject_GC_Track = _api("PyObject_GC_Track", types.void, _OBJECT)
PyObject_GC_UnTrack = _api("PyObject_GC_UnTrack", types.void, _OBJECT)
PyObject_GenericGetDict = _api("PyObject_GenericGetDict", _OBJECT, _OBJECT, _WORD)
PyObject_Vectorcall = _api("PyObject_Vectorcall", _OBJECT, _OBJECT, _WORD, _WORD, _OBJECT)
PyThread_get_thread_ident = _api("PyThread_get_thread_ident", _WORD)
PyTuple_GetItem = _api("PyTuple_GetItem", _OBJECT, _OBJECT, _WORD)
PyTuple_New = _api("PyTuple_New", _OBJECT, _WORD)
PyTuple_SetItem = _api("PyTuple_SetItem", types.int32, _OBJECT, _WORD, _OBJECT)
PyTuple_Size = _api("PyTuple_Size", _WORD, _OBJECT)
PyWeakref_NewRef = _api("PyWeakref_NewRef", _OBJECT, _OBJECT, _OBJECT)
PyType_GenericAlloc = _api("PyType_GenericAlloc", _OBJECT, _OBJECT, _WORD)
PyThread_acquire_lock = _api("PyThread_acquire_lock", types.int32, _WORD, _WORD)
PyThread_release_lock = _api("PyThread_release_lock", types.void, _WORD)
PyType_IsSubtype = _api("PyType_IsSubtype", types.int32, _OBJECT, _OBJECT)


@intrinsic
def tape_registry(typingctx: Any) -> Any:  # noqa: ARG001
    """The registry's address: a symbol that is there before any code that has it is loaded; memory.py."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        variable = builder.module.globals.get("tape_registry") or ir.GlobalVariable(
            builder.module, _I64, "tape_registry"
        )
        return builder.ptrtoint(variable, _I64)

    return SimpleNamespace(args=(), return_type=RegistryTable), codegen


call_visit = calling(types.int32, types.int64, types.int64)
"""Call a ``visitproc`` of the garbage collector: ``int visit(PyObject *, void *)``."""
call_word = calling(types.int64, types.int64)
"""Call native code of another module: ``int64(int64)``."""
call_get, call_set = calling(*[types.int64] * 4), calling(types.int32, *[types.int64] * 3)
"""Call a type's ``descrgetfunc``, or its ``descrsetfunc``."""


def on_stack(count: int) -> Any:
    """Return the intrinsic that gives a function so many words on its stack."""
    return instructions(types.int64, name=f"words{count}")(
        lambda builder: builder.ptrtoint(cgutils.alloca_once(builder, _I64, size=count), _I64)
    )


three_words, sixteen_words, thirty_words = on_stack(3), on_stack(16), on_stack(30)
"""The address of words on the stack of the function."""


NEW_COPY, COPY_INTO, NEW, NEW_VIEW, SET_BASE = 85, 50, 93, 94, 282
"""Where these stand in the table: PyArray_NewCopy, _CopyInto, _New, _NewFromDescr, _SetBaseObject."""
SET_HANDLER, GET_HANDLER, DEFAULT_HANDLER = 304, 305, 306
"""Where PyDataMem_SetHandler, PyDataMem_GetHandler and the address of the default handler stand."""

C_ORDER, KEPT_ORDER = 0, 2  # NumPy's numbers of the orders in which elements are copied

array_copy = calling(types.int64, types.int64, types.int32)
"""PyArray_NewCopy: a copy, in C order or in that of the array."""
array_copy_into = calling(types.int32, types.int64, types.int64)
"""PyArray_CopyInto, of target and source: negative, with an exception, where it failed."""
set_base = calling(types.int32, types.int64, types.int64)
"""PyArray_SetBaseObject: let a view own its base, taking over the reference."""


@instructions(types.int64, types.int64, types.int64, types.int32, types.int64, types.int32)
def new_array(builder: Any, address: Any, kind: Any, ndim: Any, shape: Any, number: Any) -> Any:
    """PyArray_New: a new C-contiguous array of a type, dimensions, shape and the number of a dtype."""
    made = ir.FunctionType(_I64, [_I64, _I32, _I64, _I32, _I64, _I64, _I32, _I32, _I64])
    arguments = [kind, ndim, shape, number, _I64(0), _I64(0), _I32(0), _I32(0), _I64(0)]
    return builder.call(builder.inttoptr(address, made.as_pointer()), arguments)


@instructions(*[types.int64] * 4, types.int32, *[types.int64] * 3, types.int32)
def new_view(builder: Any, address: Any, *arguments: Any) -> Any:
    """PyArray_NewFromDescr: a view, by type, dtype (its reference goes over), ndim, shape, strides, data and flags."""
    made = ir.FunctionType(_I64, [_I64, _I64, _I32, _I64, _I64, _I64, _I32, _I64])
    return builder.call(builder.inttoptr(address, made.as_pointer()), [*arguments, _I64(0)])


@functools.cache
def table() -> Any:
    """Return NumPy's table of functions."""
    pointer = ctypes.cast(ctypes.pythonapi.PyCapsule_GetPointer, ctypes.c_void_p).value
    assert pointer is not None
    find = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(pointer)
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]  # noqa: SLF001
    return ctypes.cast(find(capsule, None), ctypes.POINTER(ctypes.c_void_p))


@functools.cache
def agrees() -> bool:
    """Check on known arrays, whose memory is ``readable``, that fields and functions are where native code has them."""
    probe = np.arange(6, dtype=np.float32).reshape(2, 3)
    start = id(probe)
    shape, strides = word_at(start + ArrayObject.shape), word_at(start + ArrayObject.strides)
    fields = [
        ctypes.c_int.from_address(start + ArrayObject.ndim).value == probe.ndim,
        [word_at(shape + 8 * i) for i in range(2)] == [*probe.shape],
        [word_at(strides + 8 * i) for i in range(2)] == [*probe.strides],
        word_at(start + ArrayObject.dtype) == id(probe.dtype),
        word_at(start + ArrayObject.base) == id(probe.base),
        ctypes.c_int.from_address(start + ArrayObject.flags).value & A_SIMPLE == A_SIMPLE,
        ctypes.c_int.from_address(id(turned := probe.T) + ArrayObject.flags).value & A_SIMPLE != A_SIMPLE,
        ctypes.c_double.from_address(id(number := np.float64(2.5)) + HEADER).value == number,
        word_at(id(whole := np.int64(-3)) + HEADER) == whole,
    ]
    if not all(fields):
        return False
    new_copy = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_int)(table()[NEW_COPY])
    copy_into = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object)(table()[COPY_INTO])
    copied, into = new_copy(turned, 0), np.zeros((3, 2))
    return copy_into(into, copied) == 0 and bool(copied.flags.c_contiguous) and np.array_equal(into, turned)


# References: https://docs.python.org/3/c-api/type.html#heap-types

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


_kept: list[Any] = []  # tables that the types refer to as long as they live
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
