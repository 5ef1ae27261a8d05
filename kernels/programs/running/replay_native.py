"""The interpreter of programs: one loop over rows of words, each a call by address."""

from __future__ import annotations

import numpy as np

from kernels.native.memory import call_kernel, load_i1, load_i8, store_i4, store_i8, word
from kernels.native.nests_native import nest
from kernels.native.tape_structs import (
    ROW,
    RUN_FILL4,
    RUN_FILL8,
    RUN_GUARD,
    RUN_INLINE,
    RUN_KERNEL,
    RUN_LOOP,
    RUN_PYTHON,
    ProgramRow,
)
from kernels.programs.running.loops_native import steered


def differ(a, b, size):
    """Whether bytes of two places differ."""
    count, different = size >> 3, 0
    for i in range(count):
        different |= load_i8(a + 8 * i) ^ load_i8(b + 8 * i)
    for i in range(8 * count, size):
        different |= np.int64(load_i1(a + i)) ^ np.int64(load_i1(b + i))
    return different != 0


def run(rows: int, first: int, stop: int) -> int:
    """Execute rows from ``first`` on to ``stop``; return the number of the row whose guard missed, -1 if none did.

    ``-2 - k`` where Python has to act before it goes on with row k: to give loops room, to look for interrupts, to run
    what row k stands for.
    """
    k = first
    while k < stop:
        row = ProgramRow(rows + 8 * ROW * k)
        kind = row.kind
        if kind == RUN_INLINE:
            call_kernel(row.layout, row.address, row.data, row.operands)
        elif kind == RUN_KERNEL:
            call_kernel(row.address, row.layout, row.pointers, row.accumulate)
        elif kind == RUN_FILL8:
            target = row.address
            for i in range(row.operands):
                store_i8(target + 8 * i, row.data)
        elif kind == RUN_FILL4:
            target = row.address
            for i in range(row.operands):
                store_i4(target + 4 * i, row.data)
        elif kind == RUN_GUARD:
            pointers = row.pointers
            if differ(word(pointers, 0), word(pointers, 1), row.operands):
                ahead = row.address
                if ahead == 0:
                    return k
                k += ahead - 1
        elif kind == RUN_PYTHON:
            return -2 - k
        elif kind >= RUN_LOOP:
            following = steered(row, k)
            if following < 0:
                return following if following != -1 else k
            k = following - 1
        else:
            pointers, operands = row.pointers, row.operands
            nest(row.layout, pointers, operands, row.address, row.data)
        k += 1
    return -1
