"""The kernel of extrema.Pick, for float64 or float32."""

from __future__ import annotations

from kernels.codegen.elements import ITEM, load, store
from kernels.compiler.native_types import Void, Word, Words
from kernels.native.memory import store_i8


def pick(layout: Words, pointers: Words, accumulate: Word) -> Void:
    for row in range(layout[0]):
        rest, place = row, pointers[2]
        for axis in range(layout[5]):
            place += (rest % layout[6 + axis]) * layout[6 + layout[5] + axis]
            rest //= layout[6 + axis]
        best, at = load(place), 0
        for k in range(1, layout[1]):
            value = load(place + k * layout[2])
            better = value > best if layout[3] else value < best
            if best == best and (better or value != value):
                best, at = value, k
        store(pointers[0] + row * ITEM, best)
        store_i8(pointers[1] + 8 * row, at)
