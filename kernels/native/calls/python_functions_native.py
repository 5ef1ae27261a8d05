"""Calls in the table whose values a Python function computes: no inner loop of NumPy's, or two results."""

from __future__ import annotations

from kernels.native.call_structs import MOST_OPERANDS, CallEntry, CallOperand
from kernels.native.memory import load_f8, load_i8, store_i8
from kernels.native.numpy_api import C_ORDER, array_copy
from kernels.native.object_structs import A_SIMPLE, DOUBLES, LONGS, ArrayObject
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
from kernels.native.tape_structs import RegistryTable


def values(operands, count, row):
    """Write the values of operands, numbers as floats: new references; 0 with an exception."""
    for i in range(count):
        at = CallOperand(operands + CallOperand.SIZE * i)
        value = at.object
        if value == 0:
            value = PyFloat_FromDouble(load_f8(at + CallOperand.double))
            if value == 0:
                drop_all(row, row + 8 * (i - 1))
                return 0
        else:
            Py_IncRef(value)
        store_i8(row + 8 * i, value)
    return 1


def is_as_recorded(entry: CallEntry, array: ArrayObject, dtype):
    """Whether an array has the shape of the results of an entry, and this dtype."""
    if array.ndim != entry.ndim or array.dtype.number != dtype:
        return 0
    for k in range(entry.ndim):
        if array.shape[k] != entry.shape[k]:
            return 0
    return 1


def owned(registry: RegistryTable, operands, array: ArrayObject):
    """The array itself if it is C-contiguous and owns its memory, else a copy; takes over the reference."""
    fresh = array.base == 0 and array.flags & A_SIMPLE == A_SIMPLE
    for i in range(MOST_OPERANDS):
        fresh = fresh and CallOperand(operands + CallOperand.SIZE * i).object != array
    if fresh:
        return array
    copied = array_copy(registry.copy_array, array, C_ORDER) if registry.copy_array != 0 else 0
    Py_DecRef(array)
    return copied


def as_value(registry: RegistryTable, entry: CallEntry, operands, value):
    """The value for a tensor from a function's result, whose reference is taken over; 0 where Python has to do it."""
    if entry.ndim == 0 and entry.dtype == DOUBLES:
        number = PyFloat_AsDouble(value)
        Py_DecRef(value)
        if number == -1.0 and PyErr_Occurred() != 0:
            PyErr_Clear()
            return 0
        return PyFloat_FromDouble(number)
    if kind_of(value) == registry.array_type and is_as_recorded(entry, value, entry.dtype):
        return owned(registry, operands, value)
    Py_DecRef(value)
    return 0


def both_values(registry: RegistryTable, entry, operands, results, out):
    """Write the values for two tensors from a function's tuple: new references; 0 where Python has to do it."""
    if kind_of(results) != registry.tuple_type or PyTuple_Size(results) != 2:
        return 0
    value, extra = PyTuple_GetItem(results, 0), PyTuple_GetItem(results, 1)
    if kind_of(extra) != registry.array_type or is_as_recorded(entry, extra, LONGS) == 0:
        return 0
    Py_IncRef(value)
    Py_IncRef(extra)
    store_i8(out, as_value(registry, entry, operands, value))
    store_i8(out + 8, owned(registry, operands, extra))
    if load_i8(out) != 0 and load_i8(out + 8) != 0:
        return 1
    drop_all(out, out + 8)
    return 0


def called(registry, entry: CallEntry, operands, out):
    """Write a function's result, and a second one or 0: new references; 0 with an exception or for Python.

    Python code runs meanwhile, so the caller checks afterwards whether the operands are unchanged.
    """
    row, count, function = three_words(), entry.count - 1, entry.loop
    if values(operands, count, row) == 0:
        return 0
    Py_IncRef(function)
    result = PyObject_Vectorcall(function, row, count, 0)
    Py_DecRef(function)
    drop_all(row, row + 8 * (count - 1))
    if result == 0:
        return 0
    if entry.extra != 0:
        both = both_values(registry, entry, operands, result, out)
        Py_DecRef(result)
        return both
    store_i8(out, as_value(registry, entry, operands, result))
    store_i8(out + 8, 0)
    return load_i8(out)


def are_alike(operands, before):
    """Whether operands that were read again have the same forms, slots and values."""
    for i in range(MOST_OPERANDS):
        a, b = CallOperand(operands + CallOperand.SIZE * i), CallOperand(before + CallOperand.SIZE * i)
        same = a.form == b.form and a.slot == b.slot
        if not same or a.object != b.object:
            return 0
    return 1


def paired(entry: CallEntry, result, second):
    """A tuple of both results, which takes over their references; 0 with an exception."""
    pair, both = entry.pair, PyTuple_New(2)
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
