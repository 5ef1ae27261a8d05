"""The tensor's slots for CPython's memory management: traverse, clear, deallocate; and its slot on the tape."""

from __future__ import annotations

from kernels.compiler.native_types import Int32, Void, Word
from kernels.native.call_structs import CallEntry
from kernels.native.calls.calls_native import find
from kernels.native.calls.in_place_native import counter_of, is_counted, is_listing, new_extras
from kernels.native.calls.notifying_native import tape_in_force
from kernels.native.memory import HEADER, load_f8, load_i8, store_f8, word
from kernels.native.object_structs import DOUBLES, MOST_SPARES, STALE, UNHELD, ArrayObject, LeafObject, TensorObject
from kernels.native.objects_native import array_of, drop_all, kind_of, new_tensor, none, put, visit_all, wrong
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
    call_get,
    call_set,
    call_visit,
    tape_registry,
    three_words,
)
from kernels.native.tape.tape_native import hold, let_go, tape_of
from kernels.native.tape_structs import LARGEST_LOSS, RegistryTable

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


# ``.grad`` of leaves, read, set to None and first set natively.


def leaf_at(registry: RegistryTable, x: TensorObject):
    """The slot of a tensor that is a leaf; 0 for anything else."""
    slot = x.slot if kind_of(x) == registry.tensor_type else 0
    return -slot if slot < STALE and kind_of(-slot) == registry.leaf_type else 0


def get_grad(self: Word, x: Word, kind: Word) -> Word:
    registry = tape_registry()
    leaf = LeafObject(leaf_at(registry, x) if x != 0 else 0)
    if leaf == 0:
        return call_get(registry.getter, self, x, kind)
    gradient = leaf.grad
    if gradient == 0:
        return none(registry)
    Py_IncRef(gradient)
    return gradient


def set_grad(self: Word, x: Word, value: Word) -> Int32:
    registry = tape_registry()
    leaf = LeafObject(leaf_at(registry, x) if value == registry.none else 0)
    if leaf == 0:
        return call_set(registry.setter, self, x, value)
    before = leaf.grad
    if before != value:
        Py_IncRef(value)
        leaf.grad = value
        if before != 0:
            Py_DecRef(before)
    return 0


def begun(self: Word, args: Word, count: Word) -> Word:
    """``begun(slot, gradient)``: give the slot of a leaf its first gradient; False where it has one."""
    registry = tape_registry()
    if count != 2 or kind_of(load_i8(args)) != registry.leaf_type:
        return wrong(registry)
    leaf, result = LeafObject(load_i8(args)), registry.false
    before = leaf.grad
    if before == 0 or before == registry.none:
        Py_IncRef(word(args, 1))
        leaf.grad = word(args, 1)
        if before != 0:
            Py_DecRef(before)
        result = registry.true
    Py_IncRef(result)
    return result


# ``x.detach()`` as one native call, if it was called on a tensor of this form before.


def array_in(registry: RegistryTable, x: TensorObject):
    """The array of a tensor, borrowed; a tensor that holds a float is given an array first; 0 with an exception."""
    value = x.value
    if value == 0 or kind_of(value) != registry.float_type:
        return value if value != 0 and kind_of(value) == registry.array_type else 0
    array = ArrayObject(array_of(registry, 0, three_words(), DOUBLES, False))
    if array != 0:
        store_f8(array.data, load_f8(value + HEADER))
        x.value = array
        Py_DecRef(value)
    return array


def hit_shared(op: Word, args: Word, count: Word, ignored: Word) -> Word:
    """Return a tensor that shares memory and version counter with another; 0 where Python has to or has raised."""
    registry, x = tape_registry(), TensorObject(load_i8(args))
    if kind_of(x) != registry.tensor_type or x.base != 0 or not is_counted(registry, x) or not is_listing(x):
        return 0
    counter = counter_of(registry, x)
    Py_IncRef(counter)
    extras = new_extras(registry, counter)
    result = TensorObject(new_tensor(registry) if extras != 0 else 0)
    if result == 0:
        if extras != 0:
            Py_DecRef(extras)
        return 0
    result.extras = extras
    # Allocating may have run any Python code: read everything that matters now.
    tagged_tape = tape_in_force(registry)
    same = tagged_tape != -1 and tagged_tape & 1 == 0 and x.base == 0 and counter_of(registry, x) == counter
    same = same and x.views != 0
    entry = CallEntry(find(registry, op, x.form, 0, 0, 0, 0) if same else 0)
    value = array_in(registry, x) if entry != 0 else 0
    if value == 0:
        Py_DecRef(result)
        return 0
    if x.shared == 0:
        put(x + TensorObject.shared, registry.true)
    put(result + TensorObject.shared, registry.true)
    put(result + TensorObject.views, x.views)
    put(result + TensorObject.value, value)
    put(result + TensorObject.form, entry.form)
    return result
