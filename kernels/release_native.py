"""What leaves the tape after a backward that frees."""

from __future__ import annotations

from kernels.jit import load_module, njit
from kernels.memory import load_i8, store_i8, word
from kernels.python_api import PyList_Size
from kernels.words import (
    B_ENTRIES,
    B_FREES,
    B_INPUTS,
    DROPPED,
    H_CELLS,
    H_COUNT,
    H_MASK,
    H_ORDER,
    H_READERS,
    H_TAPE,
    T_WORDS,
)

find = load_module("cells_native").find
_tape = load_module("tape_native")
block_at, take_out = _tape.block_at, load_module("collecting_native").take_out


@njit("int64(int64)", cache=True, error_model="numpy")
def drop(h):
    """Drop the instructions that saved values, and what depends on them, unless others read the tape.

    Returns how many words they had, -1 without memory. Instructions that saved nothing stay, so that a second
    backward through sums alone works, as PyTorch's does.
    """
    if PyList_Size(word(h, H_READERS)) > 1:
        return 0
    t = word(h, H_TAPE)
    items, low = word(t, T_WORDS), -1
    cells, mask, order = word(h, H_CELLS), word(h, H_MASK), word(h, H_ORDER)
    for k in range(word(h, H_COUNT) - 1, -1, -1):
        last = word(order, k)
        block = block_at(t, last)
        start = last - word(block, B_ENTRIES) + 1
        going = word(block, B_FREES) != 0
        for i in range(word(block, B_INPUTS)):
            key = word(items, start + 1 + i)
            if not going and key > 0:
                going = load_i8(find(cells, mask, key) + 24) & DROPPED != 0
        if going:
            cell = find(cells, mask, word(items, start))
            store_i8(cell + 24, load_i8(cell + 24) | DROPPED)
            store_i8(items + 8 * last, ~word(items, last))
            if low < 0:
                low = start
    return take_out(t, low) if low >= 0 else 0
