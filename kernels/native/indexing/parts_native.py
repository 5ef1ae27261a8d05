"""``x[key]`` with ints, slices, None and Ellipsis as one native call, if this key met this form before."""

from __future__ import annotations

from kernels.language.native_types import Int32, Word
from kernels.native.c_api import (
    UNHELD,
    ArrayObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    PyErr_Occurred,
    PyList_Append,
    PyList_Size,
    PyType_IsSubtype,
    PyWeakref_NewRef,
    TensorObject,
    new_view,
    set_base,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.call_structs import AXIS, INT_ITEM, MOST_VIEWS, OP_ASSIGN, OP_PART, CallEntry
from kernels.native.calls.calls_native import find
from kernels.native.calls.computing_native import keep
from kernels.native.calls.functions_native import hit_assign, hit_picked, missed
from kernels.native.calls.in_place_native import is_listing
from kernels.native.calls.keys_native import argument_words, hash_of, key_words
from kernels.native.calls.notifying_native import notify_recorder, tape_in_force
from kernels.native.memory import load_i8, store_i8, word
from kernels.native.objects_native import kind_of, new_tensor, put
from kernels.native.structs import RegistryTable, TapeHeader
from kernels.native.tape_native import commit, reserve

CONTROL = True


def entry_of(registry, op, form, value, words, wants):
    """The entry of an index on tensors of a form, and of a value to write: for any ints, or for this index; or 0."""
    ints = ints_in(words)
    entry = CallEntry(find(registry, op, form, 0, value, wants, ints) if ints != 0 else 0)
    if entry != 0:
        for axis in range(ints):
            number, extent = word(words, 2 + 2 * axis), word(entry.key, AXIS * axis)
            if number < -extent or number >= extent:
                return 0
        return entry
    entry = find(registry, op, form, hash_of(words), value, wants, 0)
    if entry != 0:
        for k in range(load_i8(words)):
            if word(entry.key, k) != word(words, k):
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


def start_of(entry: CallEntry, words, at):
    """Where a part begins, in bytes: in memory (``at`` is CallEntry.start) or in the gradient (CallEntry.offset)."""
    return word(entry, at) if entry.extent == 0 else start_by_ints(entry, words, 1 if at == CallEntry.start else 2)


def start_by_ints(entry: CallEntry, words, stride):
    total, axes = 0, entry.key
    for axis in range(entry.extent):
        number = word(words, 2 + 2 * axis)
        number += word(axes, AXIS * axis) if number < 0 else 0
        total += number * word(axes, AXIS * axis + stride)
    return total


def look_up(registry: RegistryTable, op, x: TensorObject, tagged_tape, words):
    """The entry of this index on a tensor; 0 if there is none, or native code cannot do it now."""
    value, slot, t = x.value, x.slot, TapeHeader(tagged_tape & ~1)
    if value == 0 or kind_of(value) != registry.array_type:
        return 0
    entry = CallEntry(entry_of(registry, op, x.form, 0, words, 1 if t != 0 and slot != 0 else 0))
    if entry == 0 or (tagged_tape != t and entry.operation == 0):  # a recorder needs the index itself
        return 0
    views = TensorObject(base_of(x, entry)).views
    count = PyList_Size(views) if views != 0 else 0
    block = entry.block
    if count < 0 or (count >= MOST_VIEWS and (count + 1) & count == 0):
        PyErr_Clear()
        return 0
    if block != 0 and (t.size + block.entries > t.room or reserve(t, 4) == 0):
        return 0
    return entry


def base_of(x: TensorObject, entry: CallEntry):
    """The base of the part, borrowed."""
    return x.base if entry.count != 0 else x


def shown(registry: RegistryTable, entry: CallEntry, value: ArrayObject, words):
    """A view of an array as the entry and the index say; 0 with an exception."""
    dtype = value.dtype
    Py_IncRef(dtype)
    data = value.data + start_of(entry, words, CallEntry.start)
    flags = value.flags & entry.flags
    shape, strides = entry.shape, entry.strides
    made = new_view(registry.new_view, registry.array_type, dtype, entry.ndim, shape, strides, data, flags)
    if made == 0:
        return 0
    Py_IncRef(value)
    if set_base(registry.set_base, made, value) != 0:
        Py_DecRef(made)
        return 0
    return made


def finish(registry, t: TapeHeader, x: TensorObject, entry: CallEntry, result: TensorObject, reference, words):
    """Make a new tensor the view, and enter it into its base's list of views; 0 with an exception."""
    base = TensorObject(base_of(x, entry))
    made = shown(registry, entry, x.value, words)
    if made == 0 or PyList_Append(base.views, reference) != 0:
        if made != 0:
            Py_DecRef(made)
        return 0
    offset = start_of(entry, words, CallEntry.offset)
    if base != x:
        offset += x.offset
    result.value = made
    put(result + TensorObject.form, entry.form)
    put(result + TensorObject.base, base)
    result.offset = offset
    block, slot = entry.block, x.slot
    if block != 0:
        at = t.words + 8 * (t.size + 1)
        keep(t, at, slot & ~UNHELD if slot > 0 else slot)
        store_i8(at + 8, offset)
        store_i8(at + 16, entry.code)
        Py_IncRef(block.form)
        result.slot = commit(t, 4)
        result.bytes = entry.large
    return 1


def prepared(registry, x, entry):
    """A list for the views of a base that has none yet, and a new tensor; 0 with an exception.

    Allocating may start a garbage collection, and so run any Python code: the caller reads everything again.
    """
    return new_tensor(registry) if is_listing(base_of(x, entry)) else 0


def shown_again(registry, op, x, tagged_tape, words):
    """Return a view like one that was made before; 0, without an exception where Python has to do it."""
    entry = look_up(registry, op, x, tagged_tape, words)
    result = prepared(registry, x, entry) if entry != 0 else 0
    if result == 0:
        return 0
    reference, done = PyWeakref_NewRef(result, 0), 0
    tagged_tape = tape_in_force(registry)
    entry = look_up(registry, op, x, tagged_tape, words) if tagged_tape != -1 and reference != 0 else 0
    if entry != 0 and TensorObject(base_of(x, entry)).views != 0:
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


def hit(registry: RegistryTable, x, key):
    """Return ``x[key]``, if the call is in the table."""
    tagged_tape, words = tape_in_force(registry), thirty_words()
    if tagged_tape == -1 or kind_of(x) != registry.tensor_type or key_words(registry, key, words) == 0:
        return 0
    return shown_again(registry, OP_PART, x, tagged_tape, words)


def hit_view(op: Word, args: Word, count: Word, ignored: Word) -> Word:
    """Return a view whose arguments are ints, if the call is in the table."""
    registry, words = tape_registry(), thirty_words()
    tagged_tape, x = tape_in_force(registry), load_i8(args)
    if tagged_tape == -1 or kind_of(x) != registry.tensor_type:
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


def is_written(registry: RegistryTable, x: TensorObject, key, value: TensorObject):
    """Whether a value is the view ``x[key]`` itself, as at the end of ``x[key] += v``."""
    words, array, part = thirty_words(), x.value, ArrayObject(0)
    if PyType_IsSubtype(kind_of(value), registry.tensor_type) != 0 and value.base != 0 and array != 0:
        part = value.value
    if part == 0 or kind_of(part) != registry.array_type or kind_of(array) != registry.array_type:
        return 0
    if TensorObject(value.base).slot <= 0 or key_words(registry, key, words) == 0:
        return 0
    entry = CallEntry(entry_of(registry, OP_PART, x.form, 0, words, 1))
    if entry == 0 or base_of(x, entry) != value.base or part.ndim != entry.ndim:
        return 0
    for k in range(entry.ndim):
        same = part.shape[k] == entry.shape[k]
        if not same or part.strides[k] != entry.strides[k]:
            return 0
    return part.data == array.data + start_of(entry, words, CallEntry.start)


def done(result):
    """The status of a slot function that returns no object: release the result; -1 with an exception."""
    if result == 0:
        return -1
    Py_DecRef(result)
    return 0


def mp_ass_subscript(x: Word, key: Word, value: Word) -> Int32:
    registry, args, written = tape_registry(), three_words(), 0
    if value != 0 and kind_of(x) == registry.tensor_type:
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
