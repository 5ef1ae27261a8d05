"""What leaves the tape: after a backward that frees, and when results have died."""

from __future__ import annotations

from kernels.jit import load_module, njit
from kernels.memory import (
    load_i8,
    store_b1,
    store_i8,
    word,
)
from kernels.words import (
    B_ENTRIES,
    B_FREES,
    B_INPUTS,
    COUNTS,
    DROPPED,
    FEW,
    H_CELLS,
    H_COUNT,
    H_DYING,
    H_INT,
    H_KEEP,
    H_KEEPS,
    H_LIST,
    H_LOW,
    H_MASK,
    H_NONE,
    H_ORDER,
    H_ORDERS,
    H_SIZE,
    H_TAPE,
    TAPE_BITS,
)

_cells = load_module("cells_native")
integer, find, clear = _cells.integer, _cells.find, _cells.clear


@njit("int64(int64)", cache=True, error_model="numpy")
def drop(h):
    """Mark with 0 the entries that backward releases: saved values, and what depends on them.

    Returns how many entries go; H_LOW is the first of them, and H_KEEP's bytes begin there. -1 if there are not
    enough of them: H_SIZE are needed. Instructions that saved nothing stay, so that a second backward through sums
    alone works, as PyTorch's does.
    """
    items = load_i8(word(h, H_LIST) + 24)
    none, integers, keep = word(h, H_NONE), word(h, H_INT), word(h, H_KEEP)
    cells, mask, order = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER)
    low, gone, size = -1, 0, load_i8(word(h, H_LIST) + 16)
    for k in range(word(h, H_COUNT) - 1, -1, -1):
        last = word(order, k)
        block = integer(word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        going = word(block, B_FREES) != 0
        for i in range(word(block, B_INPUTS)):
            obj = word(items, start + 1 + i)
            if not going and obj != none and load_i8(obj + 8) == integers:
                going = load_i8(find(cells, mask, integer(obj)) + 24) & DROPPED != 0
        if going:
            cell = find(cells, mask, integer(word(items, start)))
            store_i8(cell + 24, load_i8(cell + 24) | DROPPED)
            if low < 0:
                low = start
                if size - low > word(h, H_KEEPS):
                    store_i8(h + 8 * H_SIZE, size - low)
                    return -1
                for p in range(size - low):
                    store_b1(keep + p, 1)
            for p in range(start, last + 1):
                store_b1(keep + p - low, 0)
            gone += last + 1 - start
    store_i8(h + 8 * H_LOW, low)
    store_i8(h + 8 * H_SIZE, size)
    return gone


@njit(cache=True, error_model="numpy")
def bury(h):
    """Mark with 0 the entries of instructions whose result nobody can reach any more.

    The result's slot number is held by the tape, by each later instruction that uses it, and by its tensor: a
    count of the references decides; H_DYING is the slot of a tensor that is just being deleted. Uses by
    instructions that go are counted in the cells.
    """
    items = load_i8(word(h, H_LIST) + 24)
    position = load_i8(word(h, H_LIST) + 16) - 1
    none, integers, tape, keep = word(h, H_NONE), word(h, H_INT), word(h, H_TAPE), word(h, H_KEEP)
    cells, mask, dying = word(h, H_CELLS), word(h, H_MASK), word(h, H_DYING)
    clear(cells, mask)
    for p in range(position + 1):
        store_b1(keep + p, 1)
    used = gone = 0
    room = mask - mask // 8
    while position >= 0:
        last = position
        block = integer(word(items, last))
        start = last - word(block, B_ENTRIES) + 1
        position = start - 1
        slot = word(items, start)
        cell = find(cells, mask, integer(slot))
        lost = load_i8(cell + 8) if load_i8(cell) else 0
        if integer(slot) == dying:
            lost += 1
        if (load_i8(slot) & COUNTS) - lost > 1:
            continue
        inputs = word(block, B_INPUTS)
        if used + inputs > room:
            return -1
        for i in range(inputs):
            obj = word(items, start + 1 + i)
            if obj != none and load_i8(obj + 8) == integers and integer(obj) >> TAPE_BITS == tape:
                target = find(cells, mask, integer(obj))
                if load_i8(target) == 0:
                    store_i8(target, integer(obj))
                    used += 1
                store_i8(target + 8, load_i8(target + 8) + 1)
        for p in range(start, last + 1):
            store_b1(keep + p, 0)
        gone += last + 1 - start
    return gone


@njit("int64(int64)", cache=True, error_model="numpy")
def collect(h):
    """Mark the dead with as many cells as it takes; -1 if all cells are too few, -2 if H_KEEP's bytes are."""
    size = load_i8(word(h, H_LIST) + 16)
    store_i8(h + 8 * H_LOW, 0)
    store_i8(h + 8 * H_SIZE, size)
    if size > word(h, H_KEEPS):
        return -2
    cells = FEW
    store_i8(h + 8 * H_MASK, cells - 1)
    gone = bury(h)
    while gone == -1 and cells < word(h, H_ORDERS):
        cells = min(8 * cells, word(h, H_ORDERS))
        store_i8(h + 8 * H_MASK, cells - 1)
        gone = bury(h)
    return gone
