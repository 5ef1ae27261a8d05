"""``tape.linalg``: linear algebra under the names of torch.linalg, and SciPy's solves with structured matrices.

Matrices stand in the last two dims, batches in front. Singular matrices raise LinAlgError, which is PyTorch's
RuntimeError and NumPy's LinAlgError.
"""

from __future__ import annotations

from typing import Any

from kernels.operations.solves import LinAlgError
from tape.matrices import determinants as _determinants
from tape.matrices.contractions import multi_dot, vecdot, vector_product
from tape.matrices.decompositions import (
    cholesky_ex,
    eigh,
    eigvalsh,
    ldl_factor,
    ldl_factor_ex,
    lu,
    lu_factor,
    lu_factor_ex,
    qr,
    svd,
    svdvals,
)
from tape.matrices.decompositions import cholesky_factor as _cholesky_factor
from tape.matrices.determinants import (
    cond,
    logdet,
    lstsq,
    matrix_norm,
    matrix_rank,
    norm,
    pinv,
    tensorinv,
    tensorsolve,
    vander,
)
from tape.matrices.solves import (
    cholesky_inverse,
    cholesky_solve,
    inv_ex,
    lu_solve,
    solve,
    solve_banded,
    solve_ex,
    solve_toeplitz,
    solve_triangular,
    solveh_banded,
)
from tape.matrices.solves import inverted as _inverted
from tape.operations.diagonals import diagonal as _diagonal
from tape.operations.matmul import matmul
from tape.operations.reductions import vector_norm
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import also as _also
from tape.tensors.tensor import Tensor

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cholesky_inverse", "cholesky_solve", "cond", "cross", "det", "diagonal",
    "eigh", "eigvalsh", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "logdet", "lstsq", "lu", "lu_factor",
    "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot",
    "norm", "pinv", "qr", "slogdet", "solve", "solve_banded", "solve_ex", "solve_toeplitz", "solve_triangular",
    "solveh_banded", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip


@cached_call()
@_also(input="A")
def cholesky(A: Any, upper: bool = False) -> Tensor:  # noqa: N803 (PyTorch's names)
    """Return the lower triangular factor L of positive-definite (*, n, n) matrices A = L L^T, or U of A = U^T U.

    One triangle of A is read; the gradient is symmetric. LinAlgError if A is not positive-definite.

    >>> tape.linalg.cholesky(tape.tensor([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    return _cholesky_factor(A, upper)


@cached_call()
def inv(A: Any) -> Tensor:  # noqa: N803
    """Return the inverse of (*, n, n) matrices. LinAlgError if one is singular.

    >>> tape.linalg.inv(tape.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _inverted(A)


def det(A: Any) -> Tensor:  # noqa: N803
    """Return the determinants (*) of (*, n, n) matrices; singular ones have gradients too.

    >>> tape.linalg.det(tape.tensor([[1.0, 2.0], [3.0, 5.0]]))
    tensor(-1.0000)
    """
    return _determinants.det(A)


def slogdet(A: Any) -> Any:  # noqa: N803
    """Return sign and logarithm of the absolute value of determinants: 0 and -inf where singular.

    >>> tape.linalg.slogdet(-tape.eye(3)).sign
    tensor(-1.)
    """
    return _determinants.slogdet(A)


@_also(input="A")
def matrix_exp(A: Any) -> Tensor:  # noqa: N803
    """Return the exponentials of (*, n, n) matrices.

    >>> tape.linalg.matrix_exp(tape.tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return _determinants.matrix_exp(A)


@_also(input="A")
def matrix_power(A: Any, n: int) -> Tensor:  # noqa: N803
    """Return the n-th powers of square matrices; of their inverses if n is negative.

    >>> tape.linalg.matrix_power(tape.eye(2) * 2, 3).tolist()
    [[8.0, 0.0], [0.0, 8.0]]
    """
    return _determinants.matrix_power(A, n)


@cached_call()
def cross(input: Any, other: Any, *, dim: int = -1) -> Tensor:
    """Return the vector product along a dim of size 3.

    >>> tape.linalg.cross(tape.tensor([1.0, 0.0, 0.0]), tape.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    return vector_product("cross", input, other, dim)


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: N803
    """Return a view of the diagonals of matrices, as the last dim.

    >>> tape.linalg.diagonal(tape.eye(2))
    tensor([1., 1.])
    """
    return _diagonal(A, offset, dim1, dim2)
