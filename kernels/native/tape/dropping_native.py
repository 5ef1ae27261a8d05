"""Methods of the native tape that change it before its end: replacing saved arrays, dropping instructions."""

from __future__ import annotations

from kernels.compiler.signatures import Void, Word
from kernels.native.memory import HEADER, store_i8, word
from kernels.native.objects_native import block_of, integer_of, is_array, kind_of, none, wrong
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_NoMemory,
    PyList_Size,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyMem_RawFree,
    PyObject_Free,
    PyTuple_GetItem,
    PyTuple_Size,
)
from kernels.native.tape.collecting_native import collect as gather
from kernels.native.tape.collecting_native import take_out
from kernels.native.tape.reading_native import last_of_argument
from kernels.native.tape.tape_native import block_at
from kernels.native.words import (
    B_ENTRIES,
    B_FORM,
    B_SAVED,
    G_FORMS,
    G_TAPES,
    T_CHUNKS,
    T_DIR,
    T_FULL,
    T_NUMBER,
    T_REGISTRY,
    T_SIZE,
    T_WORDS,
)

CONTROL = True


def replace(self: Word, args: Word, count: Word) -> Word:
    """``replace(place, last, saved, copy, code)``: replace a saved array that is still there by a copy, and the form.

    Returns the old array, which the caller releases; None if it is no longer there.
    """
    t = self + HEADER
    registry = word(t, T_REGISTRY)
    if count != 5 or not is_array(registry, word(args, 3)):
        return wrong(registry)
    place, last = integer_of(registry, word(args, 0)), last_of_argument(t, word(args, 1))
    block = block_of(registry, integer_of(registry, word(args, 4)))
    if last < 0 or place >= last or place < last - word(block_at(t, last), B_SAVED):
        return wrong(registry)
    words, copy = word(t, T_WORDS), word(args, 3)
    before = word(words, place)
    if before != word(args, 2) or block == 0 or word(block, B_ENTRIES) != word(block_at(t, last), B_ENTRIES):
        return none(registry)
    old = word(block_at(t, last), B_FORM)
    Py_IncRef(copy)
    Py_IncRef(word(block, B_FORM))
    store_i8(words + 8 * place, copy)
    store_i8(words + 8 * last, PyLong_AsLongLong(word(args, 4)))
    Py_DecRef(old)
    return before


def gone(t, count):
    if count < 0:
        return PyErr_NoMemory()
    return PyLong_FromLongLong(count)


def is_read(args, most):
    """Whether the tape has more readers than ``most``."""
    return PyList_Size(word(args, 0)) > most


def collect(self: Word, args: Word, count: Word) -> Word:
    """``collect(readers)``: drop the instructions whose results nobody can reach, unless the tape has readers."""
    t = self + HEADER
    if count != 1 or PyList_Size(word(args, 0)) < 0:
        return wrong(word(t, T_REGISTRY))
    return PyLong_FromLongLong(0) if is_read(args, 0) else gone(t, gather(t))


def remove(self: Word, args: Word, count: Word) -> Word:
    """``remove(readers, lasts)``: drop the instructions that end there, ascending, unless there are other readers."""
    t = self + HEADER
    if count != 2 or PyList_Size(word(args, 0)) < 0 or PyTuple_Size(word(args, 1)) < 0:
        return wrong(word(t, T_REGISTRY))
    lasts, words, low = word(args, 1), word(t, T_WORDS), -1
    if is_read(args, 1):
        return PyLong_FromLongLong(0)
    for k in range(PyTuple_Size(lasts)):
        if last_of_argument(t, PyTuple_GetItem(lasts, k)) < 0:
            return 0
    for k in range(PyTuple_Size(lasts)):
        last = PyLong_AsLongLong(PyTuple_GetItem(lasts, k))
        if low < 0:
            low = last + 1 - word(block_at(t, last), B_ENTRIES)
        if word(words, last) >= 0:
            store_i8(words + 8 * last, ~word(words, last))
    return gone(t, take_out(t, low) if low >= 0 else 0)


def notify(self: Word, args: Word, count: Word) -> Word:
    """``notify(call)``: set what is called when half of the tape is dead, or large values have died."""
    t = self + HEADER
    if count != 1:
        return wrong(word(t, T_REGISTRY))
    before = word(t, T_FULL)
    Py_IncRef(word(args, 0))
    store_i8(t + 8 * T_FULL, word(args, 0))
    if before != 0:
        Py_DecRef(before)
    return none(word(t, T_REGISTRY))


def length(self: Word) -> Word:
    return word(self + HEADER, T_SIZE)


def dealloc(self: Word) -> Void:
    t, kind = self + HEADER, kind_of(self)
    registry = word(t, T_REGISTRY)
    if registry != 0:
        position = word(t, T_SIZE)
        while position > 0:
            last = position - 1
            store_i8(word(t, T_WORDS) + 8 * last, ~word(word(t, T_WORDS), last))
            position -= word(word(word(registry, G_FORMS), ~word(word(t, T_WORDS), last)), B_ENTRIES)
        if word(t, T_SIZE) > 0:
            take_out(t, 0)
        store_i8(word(registry, G_TAPES) + 8 * word(t, T_NUMBER), 0)
        for k in range(word(t, T_CHUNKS)):
            PyMem_RawFree(word(word(t, T_DIR), k))
        PyMem_RawFree(word(t, T_DIR))
        PyMem_RawFree(word(t, T_WORDS))
        if word(t, T_FULL) != 0:
            Py_DecRef(word(t, T_FULL))
    PyObject_Free(self)
    Py_DecRef(kind)
