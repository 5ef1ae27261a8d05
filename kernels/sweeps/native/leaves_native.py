"""Finishes the gradients of leaves at the end of a sweep."""

from __future__ import annotations

import numpy as np

from kernels.native.memory import pointer_f4, pointer_f8, pointer_i4, pointer_i8
from kernels.native.structs import TOUCHED, VIEW, Bucket, FormBlock, FoundLeaf, InputBlock, SweepHeader
from kernels.native.tape_native import block_at

ZERO = np.float32(0.0)
LEAST_I8, LEAST_I4 = -(1 << 63), np.int32(-(1 << 31))
"""The bits of -0.0."""
BLOCK = 1024


def least(integers, count):
    """Return the least of some integers; the bits of -0.0 are the least there is."""
    smallest = integers[0]
    for e in range(count):
        smallest = min(smallest, integers[e])
    return smallest


def add_zero(pointer, count, item):
    """Turn elements that are -0.0 to 0.0. There are rarely any, and memory that is only read takes half the time."""
    if item == 8:
        wide = pointer_f8(pointer)
        if least(pointer_i8(pointer), count) == LEAST_I8:
            for e in range(count):
                wide[e] += 0.0
    else:
        single = pointer_f4(pointer)
        if least(pointer_i4(pointer), count) == LEAST_I4:
            for e in range(count):
                single[e] += ZERO


def settle(h: SweepHeader):
    """Add 0.0 to the gradients of leaves: elements without a contribution are -0.0. ``h.at`` counts others."""
    missing = 0
    t = h.tape
    buckets, leaves, batch = h.buckets, h.leaves, h.batch
    for k in range(h.leaf):
        leaf_row = FoundLeaf(leaves + 8 * FoundLeaf.SIZE * k)
        last = leaf_row.last
        block = block_at(t, last)
        i = leaf_row.place - (last - block.entries + 2)
        input_block = InputBlock(block + 8 * (FormBlock.SIZE + i * InputBlock.SIZE))
        if block.kind == VIEW:
            input_block = block + 8 * (FormBlock.buffer - InputBlock.buffer)
        bucket = Bucket(buckets + 8 * Bucket.SIZE * leaf_row.bucket)
        elements, item = input_block.buffer * batch, input_block.item
        if bucket.flags & TOUCHED == 0:
            missing += 1
            continue
        pointer, done = bucket.pointer, 0
        while done < elements:
            count = min(elements - done, BLOCK)
            add_zero(pointer + item * done, np.uint64(count), item)
            done += count
    h.at = missing
