"""Drops the instructions that a backward has used, if it frees the graph."""

from __future__ import annotations

from kernels.native.memory import load_i8, store_i8, word
from kernels.native.python_api import PyList_Size
from kernels.native.tape.collecting_native import cut, take_out
from kernels.native.words import (
    B_ENTRIES,
    B_FREES,
    B_INPUTS,
    DROPPED,
    G_FORMS,
    H_BUCKETS,
    H_COUNT,
    H_LOW,
    H_MASK,
    H_NEAR,
    H_ORDER,
    H_READERS,
    H_TAPE,
    H_TOP,
    H_WHOLE,
    T_REGISTRY,
    T_SIZE,
    T_WORDS,
)
from kernels.sweeps.native.gradient_table_native import bucket_of

CONTROL = True


def drop(h: int) -> int:
    """Drop the instructions that saved values, and what depends on them, unless others read the tape.

    Returns how many words they had, -1 without memory. Instructions that saved nothing stay, so that a second
    backward through sums alone works, as PyTorch's does.
    """
    if PyList_Size(word(h, H_READERS)) > 1:
        return 0
    t, whole = word(h, H_TAPE), word(h, H_WHOLE)
    if whole != 0 and whole == word(t, T_SIZE):  # nothing was recorded since
        return cut(t, word(h, H_LOW))
    items, low, forms = word(t, T_WORDS), -1, word(word(t, T_REGISTRY), G_FORMS)
    buckets, mask, order = word(h, H_BUCKETS), word(h, H_MASK), word(h, H_ORDER)
    top, near = word(h, H_TOP), word(h, H_NEAR)
    for k in range(word(h, H_COUNT) - 1, -1, -1):
        last = word(order, k)
        block = word(forms, word(items, last))
        start, i = last - word(block, B_ENTRIES) + 1, 0
        going = word(block, B_FREES) != 0
        while i < word(block, B_INPUTS) and not going:
            key = word(items, start + 1 + i)
            going = key > 0 and load_i8(bucket_of(buckets, mask, top, near, key) + 24) & DROPPED != 0
            i += 1
        if going:
            bucket = bucket_of(buckets, mask, top, near, word(items, start))
            store_i8(bucket + 24, load_i8(bucket + 24) | DROPPED)
            store_i8(items + 8 * last, ~word(items, last))
            if low < 0:
                low = start
    return take_out(t, low) if low >= 0 else 0
