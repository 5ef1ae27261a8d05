"""Calls of compiled programs from Python: directly, and by plans of objects that stand for programs."""

from __future__ import annotations

import numpy as np

from kernels.language.llvm_values import Int32, Void, Word
from kernels.machine_code import call_structs
from kernels.machine_code.call_structs import (
    CallableObject,
    CallPlan,
    DirectArgument,
    DirectCall,
    DirectResult,
    PlanCheck,
)
from kernels.machine_code.structures_native import built, opened, released
from kernels.native import structs
from kernels.native.c_api import (
    A_ALIGNED,
    ARGUMENTS,
    ArrayObject,
    Py_DecRef,
    Py_IncRef,
    PyContextVar_Get,
    PyDict_GetItemWithError,
    PyDict_Next,
    PyDict_Size,
    PyErr_Clear,
    PyErr_Occurred,
    PyEval_RestoreThread,
    PyEval_SaveThread,
    PyFloat_FromDouble,
    PyLong_FromLongLong,
    PyMethod_New,
    PyObject_CallNoArgs,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    PyObject_GenericGetDict,
    PyObject_Vectorcall,
    PyTuple_GetItem,
    PyTuple_New,
    PyTuple_SetItem,
    PyTuple_Size,
    TensorObject,
    call_visit,
    call_word,
    new_array,
    on_stack,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.memory import (
    HEADER,
    LIST_ITEMS,
    call_at,
    compare_bytes,
    load_f4,
    load_f8,
    load_i8,
    store_i8,
    word,
)
from kernels.native.objects_native import drop_all, visit_all, wrong
from kernels.native.structs import ExchangedValue, ExchangeHead
from kernels.programs.replay_native import entered as entered_rows
from kernels.programs.replay_native import put_double, put_integer, run
from kernels.programs.replay_native import result as copied_result

# A call of a compiled program from Python: arguments are read, and results written, where they stand.
#
# Nothing that is taken from an object is used before its type has been checked, and no Python code can run between the
# last look at the arguments and the end of the program. The tuples of results are made afterwards, and the workspace
# is in use as long: a garbage collection may start there, and with it another call.

CONTROL = True
chosen_held = on_stack(call_structs.MOST_OPERANDS)


def number_place(table: DirectCall, entry: DirectArgument, argument, kind):
    """Where the value of a Python number stands, for an argument of no dimensions; 0 for anything else."""
    wanted, fitted = entry.kind, False
    if wanted == structs.XK_ARRAY:
        return 0
    if kind == table.float_type or kind == table.double_type:
        if wanted == structs.XK_DOUBLE:
            return argument + HEADER
        if wanted == structs.XK_SINGLE:
            fitted = put_double(entry.scratch, wanted, load_f8(argument + HEADER))
    elif kind == table.single_type:
        return argument + HEADER if wanted == structs.XK_SINGLE else 0
    elif kind == table.int_type:
        fitted = put_integer(entry.scratch, wanted, argument)
    return entry.scratch if fitted else 0


def array_place(entry: DirectArgument, array: ArrayObject):
    """Where the elements of an array stand; 0 where dtype, shape or strides are not as recorded."""
    if array.dtype != entry.dtype:
        return 0
    count = entry.ndim
    if np.int64(array.ndim) != count or np.int64(array.flags) & A_ALIGNED == 0:
        return 0
    extents, steps, axis = array.shape, array.strides, 0
    shape, strides = entry.shape, entry.strides
    while axis < count:
        extent = shape[axis]
        if extents[axis] != extent:
            return 0
        if extent != 1 and steps[axis] != strides[axis]:
            return 0
        axis += 1
    return load_i8(array + HEADER)


def entered(table: DirectCall, arguments):
    """Put the addresses of the arguments into the program's table; 0 where one is not as recorded."""
    places, entry, of_arrays = table.table, table + 8 * DirectCall.SIZE, table.array_type
    for k in range(table.arguments):
        argument = word(arguments, k)
        kind = load_i8(argument + 8)
        place = array_place(entry, argument) if kind == of_arrays else number_place(table, entry, argument, kind)
        if place == 0:
            return 0
        store_i8(places + 8 * k, place)
        entry += 8 * call_structs.D_ENTRY
    return 1


def first_result(table: DirectCall):
    """Where the entries of results begin."""
    return table + 8 * (DirectCall.SIZE + call_structs.D_ENTRY * table.arguments)


def dropped(table: DirectCall):
    """Release the arrays made for results; return 0."""
    entry = DirectResult(first_result(table))
    for _ in range(table.results):
        made = entry.made
        if made != 0:
            entry.made = 0
            Py_DecRef(made)
        entry += 8 * call_structs.D_ENTRY
    return 0


def results_made(table: DirectCall):
    """Make the arrays of results, their addresses into the program's table; 0 with an exception."""
    if table.arrays == 0:
        return 1
    entry, place, kind = DirectResult(first_result(table)), table.table + 8 * table.places, table.array_type
    for _ in range(table.results):
        if entry.kind == structs.XK_ARRAY:
            if entry.large != 0:
                made = call_at(table.pooled, kind, entry.ndim, entry.shape, entry.number)
            else:
                made = new_array(table.new_array, kind, entry.ndim, entry.shape, entry.number)
            if made == 0:
                return dropped(table)
            entry.made = made
            store_i8(place, load_i8(made + HEADER))
        entry += 8 * call_structs.D_ENTRY
        place += 8
    return 1


def result(entry: DirectResult):
    """Return a new float, or the array of a result; 0 with an exception."""
    kind = entry.kind
    if kind == structs.XK_ARRAY:
        made = entry.made
        entry.made = 0
        return made
    place = entry.scratch
    return PyFloat_FromDouble(load_f8(place) if kind == structs.XK_DOUBLE else np.float64(load_f4(place)))


def several(table: DirectCall, chosen, count):
    """Return a tuple of so many chosen results, of the first where ``chosen`` is 0; 0 with an exception."""
    entry, results = first_result(table), PyTuple_New(count)
    for k in range(count if results != 0 else 0):
        value = result(entry + 8 * call_structs.D_ENTRY * (word(chosen, k) if chosen != 0 else k))
        if value == 0:
            Py_DecRef(results)
            return 0
        PyTuple_SetItem(results, k, value)
    return results


def structured(table: DirectCall):
    """Return the chosen results as a structure; 0 with an exception."""
    values, count, k = chosen_held(), table.count, 0
    while k < count:
        value = result(first_result(table) + 8 * call_structs.D_ENTRY * table.chosen[k])
        if value == 0:
            released(values, k)
            return 0
        store_i8(values + 8 * k, value)
        k += 1
    return built(table.steps, values, count)


def gradient_of(table: DirectCall):
    """Return the gradient: one result, or a tuple of some; 0 with an exception."""
    if table.alone != 0:
        return result(first_result(table) + 8 * call_structs.D_ENTRY * table.chosen[0])
    return structured(table) if table.steps != 0 else several(table, table.chosen, table.count)


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


def returned(table: DirectCall):
    """Return the results in their form; 0 with an exception."""
    form, made = table.form, 0
    if form == call_structs.FLAT:
        made = several(table, 0, table.results)
    elif form == call_structs.SINGLE:
        made = result(first_result(table))
    else:
        made = gradient_of(table)
        if made != 0 and form != call_structs.GRAD:
            value = result(first_result(table))
            made = paired(value, made) if form == call_structs.VALUE_AND_GRAD else paired(made, value)
    if made == 0 or table.left_out != 0:
        dropped(table)
    return made


def ran(table: DirectCall):
    """Run the program; return what it does."""
    if table.releases == 0:
        return call_word(table.run, table.table)
    thread = PyEval_SaveThread()
    status = call_word(table.run, table.table)
    PyEval_RestoreThread(thread)
    return status


def called(table: DirectCall, arguments, count):
    """Return the results of a call; OTHERS, BUSY, MISSED - k, or 0 with an exception, where there are none."""
    if count != table.arguments:
        return call_structs.OTHERS
    busy = table.busy
    if load_i8(busy) != 0:
        return call_structs.BUSY
    store_i8(busy, 1)
    made = 0
    if entered(table, arguments) == 0:
        made = call_structs.OTHERS
    elif results_made(table) != 0:
        if table.large != 0 and entered(table, arguments) == 0:
            made = (
                call_structs.OTHERS
            )  # until Python 3.12, Python code may have run: the pool's handler is set in a context
        else:
            status = ran(table)
            made = returned(table) if status < 0 else call_structs.MISSED - status
        if made < 0:
            dropped(table)
    store_i8(busy, 0)
    return made


def came_to(rows: ExchangeHead):
    """Run the interpreter's rows; return what they do."""
    if rows.releases == 0:
        return run(rows.rows, 0, rows.row_count)
    thread = PyEval_SaveThread()
    at = run(rows.rows, 0, rows.row_count)
    PyEval_RestoreThread(thread)
    return at


def called_by_rows(table: DirectCall, rows: ExchangeHead, arguments, count):
    """Return the results of a call that the interpreter runs; OTHERS, BUSY, or 0 with an exception, without any."""
    if load_i8(table.busy) != 0:
        return call_structs.BUSY
    store_i8(table.busy, 1)
    entry, source, made = DirectResult(first_result(table)), rows + 8 * ExchangeHead.SIZE, call_structs.OTHERS
    if entered_rows(rows, arguments, count) <= 0:
        PyErr_Clear()
    elif came_to(rows) == -1:
        source += 8 * ExchangedValue.SIZE * rows.arguments
        size, k = table.results, 0
        while k < size:
            entry.made = copied_result(rows, source)
            k = k + 1 if entry.made != 0 else size + 1
            entry += 8 * call_structs.D_ENTRY
            source += 8 * ExchangedValue.SIZE
        made = returned(table) if k == size else dropped(table)
    store_i8(table.busy, 0)
    return made


def claim(bound: Word, arguments: Word, count: Word) -> Word:
    """Say that the workspace is in use; return 1, or 0 if it was before."""
    busy = load_i8(load_i8(bound + HEADER) + 8 * DirectCall.busy)
    before = load_i8(busy)
    store_i8(busy, 1)
    return PyLong_FromLongLong(1 - before)


def whole(bound: Word, arguments: Word, count: Word) -> Word:
    """Return the results, or an int: OTHERS, BUSY, MISSED - k."""
    made = called(load_i8(bound + HEADER), arguments, count)
    return made if made >= 0 else PyLong_FromLongLong(made)


# Calls of objects with plans: where all that a program relies on is as it was, it runs without Python.
#
# A plan is left alone once it has taken so many calls, where the mode, what is outside or the arguments are others,
# and where a guard misses: then a function of Python's answers the call.

# Checks of what a program reads from outside: words, entries, items, bytes and containers are as they were.
#
# All holders are kept alive by whoever made the checks, and so is what is expected: where addresses agree, so do
# objects. Whole dictionaries are compared by identity, in order, without any Python code; what has failed is Python's
# to look at.


def same_bytes(a, b, size):
    """Whether bytes of two places are the same."""
    return 1 if compare_bytes(a, b, size) == 0 else 0


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


def same_names(check: PlanCheck, dictionary, names):
    """Whether names stand for the same in a dictionary; notes the state in which they do, if it has a number."""
    state = load_i8(dictionary + call_structs.DICT_STATE)
    for k in range(load_i8(names)):
        if is_entry(PyDict_GetItemWithError(dictionary, word(names, 2 * k + 1)), word(names, 2 * k + 2)) == 0:
            return 0
    if check.expected >= 0:
        store_i8(check + 8 * PlanCheck.expected, state)
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
    if kind == call_structs.CHECK_NAMES:
        return 1 if load_i8(holder + call_structs.DICT_STATE) == expected else same_names(check, holder, key)
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


def current(bound: Word, arguments: Word, count: Word) -> Word:
    """Return 1, or 0 if something that a plan looks at is not as it was."""
    return PyLong_FromLongLong(is_current(CallPlan(load_i8(bound + HEADER))))


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
    if plan.tensors != 0:
        return call_at(plan.tensors.function, plan.tensors, values, count, 0)
    return (
        called(plan.machine, values, count)
        if plan.rows == 0
        else called_by_rows(plan.machine, plan.rows, values, count)
    )


def are_named(plan: CallPlan, names):
    """Whether arguments are given by the names that a plan expects, in its order."""
    expected = plan.names
    if names == expected or names == 0 or expected == 0:
        return names == expected
    k, count = 0, PyTuple_Size(names)
    while k < count and k < PyTuple_Size(expected):
        if PyTuple_GetItem(names, k) != PyTuple_GetItem(expected, k):
            return False
        k += 1
    return k == count and k == PyTuple_Size(expected)


def called_with(plan: CallPlan, args, count, names):
    """Return the result of the program on the values in the arguments, if all else in these is as it was."""
    expected = plan.argument_count
    if not are_named(plan, names):
        return call_structs.OTHERS
    if expected == 0:
        return called_apart(plan, args, count)
    if expected != count + (PyTuple_Size(names) if names != 0 else 0):
        return call_structs.OTHERS
    values, result = thirty_words(), call_structs.OTHERS
    size = opened(plan.steps, args, values)
    if size >= 0:
        result = called_apart(plan, values, size)
    released(values, size if size >= 0 else -1 - size)
    return result


def planned(plan: CallPlan, args, count, names):
    """Return the result of a call; below 0 where the plan does not take it, 0 with an exception."""
    if plan.taken >= plan.left or is_mode(plan) == 0:
        return call_structs.OTHERS
    if is_current(plan) == 0:
        plan.stale = 1
        return call_structs.OTHERS
    result = called_with(plan, args, count, names)
    if result > 0:
        plan.taken += 1
    return result


def directly(plans, args, count, names):
    """Return the result of a call by the first plan that takes it; below 0 where none does, 0 with an exception."""
    k, size, result, missed = 0, PyTuple_Size(plans), call_structs.OTHERS, 0
    while k < size and result < 0:
        plan = CallPlan(load_i8(PyTuple_GetItem(plans, k) + HEADER))
        result = planned(plan, args, count, names)
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
    if plans == 0:
        return slowly(self, args, count, names)
    Py_IncRef(plans)
    result = directly(plans, args, count & ARGUMENTS, names)
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
