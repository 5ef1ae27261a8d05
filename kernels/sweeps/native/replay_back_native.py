"""A program among instructions: from the memory of its forward and the cotangents of its results back to its operands.

Nothing here runs Python or lets other threads run, so that one machine serves all calls of a program.
"""

from __future__ import annotations

from kernels.native.memory import load_i8, store_i8, word
from kernels.native.pool.pool_calls import copy_bytes
from kernels.native.words import (
    A_DATA,
    ALIAS,
    B_ENTRIES,
    B_FIRST,
    B_INPUTS,
    CONSTANT_WANTED,
    H_BUCKETS,
    H_MASK,
    H_NEAR,
    H_RESTRICT,
    H_STAMP,
    H_TAPE,
    H_TOP,
    I_BUFFER,
    I_COVERS,
    I_ITEM,
    I_KERNEL,
    I_WORDS,
    KEPT,
    MEMORY,
    OK,
    OWNED,
    PAUSE,
    RELEVANT,
    T_WORDS,
    TOUCHED,
    USED,
)
from kernels.programs.running.pullback_words import (
    PA_COUNT,
    PA_ENTRY,
    PA_PLACE,
    PA_REACHES,
    PB_BYTES,
    PB_FIRST,
    PB_MEMORY,
    PB_RESULTS,
    PB_ROW_COUNT,
    PB_ROWS,
    PB_WORK,
    PR_COUNT,
    PR_ENTRY,
    PR_ITEM,
    PR_PLACE,
    PR_SLOT,
    REPLAYED,
)
from kernels.programs.running.replay_native import run
from kernels.sweeps.native.gradient_table_native import bucket_of, drop, family, fill, fold, gradient_buffer

CONTROL = True


def role(block):
    """What a form that Python runs is besides: a call of a program, a result of one, or 0."""
    return word(block + 8 * B_FIRST, I_KERNEL) if word(block, B_INPUTS) > 0 else 0


def table_of(h, last):
    """The words of the program whose call ends here."""
    return load_i8(word(word(word(h, H_TAPE), T_WORDS), last - 2) + A_DATA)


def slot_of(h, last, block):
    """The slot of the instruction that ends here."""
    return word(word(word(h, H_TAPE), T_WORDS), last - word(block, B_ENTRIES) + 1)


def arrived(h: int, slot: int) -> int:
    """The bucket of a slot, if this sweep has brought it a gradient; else 0."""
    top, near = word(h, H_TOP), word(h, H_NEAR)
    bucket = bucket_of(word(h, H_BUCKETS), word(h, H_MASK), top, near, slot)
    known = word(h, H_STAMP) if (top - slot) & -near == 0 else slot
    return bucket if load_i8(bucket) == known and load_i8(bucket + 24) & (USED | TOUCHED) == USED | TOUCHED else 0


def enter(h, table, slot):
    """Put the cotangents of the results into the machine's memory; return which have one, a bit each."""
    which, k = 0, 0
    while k < word(table, PB_RESULTS):
        entry = table + 8 * (PB_FIRST + PR_ENTRY * k)
        place, count, item = word(entry, PR_PLACE), word(entry, PR_COUNT), word(entry, PR_ITEM)
        bucket = arrived(h, slot + word(entry, PR_SLOT))
        if bucket != 0:
            copy_bytes(place, load_i8(bucket + 8), count * item)
            which |= 1 << k
        else:
            fill(place, count, item, -0.0)
        k += 1
    return which


def give_to(h, input_block, key, entry):
    """Add the gradient of an operand to its buffer; MEMORY or OK."""
    buckets, offset, item = word(h, H_BUCKETS), 0, word(input_block, I_ITEM)
    target = bucket_of(buckets, word(h, H_MASK), word(h, H_TOP), word(h, H_NEAR), key)
    flags = load_i8(target + 24)
    if word(h, H_RESTRICT) != 0 and flags & RELEVANT == 0:
        return OK
    if flags & ALIAS:
        offset = load_i8(target + 16)
        target = family(target, buckets)
    covers = word(input_block, I_COVERS)
    first = load_i8(target + 24) & TOUCHED == 0
    pointer = gradient_buffer(target, buckets, word(input_block, I_BUFFER), item, covers)
    if pointer == 0:
        return MEMORY
    store_i8(target + 24, load_i8(target + 24) & ~CONSTANT_WANTED)
    if first and covers != 0:
        copy_bytes(pointer, word(entry, PA_PLACE), word(entry, PA_COUNT) * item)
    else:
        fold(pointer + offset, word(entry, PA_PLACE), word(entry, PA_COUNT), item)
    return OK


def release(h: int, slot: int) -> None:
    """Free the gradient that this sweep has brought a slot: a result's is kept until its call has run."""
    bucket = arrived(h, slot)
    if bucket != 0 and load_i8(bucket + 24) & (OWNED | KEPT | ALIAS) == OWNED:
        drop(bucket)


def release_results(h, table, slot):
    """Free the gradients of the results of the call with this slot."""
    k = 0
    while k < word(table, PB_RESULTS):
        release(h, slot + word(table + 8 * (PB_FIRST + PR_ENTRY * k), PR_SLOT))
        k += 1


def work_of(h, last, block):
    """How many elements a program computes on its way back; 0 of anything else."""
    return word(table_of(h, last), PB_WORK) if role(block) == REPLAYED else 0


def run_back(h, last, block):
    """Run a program back; MEMORY, OK, or PAUSE where Python has to do it."""
    items, table = word(word(h, H_TAPE), T_WORDS), table_of(h, last)
    kept, size, inputs = load_i8(word(items, last - 1) + A_DATA), word(table, PB_BYTES), word(block, B_INPUTS)
    if load_i8(kept + size) != 0:
        return PAUSE
    copy_bytes(word(table, PB_MEMORY), kept, size)
    slot = slot_of(h, last, block)
    which = enter(h, table, slot)
    if which != 0:
        run(word(table, PB_ROWS), 0, word(table, PB_ROW_COUNT))
        operands = items + 8 * (last + 2 - word(block, B_ENTRIES))
        entry, i = table + 8 * (PB_FIRST + PR_ENTRY * word(table, PB_RESULTS)), 0
        while i < inputs:
            key = word(operands, i)
            reached = key != 0 and word(entry, PA_REACHES) & which != 0
            if reached and give_to(h, block + 8 * (B_FIRST + I_WORDS * i), key, entry) != OK:
                return MEMORY
            entry += 8 * PA_ENTRY
            i += 1
        release_results(h, table, slot)
    return OK
