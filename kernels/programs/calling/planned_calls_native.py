"""Calls of objects with plans: where all that a program relies on is as it was, it runs without Python.

A plan is left alone once it has taken so many calls, where the mode, what is outside or the arguments are others, and
where a guard misses: then a function of Python's answers the call.
"""

from __future__ import annotations

from kernels.compiler.signatures import Int32, Void, Word
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.objects_native import drop_all, visit_all, wrong
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyContextVar_Get,
    PyDict_GetItemWithError,
    PyErr_Occurred,
    PyMethod_New,
    PyObject_CallNoArgs,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    PyObject_Vectorcall,
    PyTuple_GetItem,
    PyTuple_Size,
    call_visit,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.words import O_TYPE
from kernels.programs.calling.checks_native import holds
from kernels.programs.calling.direct_call_words import (
    MISSED,
    O_PLANS,
    O_SLOW,
    OTHERS,
    P_ALIKE,
    P_CHECK,
    P_CHECKS,
    P_COUNT,
    P_DEFAULTS,
    P_DTYPE,
    P_FIRST,
    P_GIVEN,
    P_LEFT,
    P_MACHINE,
    P_MISSES,
    P_MODE,
    P_NAME,
    P_PAIRS,
    P_PLACES,
    P_REST,
    P_SEEN,
    P_STALE,
    P_STEPS,
    P_TAKEN,
    P_TRUE,
    P_VARIABLE,
)
from kernels.programs.calling.direct_calls_native import called
from kernels.programs.calling.structures_native import opened, released

CONTROL = True

ARGUMENTS = (1 << 62) - 1


def is_mode(plan):
    """Whether the mode and the default dtype are those of the program."""
    out = three_words()
    if PyContextVar_Get(word(plan, P_VARIABLE), 0, out) != 0:
        return 0
    mode = load_i8(out)
    if mode != 0:
        Py_DecRef(mode)
    if mode != word(plan, P_MODE):
        return 0
    dtype = PyDict_GetItemWithError(word(plan, P_DEFAULTS), word(plan, P_NAME))
    return 1 if dtype == word(plan, P_DTYPE) else 0


def is_current(plan):
    """Whether what the program reads from outside is as it was."""
    check, k = plan + 8 * P_FIRST, 0
    while k < word(plan, P_CHECKS):
        if holds(check) == 0:
            return 0
        check += 8 * P_CHECK
        k += 1
    if word(plan, P_REST) == 0:
        return 1
    answer = PyObject_CallNoArgs(word(plan, P_REST))
    if answer == 0:
        return 0
    Py_DecRef(answer)
    return 1 if answer == word(plan, P_TRUE) else 0


def are_as_before(plan, values, count):
    """Whether the arrays among values are those of the last call: 1; 0 where not, or few, -1 where one is missing."""
    k, size, alike, seen = 0, word(plan, P_ALIKE), word(plan, P_PLACES), word(plan, P_SEEN)
    while k < size:
        place = word(alike, k)
        if place >= count:
            return -1
        if word(values, place) != word(seen, k):
            return 0
        k += 1
    return 1 if size != 0 else 0


def are_apart(plan, values, count):
    """Whether no value is another one, or what is read from outside, where it was not; known of those of before."""
    known = are_as_before(plan, values, count)
    if known != 0:
        return known
    pair, end = word(plan, P_PAIRS), word(plan, P_PAIRS) + 16 * word(plan, P_COUNT)
    while pair < end:
        first, other = word(pair, 0), word(pair, 1)
        if first >= count:
            return -1
        other = word(values, other) if other < count else other
        if word(values, first) == other:
            return -1
        pair += 16
    k, alike, seen = 0, word(plan, P_PLACES), word(plan, P_SEEN)
    while k < word(plan, P_ALIKE):
        if word(alike, k) < count:
            store_i8(seen + 8 * k, word(values, word(alike, k)))
        k += 1
    return 1


def called_apart(plan, values, count):
    """Return the result of the program on values that are apart."""
    if word(plan, P_COUNT) != 0 and are_apart(plan, values, count) < 0:
        return OTHERS
    return called(word(plan, P_MACHINE), values, count)


def called_with(plan, args, count):
    """Return the result of the program on the values in the arguments, if all else in these is as it was."""
    expected = word(plan, P_GIVEN)
    if expected == 0:
        return called_apart(plan, args, count)
    if expected != count:
        return OTHERS
    values, result = thirty_words(), OTHERS
    size = opened(word(plan, P_STEPS), args, values)
    if size >= 0:
        result = called_apart(plan, values, size)
        released(values, size)
    else:
        released(values, -1 - size)
    return result


def planned(plan, args, count):
    """Return the result of a call; below 0 where the plan does not take it, 0 with an exception."""
    if word(plan, P_TAKEN) >= word(plan, P_LEFT) or is_mode(plan) == 0:
        return OTHERS
    if is_current(plan) == 0:
        store_i8(plan + 8 * P_STALE, 1)
        return OTHERS
    result = called_with(plan, args, count)
    if result > 0:
        store_i8(plan + 8 * P_TAKEN, word(plan, P_TAKEN) + 1)
    return result


def directly(plans, args, count):
    """Return the result of a call by the first plan that takes it; below 0 where none does, 0 with an exception."""
    k, size, result, missed = 0, PyTuple_Size(plans), OTHERS, 0
    while k < size and result < 0:
        plan = load_i8(PyTuple_GetItem(plans, k) + HEADER)
        result = planned(plan, args, count)
        if result < 0 and PyErr_Occurred() != 0:
            return 0
        if result <= MISSED:
            missed = word(plan, P_MISSES) + 8 * (MISSED - result)
        k += 2
    if result > 0 and missed != 0:
        store_i8(missed, load_i8(missed) + 1)
    return result


def slowly(called_object, args, count, names):
    """Return what Python answers."""
    function = load_i8(called_object + O_SLOW)
    if function == 0:
        return wrong(tape_registry())
    method = PyMethod_New(function, called_object)
    if method == 0:
        return 0
    result = PyObject_Vectorcall(method, args, count, names)
    Py_DecRef(method)
    return result


def vectorcall(self: Word, args: Word, count: Word, names: Word) -> Word:
    plans = load_i8(self + O_PLANS)
    if plans == 0 or names != 0:
        return slowly(self, args, count, names)
    Py_IncRef(plans)
    result = directly(plans, args, count & ARGUMENTS)
    Py_DecRef(plans)
    return result if result >= 0 else slowly(self, args, count, names)


def traverse(self: Word, visit: Word, argument: Word) -> Int32:
    status = visit_all(self + O_SLOW, self + O_PLANS, visit, argument)
    return status if status != 0 else call_visit(visit, load_i8(self + O_TYPE), argument)


def clear(self: Word) -> Int32:
    drop_all(self + O_PLANS, self + O_PLANS)
    return 0


def dealloc(self: Word) -> Void:
    kind = load_i8(self + O_TYPE)
    PyObject_GC_UnTrack(self)
    drop_all(self + O_SLOW, self + O_PLANS)
    PyObject_GC_Del(self)
    Py_DecRef(kind)
