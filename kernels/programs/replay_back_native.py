"""The gradient table in native code: buckets found by key, gradient buffers made at the first contribution."""

from __future__ import annotations

import numpy as np

from kernels.native import memory, structs
from kernels.native.c_api import A_SIMPLE, ArrayObject, call_word
from kernels.native.memory import HEADER, copy_bytes, load_f4, load_f8, load_i8, pointer_f4, pointer_f8, store_i8, word
from kernels.native.objects_native import elements
from kernels.native.structs import (
    Bucket,
    FormBlock,
    InputBlock,
    KeptCalls,
    PullbackCode,
    PullbackRun,
    PulledOperand,
    PulledResult,
    SweepHeader,
    TapeHeader,
)
from kernels.programs.replay_native import LEAST_I8, run

CONTROL = True
MIX = -7046029254386353131
"""Spreads keys over buckets: slots count up, and leaves stand side by side (Knuth, 2**64 over the golden ratio)."""


def probe(buckets, mask, key):
    """The bucket of a key among those found by key, or the empty one where it belongs."""
    at = ((key * MIX) >> 32) & mask
    while True:
        bucket = Bucket(buckets + 8 * Bucket.SIZE * at)
        held = bucket.key
        if held == key or held == 0:
            return bucket
        at = (at + 1) & mask


def bucket_of(buckets, mask, top, near, key):
    """The bucket of a key, as :func:`find`, for loops that have the header's words at hand."""
    behind = top - key
    if behind & -near == 0:
        return buckets + 8 * Bucket.SIZE * (mask + 1 + behind)
    return probe(buckets, mask, key)


def find(h: SweepHeader, key: int) -> int:
    """The bucket of a key: of a slot near the root by its distance, of other slots and of leaves by the key."""
    return bucket_of(h.buckets, h.mask, h.top, h.near, key)


def open_bucket(h: SweepHeader, key):
    """The bucket of a key, an empty one if this run has none of it as yet."""
    bucket = Bucket(find(h, key))
    near = (h.top - key) & -h.near == 0
    known = h.stamp if near else key
    if bucket.key != known:
        bucket.key = known
        bucket.pointer = 0
        bucket.flags = 0
        if not near:
            h.keys += 1
    return bucket


def begin(h: SweepHeader, root, keys):
    """Begin a run from a slot, with so many buckets to be found by key."""
    buckets = h.buckets
    h.mask = keys - 1
    h.top = root if root >> structs.TAPE_BITS == h.tape.number else -1
    h.near = h.room
    h.stamp += 1
    h.keys = 0
    for i in range(keys):
        store_i8(buckets + 8 * Bucket.SIZE * i, 0)


def fill(pointer, elements, item, number):
    if item == 8:
        wide = pointer_f8(pointer)
        for i in range(np.uint64(elements)):
            wide[i] = number
    else:
        single, narrow = pointer_f4(pointer), np.float32(number)
        for i in range(np.uint64(elements)):
            single[i] = narrow


def write_out(bucket: Bucket, elements, item):
    """Give a bucket with a constant gradient a buffer with all elements written out; 0 without memory."""
    pointer = memory.take(elements * item)
    if pointer != 0:
        fill(pointer, elements, item, load_f8(bucket + 16) if item == 8 else load_f4(bucket + 16))
        bucket.pointer = pointer
        bucket.flags = (bucket.flags | structs.OWNED) & ~structs.CONSTANT
    return pointer


def fold(target, source, elements, item):
    """Add one whole gradient buffer to another."""
    if item == 8:
        wide, wide_source = pointer_f8(target), pointer_f8(source)
        for i in range(np.uint64(elements)):
            wide[i] += wide_source[i]
    else:
        single, single_source = pointer_f4(target), pointer_f4(source)
        for i in range(np.uint64(elements)):
            single[i] += single_source[i]


def gradient_buffer(bucket: Bucket, buckets, elements, item, covers):
    """Resolve a bucket to its gradient buffer, allocated at the first contribution; 0 without memory.

    Sets TOUCHED; the caller reads the flag before. A first contribution that does not cover the gradient buffer
    starts from -0.0, the identity of addition.
    """
    pointer = bucket.pointer
    flags = bucket.flags
    if flags & structs.CONSTANT:
        return write_out(bucket, elements, item)
    if pointer < 0:
        pointer = load_i8(-pointer + 16)  # an array that the caller owns: the address of its data
        bucket.pointer = pointer
    if pointer == 0:
        pointer = bucket + 16
        if elements * item > 8 or flags & structs.ALIAS:  # in place of a value an alias has its offset
            pointer = memory.take(elements * item)
            flags |= structs.OWNED
        bucket.pointer = pointer
    if flags & structs.TOUCHED == 0 and covers == 0 and pointer != 0:
        fill(pointer, elements, item, -0.0)
    bucket.flags = flags | structs.TOUCHED
    return pointer


def family(bucket, buckets):
    """The bucket whose gradient buffer a view writes to: its base's, or that of the nearest observed view above it."""
    top = Bucket(bucket)
    while top.flags & (structs.ALIAS | structs.KEPT) == structs.ALIAS:
        top = buckets + 8 * Bucket.SIZE * (top.flags >> structs.PARENT)
    at = Bucket(bucket)
    while at != top:  # compress the path: loops of views of views stay linear
        up = buckets + 8 * Bucket.SIZE * (at.flags >> structs.PARENT)
        flags = at.flags & ((1 << structs.PARENT) - 1)
        at.flags = flags | (((top - buckets) // (8 * Bucket.SIZE)) << structs.PARENT)
        at = up
    return top


def settle_view(h: SweepHeader, bucket: Bucket, block: FormBlock):
    """Add an observed view's own gradient buffer to the one above it; 0 without memory."""
    buckets = h.buckets
    above = family(buckets + 8 * Bucket.SIZE * (bucket.flags >> structs.PARENT), buckets)
    elements, item, first = block.buffer * h.batch, block.item, above.flags & structs.TOUCHED == 0
    target = gradient_buffer(above, buckets, elements, item, 1)
    if target != 0 and first:
        copy_bytes(target, bucket.pointer, elements * item)
    elif target != 0:
        fold(target, bucket.pointer, elements, item)
    return target


def own_copy(h: SweepHeader, bucket: Bucket, block: FormBlock):
    """Let a bucket own a copy of its gradient buffer, which is the observer's; 0 without memory."""
    size = block.buffer * block.item * h.batch
    copy, source = memory.take(size + 8), bucket.pointer
    if copy != 0:
        copy_bytes(copy, source, size)
        bucket.pointer = copy
        bucket.flags |= structs.OWNED
    return copy


def drop(bucket: Bucket):
    """Free a gradient buffer that nobody reads any more."""
    memory.give(bucket.pointer)
    bucket.pointer = 0
    bucket.flags &= ~structs.OWNED


# A program among instructions runs back from the memory of its forward. Nothing here runs Python or lets other threads
# run, so that one machine serves all calls of a program.


def role(block: FormBlock):
    """What a form that Python runs is besides: a call of a program, a result of one, or 0."""
    return InputBlock(block + 8 * FormBlock.SIZE).kernel if block.inputs > 0 else 0


def table_of(h: SweepHeader, last):
    """The words of the program whose call ends here."""
    return ArrayObject(h.tape.words[last - 2]).data


def arrived(h: SweepHeader, slot: int) -> int:
    """The bucket of a slot, if this sweep has brought it a gradient; else 0."""
    top, near = h.top, h.near
    bucket, came = Bucket(bucket_of(h.buckets, h.mask, top, near, slot)), structs.USED | structs.TOUCHED
    known = h.stamp if (top - slot) & -near == 0 else slot
    return bucket if bucket.key == known and bucket.flags & came == came else 0


def enter(h, table: PullbackRun, slot):
    """Put the cotangents of the results into the machine's memory; return which have one, a bit each."""
    which, k = 0, 0
    while k < table.results:
        entry = PulledResult(table + 8 * (PullbackRun.SIZE + PulledResult.SIZE * k))
        place, count, item = entry.place, entry.count, entry.item
        bucket = Bucket(arrived(h, slot + entry.slot))
        if bucket != 0:
            copy_bytes(place, bucket.pointer, count * item)
            which |= 1 << k
        else:
            fill(place, count, item, -0.0)
        k += 1
    return which


def add_scaled(target, source, elements, factor):
    """Add to a gradient buffer of doubles what another has, but for what is nothing, times a factor."""
    wide = pointer_f8(target)
    for i in range(elements):
        if load_i8(source + 8 * i) != LEAST_I8:
            wide[i] += load_f8(source + 8 * i) * factor + 0.0


def give_to(h: SweepHeader, input_block: InputBlock, key, source, count, factor):
    """Add the gradient of an operand, times a factor, to its buffer; MEMORY or OK."""
    buckets, offset, item = h.buckets, 0, input_block.item
    target = Bucket(bucket_of(buckets, h.mask, h.top, h.near, key))
    flags = target.flags
    if h.restrict != 0 and flags & structs.RELEVANT == 0:
        return structs.OK
    if flags & structs.ALIAS:
        offset = target.value
        target = family(target, buckets)
    covers = input_block.covers
    first = target.flags & structs.TOUCHED == 0
    pointer = gradient_buffer(target, buckets, input_block.buffer, item, covers)
    if pointer == 0:
        return structs.MEMORY
    target.flags &= ~structs.CONSTANT_WANTED
    if factor != 1.0:
        if first and covers != 0:
            fill(pointer, count, item, -0.0)
        add_scaled(pointer + offset, source, count, factor)
    elif first and covers != 0:
        copy_bytes(pointer, source, count * item)
    else:
        fold(pointer + offset, source, count, item)
    return structs.OK


def release(h: int, slot: int) -> None:
    """Free the gradient that this sweep has brought a slot: a result's is kept until its call has run."""
    bucket = Bucket(arrived(h, slot))
    if bucket != 0 and bucket.flags & (structs.OWNED | structs.KEPT | structs.ALIAS) == structs.OWNED:
        drop(bucket)


def work_of(h, last, block):
    """How many elements a program computes on its way back; 0 of anything else."""
    what = role(block)
    if what == structs.RERUN:
        return PullbackCode(table_of(h, last + 1)).work
    return PullbackRun(table_of(h, last)).work if what == structs.REPLAYED else 0


# A call that returned a number has saved, behind the values of its operands, their gradients at cotangent 1.


def can_hand_back(t: TapeHeader, block: FormBlock, operands, kept, factor):
    """Whether all gradients that are wanted were kept, and can be scaled: in float32 they may have lost digits."""
    registry, factor_counts = t.registry, factor != 1.0
    if factor_counts and block.item != 8:
        return False
    for i in range(block.inputs):
        if word(operands, i) != 0:
            item = InputBlock(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * i)).item
            if word(kept, i) == registry.none or (factor_counts and item != 8):
                return False
    return True


def hand_back(h: SweepHeader, last, block: FormBlock, bucket: Bucket):
    """Give operands the gradients that a call has kept; MEMORY, OK, or PAUSE where Python has to do it."""
    registry, inputs, calls = h.tape.registry, block.inputs, KeptCalls(table_of(h, last + 1))
    operands = h.tape.words + 8 * (last + 2 - block.entries)
    kept, i = operands + 8 * (2 * inputs + 1), 0
    factor = load_f8(bucket.pointer) if block.item == 8 else np.float64(load_f4(bucket.pointer))
    if not can_hand_back(h.tape, block, operands, kept, factor):
        return structs.PAUSE
    calls.count = 0
    while i < inputs:
        key, input_block = word(operands, i), InputBlock(block + 8 * (FormBlock.SIZE + InputBlock.SIZE * i))
        gradient = ArrayObject(word(kept, i))
        if key != 0 and gradient != registry.false:
            source, count = gradient + HEADER, 1
            if load_i8(gradient + 8) != registry.float_type:
                source, count = gradient.data, elements(gradient.shape, gradient.ndim)
            if give_to(h, input_block, key, source, count, factor) != structs.OK:
                return structs.MEMORY
        i += 1
    return structs.OK


# Machine code runs a program forward and back, on what a call has saved.


def fill_places(h: SweepHeader, code: PullbackCode, items, start, inputs):
    """Say where arguments and cotangents are; return which results have one, a bit each, -1 where Python has to act."""
    i, which, slot, registry = 0, 0, word(items, start), h.tape.registry
    while i < inputs:
        value = ArrayObject(word(items, start + 2 + inputs + i))
        place = value + HEADER
        if load_i8(value + 8) != registry.float_type:
            place = value.data if value.flags & A_SIMPLE == A_SIMPLE else 0
        if place == 0:
            return -1
        store_i8(code.table + 8 * i, place)
        i += 1
    for k in range(code.results):
        entry = PulledResult(code + 8 * (PullbackCode.SIZE + PulledResult.SIZE * k))
        bucket = Bucket(arrived(h, slot + entry.slot))
        which |= 1 << k if bucket != 0 else 0
        store_i8(code.table + 8 * (inputs + k), bucket.pointer if bucket != 0 else entry.place)
    return which


def give_all(h: SweepHeader, block: FormBlock, slot, operands, which, results, count):
    """Give operands the gradients that a program has computed, and let go of its results'; MEMORY or OK."""
    entry, i, inputs = PulledOperand(results + 8 * PulledResult.SIZE * count), 0, block.inputs
    while i < inputs:
        key = word(operands, i)
        input_block = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * i)
        reached = key != 0 and entry.reaches & which != 0
        if reached and give_to(h, input_block, key, entry.place, entry.count, 1.0) != structs.OK:
            return structs.MEMORY
        entry += 8 * PulledOperand.SIZE
        i += 1
    for k in range(count):
        release(h, slot + PulledResult(results + 8 * PulledResult.SIZE * k).slot)
    return structs.OK


def rerun(h: SweepHeader, last, block: FormBlock):
    """Run a program forward and back by machine code; MEMORY, OK, or PAUSE where Python has to do it."""
    items, code, start = h.tape.words, PullbackCode(table_of(h, last + 1)), last + 1 - block.entries
    if code.run == 0 or load_i8(code.busy) != 0:
        return structs.PAUSE
    which = fill_places(h, code, items, start, block.inputs)
    if which < 0 or (which != 0 and call_word(code.run, code.table) >= 0):
        return structs.PAUSE
    results = code + 8 * PullbackCode.SIZE
    return give_all(h, block, items[start], items + 8 * (start + 1), which, results, code.results)


def run_back(h: SweepHeader, last, block: FormBlock):
    """Run a program back; MEMORY, OK, or PAUSE where Python has to do it."""
    items, table = h.tape.words, PullbackRun(table_of(h, last))
    kept, size = ArrayObject(items[last - 1]).data, table.bytes
    if load_i8(kept + size) != 0:
        return structs.PAUSE
    copy_bytes(table.memory, kept, size)
    slot = items[last - block.entries + 1]
    which = enter(h, table, slot)
    if which != 0:
        run(table.rows, 0, table.row_count)
        operands, results = items + 8 * (last + 2 - block.entries), table + 8 * PullbackRun.SIZE
        return give_all(h, block, slot, operands, which, results, table.results)
    return structs.OK
