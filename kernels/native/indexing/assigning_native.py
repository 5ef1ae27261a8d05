"""``x[key] = value`` as one native call, if forms and index were seen before and nobody else sees the memory.

If the array has one reference, there is no view of it, no other NumPy array, and no pullback that saved it. The value
may be the one view that there is, as in ``x[0] = x[1]``: where the two may share elements, a copy of it is written.
"""

from __future__ import annotations

from kernels.language.native_types import Word
from kernels.native.c_api import (
    A_WRITEABLE,
    COUNTED,
    UNHELD,
    ArrayObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyList_SetSlice,
    PyList_Size,
    TensorObject,
    sixteen_words,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.call_structs import APART, NEST4, NOT_NATIVE, OP_ASSIGN, OVERLAPPING, SAME, CallEntry, CallOperand
from kernels.native.calls.computing_native import keep, over_nest
from kernels.native.calls.functions_native import hit
from kernels.native.calls.in_place_native import count, exchange, is_counted, is_only, is_scalar
from kernels.native.calls.keys_native import key_words
from kernels.native.calls.notifying_native import given_arrays, tape_in_force
from kernels.native.indexing.parts_native import entry_of, start_of
from kernels.native.memory import load_i8, store_i8, word
from kernels.native.objects_native import kind_of, narrow, read_all
from kernels.native.record_native import count_write, give_slot, outdate
from kernels.native.structs import RegistryTable, TapeHeader
from kernels.native.tape_native import commit, reserve

# How a part that is written, and the value written there, stand to each other in one memory.

CONTROL = True


def stride_in(layout, at):
    """A stride of a nest of two operands, without its sign: of the first, then of the second."""
    return abs(word(layout, 3 + word(layout, 2) + at))


def steps_in(layout, at):
    """How often the same stride is taken."""
    axis = at % (word(layout, 2) + 1)
    return (word(layout, 1) if axis == 0 else word(layout, 2 + axis)) - 1


def extent_of(layout, operand, period, item):
    """How many bytes an operand extends over, its strides by multiples of a period left out; 0: of none."""
    axes, total = word(layout, 2) + 1, item
    for at in range(operand * axes, (operand + 1) * axes):
        stride = stride_in(layout, at)
        if period == 0 or stride % period != 0:
            total += stride * steps_in(layout, at)
    return total


def lowest(layout, operand):
    """Where the first byte of an operand is, from its first element on."""
    axes, total = word(layout, 2) + 1, 0
    for at in range(operand * axes, (operand + 1) * axes):
        total += min(word(layout, 3 + word(layout, 2) + at), 0) * steps_in(layout, at)
    return total


def are_same(layout, first, second):
    """Whether the two operands of a nest are the same elements in the same order."""
    axes, others = word(layout, 2) + 1, 0
    for axis in range(axes):
        others += 1 if word(layout, 2 + axes + axis) != word(layout, 2 + 2 * axes + axis) else 0
    return first == second and others == 0


def relation(layout: int, first: int, second: int, item: int) -> int:
    """How the elements of the two operands of a nest stand to each other, by where they begin and their strides.

    They are apart one behind the other in memory, or in each period of some stride, as rows, columns, blocks and every
    other element are. Other patterns count as overlapping, though they may be apart.
    """
    if are_same(layout, first, second):
        return SAME
    distance = first + lowest(layout, 0) - second - lowest(layout, 1)
    if distance >= extent_of(layout, 1, 0, item) or -distance >= extent_of(layout, 0, 0, item):
        return APART
    for at in range(2 * (word(layout, 2) + 1)):
        period = stride_in(layout, at)
        if period != 0:
            place = distance % period
            if place >= extent_of(layout, 1, period, item) and place + extent_of(layout, 0, period, item) <= period:
                return APART
    return OVERLAPPING


def can_record(registry: RegistryTable, t: TapeHeader, x: TensorObject, entry: CallEntry):
    """Whether a write can be recorded now: x is no leaf, retains no gradient, and the tape has room."""
    block = entry.block
    if x.slot < 0 or x.extras.retains != registry.false:
        return False
    entries = block.entries
    return t.size + entries <= t.room and reserve(t, entries) != 0


def versioned(registry, t, x: TensorObject, entry: CallEntry, entries):
    """Commit the words of a write, and give the tensor the slot of its new version."""
    views = x.views
    count_write(t, x.slot & ~UNHELD)
    if entry.large != 0:
        x.bytes = entry.large
    new = commit(t, entries)
    if views != 0:
        PyList_SetSlice(views, 0, PyList_Size(views), 0)
    give_slot(registry, x, new, entry.block.form)


def record(registry, t: TapeHeader, x: TensorObject, entry: CallEntry, operands: CallOperand, words):
    """Append the write: the tensor has a new version without views. What it had is released at the end."""
    block, slot = entry.block, x.slot
    at = t.words + 8 * (t.size + 1)
    keep(t, at, slot & ~UNHELD)
    keep(t, at + 8, operands.slot)
    store_i8(at + 16, start_of(entry, words, CallEntry.offset))
    store_i8(at + 24, entry.code)
    Py_IncRef(block.form)
    versioned(registry, t, x, entry, block.entries)


def is_view_of(registry: RegistryTable, x, value: TensorObject):
    """Whether an operand is a view of a tensor's memory, of the current version, without rare attributes."""
    if kind_of(value) != registry.tensor_type or value.base != x:
        return False
    return value.shared == 0 and value.extras == 0  # else it may have left the family


def is_shared(registry: RegistryTable, array: ArrayObject, view: TensorObject):
    """Whether an array owns its memory, is writeable, and is referred to by its tensor and by a view of one tensor."""
    part = view.value
    if part == 0 or kind_of(part) != registry.array_type or load_i8(part) & COUNTED != 1:
        return False
    if part.base != array or load_i8(array) & COUNTED != 2 or array.base != 0:
        return False
    return kind_of(array) == registry.array_type and array.flags & A_WRITEABLE != 0


def copy_of(registry: RegistryTable, x: TensorObject, view):
    """A copy of the one view of a tensor: a new reference; 0 where Python has to make it, or with an exception.

    Making it may run any Python code: everything is to be read again.
    """
    t = tape_in_force(registry)
    if t == -1 or t & 1 != 0 or not is_shared(registry, x.value, view):
        return 0
    args = three_words()
    store_i8(args, view)
    copy = hit(registry.clone, args, 1, 0)
    if copy != 0 and copy != NOT_NATIVE and not is_view_of(registry, x, view):
        Py_DecRef(copy)
        return 0
    return copy if copy != NOT_NATIVE else 0


def is_value(registry, view: TensorObject):
    """Whether a view is a value by itself: an element, in functions given arrays."""
    return is_scalar(registry, view.value) and given_arrays(registry) != 0


def released(registry, x, view: TensorObject):
    """Give the one view of a tensor memory of its own, by a recorded copy if it is recorded; whether that was done."""
    copy = TensorObject(copy_of(registry, x, view))
    if copy == 0:
        return False
    alike = (copy.slot != 0) == (view.slot != 0)
    if alike:
        for at in range(TensorObject.value, TensorObject.weak, 8):
            exchange(view, copy, at)
    Py_DecRef(copy)
    return alike


def written(registry, t, x: TensorObject, words, operands: CallOperand, view: TensorObject):
    """Write a value that has been read, if the call is in the table; whether that was done.

    ``view``: the one view of the tensor, which the value is or was copied from; or 0.
    """
    array, slot = x.value, x.slot
    alone = is_only(registry, array) if view == 0 else is_shared(registry, array, view)
    if not alone or operands.object == array:
        return False
    wants = (1 if slot != 0 else 0) + (2 if operands.slot != 0 else 0) if t != 0 else 0
    entry = CallEntry(entry_of(registry, OP_ASSIGN, x.form, operands.form, words, wants))
    if entry == 0 or (entry.kind == NEST4 and narrow(operands) == 0):
        return False
    if wants != 0 and ((view != 0 and view.slot <= 0) or not can_record(registry, t, x, entry)):
        return False
    row, source = sixteen_words(), operands.place
    target = array.data + start_of(entry, words, CallEntry.start)
    if view != 0 and operands.object == view.value:
        how = relation(entry.layout, source, target, 4 if entry.kind == NEST4 else 8)
        if how != APART:
            return how == SAME and wants == 0
    store_i8(row, source)
    store_i8(row + 8, target)
    over_nest(entry, row)
    if wants != 0:
        record(registry, t, x, entry, operands, words)
        if view != 0:
            outdate(registry, view)
    return True


def assigned(registry: RegistryTable, x: TensorObject, words, value, view):
    """Write a value; return the tensor, a new reference, 0 where that was not done or an error was raised."""
    operands, values = thirty_words(), three_words()
    if x.base != 0 or not is_counted(registry, x):
        return 0
    t = tape_in_force(registry)
    if t == -1 or t & 1 != 0 or kind_of(x) != registry.tensor_type:
        return 0
    store_i8(values, value)
    if read_all(registry, values, 1, operands) == 0:
        return 0
    return count(registry, x) if written(registry, t, x, words, operands, view) else 0


def assign(x: Word, key: Word, value: Word, ignored: Word) -> Word:
    """Write a value to a part of a tensor; return the tensor, a new reference, 0 where Python has to or has raised."""
    registry, words = tape_registry(), thirty_words()
    if kind_of(x) != registry.tensor_type or key_words(registry, key, words) == 0:
        return 0
    result = assigned(registry, x, words, value, 0)
    if result != 0 or PyErr_Occurred() != 0 or not is_view_of(registry, x, value):
        return result
    if is_value(registry, value):
        return assigned(registry, x, words, value, 0) if released(registry, x, value) else 0
    result = assigned(registry, x, words, value, value)
    copy = copy_of(registry, x, value) if result == 0 and PyErr_Occurred() == 0 else 0
    if copy != 0:
        result = assigned(registry, x, words, copy, value)
        Py_DecRef(copy)
    return result
