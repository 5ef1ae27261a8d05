"""A program among instructions: from the memory of its forward and the cotangents of its results back to its operands.

Nothing here runs Python or lets other threads run, so that one machine serves all calls of a program.
"""

from __future__ import annotations

from kernels.native.memory import load_i8, word
from kernels.native.object_structs import ArrayObject
from kernels.native.pool.pool_calls import copy_bytes
from kernels.native.tape_structs import (
    ALIAS,
    CONSTANT_WANTED,
    KEPT,
    MEMORY,
    OK,
    OWNED,
    PAUSE,
    RELEVANT,
    TOUCHED,
    USED,
    Bucket,
    FormBlock,
    InputBlock,
    SweepHeader,
)
from kernels.programs.running.pullback_structs import REPLAYED, PullbackRun, PulledOperand, PulledResult
from kernels.programs.running.replay_native import run
from kernels.sweeps.native.gradient_table_native import bucket_of, drop, family, fill, fold, gradient_buffer

CONTROL = True


def role(block: FormBlock):
    """What a form that Python runs is besides: a call of a program, a result of one, or 0."""
    return InputBlock(block + 8 * FormBlock.SIZE).kernel if block.inputs > 0 else 0


def table_of(h: SweepHeader, last):
    """The words of the program whose call ends here."""
    return ArrayObject(h.tape.words[last - 2]).data


def slot_of(h: SweepHeader, last, block: FormBlock):
    """The slot of the instruction that ends here."""
    return h.tape.words[last - block.entries + 1]


def arrived(h: SweepHeader, slot: int) -> int:
    """The bucket of a slot, if this sweep has brought it a gradient; else 0."""
    top, near = h.top, h.near
    bucket = Bucket(bucket_of(h.buckets, h.mask, top, near, slot))
    known = h.stamp if (top - slot) & -near == 0 else slot
    return bucket if bucket.key == known and bucket.flags & (USED | TOUCHED) == USED | TOUCHED else 0


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


def give_to(h: SweepHeader, input_block: InputBlock, key, entry: PulledOperand):
    """Add the gradient of an operand to its buffer; MEMORY or OK."""
    buckets, offset, item = h.buckets, 0, input_block.item
    target = Bucket(bucket_of(buckets, h.mask, h.top, h.near, key))
    flags = target.flags
    if h.restrict != 0 and flags & RELEVANT == 0:
        return OK
    if flags & ALIAS:
        offset = target.value
        target = family(target, buckets)
    covers = input_block.covers
    first = target.flags & TOUCHED == 0
    pointer = gradient_buffer(target, buckets, input_block.buffer, item, covers)
    if pointer == 0:
        return MEMORY
    target.flags &= ~CONSTANT_WANTED
    if first and covers != 0:
        copy_bytes(pointer, entry.place, entry.count * item)
    else:
        fold(pointer + offset, entry.place, entry.count, item)
    return OK


def release(h: int, slot: int) -> None:
    """Free the gradient that this sweep has brought a slot: a result's is kept until its call has run."""
    bucket = Bucket(arrived(h, slot))
    if bucket != 0 and bucket.flags & (OWNED | KEPT | ALIAS) == OWNED:
        drop(bucket)


def release_results(h, table: PullbackRun, slot):
    """Free the gradients of the results of the call with this slot."""
    k = 0
    while k < table.results:
        release(h, slot + PulledResult(table + 8 * (PullbackRun.SIZE + PulledResult.SIZE * k)).slot)
        k += 1


def work_of(h, last, block):
    """How many elements a program computes on its way back; 0 of anything else."""
    return PullbackRun(table_of(h, last)).work if role(block) == REPLAYED else 0


def run_back(h: SweepHeader, last, block: FormBlock):
    """Run a program back; MEMORY, OK, or PAUSE where Python has to do it."""
    items, table = h.tape.words, PullbackRun(table_of(h, last))
    kept, size, inputs = ArrayObject(items[last - 1]).data, table.bytes, block.inputs
    if load_i8(kept + size) != 0:
        return PAUSE
    copy_bytes(table.memory, kept, size)
    slot = slot_of(h, last, block)
    which = enter(h, table, slot)
    if which != 0:
        run(table.rows, 0, table.row_count)
        operands = items + 8 * (last + 2 - block.entries)
        entry, i = PulledOperand(table + 8 * (PullbackRun.SIZE + PulledResult.SIZE * table.results)), 0
        while i < inputs:
            key = word(operands, i)
            reached = key != 0 and entry.reaches & which != 0
            if reached and give_to(h, block + 8 * (FormBlock.SIZE + InputBlock.SIZE * i), key, entry) != OK:
                return MEMORY
            entry += 8 * PulledOperand.SIZE
            i += 1
        release_results(h, table, slot)
    return OK
