"""What the tape is to save of memory that others may write, as NumPy does, is copied when a call is repeated."""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.memory import load_i4, load_i8, store_i8, word
from kernels.native.numpy_api import KEPT_ORDER, array_copy
from kernels.native.objects_native import array_of, elements, is_array, kind_of
from kernels.native.pool.pool_words import LARGE
from kernels.native.python_api import Py_DecRef, tape_registry
from kernels.native.words import (
    A_BASE,
    A_DATA,
    A_DENSE,
    A_DTYPE,
    A_FLAGS,
    A_NDIM,
    A_SHAPE,
    A_SIMPLE,
    ARRAY,
    B_FIRST,
    B_INPUTS,
    B_SAVED,
    COPIES_AT,
    DOUBLES,
    E_BLOCK,
    E_SAVED,
    EXPOSED,
    G_ARRAY,
    G_COPY,
    G_DOUBLE,
    G_EXPOSED,
    G_NONE,
    I_WORDS,
    MOST_OPERANDS,
    O_SHARED,
    OPERAND,
    PICK,
    PICK_RESULT,
    V_OBJECT,
)  # fmt: skip

CONTROL = True


def copy_of(registry, array):
    """A copy of an array, in the order of its elements in memory; 0 with an exception, or where there is no way."""
    if load_i8(array + A_DTYPE) != word(registry, G_DOUBLE) or load_i4(array + A_FLAGS) & A_SIMPLE != A_SIMPLE:
        return array_copy(word(registry, G_COPY), array, KEPT_ORDER) if word(registry, G_COPY) != 0 else 0
    ndim, shape = load_i4(array + A_NDIM), load_i8(array + A_SHAPE)
    count = elements(shape, ndim)
    made = array_of(registry, ndim, shape, DOUBLES, 8 * count >= LARGE)
    if made != 0:
        source, target = load_i8(array + A_DATA), load_i8(made + A_DATA)
        for k in range(count):
            store_i8(target + 8 * k, word(source, k))
    return made


def is_exposed(registry, array):
    """Whether others may write the memory of an array unseen (kernels/instructions/exposed_memory.py), or perhaps."""
    base = load_i8(array + A_BASE)
    while base != 0 and is_array(registry, base):
        array, base = base, load_i8(base + A_BASE)
    counts, place = word(registry, G_EXPOSED), (array >> 4) & (EXPOSED - 1)
    only = word(counts, EXPOSED + 1 + place)
    return word(counts, place) != 0 and (only == array or only < 0)


def keep_copy(registry, operands, pick):
    """Let the tape save a copy of an operand; 0 where Python has to do it, as of strided ones, or has raised."""
    at, array = operands + OPERAND * pick, load_i8(operands + OPERAND * pick + V_OBJECT)
    copy = copy_of(registry, array) if load_i4(array + A_FLAGS) & A_DENSE != 0 else 0
    store_i8(operands + COPIES_AT + 8 * pick, copy)
    store_i8(at + V_OBJECT, copy if copy != 0 else array)
    return copy


def is_others(registry, x, operands, pick):
    """Whether others may write to the memory of an operand that is an array, not copied yet."""
    array = load_i8(operands + OPERAND * pick + V_OBJECT)
    if array == 0 or word(operands + COPIES_AT, pick) != 0 or kind_of(array) != word(registry, G_ARRAY):
        return False
    return load_i8(x + O_SHARED) == word(registry, G_NONE) or is_exposed(registry, array)


def secured(registry, entry, args, operands):
    """Copy what the tape is to save of memory that others may write; 0 where Python has to do it, or has raised."""
    block, picks = word(entry, E_BLOCK), word(entry, E_SAVED)
    for k in range(MOST_OPERANDS):
        store_i8(operands + COPIES_AT + 8 * k, 0)
    if block == 0:
        return 1
    kinds = block + 8 * (B_FIRST + I_WORDS * word(block, B_INPUTS))
    for j in range(word(block, B_SAVED)):
        pick = (picks >> (PICK * j)) & ((1 << PICK) - 1)
        saves = pick < PICK_RESULT and word(kinds, j) >= ARRAY
        others = saves and is_others(registry, word(args, pick), operands, pick)
        if others and keep_copy(registry, operands, pick) == 0:
            return 0
    return 1


def secure(entry: Word, args: Word, operands: Word, ignored: Word) -> Word:
    """The same before a call is computed; without an entry, afterwards, release the copies: the tape has its own."""
    if entry != 0:
        return secured(tape_registry(), entry, args, operands)
    for k in range(MOST_OPERANDS):
        if word(operands + COPIES_AT, k) != 0:
            Py_DecRef(word(operands + COPIES_AT, k))
    return 1
