"""How operators and functions of tensors reach the table of calls, by addresses in the registry, and else Python."""

from __future__ import annotations

from kernels.native.memory import call_at, store_i8, word
from kernels.native.python_api import PyErr_Occurred, PyObject_Vectorcall, tape_registry, three_words
from kernels.native.words import (
    G_ASSIGN,
    G_ASSIGN_AT,
    G_HIT,
    G_HIT_ADOPTED,
    G_HIT_IN_PLACE,
    G_HIT_JOINED,
    G_HIT_PICKED,
    G_HIT_PUT,
    G_HIT_SHARED,
    G_HIT_VIEW,
    G_MISSED,
    NOT_NATIVE,
    NUMBERED,
)


def hit(op, args, count, number):
    """See kernels/native/calls/calls_native.py: called by address, so that it is compiled once."""
    return call_at(word(tape_registry(), G_HIT), op, args, count, number)


def hit_view(op, args, count):
    """See kernels/native/indexing/parts_native.py."""
    return call_at(word(tape_registry(), G_HIT_VIEW), op, args, count, 0)


def hit_in_place(op, args, count):
    """See kernels/native/calls/in_place_native.py: loaded at the first such call."""
    address = word(tape_registry(), G_HIT_IN_PLACE)
    return call_at(address, op, args, count, 0) if address != 0 else 0


def hit_shared(op, args):
    """See kernels/native/tensor/detaching_native.py: likewise."""
    address = word(tape_registry(), G_HIT_SHARED)
    return call_at(address, op, args, 1, 0) if address != 0 else 0


def hit_picked(op, args, count):
    """See kernels/native/indexing/picking_native.py: likewise."""
    address = word(tape_registry(), G_HIT_PICKED)
    return call_at(address, op, args, count, 0) if address != 0 else 0


def hit_put(op, args, count):
    """See kernels/native/indexing/putting_native.py: likewise."""
    address = word(tape_registry(), G_HIT_PUT)
    return call_at(address, op, args, count, 0) if address != 0 else 0


def hit_joined(op, args, count):
    """See kernels/native/calls/joining_native.py: likewise."""
    address = word(tape_registry(), G_HIT_JOINED)
    return call_at(address, op, args, count, 0) if address != 0 else 0


def hit_adopted(op, args, count, asked):
    """See adopting_native.py: likewise; wraps arrays and tries the function at ``asked`` in the registry again."""
    address = word(tape_registry(), G_HIT_ADOPTED)
    return call_at(address, op, args, count, asked) if address != 0 and PyErr_Occurred() == 0 else 0


def hit_assign(x, key, value):
    """See kernels/native/indexing/assigning_native.py and putting_native.py: likewise."""
    registry, result = tape_registry(), 0
    if word(registry, G_ASSIGN) != 0:
        result = call_at(word(registry, G_ASSIGN), x, key, value, 0)
    if result == 0 and word(registry, G_ASSIGN_AT) != 0 and PyErr_Occurred() == 0:
        result = call_at(word(registry, G_ASSIGN_AT), x, key, value, 0)
    return result


def missed(op, args, count, always):
    """Let Python do it."""
    asked = word(word(tape_registry(), G_MISSED), 2 * op + always)
    return PyObject_Vectorcall(asked, args, count, 0)


def operate(op, a, b):
    args, count = three_words(), 2 if b != 0 else 1
    store_i8(args, a)
    store_i8(args + 8, b)
    result = hit(op, args, count, 0)
    if result == 0:
        result = hit_adopted(op, args, count, G_HIT)
    if result == NOT_NATIVE:
        return missed(op & (NUMBERED - 1), args, count, 1)
    if result == 0 and PyErr_Occurred() == 0:
        return missed(op & (NUMBERED - 1), args, count, 0)
    return result
