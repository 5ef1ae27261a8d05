"""The slots of the type of tensors for operators."""

from __future__ import annotations

from kernels.compiler.signatures import Word
from kernels.native.calls.call_table_native import operate
from kernels.native.memory import word
from kernels.native.python_api import Py_IncRef, tape_registry
from kernels.native.words import (
    G_NONE,
    G_NOTIMPLEMENTED,
    NUMBERED,
    OP_ADD,
    OP_DIVIDE,
    OP_MATMUL,
    OP_MULTIPLY,
    OP_NEGATIVE,
    OP_POWER,
    OP_SUBTRACT,
)

CONTROL = True


def nb_add(a: Word, b: Word) -> Word:
    return operate(OP_ADD, a, b)


def nb_subtract(a: Word, b: Word) -> Word:
    return operate(OP_SUBTRACT, a, b)


def nb_multiply(a: Word, b: Word) -> Word:
    return operate(OP_MULTIPLY, a, b)


def nb_true_divide(a: Word, b: Word) -> Word:
    return operate(OP_DIVIDE, a, b)


def nb_power(a: Word, b: Word, modulus: Word) -> Word:
    registry = tape_registry()
    if modulus != word(registry, G_NONE):
        result = word(registry, G_NOTIMPLEMENTED)
        Py_IncRef(result)
        return result
    return operate(OP_POWER | NUMBERED, a, b)


def nb_negative(a: Word) -> Word:
    return operate(OP_NEGATIVE, a, 0)


def nb_matrix_multiply(a: Word, b: Word) -> Word:
    return operate(OP_MATMUL, a, b)
