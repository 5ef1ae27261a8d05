"""The sweep: run the pullbacks of the marked instructions, last first."""

from __future__ import annotations

import numpy as np

from kernels.jit import load_module, njit
from kernels.memory import (
    call_kernel,
    integer,
    load_f4,
    load_f8,
    load_i8,
    release,
    store_f4,
    store_f8,
    store_i8,
    word,
)
from kernels.words import (
    ALIAS,
    B_ENTRIES,
    B_FIRST,
    B_INPUTS,
    B_ITEM,
    B_SAVED,
    B_SHADOW,
    B_VIEW,
    CELL,
    FOUND,
    H_CELLS,
    H_COUNT,
    H_FLOAT,
    H_INT,
    H_LEAF,
    H_LEAVES,
    H_LIST,
    H_MASK,
    H_NONE,
    H_ORDER,
    H_PTRS,
    H_RESTRICT,
    I_COVERS,
    I_ITEM,
    I_KERNEL,
    I_LAYOUT,
    I_SHADOW,
    I_WORDS,
    KEPT,
    MEMORY,
    OK,
    OWNED,
    PARENT,
    RELEVANT,
    TOUCHED,
)

_cells = load_module("cells_native")
opcode, find, fill = _cells.opcode, _cells.find, _cells.fill
fold, shadow, family = _cells.fold, _cells.shadow, _cells.family

ZERO = np.float32(0.0)


@njit(cache=True, error_model="numpy")
def settle(h):
    """Add 0.0 to the gradients of leaves: where nothing contributed, -0.0 becomes 0.0."""
    items = load_i8(word(h, H_LIST) + 24)
    cells, leaves = word(h, H_CELLS), word(h, H_LEAVES)
    for k in range(word(h, H_LEAF)):
        found = leaves + 8 * FOUND * k
        last = load_i8(found + 8)
        block = opcode(word(items, last))
        i = load_i8(found) - (last - word(block, B_ENTRIES) + 2)
        about = block + 8 * (B_FIRST + i * I_WORDS)
        if word(block, B_VIEW) != 0:
            about = block + 8 * (B_SHADOW - I_SHADOW)
        cell = cells + 8 * CELL * load_i8(found + 16)
        elements, item = word(about, I_SHADOW), word(about, I_ITEM)
        if load_i8(cell + 24) & TOUCHED == 0:
            fill(shadow(cell, cells, elements, item, 1), elements, item)
        pointer = load_i8(cell + 8)
        if item == 8:
            for e in range(elements):
                store_f8(pointer + 8 * e, load_f8(pointer + 8 * e) + 0.0)
        else:
            for e in range(elements):
                store_f4(pointer + 4 * e, load_f4(pointer + 4 * e) + ZERO)


@njit("int64(int64)", cache=True, error_model="numpy")
def sweep(h):
    """Run the pullbacks of the marked instructions, last first."""
    items = load_i8(word(h, H_LIST) + 24)
    none, integers, floats = word(h, H_NONE), word(h, H_INT), word(h, H_FLOAT)
    cells, mask, order = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER)
    restrict, pointers = word(h, H_RESTRICT), word(h, H_PTRS)
    for k in range(word(h, H_COUNT)):
        last = word(order, k)
        block = opcode(word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        cell = find(cells, mask, integer(word(items, start)))
        inputs = word(block, B_INPUTS)
        if word(block, B_VIEW) != 0:
            if load_i8(cell + 24) & (KEPT | TOUCHED) == KEPT | TOUCHED:
                above = family(cells + 8 * CELL * (load_i8(cell + 24) >> PARENT), cells)
                elements, item = word(block, B_SHADOW), word(block, B_ITEM)
                target = shadow(above, cells, elements, item, 0)
                if target == 0:
                    return MEMORY
                fold(target, load_i8(cell + 8), elements, item)
            continue
        cotangent = load_i8(cell + 8)
        if load_i8(cell + 24) & TOUCHED == 0:
            continue
        store_i8(pointers + 8, cotangent)
        for j in range(word(block, B_SAVED)):
            obj = word(items, start + 1 + inputs + j)
            data = obj + 16
            if load_i8(obj + 8) != floats:
                data = load_i8(data)
            store_i8(pointers + 16 + 8 * j, data)
        for i in range(inputs):
            obj = word(items, start + 1 + i)
            if obj == none:
                continue
            target = find(cells, mask, integer(obj) if load_i8(obj + 8) == integers else -obj)
            flags = load_i8(target + 24)
            if restrict != 0 and flags & RELEVANT == 0:
                continue
            about = block + 8 * (B_FIRST + i * I_WORDS)
            offset = 0
            if flags & ALIAS:
                offset = load_i8(target + 16)
                target = family(target, cells)
                flags = load_i8(target + 24)
            covers = word(about, I_COVERS)
            pointer = shadow(target, cells, word(about, I_SHADOW), word(about, I_ITEM), covers)
            if pointer == 0:
                return MEMORY
            store_i8(pointers, pointer + offset)
            accumulate = 0 if covers != 0 and flags & TOUCHED == 0 else 1
            call_kernel(word(about, I_KERNEL), word(about, I_LAYOUT), pointers, accumulate)
        if load_i8(cell + 24) & (OWNED | KEPT) == OWNED:
            release(cotangent)
            store_i8(cell + 8, 0)
            store_i8(cell + 24, load_i8(cell + 24) & ~OWNED)
    settle(h)
    return OK


@njit("void(int64)", cache=True, error_model="numpy")
def abandon(h):
    """Free every shadow that a sweep left behind (no memory, or base shadows that nothing consumed)."""
    cells = word(h, H_CELLS)
    for i in range(word(h, H_MASK) + 1):
        cell = cells + 8 * CELL * i
        if load_i8(cell) != 0 and load_i8(cell + 24) & OWNED:
            release(load_i8(cell + 8))
            store_i8(cell + 8, 0)
            store_i8(cell + 24, load_i8(cell + 24) & ~OWNED)
