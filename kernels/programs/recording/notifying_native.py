"""Records the usual operation of a program natively: on floats and on results of the program, all differentiable.

``notify`` has the signature of METH_FASTCALL; ``self`` is an array of the words that notifying.py lays out.
"""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.object_structs import TensorObject
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
from kernels.programs.recording.program_words import (
    ALIKE_KIND,
    ALIKE_NODE,
    ALIKE_PARAMS,
    HEAD,
    N_APARTS,
    RecorderTables,
)

CONTROL = True

MOST = 8
"""The most operands of an operation."""


def node_of(tables: RecorderTables, x: TensorObject):
    """The node that a tensor is known by, if it has not changed since, and is differentiable; else -1."""
    key = PyLong_FromLongLong(x)
    if key == 0:
        return -1
    index = PyDict_GetItemWithError(tables.known, key)
    Py_DecRef(key)
    if index == 0:
        return -1
    at, forms = PyLong_AsLongLong(index), tables.forms
    if at >= PyList_Size(forms) or PyList_GetItem(forms, at) != x.form:
        return -1
    return at


def read(tables: RecorderTables, operands, out):
    """Write the operands' nodes to ``out``, -1 for floats; return how many, 0 where Python has to record it."""
    count, tensors = PyTuple_Size(operands), 0
    if count > MOST:
        return 0
    for i in range(count):
        x = PyTuple_GetItem(operands, i)
        node = -1
        if kind_of(x) != tables.float_type:
            node = node_of(tables, x) if kind_of(x) == tables.tensor_type else -1
            tensors += 1
            if node < 0:
                return 0
        store_i8(out + 8 * i, node)
    return count if tensors > 0 else 0


def alike_of(tables: RecorderTables, op, result: TensorObject, params):
    """What is shared by steps like this one; 0 where Python has to record it."""
    for k in range(N_APARTS):
        if kind_of(op) == word(tables, RecorderTables.apart + k):
            return 0
    if kind_of(result) != tables.tensor_type or result.slot <= 0:
        return 0
    form = result.form
    if kind_of(form) != tables.form_type or PyList_Size(tables.nodes) != PyList_Size(tables.forms):
        return 0
    alike = PyDict_GetItemWithError(tables.alike, form)
    if alike != 0 and PyTuple_GetItem(alike, ALIKE_PARAMS) != params:
        return 0
    return alike


def known(tables: RecorderTables, result):
    """Map the result to the next node, and keep it alive; return how much failed."""
    index, key = PyLong_FromLongLong(PyList_Size(tables.nodes)), PyLong_FromLongLong(result)
    failed = 1
    if index != 0 and key != 0:
        failed = 1 if PyDict_SetItem(tables.known, key, index) != 0 else 0
        failed += 1 if PyList_Append(tables.held, result) != 0 else 0
    if index != 0:
        Py_DecRef(index)
    if key != 0:
        Py_DecRef(key)
    return failed


def numbered(tables: RecorderTables, operands, count, nodes):
    """Give floats among operands their words; return how much failed."""
    numbers, failed = tables.numbers, 0
    for i in range(count):
        if load_i8(nodes + 8 * i) < 0:
            failed += 1 if PyList_Append(numbers, PyTuple_GetItem(operands, i)) != 0 else 0
            store_i8(nodes + 8 * i, -PyList_Size(numbers))
    return failed


def add(tables: RecorderTables, arguments, count, nodes, alike):
    """Append the step and its result; return how much failed."""
    head, result = tables.steps, TensorObject(word(arguments, 2))
    index = PyList_Size(tables.nodes)
    failed = numbered(tables, word(arguments, 1), count, nodes) + known(tables, result)
    failed += 1 if PyList_Append(tables.nodes, PyTuple_GetItem(alike, ALIKE_NODE)) != 0 else 0
    failed += 1 if PyList_Append(tables.forms, result.form) != 0 else 0
    if failed != 0:
        return failed
    at = head.address + 8 * head.used
    store_i8(at, PyLong_AsLongLong(PyTuple_GetItem(alike, ALIKE_KIND)))
    store_i8(at + 8, index)
    for i in range(count):
        store_i8(at + 8 * (HEAD + i), load_i8(nodes + 8 * i))
    head.used = head.used + HEAD + count
    return 0


def notify(bound: Word, arguments: Word, count: Word) -> Word:
    """Record an operation, given its record, operands, result and parameters; or let Python do it."""
    tables = RecorderTables(load_i8(bound + HEADER))
    if count == 4 and kind_of(word(arguments, 1)) == tables.tuple_type:
        nodes = sixteen_words()
        operands, head = read(tables, word(arguments, 1), nodes), tables.steps
        alike = 0
        if operands > 0 and head.used + HEAD + operands <= head.room:
            alike = alike_of(tables, word(arguments, 0), word(arguments, 2), word(arguments, 3))
        if alike != 0:
            if add(tables, arguments, operands, nodes, alike) != 0:
                return 0
            none = tables.none
            Py_IncRef(none)
            return none
    if PyErr_Occurred() != 0:
        return 0
    return PyObject_Vectorcall(tables.slowly, arguments, count, 0)
