"""The table of factorisations that are kept for solves: Cholesky's and LU's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.kinds.routine import Routine
from kernels.operations.decompositions import cholesky_jvp, cholesky_vjp, indefinite, lower, upper
from kernels.operations.solves import LinAlgError, each, lapack, outer, plus, solve_triangular, which
from kernels.rules.op import dispatched, turned

# The table of what Cholesky factors are for: solving, and the inverse of the matrix that they are the factors of.
#
# The gradient to a factor is PyTorch's: of A = L L^T with all elements of L free, not of its triangle alone, though
# the values read no more than that.


def _partly(a: Array) -> tuple[Array, Array]:
    if not a.size:
        return a.copy(), np.zeros((), np.int32)
    factor, info = lapack("potrf", a.dtype)(a, lower=True)
    return factor, np.asarray(info, np.int32)


def _cholesky_ex(a: Array, *, check_errors: bool) -> tuple[Array, Array]:
    factor, info = each(_partly, a)
    if check_errors and info.any():
        k = int(np.flatnonzero(info)[0])
        raise indefinite("linalg.cholesky_ex", a, k, info.flat[k])
    return factor, info


Routine(
    name="cholesky_ex",
    doc="The lower triangular factor of a matrix, and which leading minor is not positive-definite, or 0.",
    grad_fn="LinalgCholeskyExBackward0",
    function=False,
    forward=_cholesky_ex,
    vjp=cholesky_vjp,
    jvp=cholesky_jvp,
    extras=("info",),
    samples=((((3, 3),), {"check_errors": True}), (((2, 2, 2),), {"check_errors": False})),
    domain=("spd",),
)


def _inverse(factor: Array, *, upper: bool) -> Array:
    zeros = np.flatnonzero(np.diagonal(factor, axis1=-2, axis2=-1) == 0)
    if zeros.size:
        k, i = divmod(int(zeros[0]), factor.shape[-1])
        raise LinAlgError(
            f"cholesky_inverse: {which(factor, k)}The diagonal element {i + 1} is zero, the inversion could not be "
            "completed because the input matrix is singular."
        )
    return each(lambda x: _inverse_of(x, upper), factor)  # type: ignore[no-any-return]


def _inverse_of(factor: Array, upper: bool) -> Array:
    if not factor.size:
        return factor.copy()
    triangle = lapack("potri", factor.dtype)(factor, lower=not upper)[0]
    inside = np.triu(triangle) if upper else np.tril(triangle)
    return inside + np.triu(inside, 1).T + np.tril(inside, -1).T  # type: ignore[no-any-return]


def _with_turned(x: Any) -> Any:
    return x + turned(x)


def _to_factor(inner: Any, factor: Any, upper: bool) -> Any:
    """Return the gradient to a factor, given the symmetric one to its matrix, twice and negated."""
    return -(np.matmul(factor, inner) if upper else np.matmul(inner, factor))


def _moved(t: Any, factor: Any, upper: bool) -> Any:
    """Return how the matrix of a factor moves with it."""
    return _with_turned(np.matmul(turned(t), factor) if upper else np.matmul(t, turned(factor)))


Routine(
    name="cholesky_inverse",
    doc="The inverse of a matrix, of which a Cholesky factor is given.",
    grad_fn="CholeskyInverseBackward0",
    function=False,
    forward=_inverse,
    vjp=lambda g, y, factor, upper: _to_factor(np.matmul(np.matmul(y, _with_turned(g)), y), factor, upper),
    jvp=lambda t, y, factor, upper: -np.matmul(np.matmul(y, _moved(t, factor, upper)), y),
    samples=((((3, 3),), {"upper": False}), (((2, 2, 2),), {"upper": False})),
    domain=("lower",),
)


@dispatched
def cholesky_solve(b: Any, factor: Any, *, upper: bool) -> Any:
    """Return what a matrix times it is b, of which a Cholesky factor is given; infinite where that has a zero."""
    return each(lambda b, x: _solved(b, x, upper), b, factor)


def _solved(b: Array, factor: Array, upper: bool) -> Array:
    if not b.size:
        return b.copy()
    return lapack("potrs", b.dtype)(factor, b, lower=not upper)[0]  # type: ignore[no-any-return]


def _solve_vjp(g: Any, y: Any, factor: Any, upper: bool, needs: Any) -> Any:
    g_b = cholesky_solve(g, factor, upper=upper)
    return g_b, (_to_factor(_with_turned(outer(g_b, y)), factor, upper) if needs[1] else None)


def _solve_jvp(t_b: Any, t_factor: Any, y: Any, factor: Any, upper: bool) -> Any:
    moved = None if t_factor is None else -np.matmul(_moved(t_factor, factor, upper), y)
    return cholesky_solve(plus(t_b, moved), factor, upper=upper)


Routine(
    name="cholesky_solve",
    doc="The solution of equations with a matrix of which a Cholesky factor is given.",
    grad_fn="CholeskySolveBackward0",
    function=False,
    forward=lambda b, factor, *, upper: cholesky_solve(b, factor, upper=upper),
    vjp=_solve_vjp,
    jvp=_solve_jvp,
    samples=((((3, 2), (3, 3)), {"upper": False}), (((2, 3, 1), (2, 3, 3)), {"upper": False})),
    domain=("real", "lower"),
)


# The table of LU factorisations, as LAPACK packs them: both factors in one matrix, and the rows exchanged.


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
