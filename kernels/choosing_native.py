"""Inner loops that choose by a mask, and count: as NumPy's, ``void loop(char **, npy_intp *, npy_intp *, void *)``."""

from __future__ import annotations

from kernels.jit import cfunc
from kernels.memory import load_f4, load_f8, load_i8, pointer_b1, store_f4, store_f8, store_i8, word


@cfunc("void(int64, int64, int64, int64)", cache=True, error_model="numpy")
def choose8(pointers, extents, strides, data):
    for i in range(load_i8(extents)):
        mask = pointer_b1(word(pointers, 0) + i * word(strides, 0))
        which = 1 if mask[0] != 0 else 2
        store_i8(word(pointers, 3) + i * word(strides, 3), load_i8(word(pointers, which) + i * word(strides, which)))


@cfunc("void(int64, int64, int64, int64)", cache=True, error_model="numpy")
def choose4(pointers, extents, strides, data):
    for i in range(load_i8(extents)):
        mask = pointer_b1(word(pointers, 0) + i * word(strides, 0))
        which = 1 if mask[0] != 0 else 2
        store_f4(word(pointers, 3) + i * word(strides, 3), load_f4(word(pointers, which) + i * word(strides, which)))


@cfunc("void(int64, int64, int64, int64)", cache=True, error_model="numpy")
def ties(pointers, extents, strides, data):
    """Count the elements that are the extremum; not-a-number is all that are none."""
    for i in range(load_i8(extents)):
        x = load_f8(word(pointers, 0) + i * word(strides, 0))
        y = load_f8(word(pointers, 1) + i * word(strides, 1))
        if x == y or (x != x and y != y):
            at = word(pointers, 2) + i * word(strides, 2)
            store_f8(at, load_f8(at) + 1.0)
