"""Calls of objects with plans: where all that a program relies on is as it was, it runs without Python.

A plan is left alone once it has taken so many calls, where the mode, what is outside or the arguments are others, and
where a guard misses: then a function of Python's answers the call.
"""

from __future__ import annotations

from kernels.language.llvm_values import Int32, Void, Word
from kernels.machine_code import call_structs
from kernels.machine_code.call_structs import CallableObject, CallPlan, PlanCheck
from kernels.machine_code.direct_calls_native import called, opened, released
from kernels.native.c_api import (
    ARGUMENTS,
    Py_DecRef,
    Py_IncRef,
    PyContextVar_Get,
    PyDict_GetItemWithError,
    PyDict_Next,
    PyDict_Size,
    PyErr_Clear,
    PyErr_Occurred,
    PyMethod_New,
    PyObject_CallNoArgs,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    PyObject_GenericGetDict,
    PyObject_Vectorcall,
    PyTuple_GetItem,
    PyTuple_Size,
    TensorObject,
    call_visit,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.memory import HEADER, LIST_ITEMS, load_i1, load_i8, store_i8, word
from kernels.native.objects_native import drop_all, visit_all, wrong

# Checks of what a program reads from outside: words, entries, items, bytes and containers are as they were.
#
# All holders are kept alive by whoever made the checks, and so is what is expected: where addresses agree, so do
# objects. Whole dictionaries are compared by identity, in order, without any Python code; what has failed is Python's
# to look at.

CONTROL = True


def same_bytes(a, b, size):
    """Whether bytes of two places are the same."""
    whole = size & ~7
    for at in range(0, whole, 8):
        if load_i8(a + at) != load_i8(b + at):
            return 0
    for at in range(whole, size):
        if load_i1(a + at) != load_i1(b + at):
            return 0
    return 1


def is_entry(entry, expected):
    """Whether what was looked up, 0 for nothing, is what has to be there; no exception remains."""
    if entry == 0 and PyErr_Occurred() != 0:
        PyErr_Clear()
        return 0
    return 1 if entry == expected else 0


def same_entries(dictionary, entries, count):
    """Whether a dictionary has these keys and values, in this order, and no others."""
    if PyDict_Size(dictionary) != count:
        return 0
    out = three_words()
    store_i8(out, 0)
    for k in range(count):
        if PyDict_Next(dictionary, out, out + 8, out + 16) == 0:
            return 0
        if load_i8(out + 8) != word(entries, 2 * k) or load_i8(out + 16) != word(entries, 2 * k + 1):
            return 0
    return 1


def has_attributes(holder, expected):
    """Whether an object has its attributes in this dictionary."""
    dictionary = PyObject_GenericGetDict(holder, 0)
    same = is_entry(dictionary, expected)
    if dictionary != 0:
        Py_DecRef(dictionary)
    return same


def holds(check: PlanCheck):
    """Whether what a check looks at is as it was."""
    kind, holder, key, expected = check.kind, check.holder, check.key, check.expected
    if kind == call_structs.CHECK_WORD:
        return 1 if load_i8(holder + key) == expected else 0
    if kind == call_structs.CHECK_ENTRY:
        return is_entry(PyDict_GetItemWithError(holder, key), expected)
    if kind == call_structs.CHECK_ITEM:
        return 1 if word(load_i8(holder + LIST_ITEMS), key) == expected else 0
    if kind == call_structs.CHECK_LIST:
        return same_bytes(load_i8(holder + LIST_ITEMS), expected, 8 * key) if load_i8(holder + HEADER) == key else 0
    if kind == call_structs.CHECK_DICT:
        return same_entries(holder, expected, key)
    return (
        has_attributes(holder, expected) if kind == call_structs.CHECK_ATTRIBUTES else same_bytes(holder, expected, key)
    )


def is_mode(plan: CallPlan):
    """Whether the mode and the default dtype are those of the program."""
    out = three_words()
    if PyContextVar_Get(plan.variable, 0, out) != 0:
        return 0
    mode = load_i8(out)
    if mode != 0:
        Py_DecRef(mode)
    if mode != plan.mode:
        return 0
    dtype = PyDict_GetItemWithError(plan.defaults, plan.name)
    return 1 if dtype == plan.dtype else 0


def is_current(plan: CallPlan):
    """Whether what the program reads from outside is as it was."""
    check = plan + 8 * CallPlan.SIZE
    for _ in range(plan.checks):
        if holds(check) == 0:
            return 0
        check += 8 * PlanCheck.SIZE
    if plan.rest == 0:
        return 1
    answer = PyObject_CallNoArgs(plan.rest)
    if answer == 0:
        return 0
    Py_DecRef(answer)
    return 1 if answer == plan.true else 0


def are_as_before(plan: CallPlan, values, count):
    """Whether the arrays among values are those of the last call: 1; 0 where not, or few, -1 where one is missing."""
    k, size, alike, seen = 0, plan.alike, plan.places, plan.seen
    while k < size:
        place = alike[k]
        if place >= count:
            return -1
        if word(values, place) != seen[k]:
            return 0
        k += 1
    return 1 if size != 0 else 0


def are_apart(plan: CallPlan, values, count):
    """Whether no value is another one, or what is read from outside, where it was not; known of those of before."""
    known = are_as_before(plan, values, count)
    if known != 0:
        return known
    pair, end = plan.pairs, plan.pairs + 16 * plan.count
    while pair < end:
        first, other = word(pair, 0), word(pair, 1)
        if first >= count:
            return -1
        other = word(values, other) if other < count else other
        if word(values, first) == other:
            return -1
        pair += 16
    k, alike, seen = 0, plan.places, plan.seen
    while k < plan.alike:
        if alike[k] < count:
            seen[k] = word(values, alike[k])
        k += 1
    return 1


def called_apart(plan: CallPlan, values, count):
    """Return the result of the program on values that are apart."""
    if plan.count != 0 and are_apart(plan, values, count) < 0:
        return call_structs.OTHERS
    return called(plan.machine, values, count)


def called_with(plan: CallPlan, args, count):
    """Return the result of the program on the values in the arguments, if all else in these is as it was."""
    expected = plan.argument_count
    if expected == 0:
        return called_apart(plan, args, count)
    if expected != count:
        return call_structs.OTHERS
    values, result = thirty_words(), call_structs.OTHERS
    size = opened(plan.steps, args, values)
    if size >= 0:
        result = called_apart(plan, values, size)
    released(values, size if size >= 0 else -1 - size)
    return result


def planned(plan: CallPlan, args, count):
    """Return the result of a call; below 0 where the plan does not take it, 0 with an exception."""
    if plan.taken >= plan.left or is_mode(plan) == 0:
        return call_structs.OTHERS
    if is_current(plan) == 0:
        plan.stale = 1
        return call_structs.OTHERS
    result = called_with(plan, args, count)
    if result > 0:
        plan.taken += 1
    return result


def directly(plans, args, count):
    """Return the result of a call by the first plan that takes it; below 0 where none does, 0 with an exception."""
    k, size, result, missed = 0, PyTuple_Size(plans), call_structs.OTHERS, 0
    while k < size and result < 0:
        plan = CallPlan(load_i8(PyTuple_GetItem(plans, k) + HEADER))
        result = planned(plan, args, count)
        if result < 0 and PyErr_Occurred() != 0:
            return 0
        if result <= call_structs.MISSED:
            missed = plan.misses + 8 * (call_structs.MISSED - result)
        k += 2
    if result > 0 and missed != 0:
        store_i8(missed, load_i8(missed) + 1)
    return result


def slowly(called_object: CallableObject, args, count, names):
    """Return what Python answers."""
    function = called_object.slow
    if function == 0:
        return wrong(tape_registry())
    method = PyMethod_New(function, called_object)
    if method == 0:
        return 0
    result = PyObject_Vectorcall(method, args, count, names)
    Py_DecRef(method)
    return result


def vectorcall(self: CallableObject, args: Word, count: Word, names: Word) -> Word:
    plans = self.plans
    if plans == 0 or names != 0:
        return slowly(self, args, count, names)
    Py_IncRef(plans)
    result = directly(plans, args, count & ARGUMENTS)
    Py_DecRef(plans)
    return result if result >= 0 else slowly(self, args, count, names)


def traverse(self: TensorObject, visit: Word, argument: Word) -> Int32:
    status = visit_all(self + CallableObject.slow, self + CallableObject.plans, visit, argument)
    return status if status != 0 else call_visit(visit, self.type, argument)


def clear(self: Word) -> Int32:
    drop_all(self + CallableObject.plans, self + CallableObject.plans)
    return 0


def dealloc(self: TensorObject) -> Void:
    kind = self.type
    PyObject_GC_UnTrack(self)
    drop_all(self + CallableObject.slow, self + CallableObject.plans)
    PyObject_GC_Del(self)
    Py_DecRef(kind)
