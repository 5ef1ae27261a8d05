"""NumPy's own inner loops by address: a replay computes with the very code that dynamic mode ran."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from kernels.foundation.data_classes import dataclass

Dtypes = tuple[np.dtype[Any], ...]

# Where PyUFuncObject keeps its fields, in bytes (NumPy's ufuncobject.h; unchanged since NumPy 1.0).
_NIN, _NOUT, _NARGS, _FUNCTIONS, _DATA, _NTYPES, _TYPES = 16, 20, 24, 32, 40, 48, 64


@dataclass(frozen=True)
class InnerLoop:
    """``void loop(char **args, npy_intp *dimensions, npy_intp *steps, void *data)``."""

    address: int
    data: int


def _int(address: int) -> int:
    return ctypes.c_int.from_address(address).value


def _pointer(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


@functools.cache
def find(ufunc: np.ufunc, dtypes: Dtypes) -> InnerLoop:
    """Return the loop of a ufunc for exactly these dtypes, inputs then outputs; LookupError if there is none."""
    if not readable():
        raise LookupError("this NumPy keeps its ufunc loops elsewhere")
    start, count = id(ufunc), ufunc.nargs
    codes = ctypes.string_at(_pointer(start + _TYPES), count * ufunc.ntypes)
    wanted = bytes(dtype.num for dtype in dtypes)
    for k in range(ufunc.ntypes):
        if codes[k * count : (k + 1) * count] == wanted:
            table = _pointer(start + _DATA)
            data = _pointer(table + 8 * k) if table else 0
            return InnerLoop(_pointer(_pointer(start + _FUNCTIONS) + 8 * k), data)
    names = ", ".join(dtype.name for dtype in dtypes)
    raise LookupError(f"{ufunc.__name__} has no loop for ({names})")


@functools.cache
def readable() -> bool:
    """Check on known ufuncs that their fields stand where they are read, and that a loop computes."""
    for ufunc in (np.add, np.sin, np.matmul):
        start = id(ufunc)
        fields = [_int(start + at) for at in (_NIN, _NOUT, _NARGS, _NTYPES)]
        if fields != [ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes]:
            return False
        codes = ctypes.string_at(_pointer(start + _TYPES), ufunc.nargs * ufunc.ntypes)
        kinds = [code.split("->") for code in ufunc.types]
        if codes != b"".join(bytes(np.dtype(c).num for c in a + b) for a, b in kinds):
            return False
    return _computes()


def _computes() -> bool:
    start = id(np.add)
    k = np.add.types.index("dd->d")
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
    loop = prototype(_pointer(_pointer(start + _FUNCTIONS) + 8 * k))
    a, b, y = np.array([1.5, 2.5]), np.array([0.25, 4.0]), np.zeros(2)
    pointers = np.array([array.ctypes.data for array in (a, b, y)], np.int64)
    extents, strides = np.array([2], np.int64), np.array([8, 8, 8], np.int64)
    loop(*[words.ctypes.data for words in (pointers, extents, strides)], None)
    return bool(np.array_equal(y, a + b))
