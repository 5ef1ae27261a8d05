"""The gradient table in native code: buckets found by key, gradient buffers made at the first contribution.

Loaded through ``jit.load_module``, like every ``_native`` file; kernels/native/words.py names the words.
"""

from __future__ import annotations

from kernels.native.memory import (
    load_f4,
    load_f8,
    load_i8,
    store_f4,
    store_f8,
    store_i8,
    word,
)
from kernels.native.pool.pool_calls import copy_bytes, give, take
from kernels.native.words import (
    ALIAS,
    B_BUFFER,
    B_ITEM,
    BUCKET,
    CONSTANT,
    H_BATCH,
    H_BUCKETS,
    H_KEYS,
    H_MASK,
    H_NEAR,
    H_ROOM,
    H_STAMP,
    H_TAPE,
    H_TOP,
    KEPT,
    OWNED,
    PARENT,
    T_NUMBER,
    TAPE_BITS,
    TOUCHED,
)

CONTROL = True
MIX = -7046029254386353131
"""Spreads keys over buckets: slots count up, and leaves stand side by side (Knuth, 2**64 over the golden ratio)."""


def probe(buckets, mask, key):
    """The bucket of a key among those found by key, or the empty one where it belongs."""
    at = ((key * MIX) >> 32) & mask
    while True:
        bucket = buckets + 8 * BUCKET * at
        held = load_i8(bucket)
        if held == key or held == 0:
            return bucket
        at = (at + 1) & mask


def bucket_of(buckets, mask, top, near, key):
    """The bucket of a key, as :func:`find`, for loops that have the header's words at hand."""
    behind = top - key
    if behind & -near == 0:
        return buckets + 8 * BUCKET * (mask + 1 + behind)
    return probe(buckets, mask, key)


def find(h: int, key: int) -> int:
    """The bucket of a key: of a slot near the root by its distance, of other slots and of leaves by the key."""
    return bucket_of(word(h, H_BUCKETS), word(h, H_MASK), word(h, H_TOP), word(h, H_NEAR), key)


def open_bucket(h, key):
    """The bucket of a key, an empty one if this run has none of it as yet."""
    bucket = find(h, key)
    near = (word(h, H_TOP) - key) & -word(h, H_NEAR) == 0
    known = word(h, H_STAMP) if near else key
    if load_i8(bucket) != known:
        store_i8(bucket, known)
        store_i8(bucket + 8, 0)
        store_i8(bucket + 24, 0)
        if not near:
            store_i8(h + 8 * H_KEYS, word(h, H_KEYS) + 1)
    return bucket


def begin(h, root, keys):
    """Begin a run from a slot, with so many buckets to be found by key."""
    buckets = word(h, H_BUCKETS)
    store_i8(h + 8 * H_MASK, keys - 1)
    store_i8(h + 8 * H_TOP, root if root >> TAPE_BITS == word(word(h, H_TAPE), T_NUMBER) else -1)
    store_i8(h + 8 * H_NEAR, word(h, H_ROOM) // 2)
    store_i8(h + 8 * H_STAMP, word(h, H_STAMP) + 1)
    store_i8(h + 8 * H_KEYS, 0)
    for i in range(keys):
        store_i8(buckets + 8 * BUCKET * i, 0)


def fill(pointer, elements, item, number):
    if item == 8:
        for i in range(elements):
            store_f8(pointer + 8 * i, number)
    else:
        for i in range(elements):
            store_f4(pointer + 4 * i, number)


def write_out(bucket, elements, item):
    """Give a bucket with a constant gradient a buffer with all elements written out; 0 without memory."""
    pointer = take(elements * item)
    if pointer != 0:
        fill(pointer, elements, item, load_f8(bucket + 16) if item == 8 else load_f4(bucket + 16))
        store_i8(bucket + 8, pointer)
        store_i8(bucket + 24, (load_i8(bucket + 24) | OWNED) & ~CONSTANT)
    return pointer


def fold(target, source, elements, item):
    """Add one whole gradient buffer to another."""
    if item == 8:
        for i in range(elements):
            store_f8(target + 8 * i, load_f8(target + 8 * i) + load_f8(source + 8 * i))
    else:
        for i in range(elements):
            store_f4(target + 4 * i, load_f4(target + 4 * i) + load_f4(source + 4 * i))


def gradient_buffer(bucket, buckets, elements, item, covers):
    """Resolve a bucket to its gradient buffer, allocated at the first contribution; 0 without memory.

    Sets TOUCHED; the caller reads the flag before. A first contribution that does not cover the gradient buffer
    starts from -0.0, the identity of addition.
    """
    pointer = load_i8(bucket + 8)
    flags = load_i8(bucket + 24)
    if flags & CONSTANT:
        return write_out(bucket, elements, item)
    if pointer < 0:
        pointer = load_i8(-pointer + 16)  # an array that the caller owns: the address of its data
        store_i8(bucket + 8, pointer)
    if pointer == 0:
        pointer = bucket + 16
        if elements * item > 8 or flags & ALIAS:  # in place of a value an alias has its offset
            pointer = take(elements * item)
            flags |= OWNED
        store_i8(bucket + 8, pointer)
    if flags & TOUCHED == 0 and covers == 0 and pointer != 0:
        fill(pointer, elements, item, -0.0)
    store_i8(bucket + 24, flags | TOUCHED)
    return pointer


def family(bucket, buckets):
    """The bucket whose gradient buffer a view writes to: its base's, or that of the nearest observed view above it."""
    top = bucket
    while load_i8(top + 24) & (ALIAS | KEPT) == ALIAS:
        top = buckets + 8 * BUCKET * (load_i8(top + 24) >> PARENT)
    at = bucket
    while at != top:  # compress the path: loops of views of views stay linear
        up = buckets + 8 * BUCKET * (load_i8(at + 24) >> PARENT)
        flags = load_i8(at + 24) & ((1 << PARENT) - 1)
        store_i8(at + 24, flags | (((top - buckets) // (8 * BUCKET)) << PARENT))
        at = up
    return top


def settle_view(h, bucket, block):
    """Add an observed view's own gradient buffer to the one above it; 0 without memory."""
    buckets = word(h, H_BUCKETS)
    above = family(buckets + 8 * BUCKET * (load_i8(bucket + 24) >> PARENT), buckets)
    elements, item = word(block, B_BUFFER) * word(h, H_BATCH), word(block, B_ITEM)
    target = gradient_buffer(above, buckets, elements, item, 0)
    if target != 0:
        fold(target, load_i8(bucket + 8), elements, item)
    return target


def own_copy(h, bucket, block):
    """Let a bucket own a copy of its gradient buffer, which is the observer's; 0 without memory."""
    size = word(block, B_BUFFER) * word(block, B_ITEM) * word(h, H_BATCH)
    copy, source = take(size + 8), load_i8(bucket + 8)
    if copy != 0:
        copy_bytes(copy, source, size)
        store_i8(bucket + 8, copy)
        store_i8(bucket + 24, load_i8(bucket + 24) | OWNED)
    return copy


def drop(bucket):
    """Free a gradient buffer that nobody reads any more."""
    give(load_i8(bucket + 8))
    store_i8(bucket + 8, 0)
    store_i8(bucket + 24, load_i8(bucket + 24) & ~OWNED)
