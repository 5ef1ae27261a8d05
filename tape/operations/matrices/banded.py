"""Solves with banded and Toeplitz matrices under SciPy's names, with SciPy's storage of them.

Gradients reach bands, first column and row, and right-hand sides; the unused corners of bands receive 0.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from kernels.ops.linalg import banded
from kernels.ops.registry import OPS
from tape.operations.matrices.arguments import tensor_like
from tape.recording import casts, routine_calls
from tape.tensors.registration import implements
from tape.tensors.tensor import Tensor

_OPS: dict[str, Any] = OPS
_MATRIX = 2


def _floating(name: str, **operands: Any) -> list[Tensor]:
    """Return operands as tensors of one floating dtype."""
    tensors = {key: tensor_like(x) for key, x in operands.items()}
    dtype = np.result_type(np.float32, *(x.spec.dtype for x in tensors.values()))
    for key, x in tensors.items():
        if x.spec.dtype.kind not in "fiu":
            raise TypeError(f"{name}: {key} has dtype {x.spec.dtype.name}; floating tensors only")
    return [x if x.spec.dtype == dtype else casts.cast(x, dtype) for x in tensors.values()]


def _check(name: str, b: Tensor, n: int) -> None:
    shape = b.spec.shape
    if len(shape) not in (1, _MATRIX) or shape[0] != n:
        raise ValueError(f"{name}: shapes do not fit: the matrix is {n} by {n}, b has shape {list(shape)}")


def solve_banded(l_and_u: Any, ab: Any, b: Any) -> Tensor:
    """Return x with A x = b, A given by its diagonals: ``ab[u + i - j, j] == A[i, j]``.

    ``l_and_u`` are the numbers of diagonals below and above the main one, ab is (l + u + 1, n), b is (n,) or (n, k).
    LinAlgError if A is singular.

    >>> tape.linalg.solve_banded((1, 1), [[0.0, 1.0, 1.0], [4.0, 4.0, 4.0], [1.0, 1.0, 0.0]], [5.0, 6.0, 5.0])
    tensor([1., 1., 1.])
    """
    lower, upper = map(operator.index, l_and_u)
    bands, right = _floating("solve_banded", ab=ab, b=b)
    if len(bands.spec.shape) != _MATRIX or bands.spec.shape[0] != lower + upper + 1:
        raise ValueError(
            f"solve_banded: invalid values for the number of lower and upper diagonals: l+u+1 ({lower + upper + 1}) "
            f"does not equal ab.shape[0]; ab has shape {list(bands.spec.shape)}"
        )
    _check("solve_banded", right, bands.spec.shape[1])
    return routine_calls.call(_OPS["solve_banded"], bands, right, l_and_u=(lower, upper))  # type: ignore[no-any-return]


@implements(banded.solve_banded)
def _solve_banded(ab: Any, b: Any, *, l_and_u: Any) -> Tensor:
    return solve_banded(l_and_u, ab, b)


def solveh_banded(ab: Any, b: Any, *, lower: bool = False) -> Tensor:
    """Return x with A x = b, A symmetric and positive-definite, given by the diagonals of one triangle.

    ``ab[u + i - j, j] == A[i, j]`` above the diagonal, ``ab[i - j, j]`` below it with ``lower=True``; ab is
    (u + 1, n), b is (n,) or (n, k). LinAlgError if A is not positive-definite.

    >>> tape.linalg.solveh_banded([[0.0, 1.0], [2.0, 2.0]], [3.0, 3.0])
    tensor([1., 1.])
    """
    bands, right = _floating("solveh_banded", ab=ab, b=b)
    if len(bands.spec.shape) != _MATRIX:
        raise ValueError(f"solveh_banded: ab has shape {list(bands.spec.shape)}; it has a row for each diagonal")
    _check("solveh_banded", right, bands.spec.shape[1])
    return routine_calls.call(_OPS["solveh_banded"], bands, right, lower=bool(lower))  # type: ignore[no-any-return]


implements(banded.solveh_banded)(solveh_banded)


def solve_toeplitz(c_or_cr: Any, b: Any) -> Tensor:
    """Return x with T x = b, T given by its first column, or by the tuple (first column, first row).

    ``row[0]`` is not read.
    The column is (n,), b is (n,) or (n, k). LinAlgError if a leading block of T is singular (Levinson's algorithm).

    >>> tape.linalg.solve_toeplitz([2.0, 1.0], [4.0, 5.0])
    tensor([1., 2.])
    """
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, c_or_cr)
    column, row, right = _floating("solve_toeplitz", c=c, r=r, b=b)
    if len(column.spec.shape) != 1 or column.spec.shape != row.spec.shape:
        raise ValueError(
            f"solve_toeplitz: column and row are vectors of one length, not {list(column.spec.shape)} and "
            f"{list(row.spec.shape)}"
        )
    _check("solve_toeplitz", right, column.spec.shape[0])
    return routine_calls.call(_OPS["solve_toeplitz"], column, row, right)  # type: ignore[no-any-return]


@implements(banded.solve_toeplitz)
def _solve_toeplitz(c: Any, r: Any, b: Any) -> Tensor:
    return solve_toeplitz((c, r), b)
