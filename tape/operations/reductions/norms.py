"""Norms of vectors and distances between points, under PyTorch's names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from tape.foundation.dtypes import dtype_of
from tape.operations.indexing import index
from tape.operations.numpy_arguments import cast
from tape.operations.operators import FUNCTIONS
from tape.operations.parameters import also
from tape.operations.reductions.products_and_counts import where_and_how
from tape.recording import routine_calls, views
from tape.recording.arguments import dim_of
from tape.recording.promotion import alike
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor

_NORM: Any = OPS["vector_norm"]
_CDIST: Any = OPS["cdist"]
_LINALG = "linalg.vector_norm"
_where: Any = FUNCTIONS["where"]
_clamp_min: Any = FUNCTIONS["clamp_min"]


def _norm_of(
    x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None,  # noqa: A002
    keepdims: Any = None,
) -> Tensor:  # fmt: skip
    x = tensor_of(x)
    if isinstance(ord, str):
        raise TypeError(f"{_LINALG}: argument 'ord' must be Number, not str")
    if x.spec.dtype.kind != "f":
        raise RuntimeError(
            f"{_LINALG}: Expected a floating point tensor as input. Got {x.spec.dtype.name}; convert it: x.double()"
        )
    if dtype is not None and not np.can_cast(x.spec.dtype, dtype_of(dtype), "safe"):
        raise RuntimeError(
            f"{_LINALG}: the dtype of the input ({x.spec.dtype.name}) should be convertible without narrowing to the "
            f"specified dtype ({dtype_of(dtype).name})"
        )
    x, order = cast(x, dtype), float(ord)
    dims, keep = where_and_how(x, dim, axis, keepdim, keepdims)
    if (order < 0 or math.isinf(order)) and 0 in [x.spec.shape[i] for i in dims]:
        raise RuntimeError(
            f"{_LINALG} cannot compute the {ord} norm on an empty tensor because the operation does not have an "
            f"identity; the shape is {list(x.spec.shape)}"
        )
    if not x.spec.shape:
        norm = routine_calls.call(_NORM, views.reshape(x, 1), order=order, dims=(0,), keepdim=True)
        return views.reshape(norm, ())
    return routine_calls.call(_NORM, x, order=order, dims=dims, keepdim=keep)  # type: ignore[no-any-return]


@argued
@also(input="x")
def vector_norm(
    x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None,  # noqa: A002
    keepdims: Any = None,
) -> Tensor:  # fmt: skip
    """Return the norm of vectors over ``dim`` (an int, a tuple, or None for all), of any order.

    ``inf`` and ``-inf`` are the largest and the smallest absolute value, 0 counts what is not zero. The gradient at 0
    is 0; the largest share theirs evenly. RuntimeError for integers, and where an empty tensor has no norm.

    >>> tape.linalg.vector_norm(tape.tensor([3.0, -4.0]))
    tensor(5.)
    """
    return _norm_of(x, ord, dim, keepdim, dtype=dtype, axis=axis, keepdims=keepdims)


@implements(np.linalg.vector_norm, records="vector_norm")
def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:  # noqa: A002
    x = tensor_of(x)
    return vector_norm(x if x.spec.dtype.kind == "f" else cast(x, np.float64), ord, axis, keepdims)


@public()
def dist(input: Any, other: Any, p: Any = 2) -> Tensor:
    """Return the norm of the difference of two tensors, whose shapes broadcast.

    >>> tape.dist(tape.tensor([1.0, 2.0]), tape.tensor([4.0, 6.0]))
    tensor(5.)
    """
    return vector_norm(tensor_of(input) - tensor_of(other), p)


@public(methods=False)
@argued
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = "") -> Tensor:
    """Return the distances between all rows of x1 (..., P, M) and of x2 (..., R, M): (..., P, R).

    Leading dims broadcast. The gradient at distance 0 is 0. RuntimeError for shapes that do not fit,
    integers, and p < 0.
    ``compute_mode`` is PyTorch's and changes nothing.

    >>> tape.cdist(tape.tensor([[0.0, 0.0]]), tape.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    del compute_mode
    a, b = _points("X1", x1), _points("X2", x2)
    if p < 0:
        raise RuntimeError(f"cdist only supports non-negative p values, not {p}")
    if a.spec.shape[-1] != b.spec.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {a.spec.shape[-1]} X2: {b.spec.shape[-1]}"
        )
    try:
        lead = np.broadcast_shapes(a.spec.shape[:-2], b.spec.shape[:-2])
    except ValueError:
        raise RuntimeError(
            f"cdist: leading dims of X1 {list(a.spec.shape)} and X2 {list(b.spec.shape)} do not broadcast"
        ) from None
    a, b = (views.expand(x, (*lead, *x.spec.shape[-2:])) for x in alike(a, b))
    return routine_calls.call(_CDIST, a, b, order=float(p))  # type: ignore[no-any-return]


def _points(name: str, x: Any) -> Tensor:
    x = tensor_of(x)
    if x.spec.dtype.kind != "f":
        raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.spec.dtype.name}")
    if len(x.spec.shape) < 2:  # noqa: PLR2004
        raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {len(x.spec.shape)}D")
    return x  # type: ignore[no-any-return]


@public(methods=False)
def pdist(input: Any, p: float = 2.0) -> Tensor:
    """Return the distances between the rows of x (N, M), of each pair once: N (N - 1) / 2 of them.

    >>> tape.pdist(tape.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]])).tolist()
    [5.0, 4.0, 3.0]
    """
    input = tensor_of(input)
    if len(input.spec.shape) != 2:  # noqa: PLR2004
        raise RuntimeError(f"pdist only supports 2D tensors, got: {len(input.spec.shape)}D")
    if p < 0:
        raise RuntimeError(f"pdist only supports non-negative p values, not {p}")
    first, second = np.triu_indices(input.spec.shape[0], 1)
    return vector_norm(index(input, first) - index(input, second), p, 1)


@public()
def renorm(input: Any, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """Return x with the slices along ``dim`` whose norm of order p is above ``maxnorm`` made shorter, to this norm.

    RuntimeError for less than two dims, ``p <= 0`` and ``maxnorm < 0``.

    >>> tape.renorm(tape.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    input = tensor_of(input)
    rank = len(input.spec.shape)
    if rank < 2:  # noqa: PLR2004
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {rank} dimensions")
    if p <= 0 or maxnorm < 0:
        raise RuntimeError(
            f"renorm: non-positive-norm not supported, nor maxnorm below 0; got p={p}, maxnorm={maxnorm}"
        )
    at = dim_of(input, dim)
    lengths = vector_norm(input, p, tuple(i for i in range(rank) if i != at), keepdim=True)
    return input * _where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)  # type: ignore[no-any-return]


@public(methods=False)
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between vectors along ``dim``, of shapes that broadcast; lengths count as ``eps``.

    >>> tape.cosine_similarity(tape.tensor([1.0, 0.0]), tape.tensor([3.0, 4.0]), dim=0)
    tensor(0.6000)
    """
    a, b = (x / _clamp_min(vector_norm(x, 2, dim, keepdim=True), eps) for x in _together(x1, x2))
    return (a * b).sum(dim)  # type: ignore[no-any-return]


@public(methods=False)
def pairwise_distance(x1: Any, x2: Any, p: Any = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Return the norms along the last dim of the difference of two tensors, plus ``eps``; shapes broadcast.

    >>> tape.pairwise_distance(tape.tensor([[1.0, 2.0]]), tape.tensor([[4.0, 6.0]]))
    tensor([5.0000])
    """
    a, b = _together(x1, x2)
    return vector_norm(a - b + eps, p, -1, keepdim=keepdim)


def _together(x1: Any, x2: Any) -> list[Tensor]:
    """Return two tensors of one shape and floating dtype."""
    tensors = alike(x1, x2)
    dtype = tensors[0].spec.dtype
    if dtype.kind != "f":
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {dtype.name}")
    shape = np.broadcast_shapes(*(x.spec.shape for x in tensors))
    return [views.expand(x, shape) for x in tensors]
