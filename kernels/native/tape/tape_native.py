"""The tape in native code: a block of words, which owns what its saved words point to, and counts of who has a slot.

An instruction is its result's slot, its operands, its saved values and the number of its form: the tape is read from
the end. An operand is 0, a slot, or the address of a leaf turned negative. kernels/native/words.py names the words.
"""

from __future__ import annotations

from kernels.native.memory import load_i4, load_i8, store_i4, store_i8, word
from kernels.native.python_api import PyMem_RawCalloc, PyMem_RawRealloc
from kernels.native.words import (
    A_DATA,
    ARRAY,
    B_ENTRIES,
    B_FIRST,
    B_INPUTS,
    B_SAVED,
    C_COUNTS,
    C_HELD,
    C_START,
    CHUNK,
    CHUNK_BITS,
    FIRST_ROOM,
    G_FORMS,
    G_TAPES,
    GONE,
    HELD,
    I_WORDS,
    T_CHUNKS,
    T_COUNT,
    T_DEAD,
    T_DIR,
    T_DIRROOM,
    T_FIRST,
    T_NEXT,
    T_NUMBER,
    T_OWNED,
    T_REGISTRY,
    T_ROOM,
    T_SIZE,
    T_WORDS,
    TAPE_BITS,
)

COUNT = (1 << TAPE_BITS) - 1


def block_at(t, last):
    """The block of the form whose instruction ends here."""
    return word(word(word(t, T_REGISTRY), G_FORMS), word(word(t, T_WORDS), last))


def tape_of(registry, slot):
    """The header of the tape of a slot; 0 if it is gone."""
    return word(word(registry, G_TAPES), slot >> TAPE_BITS)


def chunk_of(t, slot):
    """The chunk that counts who has a slot; 0 if it is gone."""
    at = ((slot & COUNT) >> CHUNK_BITS) - word(t, T_FIRST)
    return word(word(t, T_DIR), at) if at >= 0 and at < word(t, T_CHUNKS) else 0


def count_of(chunk, slot):
    """Where the count of a slot stands in its chunk."""
    return chunk + C_COUNTS + 4 * (slot & (CHUNK - 1))


def hold(registry, slot):
    """Count one more owner of a slot: a tensor, or an instruction on another tape."""
    t = tape_of(registry, slot)
    chunk = chunk_of(t, slot) if t != 0 else 0
    if chunk != 0:
        at = count_of(chunk, slot)
        store_i4(at, load_i4(at) + 1)
        store_i8(chunk + C_HELD, load_i8(chunk + C_HELD) + 1)


def let_go(registry, slot):
    """Count one owner less."""
    t = tape_of(registry, slot)
    chunk = chunk_of(t, slot) if t != 0 else 0
    if chunk != 0:
        at = count_of(chunk, slot)
        count = load_i4(at) - 1
        store_i4(at, count)
        store_i8(chunk + C_HELD, load_i8(chunk + C_HELD) - 1)
        if count & (HELD | GONE) == 0:
            store_i8(t + 8 * T_DEAD, word(t, T_DEAD) + 1)


def reserve(t, count):
    """Make room for so many words, and for a slot; 0 without memory."""
    room, wanted = word(t, T_ROOM), word(t, T_SIZE) + count
    if wanted > room:
        room = max(wanted, room + room // 2 + FIRST_ROOM)
        if room > word(t, T_OWNED):
            block = PyMem_RawRealloc(word(t, T_WORDS), 8 * room)
            if block == 0:
                return 0
            store_i8(t + 8 * T_WORDS, block)
            store_i8(t + 8 * T_OWNED, room)
        store_i8(t + 8 * T_ROOM, room)
    at = (word(t, T_NEXT) >> CHUNK_BITS) - word(t, T_FIRST)
    if at >= word(t, T_CHUNKS):
        if at >= word(t, T_DIRROOM):
            block = PyMem_RawRealloc(word(t, T_DIR), 16 * (at + 8))
            if block == 0:
                return 0
            store_i8(t + 8 * T_DIR, block)
            store_i8(t + 8 * T_DIRROOM, 2 * (at + 8))
        chunk = PyMem_RawCalloc(1, C_COUNTS + 4 * CHUNK)
        if chunk == 0:
            return 0
        store_i8(chunk + C_START, word(t, T_SIZE))
        store_i8(word(t, T_DIR) + 8 * at, chunk)
        store_i8(t + 8 * T_CHUNKS, at + 1)
    return 1


def commit(t, count):
    """Take the words that have been written behind the last for an instruction; return its slot."""
    size = word(t, T_SIZE)
    slot = (word(t, T_NUMBER) << TAPE_BITS) | word(t, T_NEXT)
    store_i8(word(t, T_WORDS) + 8 * size, slot)
    store_i8(t + 8 * T_SIZE, size + count)
    store_i8(t + 8 * T_NEXT, word(t, T_NEXT) + 1)
    store_i8(t + 8 * T_COUNT, word(t, T_COUNT) + 1)
    hold(word(t, T_REGISTRY), slot)
    return slot


def seek(t, slot):
    """The end of the last instruction whose slot is at most this: slots ascend along the tape."""
    position = word(t, T_SIZE)
    if slot >> TAPE_BITS == word(t, T_NUMBER):
        at = max(((slot & COUNT) >> CHUNK_BITS) + 1 - word(t, T_FIRST), 0)
        while at < word(t, T_CHUNKS) and word(word(t, T_DIR), at) == 0:
            at += 1
        if at < word(t, T_CHUNKS):
            position = load_i8(word(word(t, T_DIR), at) + C_START)
    while position > 0:
        start = position - word(block_at(t, position - 1), B_ENTRIES)
        if word(word(t, T_WORDS), start) <= slot:
            break
        position = start
    return position


def point_at(saved, block, pointers):
    """Write the addresses of saved values side by side: of the word of a double, of the data of an array."""
    kinds = block + 8 * (B_FIRST + I_WORDS * word(block, B_INPUTS))
    j = 0
    while j < word(block, B_SAVED):  # a function with a `for` is a call
        place = saved + 8 * j
        store_i8(pointers + 8 * j, load_i8(load_i8(place) + A_DATA) if word(kinds, j) == ARRAY else place)
        j += 1
