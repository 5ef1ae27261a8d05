"""Linear systems with the Jacobian of an equation: factored once, dense or sparse, or solved by products with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.foundation.tables import Lock
from kernels.operations.bands import Band, band_lu, band_of, band_solve
from tape.engine.backward import grad
from tape.errors import ConvergenceError
from tape.implicit.equations import LINEAR, Equation
from tape.recording.equivalents import KRYLOV
from tape.sparse import CSR
from tape.sparse.derivatives import RowSums, row_sums
from tape.tensors import grad_modes, modes
from tape.tensors.tensor import Array, Tensor, as_array, constant_tensor, leaf

_TIGHT = 1e-12
_MOST_KEPT = 32  # functions of which it is known how their Jacobians are computed
_GOLDEN = 0.6180339887498949


class Factors:
    """The Jacobian of an equation where it was asked for last, ready to solve with it."""

    def __init__(self, equation: Equation) -> None:
        self.equation = equation
        self._at: tuple[Any, ...] = ()
        self._solve: Callable[[Array, bool], Array] | None = None

    def solve(self, x: Tensor, operands: Sequence[Tensor], v: Array, *, trans: bool) -> Array:
        """Return J' v for the inverse J' of the Jacobian at x, or of the transposed one. LinAlgError if it has none."""
        values = tuple([t._value for t in (x, *operands)])
        if self._solve is None or not all(map(_same, values, self._at)):
            with modes.under(modes.current()._replace(grad=False, recorder=None)):
                self._solve, self._at = system_of(self.equation, x.detach(), [t.detach() for t in operands]), values
        result = self._solve(np.asarray(v), trans)
        if not np.all(np.isfinite(result)):
            raise _singular(self.equation, "solves with it are not finite")
        return np.ascontiguousarray(result, x.spec.dtype)

    def check(self, before: Any, value: Tensor, x: Tensor, operands: Sequence[Tensor]) -> None:
        """Raise RuntimeError where the function no longer gives what it did when the equation was solved."""
        after = as_array(value)
        if before is None or before.tobytes() == after.tobytes():
            return
        step = self.solve(x, operands, after - before, trans=False)
        if np.abs(step).max() > np.sqrt(np.finfo(step.dtype).eps) * (1.0 + np.abs(as_array(x)).max()):
            raise RuntimeError(
                f"{self.equation.name}: the function is not what it was when it was solved: something that it reads, "
                "an attribute, a global or an item, has changed since; pass it as an argument"
            )


def _same(a: Any, b: Any) -> bool:
    return a is b or np.array_equal(a, b)


def system_of(equation: Equation, x: Tensor, operands: Sequence[Tensor]) -> Callable[[Array, bool], Array]:
    """Return a function that solves J y = v, or with ``trans`` that of the transposed Jacobian J."""
    if equation.linear is not None or (equation.kind == LINEAR and equation.jac is None):
        return _iterative(equation, x, operands)
    matrix = _by_colours(equation, x, operands) if equation.jac is None and not equation.batch else None
    if matrix is not None:
        return _checked(equation, matrix, _sparse(equation, matrix))
    matrix = jacobian(equation, x, operands)
    if not isinstance(matrix, np.ndarray):
        return _sparse(equation, matrix)
    if equation.batch:
        return _blocks(equation, matrix)
    return _dense(equation, matrix)


def jacobian(equation: Equation, x: Tensor, operands: Sequence[Tensor]) -> Any:
    """Return the Jacobian at x, an array or SciPy's sparse matrix: the user's ``jac``, or else one by tape."""
    if equation.jac is None:
        return _by_tape(equation, x, operands)
    matrix = equation.matrix(x, operands)
    if isinstance(matrix, CSR):
        matrix = matrix.replaced(matrix.data.detach()).to_scipy()
    elif not hasattr(matrix, "tocsc"):
        matrix = np.asarray(as_array(matrix.detach()) if isinstance(matrix, Tensor) else matrix, x.spec.dtype)
    if tuple(matrix.shape) != (x.spec.size, x.spec.size):
        raise ValueError(
            f"{equation.name}: jac gives a matrix of shape {tuple(matrix.shape)} for {x.spec.size} unknowns; it is "
            "square, a row for each equation"
        )
    return matrix


def _by_tape(equation: Equation, x: Tensor, operands: Sequence[Tensor]) -> Array:
    """Return the Jacobian (n, n), or with a batch the blocks (batch, n, n), by a sweep with all rows."""
    size, batch = x.spec.size, _batch_of(equation)
    n = size // batch if batch else 0
    rows = np.eye(n, dtype=x.spec.dtype)
    cotangents = np.tile(rows, (1, batch))  # row j: equation j of each problem
    matrix = _swept(equation, x, operands, cotangents)
    return matrix.reshape(n, batch, n).swapaxes(0, 1) if equation.batch else matrix


def _swept(equation: Equation, x: Tensor, operands: Sequence[Tensor], cotangents: Array) -> Array:
    """Return the sums of rows of the Jacobian, weighted by each of the cotangents (k, n)."""
    with grad_modes.enable_grad():
        at = leaf(x._value, requires_grad=True)
        y = equation(at, *operands)
        if y._slot is None:
            return np.zeros(cotangents.shape, x.spec.dtype)
        (gradient,) = grad(y, at, constant_tensor(cotangents), is_grads_batched=True, materialize_grads=True)
    return as_array(gradient)  # type: ignore[arg-type]


_kept: dict[Any, RowSums | None] = {}
"""How the Jacobians of functions were computed last, by their code and the arguments' shapes: the newest last."""
_lock = Lock()


def _by_colours(equation: Equation, x: Tensor, operands: Sequence[Tensor]) -> Any:
    """Return the Jacobian, SciPy's csr_array, by a sweep of few sums of rows; None where that does not pay.

    The sums are those of the last call of the same code, as long as they agree with a sum of all rows: equal code may
    close over, or read, other things.
    """

    def made() -> RowSums | None:
        sums = row_sums(lambda v: equation(v, *operands), np.array(x._value))
        with _lock:
            _kept[key] = sums
            for oldest in list(_kept)[:-_MOST_KEPT]:
                del _kept[oldest]
        return sums

    code = getattr(equation.f, "__func__", equation.f)
    code = getattr(code, "__code__", type(code))
    key = (equation.kind, code, equation.arrays, x.spec.shape, x.spec.dtype, *[t.spec.shape for t in operands])
    known = _kept[key] if key in _kept else made()
    if known is None:
        return None
    sums = _swept(equation, x, operands, known.seeds)
    if not known.holds(sums):
        known = made()
        if known is None:
            return None
        sums = _swept(equation, x, operands, known.seeds)
    return known.matrix(sums)


def _checked(equation: Equation, matrix: Any, solve: Callable[[Array, bool], Array]) -> Callable[[Array, bool], Array]:
    """Raise LinAlgError where a solve shows that a sparse matrix is singular but for rounding."""
    signs = np.where(np.arange(matrix.shape[0]) * _GOLDEN % 1.0 < 0.5, -1.0, 1.0).astype(matrix.dtype)  # noqa: PLR2004
    norm = np.bincount(matrix.indices, np.abs(matrix.data), matrix.shape[1]).max()
    condition = norm * np.abs(solve(signs, False)).max()  # or more
    if not condition * np.finfo(matrix.dtype).eps < 1.0:
        raise _singular(equation, f"its reciprocal condition is {1.0 / condition:.0e} or less")
    return solve


def _batch_of(equation: Equation) -> int:
    shape: tuple[int, ...] = equation.back.shapes[0] if equation.batch else ()
    return int(np.prod(shape[: equation.batch]))


def _singular(equation: Equation, why: str) -> Exception:
    what = "Hessian" if equation.kind == "minimize" else "Jacobian"
    return np.linalg.LinAlgError(
        f"{equation.name}: the {what} at the solution is singular ({why}): the solution is no function of the "
        "arguments there, and has no gradient"
    )


def _dense(equation: Equation, matrix: Array) -> Callable[[Array, bool], Array]:
    from scipy.linalg import get_lapack_funcs

    if not matrix.size:
        return lambda v, _: v
    if not np.all(np.isfinite(matrix)):
        raise _singular(equation, "it is not finite")
    getrf, getrs, gecon = get_lapack_funcs(("getrf", "getrs", "gecon"), (matrix,))
    lu, pivots, info = getrf(matrix)
    condition = 0.0 if info else gecon(lu, np.abs(matrix).sum(0).max(), norm="1")[0]
    if condition < np.finfo(matrix.dtype).eps:
        raise _singular(equation, f"its reciprocal condition is {condition:.0e}")
    return lambda v, trans: getrs(lu, pivots, v, trans=int(trans))[0]


def _blocks(equation: Equation, blocks: Array) -> Callable[[Array, bool], Array]:
    turned = np.ascontiguousarray(blocks.swapaxes(1, 2))

    def solve(v: Array, trans: bool) -> Array:
        try:
            return np.linalg.solve(turned if trans else blocks, v.reshape(len(blocks), -1, 1)).reshape(-1)
        except np.linalg.LinAlgError as error:
            raise _singular(equation, str(error)) from error

    return solve


def _sparse(equation: Equation, matrix: Any) -> Callable[[Array, bool], Array]:
    from scipy.sparse.linalg import splu

    if not np.all(np.isfinite(matrix.data)):
        raise _singular(equation, "it is not finite")
    rows = matrix.tocsr()
    places = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    band = band_of(places, rows.indices.astype(np.int64), rows.shape[0])
    if band is not None:
        return _banded(equation, rows.data, band)
    columns = matrix.tocsc()
    symmetric = np.array_equal(rows.indptr, columns.indptr) and np.array_equal(rows.indices, columns.indices)
    try:  # of a symmetric pattern that ordering fills less
        factors = splu(columns, permc_spec="MMD_AT_PLUS_A" if symmetric else "COLAMD")
    except RuntimeError as error:  # SuperLU's
        raise _singular(equation, str(error)) from error
    return lambda v, trans: factors.solve(v, "T" if trans else "N")


def _banded(equation: Equation, data: Array, band: Band) -> Callable[[Array, bool], Array]:
    try:
        lu = band_lu(np.append(data, data.dtype.type(0))[band.places], below=band.below)
    except np.linalg.LinAlgError as error:
        raise _singular(equation, str(error).rpartition(": ")[2]) from error

    def solve(v: Array, trans: bool) -> Array:
        return band_solve(lu, v[band.order], below=band.below, trans=trans)[band.inverse]  # type: ignore[no-any-return]

    return solve


def _iterative(equation: Equation, x: Tensor, operands: Sequence[Tensor]) -> Callable[[Array, bool], Array]:
    """Solve by products with the Jacobian: by the transposed ones of a sweep each, to any order."""
    product, transposed = _products(equation, x, operands)
    method = equation.linear or "gmres"

    def solve(v: Array, trans: bool) -> Array:
        forward, back = (transposed, product) if trans else (product, transposed)
        if callable(method):
            y = method(forward, v)
            return np.asarray(y.detach()._value if isinstance(y, Tensor) else y, v.dtype).reshape(v.shape)
        return _krylov(equation, method, forward, back, v)

    return solve


def _products(equation: Equation, x: Tensor, operands: Sequence[Tensor]) -> tuple[Any, Any]:
    with grad_modes.enable_grad():
        at, weights = leaf(x._value, requires_grad=True), leaf(np.zeros(x.spec.shape, x.spec.dtype), requires_grad=True)
        y = equation(at, *operands)
        row = None
        if y._slot is not None and equation.kind != LINEAR:
            (row,) = grad(y, [at], weights, create_graph=True, allow_unused=True)

    def transposed(v: Array) -> Array:
        if y._slot is None:
            return np.zeros_like(v)
        (gradient,) = grad(y, [at], constant_tensor(v), retain_graph=True, materialize_grads=True)
        return as_array(gradient)  # type: ignore[arg-type]

    def product(v: Array) -> Array:
        if equation.kind == LINEAR:
            with grad_modes.no_grad():
                return as_array(equation.evaluated(constant_tensor(v), *operands))
        if row is None or row._slot is None:
            return np.zeros_like(v)
        (gradient,) = grad(row, [weights], constant_tensor(v), retain_graph=True, materialize_grads=True)
        return as_array(gradient)  # type: ignore[arg-type]

    return product, transposed


def _krylov(equation: Equation, method: str, forward: Any, back: Any, v: Array) -> Array:
    from scipy.sparse import linalg

    if method not in KRYLOV:
        raise ValueError(f"{equation.name}: no iterative method {method!r}; there are {', '.join(KRYLOV)}")
    if not np.any(v):
        return np.zeros_like(v)
    flat = linalg.LinearOperator((v.size, v.size), forward, back, dtype=v.dtype)
    tolerance = max(_TIGHT, 100 * np.finfo(v.dtype).eps)
    more = {"restart": min(v.size, 100), "atol": 0.0} if method == "gmres" else {}
    y, info = getattr(linalg, method)(flat, v, rtol=tolerance, **more)
    if info:
        raise ConvergenceError(
            f"{equation.name}: {method} did not solve a system with the Jacobian of {v.size} unknowns (info {info}): "
            "it may be singular or badly scaled; give jac=, a matrix"
        )
    return np.asarray(y)
