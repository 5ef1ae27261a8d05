"""Functions and methods of tensors as native callables: a hit in the table of calls, else Python."""

from __future__ import annotations

from kernels.language.native_types import Int32, Void, Word
from kernels.native.c_api import (
    ARGUMENTS,
    FunctionObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyMethod_New,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    PyObject_Vectorcall,
    PyTuple_GetItem,
    PyTuple_Size,
    TensorObject,
    call_visit,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.call_structs import (
    ARGUED,
    JOINS,
    MOST_OPERANDS,
    NOT_NATIVE,
    NUMBERED,
    OP_ADD,
    OP_DIVIDE,
    OP_MATMUL,
    OP_MULTIPLY,
    OP_NEGATIVE,
    OP_POWER,
    OP_SUBTRACT,
    PICKS,
    PUTS,
    SHARES,
    SHOWS,
    WRITES,
)
from kernels.native.calls.arguments_native import call_words, tensors_in
from kernels.native.memory import call_at, store_i8
from kernels.native.objects_native import drop_all, visit_all
from kernels.native.structs import RegistryTable

CONTROL = True

# How operators and functions of tensors reach the table of calls, by addresses in the registry, and else Python.


def hit(op, args, count, number):
    """See kernels/native/calls/calls_native.py: called by address, so that it is compiled once."""
    return call_at(tape_registry().hit, op, args, count, number)


def hit_view(op, args, count):
    """See kernels/native/indexing/parts_native.py."""
    return call_at(tape_registry().hit_view, op, args, count, 0)


def hit_in_place(op, args, count):
    """See kernels/native/calls/in_place_native.py: loaded at the first such call."""
    address = tape_registry().hit_in_place
    return call_at(address, op, args, count, 0) if address != 0 else 0


def hit_shared(op, args):
    """See kernels/calls/tensor_native.py: likewise."""
    address = tape_registry().hit_shared
    return call_at(address, op, args, 1, 0) if address != 0 else 0


def hit_picked(op, args, count):
    """See kernels/native/indexing/index_arrays_native.py: likewise."""
    address = tape_registry().hit_picked
    return call_at(address, op, args, count, 0) if address != 0 else 0


def hit_put(op, args, count):
    """See kernels/native/indexing/putting_native.py: likewise."""
    address = tape_registry().hit_put
    return call_at(address, op, args, count, 0) if address != 0 else 0


def hit_joined(op, args, count):
    """See kernels/native/calls/joining_native.py: likewise."""
    address = tape_registry().hit_joined
    return call_at(address, op, args, count, 0) if address != 0 else 0


def hit_adopted(op, args, count, asked):
    """See adopting_native.py: likewise; wraps arrays and tries the function at ``asked`` in the registry again."""
    address = tape_registry().hit_adopted
    return call_at(address, op, args, count, asked) if address != 0 and PyErr_Occurred() == 0 else 0


def hit_assign(x, key, value):
    """See kernels/native/indexing/assigning_native.py and putting_native.py: likewise."""
    registry, result = tape_registry(), 0
    if registry.assign != 0:
        result = call_at(registry.assign, x, key, value, 0)
    if result == 0 and registry.assign_at != 0 and PyErr_Occurred() == 0:
        result = call_at(registry.assign_at, x, key, value, 0)
    return result


def missed(op, args, count, always):
    """Let Python do it."""
    asked = tape_registry().missed[2 * op + always]
    return PyObject_Vectorcall(asked, args, count, 0)


def operate(op, a, b):
    args, count = three_words(), 2 if b != 0 else 1
    store_i8(args, a)
    store_i8(args + 8, b)
    result = hit(op, args, count, 0)
    if result == 0:
        result = hit_adopted(op, args, count, RegistryTable.hit)
    if result == NOT_NATIVE:
        return missed(op & (NUMBERED - 1), args, count, 1)
    if result == 0 and PyErr_Occurred() == 0:
        return missed(op & (NUMBERED - 1), args, count, 0)
    return result


def hit_argued(op, args, count, names):
    """The result of a call with arguments behind its tensors, if it is in the table."""
    registry, asked = tape_registry(), thirty_words()
    tensors = tensors_in(registry, args, count)
    if tensors == count and tensors != 0 and names == 0:
        return hit(op, args, tensors, 0)
    if tensors == 0 or call_words(registry, args, tensors, count, names, asked) == 0:
        return 0
    return hit(op, args, tensors, asked)


def names_dim(registry: RegistryTable, arguments, names):
    """Whether there is one argument and at most a dim behind it, by place or by name."""
    if names == 0:
        return 1 if arguments <= 2 else 0
    name = PyTuple_GetItem(names, 0) if arguments == 1 and PyTuple_Size(names) == 1 else 0
    return 1 if name != 0 and (name == registry.dim or name == registry.axis) else 0


def vectorcall(self: FunctionObject, args: Word, count: Word, names: Word) -> Word:
    number, arguments = self.number, count & ARGUMENTS
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
                result = hit_adopted(number & (WRITES - 1), args, arguments, RegistryTable.hit_in_place)
    elif number >= SHOWS:
        if names == 0 and arguments >= 1:
            result = hit_view(number & (NUMBERED - 1), args, arguments)
    elif number >= ARGUED:
        result = hit_argued(number & (NUMBERED - 1), args, arguments, names)
    elif names == 0 and 1 <= arguments <= MOST_OPERANDS:
        result = hit(number, args, arguments, 0)
        if result == 0:
            result = hit_adopted(number, args, arguments, RegistryTable.hit)
    if result == NOT_NATIVE:
        return PyObject_Vectorcall(self.always, args, count, names)
    if result != 0 or PyErr_Occurred() != 0:
        return result
    return PyObject_Vectorcall(self.slow, args, count, names)


def descr_get(self: Word, x: Word, kind: Word) -> Word:
    if x == 0:
        Py_IncRef(self)
        return self
    return PyMethod_New(self, x)


def traverse(self: TensorObject, visit: Word, argument: Word) -> Int32:
    status = visit_all(self + FunctionObject.slow, self + FunctionObject.attributes, visit, argument)
    return status if status != 0 else call_visit(visit, self.type, argument)


def clear(self: Word) -> Int32:
    drop_all(self + FunctionObject.attributes, self + FunctionObject.attributes)
    return 0


def dealloc(self: TensorObject) -> Void:
    kind = self.type
    PyObject_GC_UnTrack(self)
    drop_all(self + FunctionObject.slow, self + FunctionObject.attributes)
    PyObject_GC_Del(self)
    Py_DecRef(kind)


# The slots of the type of tensors for operators.


def nb_add(a: Word, b: Word) -> Word:
    return operate(OP_ADD, a, b)


def nb_subtract(a: Word, b: Word) -> Word:
    return operate(OP_SUBTRACT, a, b)


def nb_multiply(a: Word, b: Word) -> Word:
    return operate(OP_MULTIPLY, a, b)


def nb_true_divide(a: Word, b: Word) -> Word:
    return operate(OP_DIVIDE, a, b)


def nb_power(a: Word, b: Word, modulus: Word) -> Word:
    registry = tape_registry()
    if modulus != registry.none:
        result = registry.not_implemented
        Py_IncRef(result)
        return result
    return operate(OP_POWER | NUMBERED, a, b)


def nb_negative(a: Word) -> Word:
    return operate(OP_NEGATIVE, a, 0)


def nb_matrix_multiply(a: Word, b: Word) -> Word:
    return operate(OP_MATMUL, a, b)
