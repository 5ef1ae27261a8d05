"""The pre-pass of a sweep: which instructions lie between the roots and the leaves.

Reads the tape from its end (kernels/tape_native.py). Each function takes the address of a header of int64 words.
"""

from __future__ import annotations

from kernels.jit import load_module, njit
from kernels.memory import (
    load_i8,
    store_i8,
    word,
)
from kernels.words import (
    ADDS,
    ALIAS,
    B_ENTRIES,
    B_FIRST,
    B_INPUTS,
    B_KIND,
    CELL,
    CLEARS,
    FEW,
    FOREIGN,
    FOUND,
    FREED,
    G_FORMS,
    GROW,
    H_AT,
    H_CELLS,
    H_COUNT,
    H_FROM,
    H_LEAF,
    H_LEAFCAP,
    H_LEAVES,
    H_LOW,
    H_MASK,
    H_ORDER,
    H_ORDERS,
    H_PRESET,
    H_PRESETS,
    H_RESUME,
    H_TAPE,
    I_HEIR,
    I_KERNEL,
    I_SPREAD,
    I_WORDS,
    KEPT,
    MISSING,
    OK,
    PARENT,
    PAUSED,
    PYTHON,
    RELEVANT,
    T_NUMBER,
    T_REGISTRY,
    T_WORDS,
    TAPE_BITS,
    TOUCHED,
    USED,
    VIEW,
    WANTED,
)

_cells = load_module("cells_native")
find, clear = _cells.find, _cells.clear
seek = load_module("tape_native").seek


@njit(cache=True, error_model="numpy")
def preset(h):
    """Put roots and observed slots into the table: key, pointer, value, flags."""
    cells, mask = word(h, H_CELLS), word(h, H_MASK)
    for i in range(word(h, H_PRESET)):
        given = word(h, H_PRESETS) + 32 * i
        cell = find(cells, mask, load_i8(given))
        if load_i8(cell) == 0:
            pointer = load_i8(given + 8)
            if pointer < 0:
                pointer = load_i8(-pointer + 16)  # an array of the caller's: its data
            elif load_i8(given + 24) & TOUCHED:
                pointer = cell + 16
            store_i8(cell, load_i8(given))
            store_i8(cell + 8, pointer)
            store_i8(cell + 16, load_i8(given + 16))
        store_i8(cell + 24, load_i8(cell + 24) | load_i8(given + 24))


@njit(cache=True, error_model="numpy")
def last_root(h):
    """The greatest slot that a sweep is to start from: slots ascend along the tape."""
    root = 0
    for i in range(word(h, H_PRESET)):
        given = word(h, H_PRESETS) + 32 * i
        if load_i8(given + 24) & USED:
            root = max(root, load_i8(given))
    return root


@njit(cache=True, error_model="numpy")
def attempt(h):
    """Mark with the cells that H_MASK gives."""
    t = word(h, H_TAPE)
    items, tape = word(t, T_WORDS), word(t, T_NUMBER)
    forms = word(word(t, T_REGISTRY), G_FORMS)
    position = seek(t, last_root(h)) - 1
    cells, mask, order, orders = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER), word(h, H_ORDERS)
    leaves, limit = word(h, H_LEAVES), word(h, H_LEAFCAP)
    clear(cells, mask)
    preset(h)
    pending = used = 0
    for i in range(word(h, H_PRESET)):
        used += 1
        pending += load_i8(word(h, H_PRESETS) + 32 * i + 24) & USED
    count = leaf = 0
    room = mask - mask // 8
    while pending > 0 and position >= 0:
        last = position
        block = word(forms, word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        position = start - 1
        cell = find(cells, mask, word(items, start))
        if load_i8(cell + 24) & USED == 0:
            continue
        pending -= 1
        inputs, kind = word(block, B_INPUTS), word(block, B_KIND)
        if count >= orders or used + inputs > room or leaf + inputs > limit:
            return GROW
        store_i8(order + 8 * count, last)
        count += 1
        for i in range(inputs):
            key = word(items, start + 1 + i)
            if key == 0:
                continue
            needed = kind not in (VIEW, PYTHON) and (i > 0 or kind != ADDS)
            about = block + 8 * (B_FIRST + i * I_WORDS)
            wanted = word(about, I_SPREAD) == WANTED or word(about, I_HEIR) == WANTED
            if needed and (wanted or word(about, I_KERNEL) == 0):
                store_i8(h + 8 * H_AT, last)
                return MISSING
            target = find(cells, mask, key)
            flags = load_i8(target + 24)
            if load_i8(target) == 0:
                store_i8(target, key)
                used += 1
            if flags & USED == 0:
                flags |= USED
                if key > 0 and key >> TAPE_BITS == tape:
                    pending += 1
                else:
                    if key > 0:
                        flags |= FOREIGN | KEPT | RELEVANT  # what is asked for may stand on that tape
                    else:
                        flags |= KEPT
                    found = leaves + 8 * FOUND * leaf
                    store_i8(found, start + 1 + i)
                    store_i8(found + 8, last)
                    store_i8(found + 16, (target - cells) // (8 * CELL))
                    leaf += 1
                store_i8(target + 24, flags)
            elif i == 0 and CLEARS <= kind <= ADDS:
                # Something later on the tape refers to the version before the write: the two need shadows apart.
                store_i8(cell + 24, load_i8(cell + 24) | KEPT)
            if i == 0 and VIEW <= kind <= ADDS:
                # The view's offset, and the cell that it shares its shadow with.
                store_i8(cell + 16, word(items, start + 2) if kind == VIEW else 0)
                parent = (target - cells) // (8 * CELL)
                store_i8(cell + 24, load_i8(cell + 24) | ALIAS | (parent << PARENT))
    store_i8(h + 8 * H_LOW, position + 1)
    store_i8(h + 8 * H_COUNT, count)
    store_i8(h + 8 * H_LEAF, leaf)
    return FREED if pending > 0 else OK


@njit("int64(int64)", cache=True, error_model="numpy")
def mark(h):
    """Find the instructions between the roots and the leaves, last first; GROW if all cells are too few.

    What sweeps them begins with the first.
    """
    store_i8(h + 8 * H_FROM, 0)
    store_i8(h + 8 * H_RESUME, 0)
    cells = FEW
    while cells < 2 * word(h, H_PRESET):
        cells *= 2
    if cells > word(h, H_ORDERS):
        return GROW
    store_i8(h + 8 * H_MASK, cells - 1)
    status = attempt(h)
    while status == GROW and cells < word(h, H_ORDERS):
        cells = min(8 * cells, word(h, H_ORDERS))
        store_i8(h + 8 * H_MASK, cells - 1)
        status = attempt(h)
    return status


@njit("void(int64)", cache=True, error_model="numpy")
def relevant(h):
    """Keep only the instructions that lead to an observed slot or leaf, earliest first decided."""
    t = word(h, H_TAPE)
    items, forms = word(t, T_WORDS), word(word(t, T_REGISTRY), G_FORMS)
    cells, mask, order, count = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER), word(h, H_COUNT)
    kept = count
    for k in range(count - 1, -1, -1):
        last = word(order, k)
        block = word(forms, word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        cell = find(cells, mask, word(items, start))
        leads = load_i8(cell + 24) & (RELEVANT | PAUSED) == RELEVANT | PAUSED  # asked for, after its hooks
        for i in range(word(block, B_INPUTS)):
            key = word(items, start + 1 + i)
            if key != 0:
                leads |= load_i8(find(cells, mask, key) + 24) & RELEVANT != 0
        if leads:
            store_i8(cell + 24, load_i8(cell + 24) | RELEVANT)
            kept -= 1
            store_i8(order + 8 * kept, last)
    for k in range(count - kept):
        store_i8(order + 8 * k, word(order, kept + k))
    store_i8(h + 8 * H_COUNT, count - kept)
