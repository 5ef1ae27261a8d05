"""An operation on tensors as one native call: a hit in the table of calls is computed, recorded and returned.

Python does what is not in the table, or needs more than this, and then enters the call (call_table.py). No Python code
runs between the final look-up and the last word written: the result tensor, whose allocation may start a garbage
collection, is made before that.
"""

from __future__ import annotations

from kernels.language.native_types import Word
from kernels.native.c_api import (
    COUNTED,
    Py_DecRef,
    Py_IncRef,
    PyErr_Occurred,
    TensorObject,
    tape_registry,
    thirty_words,
    three_words,
)
from kernels.native.call_structs import (
    CALLED,
    DIVIDE,
    EXPOSED,
    EXTRA_AT,
    NEST4,
    NEST_INT,
    NOT_NATIVE,
    NUMBERED,
    SETS,
    SLOWLY,
    WAYS,
    CallEntry,
    CallOperand,
)
from kernels.native.calls.computing_native import append, counted, values_of
from kernels.native.calls.keys_native import hash_of
from kernels.native.calls.notifying_native import are_alike, called, notify_recorder, paired, tape_in_force
from kernels.native.memory import call_at, load_f8, load_i8, store_i8, word
from kernels.native.objects_native import narrow, new_tensor, read_all, wanted, whole
from kernels.native.structs import LARGEST_GROWTH, RegistryTable, TapeHeader
from kernels.native.tape_native import reserve

CONTROL = True


def place_of(registry: RegistryTable, op, a, b, c, wants, number):
    """The set of places in which a call may be entered."""
    mixed = (op + 1) * 2654435761 + (a >> 4) * 4052930377 + (b >> 4) * 1609587929392839161 + c * 40503
    mixed = (mixed + wants * 7919 + (number >> 20) + number) * 5871781006564002453
    return registry.calls + 8 * CallEntry.SIZE * WAYS * ((mixed >> 40) & (SETS - 1))


def is_alive(form):
    """Whether a form is alive: other threads may run while it is deallocated, before its entries are removed."""
    return form == 0 or load_i8(form) & COUNTED != 0


def find(registry, op, a, b, c, wants, number):
    """The entry of a call; 0 if there is none."""
    entry = CallEntry(place_of(registry, op, a, b, c, wants, number))
    for _ in range(WAYS):
        same = entry.first == a and entry.second == b and entry.op == op and entry.third == c
        if same and entry.wants == wants and entry.constant == number:
            return entry if is_alive(entry.form) else 0
        entry += 8 * CallEntry.SIZE
    return 0


def look_up(registry, op, operands, t, number):
    """The entry of a call on operands that have been read; 0 if there is none."""
    a, b, c = (
        CallOperand(operands),
        CallOperand(operands + CallOperand.SIZE),
        CallOperand(operands + 2 * CallOperand.SIZE),
    )
    wants = wanted(operands) if t != 0 else 0
    return find(registry, op, a.form, b.form, c.form, wants, number)


def number_in(operands):
    """The bits of the second operand if it is a number, else 0: for operations whose key includes that number."""
    b = CallOperand(operands + CallOperand.SIZE)
    return load_i8(b.place) if b.object == 0 else 0


def can_do(t: TapeHeader, entry: CallEntry, operands):
    """Whether native code can make the call now.

    Python does it where the tape is full, where doubles are divided by 0, and where dead large values are to be
    collected.
    """
    kind, block, large = entry.kind, entry.block, entry.large
    if kind == SLOWLY or (kind == DIVIDE and load_f8(CallOperand(operands + CallOperand.SIZE).place) == 0.0):
        return 0
    if (kind == NEST4 and narrow(operands) == 0) or (kind == NEST_INT and whole(entry, operands) == 0):
        return 0
    if block == 0:
        return 1
    if large != 0 and t.grown + large > max(LARGEST_GROWTH, 100 * t.size):
        return 0
    count = block.entries
    return 0 if t.size + count > t.room else reserve(t, count)


def recorded(t: TapeHeader, entry: CallEntry, operands, value, result: TensorObject):
    """Record a call: give its result a slot, and count the bytes of large values."""
    result.slot = append(t, entry, operands, value)
    large = entry.large
    if large != 0:
        result.bytes = large
        t.grown += large


def number_of(operands, by_number, asked):
    """The number in a call's key: the bits of the second operand, or the hash of the arguments behind the tensors."""
    if by_number != 0:
        return number_in(operands)
    return hash_of(asked) if asked != 0 else 0


def is_asked(entry: CallEntry, asked):
    """Whether the arguments behind the tensors are those of the entry."""
    if asked != 0:
        for k in range(load_i8(asked)):
            if word(entry.key, k) != word(asked, k):
                return 0
    return 1


def entry_of(registry, op, args, count, operands, t, by_number, asked):
    """Read the operands of a call and find its entry; 0 where Python is to do it."""
    if t == -1 or read_all(registry, args, count, operands) == 0:
        return 0
    entry = CallEntry(look_up(registry, op, operands, t & ~1, number_of(operands, by_number, asked)))
    if entry == 0 or is_asked(entry, asked) == 0:
        return 0
    notifiable = t & 1 == 0 or entry.operation != 0 or entry.kind == SLOWLY
    return entry if notifiable else 0  # Python notifies recorders of it


def dropped(value):
    """Release a value, if there is one; return 0."""
    if value != 0:
        Py_DecRef(value)
    return 0


def is_risky(registry: RegistryTable):
    """Whether there is any memory that others may write unseen."""
    counts = registry.exposed
    return counts != 0 and counts[EXPOSED] != 0


def secure(registry: RegistryTable, entry, args, operands):
    """See computing_native.py: called by address, since it is rarely needed."""
    return call_at(registry.secure, entry, args, operands, 0)


def filled(entry, at, tensor: TensorObject, value):
    """Give a tensor a value, taking over the reference, and the form of the entry."""
    tensor.value = value
    form = word(entry, at)
    Py_IncRef(form)
    tensor.form = form


def finished(registry, tagged_tape, entry: CallEntry, args, operands, results, value):
    """Give tensors the values of a call, record the call and notify a recorder; without a value release them: 0.

    A second value is the object of the third operand. The results are a new tensor, and a second or 0.
    """
    result, second, extra = load_i8(results), load_i8(results + 8), load_i8(operands + EXTRA_AT)
    if value == 0:
        dropped(second)
        return dropped(result)
    filled(entry, CallEntry.form, result, value)
    if second != 0:
        filled(entry, CallEntry.extra, second, extra)
    t = tagged_tape & ~1
    if entry.block != 0:
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


def gives_two(entry: CallEntry):
    return entry.extra != 0


def hit_called(registry, op, args, count, by_number, asked, operands, entry: CallEntry):
    """The same as hit for a call whose values a Python function computes; afterwards everything is read again."""
    again, results, function, values = thirty_words(), three_words(), entry.loop, three_words()
    if called(registry, entry, operands, values) == 0:
        return 0 if PyErr_Occurred() != 0 else NOT_NATIVE
    value, extra = load_i8(values), load_i8(values + 8)
    if new_results(registry, extra != 0, results) == 0:
        dropped(extra)
        return dropped(value)
    tagged_tape = tape_in_force(registry)
    entry = entry_of(registry, op, args, count, again, tagged_tape, by_number, asked)
    same = entry != 0 and entry.kind == CALLED and entry.loop == function
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
    entry = CallEntry(entry_of(registry, op, args, count, operands, tagged_tape, by_number, asked))
    if entry == 0 or entry.kind == SLOWLY:
        return 0 if entry == 0 else NOT_NATIVE
    if entry.kind == CALLED:
        return hit_called(registry, op, args, count, by_number, asked, operands, entry)
    two, spares = gives_two(entry), registry.spares
    if new_results(registry, two, results) == 0:
        return 0
    if spares <= two:  # allocating may have run any Python code: read everything again
        tagged_tape = tape_in_force(registry)
        entry = entry_of(registry, op, args, count, operands, tagged_tape, by_number, asked)
        if entry != 0 and (entry.kind == CALLED or gives_two(entry) != two):
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
