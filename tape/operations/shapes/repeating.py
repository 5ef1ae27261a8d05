"""Tensors repeated: as a whole, and element by element; NumPy's functions too."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tape.operations.gather import picked_along
from tape.recording import integer_indices, views
from tape.recording.arguments import dim_of, ints_of
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor, constant_tensor, method


@method()
def repeat(x: Tensor, *counts: Any, repeats: Any = None) -> Tensor:
    """Return the tensor so many times along each dim; there may be more dims than it has.

    >>> tape.tensor([1.0, 2.0]).repeat(2, 2).tolist()
    [[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 2.0]]
    """
    counts, shape = ints_of(counts if repeats is None else (repeats,)), x.spec.shape
    lead = len(counts) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"repeat: Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor; "
            f"got repeats {list(counts)} for shape {list(shape)}"
        )
    full = tuple([n * m for n, m in zip(counts, (1,) * lead + shape, strict=True)])
    if min(counts, default=0) < 0:
        raise RuntimeError(f"repeat: Trying to create tensor with negative dimension {min(full)}: {list(full)}")
    apart = tuple([e for n in (1,) * lead + shape for e in (1, n)])
    wide = tuple([e for n, m in zip(counts, (1,) * lead + shape, strict=True) for e in (n, m)])
    return views.shaped(views.clone(views.expand(views.reshape(x, apart), wide)), full)


@public()
def tile(input: Any, *counts: Any, dims: Any = None) -> Tensor:
    """Return the tensor so many times along each dim; the last dims where fewer are given than it has.

    >>> tape.tile(tape.tensor([1.0, 2.0]), (2,))
    tensor([1., 2., 1., 2.])
    """
    input, counts = tensor_of(input), ints_of(counts if dims is None else (dims,))
    return repeat(input, (1,) * (len(input.spec.shape) - len(counts)) + counts)


@public()
def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Return each place along ``dim``, or each element of the flat tensor, ``repeats`` times in a row.

    ``repeats`` is an int, or an integer tensor with one count for each place. Of counts alone: the place that each of
    the results comes from.

    >>> tape.repeat_interleave(tape.tensor([1.0, 2.0]), tape.tensor([1, 2]))
    tensor([1., 2., 2.])
    """
    if repeats is None:
        counts = _counts(input, "repeat_interleave")
        return constant_tensor(np.repeat(np.arange(len(counts)), counts))
    input = tensor_of(input)
    if dim is None:
        input, dim = views.reshape(input, -1), 0
    axis = dim_of(input, dim)
    input = input if input.spec.shape else views.reshape(input, 1)
    count = repeats if isinstance(repeats, int) else _counts(repeats, "repeat_interleave")
    n = input.spec.shape[axis]
    if not isinstance(count, int) and count.ndim and len(count) not in (1, n):
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {len(count)} and "
            f"input.size({axis}) = {n}"
        )
    if np.min(count, initial=0) < 0:
        raise RuntimeError("repeat_interleave: repeats can not be negative")
    result = _repeated(input, axis, count)
    if output_size is not None and output_size != result.spec.shape[axis]:
        raise RuntimeError(
            f"repeat_interleave: Invalid output_size, expected {result.spec.shape[axis]} but got {output_size}"
        )
    return result


def _counts(repeats: Any, name: str) -> Any:
    counts = integer_indices.integers(repeats, name)
    if counts.ndim > 1:
        raise RuntimeError(f"{name}: repeats must be 0-dim or 1-dim tensor, got shape {list(counts.shape)}")
    return counts


def _repeated(x: Tensor, axis: int, count: Any) -> Tensor:
    """Repeat each place along an axis, by one count for all or by a count for each."""
    shape = x.spec.shape
    if np.size(count) == 1:
        times = operator.index(np.reshape(count, ())[()])
        apart = views.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        wide = views.clone(views.expand(apart, (*shape[: axis + 1], times, *shape[axis + 1 :])))
        return views.reshape(wide, (*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))
    return picked_along(x, axis, np.repeat(np.arange(shape[axis]), count))


@implements(np.repeat)
def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    x = tensor_of(a)
    x, at = (x if x.spec.shape and axis is not None else views.reshape(x, -1)), 0 if axis is None else dim_of(x, axis)
    counts = repeats if isinstance(repeats, int) else integer_indices.integers(repeats, "np.repeat", TypeError)
    if np.min(counts, initial=0) < 0:
        raise ValueError("repeats may not contain negative values.")
    if np.ndim(counts) and np.size(counts) not in (1, x.spec.shape[at]):
        raise ValueError(
            f"operands could not be broadcast together with shape ({x.spec.shape[at]},) ({np.size(counts)},)"
        )
    return _repeated(x, at, counts)


@implements(np.tile)
def _tile(A: Any, reps: Any) -> Tensor:  # noqa: N803 (NumPy's name)
    return tile(A, ints_of((list(reps) if isinstance(reps, np.ndarray) else reps,)))


@implements(np.resize)
def _resize(a: Any, new_shape: Any) -> Tensor:
    """Fill a shape with the elements over and over."""
    x, shape = tensor_of(a), ints_of((new_shape,))
    if min(shape, default=0) < 0:
        raise ValueError("all elements of `new_shape` must be non-negative")
    flat, size = views.reshape(x, -1), int(np.prod(shape))
    if not x.spec.size:
        return constant_tensor(np.zeros(shape, x.spec.dtype))
    return views.reshape(picked_along(flat, 0, np.arange(size) % x.spec.size), shape)
