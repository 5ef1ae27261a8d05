"""The table of products and solves with sparse matrices of a fixed pattern; forward calls SciPy.

A matrix is the values at the places of its pattern, in SciPy's CSR order; gradients reach these values alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

from kernels.kinds.routine import Routine
from kernels.native.memory import where
from kernels.ops.linalg.solves import LinAlgError
from kernels.records.op import dispatched

Array = np.ndarray[Any, Any]


class Pattern:
    """Where a sparse matrix has elements, as SciPy's CSR says it. Made by :func:`pattern_of`: equal ones are one."""

    __slots__ = ("__weakref__", "_factors", "columns", "indptr", "rows", "shape")

    def __init__(self, indices: Array, indptr: Array, shape: tuple[int, int]) -> None:
        self.columns, self.indptr, self.shape = indices, indptr, shape
        self.rows = np.repeat(np.arange(shape[0]), np.diff(indptr))
        self._factors: dict[int, tuple[Any, Array, Any]] = {}

    def __repr__(self) -> str:
        return f"<{self.shape[0]} by {self.shape[1]}, {len(self.columns)} elements>"

    def __reduce__(self) -> tuple[Any, ...]:
        return pattern_of, (self.columns, self.indptr, self.shape)

    def matrix(self, data: Array) -> Any:
        """Return SciPy's matrix with these values."""
        from scipy.sparse import csr_array

        return csr_array((data, self.columns, self.indptr), shape=self.shape)

    def factors(self, data: Array, make: Callable[[], Any]) -> Any:
        """Return what was made of these values before; it is kept while their memory holds them.

        The adjoint finds it by the address; a copy shows whether the values are still the same.
        """
        key = where(data)
        known = self._factors.get(key)
        if known is not None and np.array_equal(_bits(known[1]), _bits(data)):  # 0.0 is not -0.0, nan is nan
            return known[2]
        factors = make()
        self._factors[key] = (ref(data, lambda gone: self._drop(key, gone)), data.copy(), factors)
        return factors

    def _drop(self, key: int, gone: Any) -> None:
        known = self._factors.get(key)
        if known is not None and known[0] is gone:
            del self._factors[key]


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.uint8)


_living: WeakValueDictionary[tuple[Any, ...], Pattern] = WeakValueDictionary()


def pattern_of(indices: Array, indptr: Array, shape: tuple[int, int]) -> Pattern:
    """Return the pattern of these int64 arrays, which it keeps: the one in use if there is one."""
    key = (shape, *(hashlib.sha256(x.tobytes()).digest() for x in (indices, indptr)))
    return _living.setdefault(key, Pattern(indices, indptr, shape))


@dispatched
def multiply(data: Any, x: Any, *, pattern: Pattern, trans: bool = False) -> Any:
    """Return the product of the matrix, or of it transposed, with a vector or a dense matrix."""
    matrix = pattern.matrix(data)
    return np.asarray((matrix.T if trans else matrix) @ x)


def _at(x: Any, y: Any, pattern: Pattern) -> Any:
    """Return the elements at the pattern of x times y transposed."""
    products = x[pattern.rows] * y[pattern.columns]
    return products if products.ndim == 1 else np.sum(products, axis=-1)


def _multiply_vjp(g: Any, data: Any, x: Any, pattern: Pattern, trans: bool, needs: Any) -> Any:
    rows, columns = (x, g) if trans else (g, x)
    return (
        _at(rows, columns, pattern) if needs[0] else None,
        multiply(data, g, pattern=pattern, trans=not trans) if needs[1] else None,
    )


def _multiply_jvp(t_data: Any, t_x: Any, data: Any, x: Any, pattern: Pattern, trans: bool) -> Any:
    by_data = 0.0 if t_data is None else multiply(t_data, x, pattern=pattern, trans=trans)
    return by_data if t_x is None else by_data + multiply(data, t_x, pattern=pattern, trans=trans)


_SAMPLE = pattern_of(np.array([0, 2, 1, 2, 0]), np.array([0, 2, 3, 5]), (3, 3))
_WIDE = pattern_of(np.array([0, 3, 1, 3]), np.array([0, 2, 2, 4]), (3, 4))

Routine(
    name="spmm",
    doc="A sparse matrix times a vector or a dense matrix.",
    grad_fn="SparseMmBackward0",
    function=False,
    forward=lambda data, x, *, pattern, trans: multiply(data, x, pattern=pattern, trans=trans),
    vjp=_multiply_vjp,
    jvp=_multiply_jvp,
    samples=(
        (((4,), (4,)), {"pattern": _WIDE, "trans": False}),
        (((4,), (3, 2)), {"pattern": _WIDE, "trans": True}),
    ),
)


@dispatched
def spsolve(data: Any, b: Any, *, pattern: Pattern, trans: bool = False) -> Any:
    """Solve with the matrix, or with it transposed; the factors of SuperLU are made once."""
    factors = pattern.factors(data, lambda: _factored(data, pattern))
    return factors.solve(np.asarray(b), "T" if trans else "N") if b.size else b.copy()


def _factored(data: Array, pattern: Pattern) -> Any:
    from scipy.sparse.linalg import splu

    try:
        return splu(pattern.matrix(data).tocsc())
    except RuntimeError as error:
        raise LinAlgError(f"sparse.spsolve: The solver failed because the input matrix is singular: {error}") from None


def _spsolve_vjp(g: Any, y: Any, data: Any, pattern: Pattern, trans: bool, needs: Any) -> Any:
    g_b = spsolve(data, g, pattern=pattern, trans=not trans)
    rows, columns = (y, g_b) if trans else (g_b, y)
    return (-_at(rows, columns, pattern) if needs[0] else None), g_b


def _spsolve_jvp(t_data: Any, t_b: Any, y: Any, data: Any, pattern: Pattern, trans: bool) -> Any:
    right = 0.0 if t_b is None else t_b
    if t_data is not None:
        right = right - multiply(t_data, y, pattern=pattern, trans=trans)
    return spsolve(data, right, pattern=pattern, trans=trans)


Routine(
    name="spsolve",
    doc="The solution of equations with a sparse matrix.",
    grad_fn="SparseSolveBackward0",
    function=False,
    forward=lambda data, b, *, pattern, trans: spsolve(data, b, pattern=pattern, trans=trans),
    vjp=_spsolve_vjp,
    jvp=_spsolve_jvp,
    samples=(
        (((5,), (3,)), {"pattern": _SAMPLE, "trans": False}),
        (((5,), (3, 2)), {"pattern": _SAMPLE, "trans": True}),
    ),
    domain=("values", "real"),
)
