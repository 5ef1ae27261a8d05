"""Indices with arrays of integers or booleans: NumPy's meaning, and the places that they pick as numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.layouts import Spec, Strides, dense
from tape import recording
from tape.tensor import Array, Tensor, as_array


def array_key(key: Any) -> tuple[Any, ...]:
    """Return an index as NumPy takes it: arrays for tensors and lists. IndexError for other dtypes."""
    items = key if isinstance(key, tuple) else (key,)
    return tuple(map(_item, items))


def _item(key: Any) -> Any:
    if key is None or key is Ellipsis or isinstance(key, (slice, int, np.integer)):
        return key
    if isinstance(key, Tensor):
        recording.left(key)
        key = as_array(key)
    array = np.asarray(key)
    if array.size == 0 and array.dtype.kind == "f" and not isinstance(key, np.ndarray):
        array = array.astype(np.int64)  # an empty list
    if array.dtype.kind not in "iub":
        raise IndexError(f"tensors used as indices must be integer or bool tensors, not {array.dtype.name}")
    return array


def places(spec: Spec, strides: Strides, key: tuple[Any, ...]) -> Array:
    """Return which elements an index picks, as numbers of elements by these strides; C-contiguous int64.

    Each axis numbers its places in an array that takes no memory but along that axis, and NumPy indexes that.
    """
    total: Array | None = None
    for axis, (n, stride) in enumerate(zip(spec.shape, strides, strict=True)):
        numbers = _numbers(n, stride // spec.dtype.itemsize)
        apart = [0] * len(spec.shape)
        apart[axis] = numbers.strides[0]
        along = np.lib.stride_tricks.as_strided(numbers, spec.shape, apart, writeable=False)
        part = _picked(along, key)
        total = part if total is None else total + part
    assert total is not None
    return np.ascontiguousarray(total, np.int64)


@functools.lru_cache(64)
def _numbers(n: int, step: int) -> Array:
    return np.arange(n) * step


def _picked(array: Array, key: tuple[Any, ...]) -> Array:
    try:
        return np.asarray(array[key])
    except IndexError as error:
        text = str(error).replace("axis", "dimension").replace("array", "tensor")
        raise IndexError(f"index: {text}; the tensor has shape {list(array.shape)}") from None


def last_ones(spec: Spec, key: tuple[Any, ...]) -> tuple[Array, tuple[Array, ...]] | None:
    """Return which of the picked elements are not picked again, and an index of those; None if none is repeated."""
    numbers = places(spec, dense(spec.shape, spec.dtype.itemsize), key).reshape(-1)
    found, first = np.unique(numbers[::-1], return_index=True)
    if len(found) == len(numbers):
        return None
    kept = np.sort(len(numbers) - 1 - first)
    return kept, np.unravel_index(numbers[kept], spec.shape)
