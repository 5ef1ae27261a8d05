"""Methods of the native tape that change it before its end: replacing saved arrays, dropping instructions."""

from __future__ import annotations

from kernels.compiler.native_types import Void, Word
from kernels.native.memory import HEADER, word
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
from kernels.native.tape_structs import FormBlock, TapeHeader

CONTROL = True


def replace(self: Word, args: Word, count: Word) -> Word:
    """``replace(place, last, saved, copy, code)``: replace a saved array that is still there by a copy, and the form.

    Returns the old array, which the caller releases; None if it is no longer there.
    """
    t = TapeHeader(self + HEADER)
    registry = t.registry
    if count != 5 or not is_array(registry, word(args, 3)):
        return wrong(registry)
    place, last = integer_of(registry, word(args, 0)), last_of_argument(t, word(args, 1))
    block = FormBlock(block_of(registry, integer_of(registry, word(args, 4))))
    if last < 0 or place >= last or place < last - block_at(t, last).saved:
        return wrong(registry)
    words, copy = t.words, word(args, 3)
    before = words[place]
    if before != word(args, 2) or block == 0 or block.entries != block_at(t, last).entries:
        return none(registry)
    old = block_at(t, last).form
    Py_IncRef(copy)
    Py_IncRef(block.form)
    words[place] = copy
    words[last] = PyLong_AsLongLong(word(args, 4))
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
    t = TapeHeader(self + HEADER)
    if count != 1 or PyList_Size(word(args, 0)) < 0:
        return wrong(t.registry)
    return PyLong_FromLongLong(0) if is_read(args, 0) else gone(t, gather(t))


def remove(self: Word, args: Word, count: Word) -> Word:
    """``remove(readers, lasts)``: drop the instructions that end there, ascending, unless there are other readers."""
    t = TapeHeader(self + HEADER)
    if count != 2 or PyList_Size(word(args, 0)) < 0 or PyTuple_Size(word(args, 1)) < 0:
        return wrong(t.registry)
    lasts, words, low = word(args, 1), t.words, -1
    if is_read(args, 1):
        return PyLong_FromLongLong(0)
    for k in range(PyTuple_Size(lasts)):
        if last_of_argument(t, PyTuple_GetItem(lasts, k)) < 0:
            return 0
    for k in range(PyTuple_Size(lasts)):
        last = PyLong_AsLongLong(PyTuple_GetItem(lasts, k))
        if low < 0:
            low = last + 1 - block_at(t, last).entries
        if words[last] >= 0:
            words[last] = ~words[last]
    return gone(t, take_out(t, low) if low >= 0 else 0)


def notify(self: Word, args: Word, count: Word) -> Word:
    """``notify(call)``: set what is called when half of the tape is dead, or large values have died."""
    t = TapeHeader(self + HEADER)
    if count != 1:
        return wrong(t.registry)
    before = t.notify
    Py_IncRef(word(args, 0))
    t.notify = word(args, 0)
    if before != 0:
        Py_DecRef(before)
    return none(t.registry)


def length(self: Word) -> Word:
    return TapeHeader(self + HEADER).size


def dealloc(self: Word) -> Void:
    t, kind = TapeHeader(self + HEADER), kind_of(self)
    registry = t.registry
    if registry != 0:
        position = t.size
        while position > 0:
            last = position - 1
            t.words[last] = ~t.words[last]
            position -= registry.forms[~t.words[last]].entries
        if t.size > 0:
            take_out(t, 0)
        registry.tapes[t.number] = 0
        for k in range(t.chunks):
            PyMem_RawFree(t.directory[k])
        PyMem_RawFree(t.directory)
        PyMem_RawFree(t.words)
        if t.notify != 0:
            Py_DecRef(t.notify)
    PyObject_Free(self)
    Py_DecRef(kind)
