"""Functions and methods of tensors as native callables: a hit in the table of calls, else Python."""

from __future__ import annotations

from kernels.calls.calls_native import begin, begin_join, call_words, end, entry_at, entry_of, new_value, part_of
from kernels.calls.keys_native import forget, put_call
from kernels.calls.wrapping_native import base_of, hit_wrapped, new_alias, new_view_of
from kernels.calls.writes_native import update, write_again
from kernels.language.native_types import Int32, Void, Word
from kernels.native.c_api import (
    ARGUMENTS,
    ArrayObject,
    FunctionObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    PyMem_RawFree,
    PyMethod_New,
    PyObject_GC_Del,
    PyObject_GC_UnTrack,
    PyObject_Vectorcall,
    PyType_IsSubtype,
    TensorObject,
    call_visit,
    tape_registry,
    three_words,
)
from kernels.native.memory import store_i8
from kernels.native.objects_native import drop_all, kind_of, visit_all
from kernels.native.structs import (
    ALIASED,
    ARGUED,
    GATHERS,
    INDEXED,
    JOINS,
    MOST_OPERANDS,
    NEW,
    NOT_NATIVE,
    NUMBERED,
    OP_ADD,
    OP_ASSIGN,
    OP_DIVIDE,
    OP_MATMUL,
    OP_MULTIPLY,
    OP_NEGATIVE,
    OP_PART,
    OP_POWER,
    OP_SUBTRACT,
    PUTS,
    SCATTERS,
    SHOWN,
    WRITES,
    CallEntry,
    CallRequest,
    RegistryTable,
)

CONTROL = True

# The slots of the type of tensors for operators and indices.


def missed(op, args, count, always):
    """Let Python make a call of an operator."""
    return PyObject_Vectorcall(tape_registry().missed[2 * op + always], args, count, 0)


def operate(called_as, a, b):
    args, count = three_words(), 2 if b != 0 else 1
    store_i8(args, a)
    store_i8(args + 8, b)
    result = hit(called_as, args, count, 0)
    if result == NOT_NATIVE:
        return missed(called_as & (NUMBERED - 1), args, count, 1)
    if result == 0 and PyErr_Occurred() == 0:
        return missed(called_as & (NUMBERED - 1), args, count, 0)
    return result


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


def mp_subscript(x: Word, key: Word) -> Word:
    return operate(OP_PART | GATHERS, x, key)


def is_written(registry: RegistryTable, args, x: Word, value: TensorObject):
    """Whether a value is the view ``x[key]`` itself, as at the end of ``x[key] += v``."""
    part = ArrayObject(0)
    if PyType_IsSubtype(kind_of(value), registry.tensor_type) != 0 and value.base != 0:
        part = value.value
    if part == 0 or kind_of(part) != registry.array_type or TensorObject(value.base).slot <= 0:
        return False
    call = CallRequest(call_words())
    words, arrays = call + CallRequest.here, call + CallRequest.arrays
    store_i8(arrays, 0)
    known = put_call(registry, args + 8, 1, 0, words, arrays) != 0
    forget(arrays)
    entry = CallEntry(entry_at(registry, OP_PART, TensorObject(x).form, 0, 1, words) if known else 0)
    return entry != 0 and entry.target == SHOWN and is_part(registry, entry, words, x, value)


def is_part(registry: RegistryTable, entry: CallEntry, words, x: TensorObject, value: TensorObject):
    """Whether a view is the part of a tensor that an entry shows."""
    part, array, same = ArrayObject(value.value), ArrayObject(x.value), True
    if kind_of(array) != registry.array_type or base_of(x, entry) != value.base or part.ndim != entry.ndim:
        return False
    for k in range(entry.ndim):
        same = same and part.shape[k] == entry.shape[k] and part.strides[k] == entry.strides[k]
    return same and part.data == array.data + part_of(entry, words, CallEntry.start)


def mp_ass_subscript(x: Word, key: Word, value: Word) -> Int32:
    registry, args, count, result = tape_registry(), three_words(), 2 if value == 0 else 3, 0
    store_i8(args, x)
    store_i8(args + 8, key)
    store_i8(args + 16, value)
    if value != 0 and kind_of(x) == registry.tensor_type:
        if kind_of(value) != registry.float_type and is_written(registry, args, x, value):
            result = missed(OP_ASSIGN, args, 1, 1)
            count = 0
        else:
            result = hit(OP_ASSIGN | SCATTERS, args, 3, 0)
    if result == 0 and count != 0 and PyErr_Occurred() == 0:
        result = missed(OP_ASSIGN, args, count, 0)
    if result == 0:
        return -1
    Py_DecRef(result)
    return 0


# Functions and methods.


def vectorcall(self: FunctionObject, args: Word, count: Word, names: Word) -> Word:
    called_as, arguments, result = self.number, count & ARGUMENTS, 0
    if arguments >= 1 and (called_as & ARGUED != 0 or (names == 0 and arguments <= MOST_OPERANDS)):
        result = hit(called_as, args, arguments, names)
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


# The entry for calls that are in the table.


def made(registry, call: CallRequest, entry: CallEntry):
    """Make a call whose entry has been found, by where its result goes."""
    target = entry.target
    if target == NEW:
        return new_value(registry, call, entry)
    if target == SHOWN:
        return new_view_of(registry, call, entry)
    return new_alias(registry, call) if target == ALIASED else 0


def hit(called_as: Word, args: Word, count: Word, names: Word) -> Word:
    """Make a call that is in the table: its result, a new reference.

    NOT_NATIVE, or 0 without an exception, where Python has to make it.
    """
    registry, call = tape_registry(), CallRequest(call_words())
    begin(call, called_as, args, count, names)
    if called_as & (WRITES | PUTS) == 0:
        ready = called_as & JOINS == 0 or begin_join(registry, call) != 0
        entry = CallEntry(entry_of(registry, call) if ready else 0)
        result = made(registry, call, entry) if entry != 0 else 0
    elif called_as & PUTS != 0:
        result = write_again(registry, call)
    else:
        result = update(registry, call)
    if called_as & ARGUED == 0:
        return hit_wrapped(registry, called_as, args, count) if result == 0 and PyErr_Occurred() == 0 else result
    if called_as & INDEXED != 0:
        end(call)
    elif called_as & JOINS != 0 and call.most > MOST_OPERANDS:
        PyMem_RawFree(call.args)
    return result
