"""Sparse matrices of a fixed pattern, with gradients to their values: products, and solves by bands or SuperLU."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.operations import OPS
from kernels.operations.interpolation import pattern_of
from tape.operations.matmul import is_scipys, sparse_product
from tape.recording import creation, foreign_calls, views
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, as_array

pattern_of.__module__ = "tape.sparse"  # where pickles find it

_MATRIX = 2


class CSR:
    """A sparse matrix in compressed rows: a tensor of values, SciPy's ``indices`` and ``indptr``, and a shape.

    Row i has ``data[indptr[i]:indptr[i + 1]]`` in the columns ``indices[indptr[i]:indptr[i + 1]]``. The pattern is
    copied, and never changes; the gradient of the values has their shape. ``A @ x`` and ``x @ A`` take vectors, dense
    and sparse matrices, SciPy's among them, ``A + B`` sparse ones; ``A * x`` scales.

    >>> tape.sparse.CSR([2.0, 3.0], [1, 0], [0, 1, 2], (2, 2)) @ tape.tensor([1.0, 10.0])
    tensor([20.,  3.])
    """

    __module__ = "tape.sparse"
    __slots__ = ("_trans", "data", "pattern")
    __array_ufunc__ = None  # NumPy's arrays, and SciPy's matrices, leave operators to this class

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

    def __matmul__(self, x: Any) -> Any:
        """Return the product with a vector or a dense matrix, a tensor, or with a sparse matrix, a CSR."""
        if _is_sparse(x):
            return _product(self, _csr(x))
        return sparse_product(self.data, x, self.pattern, trans=self._trans)

    def __rmatmul__(self, x: Any) -> Any:
        """Return the product of a vector, a dense matrix or a sparse one with this one."""
        if _is_sparse(x):
            return _csr(x) @ self
        x = tensor_of(x)
        return self.T @ x if len(x.spec.shape) == 1 else (self.T @ x.T).T

    def __mul__(self, factor: Any) -> CSR:
        """Return the matrix scaled: by a number, its columns by a vector (n,), its rows by a column (m, 1)."""
        factor, (rows, columns) = tensor_of(factor), self.coordinates()
        m, n = self.shape
        if factor.spec.shape == (n,):
            factor = factor[columns]
        elif factor.spec.shape == (m, 1):
            factor = factor[rows, 0]
        elif factor.spec.shape:
            raise ValueError(
                f"a matrix of {m} by {n} is scaled by a number, a vector ({n},) or a column ({m}, 1), not by shape "
                f"{list(factor.spec.shape)}"
            )
        return self._of(self.data * factor, self._trans)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> CSR:
        """Return the matrix divided by a number, as by :meth:`__mul__`."""
        return self * (1.0 / tensor_of(divisor))

    def __neg__(self) -> CSR:
        """Return the matrix with the other sign."""
        return self._of(-self.data, self._trans)

    def __add__(self, other: Any) -> CSR:
        """Return the sum with a sparse matrix of the same shape; elements of either are elements of the sum."""
        if not _is_sparse(other):
            return NotImplemented
        other = _csr(other)
        if other.shape != self.shape:
            raise ValueError(f"inconsistent shapes: {self.shape} and {other.shape}")
        pairs = zip(self.coordinates(), other.coordinates(), strict=True)
        return coo(views.cat([self.data, other.data]), tuple(map(np.concatenate, pairs)), self.shape)

    __radd__ = __add__

    def __sub__(self, other: Any) -> CSR:
        """Return the difference of sparse matrices, as :meth:`__add__` does the sum."""
        return self + -_csr(other) if _is_sparse(other) else NotImplemented

    def __rsub__(self, other: Any) -> CSR:
        """Return the difference of sparse matrices."""
        return _csr(other) - self if _is_sparse(other) else NotImplemented

    def coordinates(self) -> tuple[Array, Array]:
        """Return the row and the column of each element."""
        rows, columns = self.pattern.rows, self.pattern.columns
        return (columns, rows) if self._trans else (rows, columns)

    def diagonal(self) -> Tensor:
        """Return the elements whose row is their column, as a vector."""
        rows, columns = self.coordinates()
        at = np.flatnonzero(rows == columns)
        return _summed(self.data[at], rows[at], min(self.shape))

    def sum(self, axis: int | None = None) -> Tensor:
        """Return the sum of all elements, of those of each column (``axis=0``), or of each row (1)."""
        if axis is None:
            return self.data.sum()
        axis = range(_MATRIX)[axis]
        return _summed(self.data, self.coordinates()[1 - axis], self.shape[1 - axis])

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


def coo(values: Any, indices: Any, shape: Any) -> CSR:
    """Return the matrix whose elements are sums of ``values`` with the same row and column, as finite elements give.

    ``indices`` are two arrays of integers, the rows and the columns, of the shape of ``values``, any shape. Gradients
    reach ``values``. ValueError for shapes that differ, for what are no integers, and for an index out of range.

    >>> tape.sparse.coo([1.0, 2.0, 4.0], ([0, 1, 0], [1, 1, 1]), (2, 2)).to_dense().tolist()
    [[0.0, 5.0], [0.0, 2.0]]
    """
    values = tensor_of(np.asarray(values) if isinstance(values, (list, tuple)) else values)
    m, n = map(operator.index, shape)
    rows, columns = (np.asarray(as_array(x) if isinstance(x, Tensor) else x) for x in indices)
    if not rows.shape == columns.shape == values.spec.shape:
        raise ValueError(
            f"coo: rows have shape {list(rows.shape)}, columns {list(columns.shape)}, values "
            f"{list(values.spec.shape)}; there is one of each for an element"
        )
    if rows.size and (rows.dtype.kind not in "iu" or columns.dtype.kind not in "iu"):
        raise ValueError(f"coo: rows and columns are integers, not {rows.dtype.name} and {columns.dtype.name}")
    for name, x, end in (("row", rows, m), ("column", columns, n)):
        if x.size and not 0 <= x.min() <= x.max() < end:
            raise ValueError(f"coo: a {name} is out of range; the matrix has {end}")
    keys = rows.reshape(-1).astype(np.int64) * n + columns.reshape(-1).astype(np.int64)
    places, inverse = np.unique(keys, return_inverse=True)
    indptr = np.searchsorted(places, np.arange(m + 1, dtype=np.int64) * n)
    return CSR(_summed(values.reshape(-1), inverse, len(places)), places % max(n, 1), indptr, (m, n))


def _summed(values: Tensor, at: Array, count: int) -> Tensor:
    return creation.zeros(count, dtype=values.spec.dtype).index_put_((at,), values, accumulate=True)


def _is_sparse(x: Any) -> bool:
    return isinstance(x, CSR) or is_scipys(x)


def _csr(x: Any) -> CSR:
    return x if isinstance(x, CSR) else csr(x)


def _product(a: CSR, b: CSR) -> CSR:
    """Return the product of sparse matrices: each element of a meets those of a row of b."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul: dimension mismatch: {a.shape[0]} by {a.shape[1]} times {b.shape[0]} by {b.shape[1]}")
    (rows, inner), (of_b, columns) = a.coordinates(), b.coordinates()
    order = np.argsort(of_b, kind="stable")
    lengths = np.bincount(of_b, minlength=b.shape[0])
    starts, counts = (np.cumsum(lengths) - lengths)[inner], lengths[inner]
    left = np.repeat(np.arange(len(rows)), counts)
    met = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)
    right = order[met]
    return coo(a.data[left] * b.data[right], (rows[left], columns[right]), (a.shape[0], b.shape[1]))


def csr(matrix: Any, data: Any = None) -> CSR:
    """Return a CSR of SciPy's sparse matrix, of its pattern with other values if ``data`` is given.

    >>> import scipy.sparse
    >>> tape.sparse.csr(scipy.sparse.eye_array(2)) @ tape.ones(2)
    tensor([1., 1.])
    """
    compressed = matrix.tocsr()
    values = compressed.data if compressed.data.dtype.kind == "f" else compressed.data.astype(np.float64)
    return CSR(values if data is None else data, compressed.indices, compressed.indptr, compressed.shape)


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

    A pattern that is narrow, as it is or in the order of Cuthill and McKee, is factored by LAPACK, in compiled programs
    in machine code; another by SuperLU, once for the values of a tensor. The gradient uses the factors again.

    >>> tape.sparse.spsolve(tape.sparse.CSR([2.0, 4.0], [0, 1], [0, 1, 2], (2, 2)), tape.ones(2))
    tensor([0.5000, 0.2500])
    """
    if not isinstance(A, CSR):
        raise TypeError(f"spsolve: A is a tape.sparse.CSR, not {type(A).__name__}; make one with tape.sparse.csr(A)")
    return factored(A)(b)


def factored(A: CSR) -> Callable[[Any], Tensor]:  # noqa: N803
    """Return what solves with a matrix, which is factored once for all that it is called with."""
    n, band = A.shape[0], A.pattern.band
    if A.shape != (n, n):
        raise ValueError(f"spsolve: matrix must be square (has shape {A.shape})")

    def solve(b: Any) -> Tensor:
        right = tensor_of(b)
        if len(right.spec.shape) not in (1, _MATRIX) or right.spec.shape[0] != n:
            shape = list(right.spec.shape)
            raise ValueError(f"spsolve: shapes do not fit: the matrix is {n} by {n}, b has shape {shape}")
        if band is None or not right.spec.size:
            return foreign_calls.call(OPS["spsolve"], A.data, right, pattern=A.pattern, trans=A._trans)  # type: ignore[no-any-return, arg-type]
        x = foreign_calls.call(OPS["band_solve"], lu, right[band.order], below=band.below, trans=A._trans)  # type: ignore[arg-type]
        return x[band.inverse]  # type: ignore[no-any-return]

    if band is not None:
        padded = views.cat([A.data, creation.zeros(1, dtype=A.data.spec.dtype)])
        lu = foreign_calls.call(OPS["band_lu"], padded[band.places], below=band.below)  # type: ignore[arg-type]
    return solve
