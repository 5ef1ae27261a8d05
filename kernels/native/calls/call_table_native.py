"""What operators and functions of tensors ask: the table of calls by the addresses in the registry, and Python."""

from __future__ import annotations

from kernels.compiler.jit import njit
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


@njit(cache=True, error_model="numpy")
def hit(op, given, count, number):
    """See kernels/native/calls/calls_native.py: called by address, so that its machine code is made once."""
    return call_at(word(tape_registry(), G_HIT), op, given, count, number)


@njit(cache=True, error_model="numpy")
def hit_view(op, given, count):
    """See kernels/native/indexing/parts_native.py."""
    return call_at(word(tape_registry(), G_HIT_VIEW), op, given, count, 0)


@njit(cache=True, error_model="numpy")
def hit_in_place(op, given, count):
    """See kernels/native/calls/in_place_native.py: there from the first such call on."""
    address = word(tape_registry(), G_HIT_IN_PLACE)
    return call_at(address, op, given, count, 0) if address != 0 else 0


@njit(cache=True, error_model="numpy")
def hit_shared(op, given):
    """See kernels/native/tensor/detaching_native.py: likewise."""
    address = word(tape_registry(), G_HIT_SHARED)
    return call_at(address, op, given, 1, 0) if address != 0 else 0


@njit(cache=True, error_model="numpy")
def hit_picked(op, given, count):
    """See kernels/native/indexing/picking_native.py: likewise."""
    address = word(tape_registry(), G_HIT_PICKED)
    return call_at(address, op, given, count, 0) if address != 0 else 0


@njit(cache=True, error_model="numpy")
def hit_put(op, given, count):
    """See kernels/native/indexing/putting_native.py: likewise."""
    address = word(tape_registry(), G_HIT_PUT)
    return call_at(address, op, given, count, 0) if address != 0 else 0


@njit(cache=True, error_model="numpy")
def hit_joined(op, given, count):
    """See kernels/native/calls/joining_native.py: likewise."""
    address = word(tape_registry(), G_HIT_JOINED)
    return call_at(address, op, given, count, 0) if address != 0 else 0


@njit(cache=True, error_model="numpy")
def hit_adopted(op, given, count, asked):
    """See adopting_native.py: likewise, what has not been hit natively, as what ``asked`` names does it."""
    address = word(tape_registry(), G_HIT_ADOPTED)
    return call_at(address, op, given, count, asked) if address != 0 and PyErr_Occurred() == 0 else 0


@njit(cache=True, error_model="numpy")
def hit_assign(x, key, value):
    """See kernels/native/indexing/assigning_native.py and putting_native.py: likewise."""
    registry, found = tape_registry(), 0
    if word(registry, G_ASSIGN) != 0:
        found = call_at(word(registry, G_ASSIGN), x, key, value, 0)
    if found == 0 and word(registry, G_ASSIGN_AT) != 0 and PyErr_Occurred() == 0:
        found = call_at(word(registry, G_ASSIGN_AT), x, key, value, 0)
    return found


@njit(cache=True, error_model="numpy")
def missed(op, given, count, always):
    """Let Python do it."""
    asked = word(word(tape_registry(), G_MISSED), 2 * op + always)
    return PyObject_Vectorcall(asked, given, count, 0)


@njit(cache=True, error_model="numpy")
def operate(op, a, b):
    given, count = three_words(), 2 if b != 0 else 1
    store_i8(given, a)
    store_i8(given + 8, b)
    found = hit(op, given, count, 0)
    if found == 0:
        found = hit_adopted(op, given, count, G_HIT)
    if found == NOT_NATIVE:
        return missed(op & (NUMBERED - 1), given, count, 1)
    if found == 0 and PyErr_Occurred() == 0:
        return missed(op & (NUMBERED - 1), given, count, 0)
    return found
