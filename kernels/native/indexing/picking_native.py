"""Advanced indexing by arrays, lists and masks as one native call, if shapes and forms were seen before.

The entry's layout says which element of each index array belongs to an element of the result, and the strides.
"""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.call_structs import CallEntry, CallOperand
from kernels.native.calls.calls_native import can_do, dropped, finished
from kernels.native.calls.computing_native import array_for
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.indexing.index_arrays_native import entry_by, forget, index_words, places
from kernels.native.memory import load_i4, load_i8, pointer_b1, store_i4, store_i8, word
from kernels.native.object_structs import LONGS, ArrayObject
from kernels.native.objects_native import array_of, elements, kind_of, new_tensor
from kernels.native.operands_native import read_all
from kernels.native.python_api import sixteen_words, tape_registry, thirty_words, three_words

CONTROL = True


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
