"""Makes leaves natively: from a float, a list of floats, an array of doubles, or a tensor."""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.calls.notifying_native import look_at
from kernels.native.memory import HEADER, load_f8, load_i8, store_f8, store_i8, word
from kernels.native.numpy_api import C_ORDER, array_copy, new_array
from kernels.native.object_structs import A_SIMPLE, DOUBLES, ArrayObject, LeafObject, TensorObject
from kernels.native.objects_native import elements, kind_of, new_tensor, none, wrong
from kernels.native.pool.pool_calls import module_words
from kernels.native.pool.pool_structs import LARGE
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    PyErr_Occurred,
    PyList_GetItem,
    PyList_Size,
    PyLong_AsLongLong,
    PyObject_Vectorcall,
    PyThread_get_thread_ident,
    PyType_GenericAlloc,
    PyWeakref_NewRef,
    tape_registry,
    three_words,
)
from kernels.native.tape_structs import RegistryTable

CONTROL = True

MOST_FLOATS, MOST_DIMS, SPECS, SPEC = 64, 3, 64, 5
"""Limits: floats in a list; dims of shapes whose specs are cached; entries of the cache; words of an entry."""
specs = module_words(SPECS * SPEC)


def asked_spec(array):
    """A new reference to the spec of an array, by Python."""
    args = three_words()
    store_i8(args, array)
    return PyObject_Vectorcall(tape_registry().spec_of, args, 1, 0)


def spec_of(array: ArrayObject):
    """A new reference to the spec of a C-contiguous array of doubles, which its shape determines."""
    count, shape = array.ndim, array.shape
    if count > MOST_DIMS:
        return asked_spec(array)
    mixed = count
    for k in range(count):
        mixed = mixed * 31 + shape[k]
    entry = specs() + 8 * SPEC * (mixed & (SPECS - 1))
    spec = load_i8(entry)
    same = spec != 0 and word(entry, 1) == count
    for k in range(count):
        same = same and word(entry, 2 + k) == shape[k]
    if not same:
        before, spec = spec, asked_spec(array)
        if spec == 0:
            return 0
        Py_IncRef(spec)
        before = load_i8(entry)
        store_i8(entry, spec)
        store_i8(entry + 8, count)
        for k in range(count):
            store_i8(entry + 16 + 8 * k, shape[k])
        if before != 0:
            Py_DecRef(before)
        return spec
    Py_IncRef(spec)
    return spec


def listed(registry: RegistryTable, data):
    """A new array from a list of floats; 0 without an exception if it is none."""
    count = PyList_Size(data)
    if count == 0 or count > MOST_FLOATS:
        return 0
    for k in range(count):
        if kind_of(PyList_GetItem(data, k)) != registry.float_type:
            return 0
    shape = three_words()
    store_i8(shape, count)
    array = ArrayObject(new_array(registry.new_array, registry.array_type, 1, shape, DOUBLES))
    if array != 0:
        for k in range(count):
            store_f8(array.data + 8 * k, load_f8(PyList_GetItem(data, k) + HEADER))
    return array


def is_usual(registry: RegistryTable, data: ArrayObject):
    """Whether an array is a small one of doubles with at least one dim."""
    count = data.ndim
    if count == 0 or data.dtype != registry.double:
        return False
    return 8 * elements(data.shape, count) < LARGE


def value_of(registry: RegistryTable, data):
    """A new reference to a tensor's value made of data; 0 where Python has to do it or has raised."""
    kind = kind_of(data)
    if kind == registry.float_type:
        Py_IncRef(data)
        return data
    if kind == registry.array_type:
        return array_copy(registry.copy_array, data, C_ORDER) if is_usual(registry, data) else 0
    return listed(registry, data) if kind == registry.list_type else 0


def is_in_order(array: ArrayObject):
    """Whether an array of doubles is C-contiguous, so that its shape determines its spec."""
    count, size = array.ndim, 8
    for k in range(count - 1, -1, -1):
        if array.strides[k] != size:
            return False
        size *= array.shape[k]
    return size != 0


def shared(registry: RegistryTable, x: TensorObject):
    """A new reference to the value of a tensor without history; 0 where Python has to do it."""
    value = ArrayObject(x.value if x.slot == 0 else 0)
    if value == 0:
        return 0
    if kind_of(value) != registry.float_type:
        if kind_of(value) != registry.array_type or value.dtype != registry.double:
            return 0
        if value.ndim == 0 or value.flags & A_SIMPLE != A_SIMPLE or not is_in_order(value):
            return 0
    Py_IncRef(value)
    return value


def is_own(registry: RegistryTable):
    """Whether the current tape belongs to this thread: a copied context may have another thread's."""
    tape = look_at(registry.active)
    if tape == 0:
        PyErr_Clear()
        return False
    same = kind_of(tape) != registry.tape_type
    if not same:
        thread = load_i8(tape + registry.thread)
        same = thread != 0 and PyLong_AsLongLong(thread) == PyThread_get_thread_ident()
    Py_DecRef(tape)
    return same


def slot_of(registry: RegistryTable, x, spec):
    """A new slot of a leaf; 0 with an exception."""
    leaf = LeafObject(PyType_GenericAlloc(registry.leaf_type, 0))
    owner = PyWeakref_NewRef(x, 0) if leaf != 0 else 0
    if owner == 0:
        if leaf != 0:
            Py_DecRef(leaf)
        return 0
    Py_IncRef(spec)
    Py_IncRef(registry.none)
    leaf.spec = spec
    leaf.owner = owner
    leaf.grad = registry.none
    return leaf


def leaf_of(registry: RegistryTable, value, wanted):
    """A leaf with a value, whose reference it takes over; 0 with an exception."""
    x, spec = TensorObject(new_tensor(registry)), registry.scalar_spec
    if x == 0:
        Py_DecRef(value)
        return 0
    x.value = value
    if kind_of(value) == registry.float_type:
        Py_IncRef(spec)
    else:
        spec = spec_of(value)
    x.form = spec
    slot = slot_of(registry, x, spec) if spec != 0 and wanted else 0
    if spec == 0 or (wanted and slot == 0):
        Py_DecRef(x)
        return 0
    x.slot = -slot
    return x


def made(self: Word, args: Word, count: Word) -> Word:
    """``made(data, requires_grad)``: a new leaf that holds a copy; None for unusual data, which Python handles."""
    registry = tape_registry()
    if count != 2:
        return wrong(registry)
    wanted = word(args, 1) != registry.false
    value = value_of(registry, load_i8(args)) if not wanted or is_own(registry) else 0
    if value == 0:
        return none(registry) if PyErr_Occurred() == 0 else 0
    return leaf_of(registry, value, wanted)


def taken(self: Word, args: Word, count: Word) -> Word:
    """``taken(argument)``: a new leaf of a float or an array, or sharing a tensor's value; None for other arguments."""
    registry, value = tape_registry(), 0
    if count != 1:
        return wrong(registry)
    if is_own(registry):
        kind = kind_of(load_i8(args))
        if kind == registry.tensor_type:
            value = shared(registry, load_i8(args))
        elif kind != registry.list_type:
            value = value_of(registry, load_i8(args))
    if value == 0:
        return none(registry) if PyErr_Occurred() == 0 else 0
    return leaf_of(registry, value, True)
