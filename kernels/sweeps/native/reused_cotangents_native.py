"""Reuse of a cotangent's memory in a sweep; kernels/instructions/reused_cotangents.py says by which pullbacks."""

from __future__ import annotations

from kernels.native.memory import call_kernel, load_i8, store_i8, word
from kernels.native.words import (
    ALIAS,
    ALWAYS,
    B_FIRST,
    B_INPUTS,
    B_READY,
    CONSTANT,
    CONSTANT_WANTED,
    I_CONSTANT,
    I_REUSED,
    I_WORDS,
    ITSELF,
    KEPT,
    NO_KERNEL,
    OWNED,
    TOUCHED,
    WANTED,
)
from kernels.sweeps.native.gradient_table_native import find


def is_fresh(target):
    """Whether nobody but the sweep sees a gradient buffer, and nothing has been contributed to it."""
    return load_i8(target + 8) == 0 and load_i8(target + 24) & (ALIAS | KEPT | TOUCHED) == 0


def reusing_operand(h, operands, block, bucket):
    """The operand whose pullback may leave its result in the memory of the cotangent, once it is run last; else -1."""
    if load_i8(bucket + 24) & (OWNED | KEPT | ALIAS | CONSTANT | CONSTANT_WANTED) != OWNED:
        return -1
    for k in range(word(block, B_INPUTS)):
        i = word(block, B_INPUTS) - 1 - k
        key, input_block = word(operands, i), block + 8 * (B_FIRST + i * I_WORDS)
        kernel = word(input_block, I_REUSED)
        if key == 0 or kernel == NO_KERNEL or word(input_block, I_CONSTANT) == ALWAYS:
            continue
        if not is_fresh(find(h, key)):
            continue
        if kernel > WANTED:
            return i
        store_i8(input_block + 8 * I_REUSED, WANTED)
        store_i8(block + 8 * B_READY, 0)
    return -1


def reuse_cotangent(target, input_block, bucket, pointers):
    """Run a pullback in the cotangent's memory, and let the target own that."""
    pointer = load_i8(bucket + 8)
    if word(input_block, I_REUSED) != ITSELF:
        store_i8(pointers + 8, pointer)
        call_kernel(word(input_block, I_REUSED), word(input_block, I_REUSED + 1), pointers, 0)
    store_i8(target + 8, pointer)
    store_i8(target + 24, load_i8(target + 24) | OWNED | TOUCHED)
    store_i8(bucket + 8, 0)
    store_i8(bucket + 24, load_i8(bucket + 24) & ~OWNED)
