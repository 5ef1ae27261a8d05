"""Functions and methods of tensors as native callables: a hit in the table of calls, else Python."""

from __future__ import annotations

from kernels.jit import cfunc, load_module
from kernels.memory import load_i8, word
from kernels.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyMethod_New,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    PyObject_Vectorcall,
    call_visit,
    tape_registry,
)
from kernels.words import F_ALWAYS, F_DICT, F_NUMBER, F_SLOW, G_INT, NOT_NATIVE, O_TYPE, REDUCES

hit = load_module("calls_native").hit
_objects = load_module("objects_native")
drop_all, kind_of, visit_all = _objects.drop_all, _objects.kind_of, _objects.visit_all
ARGUMENTS = (1 << 62) - 1


@cfunc("int64(int64, int64, int64, int64)", cache=True)
def vectorcall(self, given, count, names):
    number, arguments = load_i8(self + F_NUMBER), count & ARGUMENTS
    second = word(given, 1) if arguments == 2 else 0
    fits = names == 0 and arguments >= 1 and arguments <= 2
    if fits and number >= REDUCES and second != 0:
        fits = kind_of(second) == word(tape_registry(), G_INT)
    if fits:
        found = hit(number & (REDUCES - 1), load_i8(given), second, 1 if number >= REDUCES else 0)
        if found == NOT_NATIVE:
            return PyObject_Vectorcall(load_i8(self + F_ALWAYS), given, count, names)
        if found != 0 or PyErr_Occurred() != 0:
            return found
    return PyObject_Vectorcall(load_i8(self + F_SLOW), given, count, names)


@cfunc("int64(int64, int64, int64)", cache=True)
def descr_get(self, x, kind):
    if x == 0:
        Py_IncRef(self)
        return self
    return PyMethod_New(self, x)


@cfunc("int32(int64, int64, int64)", cache=True)
def traverse(self, visit, argument):
    found = visit_all(self + F_SLOW, self + F_DICT, visit, argument)
    return found if found != 0 else call_visit(visit, load_i8(self + O_TYPE), argument)


@cfunc("int32(int64)", cache=True)
def clear(self):
    drop_all(self + F_DICT, self + F_DICT)
    return 0


@cfunc("void(int64)", cache=True)
def dealloc(self):
    kind = load_i8(self + O_TYPE)
    PyObject_GC_UnTrack(self)
    drop_all(self + F_SLOW, self + F_DICT)
    PyObject_GC_Del(self)
    Py_DecRef(kind)
