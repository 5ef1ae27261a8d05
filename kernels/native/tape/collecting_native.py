"""Dropping instructions from a tape: those marked, and those whose results nobody can reach."""

from __future__ import annotations

from kernels.native.memory import load_i4, load_i8, store_i4, store_i8, word
from kernels.native.python_api import Py_DecRef, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from kernels.native.tape.tape_native import block_at, chunk_of, count_of, let_go
from kernels.native.tape_structs import (
    ARRAY,
    CHUNK_BITS,
    FIRST_ROOM,
    GONE,
    HELD,
    KEPT_ROOM,
    NEEDED,
    OBJECT,
    TAPE_BITS,
    FormBlock,
    InputBlock,
    TapeHeader,
)


def disown(x, garbage, count):
    """Release a reference to an object; the last one is added to the garbage instead. Return the count of garbage.

    Immortal objects have a negative reference count in the low half, or one that CPython resets.
    """
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
        elif operand > 0 and operand >> TAPE_BITS != number:
            let_go(registry, operand)
        i += 1
    at += 8 * inputs
    while j < block.saved:
        if word(kinds, j) in (ARRAY, OBJECT):
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
        if held & HELD == 0 and t.dead > 0:
            t.dead -= 1
        store_i4(place, held | GONE)
    count = let_go_of(t, start, block, garbage, count)
    t.count -= 1
    return disown(block.form, garbage, count)


def moved(t: TapeHeader, above, position, to):
    """Update where the chunks below ``above`` begin that begin at this position or behind it.

    Return how many chunks begin before it.
    """
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
    """Lower the threshold for collections on a tape that has become short; free memory that it does not need.

    Not below what a tape begins with: a few instructions would else be looked through at every other operation.
    """
    size, enough = t.size, max(2 * t.size + 1, FIRST_ROOM)
    if t.room > 16 * FIRST_ROOM and 4 * size < t.room:
        t.room = enough
        if t.owned > KEPT_ROOM:
            words = PyMem_RawRealloc(t.words, 8 * enough)
            if words != 0:
                t.words = words
                t.owned = enough


def ended(t: TapeHeader, size, garbage, count):
    """End the tape here; release the garbage, which may run any Python code."""
    t.size = size
    t.moves += 1
    shrink(t)
    for k in range(count):
        Py_DecRef(word(garbage, k))
    PyMem_RawFree(garbage)


def take_out(t: TapeHeader, low):
    """Remove the instructions from ``low`` on whose form's number is marked (turned to ~number) from the tape.

    Return how many words were removed; -1 without memory: then only the marks are undone. Garbage is released at the
    end, which may run any Python code.
    """
    words, size = t.words, t.size
    forms = t.registry.forms
    garbage, count = PyMem_RawMalloc(8 * (size - low + 1)), 0
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
    garbage = PyMem_RawMalloc(8 * (size - low + 1))
    if garbage == 0:
        return -1
    count, position, instructions, unheld, chunk, chunk_number, form, times = 0, size, 0, 0, 0, -1, 0, 0
    while position > low:
        block = forms[words[position - 1]]
        position -= block.entries
        instructions += 1
        slot = words[position]
        if slot >> CHUNK_BITS != chunk_number:
            chunk, chunk_number = chunk_of(t, slot), slot >> CHUNK_BITS
        if chunk != 0:
            place = count_of(chunk, slot)
            held = load_i4(place)
            unheld += 1 if held & HELD == 0 else 0
            store_i4(place, held | GONE)
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
        if operand > 0 and operand >> TAPE_BITS == number:
            chunk = chunk_of(t, operand)
            if chunk != 0:
                at = count_of(chunk, operand)
                if load_i4(at) & GONE == 0:  # nothing would remove its mark
                    store_i4(at, load_i4(at) | NEEDED)


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
            count = load_i4(count_of(chunk, slot)) & (HELD | NEEDED)
            store_i4(count_of(chunk, slot), load_i4(count_of(chunk, slot)) & ~NEEDED)
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
                PyMem_RawFree(chunk)
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
