"""The methods of a tape's native object: instructions are recorded behind the last, read, replaced and dropped."""

from __future__ import annotations

from kernels.language.llvm_values import Void, Word
from kernels.native import c_api, structs
from kernels.native.c_api import ArrayObject, TensorObject
from kernels.native.memory import HEADER, bits_of, double_of, load_i8, store_i8, word
from kernels.native.objects_native import (
    block_of,
    dropped,
    integer_of,
    is_array,
    is_double,
    kind_of,
    none,
    owned,
    wrong,
)
from kernels.native.structs import FormBlock, InputBlock, RegistryTable, TapeHeader
from kernels.native.tape_native import block_at, commit, keep, let_go, reserve, seek, take_out
from kernels.native.tape_native import collect as gather

CONTROL = True


def operand_word(registry: RegistryTable, x):
    """The word of an operand; -1 with an exception."""
    if x == registry.none:
        return 0
    if kind_of(x) == registry.int_type:
        slot = c_api.PyLong_AsLongLong(x)
        if slot < 0 and c_api.PyErr_Occurred() == 0:
            wrong(registry)
        return max(slot, -1)
    return -x


def fits(registry: RegistryTable, x, kind):
    """Whether an object can be saved as this kind of word."""
    if kind == structs.NUMBER:
        return kind_of(x) == registry.int_type and (c_api.PyLong_AsLongLong(x) != -1 or c_api.PyErr_Occurred() == 0)
    if kind == structs.DOUBLE:
        return is_double(registry, x)
    return kind == structs.OBJECT or is_array(registry, x)


def saved_word(registry, x: ArrayObject, kind):
    """The word of a saved value, with a new reference to an array or object."""
    if kind == structs.NUMBER:
        return c_api.PyLong_AsLongLong(x)
    if kind == structs.DOUBLE:
        return load_i8(x.data) if is_array(registry, x) else bits_of(c_api.PyFloat_AsDouble(x))
    return owned(x)


def saves(registry, block: FormBlock, saved):
    """Whether these values fit the saved words of a form."""
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs)
    misfits = 0
    for j in range(block.saved):
        if misfits == 0 and not fits(registry, c_api.PyTuple_GetItem(saved, j), word(kinds, j)):
            misfits += 1
    return misfits == 0


def count_write(t: TapeHeader, before):
    """Remember that there are writes, and whether any is to a version that another tape has made."""
    elsewhere = before > 0 and before >> structs.TAPE_BITS != t.number
    t.writes |= 2 if elsewhere else 1


def write(t: TapeHeader, block: FormBlock, code, operands, saved):
    """Write the words of an instruction behind the last; 0 with an exception, owning nothing."""
    registry, inputs = t.registry, block.inputs
    at = t.words + 8 * t.size
    for i in range(inputs):
        operand = operand_word(registry, c_api.PyTuple_GetItem(operands, i))
        if operand == -1 and c_api.PyErr_Occurred() != 0:
            return 0
        store_i8(at + 8 * (1 + i), operand)
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * inputs)
    for j in range(block.saved):
        store_i8(at + 8 * (1 + inputs + j), saved_word(registry, c_api.PyTuple_GetItem(saved, j), word(kinds, j)))
    store_i8(at + 8 * (block.entries - 1), code)
    for i in range(inputs):
        keep(t, at + 8 * (1 + i), load_i8(at + 8 * (1 + i)))
    c_api.Py_IncRef(block.form)
    if block.kind == structs.CLEARS or block.kind == structs.ADDS:
        count_write(t, load_i8(at + 8))
    return 1


def exchange(registry, x: TensorObject, slot):
    """Give a tensor another slot, which is already counted, or leaf, already owned; then release the old one."""
    before = x.slot
    x.slot = slot
    if before > 0:
        if before & c_api.UNHELD == 0:
            let_go(registry, before)
    elif before < c_api.STALE:
        c_api.Py_DecRef(-before)


def give_slot(registry, x: TensorObject, slot, form):
    """Give a tensor a slot that is already counted, and a borrowed form; what it had is released at the end."""
    old = x.form
    c_api.Py_IncRef(form)
    x.form = form
    exchange(registry, x, slot)
    c_api.Py_DecRef(old)


def outdate(registry: RegistryTable, view: TensorObject):
    """Make a view with a slot, whose gradient no tape retains, stale: its base has a new version."""
    kind = kind_of(view)
    c_api.Py_IncRef(registry.stale_type)
    view.type = registry.stale_type
    exchange(registry, view, c_api.STALE)
    c_api.Py_DecRef(kind)


def make_room(t: TapeHeader, count):
    """Make room for ``count`` words; if half of the tape is dead, collect first; 0 with an exception."""
    if t.size + count > t.room and 2 * t.dead >= t.count and t.count > 0:
        call = t.notify
        if call != 0:
            c_api.Py_IncRef(call)
            result = c_api.PyObject_CallNoArgs(call)
            c_api.Py_DecRef(call)
            if result == 0:
                return 0
            c_api.Py_DecRef(result)
    if reserve(t, count) == 0:
        c_api.PyErr_NoMemory()
        return 0
    return 1


def record(self: Word, args: Word, count: Word) -> Word:
    """``record(result, code, operands, saved)``: append an instruction; the tensor gets its slot and its form."""
    t = TapeHeader(self + HEADER)
    registry = t.registry
    if count != 4 or c_api.PyType_IsSubtype(kind_of(word(args, 0)), registry.tensor_type) == 0:
        return wrong(registry)
    result, operands, saved = word(args, 0), word(args, 2), word(args, 3)
    code = integer_of(registry, word(args, 1))
    block = FormBlock(block_of(registry, code))
    if block == 0 or c_api.PyTuple_Size(operands) != block.inputs or c_api.PyTuple_Size(saved) != block.saved:
        return wrong(registry)
    if not saves(registry, block, saved):
        return wrong(registry)
    if make_room(t, block.entries) == 0 or write(t, block, code, operands, saved) == 0:
        return 0
    give_slot(registry, result, commit(t, block.entries), block.form)
    return none(registry)


def operand_object(registry, operand):
    if operand == 0:
        return none(registry)
    if operand > 0:
        return c_api.PyLong_FromLongLong(operand)
    return owned(-operand)


def saved_object(number, kind):
    if kind == structs.NUMBER:
        return c_api.PyLong_FromLongLong(number)
    if kind == structs.DOUBLE:
        return c_api.PyFloat_FromDouble(double_of(number))
    return owned(number)


def saved_of(t: TapeHeader, start, block: FormBlock):
    """The saved values of an instruction as a tuple; 0 with an exception."""
    inputs, count = block.inputs, block.saved
    kinds, saved = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * inputs), c_api.PyTuple_New(count)
    for j in range(count):
        if saved != 0:
            c_api.PyTuple_SetItem(saved, j, saved_object(t.words[start + 1 + inputs + j], word(kinds, j)))
    return saved


def last_of_argument(t: TapeHeader, x):
    """The position of an instruction's last word, from an argument; -1 with an exception."""
    last, registry = integer_of(t.registry, x), t.registry
    if last >= 0 and last < t.size:
        block = FormBlock(block_of(registry, t.words[last]))
        if block != 0 and block.entries <= last + 1:
            return last
    wrong(registry)
    return -1


def last_of(t: TapeHeader, args, count, wanted):
    """The same, of the last one of ``wanted`` arguments."""
    return last_of_argument(t, word(args, count - 1)) if count == wanted else wrong(t.registry) - 1


def at(self: Word, args: Word, count: Word) -> Word:
    """``at(last)``: the instruction that ends there: start, stop, slot, operands, saved values, form."""
    t = TapeHeader(self + HEADER)
    last = last_of(t, args, count, 1)
    if last < 0:
        return 0
    block = block_at(t, last)
    start = last + 1 - block.entries
    parts = c_api.PyTuple_New(6)
    if parts != 0:
        c_api.Py_IncRef(block.form)
        c_api.PyTuple_SetItem(parts, 0, c_api.PyLong_FromLongLong(start))
        c_api.PyTuple_SetItem(parts, 1, c_api.PyLong_FromLongLong(last + 1))
        c_api.PyTuple_SetItem(parts, 2, c_api.PyLong_FromLongLong(t.words[start]))
        operands = c_api.PyTuple_New(block.inputs)
        for i in range(block.inputs):
            if operands != 0:
                c_api.PyTuple_SetItem(operands, i, operand_object(t.registry, t.words[start + 1 + i]))
        c_api.PyTuple_SetItem(parts, 3, operands)
        c_api.PyTuple_SetItem(parts, 4, saved_of(t, start, block))
        c_api.PyTuple_SetItem(parts, 5, block.form)
        if c_api.PyErr_Occurred() != 0:
            return dropped(parts)
    return parts


def operand(self: Word, args: Word, count: Word) -> Word:
    """``operand(place, last)``: the operand at a place of the instruction that ends at another."""
    t = TapeHeader(self + HEADER)
    last = last_of(t, args, count, 2)
    if last < 0:
        return 0
    block, place = block_at(t, last), integer_of(t.registry, word(args, 0))
    first = last + 2 - block.entries
    if place < first or place >= first + block.inputs:
        return wrong(t.registry)
    return operand_object(t.registry, t.words[place])


def form(self: Word, args: Word, count: Word) -> Word:
    """``form(last)``: the form of the instruction that ends there."""
    t = self + HEADER
    last = last_of(t, args, count, 1)
    if last < 0:
        return 0
    form_object = block_at(t, last).form
    return owned(form_object)


def find(self: Word, args: Word, count: Word) -> Word:
    """``find(slot)``: the end of the last instruction whose slot is at most this."""
    t = TapeHeader(self + HEADER)
    slot = integer_of(t.registry, word(args, 0)) if count > 0 else -1
    if slot < 0:
        return wrong(t.registry)
    return c_api.PyLong_FromLongLong(seek(t, slot))


def saved_kind(block: FormBlock, number):
    """What a saved word is."""
    return word(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs), number)


def kept(self: Word, args: Word, count: Word) -> Word:
    """``kept(place, last)``: the array or object that an instruction saved there."""
    t = TapeHeader(self + HEADER)
    last = last_of(t, args, count, 2)
    if last < 0:
        return 0
    block, place = block_at(t, last), integer_of(t.registry, word(args, 0))
    at = place - (last - block.saved)
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs)
    if at < 0 or at >= block.saved or word(kinds, at) < structs.ARRAY:
        return wrong(t.registry)
    return saved_object(t.words[place], structs.ARRAY)


def replace(self: Word, args: Word, count: Word) -> Word:
    """``replace(place, last, saved, copy, code)``: swap a saved array that is still there; return it, or None."""
    t = TapeHeader(self + HEADER)
    registry = t.registry
    if count != 5:
        return wrong(registry)
    place, last = integer_of(registry, word(args, 0)), last_of_argument(t, word(args, 1))
    block = FormBlock(block_of(registry, integer_of(registry, word(args, 4))))
    if last < 0 or place >= last or place < last - block_at(t, last).saved:
        return wrong(registry)
    words, copy, number = t.words, word(args, 3), place - (last - block_at(t, last).saved)
    before = words[place]
    if saved_kind(block_at(t, last), number) != structs.OBJECT and not is_array(registry, copy):
        return wrong(registry)
    if before != word(args, 2) or block == 0 or block.entries != block_at(t, last).entries:
        return none(registry)
    old = block_at(t, last).form
    c_api.Py_IncRef(copy)
    c_api.Py_IncRef(block.form)
    words[place] = copy
    words[last] = c_api.PyLong_AsLongLong(word(args, 4))
    c_api.Py_DecRef(old)
    return before


def gone(count):
    return c_api.PyLong_FromLongLong(count) if count >= 0 else c_api.PyErr_NoMemory()


def collect(self: Word, args: Word, count: Word) -> Word:
    """``collect(readers)``: drop the instructions whose results nobody can reach, unless the tape has readers."""
    t = TapeHeader(self + HEADER)
    if count != 1 or c_api.PyList_Size(word(args, 0)) < 0:
        return wrong(t.registry)
    return c_api.PyLong_FromLongLong(0) if c_api.PyList_Size(word(args, 0)) > 0 else gone(gather(t))


def remove(self: Word, args: Word, count: Word) -> Word:
    """``remove(readers, lasts)``: drop the instructions that end there, ascending, unless there are other readers."""
    t = TapeHeader(self + HEADER)
    if count != 2 or c_api.PyList_Size(word(args, 0)) < 0 or c_api.PyTuple_Size(word(args, 1)) < 0:
        return wrong(t.registry)
    lasts, words, low = word(args, 1), t.words, -1
    if c_api.PyList_Size(word(args, 0)) > 1:
        return c_api.PyLong_FromLongLong(0)
    for k in range(c_api.PyTuple_Size(lasts)):
        if last_of_argument(t, c_api.PyTuple_GetItem(lasts, k)) < 0:
            return 0
    for k in range(c_api.PyTuple_Size(lasts)):
        last = c_api.PyLong_AsLongLong(c_api.PyTuple_GetItem(lasts, k))
        if low < 0:
            low = last + 1 - block_at(t, last).entries
        if words[last] >= 0:
            words[last] = ~words[last]
    return gone(take_out(t, low) if low >= 0 else 0)


def notify(self: Word, args: Word, count: Word) -> Word:
    """``notify(call)``: set what is called when half of the tape is dead, or large values have died."""
    t = TapeHeader(self + HEADER)
    if count != 1:
        return wrong(t.registry)
    before = t.notify
    c_api.Py_IncRef(word(args, 0))
    t.notify = word(args, 0)
    c_api.Py_DecRef(before)
    return none(t.registry)


def length(self: Word) -> Word:
    return TapeHeader(self + HEADER).size


def dealloc(self: Word) -> Void:
    t, kind = TapeHeader(self + HEADER), kind_of(self)
    registry = t.registry
    if registry != 0:
        position = t.size
        while position > 0:
            last = position - 1
            t.words[last] = ~t.words[last]
            position -= registry.forms[~t.words[last]].entries
        if t.size > 0:
            take_out(t, 0)
        registry.tapes[t.number] = 0
        for k in range(t.chunks):
            c_api.PyMem_RawFree(t.directory[k])
        c_api.PyMem_RawFree(t.directory)
        c_api.PyMem_RawFree(t.words)
        c_api.Py_DecRef(t.notify)
    c_api.PyObject_Free(self)
    c_api.Py_DecRef(kind)


# A saved array is identified by the slot of its instruction and its index among the saved values: dropping others
# changes neither.


def meets(array: ArrayObject, low, high):
    """Whether an array's elements may stand in a range of memory: some of its bytes do, or some close by."""
    first, last = array.data, array.data
    for k in range(array.ndim):
        extent, stride = array.shape[k], array.strides[k]
        if extent == 0:
            return False
        if stride < 0:
            first += (extent - 1) * stride
        else:
            last += (extent - 1) * stride
    return first < high and low < last + 16  # bytes of the largest element type


def add_number(items, number):
    """Append an integer to a list; 0 with an exception."""
    x = c_api.PyLong_FromLongLong(number)
    if x == 0:
        return 0
    failed = c_api.PyList_Append(items, x)
    c_api.Py_DecRef(x)
    return 0 if failed != 0 else 1


def saved_array(registry, block: FormBlock, j, x):
    """Whether a saved word is an array."""
    kind = word(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs), j)
    return kind == structs.ARRAY or (kind == structs.OBJECT and is_array(registry, x))


def listed(t: TapeHeader, after, low, high, wants_all):
    """Slots and indices of arrays saved behind a slot, as a list: of those in a range, or of all, with the arrays."""
    registry, words, position = t.registry, t.words, t.size
    items, done = c_api.PyList_New(0), 1
    while items != 0 and position > 0:
        block = block_at(t, position - 1)
        start = position - block.entries
        slot, first = words[start], start + 1 + block.inputs
        if slot <= after:
            break
        position = start
        for j in range(block.saved):
            x = words[first + j]
            if saved_array(registry, block, j, x) and (wants_all or meets(x, low, high)):
                if wants_all and c_api.PyList_Append(items, x) != 0:
                    done = 0
                done = done and add_number(items, slot) and add_number(items, j)
    return dropped(items) if done == 0 or c_api.PyErr_Occurred() != 0 else items


def arrays(self: Word, args: Word, count: Word) -> Word:
    """``arrays(after)``: the arrays saved by instructions behind a slot, each with slot and number."""
    t = TapeHeader(self + HEADER)
    after = integer_of(t.registry, word(args, 0)) if count == 1 else -1
    return listed(t, after, 0, 0, True) if after >= 0 else wrong(t.registry)


def meeting(self: Word, args: Word, count: Word) -> Word:
    """``meeting(low, high, after)``: slots and numbers of those of them that may stand in a range of memory."""
    t = TapeHeader(self + HEADER)
    registry = t.registry
    after = integer_of(registry, word(args, 2)) if count == 3 else -1
    if after < 0:
        return wrong(registry)
    low, high = integer_of(registry, word(args, 0)), integer_of(registry, word(args, 1))
    return listed(t, after, low, high, False)


def placed(self: Word, args: Word, count: Word) -> Word:
    """``placed(slot, number)``: where a saved value stands, and its instruction's end; None if that is gone."""
    t = TapeHeader(self + HEADER)
    registry = t.registry
    slot = integer_of(registry, word(args, 0)) if count == 2 else -1
    number = integer_of(registry, word(args, 1)) if count == 2 else -1
    if slot < 0 or number < 0:
        return wrong(registry)
    last = seek(t, slot) - 1
    block = FormBlock(block_at(t, last) if last >= 0 else 0)
    if block == 0 or t.words[last + 1 - block.entries] != slot or number >= block.saved:
        return none(registry)
    place = c_api.PyTuple_New(2)
    if place != 0:
        c_api.PyTuple_SetItem(place, 0, c_api.PyLong_FromLongLong(last - block.saved + number))
        c_api.PyTuple_SetItem(place, 1, c_api.PyLong_FromLongLong(last))
        if c_api.PyErr_Occurred() != 0:
            return dropped(place)
    return place
