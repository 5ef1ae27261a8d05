"""Arguments into a program's memory and results out of it: what Python calls, with its own objects.

The last three have the signature of METH_FASTCALL; ``self`` is an array of the words that exchange.py lays
out. An argument of an unexpected type is left to Python, by returning 0.
"""

from __future__ import annotations

import math

import numpy as np

from kernels.compiler.native_types import Word
from kernels.native.memory import (
    HEADER,
    load_f4,
    load_f8,
    load_i8,
    pointer_f4,
    pointer_f8,
    store_f4,
    store_f8,
    store_i8,
    word,
)
from kernels.native.numpy_api import C_ORDER, array_copy, array_copy_into, new_array
from kernels.native.object_structs import A_SIMPLE, ArrayObject
from kernels.native.python_api import (
    Py_DecRef,
    PyErr_Clear,
    PyErr_Occurred,
    PyEval_RestoreThread,
    PyEval_SaveThread,
    PyFloat_FromDouble,
    PyLong_AsDouble,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyTuple_New,
    PyTuple_SetItem,
)
from kernels.programs.running.exchange_structs import (
    XK_ARRAY,
    XK_DOUBLE,
    XK_INTEGER,
    XK_SINGLE,
    ExchangedValue,
    ExchangeHead,
)
from kernels.programs.running.replay_native import run

ZERO = np.float32(0.0)


def add_zero(place, count, item):
    """Turn elements that are -0.0, those without a contribution, to 0.0."""
    if item == 8:
        wide = pointer_f8(place)
        for i in range(np.uint64(count)):
            wide[i] += 0.0
    else:
        single = pointer_f4(place)
        for i in range(np.uint64(count)):
            single[i] += ZERO


def copy(target, source, words):
    """Copy words."""
    for i in range(words):
        store_i8(target + 8 * i, load_i8(source + 8 * i))


def put_double(entry: ExchangedValue, value):
    """Store a number; whether it fits."""
    place = entry.place
    if entry.kind == XK_DOUBLE:
        store_f8(place, value)
        return True
    single = np.float32(value)
    if math.fabs(np.float64(single)) == math.inf and math.fabs(value) != math.inf:
        return False  # Python warns
    store_f4(place, single)
    return True


def put_integer(table, entry: ExchangedValue, argument):
    """Store a Python integer; whether it fits."""
    if entry.kind == XK_INTEGER:
        integer = PyLong_AsLongLong(argument)
        fitted = integer != -1 or PyErr_Occurred() == 0
        store_i8(entry.place, integer)
    else:
        value = PyLong_AsDouble(argument)
        fitted = value != -1.0 or PyErr_Occurred() == 0
        if fitted:
            return put_double(entry, value)
    if not fitted:
        PyErr_Clear()
    return fitted


def put_number(table: ExchangeHead, entry: ExchangedValue, argument, kind):
    """Store a Python number in a place of no dimensions; whether that was one, and fitted."""
    wanted = entry.kind
    if wanted == XK_ARRAY:
        return False
    if kind == table.int_type:
        return put_integer(table, entry, argument)
    if wanted != XK_INTEGER and (kind == table.float_type or kind == table.double_type):
        return put_double(entry, load_f8(argument + HEADER))
    if wanted == XK_SINGLE and kind == table.single_type:
        return put_double(entry, np.float64(load_f4(argument + HEADER)))
    return False


def fits(entry: ExchangedValue, array: ArrayObject):
    """Whether an array has the dtype and the shape that an argument has."""
    if array.dtype != entry.dtype:
        return False
    count = entry.ndim
    if np.int64(array.ndim) != count:
        return False
    extents, shape, same = array.shape, entry.shape, 0
    for axis in range(count):
        same += extents[axis] == shape[axis]
    return same == count


def entered(table: ExchangeHead, arguments, count):
    """Copy arguments into their places; 1, or 0 where one is not as recorded, or of another type, -1 for an error."""
    if count != table.arguments:
        return 0
    for k in range(count):
        entry = ExchangedValue(table + 8 * (ExchangeHead.SIZE + ExchangedValue.SIZE * k))
        argument = ArrayObject(word(arguments, k))
        kind = load_i8(argument + 8)
        if kind == table.array_type:
            if not fits(entry, argument):
                return 0
            words, simple = entry.words, np.int64(argument.flags) & A_SIMPLE == A_SIMPLE
            if not simple and table.int_type == 0:
                return 0  # exactly as recorded
            if words >= 0 and simple:
                copy(entry.place, load_i8(argument + HEADER), words)
            elif array_copy_into(table.copy_into, entry.view, argument) < 0:
                return -1
        elif not put_number(table, entry, argument, kind):
            return 0
    return 1


def copied(table: ExchangeHead, entry: ExchangedValue):
    """Return a new array of a result; 0 with Python's exception where there is no memory."""
    words = entry.words
    if words < 0:
        return array_copy(table.new_copy, entry.view, C_ORDER)
    kind, shape, number = table.array_type, entry.shape, entry.dtype
    made = new_array(table.new_array, kind, entry.ndim, shape, number)
    if made != 0:
        copy(load_i8(made + HEADER), entry.place, words)
    return made


def result(table, entry: ExchangedValue):
    """Return a new float or array; 0 with Python's exception where there is no memory."""
    kind, place, gradient = entry.kind, entry.place, entry.gradient
    if kind != XK_ARRAY:
        value = load_f8(place) if kind == XK_DOUBLE else np.float64(load_f4(place))
        if gradient > 0:
            value += 0.0
        return PyFloat_FromDouble(value)
    made = copied(table, entry)
    if made != 0 and gradient > 0:
        add_zero(load_i8(made + HEADER), gradient, entry.item)
    return made


def results_of(table: ExchangeHead):
    """Return a tuple of the results; 0 with Python's exception where there is no memory."""
    size = table.results
    results = PyTuple_New(size)
    if results == 0:
        return 0
    for k in range(size):
        value = result(table, table + 8 * (ExchangeHead.SIZE + ExchangedValue.SIZE * (table.arguments + k)))
        if value == 0:
            Py_DecRef(results)
            return 0
        PyTuple_SetItem(results, k, value)
    return results


def enter(bound: Word, arguments: Word, count: Word) -> Word:
    """Copy arguments into their places; 1, or 0 where one is not as recorded, or of another type."""
    table = load_i8(bound + HEADER)
    done = entered(table, arguments, count)
    if done < 0:
        return 0
    return PyLong_FromLongLong(done)


def leave(bound: Word, arguments: Word, count: Word) -> Word:
    """Return a tuple of the results: floats, and arrays of their own memory."""
    return results_of(load_i8(bound + HEADER))


def pass_through(bound: Word, arguments: Word, count: Word) -> Word:
    """Enter, run all rows and leave; 0 where an argument is not as recorded, or of another type.

    Where a guard missed, the number of its row, counted from 1; where loops pause, what :func:`run` returned.
    """
    table = ExchangeHead(load_i8(bound + HEADER))
    done = entered(table, arguments, count)
    if done < 0:
        return 0
    if done == 0:
        return PyLong_FromLongLong(0)
    if table.releases != 0:
        thread = PyEval_SaveThread()
        came_to = run(table.rows, 0, table.row_count)
        PyEval_RestoreThread(thread)
    else:
        came_to = run(table.rows, 0, table.row_count)
    if came_to == -1:
        return results_of(table)
    return PyLong_FromLongLong(came_to + 1 if came_to >= 0 else came_to)
