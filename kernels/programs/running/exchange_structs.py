"""How arguments and results of a program are exchanged with Python: exchange.py lays this out."""

from __future__ import annotations

from kernels.compiler.native_types import Array, Struct


class ExchangeHead(Struct):
    """The head; behind it an :class:`ExchangedValue` for each argument, then for each result."""

    arguments: int  # how many
    results: int
    float_type: int
    double_type: int  # np.float64
    single_type: int  # np.float32
    int_type: int
    array_type: int
    new_copy: int  # NumPy's functions: what makes a copy
    copy_into: int
    new_array: int
    rows: int  # where the rows stand that run between
    row_count: int
    releases: int  # whether other threads may run Python meanwhile


class ExchangedValue(Struct):
    """An argument or a result."""

    kind: int  # XK_ARRAY to XK_INTEGER
    place: int  # where it stands
    view: int  # the array that shows it
    dtype: int  # of a result: its number
    ndim: int
    shape: Array[int]
    words: int  # of an array how many it has, -1 where NumPy is to copy it
    gradient: int  # of a gradient its elements, 0 of others
    item: int  # bytes of an element


XK_ARRAY, XK_DOUBLE, XK_SINGLE, XK_INTEGER = range(4)
"""Kinds: arrays alone; also a float or int for a double, a float or np.float32 for a single, an int for an int64."""
