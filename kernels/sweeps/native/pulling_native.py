"""The pullbacks of one instruction, run on its cotangent."""

from __future__ import annotations

from kernels.instructions.reused_cotangents import LEAST
from kernels.native.memory import call_kernel, load_i8, store_i8, word
from kernels.native.pool.pool_calls import take
from kernels.native.tape.tape_native import point_at
from kernels.native.words import (
    ALIAS,
    ALWAYS,
    B_BUFFER,
    B_ENTRIES,
    B_FIRST,
    B_INPUTS,
    B_ITEM,
    B_KIND,
    B_READY,
    CLEARS,
    CONSTANT,
    CONSTANT_WANTED,
    H_BATCH,
    H_BUCKETS,
    H_MASK,
    H_NEAR,
    H_PTRS,
    H_RESTRICT,
    H_TAPE,
    H_TOP,
    I_BUFFER,
    I_CONSTANT,
    I_COVERS,
    I_ITEM,
    I_KERNEL,
    I_LAYOUT,
    I_ONE,
    I_RUN,
    I_SPREAD,
    I_WORDS,
    MEMORY,
    NEVER,
    OK,
    OWNED,
    PULLS,
    RELEVANT,
    T_WORDS,
    TOUCHED,
    UNWANTED,
    WANTED,
)
from kernels.sweeps.native.gradient_table_native import bucket_of, family, fill, gradient_buffer, write_out
from kernels.sweeps.native.reused_cotangents_native import is_fresh, reuse_cotangent, reusing_operand


def call(h, input_block, target, cotangent, source_bytes, result_bytes, accumulate):
    """Run one kernel for each of a batch of cotangents."""
    pointers = word(h, H_PTRS)
    for k in range(word(h, H_BATCH)):
        store_i8(pointers, target + k * source_bytes)
        store_i8(pointers + 8, cotangent + k * result_bytes)
        call_kernel(word(input_block, I_KERNEL), word(input_block, I_LAYOUT), pointers, accumulate)


def spreads(block, input_block):
    """Whether there is a kernel that reads a constant cotangent; if it is not compiled, ask for it."""
    if word(input_block, I_SPREAD) == UNWANTED:
        store_i8(input_block + 8 * I_SPREAD, WANTED)
        store_i8(block + 8 * B_READY, 0)
    return word(input_block, I_SPREAD) > WANTED


def add_plainly(input_block, target, cotangent, pointers):
    """Run a pullback into a whole gradient buffer, without offsets or constants; MEMORY or OK."""
    pointer, flags, accumulate = load_i8(target + 8), load_i8(target + 24), 1
    if pointer <= 0:
        size = word(input_block, I_BUFFER) * word(input_block, I_ITEM)
        if pointer < 0:
            pointer = load_i8(16 - pointer)  # an array that the caller owns: the address of its data
        elif size <= 8:
            pointer = target + 16
        else:
            pointer, flags = take(size), flags | OWNED
            if pointer == 0:
                return MEMORY
        store_i8(target + 8, pointer)
    if flags & TOUCHED == 0:
        store_i8(target + 24, flags | TOUCHED)
        if word(input_block, I_COVERS) != 0:
            accumulate = 0
        else:
            fill(pointer, 1, word(input_block, I_ITEM), -0.0)
    store_i8(pointers, pointer)
    store_i8(pointers + 8, cotangent)
    call_kernel(word(input_block, I_KERNEL), word(input_block, I_LAYOUT), pointers, accumulate)
    return OK


def is_plain(input_block, flags):
    """Whether :func:`add_plainly` can run a pullback into a target."""
    if flags & (ALIAS | CONSTANT | CONSTANT_WANTED) != 0 or word(input_block, I_CONSTANT) != NEVER:
        return False
    return flags & TOUCHED != 0 or word(input_block, I_COVERS) != 0 or word(input_block, I_BUFFER) == 1


def constant_result_of(input_block, target, bucket, constant_wanted):
    """Whether a pullback's result is constant: 2 yes; 1 it could be, had the kernels been compiled; 0 no."""
    constant_result = word(input_block, I_CONSTANT)
    if constant_result == NEVER or not (constant_result == ALWAYS or constant_wanted) or not is_fresh(target):
        return 0
    return 2 if constant_result == ALWAYS or load_i8(bucket + 24) & CONSTANT != 0 else 1


def store_constant(h, input_block, target, bucket):
    """Store a constant cotangent in a target's bucket."""
    pointers = word(h, H_PTRS)
    store_i8(target + 8, target + 16)
    store_i8(target + 24, load_i8(target + 24) | TOUCHED | CONSTANT)
    store_i8(pointers, target + 16)
    store_i8(pointers + 8, load_i8(bucket + 8))
    call_kernel(word(input_block, I_ONE), word(input_block, I_ONE + 1), pointers, 0)


def contribute(h, block, input_block, target, bucket, start, constant_wanted):
    """Run a pullback on the cotangent in ``bucket``, ``start`` bytes into its buffer, for a target; MEMORY or OK."""
    buckets, pointers, batch, offset = word(h, H_BUCKETS), word(h, H_PTRS), word(h, H_BATCH), 0
    constant = constant_result_of(input_block, target, bucket, constant_wanted) if batch == 1 else 0
    if constant == 2:
        store_constant(h, input_block, target, bucket)
        return OK
    flags = load_i8(target + 24)
    if flags & ALIAS:
        offset = load_i8(target + 16)
        target = family(target, buckets)
        flags = load_i8(target + 24)
    elements, item, covers = word(input_block, I_BUFFER), word(input_block, I_ITEM), word(input_block, I_COVERS)
    run = word(input_block, I_RUN) if batch == 1 and flags & TOUCHED == 0 else 0
    pointer = gradient_buffer(target, buckets, elements * batch, item, covers + run)
    if pointer == 0:
        return MEMORY
    if run != 0:
        fill(pointer, offset // item, item, -0.0)
        fill(pointer + offset + run * item, elements - run - offset // item, item, -0.0)
    store_i8(target + 24, (load_i8(target + 24) & ~CONSTANT_WANTED) | (CONSTANT_WANTED if constant != 0 else 0))
    accumulate = 0 if covers + run != 0 and flags & TOUCHED == 0 else 1
    cotangent = load_i8(bucket + 8) + start
    if batch == 1:
        store_i8(pointers, pointer + offset)
        store_i8(pointers + 8, cotangent)
        kernel = I_SPREAD if load_i8(bucket + 24) & CONSTANT else I_KERNEL
        call_kernel(word(input_block, kernel), word(input_block, kernel + 1), pointers, accumulate)
    else:
        result_bytes = word(block, B_BUFFER) * word(block, B_ITEM)
        call(h, input_block, pointer + offset, cotangent, elements * item, result_bytes, accumulate)
    return OK


def dense(block, bucket):
    """Write out a constant cotangent, element by element; False without memory."""
    constant = load_i8(bucket + 24) & CONSTANT != 0
    return not constant or write_out(bucket, word(block, B_BUFFER), word(block, B_ITEM)) != 0


def pull_single(h, items, last, block, bucket):
    """Run the pullbacks of an instruction all of whose gradient buffers have one element; MEMORY or OK."""
    buckets, mask, top, near = word(h, H_BUCKETS), word(h, H_MASK), word(h, H_TOP), word(h, H_NEAR)
    pointers, restrict, inputs, i = word(h, H_PTRS), word(h, H_RESTRICT), word(block, B_INPUTS), 0
    operands, input_block = items + 8 * (last + 2 - word(block, B_ENTRIES)), block + 8 * B_FIRST
    point_at(operands + 8 * inputs, block, pointers + 16)
    while i < inputs:
        key = word(operands, i)
        if key != 0:
            target = bucket_of(buckets, mask, top, near, key)
            flags = load_i8(target + 24)
            wanted = restrict == 0 or flags & RELEVANT != 0
            if wanted and flags & ALIAS == 0:
                add_plainly(input_block, target, load_i8(bucket + 8), pointers)
            elif wanted and contribute(h, block, input_block, target, bucket, 0, False) != OK:
                return MEMORY
        input_block += 8 * I_WORDS
        i += 1
    return OK


def pull(h, last, block, bucket):
    """Run the pullbacks of one instruction on the cotangent that ``bucket`` holds; MEMORY or OK."""
    buckets, mask, top, near = word(h, H_BUCKETS), word(h, H_MASK), word(h, H_TOP), word(h, H_NEAR)
    inputs, kind, batch, pointers = word(block, B_INPUTS), word(block, B_KIND), word(h, H_BATCH), word(h, H_PTRS)
    operands = word(word(h, H_TAPE), T_WORDS) + 8 * (last + 2 - word(block, B_ENTRIES))
    if kind != PULLS and not dense(block, bucket):
        return MEMORY
    constant_wanted, start = load_i8(bucket + 24) & (CONSTANT | CONSTANT_WANTED) != 0, 0
    point_at(operands + 8 * inputs, block, pointers + 16)
    if kind != PULLS:
        start = word(operands, inputs)
    small = batch == 1 and not constant_wanted
    reusing = (
        reusing_operand(h, operands, block, bucket)
        if small and kind == PULLS and word(block, B_BUFFER) >= LEAST
        else -1
    )
    for k in range(0 if kind == PULLS else 1, inputs + 1 if reusing >= 0 else inputs):
        i = reusing if k == inputs else k  # the one that reuses the cotangent's memory comes last
        key, input_block = word(operands, i), block + 8 * (B_FIRST + i * I_WORDS)
        if key == 0 or (i == reusing and k < inputs):
            continue
        target = bucket_of(buckets, mask, top, near, key)
        flags = load_i8(target + 24)
        if word(h, H_RESTRICT) != 0 and flags & RELEVANT == 0:
            continue
        if small and reusing < 0 and is_plain(input_block, flags):
            if add_plainly(input_block, target, load_i8(bucket + 8) + start, pointers) != OK:
                return MEMORY
            continue
        if constant_wanted and not spreads(block, input_block) and not dense(block, bucket):
            return MEMORY
        if k == inputs and is_fresh(target):
            reuse_cotangent(target, input_block, bucket, pointers)
        elif contribute(h, block, input_block, target, bucket, start, constant_wanted) != OK:
            return MEMORY
    if kind == CLEARS and word(operands, 0) != 0:
        whole, memory = word(block, B_BUFFER) * word(block, B_ITEM), load_i8(bucket + 8) + start
        call(h, block + 8 * B_FIRST, memory, memory, whole, whole, 0)
    return OK
