"""``cat`` and ``stack`` as one native call, if tensors of these forms were joined in this order before."""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.calls.calls_native import can_do, dropped, find
from kernels.native.calls.computing_native import array_for, keep
from kernels.native.calls.keys_native import bound
from kernels.native.calls.notifying_native import notify_recorder, tape_in_force
from kernels.native.memory import load_i8, store_i8, word
from kernels.native.nests_native import nest
from kernels.native.objects_native import kind_of, new_tensor
from kernels.native.operands_native import read
from kernels.native.python_api import (
    Py_IncRef,
    PyList_GetItem,
    PyList_Size,
    PyMem_RawFree,
    PyMem_RawMalloc,
    PyTuple_GetItem,
    PyTuple_Size,
    sixteen_words,
    tape_registry,
)
from kernels.native.tape.tape_native import commit
from kernels.native.words import (
    A_DATA,
    B_ENTRIES,
    B_FORM,
    BY_ARRAYS,
    E_BLOCK,
    E_CODE,
    E_DATA,
    E_FORM,
    E_KEY,
    E_LARGE,
    E_LAYOUT,
    E_LOOP,
    FARTHEST,
    G_LIST,
    G_TENSOR,
    G_TUPLE,
    LARGEST_DIM,
    MOST_JOINED,
    O_BYTES,
    O_FORM,
    O_SLOT,
    O_VALUE,
    OPERAND,
    T_GROWN,
    T_SIZE,
    T_WORDS,
    V_FORM,
    V_PLACE,
    V_SLOT,
)

CONTROL = True

HELD = 8 + OPERAND
"""Bytes for an operand: the object, and what ``read`` writes about it."""


def size_of(registry, joined):
    """How many tensors are joined; 0 where Python has to do it."""
    kind, count = kind_of(joined), 0
    if kind == word(registry, G_LIST):
        count = PyList_Size(joined)
    elif kind == word(registry, G_TUPLE):
        count = PyTuple_Size(joined)
    return count if count <= MOST_JOINED else 0


def read_joined(registry, joined, count, held):
    """Write the tensors that are joined, then what ``read`` writes about each; 0 where Python has to do it."""
    is_list, operands = kind_of(joined) == word(registry, G_LIST), held + 8 * count
    for i in range(count):
        x = PyList_GetItem(joined, i) if is_list else PyTuple_GetItem(joined, i)
        store_i8(held + 8 * i, x)
        if kind_of(x) != word(registry, G_TENSOR) or read(registry, x, operands + OPERAND * i) == 0:
            return 0
    return 1


def mixed(hashed, x):
    """A hash with one more word in it."""
    hashed = (hashed ^ x) * 5871781006564002453
    return hashed ^ (hashed >> 29)


def wants_of(t, operand):
    """Whether the slot of an operand is recorded."""
    return 1 if t != 0 and load_i8(operand + V_SLOT) != 0 else 0


def entry_of(registry, op, dim, t, count, operands):
    """The entry of a join of operands that have been read; 0 if there is none."""
    hashed, wants = mixed(count, dim), 0
    for i in range(count):
        operand_word = wants_of(t, operands + OPERAND * i)
        hashed = mixed(hashed, load_i8(operands + OPERAND * i + V_FORM) + operand_word)
        wants = max(wants, operand_word)
    entry = find(registry, op, load_i8(operands + V_FORM), BY_ARRAYS, 0, wants, hashed & (FARTHEST - 1))
    if entry == 0 or word(word(entry, E_KEY), 0) != count or word(word(entry, E_KEY), 1) != dim:
        return 0
    for i in range(count):
        operand_word = load_i8(operands + OPERAND * i + V_FORM) + wants_of(t, operands + OPERAND * i)
        if word(word(entry, E_KEY), 2 + i) != operand_word:
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


def copied(entry, count, operands, out):
    """Copy each operand to its place in the result."""
    row, layout = sixteen_words(), word(entry, E_LAYOUT)
    for i in range(count):
        store_i8(row, load_i8(operands + OPERAND * i + V_PLACE))
        store_i8(row + 8, out + word(layout, 2 * i + 1))
        nest(word(layout, 2 * i), row, 2, word(entry, E_LOOP), word(entry, E_DATA))


def record(t, entry, count, operands, result):
    """Append the join."""
    block, at, large = word(entry, E_BLOCK), word(t, T_WORDS) + 8 * (word(t, T_SIZE) + 1), word(entry, E_LARGE)
    for i in range(count):
        keep(t, at + 8 * i, load_i8(operands + OPERAND * i + V_SLOT))
    store_i8(at + 8 * count, word(entry, E_CODE))
    Py_IncRef(word(block, B_FORM))
    store_i8(result + O_SLOT, commit(t, word(block, B_ENTRIES)))
    if large != 0:
        store_i8(result + O_BYTES, large)
        store_i8(t + 8 * T_GROWN, word(t, T_GROWN) + large)


def finish(registry, tagged_tape, entry, count, held, result):
    """Give a new tensor the joined values; 0 where Python has to do it."""
    operands, t = held + 8 * count, tagged_tape & ~1
    value = array_for(registry, entry) if can_do(t, entry, operands) != 0 else 0
    if value == 0:
        return dropped(result)
    copied(entry, count, operands, load_i8(value + A_DATA))
    store_i8(result + O_VALUE, value)
    Py_IncRef(word(entry, E_FORM))
    store_i8(result + O_FORM, word(entry, E_FORM))
    if word(entry, E_BLOCK) != 0:
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
