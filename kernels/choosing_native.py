"""Inner loops that choose by a mask, as NumPy's are: ``void loop(char **, npy_intp *, npy_intp *, void *)``."""

from __future__ import annotations

from kernels.jit import cfunc
from kernels.memory import load_f4, load_i8, pointer_b1, store_f4, store_i8, word


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
