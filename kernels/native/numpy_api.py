"""NumPy's C API as native code calls it: functions of its table, by their addresses.

The places in the table are fixed by NumPy's binary interface.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from llvmlite import ir

from kernels.compiler.jit import intrinsic, types
from kernels.native.memory import HEADER
from kernels.native.object_structs import A_SIMPLE, ArrayObject

NEW_COPY, COPY_INTO, NEW, NEW_VIEW, SET_BASE = 85, 50, 93, 94, 282
"""Where these stand in the table: PyArray_NewCopy, _CopyInto, _New, _NewFromDescr, _SetBaseObject."""
SET_HANDLER, GET_HANDLER, DEFAULT_HANDLER = 304, 305, 306
"""Where PyDataMem_SetHandler, PyDataMem_GetHandler and the address of the default handler stand."""

C_ORDER, KEPT_ORDER = 0, 2
"""NumPy's numbers of the orders in which elements are copied."""

_I64, _I32 = ir.IntType(64), ir.IntType(32)


@intrinsic
def array_copy(typingctx: Any, address: Any, array: Any, order: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
    """PyArray_NewCopy: a copy, in C order or in that of the array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        function = builder.inttoptr(args[0], ir.FunctionType(_I64, [_I64, _I32]).as_pointer())
        return builder.call(function, [args[1], builder.trunc(args[2], _I32)])

    return types.int64(*[types.int64] * 3), codegen


@intrinsic
def array_copy_into(typingctx: Any, address: Any, target: Any, source: Any) -> Any:  # noqa: ARG001
    """PyArray_CopyInto: negative, with an exception, where it failed."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        function = builder.inttoptr(args[0], ir.FunctionType(_I32, [_I64, _I64]).as_pointer())
        return builder.call(function, args[1:])

    return types.int32(*[types.int64] * 3), codegen


@intrinsic
def new_array(typingctx: Any, address: Any, kind: Any, ndim: Any, shape: Any, number: Any) -> Any:  # noqa: ARG001
    """PyArray_New: a new C-contiguous array of a type, dimensions, shape and the number of a dtype."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        made = ir.FunctionType(_I64, [_I64, _I32, _I64, _I32, _I64, _I64, _I32, _I32, _I64])
        arguments = [args[1], builder.trunc(args[2], _I32), args[3], builder.trunc(args[4], _I32)]
        function = builder.inttoptr(args[0], made.as_pointer())
        return builder.call(function, [*arguments, _I64(0), _I64(0), _I32(0), _I32(0), _I64(0)])

    return types.int64(*[types.int64] * 5), codegen


@intrinsic
def new_view(
    typingctx: Any,  # noqa: ARG001
    address: Any,  # noqa: ARG001
    kind: Any,  # noqa: ARG001
    dtype: Any,  # noqa: ARG001
    ndim: Any,  # noqa: ARG001
    shape: Any,  # noqa: ARG001
    strides: Any,  # noqa: ARG001
    data: Any,  # noqa: ARG001
    flags: Any,  # noqa: ARG001
) -> Any:
    """PyArray_NewFromDescr: a view of given memory; takes over the dtype's reference."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        made = ir.FunctionType(_I64, [_I64, _I64, _I32, _I64, _I64, _I64, _I32, _I64])
        arguments = [*args[1:3], builder.trunc(args[3], _I32), *args[4:7], builder.trunc(args[7], _I32), _I64(0)]
        return builder.call(builder.inttoptr(args[0], made.as_pointer()), arguments)

    return types.int64(*[types.int64] * 8), codegen


@intrinsic
def set_base(typingctx: Any, address: Any, array: Any, base: Any) -> Any:  # noqa: ARG001
    """PyArray_SetBaseObject: let a view own its base, taking over the reference."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        function = builder.inttoptr(args[0], ir.FunctionType(_I32, [_I64, _I64]).as_pointer())
        return builder.call(function, args[1:])

    return types.int32(*[types.int64] * 3), codegen


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
    """Check, on known arrays, that their fields are where native code reads them, and that the functions are right.

    Only where memory is ``readable`` (kernels/native/memory.py).
    """
    probe = np.arange(6, dtype=np.float32).reshape(2, 3)
    start = id(probe)
    shape, strides = (ctypes.c_int64.from_address(start + at).value for at in (ArrayObject.shape, ArrayObject.strides))
    fields = [
        ctypes.c_int.from_address(start + ArrayObject.ndim).value == probe.ndim,
        [ctypes.c_int64.from_address(shape + 8 * i).value for i in range(2)] == [*probe.shape],
        [ctypes.c_int64.from_address(strides + 8 * i).value for i in range(2)] == [*probe.strides],
        ctypes.c_int64.from_address(start + ArrayObject.dtype).value == id(probe.dtype),
        ctypes.c_int64.from_address(start + ArrayObject.base).value == id(probe.base),
        ctypes.c_int.from_address(start + ArrayObject.flags).value & A_SIMPLE == A_SIMPLE,
        ctypes.c_int.from_address(id(turned := probe.T) + ArrayObject.flags).value & A_SIMPLE != A_SIMPLE,
        ctypes.c_double.from_address(id(number := np.float64(2.5)) + HEADER).value == number,
        ctypes.c_int64.from_address(id(whole := np.int64(-3)) + HEADER).value == whole,
    ]
    if not all(fields):
        return False
    new_copy = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_int)(table()[NEW_COPY])
    copy_into = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object)(table()[COPY_INTO])
    copied, into = new_copy(turned, 0), np.zeros((3, 2))
    return copy_into(into, copied) == 0 and bool(copied.flags.c_contiguous) and np.array_equal(into, turned)
