"""The table of products of matrices, elimination and solves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Strides
from kernels.kinds.elementwise import Contraction
from kernels.kinds.routine import Routine
from kernels.rules.loop_printer import LARGEST_LOOP
from kernels.rules.op import dispatched, turned

Contraction(name="mm", doc="Matrix times matrix.", ranks=((2, 2),))
Contraction(name="mv", doc="Matrix times vector.", ranks=((2, 1),))
Contraction(name="dot", doc="Inner product of two vectors.", ranks=((1, 1),))
Contraction(name="vm", doc="Vector times matrix.", grad_fn="SqueezeBackward4", ranks=((1, 2),), function=False)


def plus(a: Any, b: Any) -> Any:
    """Return the sum of two tangents, of which one may be nothing."""
    return b if a is None else a if b is None else a + b


def _products_parts(a: Any, b: Any) -> Any:
    if a.shape[-2] * a.shape[-1] * b.shape[-1] > LARGEST_LOOP:
        return NotImplemented
    batches = (slice(None),) * (len(a.shape) - 2)
    products = a[..., None] * b[(*batches, None)]
    return np.add.reduce(products, axis=len(a.shape) - 1, keepdims=True)[(*batches, slice(None), 0)]


Routine(
    name="bmm", doc="Batches of matrices multiplied, of the same extents in front.",
    forward=lambda a, b: np.matmul(a, b),
    vjp=lambda g, a, b, needs: (
        np.matmul(g, turned(b)) if needs[0] else None,
        np.matmul(turned(a), g) if needs[1] else None,
    ),
    jvp=lambda t_a, t_b, a, b: plus(
        None if t_a is None else np.matmul(t_a, b), None if t_b is None else np.matmul(a, t_b)
    ),
    parts=_products_parts, spreads=lambda sets, a, b: sets.product(a, b),
    samples=((((3, 2, 4), (3, 4, 2)), {}), (((2, 3, 2, 4), (2, 3, 4, 2)), {})),
)  # fmt: skip


def _cross_parts(a: Any, b: Any, dim: int) -> Any:
    before = (slice(None),) * (dim % len(a.shape))
    (a0, a1, a2), (b0, b1, b2) = [[x[(*before, i)] for i in range(3)] for x in (a, b)]
    return np.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=dim)


Routine(
    name="cross", doc="The vector product along an axis of extent 3.", grad_fn="LinalgCrossBackward0",
    forward=lambda a, b, *, dim: np.cross(a, b, axis=dim),
    vjp=lambda g, a, b, dim: (np.cross(b, g, axis=dim), np.cross(g, a, axis=dim)),
    jvp=lambda t_a, t_b, a, b, dim: plus(
        None if t_a is None else np.cross(t_a, b, axis=dim), None if t_b is None else np.cross(a, t_b, axis=dim)
    ),
    parts=_cross_parts, samples=((((2, 3), (2, 3)), {"dim": -1}),),
)  # fmt: skip


def _convolve_vjp(g: Any, a: Any, b: Any) -> Any:
    m, n = a.shape[0], b.shape[0]
    return np.convolve(g, np.flip(b))[n - 1 : n - 1 + m], np.convolve(g, np.flip(a))[m - 1 : m - 1 + n]


Routine(
    name="convolve", doc="The full convolution of two vectors.",
    forward=lambda a, b: np.convolve(a, b), vjp=_convolve_vjp,
    jvp=lambda t_a, t_b, a, b: plus(
        None if t_a is None else np.convolve(t_a, b), None if t_b is None else np.convolve(a, t_b)
    ),
    samples=((((4,), (3,)), {}),),
)  # fmt: skip


def each_by_itself(sets: Any, *operands: Any, **params: Any) -> Any:
    """Say that the results of a batch of matrices depend on their own alone; of one that depends on all of it."""
    del params
    if any(len(x.shape) < 3 for x in operands):  # noqa: PLR2004 (a batch)
        return None
    first, *others = [sets.along(x, (-2, -1)) for x in operands]
    return sets.united(first, others[0]) if others else first


LARGEST_DIRECT = 8  # rows of a matrix that compiled programs factor themselves


def directly(name: str) -> Callable[..., tuple[str, dict[str, int]]]:
    """Return what names the function of kernels.rules.dense_native for small matrices, and the numbers it takes."""

    def direct(shape: Strides, *more: Strides, uplo: str = "L") -> tuple[str, dict[str, int]]:
        n, count = shape[-1], math.prod(shape[:-2])
        if not (0 < n <= LARGEST_DIRECT and count and uplo == "L"):
            return "", {}
        return f"dense_native.{name}", {"count": count, "n": n, "m": math.prod((shape, *more)[-1]) // (count * n)}

    return direct


# Small matrices are eliminated element by element, so that compiled programs have them in registers: Gauss and Jordan's
# method, with partial pivoting by selects.

LARGEST = 4  # rows of a matrix, at most: the operations grow with their cube
Rows = list[list[Any]]


def inverse_parts(a: Any) -> Any:
    """Return the inverse of a matrix as rows of elements; NotImplemented for a large one."""
    n = a.shape[-1]
    if n > LARGEST:
        return NotImplemented
    if n == 2:  # noqa: PLR2004 (where no pivot is needed)
        determinant = _determinant_of_two(a)
        (determinant == 0.0).give_up_where()
        over = 1.0 / determinant
        return [[a[..., 1, 1] * over, -a[..., 0, 1] * over], [-a[..., 1, 0] * over, a[..., 0, 0] * over]]
    unit = [[float(i == j) for j in range(n)] for i in range(n)]
    return _eliminated(_rows_of(a), unit)


def solution_parts(a: Any, b: Any) -> Any:
    """Return the solution of equations, as rows; NotImplemented for a large matrix, or many right-hand sides."""
    n = a.shape[-1]
    if n > LARGEST or b.shape[-1] > LARGEST:
        return NotImplemented
    if len(b.shape) == 1:
        return [row[0] for row in _eliminated(_rows_of(a), [[b[i,]] for i in range(n)])]
    return _eliminated(_rows_of(a), _rows_of(b))


def determinant_parts(a: Any) -> Any:
    """Return the determinant; NotImplemented for a large matrix."""
    n = a.shape[-1]
    if n > LARGEST:
        return NotImplemented
    if n == 2:  # noqa: PLR2004
        return _determinant_of_two(a)
    rows, determinant = _rows_of(a), 1.0
    for k in range(n):
        for i in range(k + 1, n):
            swaps = _take_larger(rows, k, i)
            determinant = determinant * np.where(swaps, -1.0, 1.0)
        determinant = determinant * rows[k][k]
        if k + 1 < n:
            (rows[k][k] == 0.0).give_up_where()
        for i in range(k + 1, n):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [None if j <= k else rows[i][j] - factor * rows[k][j] for j in range(n)]
    return determinant


def _determinant_of_two(a: Any) -> Any:
    return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]


def _rows_of(a: Any) -> Rows:
    return [[a[..., i, j] for j in range(a.shape[-1])] for i in range(a.shape[-2])]


def _take_larger(rows: Rows, k: int, i: int) -> Any:
    """Let row k have the larger pivot of its own and that of row i; return where they changed places."""
    swaps = np.abs(rows[i][k]) > np.abs(rows[k][k])
    _swap(rows, swaps, k, i, k)
    return swaps


def _swap(rows: Rows, swaps: Any, k: int, i: int, first: int) -> None:
    for j in range(first, len(rows[k])):
        one, other = rows[k][j], rows[i][j]
        if one is not other:
            rows[k][j], rows[i][j] = np.where(swaps, other, one), np.where(swaps, one, other)


def _eliminated(a: Rows, b: Rows) -> Rows:
    """Return the solution of equations with right-hand sides b; the program gives up where a matrix is singular."""
    n = len(a)
    for k in range(n):
        for i in range(k + 1, n):
            swaps = _take_larger(a, k, i)
            _swap(b, swaps, k, i, 0)
        (a[k][k] == 0.0).give_up_where()
        over = 1.0 / a[k][k]
        a[k] = [None if j <= k else x * over for j, x in enumerate(a[k])]
        b[k] = [x * over for x in b[k]]
        for i in range(n):
            if i != k:
                factor = a[i][k]
                a[i] = [None if j <= k else a[i][j] - factor * a[k][j] for j in range(n)]
                b[i] = [x - factor * y for x, y in zip(b[i], b[k], strict=True)]
    return b


def substitution_parts(a: Any, b: Any, upper: bool, unitriangular: bool) -> Any:
    """Return the solution of equations with a triangular matrix, as rows; NotImplemented where that is large."""
    n = a.shape[-1]
    if n > LARGEST or b.shape[-1] > LARGEST:
        return NotImplemented
    rows = _rows_of(b)
    for i in range(n - 1, -1, -1) if upper else range(n):
        for j in range(i + 1, n) if upper else range(i):
            rows[i] = [x - a[..., i, j] * y for x, y in zip(rows[i], rows[j], strict=True)]
        if not unitriangular:
            (a[..., i, i] == 0.0).give_up_where()
            rows[i] = [x / a[..., i, i] for x in rows[i]]
    return rows


# The rules are those of Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
# differentiation" (2008). Matrices stand in the last two axes; operands of a record have the same extents in front.

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
    results = [
        function(*row) for row in (rows if count else [tuple(np.eye(*x.shape[-2:], dtype=x.dtype) for x in operands)])
    ]
    several = isinstance(results[0], tuple)
    columns = zip(*results, strict=True) if several else [results]
    stacked = tuple(np.stack(c)[:count].reshape(*batch, *np.shape(c[0])) for c in columns)
    return stacked if several else stacked[0]


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
    name="solve", doc="The solution of linear equations.", grad_fn="LinalgSolveExBackward0",
    extras=("lu", "pivots"), forward=solve, vjp=_solve_vjp,
    jvp=lambda t_a, t_b, y, a, lu, pivots: solve_again(
        a, plus(t_b, None if t_a is None else -np.matmul(t_a, y)), lu, pivots, 0
    ),
    parts=solution_parts, direct=directly("solve"), domain=("wellconditioned", "real"), spreads=each_by_itself,
    samples=((((3, 3), (3, 2)), {}), (((3, 3), (3,)), {}), (((2, 3, 3), (2, 3, 1)), {})),
)  # fmt: skip


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


_UNFACTORED = np.empty(0), np.empty(0, np.int32)
_SOLVE_EX = _SOLVE.replace("solve:", "solve_ex:")
Routine(
    name="solve_ex", doc="The solution of linear equations, and which pivot is zero, or 0.",
    grad_fn="LinalgSolveExBackward0", extras=("info",),
    forward=lambda a, b, *, check_errors: solve_ex(a, b, check=_SOLVE_EX if check_errors else ""),
    vjp=lambda g, y, a, needs: _solve_vjp(g, y, a, *_UNFACTORED, needs),
    jvp=lambda t_a, t_b, y, a: np.linalg.solve(a, plus(t_b, None if t_a is None else -np.matmul(t_a, y))),
    samples=((((3, 3), (3, 2)), {"check_errors": True}), (((2, 3, 3), (2, 3, 1)), {"check_errors": False})),
    domain=("wellconditioned", "real"),
)  # fmt: skip


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
    name="solve_triangular", doc="The solution of equations with a triangular matrix.",
    grad_fn="LinalgSolveTriangularBackward0",
    forward=solve_triangular, vjp=_triangular_vjp, jvp=_triangular_jvp, parts=substitution_parts,
    samples=(
        (((3, 3), (3, 2)), {"upper": True, "unitriangular": False}),
        (((2, 3, 3), (2, 3, 1)), {"upper": False, "unitriangular": True}),
    ),
    domain=("wellconditioned", "real"),
)  # fmt: skip


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
    name="pinv", doc="The pseudoinverse of a matrix.", grad_fn="LinalgPinvBackward0",
    forward=lambda a, *, rtol: np.linalg.pinv(a, rcond=rtol), vjp=_pinv_vjp, jvp=_pinv_jvp,
    samples=((((3, 2),), {"rtol": 1e-15}), (((2, 2, 3),), {"rtol": 1e-15})),
)  # fmt: skip


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
    name="lstsq", doc="The solution of least squares, the shortest where there are several.",
    grad_fn="LinalgLstsqBackward0", extras=("rank", "s"),
    forward=lambda a, b, *, rcond: each(lambda a, b: _least(a, b, rcond), a, b), vjp=_lstsq_vjp, jvp=_lstsq_jvp,
    samples=((((4, 2), (4, 2)), {"rcond": 1e-15}), (((2, 2, 3), (2, 2, 1)), {"rcond": 1e-15})),
)  # fmt: skip


def _rank(a: Array, *, atol: float, rtol: float) -> Array:
    s = np.linalg.svd(a, compute_uv=False)
    return np.asarray(np.sum(s > np.maximum(atol, rtol * s.max(-1, keepdims=True, initial=0)), axis=-1), np.int64)


Routine(
    name="matrix_rank", doc="How many singular values of a matrix are no zeros.",
    forward=_rank, samples=((((3, 2),), {"atol": 0.0, "rtol": 1e-15}),),
)  # fmt: skip
