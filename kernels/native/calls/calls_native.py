"""An operation on tensors as one native call: a hit in the table of calls is computed, recorded and returned.

Python does what is not in the table, or needs more than this, and then enters the call (call_table.py). No Python code
runs between the final look-up and the last word written: the result tensor, whose allocation may start a garbage
collection, is made before that.
"""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.calls.computing_native import append, counted, values_of
from kernels.native.calls.keys_native import hash_of
from kernels.native.calls.notifying_native import notify_recorder, tape_in_force
from kernels.native.calls.python_functions_native import are_alike, called, paired
from kernels.native.memory import call_at, load_f8, load_i8, store_i8, word
from kernels.native.objects_native import new_tensor
from kernels.native.operands_native import narrow, read_all, wanted, whole
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.tape.tape_native import reserve
from kernels.native.words import (
    B_ENTRIES,
    CALL,
    CALLED,
    DIVIDE,
    E_BLOCK,
    E_EXTRA,
    E_FORM,
    E_KEY,
    E_KIND,
    E_LARGE,
    E_LOOP,
    E_OPERATION,
    EXPOSED,
    EXTRA_AT,
    G_CALLS,
    G_EXPOSED,
    G_SECURE,
    G_SPARES,
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

COUNTED = (1 << 32) - 1


def place_of(registry, op, a, b, c, wants, number):
    """The set of places in which a call may be entered."""
    mixed = (op + 1) * 2654435761 + (a >> 4) * 4052930377 + (b >> 4) * 1609587929392839161 + c * 40503
    mixed = (mixed + wants * 7919 + (number >> 20) + number) * 5871781006564002453
    return word(registry, G_CALLS) + 8 * CALL * WAYS * ((mixed >> 40) & (SETS - 1))


def is_alive(form):
    """Whether a form is alive: other threads may run while it is deallocated, before its entries are removed."""
    return form == 0 or load_i8(form) & COUNTED != 0


def find(registry, op, a, b, c, wants, number):
    """The entry of a call; 0 if there is none."""
    entry = place_of(registry, op, a, b, c, wants, number)
    for _ in range(WAYS):
        same = word(entry, K_A) == a and word(entry, K_B) == b and word(entry, K_OP) == op and word(entry, K_C) == c
        if same and word(entry, K_WANTS) == wants and word(entry, K_NUMBER) == number:
            return entry if is_alive(word(entry, E_FORM)) else 0
        entry += 8 * CALL
    return 0


def look_up(registry, op, operands, t, number):
    """The entry of a call on operands that have been read; 0 if there is none."""
    a, b, c = operands, operands + OPERAND, operands + 2 * OPERAND
    wants = wanted(operands) if t != 0 else 0
    return find(registry, op, load_i8(a + V_FORM), load_i8(b + V_FORM), load_i8(c + V_FORM), wants, number)


def number_in(operands):
    """The bits of the second operand if it is a number, else 0: for operations whose key includes that number."""
    b = operands + OPERAND
    return load_i8(load_i8(b + V_PLACE)) if load_i8(b + V_OBJECT) == 0 else 0


def can_do(t, entry, operands):
    """Whether native code can make the call now.

    Python does it where the tape is full, where doubles are divided by 0, and where dead large values are to be
    collected.
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


def recorded(t, entry, operands, value, result):
    """Record a call: give its result a slot, and count the bytes of large values."""
    store_i8(result + O_SLOT, append(t, entry, operands, value))
    large = word(entry, E_LARGE)
    if large != 0:
        store_i8(result + O_BYTES, large)
        store_i8(t + 8 * T_GROWN, word(t, T_GROWN) + large)


def number_of(operands, by_number, asked):
    """The number in a call's key: the bits of the second operand, or the hash of the arguments behind the tensors."""
    if by_number != 0:
        return number_in(operands)
    return hash_of(asked) if asked != 0 else 0


def is_asked(entry, asked):
    """Whether the arguments behind the tensors are those of the entry."""
    if asked != 0:
        for k in range(load_i8(asked)):
            if word(word(entry, E_KEY), k) != word(asked, k):
                return 0
    return 1


def entry_of(registry, op, args, count, operands, t, by_number, asked):
    """Read the operands of a call and find its entry; 0 where Python is to do it."""
    if t == -1 or read_all(registry, args, count, operands) == 0:
        return 0
    entry = look_up(registry, op, operands, t & ~1, number_of(operands, by_number, asked))
    if entry == 0 or is_asked(entry, asked) == 0:
        return 0
    notifiable = t & 1 == 0 or word(entry, E_OPERATION) != 0 or word(entry, E_KIND) == SLOWLY
    return entry if notifiable else 0  # Python notifies recorders of it


def dropped(value):
    """Release a value, if there is one; return 0."""
    if value != 0:
        Py_DecRef(value)
    return 0


def is_risky(registry):
    """Whether there is any memory that others may write unseen."""
    counts = word(registry, G_EXPOSED)
    return counts != 0 and word(counts, EXPOSED) != 0


def secure(registry, entry, args, operands):
    """See securing_native.py: called by address, since it is rarely needed."""
    return call_at(word(registry, G_SECURE), entry, args, operands, 0)


def filled(entry, at, tensor, value):
    """Give a tensor a value, taking over the reference, and the form of the entry."""
    store_i8(tensor + O_VALUE, value)
    form = word(entry, at)
    Py_IncRef(form)
    store_i8(tensor + O_FORM, form)


def finished(registry, tagged_tape, entry, args, operands, results, value):
    """Give tensors the values of a call, record the call and notify a recorder; without a value release them: 0.

    A second value is the object of the third operand. The results are a new tensor, and a second or 0.
    """
    result, second, extra = load_i8(results), load_i8(results + 8), load_i8(operands + EXTRA_AT)
    if value == 0:
        dropped(second)
        return dropped(result)
    filled(entry, E_FORM, result, value)
    if second != 0:
        filled(entry, E_EXTRA, second, extra)
    t = tagged_tape & ~1
    if word(entry, E_BLOCK) != 0:
        recorded(t, entry, operands, value, result)
    if tagged_tape != t and notify_recorder(registry, entry, args, operands, result) == 0:
        dropped(second)
        return dropped(result)
    return paired(entry, result, second) if second != 0 else result


def new_results(registry, two, results):
    """Make a new tensor for a result, or two; 0 with an exception."""
    first = new_tensor(registry)
    store_i8(results, first)
    store_i8(results + 8, new_tensor(registry) if two and first != 0 else 0)
    return dropped(first) if two and load_i8(results + 8) == 0 else first


def gives_two(entry):
    return word(entry, E_EXTRA) != 0


def hit_called(registry, op, args, count, by_number, asked, operands, entry):
    """The same as hit for a call whose values a Python function computes; afterwards everything is read again."""
    again, results, function, values = thirty_words(), three_words(), word(entry, E_LOOP), three_words()
    if called(registry, entry, operands, values) == 0:
        return 0 if PyErr_Occurred() != 0 else NOT_NATIVE
    value, extra = load_i8(values), load_i8(values + 8)
    if new_results(registry, extra != 0, results) == 0:
        dropped(extra)
        return dropped(value)
    tagged_tape = tape_in_force(registry)
    entry = entry_of(registry, op, args, count, again, tagged_tape, by_number, asked)
    same = entry != 0 and word(entry, E_KIND) == CALLED and word(entry, E_LOOP) == function
    same = same and gives_two(entry) == (extra != 0) and are_alike(again, operands) != 0
    same = same and can_do(tagged_tape & ~1, entry, again) != 0
    if not same:
        dropped(extra)
        return finished(registry, tagged_tape, entry, args, again, results, dropped(value))
    risky = is_risky(registry)
    if risky and secure(registry, entry, args, again) == 0:
        extra, value = dropped(extra), dropped(value)
    if extra != 0:
        store_i8(again + EXTRA_AT, extra)
    result = finished(registry, tagged_tape, entry, args, again, results, value)
    if risky:
        secure(registry, 0, 0, again)
    return result


def hit(called_as: Word, args: Word, count: Word, asked: Word) -> Word:
    """Return the result of a call that is in the table; NOT_NATIVE, or 0 without an exception, where Python does it.

    ``asked``: the words of the arguments behind the tensors, 0 for operations that take none. For a NUMBERED operation
    a second operand that is a number is part of the key.
    """
    op, by_number = called_as & (NUMBERED - 1), called_as & NUMBERED
    registry, operands, results = tape_registry(), thirty_words(), three_words()
    tagged_tape = tape_in_force(registry)
    entry = entry_of(registry, op, args, count, operands, tagged_tape, by_number, asked)
    if entry == 0 or word(entry, E_KIND) == SLOWLY:
        return 0 if entry == 0 else NOT_NATIVE
    if word(entry, E_KIND) == CALLED:
        return hit_called(registry, op, args, count, by_number, asked, operands, entry)
    two, spares = gives_two(entry), word(registry, G_SPARES)
    if new_results(registry, two, results) == 0:
        return 0
    if spares <= two:  # allocating may have run any Python code: read everything again
        tagged_tape = tape_in_force(registry)
        entry = entry_of(registry, op, args, count, operands, tagged_tape, by_number, asked)
        if entry != 0 and (word(entry, E_KIND) == CALLED or gives_two(entry) != two):
            entry = 0
    if entry == 0 or can_do(tagged_tape & ~1, entry, operands) == 0:
        return finished(registry, tagged_tape, entry, args, operands, results, 0)
    value, risky = 0, is_risky(registry)
    if not risky or secure(registry, entry, args, operands) != 0:
        value = counted(registry, entry, operands, values_of(registry, entry, operands))
    result = finished(registry, tagged_tape, entry, args, operands, results, value)
    if risky:
        secure(registry, 0, 0, operands)
    return result


def place(op: int, a: int, b: int, c: int, wants: int, number: int) -> int:
    """The set of places in which a call may be entered, for Python."""
    return place_of(tape_registry(), op, a, b, c, wants, number)
