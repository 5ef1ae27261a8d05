"""How operators and functions of tensors reach the table of calls, by addresses in the registry, and else Python."""

from __future__ import annotations

from kernels.native.call_structs import NOT_NATIVE, NUMBERED
from kernels.native.memory import call_at, store_i8
from kernels.native.python_api import PyErr_Occurred, PyObject_Vectorcall, tape_registry, three_words
from kernels.native.tape_structs import RegistryTable


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
    """See kernels/native/tensor/detaching_native.py: likewise."""
    address = tape_registry().hit_shared
    return call_at(address, op, args, 1, 0) if address != 0 else 0


def hit_picked(op, args, count):
    """See kernels/native/indexing/picking_native.py: likewise."""
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
