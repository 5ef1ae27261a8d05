"""The table of factorisations of matrices; forward calls LAPACK through NumPy and SciPy.

The rules are those of Giles (2008) and of Seeger, Hetzel, Dai, Meissner and Lawrence, "Auto-differentiating linear
algebra" (2017), with PyTorch's conventions: eigenvectors and singular vectors have gradients where the values differ;
where nothing is asked of them, equal values do no harm.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from kernels.foundation.specs import Array
from kernels.kinds.routine import Routine
from kernels.operations.solves import LinAlgError, directly, each_by_itself, lapack, solve_triangular, which
from kernels.rules.op import dispatched, turned

_QR_COMPLETE = "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
_SVD_FULL = (
    "linalg.svd: the further singular vectors of full_matrices=True are not unique, and have no gradient; "
    "use full_matrices=False"
)


def lower(x: Any, k: int = 0) -> Any:
    """Return the lower triangles, up to the k-th diagonal."""
    return np.where(np.tri(x.shape[-2], x.shape[-1], k, dtype=bool), x, 0.0)


def upper(x: Any) -> Any:
    """Return the upper triangles."""
    return np.where(np.tri(x.shape[-2], x.shape[-1], -1, dtype=bool), 0.0, x)


def diagonal_of(x: Any) -> Any:
    """Return the diagonals of square matrices."""
    return np.sum(np.where(np.eye(x.shape[-1], dtype=bool), x, 0.0), axis=-1)


def indefinite(name: str, a: Array, k: int, minor: int) -> LinAlgError:
    """Return what is raised where the k-th of a batch of matrices has no Cholesky factor."""
    return LinAlgError(
        f"{name}: {which(a, k)}The factorization could not be completed because the input is not "
        f"positive-definite (the leading minor of order {minor} is not positive-definite)."
    )


def _cholesky(a: Array) -> Array:
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        pass
    for k, matrix in enumerate(a.reshape(-1, *a.shape[-2:])):
        minor = lapack("potrf", a.dtype)(matrix, lower=True)[1]
        if minor > 0:
            raise indefinite("linalg.cholesky", a, k, minor)
    raise LinAlgError("linalg.cholesky: the input has elements that are not finite")


def cholesky_vjp(g: Any, y: Any) -> Any:
    """Return the gradient to a matrix, symmetric, given that to its factor y."""
    n = y.shape[-1]
    inner = lower(np.matmul(turned(y), g)) * (1.0 - 0.5 * np.eye(n, dtype=y.dtype))
    left = solve_triangular(turned(y), inner, upper=True)
    gradient = turned(solve_triangular(turned(y), turned(left), upper=True))
    return (gradient + turned(gradient)) * 0.5


def cholesky_jvp(t: Any, y: Any) -> Any:
    """Return how the factor y moves with its matrix."""
    t = (t + turned(t)) * 0.5
    inner = solve_triangular(y, turned(solve_triangular(y, t, upper=False)), upper=False)
    return np.matmul(y, lower(inner) * (1.0 - 0.5 * np.eye(y.shape[-1], dtype=y.dtype)))


Routine(
    name="cholesky", doc="The lower triangular factor of a positive-definite matrix.",
    grad_fn="LinalgCholeskyExBackward0",
    forward=_cholesky, vjp=cholesky_vjp, jvp=cholesky_jvp, direct=directly("cholesky"), spreads=each_by_itself,
    samples=((((3, 3),), {}), (((2, 2, 2),), {})), domain=("spd",),
)  # fmt: skip


def _qr_vjp(g_q: Any, g_r: Any, q: Any, r: Any, a: Any) -> Any:
    m, n = a.shape[-2:]
    if m >= n and q.shape[-1] > n:
        raise RuntimeError(_QR_COMPLETE)
    if m >= n:
        return _qr_tall(g_q, g_r, q, r)
    rest = np.matmul(q, g_r[..., m:])
    inner = g_q + np.matmul(a[..., m:], turned(g_r[..., m:]))
    return np.concatenate([_qr_tall(inner, g_r[..., :m], q, r[..., :m]), rest], -1)


def _qr_tall(g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    inner = np.matmul(r, turned(g_r)) - np.matmul(turned(g_q), q)
    both = lower(inner) + turned(lower(inner, -1))
    return turned(solve_triangular(r, turned(g_q + np.matmul(q, both)), upper=True))


def _qr_jvp(t: Any, q: Any, r: Any, a: Any) -> Any:
    m, n = a.shape[-2:]
    if q.shape[-1] > n:
        raise RuntimeError(_QR_COMPLETE)
    k = min(m, n)
    moved = turned(solve_triangular(turned(r[..., :k]), turned(t[..., :k]), upper=False))
    inner = np.matmul(turned(q), moved)
    turn = lower(inner, -1) - turned(lower(inner, -1))
    t_q = np.matmul(q, turn - inner) + moved
    t_r = np.matmul(inner - turn, r[..., :k])
    if m < n:
        rest = np.matmul(turned(q), t[..., m:]) - np.matmul(turn, r[..., m:])
        t_r = np.concatenate([t_r, rest], -1)
    return t_q, t_r


Routine(
    name="qr", doc="An orthogonal and an upper triangular factor.", grad_fn="LinalgQrBackward0",
    results=("q", "r"), forward=lambda a, *, mode: tuple(np.linalg.qr(a, mode)), vjp=_qr_vjp, jvp=_qr_jvp,
    samples=((((4, 3),), {"mode": "reduced"}), (((2, 2, 3),), {"mode": "complete"})),
)  # fmt: skip


def _rounding(w: Any) -> Any:
    """Return how far from each other, or from 0, rounding may place eigenvalues or singular values that are equal."""
    return 8 * float(np.finfo(w.dtype).eps) * np.sum(np.absolute(w), axis=-1)


def near(w: Any, *, wide: bool = False) -> Any:
    """Return which values are equal but for rounding; ``wide``: their quotients of differences lose half the digits."""
    size = np.sum(np.absolute(w), axis=-1) * float(np.finfo(w.dtype).eps) ** 0.5 if wide else _rounding(w)
    return (np.absolute(w[..., None, :] - w[..., :, None]) <= size[..., None, None]) & ~np.eye(w.shape[-1], dtype=bool)


def _touched(g: Any) -> Any:
    """Return which pairs of vectors have a cotangent, be it of zeros: what nothing comes to is at -0.0.

    Zeros tell less where values are equal, whose vectors are any basis of theirs: log(A) at the unit matrix has a
    gradient.
    """
    column = np.sum(np.where((g == 0) & np.signbit(g), 0.0, 1.0), axis=-2)
    return (column[..., None, :] + column[..., :, None]) > 0


def over_gaps(x: Any, w: Any, touched: Any) -> Any:
    """Divide by how far each value lies from each other; of equal ones nan, or nothing where nothing is asked."""
    equal = near(w)
    gaps = np.where(np.eye(w.shape[-1], dtype=bool), 1.0, w[..., None, :] - w[..., :, None])
    return np.where(equal, np.where(touched, np.nan, _zero(x)), x / np.where(equal, 1.0, gaps))


def _zero(x: Any) -> Any:
    """Return 0 in the dtype of an array: two of Python's numbers would be chosen among as float64."""
    return np.zeros((), x.dtype)


@dispatched
def turned_over_gaps(x: Any, w: Any, touched: Any, g_w: Any, moves: Any) -> Any:
    """Return over_gaps of the antisymmetric part of x = V^T g_V; tensors know its limits at equal values.

    ``moves`` makes the cotangents g_w of the values, and x, of those of all results, which stand end to end.
    """
    del g_w, moves
    return over_gaps(odd(x), w, touched)


@dispatched
def independent(w: Any, touched: Any, g_w: Any, made: Any) -> Any:
    """Return the matrix, ``made`` anew, where only equal values have cotangents, and these do not depend on it.

    Tensors know that. The vectors do not matter there, but would move by nan in forward mode. Else None.
    """
    del w, touched, g_w, made


def _asks_for_limits(w: Any, *cotangents: Any) -> bool:
    """Whether a gradient needs how what follows changes as nearly equal values, which are sorted, part."""
    least = np.sum(np.absolute(w), axis=-1, keepdims=True) * float(np.finfo(w.dtype).eps) ** 0.5
    if not np.any(np.absolute(np.diff(w)) <= least):
        return False
    return bool(np.any(near(w, wide=True) & np.logical_or.reduce([_touched(g) for g in cotangents])))


def _quotients(d: Any, w: Any, fixed: bool) -> Any:
    """Return (d_j - d_i) / (w_j - w_i), 0 on the diagonal; of equal values nan, or 0 where equal numbers are fixed."""
    difference = d[..., None, :] - d[..., :, None]
    nothing = np.where(near(w), np.absolute(difference) ** 0.5, 0.0)
    return over_gaps(difference, w, difference != 0 if fixed else True) + nothing


def _off(x: Any) -> Any:
    return np.where(np.eye(x.shape[-1], dtype=bool), 0.0, x)


def odd(x: Any) -> Any:
    """Return the antisymmetric part; of V^T g_V: how a function changes as pairs of vectors turn."""
    return (x - turned(x)) * 0.5


def _as_shaped(flat: Any, *results: Any) -> list[Any]:
    ends = list(accumulate(x.size for x in results))
    return [flat[end - x.size : end].reshape(x.shape) for x, end in zip(results, ends, strict=True)]


def _eigh_vjp(g_w: Any, g_v: Any, w: Any, v: Any, uplo: str) -> Any:
    touched = _touched(g_v)
    a = independent(w, touched, g_w, lambda: np.matmul(v * w[..., None, :], turned(v)))
    if a is not None:
        return spectral(a, g_w, uplo=uplo, fixed=True)

    def moves(g: Any) -> tuple[Any, Any]:
        g_w, g_v = _as_shaped(g, w, v)
        return g_w, np.matmul(turned(v), g_v)

    inner = turned_over_gaps(np.matmul(turned(v), g_v), w, touched, g_w, moves)
    inner = inner + np.eye(w.shape[-1], dtype=w.dtype) * g_w[..., None, :]
    return np.matmul(np.matmul(v, inner), turned(v))


def _eigh_jvp(t: Any, w: Any, v: Any) -> Any:
    inner = np.matmul(np.matmul(turned(v), (t + turned(t)) * 0.5), v)
    return diagonal_of(inner), np.matmul(v, over_gaps(_off(inner), w, inner != 0))


Routine(
    name="eigh", doc="Eigenvalues and eigenvectors of a symmetric matrix.", grad_fn="LinalgEighBackward0",
    results=("w", "v"),
    forward=lambda a, *, uplo: tuple(np.linalg.eigh(a, uplo)), vjp=_eigh_vjp, jvp=_eigh_jvp,
    unsettled=lambda g_v, w: _asks_for_limits(w, g_v), direct=directly("eigh"),
    samples=((((3, 3),), {"uplo": "L"}), (((2, 2, 2),), {"uplo": "U"})), domain=("spd",),
)  # fmt: skip


@dispatched
def spectral(a: Any, d: Any, *, uplo: str, fixed: bool = False) -> Any:
    """Return the matrices with the eigenvectors of a and the eigenvalues d; ``fixed``: d does not depend on a."""
    del fixed
    _, v = np.linalg.eigh(a, uplo)
    return np.matmul(v * d[..., None, :], turned(v))


def _turned_by(t: Any, a: Any, d: Any, uplo: str, fixed: bool) -> tuple[Any, Any]:
    """Return how a spectral matrix moves with its eigenvectors, and the diagonal of t between them."""
    w, v = np.linalg.eigh(a, uplo)
    inner = np.matmul(np.matmul(turned(v), (t + turned(t)) * 0.5), v)
    return np.matmul(np.matmul(v, inner * _quotients(d, w, fixed)), turned(v)), diagonal_of(inner)


def _spectral_jvp(t_a: Any, t_d: Any, a: Any, d: Any, uplo: str) -> Any:
    by_values = 0.0 if t_d is None else spectral(a, t_d, uplo=uplo)
    return by_values if t_a is None else _turned_by(t_a, a, d, uplo, t_d is None)[0] + by_values


Routine(
    name="spectral", doc="The matrix with the eigenvectors of another, and these eigenvalues.",
    grad_fn="LinalgEighBackward0",
    forward=spectral, vjp=lambda g, a, d, uplo, fixed: _turned_by(g, a, d, uplo, fixed), jvp=_spectral_jvp,
    samples=((((3, 3), (3,)), {"uplo": "L", "fixed": False}),), domain=("spd", "real"),
)  # fmt: skip


def _eigvalsh_jvp(t: Any, a: Any, uplo: str) -> Any:
    _, v = np.linalg.eigh(a, uplo)
    return np.sum(v * np.matmul(t, v), axis=-2)


Routine(
    name="eigvalsh", doc="Eigenvalues of a symmetric matrix.", grad_fn="LinalgEighBackward0",
    forward=lambda a, *, uplo: np.linalg.eigvalsh(a, uplo), vjp=lambda g, a, uplo: spectral(a, g, uplo=uplo),
    jvp=_eigvalsh_jvp, direct=directly("eigvalsh"), samples=((((3, 3),), {"uplo": "L"}),), domain=("spd",),
)  # fmt: skip


@dispatched
def refuse_any(g: Any) -> None:
    """Raise if a gradient comes to what has none."""
    if np.any(g):
        raise RuntimeError(_SVD_FULL)


def _over_sizes(x: Any, sizes: Any, s: Any) -> Any:
    """Divide by sizes of singular values s; by what is 0 but for rounding, nan where something is asked."""
    none = sizes <= _rounding(s)[..., None, None]
    return np.where(none, np.where(x == 0, _zero(x), np.nan), x / np.where(none, 1.0, sizes))


def _sums(s: Any) -> Any:
    return s[..., None, :] + s[..., :, None]


def _svd_vjp(g_u: Any, g_s: Any, g_vh: Any, u: Any, s: Any, vh: Any) -> Any:
    k, results = s.shape[-1], (u, s, vh)
    refuse_any(g_u[..., :, k:])
    refuse_any(g_vh[..., k:, :])
    u, v, g_u, g_v = u[..., :, :k], turned(vh[..., :k, :]), g_u[..., :, :k], turned(g_vh[..., :k, :])
    line, touched = s[..., None, :], _touched(g_u) | _touched(g_v)
    a = independent(s, touched, g_s, lambda: np.matmul(u * line, turned(v)))
    if a is not None:
        return singular(a, g_s, fixed=True)
    by_u, by_v = np.matmul(turned(u), g_u), np.matmul(turned(v), g_v)

    def moves(g: Any) -> tuple[Any, Any]:
        g_u, g_s, g_vh = _as_shaped(g, *results)
        return g_s, np.matmul(turned(u), g_u[..., :, :k]) + np.matmul(turned(v), turned(g_vh[..., :k, :]))

    inner = turned_over_gaps(by_u + by_v, s, touched, g_s, moves)
    inner = inner + _over_sizes(odd(by_u - by_v), _sums(s), s)
    inner = inner + np.eye(k, dtype=s.dtype) * g_s[..., None, :]
    gradient = np.matmul(np.matmul(u, inner), turned(v))
    if u.shape[-2] > k:
        gradient = gradient + np.matmul(_over_sizes(g_u - np.matmul(u, by_u), line, s), turned(v))
    if v.shape[-2] > k:
        gradient = gradient + np.matmul(u, turned(_over_sizes(g_v - np.matmul(v, by_v), line, s)))
    return gradient


def _svd_unsettled(g_u: Any, g_vh: Any, s: Any) -> bool:
    k = s.shape[-1]
    return _asks_for_limits(s, g_u[..., :k], turned(g_vh[..., :k, :]))


def _svd_jvp(t: Any, u: Any, s: Any, vh: Any) -> Any:
    k = s.shape[-1]
    further = u[..., k:] * np.nan, vh[..., k:, :] * np.nan  # of vectors that are not unique
    u, vh = u[..., :k], vh[..., :k, :]
    v, line = turned(vh), s[..., None, :]
    inner = np.matmul(np.matmul(turned(u), t), v)
    both = _off(inner + turned(inner)) * 0.5
    both = over_gaps(both, s, both != 0)
    apart = _over_sizes(odd(inner), _sums(s), s)
    t_u, t_v = np.matmul(u, both + apart), np.matmul(v, both - apart)
    if u.shape[-2] > k:
        t_u = t_u + _over_sizes(np.matmul(t, v) - np.matmul(u, inner), line, s)
    if v.shape[-2] > k:
        t_v = t_v + _over_sizes(np.matmul(turned(t), u) - np.matmul(v, turned(inner)), line, s)
    return np.concatenate([t_u, further[0]], -1), diagonal_of(inner), np.concatenate([turned(t_v), further[1]], -2)


Routine(
    name="svd", doc="The singular value decomposition.", grad_fn="LinalgSvdBackward0",
    results=("u", "s", "vh"), unsettled=_svd_unsettled,
    forward=lambda a, *, full_matrices: tuple(np.linalg.svd(a, full_matrices)), vjp=_svd_vjp, jvp=_svd_jvp,
    samples=(
        (((4, 3),), {"full_matrices": False}),
        (((2, 2, 3),), {"full_matrices": False}),
        (((2, 2),), {"full_matrices": True}),
    ),
)  # fmt: skip


@dispatched
def singular(a: Any, d: Any, *, fixed: bool = False) -> Any:
    """Return the matrices with the singular vectors of a and the singular values d; ``fixed`` as of spectral."""
    del fixed
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return np.matmul(u * d[..., None, :], vh)


def _turned_by_both(t: Any, a: Any, d: Any, fixed: bool) -> tuple[Any, Any]:
    """Return how such a matrix moves with its singular vectors, and the diagonal of t between them."""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    v, left = turned(vh), np.matmul(turned(u), t)
    right, inner = np.matmul(t, v), np.matmul(left, v)
    core = _quotients(d, s, fixed) * (inner + turned(inner)) * 0.5
    core = core + (inner - turned(inner)) * 0.5 * _off(_over_sizes(_sums(d), _sums(s), s))
    result = np.matmul(np.matmul(u, core), vh)
    scales = _over_sizes(d[..., None, :], s[..., None, :], s)
    if u.shape[-2] > u.shape[-1]:
        result = result + np.matmul((right - np.matmul(u, inner)) * scales, vh)
    if v.shape[-2] > v.shape[-1]:
        result = result + np.matmul(u * scales, left - np.matmul(inner, vh))
    return result, diagonal_of(inner)


def _singular_jvp(t_a: Any, t_d: Any, a: Any, d: Any) -> Any:
    by_values = 0.0 if t_d is None else singular(a, t_d)
    return by_values if t_a is None else _turned_by_both(t_a, a, d, t_d is None)[0] + by_values


Routine(
    name="singular", doc="The matrix with the singular vectors of another, and these singular values.",
    grad_fn="LinalgSvdBackward0",
    forward=singular, vjp=lambda g, a, d, fixed: _turned_by_both(g, a, d, fixed), jvp=_singular_jvp,
    samples=((((3, 2), (2,)), {"fixed": False}), (((2, 2, 3), (2, 2)), {"fixed": False})),
)  # fmt: skip


def _svdvals_jvp(t: Any, a: Any) -> Any:
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return np.sum(u * np.matmul(t, turned(vh)), axis=-2)


Routine(
    name="svdvals", doc="The singular values of a matrix.", grad_fn="LinalgSvdBackward0",
    forward=lambda a: np.linalg.svd(a, compute_uv=False), vjp=lambda g, a: singular(a, g), jvp=_svdvals_jvp,
    samples=((((3, 2),), {}), (((2, 2, 3),), {})),
)  # fmt: skip
