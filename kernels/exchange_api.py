"""The functions of CPython's C API by which results are made, and native code bound to an object."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from kernels.jit import types
from kernels.native_units import _FASTCALL, _Method
from kernels.python_api import _api

PyErr_Occurred = _api("PyErr_Occurred", types.int64)
PyErr_Clear = _api("PyErr_Clear", types.void)
PyFloat_FromDouble = _api("PyFloat_FromDouble", types.int64, types.float64)
PyLong_FromLongLong = _api("PyLong_FromLongLong", types.int64, types.int64)
PyLong_AsLongLong = _api("PyLong_AsLongLong", types.int64, types.int64)
PyLong_AsDouble = _api("PyLong_AsDouble", types.float64, types.int64)
PyTuple_New = _api("PyTuple_New", types.int64, types.int64)
PyTuple_SetItem = _api("PyTuple_SetItem", types.int32, types.int64, types.int64, types.int64)


@functools.cache
def _method_at(name: str, address: int) -> Any:
    return _Method(name.encode(), address, _FASTCALL, None)


@functools.cache
def _maker() -> Any:
    """Return PyCFunction_NewEx: a prototype of ctypes is a cycle, so there is one."""
    address = ctypes.cast(ctypes.pythonapi.PyCFunction_NewEx, ctypes.c_void_p).value or 0
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(address)


def bound(name: str, address: int, self: Any) -> Callable[..., Any]:
    """Return native code that takes Python's objects, as METH_FASTCALL has it, as a function bound to ``self``."""
    found: Callable[..., Any] = _maker()(ctypes.addressof(_method_at(name, address)), self, None)
    return found
