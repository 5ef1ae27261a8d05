"""Functions of tensors as objects of native code, which repeats the calls that it has seen."""

from __future__ import annotations

import copyreg
import ctypes
import functools
from collections.abc import Callable
from typing import Any

from kernels.compiler import jit
from kernels.native import words
from kernels.native.heap_types import (
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
    instance,
    made,
    members,
)
from kernels.native.registry import put


@functools.cache
def _type() -> Any:
    native = jit.load_module("native.calls.functions_native")
    rows = {"__vectorcalloffset__": (SIZE, words.F_CALL, READONLY), "__dictoffset__": (SIZE, words.F_DICT, READONLY)}
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
    kind: Any = made("kernels.native.calls.function_type.Operation", object, slots, words.F_SIZE, flags)
    copyreg.pickle(kind, lambda one: one.__qualname__)  # as Python's functions: by module and name; a copy is itself
    kind.__repr__ = lambda one: f"<function {one.__qualname__} at {id(one):#x}>"
    return kind


@functools.cache
def _entry() -> int:
    return int(jit.load_module("native.calls.functions_native").vectorcall.address)


def operation(number: int, slow: Callable[..., Any], always: Callable[..., Any], like: Callable[..., Any]) -> Any:
    """Return the function of an operation of this number, with the name and documentation of ``like``.

    ``slow`` does what native code has not seen, ``always`` what it never does. In a class it is a method.
    """
    found = instance(_type())
    for one in (slow, always):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
    for at, value in (
        (words.F_CALL, _entry()),
        (words.F_NUMBER, number),
        (words.F_SLOW, id(slow)),
        (words.F_ALWAYS, id(always)),
    ):
        put(id(found), at // 8, value)
    for name in functools.WRAPPER_ASSIGNMENTS:
        setattr(found, name, getattr(like, name))
    found.__wrapped__ = like
    return found
