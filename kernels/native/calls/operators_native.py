"""The slots of the type of tensors for operators."""

from __future__ import annotations

from kernels.compiler.jit import cfunc, load_module
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

operate = load_module("native.calls.call_table_native").operate


@cfunc("int64(int64, int64)", cache=True)
def nb_add(a, b):
    return operate(OP_ADD, a, b)


@cfunc("int64(int64, int64)", cache=True)
def nb_subtract(a, b):
    return operate(OP_SUBTRACT, a, b)


@cfunc("int64(int64, int64)", cache=True)
def nb_multiply(a, b):
    return operate(OP_MULTIPLY, a, b)


@cfunc("int64(int64, int64)", cache=True)
def nb_true_divide(a, b):
    return operate(OP_DIVIDE, a, b)


@cfunc("int64(int64, int64, int64)", cache=True)
def nb_power(a, b, modulus):
    registry = tape_registry()
    if modulus != word(registry, G_NONE):
        result = word(registry, G_NOTIMPLEMENTED)
        Py_IncRef(result)
        return result
    return operate(OP_POWER | NUMBERED, a, b)


@cfunc("int64(int64)", cache=True)
def nb_negative(a):
    return operate(OP_NEGATIVE, a, 0)


@cfunc("int64(int64, int64)", cache=True)
def nb_matrix_multiply(a, b):
    return operate(OP_MATMUL, a, b)
