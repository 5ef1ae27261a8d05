"""Runs NumPy's inner loops over arrays of any rank: the loop takes one axis, a counter around it the others."""

from __future__ import annotations

from kernels.native.memory import call_loop, load_i8, store_i8, word


def nest(layout, pointers, count, loop, data):
    """Call a loop for each row of a nest; behind the ``count`` pointers there is room for its arguments.

    ``layout`` is of tasks.py: rows, extent of a row, axes outside and their sizes, then strides by operand.
    """
    rows, axes = load_i8(layout), word(layout, 2)
    stride = axes + 1
    first = layout + 8 * (3 + axes)
    arguments = pointers + 8 * count
    strides = arguments + 8 * count
    extent = strides + 8 * count
    store_i8(extent, word(layout, 1))
    for k in range(count):
        store_i8(strides + 8 * k, word(first, k * stride))
    for at in range(rows):
        for k in range(count):
            store_i8(arguments + 8 * k, word(pointers, k))
        rest = at
        for axis in range(axes):
            size = word(layout, 3 + axis)
            place = rest % size
            rest //= size
            for k in range(count):
                operand = arguments + 8 * k
                store_i8(operand, load_i8(operand) + place * word(first, k * stride + 1 + axis))
        call_loop(loop, arguments, extent, strides, data)
