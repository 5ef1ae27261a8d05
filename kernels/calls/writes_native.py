"""Writes in repeated calls: in place, into parts, by indices."""

from __future__ import annotations

from kernels.calls.calls_native import can_do, entry_of, hit_call, part_of, record_and_notify
from kernels.calls.computing_native import fill, over_nest, places, scalar
from kernels.calls.keys_native import given_arrays, tape_in_force
from kernels.language.llvm_values import kept_apart
from kernels.native import c_api, structs
from kernels.native.c_api import ArrayObject, TensorExtras, TensorObject, sixteen_words, three_words
from kernels.native.memory import (
    HEADER,
    LIST_ITEMS,
    load_f8,
    load_i4,
    load_i8,
    pointer_b1,
    pointer_f4,
    store_f8,
    store_i4,
    store_i8,
    word,
)
from kernels.native.objects_native import array_of, converted, dropped, elements, kind_of, owned
from kernels.native.record_native import outdate
from kernels.native.structs import CallEntry, CallOperand, CallRequest, RegistryTable, TapeHeader
from kernels.native.tape_native import reserve

# In-place operations as one native call: a tensor takes over the result of a hit, or is overwritten with it.
#
# A tensor whose memory nobody shares takes over the new array, so that saved references to the old one stay valid.
# Where that is not possible, as for a leaf, the array is overwritten if nothing is recorded and nobody else refers to
# it.

CONTROL = True


def new_counter():
    """A new version counter; 0 with an exception."""
    counter = c_api.PyList_New(0)
    number = c_api.PyLong_FromLongLong(0) if counter != 0 else 0
    failed = c_api.PyList_Append(counter, number) if number != 0 else -1
    c_api.Py_DecRef(number)
    return counter if failed == 0 else dropped(counter)


def new_extras(registry: RegistryTable, counter):
    """A new object for a tensor's rare attributes, which owns the version counter; 0 with an exception."""
    extras = TensorExtras(c_api.PyType_GenericAlloc(registry.extras_type, 0) if counter != 0 else 0)
    if extras == 0:
        return dropped(counter)
    extras.counter = counter
    extras.grad = owned(registry.none)
    extras.leaf = owned(registry.none)
    extras.retains = owned(registry.false)
    return extras


def counter_of(registry: RegistryTable, x: TensorObject):
    """A tensor's version counter (a list of one int), borrowed; 0 if it has none."""
    extras = x.extras
    counter = extras.counter if extras != 0 and kind_of(extras) == registry.extras_type else 0
    if counter == 0 or kind_of(counter) != registry.list_type or load_i8(counter + HEADER) != 1:
        return 0
    return counter if kind_of(load_i8(load_i8(counter + LIST_ITEMS))) == registry.int_type else 0


def is_counted(registry: RegistryTable, x: TensorObject):
    """Make sure that a tensor has a version counter; whether it has. Allocating may run any Python code."""
    if registry.extras_type != 0 and x.extras == 0:
        extras = new_extras(registry, new_counter())
        if x.extras == 0:
            x.extras = extras
        else:
            c_api.Py_DecRef(extras)
    return c_api.PyErr_Occurred() == 0 and counter_of(registry, x) != 0


def is_listing(x: TensorObject):
    """Make sure that a base has a list for its views; whether it has. Allocating may run any Python code."""
    if x.views == 0:
        views = c_api.PyList_New(0)
        if x.views == 0:
            x.views = views
        else:
            c_api.Py_DecRef(views)
    return x.views != 0


def count(registry, x):
    """Count a write; return the tensor as a new reference, 0 with an exception."""
    counter = counter_of(registry, x)
    if counter != 0:
        number = c_api.PyLong_FromLongLong(c_api.PyLong_AsLongLong(load_i8(load_i8(counter + LIST_ITEMS))) + 1)
        if number == 0 or c_api.PyList_SetItem(counter, 0, number) != 0:
            return 0
    return owned(x)


def is_only(registry: RegistryTable, value: ArrayObject):
    """Whether an array owns its memory, is writeable, and is referred to by one tensor only."""
    if value == 0 or kind_of(value) != registry.array_type or value.flags & c_api.A_WRITEABLE == 0:
        return False
    return load_i8(value) & c_api.COUNTED == 1 and value.base == 0


def is_written(registry, entry: CallEntry, operands, x: TensorObject):
    """Compute into the array of a tensor if nobody else refers to it; whether that was done."""
    value, kind = x.value, entry.kind
    nests = kind in (structs.NEST, structs.NEST4, structs.NEST_INT)
    if not is_only(registry, value) or (kind > structs.ONCE and not nests) or can_do(0, entry, operands) == 0:
        return False
    if nests:
        fill(entry, operands, value.data)
    else:
        store_f8(value.data, scalar(entry, operands))
    return True


def is_scalar(registry: RegistryTable, value: ArrayObject):
    """Whether a value has no dims."""
    kind = kind_of(value) if value != 0 else 0
    return kind == registry.float_type or (kind == registry.array_type and value.ndim == 0)


def can_take(registry: RegistryTable, t, x: TensorObject):
    """Whether a tensor may take over a new array: nobody shares its memory, and it is not a leaf being recorded."""
    value, slot, extras = x.value, x.slot, x.extras
    if value == 0 or slot == c_api.STALE or kind_of(x) != registry.tensor_type:
        return False
    if x.base != 0 or x.views != 0 or x.shared != 0:
        return False
    if kind_of(value) != registry.float_type:
        array = kind_of(value) == registry.array_type
        if slot < 0 or not array or value.flags & c_api.A_WRITEABLE == 0:
            return False
    elif slot < 0 and t != 0:
        return False
    return counter_of(registry, x) != 0 and extras.retains == registry.false


def exchange(x, y, at):
    held = load_i8(x + at)
    store_i8(x + at, load_i8(y + at))
    store_i8(y + at, held)


def take(registry, call: CallRequest, x: TensorObject):
    """Swap value and, if recorded, history of a tensor with those of a new one, which is then released."""
    form, result = x.form, TensorObject(hit_call(call.marks & ~structs.WRITES, call.args, call.count))
    if result == 0 or result == structs.NOT_NATIVE:
        return 0
    # Making the result may have run any Python code.
    counted = 0
    if can_take(registry, call.tape, x) and x.form == form:
        if x.slot == 0 or result.slot != 0:
            exchange(x, result, TensorObject.form)
            exchange(x, result, TensorObject.slot)
            exchange(x, result, TensorObject.bytes)
        exchange(x, result, TensorObject.value)
        counted = count(registry, x)
    c_api.Py_DecRef(result)
    return counted


@kept_apart
def update(registry: RegistryTable, call: CallRequest):
    """Repeat an in-place operation, named as the one that is not in place: NumPy's scalars are given its result.

    Return the tensor, or 0 where Python has to do it or has raised.
    """
    x, as_value = TensorObject(load_i8(call.args)), 0
    if kind_of(x) != registry.tensor_type or x.base != 0:
        return 0
    if call.marks & structs.AUGMENTED != 0 and is_scalar(registry, x.value):
        as_value = given_arrays(registry)
    if as_value != 0:  # Python knows which leaves are written
        return hit_call(call.marks & ~structs.WRITES, call.args, call.count) if as_value > 0 and x.slot >= 0 else 0
    entry = CallEntry(entry_of(registry, call) if is_counted(registry, x) else 0)
    if entry == 0 or call.tape & 1 != 0 or entry.takes == 0:
        return 0
    if can_take(registry, call.tape, x):
        return take(registry, call, x)
    written = entry.block == 0 and is_written(registry, entry, call.operands, x)
    return count(registry, x) if written else 0


# Writes to a part of a tensor, or to places in it, as one native call, if nobody else sees the memory.
#
# ``x[key] = value``, and functions such as ``index_put`` and ``index_add``. If the array has one reference, there is
# no view of it, no other NumPy array, and no pullback that saved it. The value may be the one view that there is, as
# in ``x[0] = x[1]``: where the two may share elements, a copy of it is written. Of several values for one element the
# last stays.

# How a part that is written, and the value written there, stand to each other in one memory.


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
        return structs.SAME
    distance = first + lowest(layout, 0) - second - lowest(layout, 1)
    if distance >= extent_of(layout, 1, 0, item) or -distance >= extent_of(layout, 0, 0, item):
        return structs.APART
    for at in range(2 * (word(layout, 2) + 1)):
        period = stride_in(layout, at)
        if period != 0:
            place = distance % period
            if place >= extent_of(layout, 1, period, item) and place + extent_of(layout, 0, period, item) <= period:
                return structs.APART
    return structs.OVERLAPPING


# Who else sees the memory.


def is_view_of(registry: RegistryTable, x, value: TensorObject):
    """Whether an operand is a view of a tensor's memory, of the current version, without rare attributes."""
    if kind_of(value) != registry.tensor_type or value.base != x:
        return False
    return value.shared == 0 and value.extras == 0  # else it may have left the family


def is_shared(registry: RegistryTable, array: ArrayObject, view: TensorObject):
    """Whether an array owns its memory, is writeable, and is referred to by its tensor and by a view of one tensor."""
    part = view.value
    if part == 0 or kind_of(part) != registry.array_type or load_i8(part) & c_api.COUNTED != 1:
        return False
    if part.base != array or load_i8(array) & c_api.COUNTED != 2 or array.base != 0:
        return False
    return kind_of(array) == registry.array_type and array.flags & c_api.A_WRITEABLE != 0


def copy_of(registry: RegistryTable, x: TensorObject, view):
    """A copy of the one view of a tensor: a new reference; 0 where Python has to make it, or with an exception.

    Making it may run any Python code: everything is to be read again.
    """
    t = tape_in_force(registry)
    if t == -1 or t & 1 != 0 or not is_shared(registry, x.value, view):
        return 0
    args = three_words()
    store_i8(args, view)
    copy = hit_call(registry.clone, args, 1)
    if copy == structs.NOT_NATIVE:
        return 0
    return copy if is_view_of(registry, x, view) else dropped(copy)


def released(registry, x, view: TensorObject):
    """Give the one view of a tensor memory of its own, by a recorded copy if it is recorded; whether that was done."""
    copy = TensorObject(copy_of(registry, x, view))
    if copy == 0:
        return False
    alike = (copy.slot != 0) == (view.slot != 0)
    if alike:
        for at in range(TensorObject.value, TensorObject.weak, 8):
            exchange(view, copy, at)
    c_api.Py_DecRef(copy)
    return alike


# The write.


def is_twice(picked, number, extent):
    """Whether an element is picked twice, or there is no memory to find out."""
    seen, twice = c_api.PyMem_RawCalloc(extent, 1), 0
    if seen == 0:
        return True
    for k in range(number):
        at = seen + word(picked, k)
        twice += pointer_b1(at)[0]
        pointer_b1(at)[0] = 1
    c_api.PyMem_RawFree(seen)
    return twice != 0


def put_values(entry: CallEntry, picked, number, source, target):
    """Copy elements of a value to the picked elements."""
    item, offsets = entry.count, entry.data
    for k in range(number):
        start, to = source + word(offsets, k), target + item * word(picked, k)
        if item == 8:
            store_i8(to, load_i8(start))
        elif item == 4:
            store_i4(to, load_i4(start))
        else:
            for b in range(item):
                pointer_b1(to + b)[0] = pointer_b1(start + b)[0]


def add(entry: CallEntry, picked, number, source, target):
    """Add elements of a value to the picked elements."""
    kind, offsets = entry.kind, entry.data
    for k in range(number):
        start, at = source + word(offsets, k), word(picked, k)
        if kind == structs.NEST:
            to = target + 8 * at
            store_f8(to, load_f8(to) + load_f8(start))
        elif kind == structs.NEST4:
            pointer_f4(target)[at] += pointer_f4(start)[0]
        else:
            to = target + 8 * at
            store_i8(to, load_i8(to) + load_i8(start))


def write_part(call: CallRequest, entry: CallEntry, array: ArrayObject, shares):
    """Write a value to a part, from which it is apart if it ``shares`` memory; whether that was done."""
    row, source = sixteen_words(), CallOperand(call.operands + CallOperand.SIZE).place
    target = array.data + part_of(entry, call.words, CallEntry.start)
    if shares:
        how = relation(entry.layout, source, target, 4 if entry.kind == structs.NEST4 else 8)
        if how != structs.APART:
            return how == structs.SAME and entry.wants == 0
    store_i8(row, source)
    store_i8(row + 8, target)
    over_nest(entry, row)
    return True


def write_places(registry, call: CallRequest, entry: CallEntry, array: ArrayObject):
    """Write a value to the places that arrays pick, whose numbers the call then holds; whether that was done."""
    picked, source = array_of(registry, entry.ndim, entry.shape, c_api.LONGS, False), call.operands + CallOperand.SIZE
    call.held = picked
    number, at = elements(entry.shape, entry.ndim), ArrayObject(picked).data if picked != 0 else 0
    if picked == 0 or places(entry.layout, call + CallRequest.arrays, at) == 0:
        return False
    if entry.extent != 0 and is_twice(at, number, entry.extent):
        return False
    if entry.target == structs.ADDED_TO_PLACES:
        add(entry, at, number, CallOperand(source).place, array.data)
    else:
        put_values(entry, at, number, CallOperand(source).place, array.data)
    return True


def can_write(registry: RegistryTable, call: CallRequest, entry: CallEntry, view: TensorObject):
    """Whether a write can be done and recorded now: x is no leaf, retains no gradient, and the tape has room."""
    x, t, block = TensorObject(load_i8(call.args)), TapeHeader(call.tape & ~3), entry.block
    if converted(entry, call.operands) == 0:
        return False
    if entry.wants == 0:
        return True
    if (view != 0 and view.slot <= 0) or x.slot < 0 or x.extras.retains != registry.false:
        return False  # of a view without a slot it is unknown whether it becomes stale
    return t.size + block.entries <= t.room and reserve(t, block.entries) != 0


def written(registry, call: CallRequest, value: TensorObject, view: TensorObject):
    """Write a value; return the tensor, a new reference, 0 where that was not done or an error was raised.

    ``view``: the one view of the tensor, which the value is or was copied from; or 0.
    """
    x = TensorObject(load_i8(call.args))
    if x.base != 0 or not is_counted(registry, x):
        return 0
    call.value = value
    entry = CallEntry(entry_of(registry, call))
    array, shares = x.value, view != 0 and value == view
    if entry == 0 or CallOperand(call.operands + CallOperand.SIZE).object == array:
        return 0
    alone = is_only(registry, array) if view == 0 else is_shared(registry, array, view)
    if not alone or not can_write(registry, call, entry, view):
        return 0
    if entry.target == structs.TO_PART:
        done = write_part(call, entry, array, shares)
    else:
        done = not shares and write_places(registry, call, entry, array)
    if not done:
        return 0
    if entry.wants != 0:
        results, offset = three_words(), CallOperand(call.operands + 2 * CallOperand.SIZE)
        store_i8(results, x)
        store_i8(results + 8, 0)
        offset.object = 0
        offset.double = part_of(entry, call.words, CallEntry.offset) if entry.target == structs.TO_PART else 0
        record_and_notify(registry, call, entry, results, call.held if call.held != 0 else x)
        if view != 0:
            outdate(registry, view)
    return count(registry, x)


@kept_apart
def write_view(registry: RegistryTable, call: CallRequest, x, view: TensorObject):
    """Write the one view of a tensor, or a copy of it, to the tensor."""
    if is_scalar(registry, view.value) and given_arrays(registry) != 0:  # an element, in functions given arrays
        return written(registry, call, view, 0) if released(registry, x, view) else 0
    result = written(registry, call, view, view)
    copy = copy_of(registry, x, view) if result == 0 and c_api.PyErr_Occurred() == 0 else 0
    if copy != 0:
        result = written(registry, call, copy, view)
        c_api.Py_DecRef(copy)
    return result


def write_again(registry: RegistryTable, call: CallRequest):
    """Write the last argument of a call to a part of the first, or to places in it, as the arguments between them say.

    Return the tensor, a new reference; 0 where Python has to do it, or with an exception.
    """
    x, value = TensorObject(load_i8(call.args)), TensorObject(word(call.args, call.count - 1))
    if call.count < 3 or call.names != 0 or kind_of(x) != registry.tensor_type:
        return 0
    if is_view_of(registry, x, value):
        return write_view(registry, call, x, value)
    return written(registry, call, value, 0)
