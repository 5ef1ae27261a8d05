"""Reading a tape, as methods of its native object: instructions taken apart into Python's objects."""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.memory import HEADER, double_of, word
from kernels.native.objects_native import block_of, integer_of, none, wrong
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyFloat_FromDouble,
    PyLong_FromLongLong,
    PyTuple_New,
    PyTuple_SetItem,
)
from kernels.native.tape.tape_native import block_at, seek
from kernels.native.tape_structs import ARRAY, DOUBLE, NUMBER, FormBlock, InputBlock, TapeHeader

CONTROL = True


def operand_object(registry, operand):
    if operand == 0:
        return none(registry)
    if operand > 0:
        return PyLong_FromLongLong(operand)
    Py_IncRef(-operand)
    return -operand


def saved_object(number, kind):
    if kind == NUMBER:
        return PyLong_FromLongLong(number)
    if kind == DOUBLE:
        return PyFloat_FromDouble(double_of(number))
    Py_IncRef(number)
    return number


def operands_of(t: TapeHeader, start, block: FormBlock):
    """The operands of an instruction as a tuple; 0 with an exception."""
    operands = PyTuple_New(block.inputs)
    for i in range(block.inputs):
        if operands != 0:
            PyTuple_SetItem(operands, i, operand_object(t.registry, t.words[start + 1 + i]))
    return operands


def saved_of(t: TapeHeader, start, block: FormBlock):
    """The saved values of an instruction as a tuple; 0 with an exception."""
    inputs, count = block.inputs, block.saved
    kinds, saved = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * inputs), PyTuple_New(count)
    for j in range(count):
        if saved != 0:
            PyTuple_SetItem(saved, j, saved_object(t.words[start + 1 + inputs + j], word(kinds, j)))
    return saved


def last_of_argument(t: TapeHeader, x):
    """The position of an instruction's last word, from an argument; -1 with an exception."""
    last, registry = integer_of(t.registry, x), t.registry
    if last >= 0 and last < t.size:
        block = FormBlock(block_of(registry, t.words[last]))
        if block != 0 and block.entries <= last + 1:
            return last
    wrong(registry)
    return -1


def last_of(t: TapeHeader, args, count, wanted):
    """The same, of the last one of ``wanted`` arguments."""
    return last_of_argument(t, word(args, count - 1)) if count == wanted else wrong(t.registry) - 1


def at(self: Word, args: Word, count: Word) -> Word:
    """``at(last)``: the instruction that ends there: start, stop, slot, operands, saved values, form."""
    t = TapeHeader(self + HEADER)
    last = last_of(t, args, count, 1)
    if last < 0:
        return 0
    block = block_at(t, last)
    start = last + 1 - block.entries
    parts = PyTuple_New(6)
    if parts != 0:
        Py_IncRef(block.form)
        PyTuple_SetItem(parts, 0, PyLong_FromLongLong(start))
        PyTuple_SetItem(parts, 1, PyLong_FromLongLong(last + 1))
        PyTuple_SetItem(parts, 2, PyLong_FromLongLong(t.words[start]))
        PyTuple_SetItem(parts, 3, operands_of(t, start, block))
        PyTuple_SetItem(parts, 4, saved_of(t, start, block))
        PyTuple_SetItem(parts, 5, block.form)
        if PyErr_Occurred() != 0:
            Py_DecRef(parts)
            return 0
    return parts


def operand(self: Word, args: Word, count: Word) -> Word:
    """``operand(place, last)``: the operand at a place of the instruction that ends at another."""
    t = TapeHeader(self + HEADER)
    last = last_of(t, args, count, 2)
    if last < 0:
        return 0
    block, place = block_at(t, last), integer_of(t.registry, word(args, 0))
    first = last + 2 - block.entries
    if place < first or place >= first + block.inputs:
        return wrong(t.registry)
    return operand_object(t.registry, t.words[place])


def form(self: Word, args: Word, count: Word) -> Word:
    """``form(last)``: the form of the instruction that ends there."""
    t = self + HEADER
    last = last_of(t, args, count, 1)
    if last < 0:
        return 0
    form_object = block_at(t, last).form
    Py_IncRef(form_object)
    return form_object


def find(self: Word, args: Word, count: Word) -> Word:
    """``find(slot)``: the end of the last instruction whose slot is at most this."""
    t = TapeHeader(self + HEADER)
    slot = integer_of(t.registry, word(args, 0)) if count > 0 else -1
    if slot < 0:
        return wrong(t.registry)
    return PyLong_FromLongLong(seek(t, slot))


def kept(self: Word, args: Word, count: Word) -> Word:
    """``kept(place, last)``: the array or object that an instruction saved there."""
    t = TapeHeader(self + HEADER)
    last = last_of(t, args, count, 2)
    if last < 0:
        return 0
    block, place = block_at(t, last), integer_of(t.registry, word(args, 0))
    at = place - (last - block.saved)
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs)
    if at < 0 or at >= block.saved or word(kinds, at) < ARRAY:
        return wrong(t.registry)
    return saved_object(t.words[place], ARRAY)
