"""``x.detach()`` as one native call, if it was called on a tensor of this form before."""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.calls.calls_native import find
from kernels.native.calls.in_place_native import counter_of, is_counted, new_extras
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.memory import HEADER, load_f8, load_i8, store_f8, store_i8, word
from kernels.native.objects_native import array_of, kind_of, new_tensor, put
from kernels.native.python_api import Py_DecRef, Py_IncRef, tape_registry, three_words
from kernels.native.words import (
    A_DATA,
    DOUBLES,
    E_FORM,
    G_ARRAY,
    G_FLOAT,
    G_TENSOR,
    G_TRUE,
    O_BASE,
    O_EXTRAS,
    O_FORM,
    O_SHARED,
    O_VALUE,
)

CONTROL = True


def array_in(registry, x):
    """The array of a tensor, borrowed; a tensor that holds a float is given an array first; 0 with an exception."""
    value = load_i8(x + O_VALUE)
    if value == 0 or kind_of(value) != word(registry, G_FLOAT):
        return value if value != 0 and kind_of(value) == word(registry, G_ARRAY) else 0
    array = array_of(registry, 0, three_words(), DOUBLES, False)
    if array != 0:
        store_f8(load_i8(array + A_DATA), load_f8(value + HEADER))
        store_i8(x + O_VALUE, array)
        Py_DecRef(value)
    return array


def hit_shared(op: Word, args: Word, count: Word, ignored: Word) -> Word:
    """Return a tensor that shares memory and version counter with another; 0 where Python has to or has raised."""
    registry, x = tape_registry(), load_i8(args)
    if kind_of(x) != word(registry, G_TENSOR) or load_i8(x + O_BASE) != 0 or not is_counted(registry, x):
        return 0
    counter = counter_of(registry, x)
    Py_IncRef(counter)
    extras = new_extras(registry, counter)
    result = new_tensor(registry) if extras != 0 else 0
    if result == 0:
        if extras != 0:
            Py_DecRef(extras)
        return 0
    store_i8(result + O_EXTRAS, extras)
    # Allocating may have run any Python code: read everything that matters now.
    tagged_tape = tape_in_force(registry)
    same = (
        tagged_tape != -1 and tagged_tape & 1 == 0 and load_i8(x + O_BASE) == 0 and counter_of(registry, x) == counter
    )
    entry = find(registry, op, load_i8(x + O_FORM), 0, 0, 0, 0) if same else 0
    value = array_in(registry, x) if entry != 0 else 0
    if value == 0:
        Py_DecRef(result)
        return 0
    if load_i8(x + O_SHARED) == 0:
        put(x + O_SHARED, word(registry, G_TRUE))
    put(result + O_SHARED, word(registry, G_TRUE))
    put(result + O_VALUE, value)
    put(result + O_FORM, word(entry, E_FORM))
    return result
