"""Blocks of memory between canaries, for TAPE_DEBUG: of C's heap in place of Python's, and of the pool.

Before a block stand its size, its neighbours in the list of live blocks, its kind, and canaries; behind it more
canaries. They are checked when the block is freed, when it grows, and on request. A block that grows always moves, and
a freed block is overwritten, so that the use of an old address is detected.
"""

from __future__ import annotations

from kernels.language.llvm_values import Void, Word
from kernels.native.memory import (
    allocate,
    call_one,
    call_two,
    copy_bytes,
    load_i8,
    module_words,
    pointer_b1,
    release,
    set_bytes,
    store_i8,
    swap,
)
from kernels.native.structs import (
    BEHIND,
    BEHIND_BYTE,
    CANARY,
    FREED_BYTE,
    GIVEN_TWICE,
    GUARD,
    POOLED,
    RAW_BLOCK,
    WRITTEN_AFTER,
    WRITTEN_BEFORE,
    WRITTEN_BEHIND,
    GuardedBlock,
    GuardWords,
    PoolBlock,
)

_words = module_words(GuardWords.SIZE)


def words() -> int:
    """Where our own words are."""
    return _words()


def enter():
    while swap(words() + 8 * GuardWords.lock, 1) != 0:
        pass


def leave():
    swap(words() + 8 * GuardWords.lock, 0)


def fault(base: GuardedBlock, kind):
    """What is wrong with a block; 0: nothing."""
    for at in range(GuardedBlock.canaries, GUARD, 8):
        if load_i8(base + at) != CANARY ^ (base + at):
            freed = base.kind == 0
            return GIVEN_TWICE if freed else WRITTEN_BEFORE
    if base.kind != kind:
        return WRITTEN_BEFORE
    end = pointer_b1(base + GUARD + base.size)
    for k in range(BEHIND):
        if end[k] != BEHIND_BYTE:
            return WRITTEN_BEHIND
    return 0


def guarded(base: GuardedBlock, size, kind):
    """Put canaries around a new block, and link it into the list of live blocks; return where its data begins."""
    if base == 0:
        return 0
    base.size = size
    base.kind = kind
    for at in range(GuardedBlock.canaries, GUARD, 8):
        store_i8(base + at, CANARY ^ (base + at))
    set_bytes(base + GUARD, 255, size)  # NaN
    set_bytes(base + GUARD + size, BEHIND_BYTE, BEHIND)
    enter()
    after = GuardedBlock(GuardWords(words()).living)
    base.next = after
    base.previous = 0
    if after != 0:
        after.previous = base
    GuardWords(words()).living = base
    leave()
    return base + GUARD


def looked_at(block, kind):
    """Where a guarded block begins; a fault is reported, which ends the process."""
    base = block - GUARD
    wrong = fault(base, kind)
    if wrong != 0:
        call_two(GuardWords(words()).report, block, wrong)
    return base


def bared(block, kind):
    """Unlink a block from the list of live blocks and overwrite it; return where it begins."""
    base = GuardedBlock(looked_at(block, kind))
    enter()
    after, before = GuardedBlock(base.next), base.previous
    store_i8(before + GuardedBlock.next if before != 0 else words() + 8 * GuardWords.living, after)
    if after != 0:
        after.previous = before
    leave()
    base.kind = 0
    set_bytes(base + GuardedBlock.canaries, FREED_BYTE, GUARD - GuardedBlock.canaries + base.size)
    return base


def broken() -> int:
    """The first live block whose canaries have been overwritten; 0: none."""
    enter()
    base, guard = GuardedBlock(GuardWords(words()).living), 0
    while base != 0 and guard == 0:
        if fault(base, base.kind) != 0:
            guard = base + GUARD
        else:
            base = base.next
    leave()
    return guard


def wrong_with(block: int) -> int:
    """What is wrong with a live block."""
    return fault(block - GUARD, GuardedBlock(block - GUARD).kind)


def raw_malloc(size: Word) -> Word:
    return guarded(allocate(size + GUARD + BEHIND), size, RAW_BLOCK)


def raw_calloc(count: Word, item: Word) -> Word:
    block = guarded(allocate(count * item + GUARD + BEHIND), count * item, RAW_BLOCK)
    if block != 0:
        set_bytes(block, 0, count * item)
    return block


def raw_free(block: Word) -> Void:
    if block != 0:
        release(bared(block, RAW_BLOCK))


def raw_realloc(block: Word, size: Word) -> Word:
    moved = guarded(allocate(size + GUARD + BEHIND), size, RAW_BLOCK)
    if block != 0 and moved != 0:
        copy_bytes(moved, block, min(size, GuardedBlock(looked_at(block, RAW_BLOCK)).size))
        release(bared(block, RAW_BLOCK))
    return moved


def take(size: Word) -> Word:
    """A block of the pool. If it is reused, it must still be as it was overwritten when it was freed."""
    reused = load_i8(GuardWords(words()).reused)
    base = PoolBlock(call_one(GuardWords(words()).take, size + GUARD + BEHIND))
    if base != 0 and load_i8(GuardWords(words()).reused) != reused:
        for at in range(0, base.size, 8):
            if load_i8(base + at) != -1:
                call_two(GuardWords(words()).report, base + at, WRITTEN_AFTER)
    return guarded(base, size, POOLED)


def give(block: Word) -> Void:
    if block != 0:
        call_one(GuardWords(words()).give, bared(block, POOLED))


def numpy_malloc(context: Word, size: Word) -> Word:
    return take(size)


def numpy_calloc(context: Word, count: Word, item: Word) -> Word:
    if item != 0 and count * item // item != count:
        return 0
    block = take(count * item)
    if block != 0:
        set_bytes(block, 0, count * item)
    return block


def numpy_realloc(context: Word, block: Word, size: Word) -> Word:
    moved = take(size)
    if block != 0 and moved != 0:
        copy_bytes(moved, block, min(size, GuardedBlock(looked_at(block, POOLED)).size))
        give(block)
    return moved


def numpy_free(context: Word, block: Word, size: Word) -> Void:
    give(block)
