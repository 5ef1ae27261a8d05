"""The operands of a call as native code reads them: tensors and Python numbers; types are checked before."""

from __future__ import annotations

from kernels.native.call_structs import MOST_OPERANDS, NUMBER_FORM, CallEntry, CallOperand
from kernels.native.memory import HEADER, load_f8, store_f4, store_f8, word
from kernels.native.object_structs import UNHELD, ArrayObject, TensorObject
from kernels.native.objects_native import kind_of
from kernels.native.python_api import PyErr_Clear, PyErr_Occurred, PyFloat_AsDouble
from kernels.native.tape_structs import RegistryTable

LARGEST_INT = 9007199254740992.0
LARGEST_SINGLE = 3.4028235677973366e38
"""Doubles from here on overflow float32: half a step beyond its largest number."""
INFINITY = float("inf")


def read_number(x, is_int, out: CallOperand):
    """Read a Python number; 0 for other objects, and for an int beyond the range of doubles."""
    number = PyFloat_AsDouble(x)
    if number == -1.0 and PyErr_Occurred() != 0:
        PyErr_Clear()  # an int beyond all doubles
        return 0
    if is_int and not abs(number) <= LARGEST_INT:
        return 0
    out.form = NUMBER_FORM
    out.slot = 0
    out.place = out + CallOperand.double
    out.object = 0
    store_f8(out + CallOperand.double, number)
    out.single = is_int
    return 1


def read(registry: RegistryTable, x: TensorObject, out: CallOperand):
    """Read an operand: form, slot, the address of its value, and its object; 0 for anything else."""
    kind = kind_of(x)
    if kind == registry.float_type or kind == registry.int_type:
        return read_number(x, 1 if kind == registry.int_type else 0, out)
    value = ArrayObject(x.value if kind == registry.tensor_type else 0)
    if value == 0:
        return 0
    slot, place = x.slot, value + HEADER
    if kind_of(value) != registry.float_type:
        if kind_of(value) != registry.array_type:
            return 0
        place = value.data
    out.form = x.form
    out.slot = slot & ~UNHELD if slot > 0 else slot
    out.place = place
    out.object = value
    return 1


def read_all(registry, args, count, operands):
    """Read ``count`` operands; 0 where Python has to do it."""
    for i in range(MOST_OPERANDS):
        out = CallOperand(operands + CallOperand.SIZE * i)
        if i < count:
            if read(registry, word(args, i), out) == 0:
                return 0
        else:
            out.form = 0
            out.slot = 0
            out.place = 0
            out.object = 1
    return 1


def wanted(operands: CallOperand):
    """Which of the operands have slots, as bits."""
    bits = 1 if operands.slot != 0 else 0
    bits += 2 if CallOperand(operands + CallOperand.SIZE).slot != 0 else 0
    return bits + (4 if CallOperand(operands + 2 * CallOperand.SIZE).slot != 0 else 0)


def narrow(operands):
    """Write numbers among the operands as float32 too; 0 if one overflows."""
    for i in range(MOST_OPERANDS):
        at = CallOperand(operands + CallOperand.SIZE * i)
        if at.object == 0:
            number = load_f8(at + CallOperand.double)
            if abs(number) >= LARGEST_SINGLE and abs(number) != INFINITY:
                return 0
            store_f4(at + CallOperand.single, number)
            at.place = at + CallOperand.single
    return 1


def whole(entry: CallEntry, operands):
    """Write ints among the operands as integers too; 0 for a float, and for an int out of the dtype's range."""
    for i in range(MOST_OPERANDS):
        at = CallOperand(operands + CallOperand.SIZE * i)
        if at.object == 0:
            number = int(load_f8(at + CallOperand.double))
            if at.single != 1 or number < entry.initial or number > entry.scale:
                return 0
            at.single = number
            at.place = at + CallOperand.single
    return 1
