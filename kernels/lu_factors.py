"""The table of LU factorisations, as LAPACK packs them: both factors in one matrix, and the rows exchanged."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.dispatching import turned
from kernels.factorizations import lower, upper
from kernels.op import Routine
from kernels.solves import Array, each, lapack, solve_triangular


def _factored(a: Array) -> tuple[Array, Array]:
    if not a.size:
        return a.copy(), np.zeros(min(a.shape), np.int32)
    lu, pivots, _ = lapack("getrf", a.dtype)(a)
    return lu, pivots + 1


def permutation(pivots: Array, *, n: int, dtype: str) -> Array:
    """Return the matrix P of A = P L U from the rows exchanged, counted from 1."""
    flat = pivots.reshape(-1, pivots.shape[-1])
    found = np.zeros((len(flat), n, n), dtype)
    for matrix, row in zip(found, flat, strict=True):
        order = np.arange(n)
        for i, k in enumerate(row):
            order[[i, k - 1]] = order[[k - 1, i]]
        matrix[order, np.arange(n)] = 1
    return found.reshape(*pivots.shape[:-1], n, n)


def _square(a: Any) -> int:
    n = a.shape[-1]
    if a.shape[-2] != n:
        raise NotImplementedError(
            f"linalg.lu_factor: gradients are for square matrices; this one is {a.shape[-2]} by {n}"
        )
    return n  # type: ignore[no-any-return]


def _lu_vjp(g: Any, y: Any, pivots: Array) -> Any:
    n = _square(y)
    p = permutation(pivots, n=n, dtype=y.dtype.str)
    by_l = lower(np.matmul(turned(lower(y, -1)) + np.eye(n, dtype=y.dtype), lower(g, -1)), -1)
    by_u = upper(np.matmul(upper(g), turned(upper(y))))
    left = solve_triangular(turned(y), by_l + by_u, upper=True, unitriangular=True)
    return np.matmul(p, turned(solve_triangular(y, turned(left), upper=True)))


def _lu_jvp(t: Any, y: Any, pivots: Array) -> Any:
    n = _square(y)
    p = permutation(pivots, n=n, dtype=y.dtype.str)
    left = solve_triangular(y, np.matmul(turned(p), t), upper=False, unitriangular=True)
    inner = turned(solve_triangular(turned(y), turned(left), upper=False))
    t_l = np.matmul(lower(y, -1) + np.eye(n, dtype=y.dtype), lower(inner, -1))
    return t_l + np.matmul(upper(inner), upper(y))


Routine(
    name="lu_factor",
    doc="The factors of LU with rows exchanged, packed in one matrix.",
    grad_fn="LinalgLuFactorExBackward0",
    function=False,
    forward=lambda a: each(_factored, a),
    vjp=_lu_vjp,
    jvp=_lu_jvp,
    extras=("pivots",),
    samples=((((3, 3),), {}), (((2, 2, 2),), {})),
    domain=("wellconditioned",),
)
Routine(
    name="lu_permutation",
    doc="The matrix that exchanges rows as pivots say.",
    grad_fn="",
    function=False,
    forward=permutation,
    vjp=None,
    samples=((((3,),), {"n": 3, "dtype": "<f8"}),),
    domain=("pivots",),
)
