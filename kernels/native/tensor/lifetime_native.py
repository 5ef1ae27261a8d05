"""The tensor's slots for CPython's memory management: traverse, clear, deallocate; and its slot on the tape."""

from __future__ import annotations

from kernels.compiler.signatures import Int32, Void, Word
from kernels.native.memory import load_i8, store_i8, word
from kernels.native.objects_native import drop_all, visit_all
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Fetch,
    PyErr_Occurred,
    PyErr_Restore,
    PyErr_SetNone,
    PyErr_WriteUnraisable,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyObject_CallNoArgs,
    PyObject_ClearWeakRefs,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    call_visit,
    tape_registry,
    three_words,
)
from kernels.native.tape.tape_native import hold, let_go, tape_of
from kernels.native.words import (
    G_ATTRIBUTE,
    G_INT,
    G_NONE,
    G_SPARE,
    G_SPARES,
    G_TENSOR,
    G_TYPEERROR,
    LARGEST_LOSS,
    MOST_SPARES,
    O_BYTES,
    O_FIRST,
    O_LAST,
    O_OFFSET,
    O_SLOT,
    O_TYPE,
    O_VALUE,
    O_WEAK,
    STALE,
    T_FULL,
    T_LOST,
    T_SIZE,
    UNHELD,
)

CONTROL = True


def traverse(x: Word, visit: Word, argument: Word) -> Int32:
    leaf, status = -load_i8(x + O_SLOT), visit_all(x + O_FIRST, x + O_LAST, visit, argument)
    if status == 0 and leaf > 1:
        status = call_visit(visit, leaf, argument)
    return status if status != 0 else call_visit(visit, load_i8(x + O_TYPE), argument)


def exchange(x, slot):
    """Give a tensor another slot (already counted) or leaf (already owned); then release the old one."""
    before = load_i8(x + O_SLOT)
    store_i8(x + O_SLOT, slot)
    if before > 0:
        if before & UNHELD == 0:
            let_go(tape_registry(), before)
    elif before < STALE:
        Py_DecRef(-before)


def empty(x):
    """Release what a tensor refers to."""
    exchange(x, 0)
    drop_all(x + O_FIRST, x + O_LAST)


def clear(x: Word) -> Int32:
    empty(x)
    return 0


def lose(slot, size):
    """Count the bytes of a large tensor that has died; collect on its tape where they are many.

    Pullbacks still need most of them, so the threshold grows with the tape.
    """
    t = tape_of(tape_registry(), slot & ~UNHELD)
    if t == 0:
        return
    lost = word(t, T_LOST) + size
    store_i8(t + 8 * T_LOST, lost)
    call = word(t, T_FULL)
    if lost * 10_000 <= LARGEST_LOSS * word(t, T_SIZE) or call == 0:
        return
    store_i8(t + 8 * T_LOST, 0)
    error = three_words()
    PyErr_Fetch(error, error + 8, error + 16)
    Py_IncRef(call)
    result = PyObject_CallNoArgs(call)
    if result == 0:
        PyErr_WriteUnraisable(call)
    else:
        Py_DecRef(result)
    Py_DecRef(call)
    PyErr_Restore(word(error, 0), word(error, 1), word(error, 2))


def spare(x, kind):
    """Keep a tensor's memory for a new tensor, or free it."""
    registry = tape_registry()
    count = word(registry, G_SPARES)
    if kind == word(registry, G_TENSOR) and count < MOST_SPARES:
        store_i8(x + O_OFFSET, 0)
        store_i8(x + O_BYTES, 0)
        store_i8(x + O_VALUE, word(registry, G_SPARE))
        store_i8(registry + 8 * G_SPARE, x)
        store_i8(registry + 8 * G_SPARES, count + 1)
    else:
        PyObject_GC_Del(x)


def dealloc(x: Word) -> Void:
    kind = load_i8(x + O_TYPE)
    PyObject_GC_UnTrack(x)
    if load_i8(x + O_WEAK) != 0:
        PyObject_ClearWeakRefs(x)
    slot, size = load_i8(x + O_SLOT), load_i8(x + O_BYTES)
    empty(x)
    spare(x, kind)
    Py_DecRef(kind)
    if size > 0 and slot > 0:
        lose(slot, size)


def get_slot(x: Word, closure: Word) -> Word:
    slot = load_i8(x + O_SLOT)
    registry = tape_registry()
    if slot > 0:
        return PyLong_FromLongLong(slot & ~UNHELD)
    if slot == STALE:
        PyErr_SetNone(word(registry, G_ATTRIBUTE))
        return 0
    result = word(registry, G_NONE) if slot == 0 else -slot
    Py_IncRef(result)
    return result


def set_slot(x: Word, value: Word, closure: Word) -> Int32:
    registry = tape_registry()
    slot = STALE
    if value == word(registry, G_NONE):
        slot = 0
    elif value != 0 and load_i8(value + O_TYPE) == word(registry, G_INT):
        slot = PyLong_AsLongLong(value)
        if slot <= 0 or slot >= UNHELD:
            if PyErr_Occurred() == 0:
                PyErr_SetNone(word(registry, G_TYPEERROR))
            return -1
        hold(registry, slot)
    elif value != 0:
        Py_IncRef(value)
        slot = -value
    exchange(x, slot)
    return 0


def unheld(x: Word, ignored: Word) -> Word:
    """``x._unheld()``: let a computed tensor refer to its slot without counting as its owner."""
    slot = load_i8(x + O_SLOT)
    registry = tape_registry()
    if slot > 0 and slot & UNHELD == 0:
        store_i8(x + O_SLOT, slot | UNHELD)
        let_go(registry, slot)
    result = word(registry, G_NONE)
    Py_IncRef(result)
    return result
