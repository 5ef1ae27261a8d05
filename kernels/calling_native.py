"""Calls in the table whose value a function of Python's gives: what NumPy has no inner loop for."""

from __future__ import annotations

from kernels.jit import load_module, njit
from kernels.memory import load_f8, load_i4, load_i8, store_i8, word
from kernels.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    PyErr_Occurred,
    PyFloat_AsDouble,
    PyFloat_FromDouble,
    PyObject_Vectorcall,
    three_words,
)
from kernels.words import (
    A_FLAGS,
    A_NDIM,
    A_SIMPLE,
    DOUBLES,
    E_COUNT,
    E_DTYPE,
    E_LOOP,
    E_NDIM,
    G_ARRAY,
    MOST_OPERANDS,
    OPERAND,
    V_DOUBLE,
    V_FORM,
    V_OBJECT,
    V_SLOT,
)

_objects = load_module("objects_native")
drop_all, kind_of = _objects.drop_all, _objects.kind_of


@njit(cache=True, error_model="numpy")
def values(operands, count, row):
    """Write the values of operands, numbers as floats: new references; 0 with an exception."""
    for i in range(count):
        at = operands + OPERAND * i
        value = load_i8(at + V_OBJECT)
        if value == 0:
            value = PyFloat_FromDouble(load_f8(at + V_DOUBLE))
            if value == 0:
                drop_all(row, row + 8 * (i - 1))
                return 0
        else:
            Py_IncRef(value)
        store_i8(row + 8 * i, value)
    return 1


@njit(cache=True, error_model="numpy")
def as_value(registry, entry, found):
    """What a tensor carries of what a function has given, whose reference goes to this; 0 for Python to do it."""
    if kind_of(found) == word(registry, G_ARRAY):
        same = load_i4(found + A_NDIM) == word(entry, E_NDIM) and word(entry, E_NDIM) > 0
        if same and load_i4(found + A_FLAGS) & A_SIMPLE == A_SIMPLE:
            return found
    elif word(entry, E_NDIM) == 0 and word(entry, E_DTYPE) == DOUBLES:
        number = PyFloat_AsDouble(found)
        Py_DecRef(found)
        if number == -1.0 and PyErr_Occurred() != 0:
            PyErr_Clear()
            return 0
        return PyFloat_FromDouble(number)
    Py_DecRef(found)
    return 0


@njit(cache=True, error_model="numpy")
def called(registry, entry, operands):
    """The value that a function gives: a new reference; 0 with an exception, or for Python to do it.

    Python runs meanwhile: whoever goes on looks whether the operands are what they were.
    """
    row, count, function = three_words(), word(entry, E_COUNT) - 1, word(entry, E_LOOP)
    if values(operands, count, row) == 0:
        return 0
    Py_IncRef(function)
    found = PyObject_Vectorcall(function, row, count, 0)
    Py_DecRef(function)
    drop_all(row, row + 8 * (count - 1))
    return as_value(registry, entry, found) if found != 0 else 0


@njit(cache=True, error_model="numpy")
def are_alike(operands, before):
    """Whether operands that have been read again are what they were: forms, slots and values."""
    for i in range(MOST_OPERANDS):
        a, b = operands + OPERAND * i, before + OPERAND * i
        same = load_i8(a + V_FORM) == load_i8(b + V_FORM) and load_i8(a + V_SLOT) == load_i8(b + V_SLOT)
        if not same or load_i8(a + V_OBJECT) != load_i8(b + V_OBJECT):
            return 0
    return 1
