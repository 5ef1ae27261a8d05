"""Recording, as a method of a tape's native object: the words of an instruction are written behind the last."""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.memory import HEADER, load_i8, store_i8, word
from kernels.native.object_structs import STALE, UNHELD, ArrayObject, TensorObject
from kernels.native.objects_native import block_of, integer_of, is_array, is_double, kind_of, none, wrong
from kernels.native.python_api import (
    Py_DecRef,
    Py_IncRef,
    PyErr_NoMemory,
    PyErr_Occurred,
    PyFloat_AsDouble,
    PyLong_AsLongLong,
    PyObject_CallNoArgs,
    PyTuple_GetItem,
    PyTuple_Size,
    PyType_IsSubtype,
    bits_of,
)
from kernels.native.tape.tape_native import commit, hold, let_go, reserve
from kernels.native.tape_structs import (
    ADDS,
    CLEARS,
    DOUBLE,
    NUMBER,
    OBJECT,
    TAPE_BITS,
    FormBlock,
    InputBlock,
    RegistryTable,
    TapeHeader,
)

CONTROL = True


def operand_word(registry: RegistryTable, x):
    """The word of an operand, with a new reference if it is a leaf; -1 with an exception."""
    if x == registry.none:
        return 0
    if kind_of(x) == registry.int_type:
        slot = PyLong_AsLongLong(x)
        if slot < 0 and PyErr_Occurred() == 0:
            wrong(registry)
        return max(slot, -1)
    Py_IncRef(x)
    return -x


def fits(registry: RegistryTable, x, kind):
    """Whether an object can be saved as this kind of word."""
    if kind == NUMBER:
        return kind_of(x) == registry.int_type and (PyLong_AsLongLong(x) != -1 or PyErr_Occurred() == 0)
    if kind == DOUBLE:
        return is_double(registry, x)
    return kind == OBJECT or is_array(registry, x)


def saved_word(registry, x: ArrayObject, kind):
    """The word of a saved value, with a new reference to an array or object."""
    if kind == NUMBER:
        return PyLong_AsLongLong(x)
    if kind == DOUBLE:
        return load_i8(x.data) if is_array(registry, x) else bits_of(PyFloat_AsDouble(x))
    Py_IncRef(x)
    return x


def saves(registry, block: FormBlock, saved):
    """Whether these values fit the saved words of a form."""
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs)
    misfits = 0
    for j in range(block.saved):
        if misfits == 0 and not fits(registry, PyTuple_GetItem(saved, j), word(kinds, j)):
            misfits += 1
    return misfits == 0


def count_write(t: TapeHeader, before):
    """Remember that there are writes, and whether any is to a version that another tape has made."""
    elsewhere = before > 0 and before >> TAPE_BITS != t.number
    t.writes |= 2 if elsewhere else 1


def write(t: TapeHeader, block: FormBlock, code, operands, saved):
    """Write the words of an instruction behind the last; 0 with an exception, owning nothing."""
    registry, inputs = t.registry, block.inputs
    at = t.words + 8 * t.size
    for i in range(inputs):
        operand = operand_word(registry, PyTuple_GetItem(operands, i))
        if operand == -1 and PyErr_Occurred() != 0:
            for k in range(i):
                if load_i8(at + 8 * (1 + k)) < 0:
                    Py_DecRef(-load_i8(at + 8 * (1 + k)))
            return 0
        store_i8(at + 8 * (1 + i), operand)
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * inputs)
    for j in range(block.saved):
        store_i8(at + 8 * (1 + inputs + j), saved_word(registry, PyTuple_GetItem(saved, j), word(kinds, j)))
    store_i8(at + 8 * (block.entries - 1), code)
    for i in range(inputs):
        operand = load_i8(at + 8 * (1 + i))
        if operand > 0 and operand >> TAPE_BITS != t.number:
            hold(registry, operand)
    Py_IncRef(block.form)
    if block.kind == CLEARS or block.kind == ADDS:
        count_write(t, load_i8(at + 8))
    return 1


def give_slot(registry, x: TensorObject, slot, form):
    """Give a tensor a slot that is already counted, and a borrowed form; what it had is released at the end."""
    before, old = x.slot, x.form
    Py_IncRef(form)
    x.slot = slot
    x.form = form
    if before > 0 and before & UNHELD == 0:
        let_go(registry, before)
    if before < -1:
        Py_DecRef(-before)
    if old != 0:
        Py_DecRef(old)


def outdate(registry: RegistryTable, view: TensorObject):
    """Make a view with a slot, whose gradient no tape retains, stale: its base has a new version."""
    slot, kind = view.slot, kind_of(view)
    view.slot = STALE
    Py_IncRef(registry.stale_type)
    view.type = registry.stale_type
    if slot & UNHELD == 0:
        let_go(registry, slot)
    Py_DecRef(kind)


def make_room(t: TapeHeader, count):
    """Make room for ``count`` words; if half of the tape is dead, collect first; 0 with an exception."""
    if t.size + count > t.room and 2 * t.dead >= t.count and t.count > 0:
        call = t.notify
        if call != 0:
            Py_IncRef(call)
            result = PyObject_CallNoArgs(call)
            Py_DecRef(call)
            if result == 0:
                return 0
            Py_DecRef(result)
    if reserve(t, count) == 0:
        PyErr_NoMemory()
        return 0
    return 1


def record(self: Word, args: Word, count: Word) -> Word:
    """``record(result, code, operands, saved)``: append an instruction; the tensor gets its slot and its form."""
    t = TapeHeader(self + HEADER)
    registry = t.registry
    if count != 4 or PyType_IsSubtype(kind_of(word(args, 0)), registry.tensor_type) == 0:
        return wrong(registry)
    result, operands, saved = word(args, 0), word(args, 2), word(args, 3)
    code = integer_of(registry, word(args, 1))
    block = FormBlock(block_of(registry, code))
    if block == 0 or PyTuple_Size(operands) != block.inputs or PyTuple_Size(saved) != block.saved:
        return wrong(registry)
    if not saves(registry, block, saved):
        return wrong(registry)
    if make_room(t, block.entries) == 0 or write(t, block, code, operands, saved) == 0:
        return 0
    give_slot(registry, result, commit(t, block.entries), block.form)
    return none(registry)
