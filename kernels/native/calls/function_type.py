"""The native type of functions on tensors: calls that were made before are repeated without Python."""

from __future__ import annotations

import copyreg
import ctypes
import functools
from collections.abc import Callable
from typing import Any

from kernels.language import jit
from kernels.native.allocation import put
from kernels.native.c_api import (
    CALL,
    CLEAR,
    COLLECTED,
    DEALLOC,
    DESCR_GET,
    MEMBERS,
    METHOD,
    NOT_CALLED,
    READONLY,
    SIZE,
    TRAVERSE,
    VECTORCALL,
    FunctionObject,
    instance,
    made,
    members,
)


@functools.cache
def _type() -> Any:
    native = jit.load_module("native.calls.functions_native")
    rows = {
        "__vectorcalloffset__": (SIZE, FunctionObject.call, READONLY),
        "__dictoffset__": (SIZE, FunctionObject.attributes, READONLY),
    }
    call = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value
    slots = {
        MEMBERS: members(rows),
        CALL: call,
        DESCR_GET: native.descr_get,
        TRAVERSE: native.traverse,
        CLEAR: native.clear,
        DEALLOC: native.dealloc,
    }
    flags = COLLECTED | NOT_CALLED | VECTORCALL | METHOD
    kind: Any = made(f"{__name__}.Operation", object, slots, FunctionObject.SIZE, flags)
    copyreg.pickle(
        kind, lambda function: function.__qualname__
    )  # as Python's functions: by module and name; a copy is itself
    kind.__repr__ = lambda function: f"<function {function.__qualname__} at {id(function):#x}>"
    return kind


@functools.cache
def _entry() -> int:
    return int(jit.load_module("native.calls.functions_native").vectorcall.address)


def operation(number: int, slow: Callable[..., Any], always: Callable[..., Any], like: Callable[..., Any]) -> Any:
    """Return the function of an operation of this number, with the name and documentation of ``like``.

    ``slow`` makes calls that are not in the table yet, ``always`` those that never are. In a class it is a method.
    """
    function = instance(_type())
    for function_kept in (slow, always):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(function_kept))
    for at, value in (
        (FunctionObject.call, _entry()),
        (FunctionObject.number, number),
        (FunctionObject.slow, id(slow)),
        (FunctionObject.always, id(always)),
    ):
        put(id(function), at // 8, value)
    for name in functools.WRAPPER_ASSIGNMENTS:
        setattr(function, name, getattr(like, name))
    function.__wrapped__ = like
    return function
