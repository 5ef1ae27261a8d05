"""Blocks of memory between canaries, for TAPE_DEBUG: of C's heap in place of Python's, and of the pool.

Before a block stand its size, its neighbours in the list of live blocks, its kind, and canaries; behind it more
canaries. They are checked when the block is freed, when it grows, and on request. A block that grows always moves, and
a freed block is overwritten, so that the use of an old address is detected.
"""

from __future__ import annotations

from kernels.compiler.signatures import Void, Word
from kernels.native.memory import allocate, load_i8, pointer_b1, release, store_i8, word
from kernels.native.pool.pool_calls import call_one, call_two, copy_bytes, module_words, set_bytes, swap
from kernels.native.pool.pool_words import (
    BEHIND,
    BEHIND_BYTE,
    CANARIES,
    CANARY,
    FREED_BYTE,
    G_GIVE,
    G_LIVING,
    G_LOCK,
    G_REPORT,
    G_REUSED,
    G_TAKE,
    G_WORDS,
    GIVEN_TWICE,
    GUARD,
    GUARD_KIND,
    GUARD_NEXT,
    GUARD_PREVIOUS,
    GUARD_SIZE,
    POOLED,
    RAW_BLOCK,
    SIZE,
    WRITTEN_AFTER,
    WRITTEN_BEFORE,
    WRITTEN_BEHIND,
)

_words = module_words(G_WORDS)


def words() -> int:
    """Where our own words are."""
    return _words()


def enter():
    while swap(words() + 8 * G_LOCK, 1) != 0:
        pass


def leave():
    swap(words() + 8 * G_LOCK, 0)


def fault(base, kind):
    """What is wrong with a block; 0: nothing."""
    for at in range(CANARIES, GUARD, 8):
        if load_i8(base + at) != CANARY ^ (base + at):
            freed = load_i8(base + GUARD_KIND) == 0
            return GIVEN_TWICE if freed else WRITTEN_BEFORE
    if load_i8(base + GUARD_KIND) != kind:
        return WRITTEN_BEFORE
    end = pointer_b1(base + GUARD + load_i8(base + GUARD_SIZE))
    for k in range(BEHIND):
        if end[k] != BEHIND_BYTE:
            return WRITTEN_BEHIND
    return 0


def guarded(base, size, kind):
    """Put canaries around a new block, and link it into the list of live blocks; return where its data begins."""
    if base == 0:
        return 0
    store_i8(base + GUARD_SIZE, size)
    store_i8(base + GUARD_KIND, kind)
    for at in range(CANARIES, GUARD, 8):
        store_i8(base + at, CANARY ^ (base + at))
    set_bytes(base + GUARD, 255, size)  # NaN
    set_bytes(base + GUARD + size, BEHIND_BYTE, BEHIND)
    enter()
    after = word(words(), G_LIVING)
    store_i8(base + GUARD_NEXT, after)
    store_i8(base + GUARD_PREVIOUS, 0)
    if after != 0:
        store_i8(after + GUARD_PREVIOUS, base)
    store_i8(words() + 8 * G_LIVING, base)
    leave()
    return base + GUARD


def looked_at(block, kind):
    """Where a guarded block begins; a fault is reported, which ends the process."""
    base = block - GUARD
    wrong = fault(base, kind)
    if wrong != 0:
        call_two(word(words(), G_REPORT), block, wrong)
    return base


def bared(block, kind):
    """Unlink a block from the list of live blocks and overwrite it; return where it begins."""
    base = looked_at(block, kind)
    enter()
    after, before = load_i8(base + GUARD_NEXT), load_i8(base + GUARD_PREVIOUS)
    store_i8(before + GUARD_NEXT if before != 0 else words() + 8 * G_LIVING, after)
    if after != 0:
        store_i8(after + GUARD_PREVIOUS, before)
    leave()
    store_i8(base + GUARD_KIND, 0)
    set_bytes(base + CANARIES, FREED_BYTE, GUARD - CANARIES + load_i8(base + GUARD_SIZE))
    return base


def broken() -> int:
    """The first live block whose canaries have been overwritten; 0: none."""
    enter()
    base, guard = word(words(), G_LIVING), 0
    while base != 0 and guard == 0:
        if fault(base, load_i8(base + GUARD_KIND)) != 0:
            guard = base + GUARD
        else:
            base = load_i8(base + GUARD_NEXT)
    leave()
    return guard


def wrong_with(block: int) -> int:
    """What is wrong with a live block."""
    return fault(block - GUARD, load_i8(block - GUARD + GUARD_KIND))


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
        copy_bytes(moved, block, min(size, load_i8(looked_at(block, RAW_BLOCK) + GUARD_SIZE)))
        release(bared(block, RAW_BLOCK))
    return moved


def take(size: Word) -> Word:
    """A block of the pool. If it is reused, it must still be as it was overwritten when it was freed."""
    reused = load_i8(word(words(), G_REUSED))
    base = call_one(word(words(), G_TAKE), size + GUARD + BEHIND)
    if base != 0 and load_i8(word(words(), G_REUSED)) != reused:
        for at in range(0, load_i8(base + SIZE), 8):
            if load_i8(base + at) != -1:
                call_two(word(words(), G_REPORT), base + at, WRITTEN_AFTER)
    return guarded(base, size, POOLED)


def give(block: Word) -> Void:
    if block != 0:
        call_one(word(words(), G_GIVE), bared(block, POOLED))


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
        copy_bytes(moved, block, min(size, load_i8(looked_at(block, POOLED) + GUARD_SIZE)))
        give(block)
    return moved


def numpy_free(context: Word, block: Word, size: Word) -> Void:
    give(block)
