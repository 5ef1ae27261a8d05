"""The table of linear solves; forward calls LAPACK through NumPy and SciPy.

The rules are those of Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008). Matrices stand in the last two axes; operands of a record have the same extents in front.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kinds.routine import Routine
from kernels.ops.linalg.elimination import solution_parts
from kernels.ops.linalg.matmul import plus
from kernels.records.op import dispatched, turned

Array = np.ndarray[Any, Any]
_MATRIX = 2


class LinAlgError(RuntimeError, np.linalg.LinAlgError):
    """A matrix is singular, or not positive-definite: PyTorch's RuntimeError and NumPy's LinAlgError."""


def lapack(name: str, dtype: np.dtype[Any]) -> Any:
    """Return LAPACK's function of this name for float32 or float64."""
    from scipy.linalg import lapack as module

    return getattr(module, {"f": "s", "d": "d"}[dtype.char] + name)


def which(a: Array, k: int) -> str:
    """Return how a message names the k-th matrix of a batch; nothing of a single one."""
    return f"(Batch element {k}): " if a.ndim > _MATRIX else ""


def each(function: Any, *operands: Array) -> Any:
    """Call a function of matrices for each of a batch; return what it returns, stacked."""
    batch = operands[0].shape[:-2]
    if not batch:
        return function(*operands)
    count = math.prod(batch)
    rows = zip(*(x.reshape(count, *x.shape[-2:]) for x in operands), strict=True)
    results = [function(*row) for row in (rows if count else _stand_ins(operands))]
    several = isinstance(results[0], tuple)
    columns = zip(*results, strict=True) if several else [results]
    stacked = tuple(np.stack(c)[:count].reshape(*batch, *np.shape(c[0])) for c in columns)
    return stacked if several else stacked[0]


def _stand_ins(operands: tuple[Array, ...]) -> list[tuple[Array, ...]]:
    """Return operands for the one call that gives the shapes of the results of an empty batch."""
    return [tuple(np.eye(*x.shape[-2:], dtype=x.dtype) for x in operands)]


def guarded(function: Any, a: Array, *more: Any, message: str) -> Any:
    """Call a function of NumPy's that raises for a singular matrix; raise our error, naming which of a batch."""
    try:
        return function(a, *more)
    except np.linalg.LinAlgError:
        where = ""
        for k, matrix in enumerate(a.reshape(-1, *a.shape[-2:]) if a.ndim > _MATRIX else ()):
            try:
                function(matrix, *(np.ones((a.shape[-1], 1), a.dtype) for _ in more))
            except np.linalg.LinAlgError:
                where = f"(Batch element {k}): "
                break
        name, colon, rest = message.partition(": ")
        raise LinAlgError(f"{name}{colon}{where}{rest}") from None


_SOLVE = "linalg.solve: The solver failed because the input matrix is singular."


def solve(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return the solution, and the factors of a single matrix, which the gradient uses again."""
    if a.ndim > _MATRIX or not a.size or not b.size:
        # NumPy's loop over many small matrices is faster than a call of SciPy for each
        solution = guarded(np.linalg.solve, a, b, message=_SOLVE)
        return solution, np.empty(0, a.dtype), np.empty(0, np.int32)
    lu, pivots, info = lapack("getrf", a.dtype)(a)
    if info:
        raise LinAlgError(_SOLVE)
    return lapack("getrs", a.dtype)(lu, pivots, b)[0], lu, pivots


def solve_again(a: Any, b: Any, lu: Array, pivots: Array, trans: int) -> Any:
    """Solve with a matrix, or with it transposed, that was factored before."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and lu.size:
        return lapack("getrs", lu.dtype)(lu, pivots, b, trans=trans)[0]
    return np.linalg.solve(turned(a) if trans else a, b)


def outer(x: Any, y: Any) -> Any:
    """Return the sum over right-hand sides of x times y transposed."""
    if x.ndim == 1:
        return x[:, None] * y[None, :]
    return np.matmul(x, turned(y))


def _solve_vjp(g: Any, y: Any, a: Any, lu: Array, pivots: Array, needs: Any) -> Any:
    g_b = solve_again(a, g, lu, pivots, 1)
    return (-outer(g_b, y) if needs[0] else None), g_b


Routine(
    name="solve",
    doc="The solution of linear equations.",
    grad_fn="LinalgSolveExBackward0",
    function=False,
    forward=solve,
    parts=solution_parts,
    vjp=_solve_vjp,
    jvp=lambda t_a, t_b, y, a, lu, pivots: solve_again(
        a, plus(t_b, None if t_a is None else -np.matmul(t_a, y)), lu, pivots, 0
    ),
    extras=("lu", "pivots"),
    samples=((((3, 3), (3, 2)), {}), (((3, 3), (3,)), {}), (((2, 3, 3), (2, 3, 1)), {})),
    domain=("wellconditioned", "real"),
)


def _solved_ex(a: Array, b: Array) -> tuple[Array, Array]:
    if not a.size or not b.size:
        return b.copy(), np.zeros((), np.int32)
    lu, pivots, info = lapack("getrf", a.dtype)(a)
    return lapack("getrs", a.dtype)(lu, pivots, b)[0], np.asarray(info, np.int32)


def solve_ex(a: Array, b: Array, *, check: str) -> tuple[Array, Array]:
    """Return solutions, and which diagonal element of U is zero, or 0; with ``check``, a message, raise for it."""
    solution, info = each(_solved_ex, a, b)
    if check and info.any():
        k = int(np.flatnonzero(info)[0])
        name, colon, rest = check.partition(": ")
        raise LinAlgError(f"{name}{colon}{which(a, k)}{rest.format(info.flat[k])}")
    return solution, info


def _solve_ex_vjp(g: Any, y: Any, a: Any, needs: Any) -> Any:
    g_b = np.linalg.solve(turned(a), g)
    return (-outer(g_b, y) if needs[0] else None), g_b


_SOLVE_EX = _SOLVE.replace("solve:", "solve_ex:")
Routine(
    name="solve_ex",
    doc="The solution of linear equations, and which pivot is zero, or 0.",
    grad_fn="LinalgSolveExBackward0",
    function=False,
    forward=lambda a, b, *, check_errors: solve_ex(a, b, check=_SOLVE_EX if check_errors else ""),
    vjp=_solve_ex_vjp,
    jvp=lambda t_a, t_b, y, a: np.linalg.solve(a, plus(t_b, None if t_a is None else -np.matmul(t_a, y))),
    extras=("info",),
    samples=(
        (((3, 3), (3, 2)), {"check_errors": True}),
        (((2, 3, 3), (2, 3, 1)), {"check_errors": False}),
    ),
    domain=("wellconditioned", "real"),
)


def triangle(n: int, upper: bool, unitriangular: bool) -> Array:
    """Return where a triangular matrix has elements of its own."""
    inside = np.tri(n, k=-int(unitriangular), dtype=bool)
    return inside.T if upper else inside


def _triangular(a: Array, b: Array, upper: bool, unitriangular: bool) -> Array:
    from scipy.linalg import solve_triangular

    if not a.size or not b.size:
        return np.zeros(b.shape, b.dtype)
    try:
        return solve_triangular(  # type: ignore[no-any-return]
            a, b, lower=not upper, unit_diagonal=unitriangular, check_finite=False
        )
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.solve_triangular: The solver failed because the input matrix is singular: its diagonal has a zero"
        ) from None


@dispatched
def solve_triangular(a: Any, b: Any, *, upper: bool, unitriangular: bool = False) -> Any:
    """Solve with triangular matrices; the other triangle is not read."""
    if a.ndim == _MATRIX:
        return _triangular(a, b, upper, unitriangular)
    return each(lambda a, b: _triangular(a, b, upper, unitriangular), a, b)


def _triangular_vjp(g: Any, y: Any, a: Any, upper: bool, unitriangular: bool, needs: Any) -> Any:
    g_b = solve_triangular(turned(a), g, upper=not upper, unitriangular=unitriangular)
    if not needs[0]:
        return None, g_b
    return np.where(triangle(a.shape[-1], upper, unitriangular), -outer(g_b, y), 0.0), g_b


def _triangular_jvp(t_a: Any, t_b: Any, y: Any, a: Any, upper: bool, unitriangular: bool) -> Any:
    inside = triangle(a.shape[-1], upper, unitriangular)
    moved = None if t_a is None else -np.matmul(np.where(inside, t_a, 0.0), y)
    return solve_triangular(a, plus(t_b, moved), upper=upper, unitriangular=unitriangular)


Routine(
    name="solve_triangular",
    doc="The solution of equations with a triangular matrix.",
    grad_fn="LinalgSolveTriangularBackward0",
    function=False,
    forward=lambda a, b, *, upper, unitriangular: solve_triangular(a, b, upper=upper, unitriangular=unitriangular),
    vjp=_triangular_vjp,
    jvp=_triangular_jvp,
    samples=(
        (((3, 3), (3, 2)), {"upper": True, "unitriangular": False}),
        (((2, 3, 3), (2, 3, 1)), {"upper": False, "unitriangular": True}),
    ),
    domain=("wellconditioned", "real"),
)


# The table of pseudoinverses and least squares; the rules are those of Golub and Pereyra (1973), at constant rank.


def _pinv_vjp(g: Any, y: Any, a: Any) -> Any:
    yt, gt = turned(y), turned(g)
    right = np.matmul(gt, np.matmul(y, yt))
    left = np.matmul(np.matmul(yt, y), gt)
    rest = right - np.matmul(a, np.matmul(y, right)) + left - np.matmul(np.matmul(left, y), a)
    return rest - np.matmul(np.matmul(yt, g), yt)


def _pinv_jvp(t: Any, y: Any, a: Any) -> Any:
    yt, tt = turned(y), turned(t)
    right = np.matmul(np.matmul(y, yt), tt)
    left = np.matmul(tt, np.matmul(yt, y))
    rest = right - np.matmul(np.matmul(right, a), y) + left - np.matmul(y, np.matmul(a, left))
    return rest - np.matmul(np.matmul(y, t), y)


Routine(
    name="pinv",
    doc="The pseudoinverse of a matrix.",
    grad_fn="LinalgPinvBackward0",
    function=False,
    forward=lambda a, *, rtol: np.linalg.pinv(a, rcond=rtol),
    vjp=_pinv_vjp,
    jvp=_pinv_jvp,
    samples=((((3, 2),), {"rtol": 1e-15}), (((2, 2, 3),), {"rtol": 1e-15})),
)


def _least(a: Array, b: Array, rcond: float) -> tuple[Array, ...]:
    solution, _, rank, s = np.linalg.lstsq(a, b, rcond=rcond)
    return solution, np.asarray(rank, np.int64), s


def _lstsq_vjp(g: Any, y: Any, a: Any, b: Any, rcond: float, needs: Any) -> Any:
    p = np.linalg.pinv(a, rcond=rcond)
    pt = turned(p)
    g_b = np.matmul(pt, g)
    if not needs[0]:
        return None, g_b
    left = outer(b - np.matmul(a, y), np.matmul(p, g_b))
    right = outer(np.matmul(pt, y), g - np.matmul(p, np.matmul(a, g)))
    return left + right - outer(g_b, y), g_b


def _lstsq_jvp(t_a: Any, t_b: Any, y: Any, a: Any, b: Any, rcond: float) -> Any:
    p = np.linalg.pinv(a, rcond=rcond)
    if t_a is None:
        return np.matmul(p, t_b)
    tt, pt = turned(t_a), turned(p)
    turn = np.matmul(tt, np.matmul(pt, y))
    moved = np.matmul(p, np.matmul(pt, np.matmul(tt, b - np.matmul(a, y)))) + turn - np.matmul(p, np.matmul(a, turn))
    moved = moved - np.matmul(p, np.matmul(t_a, y))
    return moved if t_b is None else moved + np.matmul(p, t_b)


Routine(
    name="lstsq",
    doc="The solution of least squares, the shortest where there are several.",
    grad_fn="LinalgLstsqBackward0",
    function=False,
    forward=lambda a, b, *, rcond: each(lambda a, b: _least(a, b, rcond), a, b),
    vjp=_lstsq_vjp,
    jvp=_lstsq_jvp,
    extras=("rank", "s"),
    samples=((((4, 2), (4, 2)), {"rcond": 1e-15}), (((2, 2, 3), (2, 2, 1)), {"rcond": 1e-15})),
)


def _rank(a: Array, *, atol: float, rtol: float) -> Array:
    s = np.linalg.svd(a, compute_uv=False)
    return np.asarray(np.sum(s > np.maximum(atol, rtol * s.max(-1, keepdims=True, initial=0)), axis=-1), np.int64)


Routine(
    name="matrix_rank",
    doc="How many singular values of a matrix are no zeros.",
    grad_fn="",
    function=False,
    forward=_rank,
    vjp=None,
    samples=((((3, 2),), {"atol": 0.0, "rtol": 1e-15}),),
)
