"""``x[key] = value`` as one native call, if forms and index were seen before and nobody else sees the memory.

If the array has one reference, there is no view of it, no other NumPy array, and no pullback that saved it.
"""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.call_structs import NEST4, OP_ASSIGN, CallEntry, CallOperand
from kernels.native.calls.computing_native import keep, over_nest
from kernels.native.calls.in_place_native import count, is_counted, is_only
from kernels.native.calls.keys_native import key_words
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.indexing.parts_native import entry_of, start_of
from kernels.native.memory import store_i8
from kernels.native.object_structs import UNHELD, TensorObject
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
from kernels.native.tape_structs import RegistryTable, TapeHeader

CONTROL = True


def can_record(registry: RegistryTable, t: TapeHeader, x: TensorObject, entry: CallEntry):
    """Whether a write can be recorded now: x is no leaf, retains no gradient, and the tape has room."""
    block = entry.block
    if x.slot < 0 or x.extras.retains != registry.false:
        return False
    entries = block.entries
    return t.size + entries <= t.room and reserve(t, entries) != 0


def versioned(registry, t, x: TensorObject, entry: CallEntry, entries):
    """Commit the words of a write, and give the tensor the slot of its new version."""
    views = x.views
    count_write(t, x.slot & ~UNHELD)
    if entry.large != 0:
        x.bytes = entry.large
    new = commit(t, entries)
    if views != 0:
        PyList_SetSlice(views, 0, PyList_Size(views), 0)
    give_slot(registry, x, new, entry.block.form)


def record(registry, t: TapeHeader, x: TensorObject, entry: CallEntry, operands: CallOperand, words):
    """Append the write: the tensor has a new version without views. What it had is released at the end."""
    block, slot = entry.block, x.slot
    at = t.words + 8 * (t.size + 1)
    keep(t, at, slot & ~UNHELD)
    keep(t, at + 8, operands.slot)
    store_i8(at + 16, start_of(entry, words, CallEntry.offset))
    store_i8(at + 24, entry.code)
    Py_IncRef(block.form)
    versioned(registry, t, x, entry, block.entries)


def written(registry, t, x: TensorObject, words, operands: CallOperand):
    """Write a value that has been read, if the call is in the table; whether that was done."""
    array, slot = x.value, x.slot
    if not is_only(registry, array) or operands.object == array:
        return False
    wants = (1 if slot != 0 else 0) + (2 if operands.slot != 0 else 0) if t != 0 else 0
    entry = CallEntry(entry_of(registry, OP_ASSIGN, x.form, operands.form, words, wants))
    if entry == 0 or (entry.kind == NEST4 and narrow(operands) == 0):
        return False
    if wants != 0 and not can_record(registry, t, x, entry):
        return False
    row = sixteen_words()
    store_i8(row, operands.place)
    store_i8(row + 8, array.data + start_of(entry, words, CallEntry.start))
    over_nest(entry, row)
    if wants != 0:
        record(registry, t, x, entry, operands, words)
    return True


def assign(x: TensorObject, key: Word, value: Word, ignored: Word) -> Word:
    """Write a value to a part of a tensor; return the tensor, a new reference, 0 where Python has to or has raised."""
    registry, words, operands, values = tape_registry(), thirty_words(), thirty_words(), three_words()
    if x.base != 0 or not is_counted(registry, x):
        return 0
    t = tape_in_force(registry)
    if t == -1 or t & 1 != 0 or kind_of(x) != registry.tensor_type:
        return 0
    store_i8(values, value)
    if key_words(registry, key, words) == 0 or read_all(registry, values, 1, operands) == 0:
        return 0
    return count(registry, x) if written(registry, t, x, words, operands) else 0
