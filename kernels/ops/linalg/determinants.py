"""The table of inverses, determinants and the exponential of square matrices.

The rules are those of Giles (2008), for the exponential of Mathias, "A chain rule for matrix functions" (1996).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.kinds.routine import Routine
from kernels.ops.linalg.elimination import determinant_parts, inverse_parts
from kernels.ops.linalg.solves import guarded, solve_ex
from kernels.records.dispatch import dispatched, turned

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


def cofactors(a: Any, y: Any) -> Any:
    """Return the derivative of a determinant y; of singular matrices too, which the inverse does not reach."""
    if not isinstance(a, np.ndarray) or np.all(y):
        return np.reshape(y, (*a.shape[:-2], 1, 1)) * turned(inverse(a))
    u, s, vh = np.linalg.svd(a)
    others = np.where(np.eye(s.shape[-1], dtype=bool), 1, s[..., None, :]).prod(-1)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return np.matmul(u * (np.round(sign)[..., None] * others)[..., None, :], vh)


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
