"""What the tape is to save of memory that others may write, as NumPy does, is copied when a call is repeated."""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.call_structs import COPIES_AT, EXPOSED, MOST_OPERANDS, PICK, PICK_RESULT, CallEntry, CallOperand
from kernels.native.memory import store_i8, word
from kernels.native.numpy_api import KEPT_ORDER, array_copy
from kernels.native.object_structs import A_DENSE, A_SIMPLE, DOUBLES, ArrayObject, TensorObject
from kernels.native.objects_native import array_of, elements, is_array, kind_of
from kernels.native.pool.pool_structs import LARGE
from kernels.native.python_api import Py_DecRef, tape_registry
from kernels.native.tape_structs import ARRAY, FormBlock, InputBlock, RegistryTable

CONTROL = True


def copy_of(registry: RegistryTable, array: ArrayObject):
    """A copy of an array, in the order of its elements in memory; 0 with an exception, or where there is no way."""
    if array.dtype != registry.double or array.flags & A_SIMPLE != A_SIMPLE:
        return array_copy(registry.copy_array, array, KEPT_ORDER) if registry.copy_array != 0 else 0
    ndim, shape = array.ndim, array.shape
    count = elements(shape, ndim)
    made = ArrayObject(array_of(registry, ndim, shape, DOUBLES, 8 * count >= LARGE))
    if made != 0:
        source, target = array.data, made.data
        for k in range(count):
            store_i8(target + 8 * k, word(source, k))
    return made


def is_exposed(registry: RegistryTable, array: ArrayObject):
    """Whether others may write the memory of an array unseen (kernels/instructions/exposed_memory.py), or perhaps."""
    base = ArrayObject(array.base)
    while base != 0 and is_array(registry, base):
        array, base = base, base.base
    counts, place = registry.exposed, (array >> 4) & (EXPOSED - 1)
    only = counts[EXPOSED + 1 + place]
    return counts[place] != 0 and (only == array or only < 0)


def keep_copy(registry, operands, pick):
    """Let the tape save a copy of an operand; 0 where Python has to do it, as of strided ones, or has raised."""
    at, array = (
        CallOperand(operands + CallOperand.SIZE * pick),
        ArrayObject(CallOperand(operands + CallOperand.SIZE * pick).object),
    )
    copy = copy_of(registry, array) if array.flags & A_DENSE != 0 else 0
    store_i8(operands + COPIES_AT + 8 * pick, copy)
    at.object = copy if copy != 0 else array
    return copy


def is_others(registry: RegistryTable, x: TensorObject, operands, pick):
    """Whether others may write to the memory of an operand that is an array, not copied yet."""
    array = CallOperand(operands + CallOperand.SIZE * pick).object
    if array == 0 or word(operands + COPIES_AT, pick) != 0 or kind_of(array) != registry.array_type:
        return False
    return x.shared == registry.none or is_exposed(registry, array)


def secured(registry, entry: CallEntry, args, operands):
    """Copy what the tape is to save of memory that others may write; 0 where Python has to do it, or has raised."""
    block, picks = entry.block, entry.saved
    for k in range(MOST_OPERANDS):
        store_i8(operands + COPIES_AT + 8 * k, 0)
    if block == 0:
        return 1
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs)
    for j in range(block.saved):
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
