"""The arrays that a tape's instructions saved, as methods of its native object: all, or those in a range of memory.

An array is identified by the slot of its instruction and its index among the saved values: dropping others changes
neither.
"""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.memory import HEADER, word
from kernels.native.object_structs import ArrayObject
from kernels.native.objects_native import integer_of, is_array, none, wrong
from kernels.native.python_api import (
    Py_DecRef,
    PyErr_Occurred,
    PyList_Append,
    PyList_New,
    PyLong_FromLongLong,
    PyTuple_New,
    PyTuple_SetItem,
)
from kernels.native.tape.tape_native import block_at, seek
from kernels.native.tape_structs import ARRAY, OBJECT, FormBlock, InputBlock, TapeHeader

CONTROL = True

LONGEST_ITEM = 16
"""Size in bytes of the largest element type."""


def meets(array: ArrayObject, low, high):
    """Whether an array's elements may stand in a range of memory: some of its bytes do, or some close by."""
    first, last = array.data, array.data
    for k in range(array.ndim):
        extent, stride = array.shape[k], array.strides[k]
        if extent == 0:
            return False
        if stride < 0:
            first += (extent - 1) * stride
        else:
            last += (extent - 1) * stride
    return first < high and low < last + LONGEST_ITEM


def add_number(items, number):
    """Append an integer to a list; 0 with an exception."""
    x = PyLong_FromLongLong(number)
    if x == 0:
        return 0
    failed = PyList_Append(items, x)
    Py_DecRef(x)
    return 0 if failed != 0 else 1


def saved_array(registry, block: FormBlock, j, x):
    """Whether a saved word is an array."""
    kind = word(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs), j)
    return kind == ARRAY or (kind == OBJECT and is_array(registry, x))


def listed(t: TapeHeader, after, low, high, wants_all):
    """Slots and indices of arrays saved behind a slot, as a list: of those in a range, or of all, with the arrays."""
    registry, words, position = t.registry, t.words, t.size
    items, done = PyList_New(0), 1
    while items != 0 and position > 0:
        block = block_at(t, position - 1)
        start = position - block.entries
        slot, first = words[start], start + 1 + block.inputs
        if slot <= after:
            break
        position = start
        for j in range(block.saved):
            x = words[first + j]
            if saved_array(registry, block, j, x) and (wants_all or meets(x, low, high)):
                if wants_all and PyList_Append(items, x) != 0:
                    done = 0
                done = done and add_number(items, slot) and add_number(items, j)
    if items != 0 and (done == 0 or PyErr_Occurred() != 0):
        Py_DecRef(items)
        return 0
    return items


def arrays(self: Word, args: Word, count: Word) -> Word:
    """``arrays(after)``: the arrays saved by instructions behind a slot, each with slot and number."""
    t = TapeHeader(self + HEADER)
    after = integer_of(t.registry, word(args, 0)) if count == 1 else -1
    return listed(t, after, 0, 0, True) if after >= 0 else wrong(t.registry)


def meeting(self: Word, args: Word, count: Word) -> Word:
    """``meeting(low, high, after)``: slots and numbers of those of them that may stand in a range of memory."""
    t = TapeHeader(self + HEADER)
    registry, after = t.registry, -1
    if count == 3:
        after = integer_of(registry, word(args, 2))
    if after < 0:
        return wrong(registry)
    low, high = integer_of(registry, word(args, 0)), integer_of(registry, word(args, 1))
    return listed(t, after, low, high, False)


def placed(self: Word, args: Word, count: Word) -> Word:
    """``placed(slot, number)``: where a saved value stands, and its instruction's end; None if that is gone."""
    t = TapeHeader(self + HEADER)
    registry = t.registry
    slot = integer_of(registry, word(args, 0)) if count == 2 else -1
    number = integer_of(registry, word(args, 1)) if count == 2 else -1
    if slot < 0 or number < 0:
        return wrong(registry)
    last = seek(t, slot) - 1
    block = FormBlock(block_at(t, last) if last >= 0 else 0)
    if block == 0 or t.words[last + 1 - block.entries] != slot or number >= block.saved:
        return none(registry)
    place = PyTuple_New(2)
    if place != 0:
        PyTuple_SetItem(place, 0, PyLong_FromLongLong(last - block.saved + number))
        PyTuple_SetItem(place, 1, PyLong_FromLongLong(last))
        if PyErr_Occurred() != 0:
            Py_DecRef(place)
            return 0
    return place
