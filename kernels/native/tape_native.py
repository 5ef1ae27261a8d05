"""The tape in native memory: rows appended, slots freed, and the checks of the debug mode."""

from __future__ import annotations

from kernels.native import c_api, structs
from kernels.native.c_api import ArrayObject, tape_registry
from kernels.native.memory import load_i4, load_i8, store_i4, store_i8, word
from kernels.native.structs import Chunk, FormBlock, InputBlock, RegistryTable, TapeHeader

# An instruction is its result's slot, its operands, its saved values and the number of its form: the tape is read from
# the end. An operand is 0, a slot, or the address of a leaf turned negative.

COUNT = (1 << structs.TAPE_BITS) - 1


def block_at(t: TapeHeader, last):
    """The block of the form whose instruction ends here."""
    return t.registry.forms[t.words[last]]


def tape_of(registry: RegistryTable, slot):
    """The header of the tape of a slot; 0 if it is gone."""
    return registry.tapes[slot >> structs.TAPE_BITS]


def chunk_of(t: TapeHeader, slot):
    """The chunk that counts who has a slot; 0 if it is gone."""
    at = ((slot & COUNT) >> structs.CHUNK_BITS) - t.first_chunk
    return t.directory[at] if at >= 0 and at < t.chunks else 0


def count_of(chunk, slot):
    """Where the count of a slot stands in its chunk."""
    return chunk + Chunk.SIZE + 4 * (slot & (structs.CHUNK - 1))


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
        if count & (structs.HELD | structs.GONE) == 0:
            t.dead += 1


def keep(t: TapeHeader, at, operand):
    """Write an operand's word: own a reference to a leaf, count a slot of another tape."""
    store_i8(at, operand)
    if operand < 0:
        c_api.Py_IncRef(-operand)
    elif operand > 0 and operand >> structs.TAPE_BITS != t.number:
        hold(t.registry, operand)


def reserve(t: TapeHeader, count):
    """Make room for so many words, and for a slot; 0 without memory."""
    room, wanted = t.room, t.size + count
    if wanted > room:
        room = max(wanted, room + room // 2 + structs.FIRST_ROOM)
        if room > t.owned:
            block = c_api.PyMem_RawRealloc(t.words, 8 * room)
            if block == 0:
                return 0
            t.words = block
            t.owned = room
        t.room = room
    at = (t.next >> structs.CHUNK_BITS) - t.first_chunk
    if at >= t.chunks:
        if at >= t.directory_room:
            block = c_api.PyMem_RawRealloc(t.directory, 16 * (at + 8))
            if block == 0:
                return 0
            t.directory = block
            t.directory_room = 2 * (at + 8)
        chunk = Chunk(c_api.PyMem_RawCalloc(1, Chunk.SIZE + 4 * structs.CHUNK))
        if chunk == 0:
            return 0
        chunk.start = t.size
        t.directory[at] = chunk
        t.chunks = at + 1
    return 1


def commit(t: TapeHeader, count):
    """Take the words that have been written behind the last for an instruction; return its slot."""
    size = t.size
    slot = (t.number << structs.TAPE_BITS) | t.next
    t.words[size] = slot
    t.size = size + count
    t.next += 1
    t.count += 1
    hold(t.registry, slot)
    return slot


def seek(t: TapeHeader, slot):
    """The end of the last instruction whose slot is at most this: slots ascend along the tape."""
    position = t.size
    if slot >> structs.TAPE_BITS == t.number:
        at = max(((slot & COUNT) >> structs.CHUNK_BITS) + 1 - t.first_chunk, 0)
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
        store_i8(pointers + 8 * j, ArrayObject(load_i8(place)).data if word(kinds, j) == structs.ARRAY else place)
        j += 1


def disown(x, garbage, count):
    """Release a reference to an object that is not immortal; add the last one to the garbage. Return their count."""
    if load_i4(x) > 1:
        store_i8(x, load_i8(x) - 1)
        return count
    store_i8(garbage + 8 * count, x)
    return count + 1


def let_go_of(t: TapeHeader, start, block: FormBlock, garbage, count):
    """Release what an instruction owns except its form, as :func:`strip` does."""
    registry, number, inputs = t.registry, t.number, block.inputs
    kinds, at, i, j = block + 8 * (FormBlock.SIZE + InputBlock.SIZE * inputs), t.words + 8 * (start + 1), 0, 0
    while i < inputs:
        operand = load_i8(at + 8 * i)
        if operand < 0:
            count = disown(-operand, garbage, count)
        elif operand > 0 and operand >> structs.TAPE_BITS != number:
            let_go(registry, operand)
        i += 1
    at += 8 * inputs
    while j < block.saved:
        if word(kinds, j) in (structs.ARRAY, structs.OBJECT):
            count = disown(load_i8(at + 8 * j), garbage, count)
        j += 1
    return count


def strip(t: TapeHeader, start, block: FormBlock, garbage, count):
    """Release what an instruction owns, adding last references to the garbage; return the new count of garbage."""
    slot = t.words[start]
    chunk = chunk_of(t, slot)
    if chunk != 0:
        place = count_of(chunk, slot)
        held = load_i4(place)
        if held & structs.HELD == 0 and t.dead > 0:
            t.dead -= 1
        store_i4(place, held | structs.GONE)
    count = let_go_of(t, start, block, garbage, count)
    t.count -= 1
    return disown(block.form, garbage, count)


def moved(t: TapeHeader, above, position, to):
    """Update where the chunks below ``above`` begin, from this position on; return how many begin before it."""
    k = above
    while k > 0:
        chunk = t.directory[k - 1]
        if chunk != 0:
            if chunk.start < position:
                return k
            chunk.start = to
        k -= 1
    return k


def shrink(t: TapeHeader):
    """Lower the threshold for collections, and give memory back, down to what a tape begins with."""
    size, enough = t.size, max(2 * t.size + 1, structs.FIRST_ROOM)
    if t.room > 16 * structs.FIRST_ROOM and 4 * size < t.room:
        t.room = enough
        if t.owned > structs.KEPT_ROOM:
            words = c_api.PyMem_RawRealloc(t.words, 8 * enough)
            if words != 0:
                t.words = words
                t.owned = enough


def ended(t: TapeHeader, size, garbage, count):
    """End the tape here; release the garbage, which may run any Python code."""
    t.size = size
    t.moves += 1
    shrink(t)
    for k in range(count):
        c_api.Py_DecRef(word(garbage, k))
    c_api.PyMem_RawFree(garbage)


def take_out(t: TapeHeader, low):
    """Remove marked instructions from ``low`` on; return how many words, -1 without memory. May run any Python code."""
    words, size = t.words, t.size
    forms = t.registry.forms
    garbage, count = c_api.PyMem_RawMalloc(8 * (size - low + 1)), 0
    # Those kept move up to the end, so that each is read before it is overwritten; then all of them down.
    to, position, above = size, size, t.chunks
    while position > low:
        number = words[position - 1]
        block = forms[~number if number < 0 else number]
        start = position - block.entries
        if garbage == 0:
            words[position - 1] = ~number if number < 0 else number
            position = start
            continue
        above = moved(t, above, position, to)
        if number < 0:
            count = strip(t, start, block, garbage, count)
        else:
            p = position
            while p > start:
                p, to = p - 1, to - 1
                words[to] = words[p]
        position = start
    if garbage == 0:
        return -1
    gone = to - low
    above = moved(t, above, low, to)
    for k in range(above, t.chunks):
        chunk = t.directory[k]
        if chunk != 0:
            chunk.start -= gone
    for p in range(to, size):
        words[p - gone] = words[p]
    ended(t, size - gone, garbage, count)
    return gone


def disown_form(form, times, garbage, count):
    """Release ``times`` references to a form, as :func:`disown` does."""
    if load_i4(form) > times:
        store_i8(form, load_i8(form) - times)
        return count
    for _ in range(times):
        count = disown(form, garbage, count)
    return count


def cut(t: TapeHeader, low):
    """Remove all instructions from ``low`` on from the tape, as :func:`take_out` does."""
    words, size, forms = t.words, t.size, t.registry.forms
    garbage = c_api.PyMem_RawMalloc(8 * (size - low + 1))
    if garbage == 0:
        return -1
    count, position, instructions, unheld, chunk, chunk_number, form, times = 0, size, 0, 0, 0, -1, 0, 0
    while position > low:
        block = forms[words[position - 1]]
        position -= block.entries
        instructions += 1
        slot = words[position]
        if slot >> structs.CHUNK_BITS != chunk_number:
            chunk, chunk_number = chunk_of(t, slot), slot >> structs.CHUNK_BITS
        if chunk != 0:
            place = count_of(chunk, slot)
            held = load_i4(place)
            unheld += 1 if held & structs.HELD == 0 else 0
            store_i4(place, held | structs.GONE)
        count = let_go_of(t, position, block, garbage, count)
        if block.form != form:
            count = disown_form(form, times, garbage, count) if times > 0 else count
            form, times = block.form, 0
        times += 1
    count = disown_form(form, times, garbage, count) if times > 0 else count
    t.count -= instructions
    t.dead = max(t.dead - unheld, 0)
    moved(t, t.chunks, low, low)
    ended(t, low, garbage, count)
    return size - low


def mark_operands(t: TapeHeader, start, block: FormBlock):
    """Mark the slots of this tape that an instruction needs."""
    number = t.number
    for i in range(block.inputs):
        operand = t.words[start + 1 + i]
        if operand > 0 and operand >> structs.TAPE_BITS == number:
            chunk = chunk_of(t, operand)
            if chunk != 0:
                at = count_of(chunk, operand)
                if load_i4(at) & structs.GONE == 0:  # nothing would remove its mark
                    store_i4(at, load_i4(at) | structs.NEEDED)


def bury(t: TapeHeader):
    """Mark the instructions whose result nobody can reach; return where the first of them begins, -1 without any."""
    words, position, low = t.words, t.size, -1
    while position > 0:
        last = position - 1
        block = block_at(t, last)
        position -= block.entries
        slot = words[position]
        chunk = chunk_of(t, slot)
        count = 1
        if chunk != 0:
            count = load_i4(count_of(chunk, slot)) & (structs.HELD | structs.NEEDED)
            store_i4(count_of(chunk, slot), load_i4(count_of(chunk, slot)) & ~structs.NEEDED)
        if count == 0:
            words[last] = ~words[last]
            low = position
        else:
            mark_operands(t, position, block)
    return low


def free_chunks(t: TapeHeader):
    """Free the chunks of slots that nobody has, and of which no instruction is left; the newest stays."""
    chunks, first = t.directory, 0
    for k in range(t.chunks - 1):
        chunk = chunks[k]
        if chunk != 0 and chunk.held == 0:
            after = k + 1
            while chunks[after] == 0:
                after += 1
            if chunks[after].start == chunk.start:
                c_api.PyMem_RawFree(chunk)
                chunks[k] = 0
    while t.chunks > first + 1 and chunks[first] == 0:
        first += 1
    if first > 0:
        for k in range(first, t.chunks):
            chunks[k - first] = chunks[k]
        t.first_chunk += first
        t.chunks -= first


def collect(t: TapeHeader):
    """Drop the instructions whose results nobody can reach; return how many words they had, -1 without memory."""
    low = bury(t)
    t.dead = 0
    t.lost = 0
    gone = take_out(t, low) if low >= 0 else 0
    free_chunks(t)
    return gone


# A snapshot of a tape, taken while no other thread records or drops. See kernels/sweeps/debug_checks.py.

CHUNK_WORDS = 1 + (Chunk.SIZE + 4 * structs.CHUNK) // 8


def copied(target, source, count):
    for k in range(count):
        store_i8(target + 8 * k, word(source, k))
    return target + 8 * count


def picture(t: TapeHeader, target: int, room: int) -> int:
    """Copy a tape's header, words and chunks, each behind its address, if there is room; return the words it takes."""
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


def step_begins(words: int, at: int, end: int, sizes: int, begins: int) -> int:
    """Note where the steps of a program begin, from a word on, by the sizes of kinds; return how many there are."""
    count = 0
    while at < end:
        store_i8(begins + 8 * count, at)
        count += 1
        at += word(sizes, word(words, at))
    return count


def holders(slot: int) -> int:
    """The reference count of a slot; GONE if its tape or its chunk is gone, -1 if there has never been such a slot."""
    t = tape_of(tape_registry(), slot)
    if t == 0:
        return structs.GONE
    if slot & COUNT >= t.next:
        return -1
    chunk = chunk_of(t, slot)
    return load_i4(count_of(chunk, slot)) & structs.HELD if chunk != 0 else structs.GONE
