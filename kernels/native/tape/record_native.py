"""Recording, as a method of a tape's native object: the words of an instruction are written behind the last."""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.objects_native import block_of, integer_of, is_array, is_double, kind_of, none, wrong
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_NoMemory,
    PyErr_Occurred,
    PyFloat_AsDouble,
    PyLong_AsLongLong,
    PyObject_CallNoArgs,
    PyTuple_GetItem,
    PyTuple_Size,
    PyType_IsSubtype,
    bits_of,
)
from kernels.native.tape.tape_native import commit, hold, let_go, reserve
from kernels.native.words import (
    A_DATA,
    ADDS,
    B_ENTRIES,
    B_FIRST,
    B_FORM,
    B_INPUTS,
    B_KIND,
    B_SAVED,
    CLEARS,
    DOUBLE,
    G_INT,
    G_NONE,
    G_TENSOR,
    I_WORDS,
    NUMBER,
    O_FORM,
    O_SLOT,
    OBJECT,
    T_COUNT,
    T_DEAD,
    T_FULL,
    T_NUMBER,
    T_REGISTRY,
    T_ROOM,
    T_SIZE,
    T_WORDS,
    T_WRITES,
    TAPE_BITS,
    UNHELD,
)

CONTROL = True


def operand_word(registry, x):
    """The word of an operand, with a new reference if it is a leaf; -1 with an exception."""
    if x == word(registry, G_NONE):
        return 0
    if kind_of(x) == word(registry, G_INT):
        slot = PyLong_AsLongLong(x)
        if slot < 0 and PyErr_Occurred() == 0:
            wrong(registry)
        return max(slot, -1)
    Py_IncRef(x)
    return -x


def fits(registry, x, kind):
    """Whether an object can be saved as this kind of word."""
    if kind == NUMBER:
        return kind_of(x) == word(registry, G_INT) and (PyLong_AsLongLong(x) != -1 or PyErr_Occurred() == 0)
    if kind == DOUBLE:
        return is_double(registry, x)
    return kind == OBJECT or is_array(registry, x)


def saved_word(registry, x, kind):
    """The word of a saved value, with a new reference to an array or object."""
    if kind == NUMBER:
        return PyLong_AsLongLong(x)
    if kind == DOUBLE:
        return load_i8(load_i8(x + A_DATA)) if is_array(registry, x) else bits_of(PyFloat_AsDouble(x))
    Py_IncRef(x)
    return x


def saves(registry, block, saved):
    """Whether these values fit the saved words of a form."""
    kinds = block + 8 * (B_FIRST + I_WORDS * word(block, B_INPUTS))
    misfits = 0
    for j in range(word(block, B_SAVED)):
        if misfits == 0 and not fits(registry, PyTuple_GetItem(saved, j), word(kinds, j)):
            misfits += 1
    return misfits == 0


def count_write(t, before):
    """Remember that there are writes, and whether any is to a version that another tape has made."""
    elsewhere = before > 0 and before >> TAPE_BITS != word(t, T_NUMBER)
    store_i8(t + 8 * T_WRITES, word(t, T_WRITES) | (2 if elsewhere else 1))


def write(t, block, code, operands, saved):
    """Write the words of an instruction behind the last; 0 with an exception, owning nothing."""
    registry, inputs = word(t, T_REGISTRY), word(block, B_INPUTS)
    at = word(t, T_WORDS) + 8 * word(t, T_SIZE)
    for i in range(inputs):
        operand = operand_word(registry, PyTuple_GetItem(operands, i))
        if operand == -1 and PyErr_Occurred() != 0:
            for k in range(i):
                if load_i8(at + 8 * (1 + k)) < 0:
                    Py_DecRef(-load_i8(at + 8 * (1 + k)))
            return 0
        store_i8(at + 8 * (1 + i), operand)
    kinds = block + 8 * (B_FIRST + I_WORDS * inputs)
    for j in range(word(block, B_SAVED)):
        store_i8(at + 8 * (1 + inputs + j), saved_word(registry, PyTuple_GetItem(saved, j), word(kinds, j)))
    store_i8(at + 8 * (word(block, B_ENTRIES) - 1), code)
    for i in range(inputs):
        operand = load_i8(at + 8 * (1 + i))
        if operand > 0 and operand >> TAPE_BITS != word(t, T_NUMBER):
            hold(registry, operand)
    Py_IncRef(word(block, B_FORM))
    if word(block, B_KIND) == CLEARS or word(block, B_KIND) == ADDS:
        count_write(t, load_i8(at + 8))
    return 1


def give_slot(registry, x, slot, form):
    """Give a tensor a slot that is already counted, and a borrowed form; what it had is released at the end."""
    before, old = load_i8(x + O_SLOT), load_i8(x + O_FORM)
    Py_IncRef(form)
    store_i8(x + O_SLOT, slot)
    store_i8(x + O_FORM, form)
    if before > 0 and before & UNHELD == 0:
        let_go(registry, before)
    if before < -1:
        Py_DecRef(-before)
    if old != 0:
        Py_DecRef(old)


def make_room(t, count):
    """Make room for ``count`` words; if half of the tape is dead, collect first; 0 with an exception."""
    if word(t, T_SIZE) + count > word(t, T_ROOM) and 2 * word(t, T_DEAD) >= word(t, T_COUNT) and word(t, T_COUNT) > 0:
        call = word(t, T_FULL)
        if call != 0:
            Py_IncRef(call)
            result = PyObject_CallNoArgs(call)
            Py_DecRef(call)
            if result == 0:
                return 0
            Py_DecRef(result)
    if reserve(t, count) == 0:
        PyErr_NoMemory()
        return 0
    return 1


def record(self: Word, args: Word, count: Word) -> Word:
    """``record(result, code, operands, saved)``: append an instruction; the tensor gets its slot and its form."""
    t = self + HEADER
    registry = word(t, T_REGISTRY)
    if count != 4 or PyType_IsSubtype(kind_of(word(args, 0)), word(registry, G_TENSOR)) == 0:
        return wrong(registry)
    result, operands, saved = word(args, 0), word(args, 2), word(args, 3)
    code = integer_of(registry, word(args, 1))
    block = block_of(registry, code)
    if block == 0 or PyTuple_Size(operands) != word(block, B_INPUTS) or PyTuple_Size(saved) != word(block, B_SAVED):
        return wrong(registry)
    if not saves(registry, block, saved):
        return wrong(registry)
    if make_room(t, word(block, B_ENTRIES)) == 0 or write(t, block, code, operands, saved) == 0:
        return 0
    give_slot(registry, result, commit(t, word(block, B_ENTRIES)), word(block, B_FORM))
    return none(registry)
