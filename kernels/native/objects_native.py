"""Reads Python's objects natively: types are checked before anything is read."""

from __future__ import annotations

from kernels.native.memory import call_at, load_i4, load_i8, store_i8, word
from kernels.native.numpy_api import new_array
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
from kernels.native.words import (
    A_DTYPE,
    A_NDIM,
    A_SHAPE,
    D_NUMBER,
    DOUBLES,
    G_ARRAY,
    G_FLOAT,
    G_FORMCOUNT,
    G_FORMS,
    G_INT,
    G_NEW,
    G_NONE,
    G_POOLED,
    G_SPARE,
    G_SPARES,
    G_TENSOR,
    G_TYPEERROR,
    O_VALUE,
)


def kind_of(x):
    return load_i8(x + 8)


def none(registry):
    """A new reference to None."""
    result = word(registry, G_NONE)
    Py_IncRef(result)
    return result


def put(at, value):
    """Store a new reference to an object in an empty place."""
    Py_IncRef(value)
    store_i8(at, value)


def wrong(registry):
    """Raise TypeError, unless something has been raised."""
    if PyErr_Occurred() == 0:
        PyErr_SetNone(word(registry, G_TYPEERROR))
    return 0


def integer_of(registry, x):
    """The value of an integer; -1 for anything else."""
    return PyLong_AsLongLong(x) if kind_of(x) == word(registry, G_INT) else -1


def is_array(registry, x):
    kind = kind_of(x)
    return kind == word(registry, G_ARRAY) or PyType_IsSubtype(kind, word(registry, G_ARRAY)) != 0


def elements(shape, count):
    """How many elements a shape of so many dims has."""
    product = 1
    for k in range(count):
        product *= word(shape, k)
    return product


def array_of(registry, ndim, shape, dtype, large):
    """A new array of a shape and the number of a dtype, a large one from the pool; 0 with an exception."""
    kind = word(registry, G_ARRAY)
    if large and word(registry, G_POOLED) != 0:
        return call_at(word(registry, G_POOLED), kind, ndim, shape, dtype)
    return new_array(word(registry, G_NEW), kind, ndim, shape, dtype)


def new_tensor(registry):
    """A new empty tensor, in the memory of a dead one if there is one; 0 with an exception.

    Else memory is allocated, which may start a garbage collection, and so run any Python code.
    """
    tensor = word(registry, G_SPARE)
    if tensor == 0:
        return PyType_GenericAlloc(word(registry, G_TENSOR), 0)
    store_i8(registry + 8 * G_SPARE, load_i8(tensor + O_VALUE))
    store_i8(registry + 8 * G_SPARES, word(registry, G_SPARES) - 1)
    store_i8(tensor + O_VALUE, 0)
    PyObject_Init(tensor, word(registry, G_TENSOR))
    PyObject_GC_Track(tensor)
    return tensor


def is_double(registry, x):
    """Whether an object is a double: a float, or an array of float64 of one element."""
    if kind_of(x) == word(registry, G_FLOAT):
        return True
    if not is_array(registry, x) or load_i4(load_i8(x + A_DTYPE) + D_NUMBER) != DOUBLES:
        return False
    axis = 0
    while axis < load_i4(x + A_NDIM) and word(load_i8(x + A_SHAPE), axis) == 1:
        axis += 1
    return axis == load_i4(x + A_NDIM)


def block_of(registry, code):
    """The block of the form of a number; 0 if there is none."""
    return word(word(registry, G_FORMS), code) if code >= 0 and code < word(registry, G_FORMCOUNT) else 0


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
