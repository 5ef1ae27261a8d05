"""Sparse matrices of a fixed pattern, with gradients to their values: products, and solves by SciPy's SuperLU.

>>> A = tape.sparse.CSR([2.0, 1.0, 3.0], [0, 0, 1], [0, 1, 3], (2, 2))
>>> A.to_dense().tolist()
[[2.0, 0.0], [1.0, 3.0]]
>>> tape.sparse.spsolve(A, A @ tape.ones(2))
tensor([1., 1.])
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from kernels.operations import OPS
from kernels.operations.interpolation import pattern_of
from tape.recording import creation, foreign_calls
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, as_array

pattern_of.__module__ = __name__  # where pickles find it

__all__ = ["CSR", "csr", "spsolve"]

_MATRIX = 2


class CSR:
    """A sparse matrix in compressed rows: a tensor of values, SciPy's ``indices`` and ``indptr``, and a shape.

    Row i has ``data[indptr[i]:indptr[i + 1]]`` in the columns ``indices[indptr[i]:indptr[i + 1]]``. The pattern is
    copied, and never changes; the gradient of the values has their shape. ``A @ x`` takes vectors and dense matrices.

    >>> tape.sparse.CSR([2.0, 3.0], [1, 0], [0, 1, 2], (2, 2)) @ tape.tensor([1.0, 10.0])
    tensor([20.,  3.])
    """

    __slots__ = ("_trans", "data", "pattern")

    def __init__(self, data: Any, indices: Any, indptr: Any, shape: Any) -> None:
        rows, columns = map(operator.index, shape)
        self.data = tensor_of(np.asarray(data) if isinstance(data, (list, tuple)) else data)
        self.pattern = pattern_of(*_checked(self.data, indices, indptr, (rows, columns)))
        self._trans = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.pattern.shape
        return (columns, rows) if self._trans else (rows, columns)

    @property
    def nnz(self) -> int:
        """How many elements the pattern has."""
        return len(self.pattern.columns)

    @property
    def T(self) -> CSR:  # noqa: N802 (NumPy's name)
        """The matrix transposed, of the same values."""
        return self._of(self.data, not self._trans)

    def replaced(self, data: Any) -> CSR:
        """Return a matrix of the same pattern with other values."""
        data = tensor_of(data)
        if data.spec.shape != (self.nnz,):
            raise ValueError(f"CSR: {self.nnz} values wanted, one per element; data has shape {list(data.spec.shape)}")
        return self._of(data, self._trans)

    def _of(self, data: Tensor, trans: bool) -> CSR:
        matrix = object.__new__(CSR)
        matrix.data, matrix.pattern, matrix._trans = data, self.pattern, trans
        return matrix

    def __matmul__(self, x: Any) -> Tensor:
        """Return the product with a vector or a dense matrix."""
        x = tensor_of(x)
        if len(x.spec.shape) not in (1, _MATRIX) or x.spec.shape[0] != self.shape[1]:
            raise ValueError(
                f"matmul: dimension mismatch: the matrix is {self.shape[0]} by {self.shape[1]}, the operand has shape "
                f"{list(x.spec.shape)}"
            )
        return foreign_calls.call(OPS["spmm"], self.data, x, pattern=self.pattern, trans=self._trans)  # type: ignore[no-any-return, arg-type]

    def to_dense(self) -> Tensor:
        """Return the matrix as a tensor; elements of one place add up."""
        dense = creation.zeros(self.pattern.shape, dtype=self.data.spec.dtype)
        dense.index_put_((self.pattern.rows, self.pattern.columns), self.data, accumulate=True)
        return dense.T if self._trans else dense

    def to_scipy(self) -> Any:
        """Return SciPy's csr_array of the values now; a tensor that requires grad raises as in ``numpy()``."""
        matrix = self.pattern.matrix(np.asarray(self.data))
        return matrix.T if self._trans else matrix

    def __repr__(self) -> str:
        return f"CSR({self.shape[0]} by {self.shape[1]}, {self.nnz} elements, data={self.data!r})"


def csr(matrix: Any, data: Any = None) -> CSR:
    """Return a CSR of SciPy's sparse matrix, of its pattern with other values if ``data`` is given.

    >>> import scipy.sparse
    >>> tape.sparse.csr(scipy.sparse.eye_array(2)) @ tape.ones(2)
    tensor([1., 1.])
    """
    compressed = matrix.tocsr()
    return CSR(compressed.data if data is None else data, compressed.indices, compressed.indptr, compressed.shape)


def _checked(data: Tensor, indices: Any, indptr: Any, shape: tuple[int, int]) -> tuple[Any, ...]:
    columns, starts = (np.array(as_array(x) if isinstance(x, Tensor) else x) for x in (indices, indptr))
    if any(x.ndim != 1 or (x.size and x.dtype.kind not in "iu") for x in (columns, starts)):
        raise ValueError("CSR: indices and indptr are vectors of integers")
    if starts.shape != (shape[0] + 1,) or starts[0] != 0 or np.any(np.diff(starts) < 0) or starts[-1] != len(columns):
        raise ValueError(
            f"CSR: indptr has {shape[0] + 1} entries that never fall, from 0 to the number of elements, {len(columns)}"
        )
    if columns.size and not 0 <= columns.min() <= columns.max() < shape[1]:
        raise ValueError(f"CSR: a column is out of range; the matrix has {shape[1]}")
    if data.spec.shape != columns.shape or data.spec.dtype.kind != "f":
        raise ValueError(
            f"CSR: data is floating with one value per element ({len(columns)}); it is {data.spec.dtype.name} of "
            f"shape {list(data.spec.shape)}"
        )
    return columns.astype(np.int64), starts.astype(np.int64), shape


def spsolve(A: CSR, b: Any) -> Tensor:  # noqa: N803 (SciPy's name)
    """Return x with A x = b, b a vector (n,) or a dense matrix (n, k). LinAlgError if A is singular.

    The factors are made once for the values of a tensor: the gradient, and further solves, use them again.

    >>> tape.sparse.spsolve(tape.sparse.CSR([2.0, 4.0], [0, 1], [0, 1, 2], (2, 2)), tape.ones(2))
    tensor([0.5000, 0.2500])
    """
    if not isinstance(A, CSR):
        raise TypeError(f"spsolve: A is a tape.sparse.CSR, not {type(A).__name__}; make one with tape.sparse.csr(A)")
    right = tensor_of(b)
    n = A.shape[0]
    if A.shape != (n, n):
        raise ValueError(f"spsolve: matrix must be square (has shape {A.shape})")
    if len(right.spec.shape) not in (1, _MATRIX) or right.spec.shape[0] != n:
        raise ValueError(f"spsolve: shapes do not fit: the matrix is {n} by {n}, b has shape {list(right.spec.shape)}")
    return foreign_calls.call(OPS["spsolve"], A.data, right, pattern=A.pattern, trans=A._trans)  # type: ignore[no-any-return, arg-type]
