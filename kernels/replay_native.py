"""The interpreter of programs: one loop over rows of words, each a call by address."""

from __future__ import annotations

from kernels.jit import njit
from kernels.memory import call_kernel, call_loop, load_i8, store_i4, store_i8, word
from kernels.words import (
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


@njit("void(int64)", cache=True, error_model="numpy")
def nest(row):
    """Call a NumPy loop for each row of its nest; behind the pointers there is room for its arguments."""
    layout, pointers, count = word(row, R_LAYOUT), word(row, R_POINTERS), word(row, R_OPERANDS)
    rows, axes = load_i8(layout), word(layout, 2)
    words = axes + 1
    first = layout + 8 * (3 + axes)
    arguments = pointers + 8 * count
    strides = arguments + 8 * count
    extent = strides + 8 * count
    store_i8(extent, word(layout, 1))
    for k in range(count):
        store_i8(strides + 8 * k, word(first, k * words))
    for at in range(rows):
        for k in range(count):
            store_i8(arguments + 8 * k, word(pointers, k))
        rest = at
        for axis in range(axes):
            size = word(layout, 3 + axis)
            place = rest % size
            rest //= size
            for k in range(count):
                own = arguments + 8 * k
                store_i8(own, load_i8(own) + place * word(first, k * words + 1 + axis))
        call_loop(word(row, R_ADDRESS), arguments, extent, strides, word(row, R_DATA))


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
            nest(row)
