"""Tensors joined: side by side, on top of each other, in blocks and along a diagonal; NumPy's functions too."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.conversions import creation
from tape.foundation.dtypes import dtype_of
from tape.operations import gather
from tape.operations.numpy_arguments import array_like
from tape.operations.shapes.copied_views import of_rank
from tape.recording import pick_calls, record, views
from tape.recording.arguments import dim_of
from tape.recording.promotion import alike, tensors_of
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor, as_array

_MATRIX, _BOX = 2, 3


def _ranked(tensors: Any, rank: int, name: str) -> list[Tensor]:
    ranked = [of_rank(x, rank) for x in tensors_of(*tensors)]
    if not ranked:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return ranked


@public(methods=False)
def hstack(tensors: Any) -> Tensor:
    """Join tensors along the columns; vectors and numbers end to end.

    >>> tape.hstack((tape.tensor([1.0, 2.0]), tape.tensor([3.0])))
    tensor([1., 2., 3.])
    """
    parts = _ranked(tensors, 1, "hstack")
    return views.cat(parts, 0 if len(parts[0].spec.shape) == 1 else 1)


@public("row_stack", methods=False)
def vstack(tensors: Any) -> Tensor:
    """Join tensors along the rows; a vector is one row.

    >>> tape.vstack((tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return views.cat(_ranked(tensors, _MATRIX, "vstack"), 0)


@public(methods=False)
def dstack(tensors: Any) -> Tensor:
    """Join tensors along the third dim; a matrix has one place there, and a vector is one row of such.

    >>> tape.dstack((tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))).tolist()
    [[[1.0, 3.0], [2.0, 4.0]]]
    """
    return views.cat(_ranked(tensors, _BOX, "dstack"), 2)


@public(methods=False)
def column_stack(tensors: Any) -> Tensor:
    """Join tensors along the columns; a vector or a number is one column.

    >>> tape.column_stack((tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    columns = tensors_of(*tensors)
    return hstack([views.reshape(x, -1, 1) if len(x.spec.shape) < _MATRIX else x for x in columns])


@public(methods=False)
def block_diag(*tensors: Any) -> Tensor:
    """Return a matrix with matrices along its diagonal, and zeros elsewhere; a vector is one row.

    >>> tape.block_diag(tape.ones(1, 2), tape.tensor([[3.0]])).tolist()
    [[1.0, 1.0, 0.0], [0.0, 0.0, 3.0]]
    """
    matrices = alike(*tensors) if tensors else [creation.zeros(1, 0)]
    for k, x in enumerate(matrices):
        if len(x.spec.shape) > _MATRIX:
            raise RuntimeError(
                "block_diag: Input tensors must have 2 or fewer dimensions. "
                f"Input {k} has {len(x.spec.shape)} dimensions"
            )
    blocks = [of_rank(x, _MATRIX) for x in matrices]
    width, left, rows = sum(b.spec.shape[1] for b in blocks), 0, []
    for b in blocks:
        n, m = b.spec.shape
        before, after = (creation.zeros(n, k, dtype=b.spec.dtype) for k in (left, width - left - m))
        rows.append(views.cat([before, b, after], 1))
        left += m
    return views.cat(rows, 0)


@implements(np.hstack)
def _hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    return _stacked(hstack, tup, dtype, casting)


@implements(np.vstack)
def _vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tensor:
    return _stacked(vstack, tup, dtype, casting)


def _stacked(join: Any, tup: Any, dtype: Any, casting: str) -> Tensor:
    parts = [array_like(x) for x in tup]
    if not parts:
        raise ValueError("need at least one array to concatenate")
    result = join(parts)
    if dtype is None:
        return result  # type: ignore[no-any-return]
    if not np.can_cast(result.spec.dtype, dtype, casting):  # type: ignore[arg-type]
        raise TypeError(f"Cannot cast array data from {result.spec.dtype!r} to {dtype_of(dtype)!r} by {casting!r}")
    return result.to(dtype_of(dtype))  # type: ignore[no-any-return]


@implements(np.dstack)
def _dstack(tup: Any) -> Tensor:
    return _stacked(dstack, tup, None, "")


@implements(np.column_stack)
def _column_stack(tup: Any) -> Tensor:
    return _stacked(column_stack, tup, None, "")


@implements(np.append)
def _append(arr: Any, values: Any, axis: int | None = None) -> Tensor:
    x, more = array_like(arr), array_like(values)
    if axis is None:
        return views.cat([views.reshape(x, -1), views.reshape(more, -1)])
    return views.cat([x, more], axis)


@implements(np.delete)
def _delete(arr: Any, obj: Any, axis: int | None = None) -> Tensor:
    x, at = _along(arr, axis)
    kept = np.delete(np.arange(x.spec.shape[at]), _places(obj))
    return gather.picked_along(x, at, kept)


@implements(np.insert)
def _insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    x, at = _along(arr, axis)
    places, new = _places(obj), array_like(values)
    rank, n = len(x.spec.shape), x.spec.shape[at]
    count = np.insert(np.arange(n), places, -1).size - n
    single = not isinstance(places, slice) and np.ndim(places) == 0
    if single and new.spec.shape:  # NumPy: the first dim of the values is the one inserted along
        new = views.reshape(new, (*(1,) * (rank - len(new.spec.shape)), *new.spec.shape))
        new = new.movedim(0, at)
        count = new.spec.shape[at]
    shape = tuple(count if k == at else m for k, m in enumerate(x.spec.shape))
    whole = views.cat([x, views.expand(new, shape).to(x.spec.dtype)], at)
    order = np.insert(np.arange(n), np.full(count, places) if single else places, n + np.arange(count))
    return gather.picked_along(whole, at, order)


def _along(arr: Any, axis: int | None) -> tuple[Tensor, int]:
    x = array_like(arr)
    return (views.reshape(x, -1), 0) if axis is None else (x, dim_of(x, axis))


def _places(obj: Any) -> Any:
    """Return where to insert or delete: an int, a slice, or an array, also of bools."""
    if isinstance(obj, (slice, int, np.integer)):
        return obj
    if isinstance(obj, Tensor):  # as an array: NumPy's uint8 are integers
        record.note_escape(obj)
        obj = as_array(obj)
    return pick_calls.array_key(obj)[0]


@implements(np.block)
def _block(arrays: Any) -> Tensor:
    depth = _depth(arrays)
    rank = max([depth, *(len(x.spec.shape) for x in _flat(arrays))])
    return _joined(arrays, depth, rank)


def _depth(arrays: Any) -> int:
    return 1 + max(map(_depth, arrays), default=0) if isinstance(arrays, list) else 0


def _flat(arrays: Any) -> list[Tensor]:
    return [x for item in arrays for x in _flat(item)] if isinstance(arrays, list) else [tensor_of(arrays)]


def _joined(arrays: Any, depth: int, rank: int) -> Tensor:
    """Join the innermost lists along the last dim, those around them along the one before, and so on."""
    if not isinstance(arrays, list):
        x = tensor_of(arrays)
        return views.reshape(x, ((1,) * (rank - len(x.spec.shape)) + x.spec.shape))
    if not arrays:
        raise ValueError("List of blocks cannot be empty")
    return views.cat([_joined(item, depth - 1, rank) for item in arrays], rank - depth)


@implements(np.apply_along_axis)
def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Call a function of each vector along an axis; the dims of its results take the place of the axis."""
    x = array_like(arr)
    at = dim_of(x, axis)
    rows = x.movedim(at, -1)
    lead = rows.spec.shape[:-1]
    if not all(lead):
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    results = [array_like(func1d(rows[place], *args, **kwargs)) for place in np.ndindex(lead)]
    shape = results[0].spec.shape
    wide = views.reshape(views.stack(results), (*lead, *shape))
    order = (*range(at), *range(len(lead), len(lead) + len(shape)), *range(at, len(lead)))
    return views.permute(wide, order)
