"""The arguments of a call as words of its key in the table; recorders notified of calls that native code repeats."""

from __future__ import annotations

from kernels.language.llvm_values import kept_apart
from kernels.native import c_api, structs
from kernels.native.c_api import (
    ArrayObject,
    RecorderObject,
    TensorObject,
    array_copy,
    sixteen_words,
    tape_registry,
    three_words,
)
from kernels.native.memory import HEADER, bits_of, call_two, load_f8, load_i8, pointer_b1, store_i8, word
from kernels.native.objects_native import drop_all, dropped, elements, kind_of
from kernels.native.structs import CallEntry, CallOperand, RecordedCall, RecorderTables, RegistryTable

# Notifies the recorder in force of an operation that native code has repeated.


def look_at(variable):
    """The value of a context variable: a new reference; 0 if it has none, or with an exception."""
    out = three_words()
    return load_i8(out) if c_api.PyContextVar_Get(variable, 0, out) == 0 else 0


def header_of(registry: RegistryTable, tape):
    """The header of a tape, 0 for False and 0, -1 for anything else."""
    if tape == registry.false:
        return 0
    if tape == 0 or kind_of(tape) != registry.tape_type:
        return 0 if tape == registry.zero else -1
    entries = load_i8(tape + registry.entries)
    return entries + HEADER if entries != 0 else -1


def tables_of(registry: RegistryTable, recorder: RecorderObject):
    """What a recorder knows in native code; 0 where Python records."""
    return RecorderTables(load_i8(recorder.words + HEADER) if kind_of(recorder.words) == registry.array_type else 0)


def is_of_thread(registry: RegistryTable, recorder: RecorderObject):
    """Whether this is the recorder of an observed mode, in its thread."""
    if kind_of(recorder) != registry.recorder_type or kind_of(recorder.thread) != registry.int_type:
        return False
    tables = tables_of(registry, recorder)
    thread = tables.thread if tables != 0 else c_api.PyLong_AsLongLong(recorder.thread)
    return thread == c_api.PyThread_get_thread_ident()


def tape_in_force(registry: RegistryTable):
    """The header of the tape to record on, 0 without gradients; one more where a recorder is notified too, or three.

    Three where native code records; -1 where Python has to make the call.
    """
    tape = look_at(registry.active)
    if tape == 0:
        return -1
    t = header_of(registry, tape)
    is_none = tape == registry.none
    c_api.Py_DecRef(tape)
    if is_none:
        recorder = RecorderObject(look_at(registry.recorder))
        if recorder != 0:
            if is_of_thread(registry, recorder):
                t = header_of(registry, recorder.tape)
                t = t + (3 if tables_of(registry, recorder) != 0 else 1) if t != -1 else -1
            c_api.Py_DecRef(recorder)
    return t


def given_arrays(registry: RegistryTable):
    """Whether a function is running that was given NumPy's arrays; -1 where Python knows."""
    tape = look_at(registry.active)
    if tape == 0:
        return -1
    if kind_of(tape) == registry.tape_type:
        result = 0 if load_i8(tape + registry.given_arrays) == registry.false else 1
    elif tape == registry.false:
        result = 0
    else:
        result = 1 if tape == registry.zero else -1
    c_api.Py_DecRef(tape)
    return result


def operands_for_recorder(registry: RegistryTable, call: RecordedCall):
    """The operands of a call as a tuple, numbers as floats where the result is of floats; 0 with an exception.

    Integers stay integers for integer results: beyond 2**53 they are no doubles, and shifts accept no doubles.
    """
    result = c_api.PyTuple_New(call.count)
    for i in range(call.count):
        if result == 0:
            return 0
        x = call.args[i]
        if kind_of(x) == registry.tensor_type or (kind_of(x) == registry.int_type and call.floats == 0):
            c_api.Py_IncRef(x)
        else:
            x = c_api.PyFloat_FromDouble(load_f8(call.operands + CallOperand.SIZE * i + CallOperand.double))
            if x == 0:
                return dropped(result)
        c_api.PyTuple_SetItem(result, i, x)
    return result


@kept_apart
def notify_by_python(registry: RegistryTable, notify, call: RecordedCall):
    """Notify a recorder by its Python function: 1; -1 with an exception."""
    arguments, operands = sixteen_words(), operands_for_recorder(registry, call)
    if operands == 0:
        return -1
    store_i8(arguments, call.operation)
    store_i8(arguments + 8, operands)
    store_i8(arguments + 16, call.result)
    params = c_api.PyTuple_New(0) if call.params == 0 else call.params
    store_i8(arguments + 24, params)
    c_api.Py_IncRef(call.params)
    answer = c_api.PyObject_Vectorcall(notify, arguments, 4, 0)
    c_api.Py_DecRef(operands)
    c_api.Py_DecRef(params)
    c_api.Py_DecRef(answer)
    return 1 if answer != 0 else -1


def notify_recorder(registry: RegistryTable, entry: CallEntry, args, operands, result):
    """Notify the recorder in force: 1; 0 with an exception."""
    recorder = RecorderObject(look_at(registry.recorder))
    if recorder == 0 or kind_of(recorder) != registry.recorder_type:
        c_api.Py_DecRef(recorder)
        return 1  # the mode has ended meanwhile
    call, tables, done = RecordedCall(sixteen_words()), tables_of(registry, recorder), 0
    call.operation = entry.operation
    call.params = entry.params
    c_api.Py_IncRef(call.operation)  # Python code that runs may have another call take the entry's place
    c_api.Py_IncRef(call.params)
    call.count = entry.operands
    call.floats = 1 if entry.dtype == c_api.SINGLES or entry.dtype == c_api.DOUBLES else 0
    call.shows = 1 if entry.target == structs.SHOWN or entry.target == structs.ALIASED else 0
    call.args = args
    call.operands = operands
    call.result = result
    if tables != 0:
        done = call_two(load_i8(tables), tables, call)
    if done == 0:
        done = notify_by_python(registry, recorder.notify, call)
    c_api.Py_DecRef(call.operation)
    c_api.Py_DecRef(call.params)
    c_api.Py_DecRef(recorder)
    return 1 if done == 1 else 0


# Calls in the table whose values a Python function computes: no inner loop of NumPy's, or two results.


def values(operands, count, row):
    """Write the values of operands, numbers as floats: new references; 0 with an exception."""
    for i in range(count):
        at = CallOperand(operands + CallOperand.SIZE * i)
        value = at.object
        if value == 0:
            value = c_api.PyFloat_FromDouble(load_f8(at + CallOperand.double))
            if value == 0:
                drop_all(row, row + 8 * (i - 1))
                return 0
        else:
            c_api.Py_IncRef(value)
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
    fresh = array.base == 0 and array.flags & c_api.A_SIMPLE == c_api.A_SIMPLE
    for i in range(structs.MOST_OPERANDS):
        fresh = fresh and CallOperand(operands + CallOperand.SIZE * i).object != array
    if fresh:
        return array
    copied = array_copy(registry.copy_array, array, c_api.C_ORDER) if registry.copy_array != 0 else 0
    c_api.Py_DecRef(array)
    return copied


def as_value(registry: RegistryTable, entry: CallEntry, operands, value):
    """The value for a tensor from a function's result, whose reference is taken over; 0 where Python has to do it."""
    if entry.ndim == 0 and entry.dtype == c_api.DOUBLES:
        number = c_api.PyFloat_AsDouble(value)
        c_api.Py_DecRef(value)
        if number == -1.0 and c_api.PyErr_Occurred() != 0:
            c_api.PyErr_Clear()
            return 0
        return c_api.PyFloat_FromDouble(number)
    if kind_of(value) == registry.array_type and is_as_recorded(entry, value, entry.dtype):
        return owned(registry, operands, value)
    return dropped(value)


def both_values(registry: RegistryTable, entry, operands, results, out):
    """Write the values for two tensors from a function's tuple: new references; 0 where Python has to do it."""
    if kind_of(results) != registry.tuple_type or c_api.PyTuple_Size(results) != 2:
        return 0
    value, extra = c_api.PyTuple_GetItem(results, 0), c_api.PyTuple_GetItem(results, 1)
    if kind_of(extra) != registry.array_type or is_as_recorded(entry, extra, c_api.LONGS) == 0:
        return 0
    c_api.Py_IncRef(value)
    c_api.Py_IncRef(extra)
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
    c_api.Py_IncRef(function)
    result = c_api.PyObject_Vectorcall(function, row, count, 0)
    c_api.Py_DecRef(function)
    drop_all(row, row + 8 * (count - 1))
    if result == 0:
        return 0
    if entry.extra != 0:
        both = both_values(registry, entry, operands, result, out)
        c_api.Py_DecRef(result)
        return both
    store_i8(out, as_value(registry, entry, operands, result))
    store_i8(out + 8, 0)
    return load_i8(out)


def are_alike(operands, before):
    """Whether operands that were read again have the same forms, slots and values."""
    for i in range(structs.MOST_OPERANDS):
        a, b = CallOperand(operands + CallOperand.SIZE * i), CallOperand(before + CallOperand.SIZE * i)
        same = a.form == b.form and a.slot == b.slot
        if not same or a.object != b.object:
            return 0
    return 1


def paired(entry: CallEntry, result, second):
    """A tuple of both results, which takes over their references; 0 with an exception."""
    pair, both = entry.pair, c_api.PyTuple_New(2)
    if both == 0:
        c_api.Py_DecRef(result)
        return dropped(second)
    c_api.PyTuple_SetItem(both, 0, result)
    c_api.PyTuple_SetItem(both, 1, second)
    c_api.Py_IncRef(pair)
    tensor = c_api.PyObject_CallOneArg(pair, both)
    c_api.Py_DecRef(pair)
    c_api.Py_DecRef(both)
    return tensor


# The arguments of a call as words: part of its key in the table.
#
# How many words there are, then for each argument a tag and what it is (kernels/native/structs.py).

CONTROL = True

LARGEST_HASH = (1 << 62) - 1
MOST_DIMS = 4
LONGEST = 4 + MOST_DIMS  # the most words of an argument that is no sequence, and one more


def put_int(x, out, used):
    """Write the value of an int; return how many words are used then, 0 if the int needs more than 64 bits."""
    number = c_api.PyLong_AsLongLong(x)
    if number == -1 and c_api.PyErr_Occurred() != 0:
        c_api.PyErr_Clear()
        return 0
    store_i8(out + 8 * used, number)
    return used + 1


def put_bound(registry: RegistryTable, x, out, used):
    """Write a bound of a slice: None or an int."""
    if used == 0:
        return 0
    if x == registry.none:
        store_i8(out + 8 * used, structs.NO_BOUND)
        return used + 1
    kind = kind_of(x)
    if kind == registry.numpy_int:
        store_i8(out + 8 * used, load_i8(x + HEADER))
    elif kind != registry.int_type or put_int(x, out, used) == 0:
        return 0
    return used + 1 if word(out, used) != structs.NO_BOUND else 0


def trues(data, count):
    """How many elements of a mask are true."""
    true_count = 0
    for k in range(count):
        true_count += 1 if pointer_b1(data + k)[0] != 0 else 0
    return true_count


def add_array(arrays, data, copied):
    """Note the memory of an array, and whether it is a copy that is to be released."""
    count = load_i8(arrays)
    store_i8(arrays + 8 * (1 + 2 * count), data)
    store_i8(arrays + 8 * (2 + 2 * count), copied)
    store_i8(arrays, count + 1)


def put_array(registry: RegistryTable, x: ArrayObject, out, used, arrays):
    """Write the shape of an int64 array or of a mask."""
    ndim, is_mask, at = x.ndim, x.dtype == registry.bools, out + 8 * used
    if (
        (x.dtype != registry.longs and not is_mask)
        or ndim < 1
        or ndim > MOST_DIMS
        or x.flags & c_api.A_SIMPLE != c_api.A_SIMPLE
    ):
        return 0
    store_i8(at, structs.ARRAY_ITEM)
    store_i8(at + 8, 1 + trues(x.data, elements(x.shape, ndim)) if is_mask else 0)
    store_i8(at + 16, ndim)
    for k in range(ndim):
        store_i8(at + 24 + 8 * k, x.shape[k])
    add_array(arrays, x.data, 0)
    return used + 3 + ndim


def put_list(registry: RegistryTable, x, out, used, arrays):
    """Write the shape of a list of ints, which is copied."""
    count, at = c_api.PyList_Size(x), out + 8 * used
    copy = c_api.PyMem_RawMalloc(8 * count) if 0 < count <= structs.MOST_JOINED else 0
    if copy == 0:
        return 0
    good = 1
    for k in range(count):
        element = c_api.PyList_GetItem(x, k)
        if kind_of(element) != registry.int_type or put_int(element, copy, k) == 0:
            good = 0
    if good == 0:
        c_api.PyMem_RawFree(copy)
        return 0
    store_i8(at, structs.ARRAY_ITEM)
    store_i8(at + 8, 0)
    store_i8(at + 16, 1)
    store_i8(at + 24, count)
    add_array(arrays, copy, 1)
    return used + 4


def put_item(registry: RegistryTable, x, out, used, arrays):
    """Write the words of an argument that is no sequence behind those used; 0 if native code does not accept it.

    ``arrays`` is 0 where the elements of arrays would be part of the key. An object that is no number is known by its
    address: a call is entered only if it is immutable.
    """
    if used == 0 or used > structs.MOST_WORDS - LONGEST:
        return 0
    kind, at = kind_of(x), out + 8 * used
    if kind == registry.int_type:
        store_i8(at, structs.INT_ITEM)
        return put_int(x, out, used + 1)
    if arrays != 0:
        return put_indices(registry, x, out, used, arrays)
    store_i8(at, structs.FLOAT_ITEM if kind == registry.float_type else structs.OBJECT_ITEM)
    store_i8(at + 8, bits_of(c_api.PyFloat_AsDouble(x)) if kind == registry.float_type else x)
    return used + 2


def put_indices(registry: RegistryTable, x, out, used, arrays):
    """Write the words of an item of an index that is no int of Python's."""
    kind, at = kind_of(x), out + 8 * used
    if kind == registry.slice_type:
        store_i8(at, structs.SLICE_ITEM)
        used = put_bound(registry, word(x, 2), out, used + 1)
        used = put_bound(registry, word(x, 3), out, used)
        return put_bound(registry, word(x, 4), out, used)
    if kind == registry.list_type or kind == registry.tensor_type or kind == registry.array_type:
        return put_elements(registry, x, out, used, arrays)
    store_i8(at, structs.INT_ITEM if kind == registry.numpy_int else structs.OBJECT_ITEM)
    store_i8(at + 8, load_i8(x + HEADER) if kind == registry.numpy_int else x)
    return used + 2 if kind == registry.numpy_int or x == registry.none or x == registry.ellipsis else 0


def put_elements(registry: RegistryTable, x, out, used, arrays):
    """Write the words of a list, a tensor or an array."""
    if load_i8(arrays) == structs.MOST_ARRAYS:
        return 0
    if kind_of(x) == registry.list_type:
        return put_list(registry, x, out, used, arrays)
    array = ArrayObject(x)
    if kind_of(x) == registry.tensor_type:
        array = TensorObject(x).value
    if array == 0 or kind_of(array) != registry.array_type:
        return 0
    if array.ndim == 0 and array.dtype == registry.longs and array.flags & c_api.A_SIMPLE == c_api.A_SIMPLE:
        tape = look_at(registry.active)
        c_api.Py_DecRef(tape)
        if tape == 0 or tape == registry.none:  # for a recorder it is more than its number
            return 0
        store_i8(out + 8 * used, structs.INT_ITEM)
        store_i8(out + 8 * used + 8, load_i8(array.data))
        return used + 2
    return put_array(registry, array, out, used, arrays)


def put_call(registry: RegistryTable, args, count, names, out, arrays):
    """Write the words of a call's arguments; 0 if native code does not accept all of them.

    The first word is the count of all words, 0 if there are no arguments. The names of keyword arguments, which follow
    the others, come before these as a sequence. A list in an index picks elements, and is no sequence; the items of a
    sequence are none.
    """
    used, all_count = 1, count + 1 + c_api.PyTuple_Size(names) if names != 0 else count
    for k in range(all_count):
        x, size = names if k == count else word(args, k - (1 if k > count else 0)), 1
        kind = kind_of(x)
        is_list = kind == registry.list_type and arrays == 0
        if is_list or kind == registry.tuple_type:
            if used == 0 or used > structs.MOST_WORDS - LONGEST:
                return 0
            size = c_api.PyList_Size(x) if is_list else c_api.PyTuple_Size(x)
            store_i8(out + 8 * used, structs.NAMES_ITEM if k == count else structs.SEQUENCE_ITEM)
            store_i8(out + 8 * used + 8, size)
            used += 2
        for i in range(size):
            item = x
            if is_list:
                item = c_api.PyList_GetItem(x, i)
            elif kind == registry.tuple_type:
                item = c_api.PyTuple_GetItem(x, i)
            used = put_item(registry, item, out, used, arrays)
    store_i8(out, used if used != 1 else 0)
    return used


def forget(arrays):
    """Release the copies of lists."""
    for k in range(load_i8(arrays)):
        if word(arrays, 2 + 2 * k) != 0:
            c_api.PyMem_RawFree(word(arrays, 1 + 2 * k))
    store_i8(arrays, 0)


def mixed(hashed, x):
    """A hash with one more word in it."""
    hashed = (hashed ^ x) * 5871781006564002453
    return hashed ^ (hashed >> 29)


def hash_of(words):
    """A hash of words that begin with their count."""
    hashed = 0
    for k in range(load_i8(words)):
        hashed = mixed(hashed, word(words, k))
    return hashed & LARGEST_HASH


def ints_in(words):
    """How many ints an index is made of, which are its last words; not positive where it has anything else."""
    count, first = (load_i8(words) - 1) // 2, 1 if word(words, 1) == structs.SEQUENCE_ITEM else 0
    k = first
    while k < count and word(words, 1 + 2 * k) == structs.INT_ITEM:
        k += 1
    return count - first if k == count else 0


def words_of(args: int, count: int, names: int, marks: int, out: int) -> int:
    """Write the words of arguments, for Python; return how many arrays there are, -1 where native code refuses them."""
    registry, arrays = tape_registry(), sixteen_words()
    store_i8(arrays, 0)
    used = put_call(registry, args, count, names, out, arrays if marks & structs.INDEXED != 0 else 0)
    count_of_arrays = load_i8(arrays)
    forget(arrays)
    return count_of_arrays if used != 0 else -1


def hash_words(words: int) -> int:
    """The hash of words, for Python."""
    return hash_of(words)
