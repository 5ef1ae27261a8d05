"""The tape in native code: a block of words, which owns what its saved words point to, and counts of who has a slot.

An instruction is its result's slot, its operands, its saved values and the number of its form: the tape is read from
the end. An operand is 0, a slot, or the address of a leaf turned negative.
"""

from __future__ import annotations

from kernels.native.memory import load_i4, load_i8, store_i4, store_i8, word
from kernels.native.object_structs import ArrayObject
from kernels.native.python_api import PyMem_RawCalloc, PyMem_RawRealloc
from kernels.native.tape_structs import (
    ARRAY,
    CHUNK,
    CHUNK_BITS,
    FIRST_ROOM,
    GONE,
    HELD,
    TAPE_BITS,
    Chunk,
    FormBlock,
    InputBlock,
    RegistryTable,
    TapeHeader,
)

COUNT = (1 << TAPE_BITS) - 1


def block_at(t: TapeHeader, last):
    """The block of the form whose instruction ends here."""
    return t.registry.forms[t.words[last]]


def tape_of(registry: RegistryTable, slot):
    """The header of the tape of a slot; 0 if it is gone."""
    return registry.tapes[slot >> TAPE_BITS]


def chunk_of(t: TapeHeader, slot):
    """The chunk that counts who has a slot; 0 if it is gone."""
    at = ((slot & COUNT) >> CHUNK_BITS) - t.first_chunk
    return t.directory[at] if at >= 0 and at < t.chunks else 0


def count_of(chunk, slot):
    """Where the count of a slot stands in its chunk."""
    return chunk + Chunk.SIZE + 4 * (slot & (CHUNK - 1))


def hold(registry, slot):
    """Count one more owner of a slot: a tensor, or an instruction on another tape."""
    t = tape_of(registry, slot)
    chunk = Chunk(chunk_of(t, slot) if t != 0 else 0)
    if chunk != 0:
        at = count_of(chunk, slot)
        store_i4(at, load_i4(at) + 1)
        chunk.held += 1


def let_go(registry, slot):
    """Count one owner less."""
    t = tape_of(registry, slot)
    chunk = Chunk(chunk_of(t, slot) if t != 0 else 0)
    if chunk != 0:
        at = count_of(chunk, slot)
        count = load_i4(at) - 1
        store_i4(at, count)
        chunk.held -= 1
        if count & (HELD | GONE) == 0:
            t.dead += 1


def reserve(t: TapeHeader, count):
    """Make room for so many words, and for a slot; 0 without memory."""
    room, wanted = t.room, t.size + count
    if wanted > room:
        room = max(wanted, room + room // 2 + FIRST_ROOM)
        if room > t.owned:
            block = PyMem_RawRealloc(t.words, 8 * room)
            if block == 0:
                return 0
            t.words = block
            t.owned = room
        t.room = room
    at = (t.next >> CHUNK_BITS) - t.first_chunk
    if at >= t.chunks:
        if at >= t.directory_room:
            block = PyMem_RawRealloc(t.directory, 16 * (at + 8))
            if block == 0:
                return 0
            t.directory = block
            t.directory_room = 2 * (at + 8)
        chunk = Chunk(PyMem_RawCalloc(1, Chunk.SIZE + 4 * CHUNK))
        if chunk == 0:
            return 0
        chunk.start = t.size
        t.directory[at] = chunk
        t.chunks = at + 1
    return 1


def commit(t: TapeHeader, count):
    """Take the words that have been written behind the last for an instruction; return its slot."""
    size = t.size
    slot = (t.number << TAPE_BITS) | t.next
    t.words[size] = slot
    t.size = size + count
    t.next += 1
    t.count += 1
    hold(t.registry, slot)
    return slot


def seek(t: TapeHeader, slot):
    """The end of the last instruction whose slot is at most this: slots ascend along the tape."""
    position = t.size
    if slot >> TAPE_BITS == t.number:
        at = max(((slot & COUNT) >> CHUNK_BITS) + 1 - t.first_chunk, 0)
        while at < t.chunks and t.directory[at] == 0:
            at += 1
        if at < t.chunks:
            position = t.directory[at].start
    while position > 0:
        start = position - block_at(t, position - 1).entries
        if t.words[start] <= slot:
            break
        position = start
    return position


def point_at(saved, block: FormBlock, pointers):
    """Write the addresses of saved values side by side: of the word of a double, of the data of an array."""
    kinds = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * block.inputs)
    j = 0
    while j < block.saved:  # a function with a `for` is a call
        place = saved + 8 * j
        store_i8(pointers + 8 * j, ArrayObject(load_i8(place)).data if word(kinds, j) == ARRAY else place)
        j += 1
