"""Copies with one part written anew: picked elements, a slice, a diagonal; NumPy's functions that write too."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.operations import indexing, writes
from tape.operations.numpy_arguments import array_like
from tape.operations.reductions.sorting import escaped_values
from tape.recording import computed_places, pick_calls, views
from tape.recording.arguments import dim_of
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Array, Tensor, method


@public()
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write values to the elements picked by a tuple of index tensors, in a copy; with ``accumulate`` add them.

    >>> tape.index_put(tape.zeros(3), (tape.tensor([1, 1]),), tape.tensor([2.0, 3.0]), accumulate=True).tolist()
    [0.0, 5.0, 0.0]
    """
    return views.clone(tensor_of(input)).index_put_(indices, values, accumulate)


@method()
def put_(x: Tensor, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """Write as many values to the elements of these numbers, in C order; with ``accumulate`` add them."""
    writes.check(x, "put_", reads=accumulate)
    if computed_places.is_followed(index, adds=accumulate) and _put_followed(x, index, source, accumulate):
        return x
    at, values = pick_calls.integers(index, "put_"), tensor_of(source)
    if values.spec.size != at.size:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{values.spec.size}, index.numel() = {at.size}"
        )
    if values.spec.dtype != x.spec.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype: {x.spec.dtype}, {values.spec.dtype}"
        )
    numbers = pick_calls.wrapped(at, x.spec.size, 0)
    return indexing.put(x, numbers, views.reshape(values, at.shape), "put_", adds=accumulate)


def _put_followed(x: Tensor, index: Tensor, source: Any, accumulate: bool) -> bool:
    """Write by an index that a recorder follows; False, with nothing done, where it does not fit."""
    values = tensor_of(source)
    fits = values.spec.size == index.spec.size and values.spec.dtype == x.spec.dtype
    if not fits or indexing.in_order(x) is not x:
        return False
    key, flat = (views.reshape(index, -1),), views.reshape(x, -1)
    return indexing.put_followed(flat, key, views.reshape(values, -1), "put_", adds=accumulate, wraps=True)


@public()
def put(input: Any, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """Return a copy with values at the elements of these numbers, in C order; with ``accumulate`` they are added.

    IndexError for a number out of bounds, and for another number of values; RuntimeError for another dtype.

    >>> tape.put(tape.zeros(2, 2), tape.tensor([1, -1]), tape.tensor([5.0, 6.0])).tolist()
    [[0.0, 5.0], [0.0, 6.0]]
    """
    return views.clone(tensor_of(input)).put_(index, source, accumulate)


@public(methods=False)
def masked_fill(input: Any, mask: Any, value: Any) -> Tensor:
    """Return a copy filled where a bool mask, broadcast together, holds with one number, or with a 0-d tensor.

    >>> x = tape.tensor([1.0, -2.0, 3.0])
    >>> tape.masked_fill(x, x < 0, 0.0).tolist()
    [1.0, 0.0, 3.0]
    """
    return tensor_of(input).masked_fill(mask, value)


@public()
def slice_scatter(input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """Return a copy with ``src``, of the shape of the slice, in a slice along ``dim``.

    >>> tape.slice_scatter(tape.zeros(4), tape.ones(2), 0, start=1, end=3).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    result = views.clone(tensor_of(input))
    key = (slice(None),) * dim_of(result, dim) + (slice(start, end, step),)
    return _filled(result, indexing.index(result, key), src)


@public()
def select_scatter(input: Any, src: Any, dim: int, index: int) -> Tensor:
    """Return a copy with ``src``, which has no such dim, at one place along ``dim``.

    >>> tape.select_scatter(tape.zeros(2, 2), tape.ones(2), dim=1, index=0).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    result = views.clone(tensor_of(input))
    return _filled(result, result.select(dim, index), src)


@public()
def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy with ``src`` on the diagonal of two dims; it has the shape of :func:`diagonal`.

    >>> tape.diagonal_scatter(tape.zeros(2, 2), tape.tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    result = views.clone(tensor_of(input))
    return _filled(result, result.diagonal(offset, dim1, dim2), src)


def _filled(result: Tensor, part: Tensor, src: Any) -> Tensor:
    src = tensor_of(src)
    if src.spec.shape != part.spec.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.spec.shape)}, "
            f"slice size = {list(part.spec.shape)}"
        )
    part.copy_(src)
    return result


@implements(np.put_along_axis)
def _put_along_axis(arr: Tensor, indices: Any, values: Any, axis: int | None) -> None:
    at = pick_calls.integers(indices, "np.put_along_axis", IndexError)
    if axis is None:
        _put(arr, at, values)
        return
    axis = dim_of(arr, axis)
    places = list(np.ogrid[tuple(map(slice, at.shape))])
    places[axis] = at
    arr[tuple(places)] = values


@implements(np.put)
def _put(a: Tensor, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write to the elements of these numbers; values too few are used over and over."""
    at = np.arange(a.spec.size).take(np.reshape(pick_calls.integers(ind, "np.put"), -1), mode=mode)  # type: ignore[call-overload]
    values: Any = np.resize(array_like(v), at.shape)
    indexing.put(a, at, values if values.spec.dtype == a.spec.dtype else values.to(a.spec.dtype), "np.put")


@implements(np.copyto)
def _copyto(dst: Tensor, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Copy values, broadcast, into a tensor, where a mask holds."""
    source = tensor_of(src)
    allowed = np.can_cast(source.spec.dtype, dst.spec.dtype, casting)  # type: ignore[arg-type]
    if not allowed and isinstance(src, (Tensor, np.ndarray)):
        raise TypeError(f"Cannot cast array data from {source.spec.dtype!r} to {dst.spec.dtype!r} by rule {casting!r}")
    dst.copy_(source if where is True else source.to(dst.spec.dtype).where(tensor_of(where), dst))


@implements(np.place)
def _place(arr: Tensor, mask: Any, vals: Any) -> None:
    """Write values, over and over, to the elements where a mask holds, one after the other."""
    at, values = _masked(arr, mask, np.place.__name__), array_like(vals)
    if at.size and not values.spec.size:
        raise ValueError("Cannot insert from an empty array!")
    if at.size:
        _put(arr, at, values)


@implements(np.putmask)
def _putmask(a: Tensor, mask: Any, values: Any) -> None:
    """Write, where a mask holds, the values that stand in these places: over and over where there are too few."""
    at, source = _masked(a, mask, np.putmask.__name__), array_like(values)
    if at.size and source.spec.size:
        _put(a, at, indexing.index(views.reshape(source, -1), at % source.spec.size))


def _masked(x: Tensor, mask: Any, name: str) -> Array:
    """Return the numbers of the elements where a mask of as many elements holds."""
    writes.check(x, name)
    truth = escaped_values(array_like(mask).detach(), name).reshape(-1)
    if truth.size != x.spec.size:
        raise ValueError(f"{name}: mask and data must be the same size; the shape of the data is {list(x.spec.shape)}")
    return np.flatnonzero(truth)
