"""What a program being recorded hears of most: an operation on floats and results of its own, all differentiable.

``note`` has the signature of METH_FASTCALL; ``self`` is an array of the words that kernels/noting.py lays out.
"""

from __future__ import annotations

from kernels.jit import cfunc, load_module, njit
from kernels.memory import HEADER, load_i8, store_i8, word
from kernels.noting_words import (
    N_ALIKE,
    N_APART,
    N_APARTS,
    N_FLAT,
    N_FLOAT,
    N_FORM,
    N_FORMS,
    N_HELD,
    N_KNOWN,
    N_NODES,
    N_NONE,
    N_SLOWLY,
    N_TENSOR,
    N_TUPLE,
)
from kernels.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyDict_GetItemWithError,
    PyDict_SetItem,
    PyErr_Occurred,
    PyList_Append,
    PyList_GetItem,
    PyList_Size,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyObject_Vectorcall,
    PyTuple_GetItem,
    PyTuple_Size,
    sixteen_words,
)
from kernels.words import O_FORM, O_SLOT

kind_of = load_module("objects_native").kind_of

MOST = 8
"""Operands."""


@njit(cache=True, error_model="numpy")
def node_of(about, x):
    """The integer of the node that a tensor is known by, if it is as it was noted, and differentiable; else 0."""
    key = PyLong_FromLongLong(x)
    if key == 0:
        return 0
    found = PyDict_GetItemWithError(word(about, N_KNOWN), key)
    Py_DecRef(key)
    if found == 0:
        return 0
    at, forms = PyLong_AsLongLong(found), word(about, N_FORMS)
    if at >= PyList_Size(forms) or PyList_GetItem(forms, at) != load_i8(x + O_FORM):
        return 0
    return found


@njit(cache=True, error_model="numpy")
def read(about, operands, out):
    """Put the nodes and floats that are operands behind ``out``; return how many, 0 where Python is to look."""
    count, tensors = PyTuple_Size(operands), 0
    if count > MOST:
        return 0
    for i in range(count):
        x = PyTuple_GetItem(operands, i)
        found = x
        if kind_of(x) != word(about, N_FLOAT):
            found = node_of(about, x) if kind_of(x) == word(about, N_TENSOR) else 0
            tensors += 1
        if found == 0:
            return 0
        store_i8(out + 8 * i, found)
    return count if tensors > 0 else 0


@njit(cache=True, error_model="numpy")
def node_for(about, op, result):
    """The node that stands for such a result; 0 where Python is to look."""
    for k in range(N_APARTS):
        if kind_of(op) == word(about, N_APART + k):
            return 0
    if kind_of(result) != word(about, N_TENSOR) or load_i8(result + O_SLOT) <= 0:
        return 0
    form = load_i8(result + O_FORM)
    if kind_of(form) != word(about, N_FORM) or PyList_Size(word(about, N_NODES)) != PyList_Size(word(about, N_FORMS)):
        return 0
    return PyDict_GetItemWithError(word(about, N_ALIKE), form)


@njit(cache=True, error_model="numpy")
def append(target, thing):
    """Append what stands at an address to a list; 1 where that failed."""
    return 1 if PyList_Append(target, thing) != 0 else 0


@njit(cache=True, error_model="numpy")
def add(about, arguments, count, own, node):
    """Append the step and its result; return how much failed."""
    op, result, params = word(arguments, 0), word(arguments, 2), word(arguments, 3)
    form, flat = load_i8(result + O_FORM), word(about, N_FLAT)
    index, key = PyLong_FromLongLong(PyList_Size(word(about, N_NODES))), PyLong_FromLongLong(result)
    number = PyLong_FromLongLong(count)
    failed = 1
    if index != 0 and key != 0 and number != 0:
        failed = 1 if PyDict_SetItem(word(about, N_KNOWN), key, index) != 0 else 0
        failed += append(word(about, N_NODES), node) + append(word(about, N_FORMS), form)
        failed += append(word(about, N_HELD), result)
        failed += append(flat, op) + append(flat, form) + append(flat, params) + append(flat, index)
        failed += append(flat, number)
        for i in range(count):
            failed += append(flat, load_i8(own + 8 * i))
    if index != 0:
        Py_DecRef(index)
    if key != 0:
        Py_DecRef(key)
    if number != 0:
        Py_DecRef(number)
    return failed


@cfunc("int64(int64, int64, int64)", cache=True, error_model="numpy")
def note(bound, arguments, count):
    """Note an operation: its record, operands, result and parameters; or let Python do it."""
    about = load_i8(bound + HEADER)
    if count == 4 and kind_of(word(arguments, 1)) == word(about, N_TUPLE):
        own = sixteen_words()
        operands = read(about, word(arguments, 1), own)
        node = 0
        if operands > 0:
            node = node_for(about, word(arguments, 0), word(arguments, 2))
        if node != 0:
            if add(about, arguments, operands, own, node) != 0:
                return 0
            none = word(about, N_NONE)
            Py_IncRef(none)
            return none
    if PyErr_Occurred() != 0:
        return 0
    return PyObject_Vectorcall(word(about, N_SLOWLY), arguments, count, 0)
