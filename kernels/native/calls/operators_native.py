"""The slots of the type of tensors for operators."""

from __future__ import annotations

from kernels.compiler.native_types import Word
from kernels.native.call_structs import (
    NUMBERED,
    OP_ADD,
    OP_DIVIDE,
    OP_MATMUL,
    OP_MULTIPLY,
    OP_NEGATIVE,
    OP_POWER,
    OP_SUBTRACT,
)
from kernels.native.calls.call_table_native import operate
from kernels.native.python_api import Py_IncRef, tape_registry

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
    if modulus != registry.none:
        result = registry.not_implemented
        Py_IncRef(result)
        return result
    return operate(OP_POWER | NUMBERED, a, b)


def nb_negative(a: Word) -> Word:
    return operate(OP_NEGATIVE, a, 0)


def nb_matrix_multiply(a: Word, b: Word) -> Word:
    return operate(OP_MATMUL, a, b)
