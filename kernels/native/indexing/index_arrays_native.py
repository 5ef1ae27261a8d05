"""Arrays, lists and masks among the arguments of a call: as words of the call's key, and as element numbers."""

from __future__ import annotations

from kernels.language.native_types import Word
from kernels.native.c_api import (
    A_SIMPLE,
    LONGS,
    ArrayObject,
    PyErr_Clear,
    PyErr_Occurred,
    PyList_GetItem,
    PyList_Size,
    PyLong_AsLongLong,
    PyMem_RawFree,
    PyMem_RawMalloc,
    PyTuple_GetItem,
    PyTuple_Size,
    TensorObject,
    sixteen_words,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.call_structs import (
    ARRAY_ITEM,
    BY_ARRAYS,
    MOST_ITEMS,
    OP_ASSIGN,
    OP_PART,
    CallEntry,
    CallOperand,
    GatherPlan,
    IndexAxis,
)
from kernels.native.calls.calls_native import can_do, dropped, find, finished
from kernels.native.calls.computing_native import array_for
from kernels.native.calls.keys_native import hash_of, item
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.memory import load_i4, load_i8, pointer_b1, store_i4, store_i8, word
from kernels.native.objects_native import array_of, elements, kind_of, new_tensor, read_all
from kernels.native.structs import RegistryTable

CONTROL = True


MOST_USED, MOST_DIMS, MOST_LISTED = 20, 4, 1 << 10


def trues(data, count):
    """How many elements of a mask are true."""
    true_count = 0
    for k in range(count):
        true_count += 1 if pointer_b1(data + k)[0] != 0 else 0
    return true_count


def array_words(registry: RegistryTable, value: ArrayObject, out, known):
    """Write the words of an int64 array or a mask, and its address; return how many, 0 where Python has to do it."""
    ndim, dtype, data = value.ndim, value.dtype, value.data
    is_mask = dtype == registry.bools
    if (dtype != registry.longs and not is_mask) or ndim < 1 or ndim > MOST_DIMS:
        return 0
    if value.flags & A_SIMPLE != A_SIMPLE:
        return 0
    shape = value.shape
    store_i8(out, ARRAY_ITEM)
    store_i8(out + 8, 1 + trues(data, elements(shape, ndim)) if is_mask else 0)
    store_i8(out + 16, ndim)
    for k in range(ndim):
        store_i8(out + 24 + 8 * k, shape[k])
    store_i8(known, data)
    store_i8(known + 8, 0)
    return 3 + ndim


def list_words(registry: RegistryTable, x, out, known):
    """The same for a list of ints, which is copied; the caller releases the copy."""
    count = PyList_Size(x)
    copy = PyMem_RawMalloc(8 * count) if 0 < count <= MOST_LISTED else 0
    if copy == 0:
        return 0
    good = 1
    for k in range(count):
        element = PyList_GetItem(x, k)
        number = PyLong_AsLongLong(element) if kind_of(element) == registry.int_type else 0
        if kind_of(element) != registry.int_type:
            good = 0
        store_i8(copy + 8 * k, number)
    if PyErr_Occurred() != 0:
        PyErr_Clear()
        good = 0
    if good == 0:
        PyMem_RawFree(copy)
        return 0
    store_i8(out, ARRAY_ITEM)
    store_i8(out + 8, 0)
    store_i8(out + 16, 1)
    store_i8(out + 24, count)
    store_i8(known, copy)
    store_i8(known + 8, 1)
    return 4


def any_words(registry: RegistryTable, x: TensorObject, out, known):
    """The words of any item; for an array its address and whether it is a copy; 0 where Python has to do it."""
    kind = kind_of(x)
    if kind == registry.list_type:
        return list_words(registry, x, out, known)
    if kind == registry.tensor_type:
        x = x.value
        kind = kind_of(x) if x != 0 else 0
        if kind != registry.array_type:
            return 0
    if kind == registry.array_type:
        return array_words(registry, x, out, known)
    return item(registry, x, out)


def forget(arrays):
    """Release the copies of lists."""
    for k in range(word(arrays, 0)):
        if word(arrays, 2 + 2 * k) != 0:
            PyMem_RawFree(word(arrays, 1 + 2 * k))
    store_i8(arrays, 0)


def all_words(registry, holder, args, count, words, arrays):
    """Write the words of items (of a tuple, or of arguments), and the addresses of arrays: count, address, ...

    0 where Python has to do it, and where there is no array; then no copy is kept.
    """
    store_i8(arrays, 0)
    used, good = 1, count <= MOST_ITEMS
    for k in range(count if good else 0):
        x = PyTuple_GetItem(holder, k) if holder != 0 else word(args, k)
        known = arrays + 8 * (1 + 2 * word(arrays, 0))
        size = any_words(registry, x, words + 8 * used, known) if good and used < MOST_USED else 0
        if size == 0:
            good = False
        elif word(words, used) == ARRAY_ITEM:
            store_i8(arrays, word(arrays, 0) + 1)
        used += size
    store_i8(words + 8 * used, 1 if holder != 0 else 0)
    store_i8(words, used + 1)
    if not good or word(arrays, 0) == 0:
        forget(arrays)
        return 0
    return 1


def index_words(registry: RegistryTable, op, args, count, words, arrays):
    """The same for the arguments beside a tensor; for an index, for its items."""
    key = word(args, 1)
    if op in (OP_PART, OP_ASSIGN) and kind_of(key) == registry.tuple_type:
        return all_words(registry, key, 0, PyTuple_Size(key), words, arrays)
    return all_words(registry, 0, args + 8, count - 1, words, arrays)


def words_of(op: int, args: int, count: int, out: int) -> int:
    """Write the words of a call's arguments, for Python; return their hash, -1 if native code does not accept them."""
    arrays = sixteen_words()
    if index_words(tape_registry(), op, args, count, out, arrays) == 0:
        return -1
    forget(arrays)
    return hash_of(out)


def entry_by(registry, op, form, value, wants, words):
    """The entry of a call on a tensor of a form, and on a value to write, with these words; 0 if there is none."""
    entry = CallEntry(find(registry, op, form, BY_ARRAYS, value, wants, hash_of(words)))
    if entry != 0:
        for k in range(load_i8(words)):
            if word(entry.key, k) != word(words, k):
                return 0
    return entry


def place(layout: GatherPlan, arrays, k):
    """The number of the element that is picked; -1 if an index is out of range."""
    at = word(layout.base, k)
    for j in range(layout.takes):
        array = IndexAxis(layout + 8 * (GatherPlan.SIZE + IndexAxis.SIZE * j))
        index, extent = word(word(arrays, 1 + 2 * j), word(array.where, k)), array.extent
        if index >= extent or index < array.least:
            return -1
        at += (index if index >= 0 else index + extent) * array.step
    return at


def places_held(layout: GatherPlan, arrays, out):
    """Write the numbers of the elements where a mask is true."""
    written, inner, base, mask = 0, layout.inner, layout.base, word(arrays, 1)
    for k in range(layout.count):
        if pointer_b1(mask + k)[0] != 0:
            for r in range(inner):
                store_i8(out + 8 * (written + r), word(base, k * inner + r))
            written += inner


def places(layout: GatherPlan, arrays, out):
    """Write the numbers of all picked elements; 0 if an index is out of range."""
    if layout.inner != 0:
        places_held(layout, arrays, out)
        return 1
    for k in range(layout.count):
        at = place(layout, arrays, k)
        if at < 0:
            return 0
        store_i8(out + 8 * k, at)
    return 1


# Advanced indexing by arrays, lists and masks as one native call, if shapes and forms were seen before.
#
# The entry's layout says which element of each index array belongs to an element of the result, and the strides.


def copied(source, picked, out, count, item):
    """Copy the picked elements."""
    if item == 8:
        for k in range(count):
            store_i8(out + 8 * k, load_i8(source + 8 * word(picked, k)))
    elif item == 4:
        for k in range(count):
            store_i4(out + 4 * k, load_i4(source + 4 * word(picked, k)))
    else:
        for k in range(count * item):
            pointer_b1(out + k)[0] = pointer_b1(source + item * word(picked, k // item) + k % item)[0]


def picked_array(registry, entry: CallEntry, arrays):
    """A new array with the numbers of the picked elements; 0 without an exception if one is out of range."""
    array = ArrayObject(array_of(registry, entry.ndim, entry.shape, LONGS, False))
    if array != 0 and places(entry.layout, arrays, array.data) == 0:
        return dropped(array)
    return array


def finish(registry, t, entry: CallEntry, args, operands: CallOperand, result, arrays):
    """Give a new tensor the picked elements, and record their numbers; 0 where Python has to do it."""
    picked = ArrayObject(picked_array(registry, entry, arrays) if can_do(t, entry, operands) != 0 else 0)
    value = ArrayObject(array_for(registry, entry) if picked != 0 else 0)
    if value != 0:
        count = elements(entry.shape, entry.ndim)
        source = ArrayObject(operands.object).data
        copied(source, picked.data, value.data, count, entry.count)
    CallOperand(operands + CallOperand.SIZE).object = picked
    results = three_words()
    store_i8(results, result)
    store_i8(results + 8, 0)
    result = finished(registry, t, entry, args, operands, results, value)
    dropped(picked)
    return result


def hit_picked(op: Word, args: Word, count: Word, ignored: Word) -> Word:
    """Return the picked elements of a tensor; 0 where Python has to do it or has raised."""
    registry, operands, words, arrays = tape_registry(), CallOperand(thirty_words()), thirty_words(), sixteen_words()
    result = 0
    for again in range(2):  # making a tensor may run any Python code: read everything again
        tagged_tape = tape_in_force(registry)
        if tagged_tape == -1 or tagged_tape & 1 != 0 or read_all(registry, args, 1, operands) == 0:
            return dropped(result)
        value = operands.object
        if value == 0 or kind_of(value) != registry.array_type:
            return dropped(result)
        if index_words(registry, op, args, count, words, arrays) == 0:
            return dropped(result)
        wants = 1 if tagged_tape != 0 and operands.slot != 0 else 0
        entry = entry_by(registry, op, operands.form, 0, wants, words)
        if entry == 0:
            forget(arrays)
            return dropped(result)
        if again == 0:
            forget(arrays)
            result = new_tensor(registry)
            if result == 0:
                return 0
    result = finish(registry, tagged_tape, entry, args, operands, result, arrays)
    forget(arrays)
    return result
