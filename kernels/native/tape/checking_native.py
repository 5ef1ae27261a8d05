"""A snapshot of a tape, taken while no other thread records or drops. See kernels/debug/checks.py."""

from __future__ import annotations

from kernels.native.memory import load_i4, store_i8, word
from kernels.native.python_api import tape_registry
from kernels.native.tape.tape_native import COUNT, chunk_of, count_of, tape_of
from kernels.native.tape_structs import CHUNK, GONE, HELD, Chunk, TapeHeader

CHUNK_WORDS = 1 + (Chunk.SIZE + 4 * CHUNK) // 8


def copied(target, source, count):
    for k in range(count):
        store_i8(target + 8 * k, word(source, k))
    return target + 8 * count


def picture(t: TapeHeader, target: int, room: int) -> int:
    """Copy a tape's header, its words and its chunks, each behind its address; return how many words that takes.

    Nothing is copied where there is less room.
    """
    size, chunks = t.size, t.chunks
    if size < 0 or size > t.room or chunks < 0:
        copied(target, t, TapeHeader.SIZE)
        return TapeHeader.SIZE
    wanted = TapeHeader.SIZE + size + chunks * CHUNK_WORDS
    if wanted > room:
        return wanted
    at = copied(copied(target, t, TapeHeader.SIZE), t.words, size)
    for k in range(chunks):
        chunk = t.directory[k]
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
    if slot & COUNT >= t.next:
        return -1
    chunk = chunk_of(t, slot)
    return load_i4(count_of(chunk, slot)) & HELD if chunk != 0 else GONE
