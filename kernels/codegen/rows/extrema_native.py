"""The kernels of extrema.Pick, for float64 and float32."""

from __future__ import annotations

from kernels.compiler.jit import SIGNATURE, cfunc
from kernels.native.memory import load_f4, load_f8, store_f4, store_f8, store_i8


@cfunc(SIGNATURE, cache=True, error_model="numpy")
def double(layout, pointers, accumulate):
    for row in range(layout[0]):
        rest, place = row, pointers[2]
        for axis in range(layout[5]):
            place += (rest % layout[6 + axis]) * layout[6 + layout[5] + axis]
            rest //= layout[6 + axis]
        best, at = load_f8(place), 0
        for k in range(1, layout[1]):
            value = load_f8(place + k * layout[2])
            better = value > best if layout[3] else value < best
            if best == best and (better or value != value):
                best, at = value, k
        store_f8(pointers[0] + 8 * row, best)
        store_i8(pointers[1] + 8 * row, at)


@cfunc(SIGNATURE, cache=True, error_model="numpy")
def single(layout, pointers, accumulate):
    for row in range(layout[0]):
        rest, place = row, pointers[2]
        for axis in range(layout[5]):
            place += (rest % layout[6 + axis]) * layout[6 + layout[5] + axis]
            rest //= layout[6 + axis]
        best, at = load_f4(place), 0
        for k in range(1, layout[1]):
            value = load_f4(place + k * layout[2])
            better = value > best if layout[3] else value < best
            if best == best and (better or value != value):
                best, at = value, k
        store_f4(pointers[0] + 4 * row, best)
        store_i8(pointers[1] + 8 * row, at)
