"""The table of inverses, determinants and the exponential of square matrices.

The rules are those of Giles (2008), for the exponential of Mathias, "A chain rule for matrix functions" (1996).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.kinds.routine import Routine
from kernels.ops.linalg.elimination import determinant_parts, inverse_parts
from kernels.ops.linalg.solves import guarded, solve_ex
from kernels.records.op import dispatched, turned

Array = np.ndarray[Any, Any]
_INV = "linalg.inv: The inversion could not be completed because the input matrix is singular."
_INV_EX = (
    "linalg.inv_ex: The diagonal element {} is zero, the inversion could not be completed because the input matrix is "
    "singular."
)


@dispatched
def inverse(a: Any) -> Any:
    """Return the inverses of matrices; LinAlgError if one is singular."""
    return guarded(np.linalg.inv, a, message=_INV)


def _inverse_ex(a: Any, *, check_errors: bool) -> Any:
    eye = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return solve_ex(a, eye, check=_INV_EX if check_errors else "")


for _name, _forward, _params in (("inv", inverse, {}), ("inv_ex", _inverse_ex, {"check_errors": False})):
    Routine(
        name=_name,
        doc="The inverse of a matrix." if _name == "inv" else "The inverse of a matrix, and which pivot is zero, or 0.",
        grad_fn="LinalgInvExBackward0",
        function=False,
        forward=_forward,
        parts=None if _params else inverse_parts,
        vjp=lambda g, y: -np.matmul(np.matmul(turned(y), g), turned(y)),
        jvp=lambda t, y: -np.matmul(np.matmul(y, t), y),
        extras=("info",) if _params else (),
        samples=((((3, 3),), _params), (((2, 2, 2),), _params)),
        domain=("wellconditioned",),
    )


_WELL_CONDITIONED = 1e4


@dispatched
def cofactors(a: Any, y: Any) -> Any:
    """Return the derivative of a determinant y; of singular matrices too, which the inverse does not reach."""
    inverted = _inverse_if_well_conditioned(a)
    if inverted is not None:
        return np.reshape(y, (*a.shape[:-2], 1, 1)) * turned(inverted)
    if not np.all(np.isfinite(y)):
        return np.full_like(a, np.nan) * np.reshape(y, (*a.shape[:-2], 1, 1))
    u, s, vh, sign = _signed_svd(a)
    return np.matmul(u * (sign[..., None] * _others(s))[..., None, :], vh)


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


def _cofactors_along(t: Any, a: Any) -> Any:
    """Return how the cofactors move as a moves along t: by the products of all singular values but two.

    It is its own transpose, as every Hessian: that of the determinant.
    """
    u, s, vh, sign = _signed_svd(a)
    eye = np.eye(s.shape[-1], dtype=bool)
    inner = np.matmul(np.matmul(turned(u), t), turned(vh))
    pairs = np.where(eye, 0.0, _others(np.where(eye, 1.0, s[..., None, :])))
    on_diagonal = np.sum(pairs * np.sum(np.where(eye, inner, 0.0), axis=-2)[..., None, :], axis=-1)
    core = np.where(eye, on_diagonal[..., None, :], -pairs * turned(inner))
    return np.matmul(np.matmul(u, core * sign[..., None, None]), vh)


Routine(
    name="cofactors",
    doc="The derivative of the determinant of a matrix.",
    grad_fn="LinalgDetBackward0",
    function=False,
    forward=lambda a: cofactors(a, np.linalg.det(a)),
    vjp=lambda g, a: _cofactors_along(g, a),
    jvp=lambda t, a: _cofactors_along(t, a),
    samples=((((3, 3),), {}), (((2, 2, 2),), {})),
    domain=("wellconditioned",),
)
Routine(
    name="det",
    doc="The determinant of a matrix.",
    grad_fn="LinalgDetBackward0",
    function=False,
    forward=lambda a: np.asarray(np.linalg.det(a)),
    parts=determinant_parts,
    vjp=lambda g, y, a: g[..., None, None] * cofactors(a, y),
    jvp=lambda t, y, a: np.sum(cofactors(a, y) * t, axis=(-2, -1)),
    samples=((((3, 3),), {}), (((2, 2, 2),), {})),
    domain=("wellconditioned",),
)
Routine(
    name="slogdet",
    doc="The sign, and the logarithm of the absolute value, of a determinant.",
    grad_fn="LinalgSlogdetBackward0",
    function=False,
    forward=lambda a: tuple(np.asarray(x) for x in np.linalg.slogdet(a)),
    vjp=lambda g_logabsdet, a: g_logabsdet[..., None, None] * turned(inverse(a)),
    jvp=lambda t, sign, a: (sign * 0.0, np.sum(turned(inverse(a)) * t, axis=(-2, -1))),
    results=("sign", "logabsdet"),
    samples=((((3, 3),), {}),),
    domain=("wellconditioned",),
)


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
    name="matrix_exp",
    doc="The exponential of a square matrix.",
    grad_fn="LinalgMatrixExpBackward0",
    function=False,
    forward=matrix_exp,
    vjp=lambda g, a: _exponential_along(turned(a), g),
    jvp=lambda t, a: _exponential_along(a, t),
    samples=((((3, 3),), {}), (((2, 2, 2),), {})),
)
