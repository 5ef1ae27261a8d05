"""Finishes the gradients of leaves at the end of a sweep."""

from __future__ import annotations

import numpy as np

from kernels.native.memory import load_i8, pointer_f4, pointer_f8, pointer_i4, pointer_i8, store_i8, word
from kernels.native.tape.tape_native import block_at
from kernels.native.words import (
    B_BUFFER,
    B_ENTRIES,
    B_FIRST,
    B_KIND,
    BUCKET,
    H_AT,
    H_BATCH,
    H_BUCKETS,
    H_LEAF,
    H_LEAVES,
    H_TAPE,
    I_BUFFER,
    I_ITEM,
    I_WORDS,
    LEAF_WORDS,
    TOUCHED,
    VIEW,
)

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


def settle(h):
    """Add 0.0 to the gradients of leaves: elements without a contribution are -0.0. H_AT counts those without any."""
    missing = 0
    t = word(h, H_TAPE)
    buckets, leaves, batch = word(h, H_BUCKETS), word(h, H_LEAVES), word(h, H_BATCH)
    for k in range(word(h, H_LEAF)):
        leaf_row = leaves + 8 * LEAF_WORDS * k
        last = load_i8(leaf_row + 8)
        block = block_at(t, last)
        i = load_i8(leaf_row) - (last - word(block, B_ENTRIES) + 2)
        input_block = block + 8 * (B_FIRST + i * I_WORDS)
        if word(block, B_KIND) == VIEW:
            input_block = block + 8 * (B_BUFFER - I_BUFFER)
        bucket = buckets + 8 * BUCKET * load_i8(leaf_row + 16)
        elements, item = word(input_block, I_BUFFER) * batch, word(input_block, I_ITEM)
        if load_i8(bucket + 24) & TOUCHED == 0:
            missing += 1
            continue
        pointer, done = load_i8(bucket + 8), 0
        while done < elements:
            count = min(elements - done, BLOCK)
            add_zero(pointer + item * done, np.uint64(count), item)
            done += count
    store_i8(h + 8 * H_AT, missing)
