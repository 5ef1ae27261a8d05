"""Functions of CPython's C API that programs call alone, and native code bound to an object."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from kernels import jit
from kernels.jit import types
from kernels.native_units import _FASTCALL, _Method
from kernels.python_api import _api

PyLong_AsDouble = _api("PyLong_AsDouble", types.float64, types.int64)
PyList_GetItem = _api("PyList_GetItem", types.int64, types.int64, types.int64)
PyDict_GetItemWithError = _api("PyDict_GetItemWithError", types.int64, types.int64, types.int64)
PyDict_SetItem = _api("PyDict_SetItem", types.int32, types.int64, types.int64, types.int64)


@functools.cache
def _method_at(module: str, name: str, flags: int) -> Any:
    native = getattr(jit.load_module(module), name)
    return _Method(name.encode(), native.address, _FASTCALL | flags, None)


@functools.cache
def _maker() -> Any:
    """Return PyCFunction_NewEx: a prototype of ctypes is a cycle, so there is one."""
    address = ctypes.cast(ctypes.pythonapi.PyCFunction_NewEx, ctypes.c_void_p).value or 0
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(address)


def bound(module: str, name: str, self: Any, flags: int = 0) -> Callable[..., Any]:
    """Return native code that takes Python's objects, as METH_FASTCALL has it, as a function bound to ``self``."""
    found: Callable[..., Any] = _maker()(ctypes.addressof(_method_at(module, name, flags)), self, None)
    return found
