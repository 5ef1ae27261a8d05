"""Indices with arrays of integers or booleans: NumPy's meaning, and the places that they pick as numbers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides, dense
from tape.foundation.call_sites import stack_level
from tape.recording import record
from tape.tensors import modes
from tape.tensors.operands import as_ndarray
from tape.tensors.tensor import Array, Tensor, as_array


def array_key(key: Any) -> tuple[Any, ...]:
    """Return an index as NumPy takes it: arrays for tensors and lists. IndexError for other dtypes."""
    items = key if isinstance(key, tuple) else (key,)
    return tuple(map(_item, items))


def _item(key: Any) -> Any:
    if key is None or key is Ellipsis or isinstance(key, (slice, int, np.integer)):
        return key
    if isinstance(key, Tensor):
        record.note_escape(key)
        key = as_array(key) != 0 if is_byte_mask(key) else as_array(key)
    array = as_ndarray(key)
    if array.size == 0 and array.dtype.kind == "f" and not isinstance(key, np.ndarray):
        array = array.astype(np.int64)  # an empty list
    if array.dtype.kind not in "iub":
        raise IndexError(f"tensors used as indices must be integer or bool tensors, not {array.dtype.name}")
    return array


def is_byte_mask(index: Any) -> bool:
    """Whether an index is a uint8 tensor, which is a mask as in PyTorch.

    In functions that were given NumPy arrays it is integers, as in NumPy.
    """
    return isinstance(index, Tensor) and index._form.spec.dtype == np.uint8 and not modes.given_arrays()


def warn_of_bytes(items: Iterable[Any]) -> None:
    """Warn of uint8 tensors as indices, whose meaning differs between PyTorch and NumPy."""
    if any(isinstance(item, Tensor) and item._form.spec.dtype == np.uint8 for item in items):
        meaning, other = "integers, as in NumPy", "of another integer dtype for integers, or bool for a mask"
        if not modes.given_arrays():
            meaning, other = "a mask, as in PyTorch", "bool for a mask, or of another integer dtype for integers"
        warnings.warn(f"a uint8 tensor as an index is {meaning}; make it {other}", stacklevel=stack_level())


def integers(index: Any, name: str, error: type[Exception] = RuntimeError) -> Array:
    """Return an index, a tensor, an array or a list of integers, as int64. ``error`` where it holds something else.

    Recorders note an escape: they cannot follow the values.
    """
    if isinstance(index, Tensor):
        record.note_escape(index)
    array = as_array(index) if isinstance(index, Tensor) else as_ndarray(index)
    if array.dtype.kind not in "iu" and array.size:
        raise error(f"{name}(): Expected dtype int32/int64 for index, but got {array.dtype.name}")
    return array.astype(np.int64, copy=False)


def check_bounds(index: Array, n: int, axis: int, error: type[Exception] = IndexError, *, below: int = 0) -> None:
    """Raise unless ``below <= index < n`` everywhere."""
    if index.size and not (below <= index.min() and index.max() < n):
        wrong = index[(index < below) | (index >= n)].reshape(-1)[0]
        raise error(f"index {wrong} is out of bounds for dimension {axis} with size {n}")


def wrapped(index: Array, n: int, axis: int, error: type[Exception] = IndexError) -> Array:
    """Return an index with negative ones counted from the end; raise where it is out of bounds."""
    if not index.size or (index.min() >= 0 and index.max() < n):
        return index
    check_bounds(index, n, axis, error, below=-n)
    return np.where(index < 0, index + n, index)


def along(shape: Strides, axis: int, index: Array) -> Array:
    """Return the numbers, in C order, of the elements that an index of as many axes takes along one of them."""
    if not index.size:
        return np.zeros(index.shape, np.int64)
    steps = dense(shape, 1)
    return _spread(index * steps[axis] if shape else index, [0 if k == axis else s for k, s in enumerate(steps)])


def across(shape: Strides, axis: int, index: Array) -> Array:
    """Return the numbers, in C order, of all elements at the places along an axis that a vector gives."""
    extents = [len(index) if k == axis else n for k, n in enumerate(shape)]
    wide = index.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return along(shape, axis, np.broadcast_to(wide, extents)) if shape else index[0] if len(index) else index


def _spread(numbers: Array, steps: Sequence[int]) -> Array:
    """Add the contribution of each axis, its places times its step, to numbers of elements."""
    for k, step in enumerate(steps):
        if step and numbers.shape[k] > 1:
            numbers = numbers + _numbers(numbers.shape[k], step).reshape(
                [-1 if d == k else 1 for d in range(numbers.ndim)]
            )
    return np.asarray(numbers, np.int64, order="C")


def places(spec: Spec, strides: Strides, key: tuple[Any, ...]) -> Array:
    """Return which elements an index picks, as numbers of elements by these strides; C-contiguous int64."""
    steps = [stride // spec.dtype.itemsize for stride in strides]
    adjacent = _adjacent(spec.shape, key)
    return _by_numpy(spec.shape, steps, key) if adjacent is None else _summed(spec.shape, steps, *adjacent)


def _adjacent(shape: Strides, key: tuple[Any, ...]) -> tuple[int, tuple[Array, ...]] | None:
    """Return the first axis indexed by arrays, and the arrays, if all other axes are taken whole; else None."""
    lead = next((k for k, item in enumerate(key) if not _whole(item)), len(key))
    arrays = key[lead:]
    while arrays and (arrays[-1] is Ellipsis or _whole(arrays[-1])):
        arrays = arrays[:-1]
    if not arrays or not all(isinstance(a, np.ndarray) for a in arrays):
        return None
    if arrays[0].dtype == np.bool_:
        mask = arrays[0]
        if len(arrays) > 1 or not mask.ndim or mask.shape != shape[lead : lead + mask.ndim]:
            return None
        arrays = np.nonzero(mask)
    if lead + len(arrays) > len(shape) or any(a.dtype.kind == "b" for a in arrays):
        return None
    return lead, arrays


def _whole(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _summed(shape: Strides, steps: Sequence[int], lead: int, arrays: tuple[Array, ...]) -> Array:
    """Add up what each array and each whole axis contributes."""
    total: Any = 0
    for axis, array in enumerate(arrays, lead):
        index = wrapped(array.astype(np.int64, copy=False), shape[axis], axis)
        try:
            total = total + index * steps[axis]
        except ValueError:
            shapes = ", ".join(str(list(a.shape)) for a in arrays)
            raise IndexError(
                f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
            ) from None
    rest = lead + len(arrays)
    before, after = shape[:lead], shape[rest:]
    total = np.asarray(total)
    if not before and not after:
        return np.asarray(total, np.int64, order="C")
    wide = np.broadcast_to(
        total.reshape(*(1,) * lead, *total.shape, *(1,) * len(after)), (*before, *total.shape, *after)
    )
    return _spread(wide, [*steps[:lead], *(0,) * total.ndim, *steps[rest:]])


def _by_numpy(shape: Strides, steps: Sequence[int], key: tuple[Any, ...]) -> Array:
    """Let NumPy index the number of each element.

    Each axis numbers its places in an array that takes no memory but along that axis.
    """
    total: Array | None = None
    for axis, (n, step) in enumerate(zip(shape, steps, strict=True)):
        numbers = _numbers(n, step)
        apart = [0] * len(shape)
        apart[axis] = numbers.strides[0]
        part = picked(np.lib.stride_tricks.as_strided(numbers, shape, apart, writeable=False), key)
        total = part if total is None else total + part
    return np.asarray(picked(np.zeros((), np.int64), key) if total is None else total, np.int64, order="C")


@functools.lru_cache(64)
def _numbers(n: int, step: int) -> Array:
    return np.arange(n) * step


def picked(array: Array, key: tuple[Any, ...]) -> Array:
    """Return the elements that an index picks, copied, in C order."""
    try:
        return np.asarray(array[key], order="C")
    except IndexError as error:
        text = str(error).replace("axis", "dimension").replace("array", "tensor")
        raise IndexError(f"index: {text}; the tensor has shape {list(array.shape)}") from None


def last_ones(numbers: Array, size: int) -> Array | None:
    """Return the last occurrence of each of some numbers below ``size``; None if none is repeated."""
    numbers = numbers.reshape(-1)
    count = len(numbers)
    if count < _TWO:
        return None
    if size > _SPARSE * count:
        distinct, first = np.unique(numbers[::-1], return_index=True)
        return None if len(distinct) == count else np.sort(count - 1 - first)
    order = np.arange(count)
    last = np.empty(size, np.int64)
    last[numbers] = order  # NumPy writes in order, so the last one stays
    kept = last[numbers] == order
    return None if kept.all() else np.flatnonzero(kept)


_TWO = 2
_SPARSE = 64
"""From this ratio of possible to actual numbers on they are sorted, rather than entered in a table of all."""
