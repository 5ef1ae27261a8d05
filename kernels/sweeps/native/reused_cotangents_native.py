"""Reuse of a cotangent's memory in a sweep; kernels/instructions/reused_cotangents.py says by which pullbacks."""

from __future__ import annotations

from kernels.native.memory import call_kernel, store_i8, word
from kernels.native.tape_structs import (
    ALIAS,
    ALWAYS,
    CONSTANT,
    CONSTANT_WANTED,
    ITSELF,
    KEPT,
    NO_KERNEL,
    OWNED,
    TOUCHED,
    WANTED,
    Bucket,
    FormBlock,
    InputBlock,
)
from kernels.sweeps.native.gradient_table_native import find


def is_fresh(target: Bucket):
    """Whether nobody but the sweep sees a gradient buffer, and nothing has been contributed to it."""
    return target.pointer == 0 and target.flags & (ALIAS | KEPT | TOUCHED) == 0


def reusing_operand(h, operands, block: FormBlock, bucket: Bucket):
    """The operand whose pullback may leave its result in the memory of the cotangent, once it is run last; else -1."""
    if bucket.flags & (OWNED | KEPT | ALIAS | CONSTANT | CONSTANT_WANTED) != OWNED:
        return -1
    for k in range(block.inputs):
        i = block.inputs - 1 - k
        key, input_block = word(operands, i), InputBlock(block + 8 * (FormBlock.SIZE + i * InputBlock.SIZE))
        kernel = input_block.reused
        if key == 0 or kernel == NO_KERNEL or input_block.constant == ALWAYS:
            continue
        if not is_fresh(find(h, key)):
            continue
        if kernel > WANTED:
            return i
        input_block.reused = WANTED
        block.ready = 0
    return -1


def reuse_cotangent(target: Bucket, input_block: InputBlock, bucket: Bucket, pointers):
    """Run a pullback in the cotangent's memory, and let the target own that."""
    pointer = bucket.pointer
    if input_block.reused != ITSELF:
        store_i8(pointers + 8, pointer)
        call_kernel(input_block.reused, word(input_block, InputBlock.reused + 1), pointers, 0)
    target.pointer = pointer
    target.flags |= OWNED | TOUCHED
    bucket.pointer = 0
    bucket.flags &= ~OWNED
