"""An operation on tensors as one native call: a hit in the table of calls is computed, recorded and returned.

Whatever is not in the table, or needs more than this, is Python's, which then enters it (tape/call_table.py). Nothing
of Python's runs between the look-up that counts and the last word: the tensor, whose making may collect garbage, is
there before.
"""

from __future__ import annotations

from kernels.jit import cfunc, load_module, njit
from kernels.memory import load_f8, load_i8, store_i8, word
from kernels.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    tape_registry,
    thirty_words,
)
from kernels.words import (
    B_ENTRIES,
    CALL,
    CALLED,
    DIVIDE,
    E_BLOCK,
    E_FORM,
    E_KIND,
    E_LARGE,
    E_LOOP,
    G_CALLS,
    G_SPARE,
    K_A,
    K_B,
    K_C,
    K_NUMBER,
    K_OP,
    K_WANTS,
    LARGEST_GROWTH,
    NEST4,
    NEST_INT,
    NOT_NATIVE,
    NUMBERED,
    O_BYTES,
    O_FORM,
    O_SLOT,
    O_VALUE,
    OPERAND,
    SETS,
    SLOWLY,
    T_GROWN,
    T_ROOM,
    T_SIZE,
    V_FORM,
    V_OBJECT,
    V_PLACE,
    WAYS,
)

CONTROL = True

reserve = load_module("tape_native").reserve
new_tensor = load_module("objects_native").new_tensor
_operands = load_module("operands_native")
narrow, read_all, wanted, whole = _operands.narrow, _operands.read_all, _operands.wanted, _operands.whole
_telling = load_module("telling_native")
tape_in_force, tell = _telling.tape_in_force, _telling.tell
_computing = load_module("computing_native")
_calling = load_module("calling_native")
are_alike, called = _calling.are_alike, _calling.called
append, counted, value_of = _computing.append, _computing.counted, _computing.value_of
COUNTED = (1 << 32) - 1


@njit(cache=True, error_model="numpy")
def place_of(registry, op, a, b, c, wants, number):
    """The set of places in which a call may be entered."""
    mixed = (op + 1) * 2654435761 + (a >> 4) * 4052930377 + (b >> 4) * 1609587929392839161 + c * 40503
    mixed = (mixed + wants * 7919 + (number >> 20) + number) * 5871781006564002453
    return word(registry, G_CALLS) + 8 * CALL * WAYS * ((mixed >> 40) & (SETS - 1))


@njit(cache=True, error_model="numpy")
def is_alive(form):
    """Whether a form is: while one dies other threads may run, and the entries about it go in the midst of that."""
    return form == 0 or load_i8(form) & COUNTED != 0


@njit(cache=True, error_model="numpy")
def find(registry, op, a, b, c, wants, number):
    """The entry of a call; 0 if there is none."""
    entry = place_of(registry, op, a, b, c, wants, number)
    for _ in range(WAYS):
        same = word(entry, K_A) == a and word(entry, K_B) == b and word(entry, K_OP) == op and word(entry, K_C) == c
        if same and word(entry, K_WANTS) == wants and word(entry, K_NUMBER) == number:
            return entry if is_alive(word(entry, E_FORM)) else 0
        entry += 8 * CALL
    return 0


@njit(cache=True, error_model="numpy")
def look_up(registry, op, operands, t, number):
    """The entry of a call on operands that have been read; 0 if there is none."""
    a, b, c = operands, operands + OPERAND, operands + 2 * OPERAND
    wants = wanted(operands) if t != 0 else 0
    return find(registry, op, load_i8(a + V_FORM), load_i8(b + V_FORM), load_i8(c + V_FORM), wants, number)


@njit(cache=True, error_model="numpy")
def number_in(operands):
    """The bits of the second operand where that is a number, 0 of others: for operations that it is a part of."""
    b = operands + OPERAND
    return load_i8(load_i8(b + V_PLACE)) if load_i8(b + V_OBJECT) == 0 else 0


@njit(cache=True, error_model="numpy")
def can_do(t, entry, operands):
    """Whether native code can do it now.

    A tape without room is Python's, as is a division of doubles by 0, and to look for large values that have died.
    """
    kind, block, large = word(entry, E_KIND), word(entry, E_BLOCK), word(entry, E_LARGE)
    if kind == SLOWLY or (kind == DIVIDE and load_f8(load_i8(operands + OPERAND + V_PLACE)) == 0.0):
        return 0
    if (kind == NEST4 and narrow(operands) == 0) or (kind == NEST_INT and whole(entry, operands) == 0):
        return 0
    if block == 0:
        return 1
    if large != 0 and word(t, T_GROWN) + large > max(LARGEST_GROWTH, 100 * word(t, T_SIZE)):
        return 0
    count = word(block, B_ENTRIES)
    return 0 if word(t, T_SIZE) + count > word(t, T_ROOM) else reserve(t, count)


@njit(cache=True, error_model="numpy")
def recorded(t, entry, operands, value, result):
    """Record a call: give its result a slot, and count what is large."""
    store_i8(result + O_SLOT, append(t, entry, operands, value))
    large = word(entry, E_LARGE)
    if large != 0:
        store_i8(result + O_BYTES, large)
        store_i8(t + 8 * T_GROWN, word(t, T_GROWN) + large)


@njit(cache=True, error_model="numpy")
def entry_of(registry, op, given, count, operands, t, by_number, number):
    """Read the operands of a call and find its entry; 0 where Python is to do it."""
    if t == -1 or read_all(registry, given, count, operands) == 0:
        return 0
    return look_up(registry, op, operands, t & ~1, number_in(operands) if by_number != 0 else number)


@njit(cache=True, error_model="numpy")
def dropped(value):
    """Let go of a value, if there is one; 0."""
    if value != 0:
        Py_DecRef(value)
    return 0


@njit(cache=True, error_model="numpy")
def finished(registry, found, entry, given, operands, result, value):
    """Give a tensor the value of a call, record that and tell of it; without a value let go of it: 0."""
    if value == 0:
        return dropped(result)
    store_i8(result + O_VALUE, value)
    form = word(entry, E_FORM)
    Py_IncRef(form)
    store_i8(result + O_FORM, form)
    t = found & ~1
    if word(entry, E_BLOCK) != 0:
        recorded(t, entry, operands, value, result)
    if found != t and tell(registry, entry, given, operands, result) == 0:
        return dropped(result)
    return result


@njit(cache=True, error_model="numpy")
def hit_called(registry, op, given, count, by_number, number, operands, entry):
    """The same as hit, of a call whose value a function of Python's gives; behind that all is read again."""
    again, function, value = thirty_words(), word(entry, E_LOOP), called(registry, entry, operands)
    if value == 0:
        return 0 if PyErr_Occurred() != 0 else NOT_NATIVE
    result = new_tensor(registry)
    if result == 0:
        return dropped(value)
    found = tape_in_force(registry)
    entry = entry_of(registry, op, given, count, again, found, by_number, number)
    same = entry != 0 and word(entry, E_KIND) == CALLED and word(entry, E_LOOP) == function
    if not same or are_alike(again, operands) == 0 or can_do(found & ~1, entry, again) == 0:
        value = dropped(value)
    return finished(registry, found, entry, given, again, result, value)


@cfunc("int64(int64, int64, int64, int64)", cache=True, error_model="numpy")
def hit(called_as, given, count, number):
    """Return the result of a call that is in the table; NOT_NATIVE, or 0 without an exception, where Python does it.

    ``number`` is part of the call; of an operation that is NUMBERED the second operand is, if that is a number.
    """
    op, by_number = called_as & (NUMBERED - 1), called_as & NUMBERED
    registry, operands = tape_registry(), thirty_words()
    found = tape_in_force(registry)
    entry = entry_of(registry, op, given, count, operands, found, by_number, number)
    if entry == 0 or word(entry, E_KIND) == SLOWLY:
        return 0 if entry == 0 else NOT_NATIVE
    if word(entry, E_KIND) == CALLED:
        return hit_called(registry, op, given, count, by_number, number, operands, entry)
    allocates = word(registry, G_SPARE) == 0
    result = new_tensor(registry)
    if result == 0:
        return 0
    if allocates:  # that may have run anything: what has been read is read again
        found = tape_in_force(registry)
        entry = entry_of(registry, op, given, count, operands, found, by_number, number)
    value = 0
    if entry != 0 and word(entry, E_KIND) != CALLED and can_do(found & ~1, entry, operands) != 0:
        value = counted(registry, entry, operands, value_of(registry, entry, operands))
    return finished(registry, found, entry, given, operands, result, value)


@njit("int64(int64, int64, int64, int64, int64, int64)", cache=True, error_model="numpy")
def place(op, a, b, c, wants, number):
    """The set of places in which a call may be entered, for Python."""
    return place_of(tape_registry(), op, a, b, c, wants, number)
