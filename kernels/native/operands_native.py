"""The operands of a call as native code reads them: tensors and Python numbers; types are checked before."""

from __future__ import annotations

from kernels.native.memory import HEADER, load_f8, load_i8, store_f4, store_f8, store_i8, word
from kernels.native.objects_native import kind_of
from kernels.native.python_api import PyErr_Clear, PyErr_Occurred, PyFloat_AsDouble
from kernels.native.words import (
    A_DATA,
    E_LEAST,
    E_MOST,
    G_ARRAY,
    G_FLOAT,
    G_INT,
    G_TENSOR,
    MOST_OPERANDS,
    NUMBER_FORM,
    O_FORM,
    O_SLOT,
    O_VALUE,
    OPERAND,
    UNHELD,
    V_DOUBLE,
    V_FORM,
    V_OBJECT,
    V_PLACE,
    V_SINGLE,
    V_SLOT,
)

LARGEST_INT = 9007199254740992.0
LARGEST_SINGLE = 3.4028235677973366e38
"""Doubles from here on overflow float32: half a step beyond its largest number."""
INFINITY = float("inf")


def read_number(x, is_int, out):
    """Read a Python number; 0 for other objects, and for an int beyond the range of doubles."""
    number = PyFloat_AsDouble(x)
    if number == -1.0 and PyErr_Occurred() != 0:
        PyErr_Clear()  # an int beyond all doubles
        return 0
    if is_int and not abs(number) <= LARGEST_INT:
        return 0
    store_i8(out + V_FORM, NUMBER_FORM)
    store_i8(out + V_SLOT, 0)
    store_i8(out + V_PLACE, out + V_DOUBLE)
    store_i8(out + V_OBJECT, 0)
    store_f8(out + V_DOUBLE, number)
    store_i8(out + V_SINGLE, is_int)
    return 1


def read(registry, x, out):
    """Read an operand: form, slot, the address of its value, and its object; 0 for anything else."""
    kind = kind_of(x)
    if kind == word(registry, G_FLOAT) or kind == word(registry, G_INT):
        return read_number(x, 1 if kind == word(registry, G_INT) else 0, out)
    value = load_i8(x + O_VALUE) if kind == word(registry, G_TENSOR) else 0
    if value == 0:
        return 0
    slot, place = load_i8(x + O_SLOT), value + HEADER
    if kind_of(value) != word(registry, G_FLOAT):
        if kind_of(value) != word(registry, G_ARRAY):
            return 0
        place = load_i8(value + A_DATA)
    store_i8(out + V_FORM, load_i8(x + O_FORM))
    store_i8(out + V_SLOT, slot & ~UNHELD if slot > 0 else slot)
    store_i8(out + V_PLACE, place)
    store_i8(out + V_OBJECT, value)
    return 1


def read_all(registry, args, count, operands):
    """Read ``count`` operands; 0 where Python has to do it."""
    for i in range(MOST_OPERANDS):
        out = operands + OPERAND * i
        if i < count:
            if read(registry, word(args, i), out) == 0:
                return 0
        else:
            store_i8(out + V_FORM, 0)
            store_i8(out + V_SLOT, 0)
            store_i8(out + V_PLACE, 0)
            store_i8(out + V_OBJECT, 1)
    return 1


def wanted(operands):
    """Which of the operands have slots, as bits."""
    bits = 1 if load_i8(operands + V_SLOT) != 0 else 0
    bits += 2 if load_i8(operands + OPERAND + V_SLOT) != 0 else 0
    return bits + (4 if load_i8(operands + 2 * OPERAND + V_SLOT) != 0 else 0)


def narrow(operands):
    """Write numbers among the operands as float32 too; 0 if one overflows."""
    for i in range(MOST_OPERANDS):
        at = operands + OPERAND * i
        if load_i8(at + V_OBJECT) == 0:
            number = load_f8(at + V_DOUBLE)
            if abs(number) >= LARGEST_SINGLE and abs(number) != INFINITY:
                return 0
            store_f4(at + V_SINGLE, number)
            store_i8(at + V_PLACE, at + V_SINGLE)
    return 1


def whole(entry, operands):
    """Write ints among the operands as integers too; 0 for a float, and for an int out of the dtype's range."""
    for i in range(MOST_OPERANDS):
        at = operands + OPERAND * i
        if load_i8(at + V_OBJECT) == 0:
            number = int(load_f8(at + V_DOUBLE))
            if load_i8(at + V_SINGLE) != 1 or number < word(entry, E_LEAST) or number > word(entry, E_MOST):
                return 0
            store_i8(at + V_SINGLE, number)
            store_i8(at + V_PLACE, at + V_SINGLE)
    return 1
