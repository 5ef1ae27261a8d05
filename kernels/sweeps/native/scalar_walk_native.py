"""Marking and sweeping in one pass, where every gradient buffer has one element: the sweep of graphs of numbers.

Anything else ends the pass; it has changed only buckets, which nobody reads, and mark and sweep start again from the
beginning.
"""

from __future__ import annotations

from kernels.native.memory import call_kernel, load_i8, store_i8, word
from kernels.native.tape.tape_native import point_at, seek
from kernels.native.words import (
    B_ENTRIES,
    B_FIRST,
    B_INPUTS,
    B_READY,
    B_WORK,
    BUCKET,
    ELSEWHERE,
    FEW,
    FOREIGN,
    G_FORMS,
    GROW,
    H_AT,
    H_BUCKETS,
    H_COUNT,
    H_EXTENT,
    H_KEYS,
    H_LEAF,
    H_LOW,
    H_MASK,
    H_NEAR,
    H_ORDER,
    H_PTRS,
    H_ROOM,
    H_STAMP,
    H_TAPE,
    H_TOP,
    H_WHOLE,
    I_COVERS,
    I_ITEM,
    I_KERNEL,
    I_LAYOUT,
    I_WORDS,
    OK,
    SINGLE,
    T_NUMBER,
    T_REGISTRY,
    T_SIZE,
    T_WORDS,
    TOUCHED,
    USED,
    WORK_BETWEEN_CHECKS,
)
from kernels.sweeps.native.gradient_table_native import begin, fill, open_bucket
from kernels.sweeps.native.leaves_native import settle
from kernels.sweeps.native.mark_native import crowded, goes, is_marked, last_root, meet, preset


def contribute(input_block, target, flags, pointers):
    """Run a pullback that gives a bucket's own element its first contribution, or one more."""
    accumulate = 1
    if flags & TOUCHED == 0:
        store_i8(target + 8, target + 16)
        store_i8(target + 24, flags | TOUCHED)
        if word(input_block, I_COVERS) != 0:
            accumulate = 0
        else:
            fill(target + 16, 1, word(input_block, I_ITEM), -0.0)
    store_i8(pointers, target + 16)
    call_kernel(word(input_block, I_KERNEL), word(input_block, I_LAYOUT), pointers, accumulate)


def pull(h, items, last, block, bucket, top, near, stamp):
    """Run the pullbacks of an instruction; return how many instructions it comes to that are new, -1 if it cannot."""
    buckets, pointers, inputs, new, i = word(h, H_BUCKETS), word(h, H_PTRS), word(block, B_INPUTS), 0, 0
    place, input_block = last + 2 - word(block, B_ENTRIES), block + 8 * B_FIRST
    near_buckets = buckets + 8 * BUCKET * (word(h, H_MASK) + 1)
    point_at(items + 8 * (place + inputs), block, pointers + 16)
    store_i8(pointers + 8, load_i8(bucket + 8))
    while i < inputs:
        key = word(items, place + i)
        behind = top - key
        if behind & -near == 0:
            target = near_buckets + 8 * BUCKET * behind
            flags = load_i8(target + 24)
            if load_i8(target) != stamp:
                store_i8(target, stamp)
                flags = USED
                new += 1
            contribute(input_block, target, flags, pointers)
        elif key != 0:
            target = open_bucket(h, key)
            if load_i8(target + 24) & USED == 0:
                new += meet(h, key, place + i, last)
            flags = load_i8(target + 24)
            if flags & FOREIGN != 0:
                return -1
            contribute(input_block, target, flags, pointers)
        input_block += 8 * I_WORDS
        i += 1
    return new


def descend(h, root, pending):
    """Go down the tape from the roots, running pullbacks; OK, GROW, or ELSEWHERE."""
    t = word(h, H_TAPE)
    items, forms, order = word(t, T_WORDS), word(word(t, T_REGISTRY), G_FORMS), word(h, H_ORDER)
    buckets, mask, stamp = word(h, H_BUCKETS), word(h, H_MASK), word(h, H_STAMP)
    top, near = word(h, H_TOP), word(h, H_NEAR)
    position, count, room, slot, work = seek(t, root) - 1, 0, mask - mask // 8, top + 1, 0
    whole, tape = position == word(t, T_SIZE) - 1, word(t, T_NUMBER)
    while pending > 0 and position >= 0:
        last = position
        block = word(forms, word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        position, slot = start - 1, word(items, start)
        bucket = is_marked(buckets, mask, top, near, stamp, slot)
        whole = whole and bucket != 0 and goes(items, start, block, tape)
        if bucket == 0:
            continue
        if word(block, B_READY) != SINGLE or work > WORK_BETWEEN_CHECKS:
            return ELSEWHERE
        if word(h, H_KEYS) + word(block, B_INPUTS) > room:
            return crowded(h, count + pending, top - slot)
        store_i8(order + 8 * count, last)
        count += 1
        new = pull(h, items, last, block, bucket, top, near, stamp)
        if new < 0:
            return ELSEWHERE
        pending += new - 1
        work += word(block, B_WORK)
    store_i8(h + 8 * H_LOW, position + 1)
    store_i8(h + 8 * H_COUNT, count)
    store_i8(h + 8 * H_WHOLE, word(t, T_SIZE) if whole else 0)
    store_i8(h + 8 * H_EXTENT, max(min(top - slot + 1, near), 0))
    return OK if pending == 0 else ELSEWHERE


def walk(h: int) -> int:
    """Sweep from the presets to the leaves they lead to: OK; GROW where buckets are too few; ELSEWHERE.

    The gradient of each leaf is then in its bucket.
    """
    root, keys, status = last_root(h), FEW, GROW
    store_i8(h + 8 * H_AT, 4 * keys)
    while status == GROW and 2 * keys <= word(h, H_ROOM):
        begin(h, root, keys)
        store_i8(h + 8 * H_LEAF, 0)
        status = descend(h, root, preset(h))
        if status == GROW and word(h, H_AT) != 0:
            return GROW
        keys *= 8
    if status == OK:
        settle(h)
    return status
