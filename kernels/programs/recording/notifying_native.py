"""Records the usual operation of a program natively: on floats and on results of the program, all differentiable.

``notify`` has the signature of METH_FASTCALL; ``self`` is an array of the words that notifying.py lays out.
"""

from __future__ import annotations

from kernels.compiler.jit import cfunc, load_module, njit
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.python_api import (
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
from kernels.native.words import O_FORM, O_SLOT
from kernels.programs.recording.notifying_words import (
    ALIKE_KIND,
    ALIKE_NODE,
    ALIKE_PARAMS,
    H_ADDRESS,
    H_ROOM,
    H_USED,
    HEAD,
    N_ALIKE,
    N_APART,
    N_APARTS,
    N_FLOAT,
    N_FORM,
    N_FORMS,
    N_HELD,
    N_KNOWN,
    N_NODES,
    N_NONE,
    N_NUMBERS,
    N_SLOWLY,
    N_STEPS,
    N_TENSOR,
    N_TUPLE,
)

kind_of = load_module("native.objects_native").kind_of

MOST = 8
"""Operands."""


@njit(cache=True, error_model="numpy")
def node_of(about, x):
    """The node that a tensor is known by, if it has not changed since, and is differentiable; else -1."""
    key = PyLong_FromLongLong(x)
    if key == 0:
        return -1
    found = PyDict_GetItemWithError(word(about, N_KNOWN), key)
    Py_DecRef(key)
    if found == 0:
        return -1
    at, forms = PyLong_AsLongLong(found), word(about, N_FORMS)
    if at >= PyList_Size(forms) or PyList_GetItem(forms, at) != load_i8(x + O_FORM):
        return -1
    return at


@njit(cache=True, error_model="numpy")
def read(about, operands, out):
    """Put the nodes that are operands behind ``out``, -1 for floats; return how many, 0 where Python is to look."""
    count, tensors = PyTuple_Size(operands), 0
    if count > MOST:
        return 0
    for i in range(count):
        x = PyTuple_GetItem(operands, i)
        found = -1
        if kind_of(x) != word(about, N_FLOAT):
            found = node_of(about, x) if kind_of(x) == word(about, N_TENSOR) else -1
            tensors += 1
            if found < 0:
                return 0
        store_i8(out + 8 * i, found)
    return count if tensors > 0 else 0


@njit(cache=True, error_model="numpy")
def alike_of(about, op, result, params):
    """What stands for such a step; 0 where Python is to look."""
    for k in range(N_APARTS):
        if kind_of(op) == word(about, N_APART + k):
            return 0
    if kind_of(result) != word(about, N_TENSOR) or load_i8(result + O_SLOT) <= 0:
        return 0
    form = load_i8(result + O_FORM)
    if kind_of(form) != word(about, N_FORM) or PyList_Size(word(about, N_NODES)) != PyList_Size(word(about, N_FORMS)):
        return 0
    found = PyDict_GetItemWithError(word(about, N_ALIKE), form)
    if found != 0 and PyTuple_GetItem(found, ALIKE_PARAMS) != params:
        return 0
    return found


@njit(cache=True, error_model="numpy")
def known(about, result):
    """Let the result be known by the next node, and be held; return 1 where that failed."""
    index, key = PyLong_FromLongLong(PyList_Size(word(about, N_NODES))), PyLong_FromLongLong(result)
    failed = 1
    if index != 0 and key != 0:
        failed = 1 if PyDict_SetItem(word(about, N_KNOWN), key, index) != 0 else 0
        failed += 1 if PyList_Append(word(about, N_HELD), result) != 0 else 0
    if index != 0:
        Py_DecRef(index)
    if key != 0:
        Py_DecRef(key)
    return failed


@njit(cache=True, error_model="numpy")
def numbered(about, operands, count, own):
    """Give floats among operands their words; return how much failed."""
    numbers, failed = word(about, N_NUMBERS), 0
    for i in range(count):
        if load_i8(own + 8 * i) < 0:
            failed += 1 if PyList_Append(numbers, PyTuple_GetItem(operands, i)) != 0 else 0
            store_i8(own + 8 * i, -PyList_Size(numbers))
    return failed


@njit(cache=True, error_model="numpy")
def add(about, arguments, count, own, alike):
    """Append the step and its result; return how much failed."""
    head, result = word(about, N_STEPS), word(arguments, 2)
    index = PyList_Size(word(about, N_NODES))
    failed = numbered(about, word(arguments, 1), count, own) + known(about, result)
    failed += 1 if PyList_Append(word(about, N_NODES), PyTuple_GetItem(alike, ALIKE_NODE)) != 0 else 0
    failed += 1 if PyList_Append(word(about, N_FORMS), load_i8(result + O_FORM)) != 0 else 0
    if failed != 0:
        return failed
    at = word(head, H_ADDRESS) + 8 * word(head, H_USED)
    store_i8(at, PyLong_AsLongLong(PyTuple_GetItem(alike, ALIKE_KIND)))
    store_i8(at + 8, index)
    for i in range(count):
        store_i8(at + 8 * (HEAD + i), load_i8(own + 8 * i))
    store_i8(head + 8 * H_USED, word(head, H_USED) + HEAD + count)
    return 0


@cfunc("int64(int64, int64, int64)", cache=True, error_model="numpy")
def notify(bound, arguments, count):
    """Record an operation, given its record, operands, result and parameters; or let Python do it."""
    about = load_i8(bound + HEADER)
    if count == 4 and kind_of(word(arguments, 1)) == word(about, N_TUPLE):
        own = sixteen_words()
        operands, head = read(about, word(arguments, 1), own), word(about, N_STEPS)
        alike = 0
        if operands > 0 and word(head, H_USED) + HEAD + operands <= word(head, H_ROOM):
            alike = alike_of(about, word(arguments, 0), word(arguments, 2), word(arguments, 3))
        if alike != 0:
            if add(about, arguments, operands, own, alike) != 0:
                return 0
            none = word(about, N_NONE)
            Py_IncRef(none)
            return none
    if PyErr_Occurred() != 0:
        return 0
    return PyObject_Vectorcall(word(about, N_SLOWLY), arguments, count, 0)
