"""A call that is in the table: read, found, computed and recorded, without Python.

Python makes what is not in the table, or needs more than this, and then enters the call (kernels/call_cache). No Python
code runs between the final look-up and the last word written: the result tensor, whose allocation may start a garbage
collection, is made before that.
"""

from __future__ import annotations

from kernels.calls.computing_native import append, count_ties, release_copies, secure, values_of
from kernels.calls.keys_native import (
    LARGEST_HASH,
    are_alike,
    called,
    forget,
    hash_of,
    ints_in,
    mixed,
    notify_recorder,
    paired,
    put_call,
    put_int,
    tape_in_force,
)
from kernels.language.llvm_values import kept_apart
from kernels.native import c_api, structs
from kernels.native.c_api import TensorObject, on_stack, tape_registry, thirty_words, three_words
from kernels.native.memory import call_at, load_f8, load_i8, store_i8, word
from kernels.native.objects_native import converted, dropped, kind_of, new_tensor, read_all, wanted
from kernels.native.record_native import count_write, give_slot
from kernels.native.structs import CallEntry, CallOperand, CallRequest, RegistryTable, TapeHeader
from kernels.native.tape_native import reserve

CONTROL = True

call_words = on_stack(structs.CALL_WORDS)  # the address of a call on the stack of the function

# What a call is.


def begin(call: CallRequest, called_as, args, count, names):
    """Begin a call: an operation with its marks, and its arguments as Python passes them."""
    call.marks = called_as
    call.args = args
    call.count = count
    call.operands = call + CallRequest.room
    if called_as & structs.ARGUED != 0:
        call.names = names
        call.words = call + CallRequest.here
        call.used = 0
        call.held = 0
        call.arrays = 0


def end(call: CallRequest):
    """Release what was made to read the arguments of a call."""
    if call.arrays != 0:
        forget(call + CallRequest.arrays)
        call.used = 0
    if call.held != 0:
        c_api.Py_DecRef(call.held)
        call.held = 0


def hit_call(called_as, args, count):
    """Make another call that is in the table; see functions_native.py: called by address, since that leads here."""
    return call_at(tape_registry().hit, called_as, args, count, 0)


def tensors_in(registry: RegistryTable, args, count):
    """How many leading arguments are tensors, at most as many as an operation has operands."""
    tensors = 0
    while tensors < min(count, structs.MOST_OPERANDS) and kind_of(word(args, tensors)) == registry.tensor_type:
        tensors += 1
    return tensors


def read_indexed(registry: RegistryTable, call: CallRequest):
    """Read the first tensor, and a value that is written to it, and as words the arguments between; 0 for Python."""
    args, count, arrays, values = call.args, call.count, call + CallRequest.arrays, three_words()
    end(call)
    store_i8(values, load_i8(args))
    store_i8(values + 8, call.value)
    puts = (call.marks & structs.PUTS) // structs.PUTS
    if read_all(registry, values, 1 + puts, call.operands) == 0:
        return 0
    if call.used == 0 and count == 2 + puts and kind_of(word(args, 1)) == registry.int_type:  # as in most loops
        store_i8(call.words, 3)
        store_i8(call.words + 8, structs.INT_ITEM)
        call.used = put_int(word(args, 1), call.words, 2)
    if call.used == 0:
        call.used = put_call(registry, args + 8, count - 1 - puts, call.names, call.words, arrays)
    return call.used


def read_argued(registry: RegistryTable, call: CallRequest):
    """Read the leading tensors, and as words what is behind them; 0 where Python has to make the call."""
    args, count = call.args, call.count
    first = tensors_in(registry, args, count)
    if first == 0 or read_all(registry, args, first, call.operands) == 0:
        return 0
    if first == count and call.names == 0:
        store_i8(call.words, 0)
        call.number = 0
        return 1
    if call.used == 0:
        call.used = put_call(registry, args + 8 * first, count - first, call.names, call.words, 0)
        call.number = hash_of(call.words)
    return call.used


def size_of(registry: RegistryTable, joined):
    """How many tensors are joined; 0 where Python has to do it."""
    kind, count = kind_of(joined), 0
    if kind == registry.list_type:
        count = c_api.PyList_Size(joined)
    elif kind == registry.tuple_type:
        count = c_api.PyTuple_Size(joined)
    return count if count <= structs.MOST_JOINED else 0


@kept_apart
def begin_join(registry: RegistryTable, call: CallRequest):
    """Let a call have as many operands as its list has tensors, in memory of its own if many; 0 where Python joins."""
    joined, args = load_i8(call.args), call.args
    most = size_of(registry, joined)
    call.joined = joined
    call.rest = args + 8
    call.most = most
    if most <= structs.MOST_OPERANDS:
        call.args = call + CallRequest.arrays
        return most
    held = c_api.PyMem_RawMalloc(most * (8 + CallOperand.SIZE) + 8 * (structs.MOST_WORDS + most))
    call.args = held
    call.operands = held + 8 * most
    call.words = held + most * (8 + CallOperand.SIZE)
    return held


def read_joined(registry: RegistryTable, call: CallRequest):
    """Read the tensors of a list, and as words the arguments behind it, then the forms, odd where wanted."""
    joined, operands, words, t, wants = call.joined, call.operands, call.words, call.tape & ~3, 0
    count, is_list = size_of(registry, joined), kind_of(joined) == registry.list_type
    if call.count == 1 and call.names == 0:
        call.used = 1
    if call.used == 0:
        call.used = put_call(registry, call.rest, call.count - 1, call.names, words, 0)
    used = call.used
    if used == 0 or count > call.most:
        return 0
    for i in range(count):
        x = c_api.PyList_GetItem(joined, i) if is_list else c_api.PyTuple_GetItem(joined, i)
        store_i8(call.args + 8 * i, x)
        if kind_of(x) != registry.tensor_type:
            return 0
    if read_all(registry, call.args, count, operands) == 0:
        return 0
    store_i8(words, used + count)
    hashed = 0
    for i in range(used + count):
        if i >= used:
            operand = CallOperand(operands + CallOperand.SIZE * (i - used))
            want = 1 if t != 0 and operand.slot != 0 else 0
            store_i8(words + 8 * i, operand.form + want)
            wants = max(wants, want)
        hashed = mixed(hashed, word(words, i))
    call.value = wants
    call.number = hashed & LARGEST_HASH
    return 1


# The table of calls.


def place_of(registry: RegistryTable, op, a, b, c, wants, number):
    """The set of places in which a call may be entered."""
    mixed = (op + 1) * 2654435761 + (a >> 4) * 4052930377 + (b >> 4) * 1609587929392839161 + c * 40503
    mixed = (mixed + wants * 7919 + (number >> 20) + number) * 5871781006564002453
    return registry.calls + 8 * CallEntry.SIZE * structs.WAYS * ((mixed >> 40) & (structs.SETS - 1))


def is_alive(form):
    """Whether a form is alive: other threads may run while it is deallocated, before its entries are removed."""
    return form == 0 or load_i8(form) & c_api.COUNTED != 0


def find(registry, op, a, b, c, wants, number):
    """The entry of a call; 0 if there is none."""
    entry = CallEntry(place_of(registry, op, a, b, c, wants, number))
    for _ in range(structs.WAYS):
        same = entry.first == a and entry.second == b and entry.op == op and entry.third == c
        if same and entry.wants == wants and entry.constant == number:
            return entry if is_alive(entry.form) else 0
        entry += 8 * CallEntry.SIZE
    return 0


def has_words(entry: CallEntry, words):
    """Whether an entry has these words for its arguments."""
    same = True
    for k in range(load_i8(words)):
        same = same and word(entry.key, k) == word(words, k)
    return same


def entry_at(registry, op, a, b, wants, words):
    """The entry of an index on tensors of a form, and of a value to write: for any ints, or for this index; or 0."""
    ints = ints_in(words)
    entry = CallEntry(find(registry, op, a, b, 0, wants, ints) if ints > 0 else 0)
    if entry != 0:
        first = load_i8(words) - 2 * ints + 1
        for axis in range(ints):
            number, extent = word(words, first + 2 * axis), word(entry.key, structs.AXIS * axis)
            if number < -extent or number >= extent:
                return 0
        return entry
    entry = find(registry, op, a, b, 0, wants, hash_of(words))
    return entry if entry != 0 and has_words(entry, words) else 0


def part_of(entry: CallEntry, words, at):
    """Where a part begins, in bytes: in memory (``at`` is CallEntry.start) or in the gradient (CallEntry.offset)."""
    return word(entry, at) if entry.extent == 0 else part_by_ints(entry, words, 1 if at == CallEntry.start else 2)


def part_by_ints(entry: CallEntry, words, stride):
    total, axes, first = 0, entry.key, load_i8(words) - 2 * entry.extent + 1
    for axis in range(entry.extent):
        number = word(words, first + 2 * axis)
        number += word(axes, structs.AXIS * axis) if number < 0 else 0
        total += number * word(axes, structs.AXIS * axis + stride)
    return total


@kept_apart
def argued_entry(registry, call: CallRequest, t):
    """Read a call with arguments behind its tensors, and find its entry; 0 where Python is to make it."""
    marks, op, a = call.marks, call.marks & (structs.NUMBERED - 1), CallOperand(call.operands)
    b, c = CallOperand(a + CallOperand.SIZE), CallOperand(a + 2 * CallOperand.SIZE)
    if marks & structs.INDEXED != 0:
        known = read_indexed(registry, call) != 0
        return entry_at(registry, op, a.form, b.form, wanted(a) if t != 0 else 0, call.words) if known else 0
    entry = CallEntry(0)
    if marks & structs.JOINS != 0:
        if read_joined(registry, call) != 0:
            entry = find(registry, op, a.form, 0, 0, call.value, call.number)
    elif read_argued(registry, call) != 0:
        entry = find(registry, op, a.form, b.form, c.form, wanted(a) if t != 0 else 0, call.number)
    return entry if entry != 0 and (load_i8(call.words) == 0 or has_words(entry, call.words)) else 0


def plain_entry(registry, call: CallRequest, t):
    """The same for a call of tensors and numbers; a NUMBERED operation has a second operand that is one in its key."""
    a, marks, number = CallOperand(call.operands), call.marks, 0
    if read_all(registry, call.args, call.count, a) == 0:
        return 0
    b, c = CallOperand(a + CallOperand.SIZE), CallOperand(a + 2 * CallOperand.SIZE)
    if marks & structs.NUMBERED != 0 and b.object == 0:
        number = load_i8(b.place)
    return find(registry, marks & (structs.NUMBERED - 1), a.form, b.form, c.form, wanted(a) if t != 0 else 0, number)


def entry_of(registry, call: CallRequest):
    """Read a call and find its entry; 0 where Python is to make it, as where only Python can notify recorders of it."""
    t = tape_in_force(registry)
    call.tape = t
    if t == -1:
        return 0
    plain = call.marks & structs.ARGUED == 0
    entry = CallEntry(plain_entry(registry, call, t & ~3) if plain else argued_entry(registry, call, t & ~3))
    if entry == 0:
        return 0
    if t & 1 == 0 or entry.kind == structs.SLOWLY:
        return entry
    return entry if entry.operation != 0 and (entry.params != 0 or t & 2 != 0) else 0


def is_same(registry, call: CallRequest, entry: CallEntry):
    """Whether a call on one tensor, without arrays, is what it was when its entry was found: Python may have run."""
    x, operand = TensorObject(load_i8(call.args)), CallOperand(call.operands)
    same = entry.op == call.marks & (structs.NUMBERED - 1) and entry.first == operand.form and x.form == operand.form
    same = same and is_alive(entry.form)
    same = same and entry.wants == (1 if operand.slot != 0 and call.tape & ~3 != 0 else 0)
    same = same and x.value == operand.object and x.slot & ~c_api.UNHELD == operand.slot & ~c_api.UNHELD
    return same and tape_in_force(registry) == call.tape


# A call that gives new tensors.


def can_do(t: TapeHeader, entry: CallEntry, operands):
    """Whether native code can make the call now.

    Python does it where the tape is full, where doubles are divided by 0, and where dead large values are to be
    collected.
    """
    kind, block, large = entry.kind, entry.block, entry.large
    if kind == structs.SLOWLY or (
        kind == structs.DIVIDE and load_f8(CallOperand(operands + CallOperand.SIZE).place) == 0.0
    ):
        return 0
    if converted(entry, operands) == 0:
        return 0
    if block == 0:
        return 1
    if large != 0 and t.grown + large > max(structs.LARGEST_GROWTH, 100 * t.size):
        return 0
    count = block.entries
    return 0 if t.size + count > t.room else reserve(t, count)


def is_risky(registry: RegistryTable, entry: CallEntry):
    """Whether what the tape saves may be memory that others write unseen; of what is picked or joined it saves none."""
    counts = registry.exposed
    return counts != 0 and counts[structs.EXPOSED] != 0 and entry.kind < structs.PICKED


def set_value(entry, at, tensor: TensorObject, value):
    """Give a tensor a value, taking over the reference, and the form of the entry."""
    tensor.value = value
    form = word(entry, at)
    c_api.Py_IncRef(form)
    tensor.form = form


def give_version(registry, call: CallRequest, entry: CallEntry, x: TensorObject, slot):
    """Give a tensor that has been written the slot of its new version, without views. What it had goes at the end."""
    views = x.views
    count_write(call.tape, CallOperand(call.operands).slot)
    if entry.large != 0:
        x.bytes = entry.large
    if views != 0:
        c_api.PyList_SetSlice(views, 0, c_api.PyList_Size(views), 0)
    give_slot(registry, x, slot, entry.block.form)


def record_and_notify(registry, call: CallRequest, entry: CallEntry, results, value):
    """Give tensors the values of a call, record the call and notify a recorder; without a value release them: 0.

    ``results``: one or two new tensors (second may be 0), or one that has been written. A second value, if any, was
    left in operand 3's object.
    """
    result, second, operands = TensorObject(load_i8(results)), load_i8(results + 8), call.operands
    if value == 0:
        dropped(second)
        return dropped(result)
    writes = entry.target >= structs.TO_PART
    if not writes:
        set_value(entry, CallEntry.form, result, value)
    if second != 0:
        set_value(entry, CallEntry.extra, second, load_i8(operands + structs.EXTRA_AT))
    t = TapeHeader(call.tape & ~3)
    if entry.block != 0:
        large, slot = entry.large, append(t, entry, operands, value)
        if writes:
            give_version(registry, call, entry, result, slot)
        else:
            result.slot = slot
            if large != 0:
                result.bytes = large
                t.grown += large if entry.target == structs.NEW else 0
    if call.tape != t and notify_recorder(registry, entry, call.args, operands, result) == 0:
        dropped(second)
        return dropped(result)
    return paired(entry, result, second) if second != 0 else result


def second_result(registry, results):
    """Make the second of two new tensors; 0 with an exception, the first released."""
    second = new_tensor(registry)
    store_i8(results + 8, second)
    return second if second != 0 else dropped(load_i8(results))


def new_results(registry, two, results):
    """Make a new tensor for a result, or two; 0 with an exception."""
    first = new_tensor(registry)
    store_i8(results, first)
    store_i8(results + 8, 0)
    return second_result(registry, results) if two and first != 0 else first


def gives_two(entry: CallEntry):
    return entry.extra != 0


def new_by_python(registry, call: CallRequest, entry: CallEntry):
    """The same as new_value for a call whose values a Python function computes; afterwards everything is read again."""
    before, results, function, values = thirty_words(), three_words(), entry.loop, three_words()
    for k in range(structs.MOST_OPERANDS * CallOperand.SIZE // 8):
        store_i8(before + 8 * k, word(call.operands, k))
    if called(registry, entry, before, values) == 0:
        return 0 if c_api.PyErr_Occurred() != 0 else structs.NOT_NATIVE
    value, extra = load_i8(values), load_i8(values + 8)
    if new_results(registry, extra != 0, results) == 0:
        dropped(extra)
        return dropped(value)
    entry = entry_of(registry, call)
    same = entry != 0 and entry.kind == structs.CALLED and entry.loop == function
    same = same and gives_two(entry) == (extra != 0) and are_alike(call.operands, before) != 0
    same = same and can_do(call.tape & ~3, entry, call.operands) != 0
    if not same:
        dropped(extra)
        return record_and_notify(registry, call, entry, results, dropped(value))
    risky = is_risky(registry, entry)
    if risky and secure(registry, entry, call.args, call.operands) == 0:
        extra, value = dropped(extra), dropped(value)
    if extra != 0:
        store_i8(call.operands + structs.EXTRA_AT, extra)
    result = record_and_notify(registry, call, entry, results, value)
    if risky:
        release_copies(call.operands)
    return result


def new_value(registry: RegistryTable, call: CallRequest, entry: CallEntry):
    """Return the new tensors of a call whose entry has been found; NOT_NATIVE, or 0, where Python makes it."""
    if entry.kind == structs.SLOWLY:
        return structs.NOT_NATIVE
    if entry.kind == structs.CALLED:
        return new_by_python(registry, call, entry)
    two, spares, results = gives_two(entry), registry.spares, three_words()
    if new_results(registry, two, results) == 0:
        return 0
    if spares <= two:  # allocating may have run any Python code: read everything again
        entry = entry_of(registry, call)
        if entry != 0 and (entry.target != structs.NEW or entry.kind == structs.CALLED or gives_two(entry) != two):
            entry = 0
    if entry == 0 or can_do(call.tape & ~3, entry, call.operands) == 0:
        return record_and_notify(registry, call, entry, results, 0)
    value, risky = 0, is_risky(registry, entry)
    if not risky or secure(registry, entry, call.args, call.operands) != 0:
        value = values_of(registry, call, entry)
        if entry.ties != 0:
            value = count_ties(registry, entry, call.operands, value)
    result = record_and_notify(registry, call, entry, results, value)
    if risky:
        release_copies(call.operands)
    return result


def place(op: int, a: int, b: int, c: int, wants: int, number: int) -> int:
    """The set of places in which a call may be entered, for Python."""
    return place_of(tape_registry(), op, a, b, c, wants, number)
