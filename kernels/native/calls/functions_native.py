"""Functions and methods of tensors as native callables: a hit in the table of calls, else Python."""

from __future__ import annotations

from kernels.compiler.signatures import Int32, Void, Word
from kernels.native.calls.arguments_native import call_words, tensors_in
from kernels.native.calls.call_table_native import (
    hit,
    hit_adopted,
    hit_in_place,
    hit_joined,
    hit_picked,
    hit_put,
    hit_shared,
    hit_view,
)
from kernels.native.memory import load_i8, word
from kernels.native.objects_native import drop_all, visit_all
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyMethod_New,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    PyObject_Vectorcall,
    PyTuple_GetItem,
    PyTuple_Size,
    call_visit,
    tape_registry,
    thirty_words,
)
from kernels.native.words import (
    ARGUED,
    F_ALWAYS,
    F_DICT,
    F_NUMBER,
    F_SLOW,
    G_AXIS,
    G_DIM,
    G_HIT,
    G_HIT_IN_PLACE,
    JOINS,
    MOST_OPERANDS,
    NOT_NATIVE,
    NUMBERED,
    O_TYPE,
    PICKS,
    PUTS,
    SHARES,
    SHOWS,
    WRITES,
)

CONTROL = True

ARGUMENTS = (1 << 62) - 1


def hit_argued(op, args, count, names):
    """The result of a call with arguments behind its tensors, if it is in the table."""
    registry, asked = tape_registry(), thirty_words()
    tensors = tensors_in(registry, args, count)
    if tensors == count and tensors != 0 and names == 0:
        return hit(op, args, tensors, 0)
    if tensors == 0 or call_words(registry, args, tensors, count, names, asked) == 0:
        return 0
    return hit(op, args, tensors, asked)


def names_dim(registry, arguments, names):
    """Whether there is one argument and at most a dim behind it, by place or by name."""
    if names == 0:
        return 1 if arguments <= 2 else 0
    name = PyTuple_GetItem(names, 0) if arguments == 1 and PyTuple_Size(names) == 1 else 0
    return 1 if name != 0 and (name == word(registry, G_DIM) or name == word(registry, G_AXIS)) else 0


def vectorcall(self: Word, args: Word, count: Word, names: Word) -> Word:
    number, arguments = load_i8(self + F_NUMBER), count & ARGUMENTS
    result = 0
    if number >= PUTS:
        if names == 0 and arguments > 2:
            result = hit_put(number & (NUMBERED - 1), args, arguments)
    elif number >= JOINS:
        if arguments >= 1 and names_dim(tape_registry(), arguments, names) != 0:
            result = hit_joined(number & (NUMBERED - 1), args, 1 if names == 0 and arguments == 1 else 2)
    elif number >= PICKS:
        if names == 0 and arguments > 1:
            result = hit_picked(number & (NUMBERED - 1), args, arguments)
    elif number >= SHARES:
        if names == 0 and arguments == 1:
            result = hit_shared(number & (NUMBERED - 1), args)
    elif number >= WRITES:
        if names == 0 and 1 <= arguments <= MOST_OPERANDS:
            result = hit_in_place(number & (WRITES - 1), args, arguments)
            if result == 0:
                result = hit_adopted(number & (WRITES - 1), args, arguments, G_HIT_IN_PLACE)
    elif number >= SHOWS:
        if names == 0 and arguments >= 1:
            result = hit_view(number & (NUMBERED - 1), args, arguments)
    elif number >= ARGUED:
        result = hit_argued(number & (NUMBERED - 1), args, arguments, names)
    elif names == 0 and 1 <= arguments <= MOST_OPERANDS:
        result = hit(number, args, arguments, 0)
        if result == 0:
            result = hit_adopted(number, args, arguments, G_HIT)
    if result == NOT_NATIVE:
        return PyObject_Vectorcall(load_i8(self + F_ALWAYS), args, count, names)
    if result != 0 or PyErr_Occurred() != 0:
        return result
    return PyObject_Vectorcall(load_i8(self + F_SLOW), args, count, names)


def descr_get(self: Word, x: Word, kind: Word) -> Word:
    if x == 0:
        Py_IncRef(self)
        return self
    return PyMethod_New(self, x)


def traverse(self: Word, visit: Word, argument: Word) -> Int32:
    status = visit_all(self + F_SLOW, self + F_DICT, visit, argument)
    return status if status != 0 else call_visit(visit, load_i8(self + O_TYPE), argument)


def clear(self: Word) -> Int32:
    drop_all(self + F_DICT, self + F_DICT)
    return 0


def dealloc(self: Word) -> Void:
    kind = load_i8(self + O_TYPE)
    PyObject_GC_UnTrack(self)
    drop_all(self + F_SLOW, self + F_DICT)
    PyObject_GC_Del(self)
    Py_DecRef(kind)
