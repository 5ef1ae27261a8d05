"""``cat`` and ``stack`` as one native call, if tensors of these forms were joined in this order before."""

from __future__ import annotations

from kernels.language.native_types import Word
from kernels.native.c_api import (
    ArrayObject,
    Py_IncRef,
    PyList_GetItem,
    PyList_Size,
    PyMem_RawFree,
    PyMem_RawMalloc,
    PyTuple_GetItem,
    PyTuple_Size,
    TensorObject,
    sixteen_words,
    tape_registry,
)
from kernels.native.call_structs import BY_ARRAYS, FARTHEST, LARGEST_DIM, MOST_JOINED, CallEntry, CallOperand
from kernels.native.calls.calls_native import can_do, dropped, find
from kernels.native.calls.computing_native import array_for, keep
from kernels.native.calls.keys_native import bound
from kernels.native.calls.notifying_native import notify_recorder, tape_in_force
from kernels.native.memory import load_i8, store_i8, word
from kernels.native.objects_native import kind_of, nest, new_tensor, read
from kernels.native.structs import RegistryTable, TapeHeader
from kernels.native.tape_native import commit

CONTROL = True

HELD = 8 + CallOperand.SIZE
"""Bytes for an operand: the object, and what ``read`` writes about it."""


def size_of(registry: RegistryTable, joined):
    """How many tensors are joined; 0 where Python has to do it."""
    kind, count = kind_of(joined), 0
    if kind == registry.list_type:
        count = PyList_Size(joined)
    elif kind == registry.tuple_type:
        count = PyTuple_Size(joined)
    return count if count <= MOST_JOINED else 0


def read_joined(registry: RegistryTable, joined, count, held):
    """Write the tensors that are joined, then what ``read`` writes about each; 0 where Python has to do it."""
    is_list, operands = kind_of(joined) == registry.list_type, held + 8 * count
    for i in range(count):
        x = PyList_GetItem(joined, i) if is_list else PyTuple_GetItem(joined, i)
        store_i8(held + 8 * i, x)
        if kind_of(x) != registry.tensor_type or read(registry, x, operands + CallOperand.SIZE * i) == 0:
            return 0
    return 1


def mixed(hashed, x):
    """A hash with one more word in it."""
    hashed = (hashed ^ x) * 5871781006564002453
    return hashed ^ (hashed >> 29)


def wants_of(t, operand: CallOperand):
    """Whether the slot of an operand is recorded."""
    return 1 if t != 0 and operand.slot != 0 else 0


def entry_of(registry, op, dim, t, count, operands: CallOperand):
    """The entry of a join of operands that have been read; 0 if there is none."""
    hashed, wants = mixed(count, dim), 0
    for i in range(count):
        operand_word = wants_of(t, operands + CallOperand.SIZE * i)
        hashed = mixed(hashed, CallOperand(operands + CallOperand.SIZE * i).form + operand_word)
        wants = max(wants, operand_word)
    entry = CallEntry(find(registry, op, operands.form, BY_ARRAYS, 0, wants, hashed & (FARTHEST - 1)))
    if entry == 0 or word(entry.key, 0) != count or word(entry.key, 1) != dim:
        return 0
    for i in range(count):
        operand_word = CallOperand(operands + CallOperand.SIZE * i).form + wants_of(t, operands + CallOperand.SIZE * i)
        if word(entry.key, 2 + i) != operand_word:
            return 0
    return entry


def hash_of(words):
    """The hash of an entry's words: count, dim, forms."""
    hashed = mixed(word(words, 0), word(words, 1))
    for i in range(word(words, 0)):
        hashed = mixed(hashed, word(words, 2 + i))
    return hashed & (FARTHEST - 1)


def hash_words(words: int) -> int:
    """The same, for Python."""
    return hash_of(words)


def copied(entry: CallEntry, count, operands, out):
    """Copy each operand to its place in the result."""
    row, layout = sixteen_words(), entry.layout
    for i in range(count):
        store_i8(row, CallOperand(operands + CallOperand.SIZE * i).place)
        store_i8(row + 8, out + word(layout, 2 * i + 1))
        nest(word(layout, 2 * i), row, 2, entry.loop, entry.data)


def record(t: TapeHeader, entry: CallEntry, count, operands, result: TensorObject):
    """Append the join."""
    block, at, large = entry.block, t.words + 8 * (t.size + 1), entry.large
    for i in range(count):
        keep(t, at + 8 * i, CallOperand(operands + CallOperand.SIZE * i).slot)
    store_i8(at + 8 * count, entry.code)
    Py_IncRef(block.form)
    result.slot = commit(t, block.entries)
    if large != 0:
        result.bytes = large
        t.grown += large


def finish(registry, tagged_tape, entry: CallEntry, count, held, result: TensorObject):
    """Give a new tensor the joined values; 0 where Python has to do it."""
    operands, t = held + 8 * count, tagged_tape & ~1
    value = ArrayObject(array_for(registry, entry) if can_do(t, entry, operands) != 0 else 0)
    if value == 0:
        return dropped(result)
    copied(entry, count, operands, value.data)
    result.value = value
    Py_IncRef(entry.form)
    result.form = entry.form
    if entry.block != 0:
        record(t, entry, count, operands, result)
    if tagged_tape != t and notify_recorder(registry, entry, held, operands, result) == 0:
        return dropped(result)
    return result


def joined_again(registry, op, joined, dim, count, held):
    """Return the tensors of a list joined; 0 where Python has to do it or has raised."""
    result, tagged_tape, entry = 0, 0, 0
    for again in range(2):  # making a tensor may run any Python code: read everything again
        tagged_tape = tape_in_force(registry)
        if tagged_tape == -1 or size_of(registry, joined) != count or read_joined(registry, joined, count, held) == 0:
            return dropped(result)
        entry = entry_of(registry, op, dim, tagged_tape & ~1, count, held + 8 * count)
        if entry == 0:
            return dropped(result)
        if again == 0:
            result = new_tensor(registry)
            if result == 0:
                return 0
    return finish(registry, tagged_tape, entry, count, held, result)


def hit_joined(op: Word, args: Word, arguments: Word, ignored: Word) -> Word:
    """Join the tensors of a list along a dim, if that is in the table."""
    registry, joined = tape_registry(), load_i8(args)
    count, dim = size_of(registry, joined), bound(registry, word(args, 1)) if arguments > 1 else 0
    if count == 0 or abs(dim) >= LARGEST_DIM:
        return 0
    held = PyMem_RawMalloc(count * HELD)
    if held == 0:
        return 0
    result = joined_again(registry, op, joined, dim, count, held)
    PyMem_RawFree(held)
    return result
