"""The table of factorisations, determinants and banded systems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.kinds.routine import Routine
from kernels.operations import solves
from kernels.operations.decompositions import cholesky_jvp, cholesky_vjp, indefinite, lower, upper
from kernels.operations.solves import LinAlgError, each, lapack, solve_triangular, which
from kernels.rules.op import dispatched, turned

# The gradient to a Cholesky factor is PyTorch's: of A = L L^T with all elements of L free, not of its triangle alone.


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
    grad_fn="LinalgCholeskyExBackward0", extras=("info",),
    forward=_cholesky_ex, vjp=cholesky_vjp, jvp=cholesky_jvp,
    samples=((((3, 3),), {"check_errors": True}), (((2, 2, 2),), {"check_errors": False})), domain=("spd",),
)  # fmt: skip


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
    name="cholesky_inverse", doc="The inverse of a matrix, of which a Cholesky factor is given.", forward=_inverse,
    vjp=lambda g, y, factor, upper: _to_factor(np.matmul(np.matmul(y, _with_turned(g)), y), factor, upper),
    jvp=lambda t, y, factor, upper: -np.matmul(np.matmul(y, _moved(t, factor, upper)), y),
    samples=((((3, 3),), {"upper": False}), (((2, 2, 2),), {"upper": False})), domain=("lower",),
)  # fmt: skip


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
    return g_b, (_to_factor(_with_turned(solves.outer(g_b, y)), factor, upper) if needs[1] else None)


def _solve_jvp(t_b: Any, t_factor: Any, y: Any, factor: Any, upper: bool) -> Any:
    moved = None if t_factor is None else -np.matmul(_moved(t_factor, factor, upper), y)
    return cholesky_solve(solves.plus(t_b, moved), factor, upper=upper)


Routine(
    name="cholesky_solve", doc="The solution of equations with a matrix of which a Cholesky factor is given.",
    forward=cholesky_solve, vjp=_solve_vjp, jvp=_solve_jvp,
    samples=((((3, 2), (3, 3)), {"upper": False}), (((2, 3, 1), (2, 3, 3)), {"upper": False})),
    domain=("real", "lower"),
)  # fmt: skip


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
    return turned(solve_triangular(turned(u), turned(x), upper=False))


def _by_ut(x: Any, u: Any) -> Any:
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
    name="lu_factor", doc="The factors of LU with rows exchanged, packed in one matrix.",
    grad_fn="LinalgLuFactorExBackward0", extras=("pivots", "info"),
    forward=_lu_factor, vjp=_lu_vjp, jvp=_lu_jvp, samples=((((3, 3),), {"check": ""}), (((2, 2, 2),), {"check": "lu"})),
    domain=("wellconditioned",),
)  # fmt: skip
Routine(
    name="lu_permutation", doc="The matrix that exchanges rows as pivots say.",
    forward=permutation, samples=((((3,),), {"n": 3, "dtype": "<f8"}),), domain=("pivots",),
)  # fmt: skip


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
    name="ldl_factor", doc="The factors L and D of a symmetric matrix, packed in one.",
    extras=("pivots", "info"), forward=_ldl_factor, samples=((((3, 3),), {"check": ""}),), domain=("spd",),
)  # fmt: skip


# The rules are those of Giles (2008), for the exponential of Mathias, "A chain rule for matrix functions" (1996).

_INV = "linalg.inv: The inversion could not be completed because the input matrix is singular."
_INV_EX = (
    "linalg.inv_ex: The diagonal element {} is zero, the inversion could not be completed because the input matrix is "
    "singular."
)


@dispatched
def inverse(a: Any) -> Any:
    """Return the inverses of matrices; LinAlgError if one is singular."""
    return solves.guarded(np.linalg.inv, a, message=_INV)


def _inverse_ex(a: Any, *, check_errors: bool) -> Any:
    eye = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return solves.solve_ex(a, eye, check=_INV_EX if check_errors else "")


for _name, _forward, _params in (("inv", inverse, {}), ("inv_ex", _inverse_ex, {"check_errors": False})):
    Routine(
        name=_name,
        doc="The inverse of a matrix." if _name == "inv" else "The inverse of a matrix, and which pivot is zero, or 0.",
        grad_fn="LinalgInvExBackward0",
        forward=_forward, vjp=lambda g, y: -np.matmul(np.matmul(turned(y), g), turned(y)),
        jvp=lambda t, y: -np.matmul(np.matmul(y, t), y),
        parts=None if _params else solves.inverse_parts, direct=None if _params else solves.directly("inverse"),
        extras=("info",) if _params else (), samples=((((3, 3),), _params), (((2, 2, 2),), _params)),
        domain=("wellconditioned",), spreads=solves.each_by_itself,
    )  # fmt: skip


_WELL_CONDITIONED = 1e4


@dispatched
def cofactors(a: Any, y: Any) -> Any:
    """Return the derivative of a determinant y; of singular matrices too, which the inverse does not reach."""
    rows = _powers(np.max(np.abs(a), axis=-1, keepdims=True, initial=0.0))
    columns = _powers(np.max(np.abs(a * rows), axis=-2, keepdims=True, initial=0.0))
    scaled, scales, y = a * rows * columns, rows * columns, np.reshape(y, (*a.shape[:-2], 1, 1))
    inverted = _inverse_if_well_conditioned(scaled)
    if inverted is not None:
        return y * turned(inverted) * scales
    if not np.all(np.isfinite(y)):
        return np.full_like(a, np.nan) * y
    u, s, vh, sign = _signed_svd(scaled)
    scales = scales / (np.prod(rows, axis=-2, keepdims=True) * np.prod(columns, axis=-1, keepdims=True))
    return np.matmul(u * (sign[..., None] * _others(s))[..., None, :], vh) * scales


def _powers(sizes: Array) -> Array:
    """Return the powers of 2 that bring sizes to about 1; 1 for 0."""
    exponents = np.frexp(np.where(np.isfinite(sizes), sizes, 1.0))[1]
    return np.ldexp(np.ones_like(sizes), -np.maximum(exponents, np.finfo(sizes.dtype).minexp))


def _inverse_if_well_conditioned(a: Array) -> Array | None:
    try:
        inverted = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return None
    norms = [np.abs(x).sum(-1).max(-1, initial=0.0) for x in (a, inverted)]
    return inverted if np.all(norms[0] * norms[1] < _WELL_CONDITIONED) else None


def _signed_svd(a: Any) -> tuple[Any, Any, Any, Any]:
    """Return the singular value decomposition, and the determinant of both its rotations."""
    u, s, vh = np.linalg.svd(a, full_matrices=True)
    return u, s, vh, np.round(np.linalg.det(u) * np.linalg.det(vh))


def _others(s: Any) -> Any:
    """Return for each number the product of the others."""
    return np.prod(np.where(np.eye(s.shape[-1], dtype=bool), 1.0, s[..., None, :]), axis=-1)


@dispatched
def cofactors_along(b: Any, a: Any) -> Any:
    """Return how cofactors move along b: by the products of all singular values but two; its own transpose."""
    u, s, vh, sign = _signed_svd(a)
    eye = np.eye(s.shape[-1], dtype=bool)
    inner = np.matmul(np.matmul(turned(u), b), turned(vh))
    pairs = np.where(eye, 0.0, _others(np.where(eye, 1.0, s[..., None, :])))
    on_diagonal = np.sum(pairs * np.sum(np.where(eye, inner, 0.0), axis=-2)[..., None, :], axis=-1)
    core = np.where(eye, on_diagonal[..., None, :], -pairs * turned(inner))
    return np.matmul(np.matmul(u, core * sign[..., None, None]), vh)


def _cofactors_along_two(t: Any, x: Any, a: Any) -> Any:
    """Return how cofactors move along t and x, in any order; of invertible matrices alone."""
    inverted = inverse(a)
    along_t, along_x = np.matmul(inverted, t), np.matmul(inverted, x)
    along_both = np.matmul(along_t, along_x)
    by_t, by_x, by_both = (
        np.sum(np.where(np.eye(a.shape[-1], dtype=bool), m, 0.0), axis=(-2, -1))[..., None, None]
        for m in (along_t, along_x, along_both)
    )
    moved = along_both + np.matmul(along_x, along_t) - by_x * along_t - by_t * along_x
    whole = np.matmul(moved, inverted) + (by_t * by_x - by_both) * inverted
    return np.linalg.det(a)[..., None, None] * turned(whole)


Routine(
    name="cofactors", doc="The derivative of the determinant of a matrix.", grad_fn="LinalgDetBackward0",
    forward=lambda a: cofactors(a, np.linalg.det(a)), vjp=lambda g, a: cofactors_along(g, a),
    jvp=lambda t, a: cofactors_along(t, a), samples=((((3, 3),), {}), (((2, 2, 2),), {})), domain=("wellconditioned",),
)  # fmt: skip
Routine(
    name="cofactors_along", doc="How cofactors of a matrix move along another.", grad_fn="LinalgDetBackward0",
    forward=cofactors_along,
    vjp=lambda g, b, a, needs: (cofactors_along(g, a), _cofactors_along_two(b, g, a) if needs[1] else None),
    jvp=lambda t_b, t_a, b, a: solves.plus(
        None if t_b is None else cofactors_along(t_b, a), None if t_a is None else _cofactors_along_two(b, t_a, a)
    ),
    samples=((((3, 3), (3, 3)), {}), (((2, 3, 3), (2, 3, 3)), {})), domain=("wellconditioned", "wellconditioned"),
)  # fmt: skip
Routine(
    name="det", doc="The determinant of a matrix.", grad_fn="LinalgDetBackward0",
    forward=lambda a: np.asarray(np.linalg.det(a)), vjp=lambda g, y, a: g[..., None, None] * cofactors(a, y),
    jvp=lambda t, y, a: np.sum(cofactors(a, y) * t, axis=(-2, -1)),
    parts=solves.determinant_parts, direct=solves.directly("det"),
    spreads=lambda sets, a: sets.along(a, (-2, -1))[..., 0, 0],
    samples=((((3, 3),), {}), (((2, 2, 2),), {})), domain=("wellconditioned",),
)  # fmt: skip
Routine(
    name="slogdet", doc="The sign, and the logarithm of the absolute value, of a determinant.",
    grad_fn="LinalgSlogdetBackward0",
    forward=lambda a: tuple(np.asarray(x) for x in np.linalg.slogdet(a)),
    vjp=lambda g_logabsdet, a: g_logabsdet[..., None, None] * turned(inverse(a)),
    jvp=lambda t, sign, a: (sign * 0.0, np.sum(turned(inverse(a)) * t, axis=(-2, -1))), results=("sign", "logabsdet"),
    direct=solves.directly("slogdet"), samples=((((3, 3),), {}),), domain=("wellconditioned",),
)  # fmt: skip


@dispatched
def matrix_exp(a: Any) -> Any:
    """Return the exponential of square matrices."""
    from scipy.linalg import expm

    return expm(a) if a.size else np.zeros(a.shape, a.dtype)


def _exponential_along(a: Any, t: Any) -> Any:
    """Return the derivative of the exponential at a in the direction t: a block of another exponential."""
    n = a.shape[-1]
    upper, lower = np.concatenate([a, t], -1), np.concatenate([a * 0.0, a], -1)
    return matrix_exp(np.concatenate([upper, lower], -2))[..., :n, n:]


Routine(
    name="matrix_exp", doc="The exponential of a square matrix.", grad_fn="LinalgMatrixExpBackward0",
    forward=matrix_exp, vjp=lambda g, a: _exponential_along(turned(a), g), jvp=lambda t, a: _exponential_along(a, t),
    samples=((((3, 3),), {}), (((2, 2, 2),), {})),
)  # fmt: skip


# Gradients of banded and Toeplitz solves reach what SciPy reads: bands, first column and first row; unused corners get
# 0.


def _called(name: str, *operands: Any, **params: Any) -> Any:
    """Call a solver of scipy.linalg; what it raises for a singular matrix is our error too."""
    import scipy.linalg

    try:
        result = getattr(scipy.linalg, name)(*operands, check_finite=False, **params)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"linalg.{name}: The solver failed because the input matrix is singular: {error}") from None
    return result.astype(operands[-1].dtype, copy=False)


@dispatched
def solve_banded(ab: Any, b: Any, *, l_and_u: tuple[int, int]) -> Any:
    """Solve with the matrix whose diagonals are the rows of ab, the highest first."""
    return _called("solve_banded", l_and_u, ab, b)


def shifted(x: Any, k: int) -> Any:
    """Return x moved by k places along the first axis, zeros behind it."""
    if k == 0:
        return x
    nothing = x[: abs(k)] * 0.0
    if abs(k) >= x.shape[0]:
        return x * 0.0
    return np.concatenate([nothing, x[:-k]]) if k > 0 else np.concatenate([x[-k:], nothing])


def _bands_turned(ab: Any, lower: int, upper: int) -> Any:
    rows = range(lower + upper + 1)
    return np.stack(
        [shifted(ab[lower + upper - r], lower - r) if (abs(r - lower) < ab.shape[1]) else ab[0] * 0.0 for r in rows]
    )


def _along(x: Any, y: Any) -> Any:
    return x * y if x.ndim == 1 else np.sum(x * y, axis=-1)


def _banded_vjp(g: Any, y: Any, ab: Any, l_and_u: tuple[int, int], needs: Any) -> Any:
    lower, upper = l_and_u
    g_b = solve_banded(_bands_turned(ab, lower, upper), g, l_and_u=(upper, lower))
    if not needs[0]:
        return None, g_b
    # row r of the bands holds the elements (j + r - upper, j)
    rows = [-_along(shifted(g_b, upper - r), y) for r in range(lower + upper + 1)]
    return np.stack(rows), g_b


def _times_bands(ab: Any, x: Any, lower: int, upper: int) -> Any:
    total = None
    for r in range(lower + upper + 1):
        column = ab[r] if x.ndim == 1 else ab[r][:, None]
        part = shifted(column * x, r - upper)
        total = part if total is None else total + part
    return total


def _banded_jvp(t_ab: Any, t_b: Any, y: Any, ab: Any, l_and_u: tuple[int, int]) -> Any:
    right = 0.0 if t_b is None else t_b
    if t_ab is not None:
        right = right - _times_bands(t_ab, y, *l_and_u)
    return solve_banded(ab, right, l_and_u=l_and_u)


Routine(
    name="solve_banded", doc="The solution of equations with a banded matrix.",
    forward=solve_banded, vjp=_banded_vjp, jvp=_banded_jvp,
    samples=((((3, 5), (5,)), {"l_and_u": (1, 1)}), (((4, 4), (4, 2)), {"l_and_u": (2, 1)})), domain=("bands", "real"),
)  # fmt: skip


@dispatched
def solveh_banded(ab: Any, b: Any, *, lower: bool) -> Any:
    """Solve with a symmetric positive-definite matrix of which one triangle's diagonals are given."""
    return _called("solveh_banded", ab, b, lower=lower)


def _solveh_vjp(g: Any, y: Any, ab: Any, lower: bool) -> Any:
    g_b = solveh_banded(ab, g, lower=lower)
    u = ab.shape[0] - 1
    rows = []
    for r in range(u + 1):
        k = -r if lower else u - r  # the elements (j - k, j) and their mirror images
        row = -_along(shifted(g_b, k), y)
        rows.append(row if k == 0 else row - _along(g_b, shifted(y, k)))
    return np.stack(rows), g_b


def _solveh_jvp(t_ab: Any, t_b: Any, y: Any, ab: Any, lower: bool) -> Any:
    right, u = 0.0 if t_b is None else t_b, ab.shape[0] - 1
    for r in range(u + 1) if t_ab is not None else ():
        k = -r if lower else u - r
        column = t_ab[r] if y.ndim == 1 else t_ab[r][:, None]
        right = right - shifted(column * y, -k)
        right = right if k == 0 else right - column * shifted(y, k)
    return solveh_banded(ab, right, lower=lower)


Routine(
    name="solveh_banded", doc="The solution of equations with a banded positive-definite matrix.",
    forward=solveh_banded, vjp=_solveh_vjp, jvp=_solveh_jvp,
    samples=((((2, 5), (5,)), {"lower": True}), (((3, 4), (4, 2)), {"lower": True})), domain=("bands_below", "real"),
)  # fmt: skip


@dispatched
def solve_toeplitz(c: Any, r: Any, b: Any) -> Any:
    """Solve with the Toeplitz matrix of this first column and first row; r[0] is not read."""
    return _called("solve_toeplitz", (c, r), b).astype(b.dtype, copy=False) if b.size else b.copy()


def _diagonal_sums(x: Any, y: Any) -> Any:
    """Return the sums along the diagonals of x times y transposed, the lowest last."""
    if x.ndim == 1:
        return np.convolve(x, np.flip(y))
    total = np.convolve(x[:, 0], np.flip(y[:, 0]))
    for k in range(1, x.shape[1]):
        total = total + np.convolve(x[:, k], np.flip(y[:, k]))
    return total


def _toeplitz_vjp(g: Any, y: Any, c: Any, r: Any) -> Any:
    n = c.shape[0]
    g_b = solve_toeplitz(np.concatenate([c[:1], r[1:]]), c, g)
    sums = -_diagonal_sums(g_b, y)
    return sums[n - 1 :], np.concatenate([sums[:1] * 0.0, np.flip(sums[: n - 1])]), g_b


def _toeplitz_jvp(t_c: Any, t_r: Any, t_b: Any, y: Any, c: Any, r: Any) -> Any:
    n = c.shape[0]
    t_c, t_r = c * 0.0 if t_c is None else t_c, r * 0.0 if t_r is None else t_r
    diagonals = np.concatenate([np.flip(t_r[1:]), t_c])
    columns = [y] if y.ndim == 1 else [y[:, k] for k in range(y.shape[1])]
    moved = [np.convolve(diagonals, column)[n - 1 : 2 * n - 1] for column in columns]
    product = moved[0] if y.ndim == 1 else np.stack(moved, -1)
    return solve_toeplitz(c, r, (0.0 if t_b is None else t_b) - product)


Routine(
    name="solve_toeplitz", doc="The solution of equations with a Toeplitz matrix.",
    forward=solve_toeplitz, vjp=_toeplitz_vjp, jvp=_toeplitz_jvp,
    samples=((((4,), (4,), (4,)), {}), (((3,), (3,), (3, 2)), {})), domain=("leading", "fraction", "real"),
)  # fmt: skip
