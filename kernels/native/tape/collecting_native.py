"""Dropping instructions from a tape: those marked, and those whose results nobody can reach."""

from __future__ import annotations

from kernels.native.memory import load_i4, load_i8, store_i4, store_i8, word
from kernels.native.python_api import Py_DecRef, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from kernels.native.tape.tape_native import block_at, chunk_of, count_of, let_go
from kernels.native.words import (
    ARRAY,
    B_ENTRIES,
    B_FIRST,
    B_FORM,
    B_INPUTS,
    B_SAVED,
    C_HELD,
    C_START,
    CHUNK_BITS,
    FIRST_ROOM,
    G_FORMS,
    GONE,
    HELD,
    I_WORDS,
    KEPT_ROOM,
    NEEDED,
    OBJECT,
    T_CHUNKS,
    T_COUNT,
    T_DEAD,
    T_DIR,
    T_FIRST,
    T_LOST,
    T_MOVES,
    T_NUMBER,
    T_OWNED,
    T_REGISTRY,
    T_ROOM,
    T_SIZE,
    T_WORDS,
    TAPE_BITS,
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


def let_go_of(t, start, block, garbage, count):
    """Release what an instruction owns except its form, as :func:`strip` does."""
    registry, number, inputs = word(t, T_REGISTRY), word(t, T_NUMBER), word(block, B_INPUTS)
    kinds, at, i, j = block + 8 * (B_FIRST + I_WORDS * inputs), word(t, T_WORDS) + 8 * (start + 1), 0, 0
    while i < inputs:
        operand = load_i8(at + 8 * i)
        if operand < 0:
            count = disown(-operand, garbage, count)
        elif operand > 0 and operand >> TAPE_BITS != number:
            let_go(registry, operand)
        i += 1
    at += 8 * inputs
    while j < word(block, B_SAVED):
        if word(kinds, j) in (ARRAY, OBJECT):
            count = disown(load_i8(at + 8 * j), garbage, count)
        j += 1
    return count


def strip(t, start, block, garbage, count):
    """Release what an instruction owns, adding last references to the garbage; return the new count of garbage."""
    slot = word(word(t, T_WORDS), start)
    chunk = chunk_of(t, slot)
    if chunk != 0:
        place = count_of(chunk, slot)
        held = load_i4(place)
        if held & HELD == 0 and word(t, T_DEAD) > 0:
            store_i8(t + 8 * T_DEAD, word(t, T_DEAD) - 1)
        store_i4(place, held | GONE)
    count = let_go_of(t, start, block, garbage, count)
    store_i8(t + 8 * T_COUNT, word(t, T_COUNT) - 1)
    return disown(word(block, B_FORM), garbage, count)


def moved(t, above, position, to):
    """Update where the chunks below ``above`` begin that begin at this position or behind it.

    Return how many chunks begin before it.
    """
    k = above
    while k > 0:
        chunk = word(word(t, T_DIR), k - 1)
        if chunk != 0:
            if load_i8(chunk + C_START) < position:
                return k
            store_i8(chunk + C_START, to)
        k -= 1
    return k


def shrink(t):
    """Lower the threshold for collections on a tape that has become short; free memory that it does not need."""
    room, size = word(t, T_ROOM), word(t, T_SIZE)
    if room > 16 * FIRST_ROOM and 4 * size < room:
        store_i8(t + 8 * T_ROOM, 2 * size + 1)
        if word(t, T_OWNED) > KEPT_ROOM:
            words = PyMem_RawRealloc(word(t, T_WORDS), 16 * size + 8)
            if words != 0:
                store_i8(t + 8 * T_WORDS, words)
                store_i8(t + 8 * T_OWNED, 2 * size + 1)


def ended(t, size, garbage, count):
    """End the tape here; release the garbage, which may run any Python code."""
    store_i8(t + 8 * T_SIZE, size)
    store_i8(t + 8 * T_MOVES, word(t, T_MOVES) + 1)
    shrink(t)
    for k in range(count):
        Py_DecRef(word(garbage, k))
    PyMem_RawFree(garbage)


def take_out(t, low):
    """Remove the instructions from ``low`` on whose form's number is marked (turned to ~number) from the tape.

    Return how many words were removed; -1 without memory: then only the marks are undone. Garbage is released at the
    end, which may run any Python code.
    """
    words, size = word(t, T_WORDS), word(t, T_SIZE)
    forms = word(word(t, T_REGISTRY), G_FORMS)
    garbage, count = PyMem_RawMalloc(8 * (size - low + 1)), 0
    # Those kept move up to the end, so that each is read before it is overwritten; then all of them down.
    to, position, above = size, size, word(t, T_CHUNKS)
    while position > low:
        number = word(words, position - 1)
        block = word(forms, ~number if number < 0 else number)
        start = position - word(block, B_ENTRIES)
        if garbage == 0:
            store_i8(words + 8 * (position - 1), ~number if number < 0 else number)
            position = start
            continue
        above = moved(t, above, position, to)
        if number < 0:
            count = strip(t, start, block, garbage, count)
        else:
            p = position
            while p > start:
                p, to = p - 1, to - 1
                store_i8(words + 8 * to, word(words, p))
        position = start
    if garbage == 0:
        return -1
    gone = to - low
    above = moved(t, above, low, to)
    for k in range(above, word(t, T_CHUNKS)):
        chunk = word(word(t, T_DIR), k)
        if chunk != 0:
            store_i8(chunk + C_START, load_i8(chunk + C_START) - gone)
    for p in range(to, size):
        store_i8(words + 8 * (p - gone), word(words, p))
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


def cut(t, low):
    """Remove all instructions from ``low`` on from the tape, as :func:`take_out` does."""
    words, size, forms = word(t, T_WORDS), word(t, T_SIZE), word(word(t, T_REGISTRY), G_FORMS)
    garbage = PyMem_RawMalloc(8 * (size - low + 1))
    if garbage == 0:
        return -1
    count, position, instructions, unheld, chunk, chunk_number, form, times = 0, size, 0, 0, 0, -1, 0, 0
    while position > low:
        block = word(forms, word(words, position - 1))
        position -= word(block, B_ENTRIES)
        instructions += 1
        slot = word(words, position)
        if slot >> CHUNK_BITS != chunk_number:
            chunk, chunk_number = chunk_of(t, slot), slot >> CHUNK_BITS
        if chunk != 0:
            place = count_of(chunk, slot)
            held = load_i4(place)
            unheld += 1 if held & HELD == 0 else 0
            store_i4(place, held | GONE)
        count = let_go_of(t, position, block, garbage, count)
        if word(block, B_FORM) != form:
            count = disown_form(form, times, garbage, count) if times > 0 else count
            form, times = word(block, B_FORM), 0
        times += 1
    count = disown_form(form, times, garbage, count) if times > 0 else count
    store_i8(t + 8 * T_COUNT, word(t, T_COUNT) - instructions)
    store_i8(t + 8 * T_DEAD, max(word(t, T_DEAD) - unheld, 0))
    moved(t, word(t, T_CHUNKS), low, low)
    ended(t, low, garbage, count)
    return size - low


def mark_operands(t, start, block):
    """Mark the slots of this tape that an instruction needs."""
    number = word(t, T_NUMBER)
    for i in range(word(block, B_INPUTS)):
        operand = word(word(t, T_WORDS), start + 1 + i)
        if operand > 0 and operand >> TAPE_BITS == number:
            chunk = chunk_of(t, operand)
            if chunk != 0:
                at = count_of(chunk, operand)
                if load_i4(at) & GONE == 0:  # nothing would remove its mark
                    store_i4(at, load_i4(at) | NEEDED)


def bury(t):
    """Mark the instructions whose result nobody can reach; return where the first of them begins, -1 without any."""
    words, position, low = word(t, T_WORDS), word(t, T_SIZE), -1
    while position > 0:
        last = position - 1
        block = block_at(t, last)
        position -= word(block, B_ENTRIES)
        slot = word(words, position)
        chunk = chunk_of(t, slot)
        count = 1
        if chunk != 0:
            count = load_i4(count_of(chunk, slot)) & (HELD | NEEDED)
            store_i4(count_of(chunk, slot), load_i4(count_of(chunk, slot)) & ~NEEDED)
        if count == 0:
            store_i8(words + 8 * last, ~word(words, last))
            low = position
        else:
            mark_operands(t, position, block)
    return low


def free_chunks(t):
    """Free the chunks of slots that nobody has, and of which no instruction is left; the newest stays."""
    chunks, first = word(t, T_DIR), 0
    for k in range(word(t, T_CHUNKS) - 1):
        chunk = word(chunks, k)
        if chunk != 0 and load_i8(chunk + C_HELD) == 0:
            after = k + 1
            while word(chunks, after) == 0:
                after += 1
            if load_i8(word(chunks, after) + C_START) == load_i8(chunk + C_START):
                PyMem_RawFree(chunk)
                store_i8(chunks + 8 * k, 0)
    while word(t, T_CHUNKS) > first + 1 and word(chunks, first) == 0:
        first += 1
    if first > 0:
        for k in range(first, word(t, T_CHUNKS)):
            store_i8(chunks + 8 * (k - first), word(chunks, k))
        store_i8(t + 8 * T_FIRST, word(t, T_FIRST) + first)
        store_i8(t + 8 * T_CHUNKS, word(t, T_CHUNKS) - first)


def collect(t):
    """Drop the instructions whose results nobody can reach; return how many words they had, -1 without memory."""
    low = bury(t)
    store_i8(t + 8 * T_DEAD, 0)
    store_i8(t + 8 * T_LOST, 0)
    gone = take_out(t, low) if low >= 0 else 0
    free_chunks(t)
    return gone
