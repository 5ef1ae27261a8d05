"""A snapshot of a tape, taken while no other thread records or drops. See kernels/debug/checks.py."""

from __future__ import annotations

from kernels.native.memory import load_i4, store_i8, word
from kernels.native.python_api import tape_registry
from kernels.native.tape.tape_native import chunk_of, count_of, tape_of
from kernels.native.words import (
    C_COUNTS,
    CHUNK,
    GONE,
    HELD,
    T_CHUNKS,
    T_DIR,
    T_NEXT,
    T_ROOM,
    T_SIZE,
    T_WORDS,
    TAPE_BITS,
    TAPE_WORDS,
)

COUNT = (1 << TAPE_BITS) - 1
CHUNK_WORDS = 1 + (C_COUNTS + 4 * CHUNK) // 8


def copied(target, source, count):
    for k in range(count):
        store_i8(target + 8 * k, word(source, k))
    return target + 8 * count


def picture(t: int, target: int, room: int) -> int:
    """Copy a tape's header, its words and its chunks, each behind its address; return how many words that takes.

    Nothing is copied where there is less room.
    """
    size, chunks = word(t, T_SIZE), word(t, T_CHUNKS)
    if size < 0 or size > word(t, T_ROOM) or chunks < 0:
        copied(target, t, TAPE_WORDS)
        return TAPE_WORDS
    wanted = TAPE_WORDS + size + chunks * CHUNK_WORDS
    if wanted > room:
        return wanted
    at = copied(copied(target, t, TAPE_WORDS), word(t, T_WORDS), size)
    for k in range(chunks):
        chunk = word(word(t, T_DIR), k)
        store_i8(at, chunk)
        if chunk != 0:
            copied(at + 8, chunk, CHUNK_WORDS - 1)
        at += 8 * CHUNK_WORDS
    return wanted


def holders(slot: int) -> int:
    """The reference count of a slot; GONE if its tape or its chunk is gone, -1 if there has never been such a slot."""
    t = tape_of(tape_registry(), slot)
    if t == 0:
        return GONE
    if slot & COUNT >= word(t, T_NEXT):
        return -1
    chunk = chunk_of(t, slot)
    return load_i4(count_of(chunk, slot)) & HELD if chunk != 0 else GONE
