"""Reads Python's objects natively: types are checked before anything is read."""

from __future__ import annotations

from kernels.native.memory import call_at, load_i8, store_i8, word
from kernels.native.numpy_api import new_array
from kernels.native.object_structs import DOUBLES, ArrayObject, TensorObject
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyErr_SetNone,
    PyLong_AsLongLong,
    PyObject_GC_Track,
    PyObject_Init,
    PyType_GenericAlloc,
    PyType_IsSubtype,
    call_visit,
)
from kernels.native.tape_structs import RegistryTable


def kind_of(x):
    return load_i8(x + 8)


def none(registry: RegistryTable):
    """A new reference to None."""
    result = registry.none
    Py_IncRef(result)
    return result


def put(at, value):
    """Store a new reference to an object in an empty place."""
    Py_IncRef(value)
    store_i8(at, value)


def wrong(registry: RegistryTable):
    """Raise TypeError, unless something has been raised."""
    if PyErr_Occurred() == 0:
        PyErr_SetNone(registry.type_error)
    return 0


def integer_of(registry: RegistryTable, x):
    """The value of an integer; -1 for anything else."""
    return PyLong_AsLongLong(x) if kind_of(x) == registry.int_type else -1


def is_array(registry: RegistryTable, x):
    kind = kind_of(x)
    return kind == registry.array_type or PyType_IsSubtype(kind, registry.array_type) != 0


def elements(shape, count):
    """How many elements a shape of so many dims has."""
    product = 1
    for k in range(count):
        product *= word(shape, k)
    return product


def array_of(registry: RegistryTable, ndim, shape, dtype, large):
    """A new array of a shape and the number of a dtype, a large one from the pool; 0 with an exception."""
    kind = registry.array_type
    if large and registry.pooled != 0:
        return call_at(registry.pooled, kind, ndim, shape, dtype)
    return new_array(registry.new_array, kind, ndim, shape, dtype)


def new_tensor(registry: RegistryTable):
    """A new empty tensor, in the memory of a dead one if there is one; 0 with an exception.

    Else memory is allocated, which may start a garbage collection, and so run any Python code.
    """
    tensor = TensorObject(registry.spare)
    if tensor == 0:
        return PyType_GenericAlloc(registry.tensor_type, 0)
    registry.spare = tensor.value
    registry.spares -= 1
    tensor.value = 0
    PyObject_Init(tensor, registry.tensor_type)
    PyObject_GC_Track(tensor)
    return tensor


def is_double(registry: RegistryTable, x: ArrayObject):
    """Whether an object is a double: a float, or an array of float64 of one element."""
    if kind_of(x) == registry.float_type:
        return True
    if not is_array(registry, x) or x.dtype.number != DOUBLES:
        return False
    axis = 0
    while axis < x.ndim and x.shape[axis] == 1:
        axis += 1
    return axis == x.ndim


def block_of(registry: RegistryTable, code):
    """The block of the form of a number; 0 if there is none."""
    return registry.forms[code] if code >= 0 and code < registry.form_count else 0


def visit_all(first, last, visit, argument):
    """Show the garbage collector the objects in a range of addresses; its answer, 0 to go on."""
    for at in range(first, last + 8, 8):
        held = load_i8(at)
        if held != 0:
            status = call_visit(visit, held, argument)
            if status != 0:
                return status
    return 0


def drop_all(first, last):
    """Release the objects in a range of addresses; all are taken out first, since releasing may run any Python code."""
    for at in range(first, last + 8, 8):
        held = load_i8(at)
        if held != 0:
            store_i8(at, 0)
            Py_DecRef(held)
