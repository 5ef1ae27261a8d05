"""An operation on tensors as one native call: a hit in the table of calls is computed, recorded and returned.

Whatever is not in the table, or needs more than this, is Python's, which then enters it (tape/call_table.py). Nothing
of Python's runs between the look-up that counts and the last word: the tensor, whose making may collect garbage, is
there before.
"""

from __future__ import annotations

from kernels.jit import load_module, njit
from kernels.memory import HEADER, load_f8, load_i8, store_f8, store_i8, word
from kernels.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyContextVar_Get,
    PyErr_Clear,
    PyErr_Occurred,
    PyFloat_AsDouble,
    PyObject_GC_Track,
    PyObject_Init,
    PyObject_Vectorcall,
    PyType_GenericAlloc,
    sixteen_words,
    tape_registry,
    three_words,
)
from kernels.words import (
    A_DATA,
    B_ENTRIES,
    CALL,
    DIVIDE,
    E_BLOCK,
    E_FORM,
    E_KIND,
    G_ACTIVE,
    G_ARRAY,
    G_CALLS,
    G_ENTRIES,
    G_FALSE,
    G_FLOAT,
    G_INT,
    G_MISSED,
    G_SPARE,
    G_SPARES,
    G_TAPE,
    G_TENSOR,
    K_A,
    K_B,
    K_NUMBER,
    K_OP,
    K_WANTS,
    NEST4,
    NOT_NATIVE,
    NUMBER_FORM,
    O_FORM,
    O_SLOT,
    O_VALUE,
    SETS,
    SLOWLY,
    T_ROOM,
    T_SIZE,
    UNHELD,
    WAYS,
)

kind_of = load_module("objects_native").kind_of
reserve = load_module("tape_native").reserve
_computing = load_module("computing_native")
append, narrow, value_of = _computing.append, _computing.narrow, _computing.value_of
LARGEST = 9007199254740992.0
COUNTED = (1 << 32) - 1


@njit(cache=True, error_model="numpy")
def tape_in_force(registry):
    """The header of the tape to record on, 0 without gradients, -1 where only Python's way will do."""
    out = three_words()
    if PyContextVar_Get(word(registry, G_ACTIVE), 0, out) != 0:
        return -1
    found = load_i8(out)
    t = -1
    if found == word(registry, G_FALSE):
        t = 0
    elif found != 0 and kind_of(found) == word(registry, G_TAPE):
        entries = load_i8(found + word(registry, G_ENTRIES))
        if entries != 0:
            t = entries + HEADER
    if found != 0:
        Py_DecRef(found)
    return t


@njit(cache=True, error_model="numpy")
def place_of(registry, op, a, b, wants, number):
    """The set of places in which a call may be entered."""
    mixed = (op + 1) * 2654435761 + (a >> 4) * 4052930377 + (b >> 4) * 1609587929392839161
    mixed = (mixed + wants * 7919 + (number >> 20) + number) * 5871781006564002453
    return word(registry, G_CALLS) + 8 * CALL * WAYS * ((mixed >> 40) & (SETS - 1))


@njit(cache=True, error_model="numpy")
def is_alive(form):
    """Whether a form is: while one dies other threads may run, and the entries about it go in the midst of that."""
    return form == 0 or load_i8(form) & COUNTED != 0


@njit(cache=True, error_model="numpy")
def find(registry, op, a, b, wants, number):
    """The entry of a call; 0 if there is none."""
    entry = place_of(registry, op, a, b, wants, number)
    for _ in range(WAYS):
        same = word(entry, K_A) == a and word(entry, K_B) == b and word(entry, K_OP) == op
        if same and word(entry, K_WANTS) == wants and word(entry, K_NUMBER) == number:
            return entry if is_alive(word(entry, E_FORM)) else 0
        entry += 8 * CALL
    return 0


@njit(cache=True, error_model="numpy")
def read_number(x, out):
    """Read a Python number that doubles have room for, to stand behind what is told of it; 0 for others."""
    number = PyFloat_AsDouble(x)
    if number == -1.0 and PyErr_Occurred() != 0:
        PyErr_Clear()  # an int beyond all doubles
        return 0
    if not abs(number) <= LARGEST:
        return 0
    store_i8(out, NUMBER_FORM)
    store_i8(out + 8, 0)
    store_i8(out + 16, out + 32)
    store_i8(out + 24, 0)
    store_f8(out + 32, number)
    return 1


@njit(cache=True, error_model="numpy")
def read(registry, x, out):
    """Read an operand: form, slot, the address of its value, and its object; 0 for anything else."""
    kind = kind_of(x)
    if kind == word(registry, G_FLOAT) or kind == word(registry, G_INT):
        return read_number(x, out)
    value = load_i8(x + O_VALUE) if kind == word(registry, G_TENSOR) else 0
    if value == 0:
        return 0
    slot, place = load_i8(x + O_SLOT), value + HEADER
    if kind_of(value) != word(registry, G_FLOAT):
        if kind_of(value) != word(registry, G_ARRAY):
            return 0
        place = load_i8(value + A_DATA)
    store_i8(out, load_i8(x + O_FORM))
    store_i8(out + 8, slot & ~UNHELD if slot > 0 else slot)
    store_i8(out + 16, place)
    store_i8(out + 24, value)
    return 1


@njit(cache=True, error_model="numpy")
def look_up(registry, op, operands, t, by_number):
    """The entry of a call on operands that have been read; 0 if there is none."""
    a, b = load_i8(operands), load_i8(operands + 48)
    wants = 0
    if t != 0:
        wants = (1 if load_i8(operands + 8) != 0 else 0) + (2 if load_i8(operands + 56) != 0 else 0)
    number = load_i8(operands + 80) if by_number != 0 and load_i8(operands + 72) == 0 else 0
    return find(registry, op, a, b, wants, number)


@njit(cache=True, error_model="numpy")
def read_both(registry, a, b, operands):
    """Read two operands, or one; 0 where Python is to."""
    if b == 0:
        store_i8(operands + 48, 0)
        store_i8(operands + 56, 0)
        store_i8(operands + 64, 0)
        store_i8(operands + 72, 1)
        return read(registry, a, operands)
    return read(registry, a, operands) & read(registry, b, operands + 48)


@njit(cache=True, error_model="numpy")
def can_do(t, entry, operands):
    """Whether native code can do it now: a tape without room is Python's, as is a division of doubles by 0."""
    kind, block = word(entry, E_KIND), word(entry, E_BLOCK)
    if kind == SLOWLY or (kind == DIVIDE and load_f8(load_i8(operands + 64)) == 0.0):
        return 0
    if block == 0:
        return 1
    count = word(block, B_ENTRIES)
    return 0 if word(t, T_SIZE) + count > word(t, T_ROOM) else reserve(t, count)


@njit(cache=True, error_model="numpy")
def reused(registry):
    """A new tensor in the memory of one that has died; 0 if there is none."""
    found = word(registry, G_SPARE)
    if found != 0:
        store_i8(registry + 8 * G_SPARE, load_i8(found + O_VALUE))
        store_i8(registry + 8 * G_SPARES, word(registry, G_SPARES) - 1)
        store_i8(found + O_VALUE, 0)
        PyObject_Init(found, word(registry, G_TENSOR))
        PyObject_GC_Track(found)
    return found


@njit(cache=True, error_model="numpy")
def hit(op, a, b, by_number):
    """Return the result of a call that is in the table; NOT_NATIVE, or 0 without an exception, where Python does it."""
    registry = tape_registry()
    operands = sixteen_words()
    t = tape_in_force(registry)
    if t == -1 or read_both(registry, a, b, operands) == 0:
        return 0
    entry = look_up(registry, op, operands, t, by_number)
    if entry == 0 or word(entry, E_KIND) == SLOWLY:
        return 0 if entry == 0 else NOT_NATIVE
    result = reused(registry)
    if result == 0:
        result = PyType_GenericAlloc(word(registry, G_TENSOR), 0)
        if result == 0:
            return 0
        # That may have collected garbage, and so have run anything: what has been read is read again.
        t, entry = tape_in_force(registry), 0
        if t != -1 and read_both(registry, a, b, operands) != 0:
            entry = look_up(registry, op, operands, t, by_number)
    if entry == 0 or can_do(t, entry, operands) == 0:
        Py_DecRef(result)
        return 0
    block = word(entry, E_BLOCK)
    if word(entry, E_KIND) == NEST4:
        narrow(operands)
    value = value_of(registry, entry, load_i8(operands + 16), load_i8(operands + 64))
    if value == 0:
        Py_DecRef(result)
        return 0
    store_i8(result + O_VALUE, value)
    form = word(entry, E_FORM)
    Py_IncRef(form)
    store_i8(result + O_FORM, form)
    if block != 0:
        store_i8(result + O_SLOT, append(t, entry, operands, value))
    return result


@njit(cache=True, error_model="numpy")
def missed(op, a, b, always):
    """Let Python do it."""
    given = three_words()
    store_i8(given, a)
    store_i8(given + 8, b)
    asked = word(word(tape_registry(), G_MISSED), 2 * op + always)
    return PyObject_Vectorcall(asked, given, 2 if b != 0 else 1, 0)


@njit(cache=True, error_model="numpy")
def operate(op, a, b, by_number):
    found = hit(op, a, b, by_number)
    if found == NOT_NATIVE:
        return missed(op, a, b, 1)
    if found == 0 and PyErr_Occurred() == 0:
        return missed(op, a, b, 0)
    return found


@njit("int64(int64, int64, int64, int64, int64)", cache=True, error_model="numpy")
def place(op, a, b, wants, number):
    """The set of places in which a call may be entered, for Python."""
    return place_of(tape_registry(), op, a, b, wants, number)
