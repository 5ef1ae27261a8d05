"""The forward sweep: run the pushforwards of the marked instructions, first first, on tangents.

Works on what the pre-pass of a reverse sweep leaves: buckets, aliases, and the order of instructions, last first. The
tangent of a view stands in that of its base, and a write changes the tangent of the version before, as with gradient
buffers.
"""

from __future__ import annotations

from kernels.native.memory import call_kernel, load_f4, load_i8, store_f4, store_i8, word
from kernels.native.pool.pool_calls import give
from kernels.native.tape.tape_native import block_at, point_at
from kernels.native.words import (
    ALIAS,
    B_BUFFER,
    B_ENTRIES,
    B_FIRST,
    B_INPUTS,
    B_ITEM,
    B_KIND,
    B_SAVED,
    BUCKET,
    CLEARS,
    H_AT,
    H_BATCH,
    H_BUCKETS,
    H_COUNT,
    H_FROM,
    H_ORDER,
    H_PTRS,
    H_TAPE,
    I_BUFFER,
    I_COVERS,
    I_ITEM,
    I_KERNEL,
    I_LAYOUT,
    I_WORDS,
    KEPT,
    MEMORY,
    MISSING,
    OK,
    OWNED,
    PARENT,
    PAUSE,
    PULLS,
    PYTHON,
    T_WORDS,
    TOUCHED,
    VIEW,
)
from kernels.sweeps.native.gradient_table_native import family, find, gradient_buffer


def pushes(table, mask, block):
    """The block of pushforwards of a form; 0 if there is none yet."""
    at = (block >> 4) & mask
    while True:
        held = load_i8(table + 16 * at)
        if held == block or held == 0:
            return load_i8(table + 16 * at + 8)
        at = (at + 1) & mask


def operand_bucket(h, key):
    """The bucket of an operand."""
    return find(h, key)


def prepare(h: int, table: int, mask: int) -> int:
    """Count, in each family's bucket, the operands that read its tangent; MISSING if pushforwards are not compiled."""
    items, buckets = word(word(h, H_TAPE), T_WORDS), word(h, H_BUCKETS)
    order = word(h, H_ORDER)
    for k in range(word(h, H_COUNT)):
        last = word(order, k)
        block = block_at(word(h, H_TAPE), last)
        kind = word(block, B_KIND)
        if kind != VIEW and kind != PYTHON and pushes(table, mask, block) == 0:
            store_i8(h + 8 * H_AT, last)
            return MISSING
    for k in range(word(h, H_COUNT)):
        last = word(order, k)
        block = block_at(word(h, H_TAPE), last)
        start = last - word(block, B_ENTRIES) + 1
        for i in range(word(block, B_INPUTS)):
            key = word(items, start + 1 + i)
            if key != 0:
                home = family(operand_bucket(h, key), buckets)
                flags = load_i8(home + 24)
                if flags & ALIAS == 0:  # an alias keeps its parent where others have the count
                    store_i8(home + 24, flags + (1 << PARENT))
    return OK


def tangent(h: int, key: int) -> int:
    """The address of an operand's tangent; 0 where that is zero."""
    buckets = word(h, H_BUCKETS)
    bucket = operand_bucket(h, key)
    offset = load_i8(bucket + 16) if load_i8(bucket + 24) & ALIAS else 0
    home = family(bucket, buckets)
    return load_i8(home + 8) + offset if load_i8(home + 24) & TOUCHED else 0


def call(h, pushforward, target, tangent, target_bytes, tangent_bytes, accumulate):
    """Run one kernel for each of a batch of tangents."""
    pointers = word(h, H_PTRS)
    for k in range(word(h, H_BATCH)):
        store_i8(pointers, target + k * target_bytes)
        store_i8(pointers + 8, tangent + k * tangent_bytes)
        call_kernel(word(pushforward, I_KERNEL), word(pushforward, I_LAYOUT), pointers, accumulate)


def copied(h, bucket, block):
    """Give a bucket a copy of the tangent that the family above it has; 0 without memory."""
    buckets = word(h, H_BUCKETS)
    above = family(buckets + 8 * BUCKET * (load_i8(bucket + 24) >> PARENT), buckets)
    if load_i8(above + 24) & TOUCHED == 0:
        return 1
    elements, item = word(block, B_BUFFER) * word(h, H_BATCH), word(block, B_ITEM)
    target = gradient_buffer(bucket, buckets, elements, item, 1)
    if target != 0:
        source = load_i8(above + 8)
        for p in range(elements * item // 4):
            store_f4(target + 4 * p, load_f4(source + 4 * p))
    return target


def write(h, last, block, bucket, pushforwards):
    """For a write: clear the tangents that it overwrites, then add those of the value; MEMORY or OK."""
    items, buckets = word(word(h, H_TAPE), T_WORDS), word(h, H_BUCKETS)
    start = last - word(block, B_ENTRIES) + 1
    before, source = word(items, start + 1), word(items, start + 2)
    flags = load_i8(bucket + 24)
    home = bucket
    if flags & ALIAS and flags & KEPT:
        if copied(h, bucket, block) == 0:
            return MEMORY
    else:
        home = family(bucket, buckets)
    region = word(items, start + 1 + word(block, B_INPUTS))
    whole = word(block, B_BUFFER) * word(block, B_ITEM)
    if word(block, B_KIND) == CLEARS and before != 0 and load_i8(home + 24) & TOUCHED:
        memory = load_i8(home + 8) + region
        call(h, block + 8 * B_FIRST, memory, memory, whole, whole, 0)
    source_tangent = tangent(h, source) if source != 0 else 0
    if source_tangent != 0:
        memory = gradient_buffer(home, buckets, word(block, B_BUFFER) * word(h, H_BATCH), word(block, B_ITEM), 0)
        if memory == 0:
            return MEMORY
        of = block + 8 * (B_FIRST + I_WORDS)
        call(
            h,
            pushforwards + 8 * I_WORDS,
            memory + region,
            source_tangent,
            whole,
            word(of, I_BUFFER) * word(of, I_ITEM),
            1,
        )
    return OK


def add(h, last, block, bucket, pushforwards):
    """Add the pushforwards of one instruction to the tangent of its result; MEMORY or OK."""
    items, buckets = word(word(h, H_TAPE), T_WORDS), word(h, H_BUCKETS)
    start, elements = last - word(block, B_ENTRIES) + 1, word(block, B_BUFFER)
    for i in range(word(block, B_INPUTS)):
        key = word(items, start + 1 + i)
        operand_tangent = tangent(h, key) if key != 0 else 0
        if operand_tangent == 0:
            continue
        push, of = pushforwards + 8 * I_WORDS * i, block + 8 * (B_FIRST + I_WORDS * i)
        covers, touched = word(push, I_COVERS), load_i8(bucket + 24) & TOUCHED
        memory = gradient_buffer(bucket, buckets, elements * word(h, H_BATCH), word(block, B_ITEM), covers)
        if memory == 0:
            return MEMORY
        accumulate = 0 if covers != 0 and touched == 0 else 1
        sizes = elements * word(block, B_ITEM), word(of, I_BUFFER) * word(of, I_ITEM)
        call(h, push, memory, operand_tangent, sizes[0], sizes[1], accumulate)
    return OK


def let_go(h, last, block):
    """Free the tangents that nothing reads after this instruction."""
    items, buckets = word(word(h, H_TAPE), T_WORDS), word(h, H_BUCKETS)
    start = last - word(block, B_ENTRIES) + 1
    for i in range(word(block, B_INPUTS)):
        key = word(items, start + 1 + i)
        if key == 0:
            continue
        home = family(operand_bucket(h, key), buckets)
        flags = load_i8(home + 24)
        if flags & ALIAS:
            continue
        flags -= 1 << PARENT
        if flags >> PARENT == 0 and flags & (OWNED | KEPT) == OWNED:
            give(load_i8(home + 8))
            store_i8(home + 8, 0)
            flags &= ~OWNED
        store_i8(home + 24, flags)


def push(h: int, table: int, mask: int) -> int:
    """Run the pushforwards in the order of the tape; PAUSE, at H_FROM, for an instruction that only Python runs."""
    items, order = word(word(h, H_TAPE), T_WORDS), word(h, H_ORDER)
    for k in range(word(h, H_FROM), -1, -1):
        last = word(order, k)
        block = block_at(word(h, H_TAPE), last)
        start = last - word(block, B_ENTRIES) + 1
        kind = word(block, B_KIND)
        bucket = find(h, word(items, start))
        flags = load_i8(bucket + 24)
        if flags & (KEPT | TOUCHED) == KEPT | TOUCHED:
            pass  # a tangent that was given, or that Python has computed
        elif kind == PYTHON:
            store_i8(h + 8 * H_FROM, k)
            return PAUSE
        elif kind == VIEW:
            if flags & KEPT and copied(h, bucket, block) == 0:
                return MEMORY
        else:
            pushforwards = pushes(table, mask, block)
            point_at(items + 8 * (last - word(block, B_SAVED)), block, word(h, H_PTRS) + 16)
            step = (
                add(h, last, block, bucket, pushforwards)
                if kind == PULLS
                else write(h, last, block, bucket, pushforwards)
            )
            if step != OK:
                return step
        let_go(h, last, block)
    return OK


def place(h: int, key: int, elements: int, item: int) -> int:
    """The address of the tangent of a slot that Python writes, filled with -0.0 at first; 0 without memory."""
    bucket = find(h, key)
    return gradient_buffer(bucket, word(h, H_BUCKETS), elements, item, 0)


def passed(h: int, k: int) -> None:
    """Continue behind an instruction that Python has run."""
    last = word(word(h, H_ORDER), k)
    let_go(h, last, block_at(word(h, H_TAPE), last))
    store_i8(h + 8 * H_FROM, k - 1)
