"""The kernel of a matrix product: NumPy's loop into the target, or into new memory and added from there."""

from __future__ import annotations

from kernels.language.native_types import Void, Word, Words
from kernels.native.memory import allocate, call_loop, load_f4, load_f8, release, store_f4, store_f8, store_i8

# The layout's words: see blas.Product.kernel.
L_LOOP, L_DATA, L_ITEM, L_LEFT, L_RIGHT, L_TARGET, L_EXTENTS = range(7)
L_STRIDES = L_EXTENTS + 4
L_ROW, L_COLUMN = L_STRIDES + 7, L_STRIDES + 8
OPERANDS, STRIDES, EXTENTS, PRODUCT = 0, 3, 12, 16  # where they stand in the call's own memory, in words


def add(target: int, product: int, row: int, column: int, rows: int, columns: int, item: int) -> None:
    """Add a dense matrix, and 0.0 to turn -0.0, to a strided one."""
    for i in range(rows):
        for j in range(columns):
            place = target + i * row + j * column
            value = product + (i * columns + j) * item
            if item == 8:
                store_f8(place, load_f8(place) + (load_f8(value) + 0.0))
            else:
                store_f4(place, load_f4(place) + load_f4(value))


def kernel(layout: Words, pointers: Words, accumulate: Word) -> Void:
    item, rows, columns = layout[L_ITEM], layout[L_EXTENTS + 1], layout[L_EXTENTS + 3]
    target = pointers[layout[L_TARGET]]
    copy = allocate(8 * PRODUCT + (rows * columns * item if accumulate else 0))
    store_i8(copy, pointers[layout[L_LEFT]])
    store_i8(copy + 8, pointers[layout[L_RIGHT]])
    for i in range(9):
        store_i8(copy + 8 * (STRIDES + i), layout[L_STRIDES + i])
    for i in range(4):
        store_i8(copy + 8 * (EXTENTS + i), layout[L_EXTENTS + i])
    product = target
    if accumulate:
        product = copy + 8 * PRODUCT
        store_i8(copy + 8 * (STRIDES + 7), columns * item)
        store_i8(copy + 8 * (STRIDES + 8), item)
    store_i8(copy + 16, product)
    call_loop(layout[L_LOOP], copy, copy + 8 * EXTENTS, copy + 8 * STRIDES, layout[L_DATA])
    if accumulate:
        add(target, product, layout[L_ROW], layout[L_COLUMN], rows, columns, item)
    release(copy)
