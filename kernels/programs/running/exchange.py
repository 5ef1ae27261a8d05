"""Copies arguments into a program's memory and results out of it, natively for floats, ints and usual arrays."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.compiler import jit
from kernels.compiler.jit import bound
from kernels.native import numpy_api
from kernels.native.memory import readable, where
from kernels.programs.running.exchange_structs import (
    XK_ARRAY,
    XK_DOUBLE,
    XK_INTEGER,
    XK_SINGLE,
    ExchangedValue,
    ExchangeHead,
)

Array = np.ndarray[Any, Any]

_KINDS = {np.dtype("f8"): XK_DOUBLE, np.dtype("f4"): XK_SINGLE, np.dtype("i8"): XK_INTEGER}
_FEW = 64
"""The most words that are copied one by one; for more, NumPy's copy is faster."""


class Exchange:
    """The places of a machine's arguments and results.

    ``enter(*arguments)`` copies floats, ints and arrays of the recorded dtypes and shapes in; it returns 0, and has
    perhaps written some, where others are given. ``leave()`` returns the results, then the gradients, as a tuple:
    floats, and arrays of their own memory. ``whole`` does both, and runs ``rows`` between, if there are any: where they
    stand, how many, and whether other threads may run Python meanwhile. ``exactly``: ints, and arrays in another order
    than C's, are left to Python.
    """

    __slots__ = ("_kept", "enter", "leave", "whole")

    def __init__(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        gradients: Sequence[Array],
        rows: tuple[int, int, bool] | None,
        *,
        exactly: bool = False,
    ) -> None:
        self.enter: Callable[..., int] = _never
        self.leave: Callable[[], tuple[Any, ...]] = tuple
        self.whole: Callable[..., Any] | None = None
        everything = [*inputs, *outputs, *gradients]
        if not native() or any(g.dtype.itemsize not in (4, 8) or not g.flags.c_contiguous for g in gradients):
            return
        shapes = np.array([n for array in everything for n in array.shape] or [0], np.int64)
        words, at = [len(inputs), len(outputs) + len(gradients), *_head()], where(shapes)
        for k, array in enumerate(everything):
            entry = ExchangedValue.row(
                kind=_kind(array, is_argument=k < len(inputs)),
                place=where(array),
                view=id(array),
                dtype=id(array.dtype) if k < len(inputs) else array.dtype.num,
                ndim=array.ndim,
                shape=at,
                words=_words(array),
                gradient=array.size if k >= len(inputs) + len(outputs) else 0,
                item=0 if k < len(inputs) else array.itemsize,
            )
            words += entry
            at += 8 * array.ndim
        table = np.array(words, np.int64)
        if exactly:
            table[ExchangeHead.int_type] = 0
        self._kept = (everything, shapes, table)
        self.enter, self.leave = (bound("programs.running.exchange_native", name, table) for name in ("enter", "leave"))
        if rows is not None:
            table[ExchangeHead.rows], table[ExchangeHead.row_count], table[ExchangeHead.releases] = rows
            self.whole = bound("programs.running.exchange_native", "pass_through", table)


def _never(*_: Any) -> int:
    """Leave everything to Python."""
    return 0


def _kind(array: Array, *, is_argument: bool) -> int:
    kind = XK_ARRAY if array.ndim else _KINDS.get(array.dtype, XK_ARRAY)
    return kind if is_argument or kind != XK_INTEGER else XK_ARRAY


def _words(array: Array) -> int:
    """Return how many words an array has, if they are few and contiguous; else -1."""
    whole = array.flags.c_contiguous and array.nbytes % 8 == 0
    return array.nbytes // 8 if whole and array.nbytes <= 8 * _FEW else -1


@functools.cache
def native() -> bool:
    """Whether objects stand in memory as native code reads them, and NumPy's functions are where they are called."""
    return readable() and not os.environ.get("TAPE_PLAIN") and jit.makes_native_code() and numpy_api.agrees()


def _head() -> list[int]:
    """Return the addresses of types and functions, in the order of the words, and room for the rows."""
    table = numpy_api.table()
    functions = [table[place] for place in (numpy_api.NEW_COPY, numpy_api.COPY_INTO, numpy_api.NEW)]
    return [id(float), id(np.float64), id(np.float32), id(int), id(np.ndarray), *functions, 0, 0, 0]
