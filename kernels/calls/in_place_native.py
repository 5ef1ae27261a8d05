"""In-place operations as one native call: a tensor takes over the result of a hit, or is overwritten with it.

A tensor whose memory nobody shares takes over the new array, so that saved references to the old one stay valid. Where
that is not possible, as for a leaf, the array is overwritten if nothing is recorded and nobody else refers to it.
"""

from __future__ import annotations

from kernels.calls.calls_native import can_do, entry_of, hit
from kernels.calls.computing_native import fill, scalar
from kernels.calls.notifying_native import given_arrays
from kernels.language.native_types import kept_apart
from kernels.native.c_api import (
    A_WRITEABLE,
    COUNTED,
    STALE,
    ArrayObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyList_Append,
    PyList_New,
    PyList_SetItem,
    PyLong_AsLongLong,
    PyLong_FromLongLong,
    PyType_GenericAlloc,
    TensorExtras,
    TensorObject,
)
from kernels.native.memory import HEADER, LIST_ITEMS, load_i8, store_f8, store_i8
from kernels.native.objects_native import kind_of, put
from kernels.native.structs import (
    AUGMENTED,
    NEST,
    NEST4,
    NEST_INT,
    NOT_NATIVE,
    ONCE,
    WRITES,
    CallEntry,
    CallRequest,
    RegistryTable,
)

CONTROL = True


def new_counter():
    """A new version counter; 0 with an exception."""
    counter = PyList_New(0)
    number = PyLong_FromLongLong(0) if counter != 0 else 0
    failed = PyList_Append(counter, number) if number != 0 else -1
    if number != 0:
        Py_DecRef(number)
    if failed != 0 and counter != 0:
        Py_DecRef(counter)
    return counter if failed == 0 else 0


def new_extras(registry: RegistryTable, counter):
    """A new object for a tensor's rare attributes, which owns the version counter; 0 with an exception."""
    extras = TensorExtras(PyType_GenericAlloc(registry.extras_type, 0) if counter != 0 else 0)
    if extras == 0:
        if counter != 0:
            Py_DecRef(counter)
        return 0
    extras.counter = counter
    put(extras + TensorExtras.grad, registry.none)
    put(extras + TensorExtras.leaf, registry.none)
    put(extras + TensorExtras.retains, registry.false)
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
        if extras != 0 and x.extras == 0:
            x.extras = extras
        elif extras != 0:
            Py_DecRef(extras)
    return PyErr_Occurred() == 0 and counter_of(registry, x) != 0


def is_listing(x: TensorObject):
    """Make sure that a base has a list for its views; whether it has. Allocating may run any Python code."""
    if x.views == 0:
        views = PyList_New(0)
        if x.views == 0:
            x.views = views
        elif views != 0:
            Py_DecRef(views)
    return x.views != 0


def count(registry, x):
    """Count a write; return the tensor as a new reference, 0 with an exception."""
    counter = counter_of(registry, x)
    if counter != 0:
        number = PyLong_FromLongLong(PyLong_AsLongLong(load_i8(load_i8(counter + LIST_ITEMS))) + 1)
        if number == 0 or PyList_SetItem(counter, 0, number) != 0:
            return 0
    Py_IncRef(x)
    return x


def is_only(registry: RegistryTable, value: ArrayObject):
    """Whether an array owns its memory, is writeable, and is referred to by one tensor only."""
    if value == 0 or kind_of(value) != registry.array_type or value.flags & A_WRITEABLE == 0:
        return False
    return load_i8(value) & COUNTED == 1 and value.base == 0


def is_written(registry, entry: CallEntry, operands, x: TensorObject):
    """Compute into the array of a tensor if nobody else refers to it; whether that was done."""
    value, kind = x.value, entry.kind
    nests = kind in (NEST, NEST4, NEST_INT)
    if not is_only(registry, value) or (kind > ONCE and not nests) or can_do(0, entry, operands) == 0:
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
    if value == 0 or slot == STALE or kind_of(x) != registry.tensor_type:
        return False
    if x.base != 0 or x.views != 0 or x.shared != 0:
        return False
    if kind_of(value) != registry.float_type:
        array = kind_of(value) == registry.array_type
        if slot < 0 or not array or value.flags & A_WRITEABLE == 0:
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
    form, result = x.form, TensorObject(hit(call.marks & ~WRITES, call.args, call.count))
    if result == 0 or result == NOT_NATIVE:
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
    Py_DecRef(result)
    return counted


@kept_apart
def update(registry: RegistryTable, call: CallRequest):
    """Repeat an in-place operation, named as the one that is not in place: NumPy's scalars are given its result.

    Return the tensor, or 0 where Python has to do it or has raised.
    """
    x, as_value = TensorObject(load_i8(call.args)), 0
    if kind_of(x) != registry.tensor_type or x.base != 0:
        return 0
    if call.marks & AUGMENTED != 0 and is_scalar(registry, x.value):
        as_value = given_arrays(registry)
    if as_value != 0:  # Python knows which leaves are written
        return hit(call.marks & ~WRITES, call.args, call.count) if as_value > 0 and x.slot >= 0 else 0
    entry = CallEntry(entry_of(registry, call) if is_counted(registry, x) else 0)
    if entry == 0 or call.tape & 1 != 0 or entry.takes == 0:
        return 0
    if can_take(registry, call.tape, x):
        return take(registry, call, x)
    written = entry.block == 0 and is_written(registry, entry, call.operands, x)
    return count(registry, x) if written else 0
