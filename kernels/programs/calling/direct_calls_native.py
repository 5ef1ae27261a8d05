"""A call of a compiled program from Python: arguments are read, and results written, where they stand.

Nothing that is taken from an object is used before its type has been checked, and no Python code can run between the
last look at the arguments and the end of the program. The tuples of results are made afterwards, and the workspace is
in use as long: a garbage collection may start there, and with it another call.
"""

from __future__ import annotations

import math

import numpy as np

from kernels.compiler.signatures import Word
from kernels.native.memory import (
    HEADER,
    call_at,
    load_f4,
    load_f8,
    load_i4,
    load_i8,
    store_f4,
    store_f8,
    store_i8,
    word,
)
from kernels.native.numpy_api import new_array
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
    call_word,
    thirty_words,
)
from kernels.native.words import A_ALIGNED, A_DTYPE, A_FLAGS, A_NDIM, A_SHAPE, A_STRIDES
from kernels.programs.calling.direct_call_words import (
    BUSY,
    D_ALONE,
    D_ARGUMENTS,
    D_ARRAY,
    D_ARRAYS,
    D_BUSY,
    D_CHOSEN,
    D_COUNT,
    D_DOUBLE,
    D_ENTRY,
    D_FIRST,
    D_FLOAT,
    D_FLOAT32,
    D_FORM,
    D_INT,
    D_LARGE,
    D_LEFT_OUT,
    D_NEW,
    D_PLACES,
    D_POOLED,
    D_RELEASES,
    D_RESULTS,
    D_RUN,
    D_STEPS,
    D_TABLE,
    DI_DTYPE,
    DI_KIND,
    DI_NDIM,
    DI_SCRATCH,
    DI_SHAPE,
    DI_STRIDES,
    DK_ARRAY,
    DK_DOUBLE,
    DK_INTEGER,
    DK_SINGLE,
    DR_KIND,
    DR_LARGE,
    DR_MADE,
    DR_NDIM,
    DR_NUMBER,
    DR_SCRATCH,
    DR_SHAPE,
    FLAT,
    GRAD,
    LEVEL,
    MISSED,
    OTHERS,
    S_END,
    S_KEY,
    S_KIND,
    S_VALUE,
    SINGLE,
    STEP,
    VALUE_AND_GRAD,
)
from kernels.programs.calling.structures_native import begun, new_part, put_part

CONTROL = True


def single_of(entry, value):
    """Where a number stands as a single; 0 where it is too large, and Python warns."""
    place, single = word(entry, DI_SCRATCH), np.float32(value)
    if math.fabs(np.float64(single)) == math.inf and math.fabs(value) != math.inf:
        return 0
    store_f4(place, single)
    return place


def integer_place(entry, argument):
    """Where the value of a Python integer stands; 0 where it does not fit."""
    place, wanted = word(entry, DI_SCRATCH), word(entry, DI_KIND)
    if wanted == DK_INTEGER:
        integer = PyLong_AsLongLong(argument)
        if integer != -1 or PyErr_Occurred() == 0:
            store_i8(place, integer)
            return place
    else:
        value = PyLong_AsDouble(argument)
        if value != -1.0 or PyErr_Occurred() == 0:
            if wanted == DK_SINGLE:
                return single_of(entry, value)
            store_f8(place, value)
            return place
    PyErr_Clear()
    return 0


def number_place(table, entry, argument, kind):
    """Where the value of a Python number stands, for an argument of no dimensions; 0 for anything else."""
    wanted = word(entry, DI_KIND)
    if wanted == DK_ARRAY:
        return 0
    if kind == word(table, D_FLOAT) or kind == word(table, D_DOUBLE):
        if wanted == DK_DOUBLE:
            return argument + HEADER
        return single_of(entry, load_f8(argument + HEADER)) if wanted == DK_SINGLE else 0
    if kind == word(table, D_FLOAT32):
        return argument + HEADER if wanted == DK_SINGLE else 0
    return integer_place(entry, argument) if kind == word(table, D_INT) else 0


def array_place(entry, array):
    """Where the elements of an array stand; 0 where dtype, shape or strides are not as recorded."""
    if load_i8(array + A_DTYPE) != word(entry, DI_DTYPE):
        return 0
    count = word(entry, DI_NDIM)
    if np.int64(load_i4(array + A_NDIM)) != count or np.int64(load_i4(array + A_FLAGS)) & A_ALIGNED == 0:
        return 0
    extents, steps, axis = load_i8(array + A_SHAPE), load_i8(array + A_STRIDES), 0
    shape, strides = word(entry, DI_SHAPE), word(entry, DI_STRIDES)
    while axis < count:
        extent = word(shape, axis)
        if word(extents, axis) != extent:
            return 0
        if extent != 1 and word(steps, axis) != word(strides, axis):
            return 0
        axis += 1
    return load_i8(array + HEADER)


def entered(table, arguments):
    """Put the addresses of the arguments into the program's table; 0 where one is not as recorded."""
    places, entry, k = word(table, D_TABLE), table + 8 * D_FIRST, 0
    count, of_arrays = word(table, D_ARGUMENTS), word(table, D_ARRAY)
    while k < count:
        argument = word(arguments, k)
        kind = load_i8(argument + 8)
        place = array_place(entry, argument) if kind == of_arrays else number_place(table, entry, argument, kind)
        if place == 0:
            return 0
        store_i8(places + 8 * k, place)
        entry += 8 * D_ENTRY
        k += 1
    return 1


def first_result(table):
    """Where the entries of results begin."""
    return table + 8 * (D_FIRST + D_ENTRY * word(table, D_ARGUMENTS))


def dropped(table):
    """Release the arrays made for results; return 0."""
    entry, k = first_result(table), 0
    while k < word(table, D_RESULTS):
        made = word(entry, DR_MADE)
        if made != 0:
            store_i8(entry + 8 * DR_MADE, 0)
            Py_DecRef(made)
        entry += 8 * D_ENTRY
        k += 1
    return 0


def array_for(table, entry):
    """Return a new array for a result; 0 with Python's exception where there is no memory."""
    kind, ndim = word(table, D_ARRAY), word(entry, DR_NDIM)
    if word(entry, DR_LARGE) != 0:
        return call_at(word(table, D_POOLED), kind, ndim, word(entry, DR_SHAPE), word(entry, DR_NUMBER))
    return new_array(word(table, D_NEW), kind, ndim, word(entry, DR_SHAPE), word(entry, DR_NUMBER))


def results_made(table):
    """Make the arrays of results, their addresses into the program's table; 0 with an exception."""
    if word(table, D_ARRAYS) == 0:
        return 1
    entry, place, k = first_result(table), word(table, D_TABLE) + 8 * word(table, D_PLACES), 0
    while k < word(table, D_RESULTS):
        if word(entry, DR_KIND) == DK_ARRAY:
            made = array_for(table, entry)
            if made == 0:
                return dropped(table)
            store_i8(entry + 8 * DR_MADE, made)
            store_i8(place, load_i8(made + HEADER))
        entry += 8 * D_ENTRY
        place += 8
        k += 1
    return 1


def result(entry):
    """Return a new float, or the array of a result; 0 with an exception."""
    kind = word(entry, DR_KIND)
    if kind == DK_ARRAY:
        made = word(entry, DR_MADE)
        store_i8(entry + 8 * DR_MADE, 0)
        return made
    place = word(entry, DR_SCRATCH)
    return PyFloat_FromDouble(load_f8(place) if kind == DK_DOUBLE else np.float64(load_f4(place)))


def all_of(table):
    """Return a tuple of all results; 0 with an exception."""
    entry, k, count = first_result(table), 0, word(table, D_RESULTS)
    results = PyTuple_New(count)
    while k < count and results != 0:
        value = result(entry)
        if value == 0:
            Py_DecRef(results)
            return 0
        PyTuple_SetItem(results, k, value)
        entry += 8 * D_ENTRY
        k += 1
    return results


def built(table):
    """Return the gradient as a structure; 0 with an exception."""
    levels, depth, step, k = thirty_words(), 0, word(table, D_STEPS), 0
    whole, entry, chosen = new_part(step), first_result(table), word(table, D_CHOSEN)
    begun(levels, whole, word(step, S_KIND))
    while whole != 0:
        step += 8 * STEP
        kind, level, part = word(step, S_KIND), levels + 8 * LEVEL * depth, 0
        if kind == S_END:
            if depth == 0:
                return whole
            depth -= 1
            continue
        if kind == S_VALUE:
            part = result(entry + 8 * D_ENTRY * word(chosen, k))
            k += 1
        else:
            part = new_part(step)
        if part == 0 or put_part(level, word(step, S_KEY), part) == 0:
            Py_DecRef(whole)
            return 0
        if kind != S_VALUE:
            depth += 1
            begun(levels + 8 * LEVEL * depth, part, kind)
    return 0


def gradient_of(table):
    """Return the gradient: one result, or a tuple of some; 0 with an exception."""
    entry, chosen, k, count = first_result(table), word(table, D_CHOSEN), 0, word(table, D_COUNT)
    if word(table, D_ALONE) != 0:
        return result(entry + 8 * D_ENTRY * word(chosen, 0))
    if word(table, D_STEPS) != 0:
        return built(table)
    results = PyTuple_New(count)
    while k < count and results != 0:
        value = result(entry + 8 * D_ENTRY * word(chosen, k))
        if value == 0:
            Py_DecRef(results)
            return 0
        PyTuple_SetItem(results, k, value)
        k += 1
    return results


def paired(first, second):
    """Return a pair, which takes over both references; 0, with both released, where one is missing."""
    pair = PyTuple_New(2) if first != 0 and second != 0 else 0
    if pair == 0:
        if first != 0:
            Py_DecRef(first)
        if second != 0:
            Py_DecRef(second)
        return 0
    PyTuple_SetItem(pair, 0, first)
    PyTuple_SetItem(pair, 1, second)
    return pair


def returned(table):
    """Return the results in their form; 0 with an exception."""
    form, made = word(table, D_FORM), 0
    if form == FLAT:
        made = all_of(table)
    elif form == SINGLE:
        made = result(first_result(table))
    else:
        made = gradient_of(table)
        if made != 0 and form != GRAD:
            value = result(first_result(table))
            made = paired(value, made) if form == VALUE_AND_GRAD else paired(made, value)
    if made == 0 or word(table, D_LEFT_OUT) != 0:
        dropped(table)
    return made


def ran(table):
    """Run the program; return what it does."""
    if word(table, D_RELEASES) == 0:
        return call_word(word(table, D_RUN), word(table, D_TABLE))
    thread = PyEval_SaveThread()
    status = call_word(word(table, D_RUN), word(table, D_TABLE))
    PyEval_RestoreThread(thread)
    return status


def called(table, arguments, count):
    """Return the results of a call; OTHERS, BUSY, MISSED - k, or 0 with an exception, where there are none."""
    if count != word(table, D_ARGUMENTS):
        return OTHERS
    busy = word(table, D_BUSY)
    if load_i8(busy) != 0:
        return BUSY
    store_i8(busy, 1)
    made = 0
    if entered(table, arguments) == 0:
        made = OTHERS
    elif results_made(table) != 0:
        if word(table, D_LARGE) != 0 and entered(table, arguments) == 0:
            made = OTHERS  # until Python 3.12, Python code may have run: the pool's handler is set in a context
        else:
            status = ran(table)
            made = returned(table) if status < 0 else MISSED - status
        if made < 0:
            dropped(table)
    store_i8(busy, 0)
    return made


def claim(bound: Word, arguments: Word, count: Word) -> Word:
    """Say that the workspace is in use; return 1, or 0 if it was before."""
    busy = load_i8(load_i8(bound + HEADER) + 8 * D_BUSY)
    before = load_i8(busy)
    store_i8(busy, 1)
    return PyLong_FromLongLong(1 - before)


def whole(bound: Word, arguments: Word, count: Word) -> Word:
    """Return the results, or an int: OTHERS, BUSY, MISSED - k."""
    made = called(load_i8(bound + HEADER), arguments, count)
    return made if made >= 0 else PyLong_FromLongLong(made)
