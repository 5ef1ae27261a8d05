"""Which instructions lead from roots to leaves, of graphs of numbers with their pullbacks; instructions let go of."""

from __future__ import annotations

from kernels.native import structs
from kernels.native.c_api import PyList_Size
from kernels.native.memory import call_kernel, load_i8, store_i8, word
from kernels.native.structs import Bucket, FormBlock, FoundLeaf, InputBlock, SeedRow, SweepHeader
from kernels.native.tape_native import cut, point_at, seek, take_out
from kernels.programs.replay_back_native import begin, bucket_of, fill, open_bucket, probe
from kernels.sweeps.short_backward_native import settle

# Drops the instructions that a backward has used, if it frees the graph.

CONTROL = True


def drop(h: SweepHeader) -> int:
    """Drop the instructions that saved values, and what depends on them, unless others read the tape.

    Returns how many words they had, -1 without memory. Instructions that saved nothing stay, so that a second
    backward through sums alone works, as PyTorch's does.
    """
    if PyList_Size(h.readers) > 1:
        return 0
    t, whole = h.tape, h.whole
    if whole != 0 and whole == t.size:  # nothing was recorded since
        return cut(t, h.low)
    items, low, forms = t.words, -1, t.registry.forms
    buckets, mask, order = h.buckets, h.mask, h.order
    top, near = h.top, h.near
    for k in range(h.count - 1, -1, -1):
        last = order[k]
        block = forms[items[last]]
        start, i = last - block.entries + 1, 0
        going = block.frees != 0
        while i < block.inputs and not going:
            key = items[start + 1 + i]
            going = key > 0 and load_i8(bucket_of(buckets, mask, top, near, key) + 24) & structs.DROPPED != 0
            i += 1
        if going:
            bucket = Bucket(bucket_of(buckets, mask, top, near, items[start]))
            bucket.flags |= structs.DROPPED
            items[last] = ~items[last]
            if low < 0:
                low = start
    return take_out(t, low) if low >= 0 else 0


# The pre-pass of a sweep: which instructions lie between the roots and the leaves.
#
# Reads the tape from its end (tape_native.py). Each function takes the address of a header of int64 words.


def preset(h: SweepHeader):
    """Put roots and observed slots into their buckets: pointer, value, flags. Return how many roots there are."""
    roots = 0
    for i in range(h.preset):
        preset_row = SeedRow(h.presets + 32 * i)
        bucket, pointer = open_bucket(h, preset_row.slot), preset_row.pointer
        if bucket.flags == 0:
            if pointer < 0:
                pointer = load_i8(-pointer + 16)  # an array that the caller owns: the address of its data
            elif preset_row.flags & structs.TOUCHED:
                pointer = bucket + 16
            bucket.pointer = pointer
            bucket.value = preset_row.value
        roots += preset_row.flags & structs.USED & ~bucket.flags
        bucket.flags = bucket.flags | preset_row.flags
    return roots


def last_root(h: SweepHeader):
    """The greatest slot that a sweep is to start from: slots ascend along the tape."""
    root = 0
    for i in range(h.preset):
        preset_row = SeedRow(h.presets + 32 * i)
        if preset_row.flags & structs.USED:
            root = max(root, preset_row.slot)
    return root


def lacks(block: FormBlock, i):
    """Whether the sweep needs a kernel for an input that is not compiled yet."""
    kind, input_block = block.kind, InputBlock(block + 8 * (FormBlock.SIZE + i * InputBlock.SIZE))
    if kind in (structs.VIEW, structs.PYTHON) or (i == 0 and kind == structs.ADDS):
        return False
    return input_block.kernel == 0 or input_block.spread == structs.REQUESTED or input_block.reused == structs.REQUESTED


def meet(h: SweepHeader, key, place, last):
    """Mark an operand; return whether it is an instruction of this tape that was not marked before."""
    target = open_bucket(h, key)
    flags, leaf = target.flags, h.leaf
    if flags & structs.USED:
        return 0
    if key > 0 and key >> structs.TAPE_BITS == h.tape.number:
        target.flags = flags | structs.USED
        return 1
    leaf_row = FoundLeaf(h.leaves + 8 * FoundLeaf.SIZE * leaf)
    leaf_row.place = place
    leaf_row.last = last
    leaf_row.bucket = (target - h.buckets) // (8 * Bucket.SIZE)
    h.leaf = leaf + 1
    # What is asked for may be on the other tape.
    target.flags = (
        flags | structs.USED | (structs.FOREIGN | structs.KEPT | structs.RELEVANT if key > 0 else structs.KEPT)
    )
    return 0


def operands(h: SweepHeader, start, block: FormBlock, bucket: Bucket):
    """Mark an instruction's operands; return how many new instructions these are, -1 if kernels are missing."""
    kind = block.kind
    key = word(h.tape.words, start + 1)
    for i in range(block.inputs):
        if word(h.tape.words, start + 1 + i) != 0 and lacks(block, i):
            return -1
    if key != 0 and structs.VIEW <= kind <= structs.ADDS:
        target = open_bucket(h, key)
        if target.flags & structs.USED != 0 and kind != structs.VIEW:
            # Something later on the tape refers to the version before the write: the two need gradient buffers apart.
            bucket.flags |= structs.KEPT
        # The view's offset, and the bucket that it shares its gradient buffer with.
        bucket.value = word(h.tape.words, start + 2) if kind == structs.VIEW else 0
        parent = (target - h.buckets) // (8 * Bucket.SIZE)
        bucket.flags = bucket.flags | structs.ALIAS | (parent << structs.PARENT)
    return plain_operands(h, h.buckets, h.mask, h.top, h.near, start, block)


def plain_operands(h: SweepHeader, buckets, mask, top, near, start, block: FormBlock):
    """The same for a form whose kernels are compiled; most operands are found by distance."""
    stamp, inputs, place, new = h.stamp, block.inputs, start + 1, 0
    items = h.tape.words
    while place <= start + inputs:
        key = items[place]
        behind = top - key
        if behind & -near == 0:
            target = Bucket(buckets + 8 * Bucket.SIZE * (mask + 1 + behind))
            if target.key != stamp:
                target.key = stamp
                target.pointer = 0
                target.flags = structs.USED
                new += 1
            elif target.flags & structs.USED == 0:
                new += meet(h, key, place, 0)
        elif key != 0:
            target = probe(buckets, mask, key)
            if target.key != key or target.flags & structs.USED == 0:
                new += meet(h, key, place, start + block.entries - 1)
        place += 1
    return new


def crowded(h: SweepHeader, reached, walked):
    """GROW, as there are not enough buckets; in SweepHeader.at how many are wanted, 0 if more found by key may do."""
    wanted, room = 0, h.room
    if walked >= h.near and structs.DENSE * reached >= walked:
        span = h.top - h.tape.words[0]
        wanted = max(2 * room, min(8 * room, span + 1))
    elif 128 * (h.mask + 1) > room:
        wanted = 8 * room
    h.at = wanted
    return structs.GROW


def is_marked(buckets, mask, top, near, stamp, slot):
    """The bucket of a slot that the root leads to; 0 of any other."""
    bucket = Bucket(bucket_of(buckets, mask, top, near, slot))
    known = stamp if (top - slot) & -near == 0 else slot
    return bucket if bucket.key == known and bucket.flags & structs.USED else 0


def goes(items, start, block: FormBlock, tape):
    """Whether a backward that frees drops an instruction, provided that it drops all operands on this tape."""
    remaining = block.inputs if block.frees == 0 else -1
    while remaining > 0 and word(items, start + remaining) >> structs.TAPE_BITS != tape:
        remaining -= 1
    return remaining != 0


def contribute(input_block: InputBlock, target: Bucket, flags, pointers):
    """Run a pullback that gives a bucket's own element its first contribution, or one more."""
    accumulate = 1
    if flags & structs.TOUCHED == 0:
        target.pointer = target + 16
        target.flags = flags | structs.TOUCHED
        if input_block.covers != 0:
            accumulate = 0
        else:
            fill(target + 16, 1, input_block.item, -0.0)
    store_i8(pointers, target + 16)
    call_kernel(input_block.kernel, input_block.layout, pointers, accumulate)


def pull(h: SweepHeader, items, last, block: FormBlock, bucket: Bucket, top, near, stamp):
    """Mark an instruction's operands and run its pullbacks at once, on buffers of one element; -1 if it cannot."""
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
                flags = structs.USED
                new += 1
            contribute(input_block, target, flags, pointers)
        elif key != 0:
            target = open_bucket(h, key)
            if target.flags & structs.USED == 0:
                new += meet(h, key, place + i, last)
            flags = target.flags
            if flags & structs.FOREIGN != 0:
                return -1
            contribute(input_block, target, flags, pointers)
        input_block += 8 * InputBlock.SIZE
        i += 1
    return new


def attempt(h: SweepHeader, root, pending):
    """Mark, from so many roots, as far as the buckets that are found by key suffice."""
    t, pulls = h.tape, h.pulls != 0
    items, forms, order = t.words, t.registry.forms, h.order
    buckets, mask, stamp = h.buckets, h.mask, h.stamp
    top, near = h.top, h.near
    position, count, room, slot, tape, work = seek(t, root) - 1, 0, mask - mask // 8, top + 1, t.number, 0
    whole = position == t.size - 1
    while pending > 0 and position >= 0:
        last = position
        block = forms[items[last]]
        start = last - block.entries + 1
        position, slot = start - 1, items[start]
        bucket = is_marked(buckets, mask, top, near, stamp, slot)
        whole = whole and bucket != 0 and goes(items, start, block, tape)
        if bucket == 0:
            continue
        if h.keys + block.inputs > room:
            return crowded(h, count + pending, top - slot)
        order[count] = last
        count += 1
        if pulls:
            singly = block.ready == structs.SINGLE and work <= structs.WORK_BETWEEN_CHECKS
            new = pull(h, items, last, block, bucket, top, near, stamp) if singly else -1
            work += block.work
        elif block.ready != 0:
            new = plain_operands(h, buckets, mask, top, near, start, block)
        else:
            new = operands(h, start, block, bucket)
        if new < 0:
            h.at = last
            return structs.USE_GENERAL_PATH if pulls else structs.MISSING
        pending += new - 1
    h.low = position + 1
    h.count = count
    h.whole = t.size if whole else 0
    h.extent = max(min(top - slot + 1, near), 0)
    if pending > 0:
        return structs.USE_GENERAL_PATH if pulls else structs.FREED
    return structs.OK


def mark(h: SweepHeader) -> int:
    """Find the instructions from the roots to the leaves, last first, in the sweep's order; GROW without buckets.

    If ``h.pulls`` run their pullbacks at once, so that the gradient of each leaf is in its bucket then: that serves
    graphs of numbers, where every gradient buffer has one element. USE_GENERAL_PATH of any other graph: only buckets
    have changed, which nobody reads.
    """
    h.position = 0
    h.resume = 0
    h.extent = 0
    root, keys, status = last_root(h), structs.FEW, structs.GROW
    while keys < 2 * h.preset:
        keys *= 2
    h.at = 16 * keys
    while status == structs.GROW and 16 * keys <= h.room:
        begin(h, root, keys)
        h.leaf = 0
        status = attempt(h, root, preset(h))
        if status == structs.GROW and h.at != 0:
            return structs.GROW
        keys *= 8
    if status == structs.OK and h.pulls != 0:
        settle(h)
    return status


def relevant(h: SweepHeader) -> None:
    """Keep only the instructions that lead to an observed slot or leaf, deciding about the earliest first."""
    t = h.tape
    items, forms = t.words, t.registry.forms
    buckets, mask, top, near = h.buckets, h.mask, h.top, h.near
    order, count = h.order, h.count
    kept = count
    for k in range(count - 1, -1, -1):
        last = order[k]
        block = forms[items[last]]
        start = last - block.entries + 1
        bucket = Bucket(bucket_of(buckets, mask, top, near, items[start]))
        leads = (
            bucket.flags & (structs.RELEVANT | structs.PAUSED) == structs.RELEVANT | structs.PAUSED
        )  # asked for, after its hooks
        for i in range(block.inputs):
            key = items[start + 1 + i]
            if key != 0:
                leads |= load_i8(bucket_of(buckets, mask, top, near, key) + 24) & structs.RELEVANT != 0
        if leads:
            bucket.flags |= structs.RELEVANT
            kept -= 1
            order[kept] = last
    for k in range(count - kept):
        order[k] = order[kept + k]
    h.count = count - kept
    h.whole = 0
