"""The table of interpolation and of sparse products."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

from kernels.foundation.specs import Array
from kernels.kinds.routine import Routine
from kernels.native.memory import where
from kernels.operations.bands import Band, band_of
from kernels.operations.solves import LinAlgError, plus
from kernels.rules.op import dispatched

# Within an interval t goes from 0 to 1; a point at a knot belongs to the interval on its right.


def checked(name: str, xp: Array) -> None:
    """Raise ValueError unless knots are finite and strictly increasing."""
    if not np.all(np.diff(xp) > 0):
        raise ValueError(f"{name}: the knots must be strictly increasing")


@dispatched
def interval(x: Any, xp: Any) -> Any:
    """Return the number of the interval that each point lies in, or is nearest to."""
    return np.clip(np.searchsorted(xp, x, "right") - 1, 0, len(xp) - 2)


@dispatched
def added_at(values: Any, at: Any, *, n: int) -> Any:
    """Return a vector of n places to which values were added."""
    return np.bincount(at.ravel(), values.ravel(), n).astype(values.dtype)


Routine(
    name="interval", doc="The interval between knots that each point lies in.",
    forward=interval, samples=((((5,), (4,)), {}),), domain=("within", "increasing"),
)  # fmt: skip


def _by_points(sets: Any, x: Any, *knots: Any) -> Any:
    """Say that a value depends on its point, and on all knots: which of them are nearest is decided by values."""
    return sets.united(x, sets.of_all(*knots))


def _linear(x: Array, xp: Array, fp: Array) -> Array:
    if not np.all(np.diff(xp) >= 0):
        raise ValueError("interp: the knots must be increasing")
    return np.asarray(np.interp(x, xp, fp)).astype(fp.dtype)


def _line(x: Any, xp: Any, fp: Any) -> tuple[Any, ...]:
    """Return interval, place in it and slope: level beyond the ends, at equal knots the value on the right."""
    at = interval(x, xp)
    low, width = xp[at], xp[at + 1] - xp[at]
    before, beyond = x < xp[0], (x > xp[-1]) | (width == 0.0)
    width = np.where(width == 0.0, 1.0, width)
    t = np.where(before, 0.0, np.where(beyond, 1.0, (x - low) / width))
    slope = np.where(before, 0.0, np.where(beyond, 0.0, (fp[at + 1] - fp[at]) / width))
    return at, t, slope


def _both(at: Any, left: Any, right: Any, n: int) -> Any:
    return added_at(left, at, n=n) + added_at(right, at + 1, n=n)


def _interp_vjp(g: Any, x: Any, xp: Any, fp: Any, needs: Any) -> Any:
    at, t, slope = _line(x, xp, fp)
    n, by_x = xp.shape[0], g * slope
    return (
        by_x,
        _both(at, by_x * (t - 1.0), -by_x * t, n) if needs[1] else None,
        _both(at, g * (1.0 - t), g * t, n) if needs[2] else None,
    )


def _interp_jvp(t_x: Any, t_xp: Any, t_fp: Any, x: Any, xp: Any, fp: Any) -> Any:
    at, t, slope = _line(x, xp, fp)
    by_x = 0.0 if t_x is None else t_x * slope
    if t_xp is not None:
        by_x = by_x - slope * ((1.0 - t) * t_xp[at] + t * t_xp[at + 1])
    return plus(by_x, None if t_fp is None else (1.0 - t) * t_fp[at] + t * t_fp[at + 1])


Routine(
    name="interp", doc="Linear interpolation between knots.", forward=_linear, vjp=_interp_vjp, jvp=_interp_jvp,
    spreads=_by_points,
    samples=((((5,), (4,), (4,)), {}), (((2, 3), (3,), (3,)), {})), domain=("within", "increasing", "real"),
)  # fmt: skip


def _hermite(x: Array, xp: Array, fp: Array, slopes: Array) -> Array:
    from scipy.interpolate import CubicHermiteSpline

    checked("interp", xp)
    return np.asarray(CubicHermiteSpline(xp, fp, slopes)(x)).astype(fp.dtype)


def _cubic(x: Any, xp: Any, fp: Any, slopes: Any) -> tuple[Any, ...]:
    """Return interval, width and place in it, the derivative there, and that by the width at the same t."""
    at = interval(x, xp)
    width = xp[at + 1] - xp[at]
    t = (x - xp[at]) / width
    rise = 6.0 * t * (t - 1.0) * (fp[at] - fp[at + 1]) / width
    slope = rise + (1.0 + t * (3.0 * t - 4.0)) * slopes[at] + t * (3.0 * t - 2.0) * slopes[at + 1]
    by_width = t * (1.0 - t) * (1.0 - t) * slopes[at] + t * t * (t - 1.0) * slopes[at + 1]
    return at, width, t, slope, by_width


def _hermite_vjp(g: Any, x: Any, xp: Any, fp: Any, slopes: Any, needs: Any) -> Any:
    at, width, t, slope, by_width = _cubic(x, xp, fp, slopes)
    n, last = xp.shape[0], t * t * (3.0 - 2.0 * t)
    return (
        g * slope,
        _both(at, g * ((t - 1.0) * slope - by_width), g * (by_width - t * slope), n) if needs[1] else None,
        _both(at, g * (1.0 - last), g * last, n) if needs[2] else None,
        _both(at, g * width * t * (1.0 - t) * (1.0 - t), g * width * t * t * (t - 1.0), n) if needs[3] else None,
    )


def _hermite_jvp(t_x: Any, t_xp: Any, t_fp: Any, t_slopes: Any, x: Any, xp: Any, fp: Any, slopes: Any) -> Any:
    at, width, t, slope, by_width = _cubic(x, xp, fp, slopes)
    total = 0.0 * slope if t_x is None else t_x * slope
    if t_xp is not None:
        total = total + t_xp[at] * ((t - 1.0) * slope - by_width) + t_xp[at + 1] * (by_width - t * slope)
    if t_fp is not None:
        last = t * t * (3.0 - 2.0 * t)
        total = total + t_fp[at] * (1.0 - last) + t_fp[at + 1] * last
    if t_slopes is not None:
        inner = t_slopes[at] * (1.0 - t) - t_slopes[at + 1] * t
        total = total + width * t * (1.0 - t) * inner
    return total


Routine(
    name="hermite", doc="Interpolation by cubic pieces with given slopes at the knots.", grad_fn="InterpBackward0",
    forward=_hermite, vjp=_hermite_vjp, jvp=_hermite_jvp, spreads=_by_points, samples=((((5,), (4,), (4,), (4,)), {}),),
    domain=("within", "increasing", "real", "real"),
)  # fmt: skip


def _grids(points: Any, sizes: tuple[int, ...]) -> list[Any]:
    ends = np.cumsum(sizes).tolist()
    return [points[end - n : end] for end, n in zip(ends, sizes, strict=True)]


def _interpn(xi: Array, points: Array, values: Array, *, sizes: tuple[int, ...], bounds_error: bool) -> Array:
    from scipy.interpolate import RegularGridInterpolator

    grids = _grids(points, sizes)
    for grid in grids:
        checked("interpn", grid)
    run = RegularGridInterpolator(grids, values, bounds_error=bounds_error, fill_value=None)
    return np.asarray(run(xi)).astype(values.dtype)


def _cells(xi: Any, points: Any, sizes: tuple[int, ...]) -> list[tuple[Any, Any, Any]]:
    """Return interval, width and place in it along each axis."""
    cells = []
    for k, grid in enumerate(_grids(points, sizes)):
        at = interval(xi[..., k], grid)
        width = grid[at + 1] - grid[at]
        cells.append((at, width, (xi[..., k] - grid[at]) / width))
    return cells


def _corners(cells: Any, values: Any) -> Any:
    """Yield for each corner of a cell which ends it is at, the numbers of its elements, and their values."""
    flat = values.reshape(-1)
    sizes = values.shape
    for ends in itertools.product((0, 1), repeat=len(sizes)):
        number = sum(
            (at + end) * math.prod(sizes[k + 1 :]) for k, ((at, _, _), end) in enumerate(zip(cells, ends, strict=True))
        )
        yield ends, number, flat[number]


def _weight(cells: Any, ends: tuple[int, ...], but: int = -1) -> Any:
    """Return the weight of a corner, of all axes but one."""
    parts = [t if end else 1.0 - t for k, ((_, _, t), end) in enumerate(zip(cells, ends, strict=True)) if k != but]
    return math.prod(parts) if parts else 1.0


def _slopes(cells: Any, values: Any) -> list[Any]:
    """Return the derivative of the result along each axis, per width of the cell."""
    corners = list(_corners(cells, values))
    return [
        sum(v * _weight(cells, ends, k) * (1.0 if ends[k] else -1.0) for ends, _, v in corners)
        for k in range(len(cells))
    ]


def _interpn_vjp(g: Any, xi: Any, points: Any, values: Any, sizes: tuple[int, ...], needs: Any) -> Any:
    cells, by_xi, by_points, by_values = _cells(xi, points, sizes), [], [], None
    for (at, width, t), slope, n in zip(cells, _slopes(cells, values), sizes, strict=True):
        by_x = g * slope / width
        by_xi.append(by_x)
        by_points.append(_both(at, by_x * (t - 1.0), -by_x * t, n))
    if needs[2]:
        parts = [added_at(g * _weight(cells, ends), at, n=math.prod(sizes)) for ends, at, _ in _corners(cells, values)]
        by_values = sum(parts[1:], parts[0]).reshape(sizes)
    return np.stack(by_xi, -1), np.concatenate(by_points), by_values


def _interpn_jvp(t_xi: Any, t_points: Any, t_values: Any, xi: Any, points: Any, values: Any, sizes: Any) -> Any:
    cells, total = _cells(xi, points, sizes), xi[..., 0] * 0.0
    for k, ((at, width, t), slope) in enumerate(zip(cells, _slopes(cells, values), strict=True)):
        moved = 0.0 if t_xi is None else t_xi[..., k]
        if t_points is not None:
            grid = _grids(t_points, sizes)[k]
            moved = moved - (1.0 - t) * grid[at] - t * grid[at + 1]
        total = total + moved * slope / width
    for ends, _, v in _corners(cells, t_values) if t_values is not None else ():
        total = total + v * _weight(cells, ends)
    return total


Routine(
    name="interpn", doc="Linear interpolation on a regular grid; the knots of all axes stand end to end.",
    forward=_interpn, vjp=_interpn_vjp, jvp=_interpn_jvp,
    samples=((((4, 2), (7,), (3, 4)), {"sizes": (3, 4), "bounds_error": False}),), domain=("within", "grids", "real"),
)  # fmt: skip


# A sparse matrix is the values at the places of a fixed pattern, in SciPy's CSR order; gradients reach these values
# alone.


class Pattern:
    """Where a sparse matrix has elements, as SciPy's CSR says it. Made by :func:`pattern_of`: equal ones are one."""

    __slots__ = ("__dict__", "__weakref__", "_factors", "columns", "indptr", "rows", "shape")

    def __init__(self, indices: Array, indptr: Array, shape: tuple[int, int]) -> None:
        self.columns, self.indptr, self.shape = indices, indptr, shape
        self.rows = np.repeat(np.arange(shape[0]), np.diff(indptr))
        self._factors: dict[int, tuple[Any, Array, Any]] = {}

    def __repr__(self) -> str:
        return f"<{self.shape[0]} by {self.shape[1]}, {len(self.columns)} elements>"

    def __reduce__(self) -> tuple[Any, ...]:
        return pattern_of, (self.columns, self.indptr, self.shape)

    @cached_property
    def band(self) -> Band | None:
        """How it is banded, if it is square and narrow."""
        rows, columns = self.shape
        return band_of(self.rows, self.columns, rows) if rows == columns else None

    def matrix(self, data: Array) -> Any:
        """Return SciPy's matrix with these values."""
        from scipy.sparse import csr_array

        return csr_array((data, self.columns, self.indptr), shape=self.shape)

    def factors(self, data: Array, make: Callable[[], Any]) -> Any:
        """Return what was made of values in the same memory before, if a copy shows that they have not changed."""
        key = where(data)
        known = self._factors.get(key)
        if known is not None and np.array_equal(_bits(known[1]), _bits(data)):  # 0.0 is not -0.0, nan is nan
            return known[2]
        factors = make()
        self._factors[key] = (ref(data, lambda gone: self._drop(key, gone)), data.copy(), factors)
        return factors

    def _drop(self, key: int, gone: Any) -> None:
        known = self._factors.get(key)
        if known is not None and known[0] is gone:
            del self._factors[key]


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.uint8)


_living: WeakValueDictionary[tuple[Any, ...], Pattern] = WeakValueDictionary()


def pattern_of(indices: Array, indptr: Array, shape: tuple[int, int]) -> Pattern:
    """Return the pattern of these int64 arrays, which it keeps: the one in use if there is one."""
    key = (shape, *(hashlib.sha256(x.tobytes()).digest() for x in (indices, indptr)))
    return _living.setdefault(key, Pattern(indices, indptr, shape))


@dispatched
def multiply(data: Any, x: Any, *, pattern: Pattern, trans: bool = False) -> Any:
    """Return the product of the matrix, or of it transposed, with a vector or a dense matrix."""
    matrix = pattern.matrix(data)
    return np.asarray((matrix.T if trans else matrix) @ x)


def _at(x: Any, y: Any, pattern: Pattern) -> Any:
    products = x[pattern.rows] * y[pattern.columns]
    return products if products.ndim == 1 else np.sum(products, axis=-1)


def _multiply_vjp(g: Any, data: Any, x: Any, pattern: Pattern, trans: bool, needs: Any) -> Any:
    rows, columns = (x, g) if trans else (g, x)
    return (
        _at(rows, columns, pattern) if needs[0] else None,
        multiply(data, g, pattern=pattern, trans=not trans) if needs[1] else None,
    )


def _multiply_jvp(t_data: Any, t_x: Any, data: Any, x: Any, pattern: Pattern, trans: bool) -> Any:
    by_data = 0.0 if t_data is None else multiply(t_data, x, pattern=pattern, trans=trans)
    return by_data if t_x is None else by_data + multiply(data, t_x, pattern=pattern, trans=trans)


def _multiply_spreads(sets: Any, data: Any, x: Any, pattern: Pattern, trans: bool) -> Any:
    rows, columns = (pattern.columns, pattern.rows) if trans else (pattern.rows, pattern.columns)
    wide = x if x.ndim > 1 else x[:, None]
    products = sets.united(data[:, None], wide[columns])
    width, target = wide.shape[1], np.zeros(pattern.shape[trans] * wide.shape[1], np.int64)
    sets.add_at(target, rows[:, None] * width + np.arange(width), products)
    return target.reshape(-1, *x.shape[1:])


_SAMPLE = pattern_of(np.array([0, 2, 1, 2, 0]), np.array([0, 2, 3, 5]), (3, 3))
_WIDE = pattern_of(np.array([0, 3, 1, 3]), np.array([0, 2, 2, 4]), (3, 4))

Routine(
    name="spmm", doc="A sparse matrix times a vector or a dense matrix.", grad_fn="SparseMmBackward0",
    forward=multiply, vjp=_multiply_vjp, jvp=_multiply_jvp, spreads=_multiply_spreads,
    samples=((((4,), (4,)), {"pattern": _WIDE, "trans": False}), (((4,), (3, 2)), {"pattern": _WIDE, "trans": True})),
)  # fmt: skip


@dispatched
def spsolve(data: Any, b: Any, *, pattern: Pattern, trans: bool = False) -> Any:
    """Solve with the matrix, or with it transposed; the factors of SuperLU are made once."""
    factors = pattern.factors(data, lambda: _factored(data, pattern))
    return factors.solve(np.asarray(b), "T" if trans else "N") if b.size else b.copy()


def _factored(data: Array, pattern: Pattern) -> Any:
    from scipy.sparse.linalg import splu

    try:
        return splu(pattern.matrix(data).tocsc())
    except RuntimeError as error:
        raise LinAlgError(f"sparse.spsolve: The solver failed because the input matrix is singular: {error}") from None


def _spsolve_vjp(g: Any, y: Any, data: Any, pattern: Pattern, trans: bool, needs: Any) -> Any:
    g_b = spsolve(data, g, pattern=pattern, trans=not trans)
    rows, columns = (y, g_b) if trans else (g_b, y)
    return (-_at(rows, columns, pattern) if needs[0] else None), g_b


def _spsolve_jvp(t_data: Any, t_b: Any, y: Any, data: Any, pattern: Pattern, trans: bool) -> Any:
    right = 0.0 if t_b is None else t_b
    if t_data is not None:
        right = right - multiply(t_data, y, pattern=pattern, trans=trans)
    return spsolve(data, right, pattern=pattern, trans=trans)


Routine(
    name="spsolve", doc="The solution of equations with a sparse matrix.", grad_fn="SparseSolveBackward0",
    forward=spsolve, vjp=_spsolve_vjp, jvp=_spsolve_jvp,
    samples=(
        (((5,), (3,)), {"pattern": _SAMPLE, "trans": False}),
        (((5,), (3, 2)), {"pattern": _SAMPLE, "trans": True}),
    ),
    domain=("values", "real"),
)  # fmt: skip
