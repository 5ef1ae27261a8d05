"""Reading a tape, as methods of its native object: instructions taken apart into Python's objects."""

from __future__ import annotations

from kernels.compiler.signatures import Word
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
from kernels.native.words import (
    ARRAY,
    B_ENTRIES,
    B_FIRST,
    B_FORM,
    B_INPUTS,
    B_SAVED,
    DOUBLE,
    I_WORDS,
    NUMBER,
    T_REGISTRY,
    T_SIZE,
    T_WORDS,
)

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


def operands_of(t, start, block):
    """The operands of an instruction as a tuple; 0 with an exception."""
    operands = PyTuple_New(word(block, B_INPUTS))
    for i in range(word(block, B_INPUTS)):
        if operands != 0:
            PyTuple_SetItem(operands, i, operand_object(word(t, T_REGISTRY), word(word(t, T_WORDS), start + 1 + i)))
    return operands


def saved_of(t, start, block):
    """The saved values of an instruction as a tuple; 0 with an exception."""
    inputs, count = word(block, B_INPUTS), word(block, B_SAVED)
    kinds, saved = block + 8 * (B_FIRST + I_WORDS * inputs), PyTuple_New(count)
    for j in range(count):
        if saved != 0:
            PyTuple_SetItem(saved, j, saved_object(word(word(t, T_WORDS), start + 1 + inputs + j), word(kinds, j)))
    return saved


def last_of_argument(t, x):
    """The position of an instruction's last word, from an argument; -1 with an exception."""
    last, registry = integer_of(word(t, T_REGISTRY), x), word(t, T_REGISTRY)
    if last >= 0 and last < word(t, T_SIZE):
        block = block_of(registry, word(word(t, T_WORDS), last))
        if block != 0 and word(block, B_ENTRIES) <= last + 1:
            return last
    wrong(registry)
    return -1


def last_of(t, args, count, wanted):
    """The same, of the last one of ``wanted`` arguments."""
    return last_of_argument(t, word(args, count - 1)) if count == wanted else wrong(word(t, T_REGISTRY)) - 1


def at(self: Word, args: Word, count: Word) -> Word:
    """``at(last)``: the instruction that ends there: start, stop, slot, operands, saved values, form."""
    t = self + HEADER
    last = last_of(t, args, count, 1)
    if last < 0:
        return 0
    block = block_at(t, last)
    start = last + 1 - word(block, B_ENTRIES)
    parts = PyTuple_New(6)
    if parts != 0:
        Py_IncRef(word(block, B_FORM))
        PyTuple_SetItem(parts, 0, PyLong_FromLongLong(start))
        PyTuple_SetItem(parts, 1, PyLong_FromLongLong(last + 1))
        PyTuple_SetItem(parts, 2, PyLong_FromLongLong(word(word(t, T_WORDS), start)))
        PyTuple_SetItem(parts, 3, operands_of(t, start, block))
        PyTuple_SetItem(parts, 4, saved_of(t, start, block))
        PyTuple_SetItem(parts, 5, word(block, B_FORM))
        if PyErr_Occurred() != 0:
            Py_DecRef(parts)
            return 0
    return parts


def operand(self: Word, args: Word, count: Word) -> Word:
    """``operand(place, last)``: the operand at a place of the instruction that ends at another."""
    t = self + HEADER
    last = last_of(t, args, count, 2)
    if last < 0:
        return 0
    block, place = block_at(t, last), integer_of(word(t, T_REGISTRY), word(args, 0))
    first = last + 2 - word(block, B_ENTRIES)
    if place < first or place >= first + word(block, B_INPUTS):
        return wrong(word(t, T_REGISTRY))
    return operand_object(word(t, T_REGISTRY), word(word(t, T_WORDS), place))


def form(self: Word, args: Word, count: Word) -> Word:
    """``form(last)``: the form of the instruction that ends there."""
    t = self + HEADER
    last = last_of(t, args, count, 1)
    if last < 0:
        return 0
    form_object = word(block_at(t, last), B_FORM)
    Py_IncRef(form_object)
    return form_object


def find(self: Word, args: Word, count: Word) -> Word:
    """``find(slot)``: the end of the last instruction whose slot is at most this."""
    t = self + HEADER
    slot = integer_of(word(t, T_REGISTRY), word(args, 0)) if count > 0 else -1
    if slot < 0:
        return wrong(word(t, T_REGISTRY))
    return PyLong_FromLongLong(seek(t, slot))


def kept(self: Word, args: Word, count: Word) -> Word:
    """``kept(place, last)``: the array or object that an instruction saved there."""
    t = self + HEADER
    last = last_of(t, args, count, 2)
    if last < 0:
        return 0
    block, place = block_at(t, last), integer_of(word(t, T_REGISTRY), word(args, 0))
    at = place - (last - word(block, B_SAVED))
    kinds = block + 8 * (B_FIRST + I_WORDS * word(block, B_INPUTS))
    if at < 0 or at >= word(block, B_SAVED) or word(kinds, at) < ARRAY:
        return wrong(word(t, T_REGISTRY))
    return saved_object(word(word(t, T_WORDS), place), ARRAY)
