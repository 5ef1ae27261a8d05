"""Diagonals and triangles of matrices, read and made; NumPy's functions too."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tape.conversions import creation
from tape.operations.operators import FUNCTIONS
from tape.recording import record, views
from tape.recording.arguments import dim_of
from tape.repeated_calls.call_table import viewing
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Array, Tensor, constant_tensor, method

_MATRIX = 2


@public()
@viewing("diagonal")
def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a view of the diagonal of two dims, as the last dim; ``offset`` counts from it towards ``dim2``.

    >>> tape.diagonal(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), offset=1).tolist()
    [2.0]
    """
    input = tensor_of(input)
    a, b = _pair(input, dim1, dim2)
    rank = len(input.spec.shape)
    return record.view(views.VIEWS["diagonal"], input, ((offset, a - rank, b - rank),))


def _pair(x: Tensor, dim1: int, dim2: int, extra: int = 0) -> tuple[int, int]:
    a, b = dim_of(x, dim1, extra=extra), dim_of(x, dim2, extra=extra)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return a, b


@public()
def diag(input: Any, diagonal: int = 0) -> Tensor:
    """Return a copy of a diagonal of a matrix, or the matrix with a vector on that diagonal and zeros elsewhere.

    >>> tape.diag(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    input = tensor_of(input)
    rank = len(input.spec.shape)
    if rank not in (1, _MATRIX):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {rank}D")
    return diag_embed(input, diagonal) if rank == 1 else views.clone(_diagonal_of(input, diagonal))


_diagonal_of = diagonal


@public()
def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return matrices in two new dims, with the last dim of x on a diagonal and zeros elsewhere.

    >>> tape.diag_embed(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, 4.0]]]
    """
    input = tensor_of(input)
    a, b = _pair(input, dim1, dim2, extra=1)
    *lead, n = input.spec.shape or (1,)
    shape: list[int] = lead
    for at in sorted((a, b)):
        shape.insert(at, n + abs(offset))
    result = creation.zeros(shape, dtype=input.spec.dtype)
    _diagonal_of(result, offset, a, b).copy_(input)
    return result


@public()
def diagflat(input: Any, offset: int = 0) -> Tensor:
    """Return the matrix with all elements on a diagonal, and zeros elsewhere.

    >>> tape.diagflat(tape.tensor([[1.0], [2.0]])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    return diag_embed(views.reshape(tensor_of(input), -1), offset)


@method()
def fill_diagonal_(x: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Fill the main diagonal in place; with ``wrap`` it begins again below the first square of a tall matrix.

    >>> tape.zeros(2, 2).fill_diagonal_(1.0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    shape = x.spec.shape
    if len(shape) < _MATRIX:
        raise RuntimeError(f"fill_diagonal_: dimensions must larger than 1, got shape {list(shape)}")
    if len(shape) > _MATRIX and len(set(shape)) > 1:
        raise RuntimeError(f"fill_diagonal_: all dimensions of input must be of equal length, got shape {list(shape)}")
    n = min(shape)
    at = np.arange(0, shape[0] if wrap and len(shape) == _MATRIX else n)
    key = (at[at % (shape[1] + 1) < shape[1]],) * len(shape)
    if len(shape) == _MATRIX:
        key = (key[0], key[0] % (shape[1] + 1))
    x[key] = fill_value
    return x


def _triangle(name: str, *, lower: bool) -> Any:
    def triangle(input: Any, diagonal: int = 0) -> Tensor:
        input = tensor_of(input)
        if len(input.spec.shape) < _MATRIX:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions, got {list(input.spec.shape)}")
        return _masked(input, diagonal, lower)

    triangle.__name__ = triangle.__qualname__ = name
    part = "lower" if lower else "upper"
    triangle.__doc__ = f"""Return a copy with zeros outside of the {part} triangle, ``diagonal`` above the main one.

    >>> tape.{name}(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    {[[1.0, 0.0], [3.0, 4.0]] if lower else [[1.0, 2.0], [0.0, 4.0]]}
    """
    public()(triangle)

    def in_place(x: Tensor, diagonal: int = 0) -> Tensor:
        return x.copy_(triangle(x, diagonal))

    in_place.__name__ = in_place.__qualname__ = f"{name}_"
    in_place.__doc__ = f"Set what is outside of the {part} triangle to zero, in place."
    method()(in_place)
    return triangle


def _masked(x: Tensor, k: int, lower: bool) -> Tensor:
    """Cut what is outside of a triangle; a vector is every row of a square, as NumPy has it."""
    n, m = (x.spec.shape * 2)[-2:]
    mask = constant_tensor(_mask(n, m, k if lower else k - 1))
    return FUNCTIONS["where"](mask, x, 0) if lower else FUNCTIONS["where"](mask, 0, x)  # type: ignore[no-any-return]


@functools.lru_cache(16)
def _mask(n: int, m: int, k: int) -> Array:
    mask = np.tri(n, m, k, bool)
    mask.flags.writeable = False
    return mask


tril, triu = _triangle("tril", lower=True), _triangle("triu", lower=False)


@public(methods=False)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Return the rows and columns of the lower triangle of a matrix, as a tensor of two rows; int64 by default.

    >>> tape.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _indices(np.tril_indices, row, col, offset, dtype)


@public(methods=False)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Return the rows and columns of the upper triangle of a matrix, as a tensor of two rows; int64 by default.

    >>> tape.triu_indices(2, 2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return _indices(np.triu_indices, row, col, offset, dtype)


def _indices_from(function: Any) -> Any:
    """Let one of NumPy's functions number the elements of a matrix's triangle."""

    def of(arr: Tensor, k: int = 0) -> tuple[Tensor, ...]:
        if len(arr.spec.shape) != 2:  # noqa: PLR2004
            raise ValueError(f"input array must be 2-d; the shape is {list(arr.spec.shape)}")
        return tuple(map(tensor_of, function(arr.spec.shape[0], k, arr.spec.shape[1])))

    return of


implements(np.tril_indices_from)(_indices_from(np.tril_indices))
implements(np.triu_indices_from)(_indices_from(np.triu_indices))


@implements(np.diag_indices_from)
def _diag_indices_from(arr: Tensor) -> tuple[Tensor, ...]:
    shape = arr.spec.shape
    if len(shape) < 2 or len(set(shape)) > 1:  # noqa: PLR2004
        raise ValueError(f"All dimensions of input must be of equal length, two at least; the shape is {list(shape)}")
    return tuple(map(tensor_of, np.diag_indices(shape[0], len(shape))))


def _indices(function: Any, row: int, col: int, offset: int, dtype: Any) -> Tensor:
    for name, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{name} must be non-negative, got {n}")
    numbers = np.stack(function(row, offset, col))
    return constant_tensor(numbers.astype(np.int64 if dtype is None else dtype, copy=False))


@implements(np.diagonal, records="diagonal")
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    x = tensor_of(a)
    if len(x.spec.shape) < _MATRIX:
        raise ValueError("diag requires an array of at least two dimensions")
    return diagonal(x, offset, axis1, axis2)


@implements(np.diag)
def _diag(v: Any, k: int = 0) -> Tensor:
    x = tensor_of(v)
    if len(x.spec.shape) not in (1, _MATRIX):
        raise ValueError("Input must be 1- or 2-d.")
    return diagonal(x, k) if len(x.spec.shape) == _MATRIX else diag(x, k)  # NumPy gives a view of a matrix


@implements(np.diagflat)
def _diagflat(v: Any, k: int = 0) -> Tensor:
    return diagflat(v, k)


@implements(np.tril)
def _tril(m: Any, k: int = 0) -> Tensor:
    return _of_numpy(m, k, lower=True)


@implements(np.triu)
def _triu(m: Any, k: int = 0) -> Tensor:
    return _of_numpy(m, k, lower=False)


def _of_numpy(m: Any, k: int, *, lower: bool) -> Tensor:
    x = tensor_of(m)
    if not x.spec.shape:
        raise ValueError("np.tril and np.triu take arrays of at least one dimension")
    return _masked(x, k, lower)


@implements(np.fill_diagonal)
def _fill_diagonal(a: Tensor, val: Any, wrap: bool = False) -> None:
    if len(a.spec.shape) < _MATRIX:
        raise ValueError("array must be at least 2-d")
    a.fill_diagonal_(val, wrap)
