"""``tape.linalg``: linear algebra under the names of torch.linalg, and SciPy's solves with structured matrices.

Matrices stand in the last two dims, batches in front. Singular matrices raise LinAlgError, which is PyTorch's
RuntimeError and NumPy's LinAlgError.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import Any

import numpy as np

from kernels.operations.solves import LinAlgError
from tape.operations import decompositions as _decompositions
from tape.operations import indexing as _indexing
from tape.operations import solves as _solves
from tape.operations.contractions import multi_dot, vecdot, vector_product
from tape.operations.decompositions import *  # noqa: F403
from tape.operations.diagonals import diagonal as _diagonal
from tape.operations.elementwise import array_like as _array_like
from tape.operations.joining import block_diag
from tape.operations.matmul import matmul
from tape.operations.reductions import vector_norm
from tape.operations.solves import *  # noqa: F403
from tape.recording import views as _views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import also as _also
from tape.recording.parameters import parameters_like as _parameters_like
from tape.recording.parameters import printed as _printed
from tape.tensors.tensor import Tensor

__all__ = [
    "LinAlgError", "block_diag", "cho_factor", "cho_solve", "cholesky", "cross", "det", "diagonal", "expm", "inv",
    "matmul", "matrix_exp", "matrix_power", "multi_dot", "slogdet", "toeplitz", "vecdot", "vector_norm",
]  # fmt: skip
__all__ += _decompositions.__all__ + _solves.__all__


def _variant(name: str, function: Any, run: Any = None) -> Any:
    """Return a function of tape under torch.linalg's names, its own and that of its argument; ``run`` does the same."""
    parameters = [Parameter("A", Parameter.POSITIONAL_OR_KEYWORD, annotation="Any"), *_parameters_like(function)[1:]]
    variant = _printed(name, parameters, "return function({all})", function=run or function)
    theirs, ours = f"tape.{function.__name__}(", f"tape.linalg.{name}("
    variant.__doc__, variant.__module__ = (function.__doc__ or "").replace(theirs, ours), __name__
    return variant


cholesky: Callable[..., Tensor] = cached_call()(
    _also(input="A")(_variant("cholesky", _decompositions.cholesky, _decompositions.cholesky_factor))
)
inv: Callable[..., Tensor] = cached_call()(_variant("inv", _solves.inverse, _solves.inverted))
det: Callable[..., Tensor] = _variant("det", _solves.det)
slogdet: Callable[..., Any] = _variant("slogdet", _solves.slogdet)
matrix_exp: Callable[..., Tensor] = _also(input="A")(_variant("matrix_exp", _solves.matrix_exp))
matrix_power: Callable[..., Tensor] = _also(input="A")(_variant("matrix_power", _solves.matrix_power))


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


# SciPy's names.

expm: Callable[..., Tensor] = _variant("expm", _solves.matrix_exp)


def cho_factor(a: Any, lower: bool = False) -> tuple[Tensor, bool]:
    """Return a triangular factor of positive-definite matrices, zeros beyond it, and ``lower``: for :func:`cho_solve`.

    >>> tape.linalg.cho_factor(tape.tensor([[4.0, 2.0], [2.0, 5.0]]), lower=True)[0].tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    return cholesky(a, upper=not lower), lower


def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Tensor:
    """Return x with A x = b, of the factor of A that :func:`cho_factor` gives; b is (n,) or (*, n, k).

    >>> factor = tape.linalg.cho_factor(tape.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> tape.linalg.cho_solve(factor, [6.0, 7.0])
    tensor([1., 1.])
    """
    (factor, lower), right = c_and_lower, _array_like(b)
    vector = len(right.spec.shape) == 1
    solution = _solves.cholesky_solve(right[:, None] if vector else right, factor, upper=not lower)
    return solution[:, 0] if vector else solution


def toeplitz(c: Any, r: Any = None) -> Tensor:
    """Return the matrix with constant diagonals of a first column and a first row, which is the column's by default.

    >>> tape.linalg.toeplitz([1.0, 2.0], tape.tensor([0.0, 5.0])).tolist()
    [[1.0, 5.0], [2.0, 1.0]]
    """
    column = _array_like(c).reshape(-1)
    row = column if r is None else _array_like(r).reshape(-1)
    both = _views.cat([row[1:].flip(0), column])  # from the last of the row to the last of the column
    rows, columns = np.arange(column.spec.size)[:, None], np.arange(row.spec.size)
    return _indexing.index(both, rows - columns + row.spec.size - 1)
