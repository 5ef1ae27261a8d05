"""The table of what Cholesky factors are for: solving, and the inverse of the matrix that they are the factors of.

The gradient to a factor is PyTorch's: of A = L L^T with all elements of L free, not of its triangle alone, though the
values read no more than that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.kinds.routine import Routine
from kernels.ops.linalg.decompositions import cholesky_jvp, cholesky_vjp, indefinite
from kernels.ops.linalg.matmul import plus
from kernels.ops.linalg.solves import Array, LinAlgError, each, lapack, outer, which
from kernels.records.op import dispatched, turned


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
