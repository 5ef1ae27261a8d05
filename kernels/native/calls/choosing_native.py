"""Inner loops for ``where`` and for counting ties, with the signature of NumPy's inner loops."""

from __future__ import annotations

from kernels.language.native_types import Void, Word
from kernels.native.memory import load_f4, load_f8, load_i8, pointer_b1, store_f4, store_f8, store_i8, word


def place(pointers, strides, which, i):
    """Where an element of an operand stands."""
    return word(pointers, which) + i * word(strides, which)


def chosen(pointers, strides, i):
    """The address of the element that the mask chooses."""
    return place(pointers, strides, 1 if pointer_b1(place(pointers, strides, 0, i))[0] != 0 else 2, i)


def choose8(pointers: Word, extents: Word, strides: Word, data: Word) -> Void:
    for i in range(load_i8(extents)):
        store_i8(place(pointers, strides, 3, i), load_i8(chosen(pointers, strides, i)))


def choose4(pointers: Word, extents: Word, strides: Word, data: Word) -> Void:
    for i in range(load_i8(extents)):
        store_f4(place(pointers, strides, 3, i), load_f4(chosen(pointers, strides, i)))


def ties(pointers: Word, extents: Word, strides: Word, data: Word) -> Void:
    """Count the elements that are equal to the extremum; if that is nan, those that are nan."""
    for i in range(load_i8(extents)):
        x = load_f8(place(pointers, strides, 0, i))
        y = load_f8(place(pointers, strides, 1, i))
        if x == y or (x != x and y != y):
            at = place(pointers, strides, 2, i)
            store_f8(at, load_f8(at) + 1.0)
