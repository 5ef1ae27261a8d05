"""Calls of compiled programs on tensors, as plans make them: one instruction of the tape each."""

from __future__ import annotations

from kernels.calls.computing_native import copy_of, is_exposed
from kernels.calls.keys_native import tape_in_force
from kernels.language.llvm_values import Word
from kernels.machine_code import call_structs
from kernels.machine_code.call_structs import CallOnTensors, DirectCall, TensorOperand, TensorResult
from kernels.machine_code.direct_calls_native import (
    array_place,
    came_to,
    dropped,
    first_result,
    ran,
    result,
    results_made,
)
from kernels.machine_code.structures_native import built
from kernels.native import structs
from kernels.native.c_api import (
    A_DENSE,
    STALE,
    UNHELD,
    ArrayObject,
    Py_DecRef,
    Py_IncRef,
    PyErr_Clear,
    TensorObject,
    on_stack,
    tape_registry,
)
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.objects_native import kind_of, new_tensor, owned
from kernels.native.structs import ExchangedValue, ExchangeHead, KeptCalls, RegistryTable, TapeHeader
from kernels.native.tape_native import commit, keep, let_go, reserve
from kernels.programs.replay_native import entered
from kernels.programs.replay_native import result as copied_result

CONTROL = True

objects_held, results_held, new_held = [on_stack(call_structs.MOST_OPERANDS + 1) for _ in range(3)]


def operand_of(call: CallOnTensors, values, k):
    """A tensor that the program reads: given, or from outside."""
    operand = TensorOperand(call + 8 * (CallOnTensors.SIZE + TensorOperand.SIZE * k))
    return operand.outside if operand.outside != 0 else word(values, k)


def may_change(registry: RegistryTable, x: TensorObject, array):
    """Whether others may write to the memory of a tensor unseen, so that the tape is to save a copy."""
    return registry.exposed[structs.EXPOSED] != 0 and (x.shared == registry.none or is_exposed(registry, array))


def dense_copy(registry: RegistryTable, array: ArrayObject):
    """A copy of an array in the order of its elements; 0 where there is none."""
    return copy_of(registry, array) if array.flags & A_DENSE != 0 else 0


def value_of(registry: RegistryTable, operand: TensorOperand, x: TensorObject, saved):
    """The value of an operand as recorded, held, if it is ``saved`` as a copy of what others may write; 0 of others."""
    if operand.form == 0:
        if kind_of(x) == registry.array_type:
            return dense_copy(registry, x) if saved else owned(x)
        return owned(x) if kind_of(x) == registry.float_type else 0
    if kind_of(x) != registry.tensor_type or x.slot == STALE or (1 if x.slot != 0 else 0) != operand.wanted:
        return 0
    if x.form != operand.form and x.form != operand.other:
        return 0
    value = ArrayObject(x.value)
    if saved and kind_of(value) == registry.array_type and may_change(registry, x, value):
        return dense_copy(registry, value)
    return owned(value) if kind_of(value) == registry.array_type or kind_of(value) == registry.float_type else 0


def hold_values(registry: RegistryTable, call: CallOnTensors, values, held):
    """Hold the values of the operands; how many, fewer than there are where one is not as recorded."""
    k, value = 0, 1
    while k < call.operands and value != 0:
        operand = call + 8 * (CallOnTensors.SIZE + TensorOperand.SIZE * k)
        value = value_of(registry, operand, operand_of(call, values, k), call.block != 0)
        if value != 0:
            store_i8(held + 8 * k, value)
            k += 1
    return k


def let_go_of(held, count):
    """Release so many objects."""
    for k in range(count):
        Py_DecRef(word(held, k))


def through_code(registry: RegistryTable, machine: DirectCall, held, count, out):
    """Run machine code on values, its results to ``out``; how many, or what :func:`on_tensors` answers without any."""
    entry, k = machine + 8 * DirectCall.SIZE, 0
    while k < count:
        value = ArrayObject(word(held, k))
        place = array_place(entry, value) if kind_of(value) == registry.array_type else value + HEADER
        if place == 0:
            return call_structs.OTHERS
        store_i8(machine.table + 8 * k, place)
        entry += 8 * call_structs.D_ENTRY
        k += 1
    if results_made(machine) == 0:
        return 0
    status, size, k = ran(machine), machine.results, 0
    if status < 0:
        entry = first_result(machine)
        while k < size:
            made = result(entry)
            if made == 0:
                break
            store_i8(out + 8 * k, made)
            entry += 8 * call_structs.D_ENTRY
            k += 1
    dropped(machine)
    if status >= 0:
        return call_structs.MISSED - status
    let_go_of(out, k if k < size else 0)
    return size if k == size else 0


def by_code(registry: RegistryTable, machine: DirectCall, held, count, out):
    """The same, unless somebody else does; BUSY then."""
    if load_i8(machine.busy) != 0:
        return call_structs.BUSY
    store_i8(machine.busy, 1)
    made = through_code(registry, machine, held, count, out)
    store_i8(machine.busy, 0)
    return made


def by_rows(table: ExchangeHead, held, count, out):
    """Run the interpreter's rows on values, likewise; OTHERS where Python is to act, or a guard misses."""
    if entered(table, held, count) <= 0:
        PyErr_Clear()
        return call_structs.OTHERS
    if came_to(table) != -1:
        return call_structs.OTHERS
    for k in range(table.results):
        made = copied_result(table, table + 8 * (ExchangeHead.SIZE + ExchangedValue.SIZE * (table.arguments + k)))
        if made == 0:
            let_go_of(out, k)
            return 0
        store_i8(out + 8 * k, made)
    return table.results


def write(t: TapeHeader, call: CallOnTensors, values, held, out, kept):
    """Write the words of the call behind the last of the tape."""
    registry, block, at = t.registry, call.block, t.words + 8 * (t.size + 1)
    inputs = call.operands
    for k in range(inputs):
        operand = TensorOperand(call + 8 * (CallOnTensors.SIZE + TensorOperand.SIZE * k))
        slot = TensorObject(operand_of(call, values, k)).slot if operand.form != 0 else 0
        keep(t, at + 8 * k, slot & ~UNHELD if slot > 0 else slot)
        store_i8(at + 8 * (inputs + 1 + k), owned(word(held, k)))
    at += 8 * inputs
    store_i8(at, owned(call.context))
    at += 8 * (inputs + 1)
    for k in range(inputs if call.calls != 0 else 0):
        number = TensorOperand(call + 8 * (CallOnTensors.SIZE + TensorOperand.SIZE * k)).gradient
        gradient = registry.none if kept == 0 else registry.false if number < 0 else word(out, max(number, 0))
        store_i8(at, owned(gradient))
        at += 8
    for k in range(call.saved):
        store_i8(at, owned(word(call.objects, k)))
        at += 8
    if keeps_memory(call):
        store_i8(at, owned(word(out, call.results)))
        at += 8
    store_i8(at, call.code)
    Py_IncRef(block.form)
    return commit(t, block.entries)


def keeps_memory(call: CallOnTensors):
    """Whether the tape is to save the memory of the interpreter's rows, the last of their results."""
    return call.rows != 0 and call.calls == 0 and call.block != 0


def has_room(t: TapeHeader, call: CallOnTensors):
    """Whether the tape has room for the call, and no dead large values that are to be collected."""
    large, count = call.large, call.room
    if large != 0 and t.grown + large > max(structs.LARGEST_GROWTH, 100 * t.size):
        return False
    return t.size + count <= t.room and reserve(t, count) != 0


def can_keep(registry: RegistryTable, call: CallOnTensors):
    """Whether nobody can write unseen to what the tape saves of arrays from outside."""
    k, safe = 0, True
    while k < call.saved and safe and registry.exposed[structs.EXPOSED] != 0:
        safe = word(call.objects, call.saved + k) != 0 or not is_exposed(registry, word(call.objects, k))
        k += 1
    return safe


def give(call: CallOnTensors, x: TensorObject, value, form, slot):
    """Give a new tensor its value, and the slot of its instruction, 0 if it has none."""
    x.value = owned(value)
    x.form = owned(form)
    x.slot = slot
    if call.large != 0 and slot != 0:
        x.bytes = call.large


def give_each(t: TapeHeader, call: CallOnTensors, slot, out, tensors):
    """Give several results to tensors; record, behind the call, each that has a gradient."""
    for k in range(call.results):
        of = TensorResult(call.several + 8 * TensorResult.SIZE * k)
        block, form, at_slot = of.block, of.source, 0
        if block != 0:
            reserve(t, block.entries)  # there is room for the words, perhaps not yet a chunk for the slot
            at, form = t.words + 8 * t.size, block.form
            store_i8(at + 8, slot)
            store_i8(at + 16, owned(of.source))
            store_i8(at + 24, of.code)
            Py_IncRef(form)
            at_slot = commit(t, block.entries)
        give(call, word(tensors, k), word(out, k), form, at_slot)
    if slot != 0:
        let_go(t.registry, slot)


def recorded(t: TapeHeader, call: CallOnTensors, values, held, out, tensors, kept):
    """Record the call, whose program has run, and give the results to tensors; OTHERS where there is no room."""
    if call.block == 0:
        give_each(t, call, 0, out, tensors)
        return 1
    if not has_room(t, call):
        return call_structs.OTHERS
    slot = write(t, call, values, held, out, kept)
    t.grown += call.large
    if call.several != 0:
        give_each(t, call, slot, out, tensors)
    else:
        give(call, load_i8(tensors), load_i8(out), call.block.form, slot)
    if kept != 0:
        KeptCalls(call.calls).count += 1
    return 1


def answered(registry: RegistryTable, t: TapeHeader, call: CallOnTensors, values, tensors, kept):
    """Run the program on tensors; return 1, or what :func:`on_tensors` answers else."""
    held, out = objects_held(), results_held()
    count, made = hold_values(registry, call, values, held), call_structs.OTHERS
    if count == call.operands:
        if call.rows != 0 and (kept != 0 or call.calls == 0):
            size = by_rows(call.rows, held, count, out)
        else:
            size = by_code(registry, call.kept if kept != 0 else call.forward, held, count, out)
        made = recorded(t, call, values, held, out, tensors, kept) if size > 0 else size
        let_go_of(out, max(size, 0))
    let_go_of(held, count)
    return made


def can_run(call: CallOnTensors, kept):
    """Whether there is what runs the program."""
    return kept != 0 or call.forward != 0 or (call.rows != 0 and call.calls == 0)


def can_record(registry: RegistryTable, t: TapeHeader, call: CallOnTensors):
    """Whether a tape takes the call as it is, if that has an instruction; no recorder may want to know of it."""
    if t == -1 or t & 1 != 0 or call.block == 0:
        return t != -1 and t & 1 == 0
    return t != 0 and has_room(t, call) and can_keep(registry, call)


def on_tensors(address: Word, values: Word, count: Word, unused: Word) -> Word:
    """Return the result of a call on tensors; OTHERS, BUSY, MISSED - k, or 0 with an exception, where there is none."""
    call, registry, tensors, size = CallOnTensors(address), tape_registry(), new_held(), 0
    t = TapeHeader(tape_in_force(registry))
    if count != call.args:
        return call_structs.OTHERS
    keeps = call.calls != 0 and (call.kept != 0 or call.rows != 0)
    kept = 1 if keeps and KeptCalls(call.calls).count < KeptCalls(call.calls).most else 0
    if not can_run(call, kept) or not can_record(registry, t, call):
        return call_structs.OTHERS
    while size < call.results:  # this may run any Python code: nothing was read before
        x = new_tensor(registry)
        if x == 0:
            let_go_of(tensors, size)
            return 0
        store_i8(tensors + 8 * size, x)
        size += 1
    made = call_structs.BUSY
    if call.busy == 0 and tape_in_force(registry) == t:
        call.busy = 1
        made = answered(registry, t, call, values, tensors, kept)
        call.busy = 0
    if made > 0:
        return built(call.steps, tensors, size) if call.steps != 0 else load_i8(tensors)
    let_go_of(tensors, size)
    return made
