"""CPython's C API as native code calls it: by name, never by copying a macro's offsets."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from kernels.compiler.jit import intrinsic, types
from kernels.compiler.native_units import API
from kernels.native.memory import external
from kernels.native.tape_structs import RegistryTable

_I64 = ir.IntType(64)
_KINDS = {types.int64: _I64, types.int32: ir.IntType(32), types.float64: ir.DoubleType(), types.void: ir.VoidType()}


def _api(name: str, result: Any, *parameters: Any) -> Any:
    """Return the intrinsic that calls a function of the C API; pointers are int64."""
    API.add(name)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
        kind = ir.FunctionType(_KINDS[result], [_KINDS[kind_name] for kind_name in parameters])
        result_value = builder.call(external(builder, kind, name), args)
        return context.get_dummy_value() if result == types.void else result_value

    made = result(*parameters), codegen
    callers: list[Callable[..., Any]] = [  # Numba asks for as many parameters as there are
        lambda typingctx: made,  # noqa: ARG005
        lambda typingctx, a: made,  # noqa: ARG005
        lambda typingctx, a, b: made,  # noqa: ARG005
        lambda typingctx, a, b, c: made,  # noqa: ARG005
        lambda typingctx, a, b, c, d: made,  # noqa: ARG005
    ]
    call = callers[len(parameters)]
    call.__name__ = call.__qualname__ = name
    return intrinsic(call)


COUNTED = (1 << 32) - 1
"""The references to an object, in its first word: above them CPython may have marks."""
ARGUMENTS = (1 << 62) - 1
"""The count of arguments of a vectorcall, without CPython's flag."""
_OBJECT, _WORD = types.int64, types.int64
Py_IncRef = _api("Py_IncRef", types.void, _OBJECT)
Py_DecRef = _api("Py_DecRef", types.void, _OBJECT)
PyBytes_FromStringAndSize = _api("PyBytes_FromStringAndSize", _OBJECT, _WORD, _WORD)
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
PyEval_RestoreThread = _api("PyEval_RestoreThread", types.void, _WORD)
PyEval_SaveThread = _api("PyEval_SaveThread", _WORD)
PyFloat_AsDouble = _api("PyFloat_AsDouble", types.float64, _OBJECT)
PyFloat_FromDouble = _api("PyFloat_FromDouble", _OBJECT, types.float64)
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
PyThread_get_thread_ident = _api("PyThread_get_thread_ident", _WORD)


@intrinsic
def tape_registry(typingctx: Any) -> Any:  # noqa: ARG001
    """The registry's address: a symbol that is there before any code that has it is loaded; registry.py."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        variable = builder.module.globals.get("tape_registry") or ir.GlobalVariable(
            builder.module, _I64, "tape_registry"
        )
        return builder.ptrtoint(variable, _I64)

    return SimpleNamespace(args=(), return_type=RegistryTable), codegen


@intrinsic
def call_visit(typingctx: Any, address: Any, visited: Any, argument: Any) -> Any:  # noqa: ARG001
    """Call a ``visitproc`` of the garbage collector: ``int visit(PyObject *, void *)``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(ir.IntType(32), [_I64, _I64])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int32(types.int64, types.int64, types.int64), codegen


@intrinsic
def call_word(typingctx: Any, address: Any, h: Any) -> Any:  # noqa: ARG001
    """Call native code of another module: ``int64(int64)``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.call(builder.inttoptr(args[0], ir.FunctionType(_I64, [_I64]).as_pointer()), args[1:])

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def call_get(typingctx: Any, address: Any, getter_self: Any, x: Any, kind: Any) -> Any:  # noqa: ARG001
    """Call a type's ``descrgetfunc``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.call(builder.inttoptr(args[0], ir.FunctionType(_I64, [_I64] * 3).as_pointer()), args[1:])

    return types.int64(*[types.int64] * 4), codegen


@intrinsic
def call_set(typingctx: Any, address: Any, setter_self: Any, x: Any, value: Any) -> Any:  # noqa: ARG001
    """Call a type's ``descrsetfunc``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(ir.IntType(32), [_I64] * 3)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int32(*[types.int64] * 4), codegen


@intrinsic
def bits_of(typingctx: Any, number: Any) -> Any:  # noqa: ARG001
    """The bits of a double."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(args[0], _I64)

    return types.int64(types.float64), codegen


def _on_stack(count: int) -> Any:
    def words(typingctx: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            return builder.ptrtoint(cgutils.alloca_once(builder, _I64, size=count), _I64)

        return types.int64(), codegen

    words.__name__ = words.__qualname__ = f"words{count}"
    return intrinsic(words)


three_words, sixteen_words, thirty_words = _on_stack(3), _on_stack(16), _on_stack(30)
"""The address of words on the stack of the function."""
