"""The table of LU factorisations, as LAPACK packs them: both factors in one matrix, and the rows exchanged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kinds.routine import Routine
from kernels.ops.linalg.decompositions import lower, upper
from kernels.ops.linalg.solves import Array, LinAlgError, each, lapack, solve_triangular, which
from kernels.records.op import turned


def _factored(a: Array) -> tuple[Array, ...]:
    if not a.size:
        return a.copy(), np.zeros(min(a.shape), np.int32), np.zeros((), np.int32)
    lu, pivots, info = lapack("getrf", a.dtype)(a)
    return lu, pivots + 1, np.asarray(info, np.int32)


def _lu_factor(a: Array, *, check: str) -> tuple[Array, ...]:
    """Return the factors, and the first zero of each diagonal of U, from 1, or 0: with ``check``, its name, raise."""
    lu, pivots, info = each(_factored, a)
    if check and info.any():
        k = int(np.flatnonzero(info)[0])
        i = info.flat[k]
        raise LinAlgError(
            f"{check}: {which(a, k)}U[{i},{i}] is zero and using it on lu_solve would result in a division by zero. If "
            "you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
            "linalg.lu_factor_ex(A, pivot)"
        )
    return lu, pivots, info


def permutation(pivots: Array, *, n: int, dtype: str) -> Array:
    """Return the matrix P of A = P L U from the rows exchanged, counted from 1."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    matrices = np.zeros((len(flat), n, n), dtype)
    for matrix, row in zip(matrices, flat, strict=True):
        order = np.arange(n)
        for i, k in enumerate(row):
            order[[i, k - 1]] = order[[k - 1, i]]
        matrix[order, np.arange(n)] = 1
    return matrices.reshape(*pivots.shape[:-1], n, n)


def _blocks(y: Any) -> tuple[Any, Any, Any, Any]:
    """Return both square triangles, what stands below of L and what stands right of U."""
    k = min(y.shape[-2:])
    square = y[..., :k, :k]
    return lower(square, -1) + np.eye(k, dtype=y.dtype), upper(square), y[..., k:, :k], y[..., :k, k:]


def _by_u(x: Any, u: Any) -> Any:
    """Return x times the inverse of U."""
    return turned(solve_triangular(turned(u), turned(x), upper=False))


def _by_ut(x: Any, u: Any) -> Any:
    """Return x times the inverse of U transposed."""
    return turned(solve_triangular(u, turned(x), upper=True))


def _joined(square: Any, below: Any, right: Any) -> Any:
    """Put blocks in their places, of which one is empty."""
    if below.shape[-2]:
        return np.concatenate([square, below], -2)
    return np.concatenate([square, right], -1) if right.shape[-1] else square


def _lu_vjp(g: Any, y: Any, pivots: Array) -> Any:
    (low, up, below, right), k = _blocks(y), min(y.shape[-2:])
    g_square, g_below, g_right = g[..., :k, :k], g[..., k:, :k], g[..., :k, k:]
    by_l = np.matmul(turned(low), lower(g_square, -1)) - np.matmul(g_right, turned(right))
    by_u = np.matmul(upper(g_square), turned(up)) - np.matmul(turned(below), g_below)
    inner = _by_ut(lower(by_l, -1) + upper(by_u), up)
    top = solve_triangular(turned(low), np.concatenate([inner, g_right], -1), upper=True, unitriangular=True)
    gradient = _joined(top[..., :k], _by_ut(g_below, up), top[..., k:])
    return np.matmul(permutation(pivots, n=y.shape[-2], dtype=y.dtype.str), gradient)


def _lu_jvp(t: Any, y: Any, pivots: Array) -> Any:
    (low, up, below, right), k = _blocks(y), min(y.shape[-2:])
    moved = np.matmul(turned(permutation(pivots, n=y.shape[-2], dtype=y.dtype.str)), t)
    top = solve_triangular(low, moved[..., :k, :], upper=False, unitriangular=True)
    inner = _by_u(top[..., :k], up)
    t_u, by_l = np.matmul(upper(inner), up), lower(inner, -1)
    t_below = _by_u(moved[..., k:, :k] - np.matmul(below, t_u), up)
    return _joined(np.matmul(low, by_l) + t_u, t_below, top[..., k:] - np.matmul(by_l, right))


Routine(
    name="lu_factor",
    doc="The factors of LU with rows exchanged, packed in one matrix.",
    grad_fn="LinalgLuFactorExBackward0",
    function=False,
    forward=_lu_factor,
    vjp=_lu_vjp,
    jvp=_lu_jvp,
    extras=("pivots", "info"),
    samples=((((3, 3),), {"check": ""}), (((2, 2, 2),), {"check": "lu"})),
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


def _ldl(a: Array) -> tuple[Array, ...]:
    if not a.size:
        return a.copy(), np.zeros(len(a), np.int32), np.zeros((), np.int32)
    ld, pivots, info = lapack("sytrf", a.dtype)(a, lower=1)
    return np.tril(ld), pivots.astype(np.int32), np.asarray(info, np.int32)


def _ldl_factor(a: Array, *, check: str) -> tuple[Array, ...]:
    ld, pivots, info = each(_ldl, a)
    if check and info.any():
        k = int(np.flatnonzero(info)[0])
        raise RuntimeError(f"{check}: {which(a, k)}D[{info.flat[k]},{info.flat[k]}] is zero: the matrix is singular")
    return ld, pivots, info


Routine(
    name="ldl_factor",
    doc="The factors L and D of a symmetric matrix, packed in one.",
    grad_fn="",
    function=False,
    forward=_ldl_factor,
    vjp=None,
    extras=("pivots", "info"),
    samples=((((3, 3),), {"check": ""}),),
    domain=("spd",),
)
