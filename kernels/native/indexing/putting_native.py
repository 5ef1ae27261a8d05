"""``x[key] = value`` with arrays, lists or masks as one native call, if shapes and forms were seen before.

Functions such as ``index_put`` and ``index_add`` come here too. As in assigning_native.py nobody else may see the
memory; of several values for one element the last stays.
"""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.calls.calls_native import dropped
from kernels.native.calls.computing_native import keep
from kernels.native.calls.in_place_native import count, is_counted, is_only
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.indexing.assigning_native import can_record, versioned
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
from kernels.native.objects_native import array_of, elements, kind_of
from kernels.native.operands_native import narrow, read_all, whole
from kernels.native.python_api import (
    Py_IncRef,
    PyMem_RawCalloc,
    PyMem_RawFree,
    sixteen_words,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.words import (
    A_DATA,
    ADDING,
    B_ENTRIES,
    B_FORM,
    E_BLOCK,
    E_CODE,
    E_COUNT,
    E_DATA,
    E_EXTENT,
    E_KIND,
    E_LAYOUT,
    E_NDIM,
    E_SHAPE,
    G_TENSOR,
    LONGS,
    NEST,
    NEST4,
    NEST_INT,
    O_BASE,
    O_FORM,
    O_SLOT,
    O_VALUE,
    OP_ASSIGN,
    T_SIZE,
    T_WORDS,
    UNHELD,
    V_FORM,
    V_OBJECT,
    V_PLACE,
    V_SLOT,
)

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


def put(entry, picked, number, source, target):
    """Copy elements of a value to the picked elements."""
    item, offsets = word(entry, E_COUNT), word(entry, E_DATA)
    for k in range(number):
        start, to = source + word(offsets, k), target + item * word(picked, k)
        if item == 8:
            store_i8(to, load_i8(start))
        elif item == 4:
            store_i4(to, load_i4(start))
        else:
            for b in range(item):
                pointer_b1(to + b)[0] = pointer_b1(start + b)[0]


def add(entry, picked, number, source, target):
    """Add elements of a value to the picked elements."""
    kind, offsets = word(entry, E_KIND), word(entry, E_DATA)
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


def record(registry, t, x, entry, operands, picked):
    """Append the write: the tensor has a new version."""
    block, slot = word(entry, E_BLOCK), load_i8(x + O_SLOT)
    at = word(t, T_WORDS) + 8 * (word(t, T_SIZE) + 1)
    keep(t, at, slot & ~UNHELD)
    keep(t, at + 8, load_i8(operands + V_SLOT))
    store_i8(at + 16, 0)
    store_i8(at + 24, picked)
    Py_IncRef(picked)
    store_i8(at + 32, word(entry, E_CODE))
    Py_IncRef(word(block, B_FORM))
    versioned(registry, t, x, entry, word(block, B_ENTRIES))


def is_ready(registry, t, x, entry, operands, wants):
    """Whether there is an entry, and native code can do it now."""
    if entry == 0:
        return False
    kind = word(entry, E_KIND)
    if (kind == NEST4 and narrow(operands) == 0) or (kind == NEST_INT and whole(entry, operands) == 0):
        return False
    return wants == 0 or can_record(registry, t, x, entry)


def written(registry, op, t, x, words, arrays, operands):
    """Write a value that has been read, if the call is in the table; whether that was done."""
    array, slot = load_i8(x + O_VALUE), load_i8(x + O_SLOT)
    if not is_only(registry, array) or load_i8(operands + V_OBJECT) == array:
        return False
    wants = (1 if slot != 0 else 0) + (2 if load_i8(operands + V_SLOT) != 0 else 0) if t != 0 else 0
    entry = entry_by(registry, op, load_i8(x + O_FORM), load_i8(operands + V_FORM), wants, words)
    if not is_ready(registry, t, x, entry, operands, wants):
        return False
    picked = array_of(registry, word(entry, E_NDIM), word(entry, E_SHAPE), LONGS, False)
    if picked == 0:
        return False
    number, at = elements(word(entry, E_SHAPE), word(entry, E_NDIM)), load_i8(picked + A_DATA)
    good = places(word(entry, E_LAYOUT), arrays, at) != 0
    if good and word(entry, E_EXTENT) != 0:
        good = not is_twice(at, number, word(entry, E_EXTENT))
    if good:
        source, target = load_i8(operands + V_PLACE), load_i8(array + A_DATA)
        if op & ADDING != 0:
            add(entry, at, number, source, target)
        else:
            put(entry, at, number, source, target)
        if wants != 0:
            record(registry, t, x, entry, operands, picked)
    dropped(picked)
    return good


def put_at(registry, op, x, value, args, arg_count):
    """Write a value to picked elements; return the tensor as a new reference, 0 where Python has to or has raised.

    ``args``: the tensor, then the index.
    """
    words, operands, arrays, values = thirty_words(), thirty_words(), sixteen_words(), three_words()
    if kind_of(x) != word(registry, G_TENSOR) or load_i8(x + O_BASE) != 0 or not is_counted(registry, x):
        return 0
    t = tape_in_force(registry)
    if t == -1 or t & 1 != 0:
        return 0
    store_i8(values, value)
    if read_all(registry, values, 1, operands) == 0:
        return 0
    if index_words(registry, op, args, arg_count, words, arrays) == 0:
        return 0
    done = written(registry, op, t, x, words, arrays, operands)
    forget(arrays)
    return count(registry, x) if done else 0


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
