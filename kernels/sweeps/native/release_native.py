"""Drops the instructions that a backward has used, if it frees the graph."""

from __future__ import annotations

from kernels.native.c_api import PyList_Size
from kernels.native.memory import load_i8
from kernels.native.structs import DROPPED, Bucket, SweepHeader
from kernels.native.tape_native import cut, take_out
from kernels.programs.replay_back_native import bucket_of

CONTROL = True


def drop(h: SweepHeader) -> int:
    """Drop the instructions that saved values, and what depends on them, unless others read the tape.

    Returns how many words they had, -1 without memory. Instructions that saved nothing stay, so that a second
    backward through sums alone works, as PyTorch's does.
    """
    if PyList_Size(h.readers) > 1:
        return 0
    t, whole = h.tape, h.whole
    if whole != 0 and whole == t.size:  # nothing was recorded since
        return cut(t, h.low)
    items, low, forms = t.words, -1, t.registry.forms
    buckets, mask, order = h.buckets, h.mask, h.order
    top, near = h.top, h.near
    for k in range(h.count - 1, -1, -1):
        last = order[k]
        block = forms[items[last]]
        start, i = last - block.entries + 1, 0
        going = block.frees != 0
        while i < block.inputs and not going:
            key = items[start + 1 + i]
            going = key > 0 and load_i8(bucket_of(buckets, mask, top, near, key) + 24) & DROPPED != 0
            i += 1
        if going:
            bucket = Bucket(bucket_of(buckets, mask, top, near, items[start]))
            bucket.flags |= DROPPED
            items[last] = ~items[last]
            if low < 0:
                low = start
    return take_out(t, low) if low >= 0 else 0
