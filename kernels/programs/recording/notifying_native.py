"""Records the usual operation of a program natively: on floats and on results of the program, all differentiable.

``notify`` has the signature of METH_FASTCALL; ``self`` is an array of the words that notifying.py lays out.
"""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.objects_native import kind_of
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

CONTROL = True

MOST = 8
"""The most operands of an operation."""


def node_of(tables, x):
    """The node that a tensor is known by, if it has not changed since, and is differentiable; else -1."""
    key = PyLong_FromLongLong(x)
    if key == 0:
        return -1
    index = PyDict_GetItemWithError(word(tables, N_KNOWN), key)
    Py_DecRef(key)
    if index == 0:
        return -1
    at, forms = PyLong_AsLongLong(index), word(tables, N_FORMS)
    if at >= PyList_Size(forms) or PyList_GetItem(forms, at) != load_i8(x + O_FORM):
        return -1
    return at


def read(tables, operands, out):
    """Write the operands' nodes to ``out``, -1 for floats; return how many, 0 where Python has to record it."""
    count, tensors = PyTuple_Size(operands), 0
    if count > MOST:
        return 0
    for i in range(count):
        x = PyTuple_GetItem(operands, i)
        node = -1
        if kind_of(x) != word(tables, N_FLOAT):
            node = node_of(tables, x) if kind_of(x) == word(tables, N_TENSOR) else -1
            tensors += 1
            if node < 0:
                return 0
        store_i8(out + 8 * i, node)
    return count if tensors > 0 else 0


def alike_of(tables, op, result, params):
    """What is shared by steps like this one; 0 where Python has to record it."""
    for k in range(N_APARTS):
        if kind_of(op) == word(tables, N_APART + k):
            return 0
    if kind_of(result) != word(tables, N_TENSOR) or load_i8(result + O_SLOT) <= 0:
        return 0
    form = load_i8(result + O_FORM)
    if kind_of(form) != word(tables, N_FORM) or PyList_Size(word(tables, N_NODES)) != PyList_Size(
        word(tables, N_FORMS)
    ):
        return 0
    alike = PyDict_GetItemWithError(word(tables, N_ALIKE), form)
    if alike != 0 and PyTuple_GetItem(alike, ALIKE_PARAMS) != params:
        return 0
    return alike


def known(tables, result):
    """Map the result to the next node, and keep it alive; return how much failed."""
    index, key = PyLong_FromLongLong(PyList_Size(word(tables, N_NODES))), PyLong_FromLongLong(result)
    failed = 1
    if index != 0 and key != 0:
        failed = 1 if PyDict_SetItem(word(tables, N_KNOWN), key, index) != 0 else 0
        failed += 1 if PyList_Append(word(tables, N_HELD), result) != 0 else 0
    if index != 0:
        Py_DecRef(index)
    if key != 0:
        Py_DecRef(key)
    return failed


def numbered(tables, operands, count, nodes):
    """Give floats among operands their words; return how much failed."""
    numbers, failed = word(tables, N_NUMBERS), 0
    for i in range(count):
        if load_i8(nodes + 8 * i) < 0:
            failed += 1 if PyList_Append(numbers, PyTuple_GetItem(operands, i)) != 0 else 0
            store_i8(nodes + 8 * i, -PyList_Size(numbers))
    return failed


def add(tables, arguments, count, nodes, alike):
    """Append the step and its result; return how much failed."""
    head, result = word(tables, N_STEPS), word(arguments, 2)
    index = PyList_Size(word(tables, N_NODES))
    failed = numbered(tables, word(arguments, 1), count, nodes) + known(tables, result)
    failed += 1 if PyList_Append(word(tables, N_NODES), PyTuple_GetItem(alike, ALIKE_NODE)) != 0 else 0
    failed += 1 if PyList_Append(word(tables, N_FORMS), load_i8(result + O_FORM)) != 0 else 0
    if failed != 0:
        return failed
    at = word(head, H_ADDRESS) + 8 * word(head, H_USED)
    store_i8(at, PyLong_AsLongLong(PyTuple_GetItem(alike, ALIKE_KIND)))
    store_i8(at + 8, index)
    for i in range(count):
        store_i8(at + 8 * (HEAD + i), load_i8(nodes + 8 * i))
    store_i8(head + 8 * H_USED, word(head, H_USED) + HEAD + count)
    return 0


def notify(bound: Word, arguments: Word, count: Word) -> Word:
    """Record an operation, given its record, operands, result and parameters; or let Python do it."""
    tables = load_i8(bound + HEADER)
    if count == 4 and kind_of(word(arguments, 1)) == word(tables, N_TUPLE):
        nodes = sixteen_words()
        operands, head = read(tables, word(arguments, 1), nodes), word(tables, N_STEPS)
        alike = 0
        if operands > 0 and word(head, H_USED) + HEAD + operands <= word(head, H_ROOM):
            alike = alike_of(tables, word(arguments, 0), word(arguments, 2), word(arguments, 3))
        if alike != 0:
            if add(tables, arguments, operands, nodes, alike) != 0:
                return 0
            none = word(tables, N_NONE)
            Py_IncRef(none)
            return none
    if PyErr_Occurred() != 0:
        return 0
    return PyObject_Vectorcall(word(tables, N_SLOWLY), arguments, count, 0)
