"""Marking and sweeping in one pass, where every gradient buffer has one element: the sweep of graphs of numbers.

Anything else ends the pass; it has changed only buckets, which nobody reads, and mark and sweep start again from the
beginning.
"""

from __future__ import annotations

from kernels.native.memory import call_kernel, store_i8, word
from kernels.native.structs import (
    FEW,
    FOREIGN,
    GROW,
    OK,
    SINGLE,
    TOUCHED,
    USE_GENERAL_PATH,
    USED,
    WORK_BETWEEN_CHECKS,
    Bucket,
    FormBlock,
    InputBlock,
    SweepHeader,
)
from kernels.native.tape_native import point_at, seek
from kernels.programs.replay_back_native import begin, fill, open_bucket
from kernels.sweeps.native.leaves_native import settle
from kernels.sweeps.native.mark_native import crowded, goes, is_marked, last_root, meet, preset


def contribute(input_block: InputBlock, target: Bucket, flags, pointers):
    """Run a pullback that gives a bucket's own element its first contribution, or one more."""
    accumulate = 1
    if flags & TOUCHED == 0:
        target.pointer = target + 16
        target.flags = flags | TOUCHED
        if input_block.covers != 0:
            accumulate = 0
        else:
            fill(target + 16, 1, input_block.item, -0.0)
    store_i8(pointers, target + 16)
    call_kernel(input_block.kernel, input_block.layout, pointers, accumulate)


def pull(h: SweepHeader, items, last, block: FormBlock, bucket: Bucket, top, near, stamp):
    """Run the pullbacks of an instruction; return how many instructions it comes to that are new, -1 if it cannot."""
    buckets, pointers, inputs, new, i = h.buckets, h.pointers, block.inputs, 0, 0
    place, input_block = last + 2 - block.entries, block + 8 * FormBlock.SIZE
    near_buckets = buckets + 8 * Bucket.SIZE * (h.mask + 1)
    point_at(items + 8 * (place + inputs), block, pointers + 16)
    store_i8(pointers + 8, bucket.pointer)
    while i < inputs:
        key = word(items, place + i)
        behind = top - key
        if behind & -near == 0:
            target = Bucket(near_buckets + 8 * Bucket.SIZE * behind)
            flags = target.flags
            if target.key != stamp:
                target.key = stamp
                flags = USED
                new += 1
            contribute(input_block, target, flags, pointers)
        elif key != 0:
            target = open_bucket(h, key)
            if target.flags & USED == 0:
                new += meet(h, key, place + i, last)
            flags = target.flags
            if flags & FOREIGN != 0:
                return -1
            contribute(input_block, target, flags, pointers)
        input_block += 8 * InputBlock.SIZE
        i += 1
    return new


def descend(h: SweepHeader, root, pending):
    """Go down the tape from the roots, running pullbacks; OK, GROW, or USE_GENERAL_PATH."""
    t = h.tape
    items, forms, order = t.words, t.registry.forms, h.order
    buckets, mask, stamp = h.buckets, h.mask, h.stamp
    top, near = h.top, h.near
    position, count, room, slot, work = seek(t, root) - 1, 0, mask - mask // 8, top + 1, 0
    whole, tape = position == t.size - 1, t.number
    while pending > 0 and position >= 0:
        last = position
        block = forms[items[last]]
        start = last - block.entries + 1
        position, slot = start - 1, items[start]
        bucket = is_marked(buckets, mask, top, near, stamp, slot)
        whole = whole and bucket != 0 and goes(items, start, block, tape)
        if bucket == 0:
            continue
        if block.ready != SINGLE or work > WORK_BETWEEN_CHECKS:
            return USE_GENERAL_PATH
        if h.keys + block.inputs > room:
            return crowded(h, count + pending, top - slot)
        order[count] = last
        count += 1
        new = pull(h, items, last, block, bucket, top, near, stamp)
        if new < 0:
            return USE_GENERAL_PATH
        pending += new - 1
        work += block.work
    h.low = position + 1
    h.count = count
    h.whole = t.size if whole else 0
    h.extent = max(min(top - slot + 1, near), 0)
    return OK if pending == 0 else USE_GENERAL_PATH


def walk(h: SweepHeader) -> int:
    """Sweep from the presets to the leaves they lead to: OK; GROW where buckets are too few; USE_GENERAL_PATH.

    The gradient of each leaf is then in its bucket.
    """
    root, keys, status = last_root(h), FEW, GROW
    h.at = 4 * keys
    while status == GROW and 2 * keys <= h.room:
        begin(h, root, keys)
        h.leaf = 0
        status = descend(h, root, preset(h))
        if status == GROW and h.at != 0:
            return GROW
        keys *= 8
    if status == OK:
        settle(h)
    return status
