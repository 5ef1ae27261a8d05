"""The forward sweep: run the pushforwards of the marked instructions, first first, on tangents.

Works on what the pre-pass of a reverse sweep leaves: buckets, aliases, and the order of instructions, last first. The
tangent of a view stands in that of its base, and a write changes the tangent of the version before, as with gradient
buffers.
"""

from __future__ import annotations

from kernels.native.memory import give, load_f4, load_i8, store_f4
from kernels.native.structs import (
    ALIAS,
    CLEARS,
    KEPT,
    MEMORY,
    MISSING,
    OK,
    OWNED,
    PARENT,
    PAUSE,
    PULLS,
    PYTHON,
    TOUCHED,
    VIEW,
    Bucket,
    FormBlock,
    InputBlock,
    SweepHeader,
)
from kernels.native.tape_native import block_at, point_at
from kernels.programs.replay_back_native import family, find, gradient_buffer
from kernels.sweeps.reverse_native import call


def pushes(table, mask, block):
    """The block of pushforwards of a form; 0 if there is none yet."""
    at = (block >> 4) & mask
    while True:
        held = load_i8(table + 16 * at)
        if held == block or held == 0:
            return load_i8(table + 16 * at + 8)
        at = (at + 1) & mask


def prepare(h: SweepHeader, table: int, mask: int) -> int:
    """Count, in each family's bucket, the operands that read its tangent; MISSING if pushforwards are not compiled."""
    items, buckets = h.tape.words, h.buckets
    order = h.order
    for k in range(h.count):
        last = order[k]
        block = block_at(h.tape, last)
        kind = block.kind
        if kind != VIEW and kind != PYTHON and pushes(table, mask, block) == 0:
            h.at = last
            return MISSING
    for k in range(h.count):
        last = order[k]
        block = block_at(h.tape, last)
        start = last - block.entries + 1
        for i in range(block.inputs):
            key = items[start + 1 + i]
            if key != 0:
                home = family(find(h, key), buckets)
                flags = home.flags
                if flags & ALIAS == 0:  # an alias keeps its parent where others have the count
                    home.flags = flags + (1 << PARENT)
    return OK


def tangent(h: SweepHeader, key: int) -> int:
    """The address of an operand's tangent; 0 where that is zero."""
    buckets = h.buckets
    bucket = Bucket(find(h, key))
    offset = bucket.value if bucket.flags & ALIAS else 0
    home = family(bucket, buckets)
    return home.pointer + offset if home.flags & TOUCHED else 0


def copied(h: SweepHeader, bucket: Bucket, block: FormBlock):
    """Give a bucket a copy of the tangent that the family above it has; 0 without memory."""
    buckets = h.buckets
    above = family(buckets + 8 * Bucket.SIZE * (bucket.flags >> PARENT), buckets)
    if above.flags & TOUCHED == 0:
        return 1
    elements, item = block.buffer * h.batch, block.item
    target = gradient_buffer(bucket, buckets, elements, item, 1)
    if target != 0:
        source = above.pointer
        for p in range(elements * item // 4):
            store_f4(target + 4 * p, load_f4(source + 4 * p))
    return target


def write(h: SweepHeader, last, block: FormBlock, bucket: Bucket, pushforwards):
    """For a write: clear the tangents that it overwrites, then add those of the value; MEMORY or OK."""
    items, buckets = h.tape.words, h.buckets
    start = last - block.entries + 1
    before, source = items[start + 1], items[start + 2]
    flags = bucket.flags
    home = bucket
    if flags & ALIAS and flags & KEPT:
        if copied(h, bucket, block) == 0:
            return MEMORY
    else:
        home = family(bucket, buckets)
    region = items[start + 1 + block.inputs]
    whole = block.buffer * block.item
    if block.kind == CLEARS and before != 0 and home.flags & TOUCHED:
        memory = home.pointer + region
        call(h, block + 8 * FormBlock.SIZE, memory, memory, whole, whole, 0)
    source_tangent = tangent(h, source) if source != 0 else 0
    if source_tangent != 0:
        memory = gradient_buffer(home, buckets, block.buffer * h.batch, block.item, 0)
        if memory == 0:
            return MEMORY
        of = InputBlock(block + 8 * (FormBlock.SIZE + InputBlock.SIZE))
        push = pushforwards + 8 * InputBlock.SIZE
        call(h, push, memory + region, source_tangent, whole, of.buffer * of.item, 1)
    return OK


def add(h: SweepHeader, last, block: FormBlock, bucket: Bucket, pushforwards):
    """Add the pushforwards of one instruction to the tangent of its result; MEMORY or OK."""
    items, buckets = h.tape.words, h.buckets
    start, elements = last - block.entries + 1, block.buffer
    for i in range(block.inputs):
        key = items[start + 1 + i]
        operand_tangent = tangent(h, key) if key != 0 else 0
        if operand_tangent == 0:
            continue
        push = InputBlock(pushforwards + 8 * InputBlock.SIZE * i)
        of = InputBlock(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * i))
        covers, touched = push.covers, bucket.flags & TOUCHED
        memory = gradient_buffer(bucket, buckets, elements * h.batch, block.item, covers)
        if memory == 0:
            return MEMORY
        accumulate = 0 if covers != 0 and touched == 0 else 1
        call(h, push, memory, operand_tangent, elements * block.item, of.buffer * of.item, accumulate)
    return OK


def let_go(h: SweepHeader, last, block: FormBlock):
    """Free the tangents that nothing reads after this instruction."""
    items, buckets = h.tape.words, h.buckets
    start = last - block.entries + 1
    for i in range(block.inputs):
        key = items[start + 1 + i]
        if key == 0:
            continue
        home = family(find(h, key), buckets)
        flags = home.flags
        if flags & ALIAS:
            continue
        flags -= 1 << PARENT
        if flags >> PARENT == 0 and flags & (OWNED | KEPT) == OWNED:
            give(home.pointer)
            home.pointer = 0
            flags &= ~OWNED
        home.flags = flags


def push(h: SweepHeader, table: int, mask: int) -> int:
    """Run the pushforwards in the order of the tape; PAUSE, at ``h.position``, for one that only Python runs."""
    items, order = h.tape.words, h.order
    for k in range(h.position, -1, -1):
        last = order[k]
        block = block_at(h.tape, last)
        start = last - block.entries + 1
        kind = block.kind
        bucket = Bucket(find(h, items[start]))
        flags = bucket.flags
        if flags & (KEPT | TOUCHED) == KEPT | TOUCHED:
            pass  # a tangent that was given, or that Python has computed
        elif kind == PYTHON:
            h.position = k
            return PAUSE
        elif kind == VIEW:
            if flags & KEPT and copied(h, bucket, block) == 0:
                return MEMORY
        else:
            pushforwards = pushes(table, mask, block)
            point_at(items + 8 * (last - block.saved), block, h.pointers + 16)
            if kind == PULLS:
                status = add(h, last, block, bucket, pushforwards)
            else:
                status = write(h, last, block, bucket, pushforwards)
            if status != OK:
                return status
        let_go(h, last, block)
    return OK


def place(h: SweepHeader, key: int, elements: int, item: int) -> int:
    """The address of the tangent of a slot that Python writes, filled with -0.0 at first; 0 without memory."""
    return gradient_buffer(find(h, key), h.buckets, elements, item, 0)


def passed(h: SweepHeader, k: int) -> None:
    """Continue behind an instruction that Python has run."""
    last = h.order[k]
    let_go(h, last, block_at(h.tape, last))
    h.position = k - 1
