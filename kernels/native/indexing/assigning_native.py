"""``x[key] = value`` as one native call, if forms and index were seen before and nobody else sees the memory.

If the array has one reference, there is no view of it, no other NumPy array, and no pullback that saved it.
"""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.calls.computing_native import keep, over_nest
from kernels.native.calls.in_place_native import count, is_counted, is_only
from kernels.native.calls.keys_native import key_words
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.indexing.parts_native import entry_of, start_of
from kernels.native.memory import load_i8, store_i8, word
from kernels.native.objects_native import kind_of
from kernels.native.operands_native import narrow, read_all
from kernels.native.python_api import (
    Py_IncRef,
    PyList_SetSlice,
    PyList_Size,
    sixteen_words,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.tape.record_native import count_write, give_slot
from kernels.native.tape.tape_native import commit, reserve
from kernels.native.words import (
    A_DATA,
    B_ENTRIES,
    B_FORM,
    E_BLOCK,
    E_CODE,
    E_KIND,
    E_LARGE,
    E_OFFSET,
    E_START,
    G_FALSE,
    G_TENSOR,
    NEST4,
    O_BASE,
    O_BYTES,
    O_EXTRAS,
    O_FORM,
    O_SLOT,
    O_VALUE,
    O_VIEWS,
    OP_ASSIGN,
    R_RETAINS,
    T_ROOM,
    T_SIZE,
    T_WORDS,
    UNHELD,
    V_FORM,
    V_OBJECT,
    V_PLACE,
    V_SLOT,
)

CONTROL = True


def can_record(registry, t, x, entry):
    """Whether a write can be recorded now: x is no leaf, retains no gradient, and the tape has room."""
    block = word(entry, E_BLOCK)
    if load_i8(x + O_SLOT) < 0 or load_i8(load_i8(x + O_EXTRAS) + R_RETAINS) != word(registry, G_FALSE):
        return False
    entries = word(block, B_ENTRIES)
    return word(t, T_SIZE) + entries <= word(t, T_ROOM) and reserve(t, entries) != 0


def versioned(registry, t, x, entry, entries):
    """Commit the words of a write, and give the tensor the slot of its new version."""
    views = load_i8(x + O_VIEWS)
    count_write(t, load_i8(x + O_SLOT) & ~UNHELD)
    if word(entry, E_LARGE) != 0:
        store_i8(x + O_BYTES, word(entry, E_LARGE))
    new = commit(t, entries)
    if views != 0:
        PyList_SetSlice(views, 0, PyList_Size(views), 0)
    give_slot(registry, x, new, word(word(entry, E_BLOCK), B_FORM))


def record(registry, t, x, entry, operands, words):
    """Append the write: the tensor has a new version without views. What it had is released at the end."""
    block, slot = word(entry, E_BLOCK), load_i8(x + O_SLOT)
    at = word(t, T_WORDS) + 8 * (word(t, T_SIZE) + 1)
    keep(t, at, slot & ~UNHELD)
    keep(t, at + 8, load_i8(operands + V_SLOT))
    store_i8(at + 16, start_of(entry, words, E_OFFSET))
    store_i8(at + 24, word(entry, E_CODE))
    Py_IncRef(word(block, B_FORM))
    versioned(registry, t, x, entry, word(block, B_ENTRIES))


def written(registry, t, x, words, operands):
    """Write a value that has been read, if the call is in the table; whether that was done."""
    array, slot = load_i8(x + O_VALUE), load_i8(x + O_SLOT)
    if not is_only(registry, array) or load_i8(operands + V_OBJECT) == array:
        return False
    wants = (1 if slot != 0 else 0) + (2 if load_i8(operands + V_SLOT) != 0 else 0) if t != 0 else 0
    entry = entry_of(registry, OP_ASSIGN, load_i8(x + O_FORM), load_i8(operands + V_FORM), words, wants)
    if entry == 0 or (word(entry, E_KIND) == NEST4 and narrow(operands) == 0):
        return False
    if wants != 0 and not can_record(registry, t, x, entry):
        return False
    row = sixteen_words()
    store_i8(row, load_i8(operands + V_PLACE))
    store_i8(row + 8, load_i8(array + A_DATA) + start_of(entry, words, E_START))
    over_nest(entry, row)
    if wants != 0:
        record(registry, t, x, entry, operands, words)
    return True


def assign(x: Word, key: Word, value: Word, ignored: Word) -> Word:
    """Write a value to a part of a tensor; return the tensor, a new reference, 0 where Python has to or has raised."""
    registry, words, operands, values = tape_registry(), thirty_words(), thirty_words(), three_words()
    if load_i8(x + O_BASE) != 0 or not is_counted(registry, x):
        return 0
    t = tape_in_force(registry)
    if t == -1 or t & 1 != 0 or kind_of(x) != word(registry, G_TENSOR):
        return 0
    store_i8(values, value)
    if key_words(registry, key, words) == 0 or read_all(registry, values, 1, operands) == 0:
        return 0
    return count(registry, x) if written(registry, t, x, words, operands) else 0
