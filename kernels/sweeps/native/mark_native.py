"""The pre-pass of a sweep: which instructions lie between the roots and the leaves.

Reads the tape from its end (tape_native.py). Each function takes the address of a header of int64 words.
"""

from __future__ import annotations

from kernels.native.memory import (
    load_i8,
    store_i8,
    word,
)
from kernels.native.tape.tape_native import seek
from kernels.native.words import (
    ADDS,
    ALIAS,
    B_ENTRIES,
    B_FIRST,
    B_FREES,
    B_INPUTS,
    B_KIND,
    B_READY,
    BUCKET,
    CLEARS,
    DENSE,
    FEW,
    FOREIGN,
    FREED,
    G_FORMS,
    GROW,
    H_AT,
    H_BUCKETS,
    H_COUNT,
    H_EXTENT,
    H_FROM,
    H_KEYS,
    H_LEAF,
    H_LEAVES,
    H_LOW,
    H_MASK,
    H_NEAR,
    H_ORDER,
    H_PRESET,
    H_PRESETS,
    H_RESUME,
    H_ROOM,
    H_STAMP,
    H_TAPE,
    H_TOP,
    H_WHOLE,
    I_KERNEL,
    I_REUSED,
    I_SPREAD,
    I_WORDS,
    KEPT,
    LEAF_WORDS,
    MISSING,
    OK,
    PARENT,
    PAUSED,
    PYTHON,
    RELEVANT,
    T_NUMBER,
    T_REGISTRY,
    T_SIZE,
    T_WORDS,
    TAPE_BITS,
    TOUCHED,
    USED,
    VIEW,
    WANTED,
)
from kernels.sweeps.native.gradient_table_native import begin, bucket_of, open_bucket, probe

CONTROL = True


def preset(h):
    """Put roots and observed slots into their buckets: pointer, value, flags. Return how many roots there are."""
    roots = 0
    for i in range(word(h, H_PRESET)):
        preset_row = word(h, H_PRESETS) + 32 * i
        bucket, pointer = open_bucket(h, load_i8(preset_row)), load_i8(preset_row + 8)
        if load_i8(bucket + 24) == 0:
            if pointer < 0:
                pointer = load_i8(-pointer + 16)  # an array that the caller owns: the address of its data
            elif load_i8(preset_row + 24) & TOUCHED:
                pointer = bucket + 16
            store_i8(bucket + 8, pointer)
            store_i8(bucket + 16, load_i8(preset_row + 16))
        roots += load_i8(preset_row + 24) & USED & ~load_i8(bucket + 24)
        store_i8(bucket + 24, load_i8(bucket + 24) | load_i8(preset_row + 24))
    return roots


def last_root(h):
    """The greatest slot that a sweep is to start from: slots ascend along the tape."""
    root = 0
    for i in range(word(h, H_PRESET)):
        preset_row = word(h, H_PRESETS) + 32 * i
        if load_i8(preset_row + 24) & USED:
            root = max(root, load_i8(preset_row))
    return root


def lacks(block, i):
    """Whether the sweep needs a kernel for an input that is not compiled yet."""
    kind, input_block = word(block, B_KIND), block + 8 * (B_FIRST + i * I_WORDS)
    if kind in (VIEW, PYTHON) or (i == 0 and kind == ADDS):
        return False
    return (
        word(input_block, I_KERNEL) == 0
        or word(input_block, I_SPREAD) == WANTED
        or word(input_block, I_REUSED) == WANTED
    )


def meet(h, key, place, last):
    """Mark an operand; return whether it is an instruction of this tape that was not marked before."""
    target = open_bucket(h, key)
    flags, leaf = load_i8(target + 24), word(h, H_LEAF)
    if flags & USED:
        return 0
    if key > 0 and key >> TAPE_BITS == word(word(h, H_TAPE), T_NUMBER):
        store_i8(target + 24, flags | USED)
        return 1
    leaf_row = word(h, H_LEAVES) + 8 * LEAF_WORDS * leaf
    store_i8(leaf_row, place)
    store_i8(leaf_row + 8, last)
    store_i8(leaf_row + 16, (target - word(h, H_BUCKETS)) // (8 * BUCKET))
    store_i8(h + 8 * H_LEAF, leaf + 1)
    # What is asked for may be on the other tape.
    store_i8(target + 24, flags | USED | (FOREIGN | KEPT | RELEVANT if key > 0 else KEPT))
    return 0


def operands(h, items, start, block, bucket):
    """Mark an instruction's operands; return how many new instructions these are, -1 if kernels are missing."""
    kind, last, new = word(block, B_KIND), start + word(block, B_ENTRIES) - 1, 0
    for i in range(word(block, B_INPUTS)):
        key = word(items, start + 1 + i)
        if key == 0:
            continue
        if lacks(block, i):
            return -1
        target = open_bucket(h, key)
        if load_i8(target + 24) & USED != 0 and i == 0 and CLEARS <= kind <= ADDS:
            # Something later on the tape refers to the version before the write: the two need gradient buffers apart.
            store_i8(bucket + 24, load_i8(bucket + 24) | KEPT)
        new += meet(h, key, start + 1 + i, last)
        if i == 0 and VIEW <= kind <= ADDS:
            # The view's offset, and the bucket that it shares its gradient buffer with.
            store_i8(bucket + 16, word(items, start + 2) if kind == VIEW else 0)
            parent = (target - word(h, H_BUCKETS)) // (8 * BUCKET)
            store_i8(bucket + 24, load_i8(bucket + 24) | ALIAS | (parent << PARENT))
    return new


def plain_operands(h, buckets, mask, top, near, start, block):
    """The same for a form whose kernels are compiled; most operands are found by distance."""
    stamp, inputs, place, new = word(h, H_STAMP), word(block, B_INPUTS), start + 1, 0
    items = word(word(h, H_TAPE), T_WORDS)
    while place <= start + inputs:
        key = word(items, place)
        behind = top - key
        if behind & -near == 0:
            target = buckets + 8 * BUCKET * (mask + 1 + behind)
            if load_i8(target) != stamp:
                store_i8(target, stamp)
                store_i8(target + 8, 0)
                store_i8(target + 24, USED)
                new += 1
            elif load_i8(target + 24) & USED == 0:
                new += meet(h, key, place, 0)
        elif key != 0:
            target = probe(buckets, mask, key)
            if load_i8(target) != key or load_i8(target + 24) & USED == 0:
                new += meet(h, key, place, start + word(block, B_ENTRIES) - 1)
        place += 1
    return new


def crowded(h, reached, walked):
    """GROW, as there are not enough buckets; in H_AT how many are wanted, 0 if more found by key may do."""
    wanted, room = 0, word(h, H_ROOM)
    if walked >= word(h, H_NEAR) and DENSE * reached >= walked:
        span = word(h, H_TOP) - word(word(word(h, H_TAPE), T_WORDS), 0)
        wanted = max(2 * room, min(8 * room, 2 * (span + 1)))
    elif 16 * (word(h, H_MASK) + 1) > room:
        wanted = 8 * room
    store_i8(h + 8 * H_AT, wanted)
    return GROW


def is_marked(buckets, mask, top, near, stamp, slot):
    """The bucket of a slot that the root leads to; 0 of any other."""
    bucket = bucket_of(buckets, mask, top, near, slot)
    known = stamp if (top - slot) & -near == 0 else slot
    return bucket if load_i8(bucket) == known and load_i8(bucket + 24) & USED else 0


def goes(items, start, block, tape):
    """Whether a backward that frees drops an instruction, provided that it drops all operands on this tape."""
    remaining = word(block, B_INPUTS) if word(block, B_FREES) == 0 else -1
    while remaining > 0 and word(items, start + remaining) >> TAPE_BITS != tape:
        remaining -= 1
    return remaining != 0


def attempt(h, root, pending):
    """Mark, from so many roots, as far as the buckets that are found by key suffice."""
    t = word(h, H_TAPE)
    items, forms, order = word(t, T_WORDS), word(word(t, T_REGISTRY), G_FORMS), word(h, H_ORDER)
    buckets, mask, stamp = word(h, H_BUCKETS), word(h, H_MASK), word(h, H_STAMP)
    top, near = word(h, H_TOP), word(h, H_NEAR)
    position, count, room, slot, tape = seek(t, root) - 1, 0, mask - mask // 8, top + 1, word(t, T_NUMBER)
    whole = position == word(t, T_SIZE) - 1
    while pending > 0 and position >= 0:
        last = position
        block = word(forms, word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        position, slot = start - 1, word(items, start)
        bucket = is_marked(buckets, mask, top, near, stamp, slot)
        whole = whole and bucket != 0 and goes(items, start, block, tape)
        if bucket == 0:
            continue
        if word(h, H_KEYS) + word(block, B_INPUTS) > room:
            return crowded(h, count + pending, top - slot)
        store_i8(order + 8 * count, last)
        count += 1
        if word(block, B_READY) != 0:
            pending += plain_operands(h, buckets, mask, top, near, start, block) - 1
            continue
        new = operands(h, items, start, block, bucket)
        if new < 0:
            store_i8(h + 8 * H_AT, last)
            return MISSING
        pending += new - 1
    store_i8(h + 8 * H_LOW, position + 1)
    store_i8(h + 8 * H_COUNT, count)
    store_i8(h + 8 * H_WHOLE, word(t, T_SIZE) if whole else 0)
    store_i8(h + 8 * H_EXTENT, max(min(top - slot + 1, near), 0))
    return FREED if pending > 0 else OK


def mark(h: int) -> int:
    """Find the instructions from the roots to the leaves, last first, in the sweep's order; GROW without buckets."""
    store_i8(h + 8 * H_FROM, 0)
    store_i8(h + 8 * H_RESUME, 0)
    store_i8(h + 8 * H_EXTENT, 0)
    root, keys = last_root(h), FEW
    while keys < 2 * word(h, H_PRESET):
        keys *= 2
    store_i8(h + 8 * H_AT, 4 * keys)
    status = GROW
    while status == GROW and 2 * keys <= word(h, H_ROOM):
        begin(h, root, keys)
        store_i8(h + 8 * H_LEAF, 0)
        status = attempt(h, root, preset(h))
        if status != GROW or word(h, H_AT) != 0:
            return status
        keys *= 8
    return status


def relevant(h: int) -> None:
    """Keep only the instructions that lead to an observed slot or leaf, deciding about the earliest first."""
    t = word(h, H_TAPE)
    items, forms = word(t, T_WORDS), word(word(t, T_REGISTRY), G_FORMS)
    buckets, mask, top, near = word(h, H_BUCKETS), word(h, H_MASK), word(h, H_TOP), word(h, H_NEAR)
    order, count = word(h, H_ORDER), word(h, H_COUNT)
    kept = count
    for k in range(count - 1, -1, -1):
        last = word(order, k)
        block = word(forms, word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        bucket = bucket_of(buckets, mask, top, near, word(items, start))
        leads = load_i8(bucket + 24) & (RELEVANT | PAUSED) == RELEVANT | PAUSED  # asked for, after its hooks
        for i in range(word(block, B_INPUTS)):
            key = word(items, start + 1 + i)
            if key != 0:
                leads |= load_i8(bucket_of(buckets, mask, top, near, key) + 24) & RELEVANT != 0
        if leads:
            store_i8(bucket + 24, load_i8(bucket + 24) | RELEVANT)
            kept -= 1
            store_i8(order + 8 * kept, last)
    for k in range(count - kept):
        store_i8(order + 8 * k, word(order, kept + k))
    store_i8(h + 8 * H_COUNT, count - kept)
    store_i8(h + 8 * H_WHOLE, 0)
