"""The tensor as CPython's memory management sees it: what it refers to, and its end."""

from __future__ import annotations

from kernels.jit import cfunc
from kernels.memory import load_i8, store_i8
from kernels.python_api import (
    Py_DecRef,
    PyObject_ClearWeakRefs,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    call_visit,
)
from kernels.words import O_FIRST, O_LAST, O_TYPE, O_WEAK


@cfunc("int32(int64, int64, int64)", cache=True)
def traverse(x, visit, argument):
    for at in range(O_FIRST, O_LAST + 8, 8):
        held = load_i8(x + at)
        if held != 0:
            found = call_visit(visit, held, argument)
            if found != 0:
                return found
    return call_visit(visit, load_i8(x + O_TYPE), argument)


@cfunc("int32(int64)", cache=True)
def clear(x):
    for at in range(O_FIRST, O_LAST + 8, 8):
        held = load_i8(x + at)
        if held != 0:
            store_i8(x + at, 0)  # before it is let go of: that may run anything
            Py_DecRef(held)
    return 0


@cfunc("void(int64)", cache=True)
def dealloc(x):
    kind = load_i8(x + O_TYPE)
    PyObject_GC_UnTrack(x)
    if load_i8(x + O_WEAK) != 0:
        PyObject_ClearWeakRefs(x)
    for at in range(O_FIRST, O_LAST + 8, 8):
        held = load_i8(x + at)
        if held != 0:
            store_i8(x + at, 0)
            Py_DecRef(held)
    PyObject_GC_Del(x)
    Py_DecRef(kind)
