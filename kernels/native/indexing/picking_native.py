"""Advanced indexing by arrays, lists and masks as one native call, if shapes and forms were seen before.

The entry's layout says which element of each index array belongs to an element of the result, and the strides.
"""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.calls.calls_native import can_do, dropped, finished
from kernels.native.calls.computing_native import array_for
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.indexing.index_arrays_native import entry_by, forget, index_words, places
from kernels.native.memory import load_i4, load_i8, pointer_b1, store_i4, store_i8, word
from kernels.native.objects_native import array_of, elements, kind_of, new_tensor
from kernels.native.operands_native import read_all
from kernels.native.python_api import sixteen_words, tape_registry, thirty_words, three_words
from kernels.native.words import (
    A_DATA,
    E_COUNT,
    E_LAYOUT,
    E_NDIM,
    E_SHAPE,
    G_ARRAY,
    LONGS,
    OPERAND,
    V_FORM,
    V_OBJECT,
    V_SLOT,
)

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


def picked_array(registry, entry, arrays):
    """A new array with the numbers of the picked elements; 0 without an exception if one is out of range."""
    array = array_of(registry, word(entry, E_NDIM), word(entry, E_SHAPE), LONGS, False)
    if array != 0 and places(word(entry, E_LAYOUT), arrays, load_i8(array + A_DATA)) == 0:
        return dropped(array)
    return array


def finish(registry, t, entry, args, operands, result, arrays):
    """Give a new tensor the picked elements, and record their numbers; 0 where Python has to do it."""
    picked = picked_array(registry, entry, arrays) if can_do(t, entry, operands) != 0 else 0
    value = array_for(registry, entry) if picked != 0 else 0
    if value != 0:
        count = elements(word(entry, E_SHAPE), word(entry, E_NDIM))
        source = load_i8(load_i8(operands + V_OBJECT) + A_DATA)
        copied(source, load_i8(picked + A_DATA), load_i8(value + A_DATA), count, word(entry, E_COUNT))
    store_i8(operands + OPERAND + V_OBJECT, picked)
    results = three_words()
    store_i8(results, result)
    store_i8(results + 8, 0)
    result = finished(registry, t, entry, args, operands, results, value)
    dropped(picked)
    return result


def hit_picked(op: Word, args: Word, count: Word, ignored: Word) -> Word:
    """Return the picked elements of a tensor; 0 where Python has to do it or has raised."""
    registry, operands, words, arrays = tape_registry(), thirty_words(), thirty_words(), sixteen_words()
    result = 0
    for again in range(2):  # making a tensor may run any Python code: read everything again
        tagged_tape = tape_in_force(registry)
        if tagged_tape == -1 or tagged_tape & 1 != 0 or read_all(registry, args, 1, operands) == 0:
            return dropped(result)
        value = load_i8(operands + V_OBJECT)
        if value == 0 or kind_of(value) != word(registry, G_ARRAY):
            return dropped(result)
        if index_words(registry, op, args, count, words, arrays) == 0:
            return dropped(result)
        wants = 1 if tagged_tape != 0 and load_i8(operands + V_SLOT) != 0 else 0
        entry = entry_by(registry, op, load_i8(operands + V_FORM), 0, wants, words)
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
