"""``tape.linalg``: linear algebra under the names of torch.linalg, and SciPy's solves with structured matrices.

Matrices stand in the last two dims, batches in front. Singular matrices raise LinAlgError, which is PyTorch's
RuntimeError and NumPy's LinAlgError.
"""

from __future__ import annotations

from typing import Any

from kernels.ops.linalg.solves import LinAlgError
from tape.operations.matmul import matmul
from tape.operations.matrices.banded import solve_banded, solve_toeplitz, solveh_banded
from tape.operations.matrices.contractions import multi_dot, vecdot, vector_product
from tape.operations.matrices.decompositions import cholesky, cholesky_ex, eigh, eigvalsh, qr, svd, svdvals
from tape.operations.matrices.determinants import (
    det,
    logdet,
    lstsq,
    matrix_exp,
    matrix_power,
    matrix_rank,
    pinv,
    slogdet,
    tensorinv,
    tensorsolve,
    vander,
)
from tape.operations.matrices.lu import ldl_factor, ldl_factor_ex, lu, lu_factor, lu_factor_ex
from tape.operations.matrices.norms import cond, matrix_norm, norm
from tape.operations.matrices.solves import (
    cholesky_inverse,
    cholesky_solve,
    inv_ex,
    lu_solve,
    solve,
    solve_ex,
    solve_triangular,
)
from tape.operations.matrices.solves import inverse as inv
from tape.operations.reductions.norms import vector_norm
from tape.operations.shapes.diagonals import diagonal as _diagonal
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.tensor import Tensor

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cholesky_inverse",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "logdet",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_banded",
    "solve_ex",
    "solve_toeplitz",
    "solve_triangular",
    "solveh_banded",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]


@argued
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
