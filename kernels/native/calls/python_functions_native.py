"""Calls in the table whose values a Python function computes: no inner loop of NumPy's, or two results."""

from __future__ import annotations

from kernels.native.memory import load_f8, load_i4, load_i8, store_i8, word
from kernels.native.numpy_api import C_ORDER, array_copy
from kernels.native.objects_native import drop_all, kind_of
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    PyErr_Occurred,
    PyFloat_AsDouble,
    PyFloat_FromDouble,
    PyObject_Vectorcall,
    PyTuple_GetItem,
    PyTuple_New,
    PyTuple_SetItem,
    PyTuple_Size,
    three_words,
)
from kernels.native.words import (
    A_BASE,
    A_DTYPE,
    A_FLAGS,
    A_NDIM,
    A_SHAPE,
    A_SIMPLE,
    D_NUMBER,
    DOUBLES,
    E_COUNT,
    E_DTYPE,
    E_EXTRA,
    E_LOOP,
    E_NDIM,
    E_PAIR,
    E_SHAPE,
    G_ARRAY,
    G_COPY,
    G_TUPLE,
    LONGS,
    MOST_OPERANDS,
    OPERAND,
    V_DOUBLE,
    V_FORM,
    V_OBJECT,
    V_SLOT,
)


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


def is_as_recorded(entry, array, dtype):
    """Whether an array has the shape of the results of an entry, and this dtype."""
    if load_i4(array + A_NDIM) != word(entry, E_NDIM) or load_i4(load_i8(array + A_DTYPE) + D_NUMBER) != dtype:
        return 0
    for k in range(word(entry, E_NDIM)):
        if word(load_i8(array + A_SHAPE), k) != word(word(entry, E_SHAPE), k):
            return 0
    return 1


def owned(registry, operands, array):
    """The array itself if it is C-contiguous and owns its memory, else a copy; takes over the reference."""
    fresh = load_i8(array + A_BASE) == 0 and load_i4(array + A_FLAGS) & A_SIMPLE == A_SIMPLE
    for i in range(MOST_OPERANDS):
        fresh = fresh and load_i8(operands + OPERAND * i + V_OBJECT) != array
    if fresh:
        return array
    copied = array_copy(word(registry, G_COPY), array, C_ORDER) if word(registry, G_COPY) != 0 else 0
    Py_DecRef(array)
    return copied


def as_value(registry, entry, operands, value):
    """The value for a tensor from a function's result, whose reference is taken over; 0 where Python has to do it."""
    if word(entry, E_NDIM) == 0 and word(entry, E_DTYPE) == DOUBLES:
        number = PyFloat_AsDouble(value)
        Py_DecRef(value)
        if number == -1.0 and PyErr_Occurred() != 0:
            PyErr_Clear()
            return 0
        return PyFloat_FromDouble(number)
    if kind_of(value) == word(registry, G_ARRAY) and is_as_recorded(entry, value, word(entry, E_DTYPE)):
        return owned(registry, operands, value)
    Py_DecRef(value)
    return 0


def both_values(registry, entry, operands, results, out):
    """Write the values for two tensors from a function's tuple: new references; 0 where Python has to do it."""
    if kind_of(results) != word(registry, G_TUPLE) or PyTuple_Size(results) != 2:
        return 0
    value, extra = PyTuple_GetItem(results, 0), PyTuple_GetItem(results, 1)
    if kind_of(extra) != word(registry, G_ARRAY) or is_as_recorded(entry, extra, LONGS) == 0:
        return 0
    Py_IncRef(value)
    Py_IncRef(extra)
    store_i8(out, as_value(registry, entry, operands, value))
    store_i8(out + 8, owned(registry, operands, extra))
    if load_i8(out) != 0 and load_i8(out + 8) != 0:
        return 1
    drop_all(out, out + 8)
    return 0


def called(registry, entry, operands, out):
    """Write a function's result, and a second one or 0: new references; 0 with an exception or for Python.

    Python code runs meanwhile, so the caller checks afterwards whether the operands are unchanged.
    """
    row, count, function = three_words(), word(entry, E_COUNT) - 1, word(entry, E_LOOP)
    if values(operands, count, row) == 0:
        return 0
    Py_IncRef(function)
    result = PyObject_Vectorcall(function, row, count, 0)
    Py_DecRef(function)
    drop_all(row, row + 8 * (count - 1))
    if result == 0:
        return 0
    if word(entry, E_EXTRA) != 0:
        both = both_values(registry, entry, operands, result, out)
        Py_DecRef(result)
        return both
    store_i8(out, as_value(registry, entry, operands, result))
    store_i8(out + 8, 0)
    return load_i8(out)


def are_alike(operands, before):
    """Whether operands that were read again have the same forms, slots and values."""
    for i in range(MOST_OPERANDS):
        a, b = operands + OPERAND * i, before + OPERAND * i
        same = load_i8(a + V_FORM) == load_i8(b + V_FORM) and load_i8(a + V_SLOT) == load_i8(b + V_SLOT)
        if not same or load_i8(a + V_OBJECT) != load_i8(b + V_OBJECT):
            return 0
    return 1


def paired(entry, result, second):
    """A tuple of both results, which takes over their references; 0 with an exception."""
    pair, both = word(entry, E_PAIR), PyTuple_New(2)
    if both == 0:
        Py_DecRef(result)
        Py_DecRef(second)
        return 0
    PyTuple_SetItem(both, 0, result)
    PyTuple_SetItem(both, 1, second)
    args = three_words()
    store_i8(args, both)
    Py_IncRef(pair)
    tensor = PyObject_Vectorcall(pair, args, 1, 0)
    Py_DecRef(pair)
    Py_DecRef(both)
    return tensor
