"""CPython's C API as native code calls it: by name, never by copying a macro's offsets."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from kernels.jit import intrinsic, types
from kernels.memory import external
from kernels.native_units import API

_I64 = ir.IntType(64)
_KINDS = {types.int64: _I64, types.int32: ir.IntType(32), types.float64: ir.DoubleType(), types.void: ir.VoidType()}


def _api(name: str, result: Any, *given: Any) -> Any:
    """Return the intrinsic that calls a function of the C API; pointers are int64."""
    API.add(name)

    def call(typingctx: Any, *kinds: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            kind = ir.FunctionType(_KINDS[result], [_KINDS[one] for one in given])
            found = builder.call(external(builder, kind, name), args)
            return context.get_dummy_value() if result == types.void else found

        return result(*given), codegen

    call.__name__ = call.__qualname__ = name
    return intrinsic(call)


Py_IncRef = _api("Py_IncRef", types.void, types.int64)
Py_DecRef = _api("Py_DecRef", types.void, types.int64)
PyObject_GC_UnTrack = _api("PyObject_GC_UnTrack", types.void, types.int64)
PyObject_GC_Del = _api("PyObject_GC_Del", types.void, types.int64)
PyObject_ClearWeakRefs = _api("PyObject_ClearWeakRefs", types.void, types.int64)


@intrinsic
def call_visit(typingctx: Any, address: Any, visited: Any, argument: Any) -> Any:  # noqa: ARG001
    """Call a ``visitproc`` of the garbage collector: ``int visit(PyObject *, void *)``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(ir.IntType(32), [_I64, _I64])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int32(types.int64, types.int64, types.int64), codegen
