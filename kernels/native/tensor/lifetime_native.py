"""The tensor's slots for CPython's memory management: traverse, clear, deallocate; and its slot on the tape."""

from __future__ import annotations

from kernels.compiler.native_types import Int32, Void, Word
from kernels.native.memory import word
from kernels.native.object_structs import MOST_SPARES, STALE, UNHELD, TensorObject
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
from kernels.native.tape_structs import LARGEST_LOSS

CONTROL = True


def traverse(x: TensorObject, visit: Word, argument: Word) -> Int32:
    leaf, status = -x.slot, visit_all(x + TensorObject.value, x + TensorObject.extras, visit, argument)
    if status == 0 and leaf > 1:
        status = call_visit(visit, leaf, argument)
    return status if status != 0 else call_visit(visit, x.type, argument)


def exchange(x: TensorObject, slot):
    """Give a tensor another slot (already counted) or leaf (already owned); then release the old one."""
    before = x.slot
    x.slot = slot
    if before > 0:
        if before & UNHELD == 0:
            let_go(tape_registry(), before)
    elif before < STALE:
        Py_DecRef(-before)


def empty(x):
    """Release what a tensor refers to."""
    exchange(x, 0)
    drop_all(x + TensorObject.value, x + TensorObject.extras)


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
    lost = t.lost + size
    t.lost = lost
    call = t.notify
    if lost * 10_000 <= LARGEST_LOSS * t.size or call == 0:
        return
    t.lost = 0
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


def spare(x: TensorObject, kind):
    """Keep a tensor's memory for a new tensor, or free it."""
    registry = tape_registry()
    count = registry.spares
    if (kind == registry.tensor_type or kind == registry.stale_type) and count < MOST_SPARES:
        x.offset = 0
        x.bytes = 0
        x.value = registry.spare
        registry.spare = x
        registry.spares = count + 1
    else:
        PyObject_GC_Del(x)


def dealloc(x: TensorObject) -> Void:
    kind = x.type
    PyObject_GC_UnTrack(x)
    if x.weak != 0:
        PyObject_ClearWeakRefs(x)
    slot, size = x.slot, x.bytes
    empty(x)
    spare(x, kind)
    Py_DecRef(kind)
    if size > 0 and slot > 0:
        lose(slot, size)


def get_slot(x: TensorObject, closure: Word) -> Word:
    slot = x.slot
    registry = tape_registry()
    if slot > 0:
        return PyLong_FromLongLong(slot & ~UNHELD)
    if slot == STALE:
        PyErr_SetNone(registry.attribute_error)
        return 0
    result = registry.none if slot == 0 else -slot
    Py_IncRef(result)
    return result


def set_slot(x: Word, value: TensorObject, closure: Word) -> Int32:
    registry = tape_registry()
    slot = STALE
    if value == registry.none:
        slot = 0
    elif value != 0 and value.type == registry.int_type:
        slot = PyLong_AsLongLong(value)
        if slot <= 0 or slot >= UNHELD:
            if PyErr_Occurred() == 0:
                PyErr_SetNone(registry.type_error)
            return -1
        hold(registry, slot)
    elif value != 0:
        Py_IncRef(value)
        slot = -value
    exchange(x, slot)
    return 0


def unheld(x: TensorObject, ignored: Word) -> Word:
    """``x._unheld()``: let a computed tensor refer to its slot without counting as its owner."""
    slot = x.slot
    registry = tape_registry()
    if slot > 0 and slot & UNHELD == 0:
        x.slot = slot | UNHELD
        let_go(registry, slot)
    result = registry.none
    Py_IncRef(result)
    return result
