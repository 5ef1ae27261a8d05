"""The interpreter of programs: one loop over rows of words, each a call by address."""

from __future__ import annotations

from kernels.compiler.jit import load_module, njit
from kernels.native.memory import call_kernel, store_i4, store_i8, word
from kernels.native.words import (
    R_ACCUMULATE,
    R_ADDRESS,
    R_DATA,
    R_KIND,
    R_LAYOUT,
    R_OPERANDS,
    R_POINTERS,
    ROW,
    RUN_FILL4,
    RUN_FILL8,
    RUN_INLINE,
    RUN_KERNEL,
)

nest = load_module("native.nests_native").nest


@njit("void(int64, int64)", cache=True, error_model="numpy")
def run(rows, count):
    """Execute rows."""
    for k in range(count):
        row = rows + 8 * ROW * k
        kind = word(row, R_KIND)
        if kind == RUN_INLINE:
            call_kernel(word(row, R_LAYOUT), word(row, R_ADDRESS), word(row, R_DATA), word(row, R_OPERANDS))
        elif kind == RUN_KERNEL:
            call_kernel(word(row, R_ADDRESS), word(row, R_LAYOUT), word(row, R_POINTERS), word(row, R_ACCUMULATE))
        elif kind == RUN_FILL8:
            target = word(row, R_ADDRESS)
            for i in range(word(row, R_OPERANDS)):
                store_i8(target + 8 * i, word(row, R_DATA))
        elif kind == RUN_FILL4:
            target = word(row, R_ADDRESS)
            for i in range(word(row, R_OPERANDS)):
                store_i4(target + 4 * i, word(row, R_DATA))
        else:
            pointers, count = word(row, R_POINTERS), word(row, R_OPERANDS)
            nest(word(row, R_LAYOUT), pointers, count, word(row, R_ADDRESS), word(row, R_DATA))
