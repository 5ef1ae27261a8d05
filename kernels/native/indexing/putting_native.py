"""``x[key] = value`` with arrays, lists or masks as one native call, if shapes and forms were seen before.

Functions such as ``index_put`` and ``index_add`` come here too. As in assigning_native.py nobody else may see the
memory; of several values for one element the last stays.
"""

from __future__ import annotations

from kernels.language.native_types import Word
from kernels.native.c_api import (
    LONGS,
    UNHELD,
    ArrayObject,
    Py_IncRef,
    PyMem_RawCalloc,
    PyMem_RawFree,
    TensorObject,
    sixteen_words,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.call_structs import ADDING, NEST, NEST4, NEST_INT, OP_ASSIGN, CallEntry, CallOperand
from kernels.native.calls.calls_native import dropped
from kernels.native.calls.computing_native import keep
from kernels.native.calls.in_place_native import count, is_counted, is_only
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.indexing.assigning_native import (
    can_record,
    copy_of,
    is_shared,
    is_value,
    is_view_of,
    released,
    versioned,
)
from kernels.native.indexing.index_arrays_native import entry_by, forget, index_words, places
from kernels.native.memory import (
    load_f8,
    load_i4,
    load_i8,
    pointer_b1,
    pointer_f4,
    store_f8,
    store_i4,
    store_i8,
    word,
)
from kernels.native.objects_native import array_of, elements, kind_of, narrow, read_all, whole
from kernels.native.record_native import outdate
from kernels.native.structs import RegistryTable, TapeHeader

CONTROL = True


def is_twice(picked, number, extent):
    """Whether an element is picked twice, or there is no memory to find out."""
    seen, twice = PyMem_RawCalloc(extent, 1), 0
    if seen == 0:
        return True
    for k in range(number):
        at = seen + word(picked, k)
        twice += pointer_b1(at)[0]
        pointer_b1(at)[0] = 1
    PyMem_RawFree(seen)
    return twice != 0


def put(entry: CallEntry, picked, number, source, target):
    """Copy elements of a value to the picked elements."""
    item, offsets = entry.count, entry.data
    for k in range(number):
        start, to = source + word(offsets, k), target + item * word(picked, k)
        if item == 8:
            store_i8(to, load_i8(start))
        elif item == 4:
            store_i4(to, load_i4(start))
        else:
            for b in range(item):
                pointer_b1(to + b)[0] = pointer_b1(start + b)[0]


def add(entry: CallEntry, picked, number, source, target):
    """Add elements of a value to the picked elements."""
    kind, offsets = entry.kind, entry.data
    for k in range(number):
        start, at = source + word(offsets, k), word(picked, k)
        if kind == NEST:
            to = target + 8 * at
            store_f8(to, load_f8(to) + load_f8(start))
        elif kind == NEST4:
            pointer_f4(target)[at] += pointer_f4(start)[0]
        else:
            to = target + 8 * at
            store_i8(to, load_i8(to) + load_i8(start))


def record(registry, t: TapeHeader, x: TensorObject, entry: CallEntry, operands: CallOperand, picked):
    """Append the write: the tensor has a new version."""
    block, slot = entry.block, x.slot
    at = t.words + 8 * (t.size + 1)
    keep(t, at, slot & ~UNHELD)
    keep(t, at + 8, operands.slot)
    store_i8(at + 16, 0)
    store_i8(at + 24, picked)
    Py_IncRef(picked)
    store_i8(at + 32, entry.code)
    Py_IncRef(block.form)
    versioned(registry, t, x, entry, block.entries)


def is_ready(registry, t, x, entry: CallEntry, operands, wants):
    """Whether there is an entry, and native code can do it now."""
    if entry == 0:
        return False
    kind = entry.kind
    if (kind == NEST4 and narrow(operands) == 0) or (kind == NEST_INT and whole(entry, operands) == 0):
        return False
    return wants == 0 or can_record(registry, t, x, entry)


def written(registry, op, t, x: TensorObject, words, arrays, operands: CallOperand, view: TensorObject):
    """Write a value that has been read, if the call is in the table; whether that was done.

    ``view``: the one view of the tensor, which the value was copied from; or 0.
    """
    array, slot = x.value, x.slot
    alone = is_only(registry, array) if view == 0 else is_shared(registry, array, view)
    if not alone or operands.object == array:
        return False
    wants = (1 if slot != 0 else 0) + (2 if operands.slot != 0 else 0) if t != 0 else 0
    entry = CallEntry(entry_by(registry, op, x.form, operands.form, wants, words))
    unknown = view != 0 and wants != 0 and view.slot <= 0  # whether the view becomes stale
    if unknown or not is_ready(registry, t, x, entry, operands, wants):
        return False
    picked = ArrayObject(array_of(registry, entry.ndim, entry.shape, LONGS, False))
    if picked == 0:
        return False
    number, at = elements(entry.shape, entry.ndim), picked.data
    good = places(entry.layout, arrays, at) != 0
    if good and entry.extent != 0:
        good = not is_twice(at, number, entry.extent)
    if good:
        source, target = operands.place, array.data
        if op & ADDING != 0:
            add(entry, at, number, source, target)
        else:
            put(entry, at, number, source, target)
        if wants != 0:
            record(registry, t, x, entry, operands, picked)
            if view != 0:
                outdate(registry, view)
    dropped(picked)
    return good


def put_value(registry: RegistryTable, op, x: TensorObject, value, view, args, arg_count):
    """Write a value of other memory to picked elements."""
    words, operands, arrays, values = thirty_words(), thirty_words(), sixteen_words(), three_words()
    if kind_of(x) != registry.tensor_type or x.base != 0 or not is_counted(registry, x):
        return 0
    t = tape_in_force(registry)
    if t == -1 or t & 1 != 0:
        return 0
    store_i8(values, value)
    if read_all(registry, values, 1, operands) == 0:
        return 0
    if index_words(registry, op, args, arg_count, words, arrays) == 0:
        return 0
    done = written(registry, op, t, x, words, arrays, operands, view)
    forget(arrays)
    return count(registry, x) if done else 0


def put_at(registry, op, x, value, args, arg_count):
    """Write a value to picked elements; return the tensor as a new reference, 0 where Python has to or has raised.

    ``args``: the tensor, then the index.
    """
    if not is_view_of(registry, x, value):
        return put_value(registry, op, x, value, 0, args, arg_count)
    if is_value(registry, value):
        return put_value(registry, op, x, value, 0, args, arg_count) if released(registry, x, value) else 0
    copy = copy_of(registry, x, value)
    if copy == 0:
        return 0
    result = put_value(registry, op, x, copy, value, args, arg_count)
    dropped(copy)
    return result


def assign_at(x: Word, key: Word, value: Word, ignored: Word) -> Word:
    """``x[key] = value``."""
    args = three_words()
    store_i8(args, x)
    store_i8(args + 8, key)
    return put_at(tape_registry(), OP_ASSIGN, x, value, args, 2)


def hit_put(op: Word, args: Word, arg_count: Word, ignored: Word) -> Word:
    """A function that writes: of a tensor, an index and a value."""
    last = arg_count - 1
    return put_at(tape_registry(), op, word(args, 0), word(args, last), args, last)
