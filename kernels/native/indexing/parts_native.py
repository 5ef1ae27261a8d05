"""``x[key]`` with ints, slices, None and Ellipsis as one native call, if this key met this form before."""

from __future__ import annotations

from kernels.compiler.signatures import Int32, Word
from kernels.native.calls.call_table_native import hit_assign, hit_picked, missed
from kernels.native.calls.calls_native import find
from kernels.native.calls.computing_native import keep
from kernels.native.calls.keys_native import argument_words, hash_of, key_words
from kernels.native.calls.notifying_native import notify_recorder, tape_in_force
from kernels.native.memory import load_i4, load_i8, store_i8, word
from kernels.native.numpy_api import new_view, set_base
from kernels.native.objects_native import kind_of, new_tensor, put
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    PyErr_Occurred,
    PyList_Append,
    PyList_New,
    PyList_Size,
    PyType_IsSubtype,
    PyWeakref_NewRef,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.tape.tape_native import commit, reserve
from kernels.native.words import (
    A_DATA,
    A_DTYPE,
    A_FLAGS,
    A_NDIM,
    A_SHAPE,
    A_STRIDES,
    AXIS,
    B_ENTRIES,
    B_FORM,
    E_BLOCK,
    E_CODE,
    E_COUNT,
    E_EXTENT,
    E_FLAGS,
    E_FORM,
    E_KEY,
    E_LARGE,
    E_NDIM,
    E_OFFSET,
    E_OPERATION,
    E_SHAPE,
    E_START,
    E_STRIDES,
    G_ARRAY,
    G_BASE,
    G_TENSOR,
    G_VIEW,
    INT_ITEM,
    MOST_VIEWS,
    O_BASE,
    O_BYTES,
    O_FORM,
    O_OFFSET,
    O_SLOT,
    O_VALUE,
    O_VIEWS,
    OP_ASSIGN,
    OP_PART,
    T_ROOM,
    T_SIZE,
    T_WORDS,
    UNHELD,
)

CONTROL = True


def entry_of(registry, op, form, value, words, wants):
    """The entry of an index on tensors of a form, and of a value to write: for any ints, or for this index; or 0."""
    ints = ints_in(words)
    entry = find(registry, op, form, 0, value, wants, ints) if ints != 0 else 0
    if entry != 0:
        for axis in range(ints):
            number, extent = word(words, 2 + 2 * axis), word(word(entry, E_KEY), AXIS * axis)
            if number < -extent or number >= extent:
                return 0
        return entry
    entry = find(registry, op, form, hash_of(words), value, wants, 0)
    if entry != 0:
        for k in range(load_i8(words)):
            if word(word(entry, E_KEY), k) != word(words, k):
                return 0
    return entry


def ints_in(words):
    """How many ints an index is made of; 0 where it has anything else."""
    count = load_i8(words) // 2
    for k in range(count):
        if word(words, 1 + 2 * k) == 0:
            return k  # behind a tuple
        if word(words, 1 + 2 * k) != INT_ITEM:
            return 0
    return count


def start_of(entry, words, at):
    """Where a part begins in memory or in the gradient, in bytes: E_START or E_OFFSET of its entry, or by any ints."""
    return word(entry, at) if word(entry, E_EXTENT) == 0 else start_by_ints(entry, words, 1 if at == E_START else 2)


def start_by_ints(entry, words, stride):
    total, axes = 0, word(entry, E_KEY)
    for axis in range(word(entry, E_EXTENT)):
        number = word(words, 2 + 2 * axis)
        number += word(axes, AXIS * axis) if number < 0 else 0
        total += number * word(axes, AXIS * axis + stride)
    return total


def look_up(registry, op, x, tagged_tape, words):
    """The entry of this index on a tensor; 0 if there is none, or native code cannot do it now."""
    value, slot, t = load_i8(x + O_VALUE), load_i8(x + O_SLOT), tagged_tape & ~1
    if value == 0 or kind_of(value) != word(registry, G_ARRAY):
        return 0
    entry = entry_of(registry, op, load_i8(x + O_FORM), 0, words, 1 if t != 0 and slot != 0 else 0)
    if entry == 0 or (tagged_tape != t and word(entry, E_OPERATION) == 0):  # a recorder needs the index itself
        return 0
    views = load_i8(base_of(x, entry) + O_VIEWS)
    count = PyList_Size(views) if views != 0 else 0
    block = word(entry, E_BLOCK)
    if count < 0 or (count >= MOST_VIEWS and (count + 1) & count == 0):
        PyErr_Clear()
        return 0
    if block != 0 and (word(t, T_SIZE) + word(block, B_ENTRIES) > word(t, T_ROOM) or reserve(t, 4) == 0):
        return 0
    return entry


def base_of(x, entry):
    """The base of the part, borrowed."""
    return load_i8(x + O_BASE) if word(entry, E_COUNT) != 0 else x


def shown(registry, entry, value, words):
    """A view of an array as the entry and the index say; 0 with an exception."""
    dtype = load_i8(value + A_DTYPE)
    Py_IncRef(dtype)
    data = load_i8(value + A_DATA) + start_of(entry, words, E_START)
    flags = load_i4(value + A_FLAGS) & word(entry, E_FLAGS)
    shape, strides = word(entry, E_SHAPE), word(entry, E_STRIDES)
    made = new_view(
        word(registry, G_VIEW), word(registry, G_ARRAY), dtype, word(entry, E_NDIM), shape, strides, data, flags
    )
    if made == 0:
        return 0
    Py_IncRef(value)
    if set_base(word(registry, G_BASE), made, value) != 0:
        Py_DecRef(made)
        return 0
    return made


def finish(registry, t, x, entry, result, reference, words):
    """Make a new tensor the view, and enter it into its base's list of views; 0 with an exception."""
    base = base_of(x, entry)
    made = shown(registry, entry, load_i8(x + O_VALUE), words)
    if made == 0 or PyList_Append(load_i8(base + O_VIEWS), reference) != 0:
        if made != 0:
            Py_DecRef(made)
        return 0
    offset = start_of(entry, words, E_OFFSET)
    if base != x:
        offset += load_i8(x + O_OFFSET)
    store_i8(result + O_VALUE, made)
    put(result + O_FORM, word(entry, E_FORM))
    put(result + O_BASE, base)
    store_i8(result + O_OFFSET, offset)
    block, slot = word(entry, E_BLOCK), load_i8(x + O_SLOT)
    if block != 0:
        at = word(t, T_WORDS) + 8 * (word(t, T_SIZE) + 1)
        keep(t, at, slot & ~UNHELD if slot > 0 else slot)
        store_i8(at + 8, offset)
        store_i8(at + 16, word(entry, E_CODE))
        Py_IncRef(word(block, B_FORM))
        store_i8(result + O_SLOT, commit(t, 4))
        store_i8(result + O_BYTES, word(entry, E_LARGE))
    return 1


def prepared(registry, x, entry):
    """A list for the views of a base that has none yet, and a new tensor; 0 with an exception.

    Allocating may start a garbage collection, and so run any Python code: the caller reads everything again.
    """
    base = base_of(x, entry)
    if load_i8(base + O_VIEWS) == 0:
        views = PyList_New(0)
        if views == 0:
            return 0
        if load_i8(base + O_VIEWS) == 0:
            store_i8(base + O_VIEWS, views)
        else:
            Py_DecRef(views)
    return new_tensor(registry)


def shown_again(registry, op, x, tagged_tape, words):
    """Return a view like one that was made before; 0, without an exception where Python has to do it."""
    entry = look_up(registry, op, x, tagged_tape, words)
    result = prepared(registry, x, entry) if entry != 0 else 0
    if result == 0:
        return 0
    reference, done = PyWeakref_NewRef(result, 0), 0
    tagged_tape = tape_in_force(registry)
    entry = look_up(registry, op, x, tagged_tape, words) if tagged_tape != -1 and reference != 0 else 0
    if entry != 0 and load_i8(base_of(x, entry) + O_VIEWS) != 0:
        done = finish(registry, tagged_tape & ~1, x, entry, result, reference, words)
    if done != 0 and tagged_tape & 1 != 0:
        args = three_words()
        store_i8(args, x)
        done = notify_recorder(registry, entry, args, 0, result)
    if reference != 0:
        Py_DecRef(reference)
    if done == 0:
        Py_DecRef(result)
        return 0
    return result


def hit(registry, x, key):
    """Return ``x[key]``, if the call is in the table."""
    tagged_tape, words = tape_in_force(registry), thirty_words()
    if tagged_tape == -1 or kind_of(x) != word(registry, G_TENSOR) or key_words(registry, key, words) == 0:
        return 0
    return shown_again(registry, OP_PART, x, tagged_tape, words)


def hit_view(op: Word, args: Word, count: Word, ignored: Word) -> Word:
    """Return a view whose arguments are ints, if the call is in the table."""
    registry, words = tape_registry(), thirty_words()
    tagged_tape, x = tape_in_force(registry), load_i8(args)
    if tagged_tape == -1 or kind_of(x) != word(registry, G_TENSOR):
        return 0
    if argument_words(registry, args + 8, count - 1, words) == 0:
        return 0
    return shown_again(registry, op, x, tagged_tape, words)


def mp_subscript(x: Word, key: Word) -> Word:
    result = hit(tape_registry(), x, key)
    if result == 0 and PyErr_Occurred() == 0:
        args = three_words()
        store_i8(args, x)
        store_i8(args + 8, key)
        result = hit_picked(OP_PART, args, 2)
        if result == 0 and PyErr_Occurred() == 0:
            return missed(OP_PART, args, 2, 0)
    return result


def is_written(registry, x, key, value):
    """Whether a value is the view ``x[key]`` itself, as at the end of ``x[key] += v``."""
    words, array, part = thirty_words(), load_i8(x + O_VALUE), 0
    if PyType_IsSubtype(kind_of(value), word(registry, G_TENSOR)) != 0 and load_i8(value + O_BASE) != 0 and array != 0:
        part = load_i8(value + O_VALUE)
    if part == 0 or kind_of(part) != word(registry, G_ARRAY) or kind_of(array) != word(registry, G_ARRAY):
        return 0
    if load_i8(load_i8(value + O_BASE) + O_SLOT) <= 0 or key_words(registry, key, words) == 0:
        return 0
    entry = entry_of(registry, OP_PART, load_i8(x + O_FORM), 0, words, 1)
    if entry == 0 or base_of(x, entry) != load_i8(value + O_BASE) or load_i4(part + A_NDIM) != word(entry, E_NDIM):
        return 0
    for k in range(word(entry, E_NDIM)):
        same = word(load_i8(part + A_SHAPE), k) == word(word(entry, E_SHAPE), k)
        if not same or word(load_i8(part + A_STRIDES), k) != word(word(entry, E_STRIDES), k):
            return 0
    return load_i8(part + A_DATA) == load_i8(array + A_DATA) + start_of(entry, words, E_START)


def done(result):
    """The status of a slot function that returns no object: release the result; -1 with an exception."""
    if result == 0:
        return -1
    Py_DecRef(result)
    return 0


def mp_ass_subscript(x: Word, key: Word, value: Word) -> Int32:
    registry, args, written = tape_registry(), three_words(), 0
    if value != 0 and kind_of(x) == word(registry, G_TENSOR):
        written = 1 if is_written(registry, x, key, value) else 0
        if written == 0:
            result = hit_assign(x, key, value)
            if result != 0 or PyErr_Occurred() != 0:
                return done(result)
    store_i8(args, x)
    store_i8(args + 8, key)
    store_i8(args + 16, value)
    count = 1 if written != 0 else 2 if value == 0 else 3
    return done(missed(OP_ASSIGN, args, count, written))
