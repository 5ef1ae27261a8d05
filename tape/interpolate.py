"""SciPy's ``scipy.interpolate`` with gradients to data, knots and points: lines, cubic splines, regular grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tape.numpy_interface.statistics import searchsorted
from tape.operations import solves
from tape.operations.elementwise import array_like
from tape.recording.promotion import alike
from tape.tensors.dtypes import get_default_dtype
from tape.tensors.tensor import Tensor

__all__ = ["CubicSpline", "RegularGridInterpolator", "interp1d"]


def floating(x: Any) -> Any:
    """Return a tensor of floats: integers and truths in the default dtype."""
    x = array_like(x)
    return x if x.spec.dtype.kind == "f" else x.to(get_default_dtype())


def _knots(name: str, x: Any, y: Any, axis: int, least: int) -> tuple[Any, Any]:
    """Return knots as a vector, and data with the knots' axis in front."""
    x, y = alike(floating(x), floating(y))
    if len(x.spec.shape) != 1:
        raise ValueError(f"{name}: x is a vector; it has shape {list(x.shape)}")
    y = np.moveaxis(y, axis, 0)
    if y.spec.shape[0] != x.spec.shape[0] or x.spec.shape[0] < least:
        raise ValueError(f"{name}: {x.spec.shape[0]} knots for {y.spec.shape[0]} values; at least {least} of both")
    return x, y


def _increasing(name: str, x: Any) -> None:
    if not bool((x.detach()[1:] > x.detach()[:-1]).all()):
        raise ValueError(f"{name}: x must increase strictly")


def _behind(t: Any, like: Any) -> Any:
    """Return coefficients of points with as many dims behind as data have."""
    return t.reshape((*t.spec.shape, *(1,) * (len(like.spec.shape) - 1)))


def _placed(x: Any, at: Any) -> Any:
    """Return for each point the number of the knot that its interval begins at; outside the first, or the last."""
    places = searchsorted(x.detach(), at.detach(), right=True) - 1
    return np.clip(places, 0, x.spec.shape[0] - 2)


_NAMED = {"natural": (2, 0.0), "clamped": (1, 0.0)}
"""Ends by name: the order of the derivative that is told, and its value."""


class CubicSpline:
    """A cubic spline through data along an axis, twice differentiable: SciPy's ``scipy.interpolate.CubicSpline``.

    ``bc_type`` is "not-a-knot", "natural", "clamped" or "periodic", or a pair of such for the ends, of which each may
    be ``(order, value)`` with the value of the first or second derivative. Gradients go to x, y, points and those
    values. ``extrapolate`` is True (the default), False (nan outside) or "periodic". ValueError if x does not increase.

    >>> spline = tape.interpolate.CubicSpline([0.0, 1.0, 2.0, 3.0], tape.tensor([0.0, 1.0, 8.0, 27.0]))
    >>> spline(1.5), spline(2.0, nu=1)
    (tensor(3.3750), tensor(12.0000))
    """

    def __init__(self, x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None) -> None:
        """Solve for the derivatives at the knots."""
        self.axis = axis
        self.x, self._y = _knots("CubicSpline", x, y, axis, 2)
        _increasing("CubicSpline", self.x)
        self.extrapolate = ("periodic" if bc_type == "periodic" else True) if extrapolate is None else extrapolate
        n = self.x.spec.shape[0]
        ends = (bc_type, bc_type) if isinstance(bc_type, str) else tuple(bc_type)
        if len(ends) != 2 or ("periodic" in ends and ends != ("periodic", "periodic")):  # noqa: PLR2004
            raise ValueError(f"CubicSpline: bc_type is a name or a pair, and periodic at both ends; got {bc_type!r}")
        self._steps = _behind(self.x[1:] - self.x[:-1], self._y)
        self._rises = (self._y[1:] - self._y[:-1]) / self._steps
        if ends[0] == "periodic":
            self._derivatives = self._periodic(n)
            return
        if n <= 3 and "not-a-knot" in ends:  # noqa: PLR2004
            ends = self._few(n, ends)
        self._derivatives = self._solved(n, ends)

    def _few(self, n: int, ends: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return ends for which few points have the line, or the parabola, that is not a knot anywhere."""
        if n == 2:  # noqa: PLR2004
            return tuple((1, self._rises[0]) if end == "not-a-knot" else end for end in ends)
        if ends == ("not-a-knot", "not-a-knot"):
            (d0, d1), (r0, r1) = self._steps, self._rises
            bend = (r1 - r0) / (d0 + d1)
            return (1, r0 - bend * d0), (1, r1 + bend * d1)
        return ends

    def _solved(self, n: int, ends: tuple[Any, ...]) -> Any:
        """Return the derivatives at the knots, which a matrix of three diagonals gives."""
        d, r = self._steps, self._rises
        first, last = self._end(ends[0], d, r, self.x[0:3]), self._end(ends[1], d[::-1], r[::-1], self.x[-3:][::-1])
        flat = self.x[1:] - self.x[:-1]
        main = np.concatenate([first[0].reshape(1), 2 * (flat[:-1] + flat[1:]), last[0].reshape(1)])
        above = np.concatenate([flat[:1] * 0, first[1].reshape(1), flat[:-1]])
        below = np.concatenate([flat[1:], last[1].reshape(1), flat[:1] * 0])
        inner = 3 * (d[1:] * r[:-1] + d[:-1] * r[1:])
        right = np.concatenate([first[2][None], inner, last[2][None]])
        solution = solves.solve_banded((1, 1), np.stack([above, main, below]), right.reshape(n, -1))
        return solution.reshape(self._y.spec.shape)

    def _end(self, kind: Any, d: Any, r: Any, x: Any) -> tuple[Any, Any, Any]:
        """Return an end's row: the numbers on and beside the diagonal, and the right side; knots run from that end.

        From the last knot on steps count as positive, slopes as they are.
        """
        if kind == "not-a-knot":
            d0, d1, span = d[0], d[1], d[0] + d[1]
            right = ((d0 + 2 * span) * d1 * r[0] + d0 * d0 * r[1]) / span
            return d1.reshape(-1)[0], span.reshape(-1)[0], right
        order, value = _NAMED.get(kind, (0, 0.0)) if isinstance(kind, str) else kind
        value = floating(value) + r[0] * 0.0
        one = x[0] * 0.0 + 1.0
        if order == 1:
            return one, one * 0.0, value
        if order != 2:  # noqa: PLR2004
            raise ValueError(
                f"CubicSpline: an end is a name, or the first or second derivative and its value; got {kind!r}"
            )
        sign = 1.0 if bool(x[1] > x[0]) else -1.0
        d0 = d[0].reshape(-1)[0]
        return 2 * d0, d0, 3 * r[0] * d[0] - sign * 0.5 * value * d[0] ** 2

    def _periodic(self, n: int) -> Any:
        ends = self._y.detach()
        if not bool(np.isclose(ends[0], ends[-1], rtol=1e-15, atol=1e-15).all()):
            raise ValueError("CubicSpline: a periodic spline has the first value again at the end")
        if n <= 3:  # noqa: PLR2004
            raise NotImplementedError("CubicSpline: a periodic spline through 3 points or fewer is not supported")
        d, r = self.x[1:] - self.x[:-1], self._rises
        before = np.roll(d, 1)
        identity = np.eye(n - 1)
        matrix = identity * (2 * (d + before))
        matrix = matrix + np.roll(identity, 1, 0) * d[:, None] + np.roll(identity, -1, 0) * before[:, None]
        right = 3 * (_behind(d, r) * np.roll(r, 1, 0) + _behind(before, r) * r)
        solution = np.linalg.solve(matrix, right.reshape(n - 1, -1)).reshape(right.spec.shape)
        return np.concatenate([solution, solution[:1]])

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        """Return the spline, or its derivative of order ``nu`` (up to 3), at points of any shape."""
        at, knots = alike(floating(x), self.x)
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        low, high = knots[0], knots[-1]
        if extrapolate == "periodic":
            at = at - (high - low) * np.floor((at - low).detach() / (high - low).detach())
        i = _placed(knots, at)
        t, h = _behind(at - knots[i], self._y), _behind(knots[i + 1] - knots[i], self._y)
        y, s, rise, end = self._y[i], self._derivatives[i], self._rises[i], self._derivatives[i + 1]
        bend = (s + end - 2 * rise) / h
        square, cube = (rise - s) / h - bend, bend / h
        if nu == 0:
            value = y + t * (s + t * (square + t * cube))
        elif nu == 1:
            value = s + t * (2 * square + 3 * t * cube)
        elif nu == 2:  # noqa: PLR2004
            value = 2 * square + 6 * t * cube
        elif nu == 3:  # noqa: PLR2004
            value = 6 * cube + t * 0.0
        else:
            raise NotImplementedError(f"CubicSpline: derivatives up to the third; nu is {nu}")
        if not extrapolate:
            value = np.where(_behind((at < low) | (at > high), self._y), math.nan, value)
        return _back(value, len(at.spec.shape), self.axis)


def _back(value: Any, dims: int, axis: int) -> Any:
    """Return values with the points' dims where the knots' axis was."""
    rank = len(value.spec.shape) - dims + 1
    place = axis % rank
    return np.moveaxis(value, tuple(range(dims)), tuple(range(place, place + dims)))


class interp1d:  # noqa: N801 (SciPy's name)
    """Values between data along an axis: SciPy's ``scipy.interpolate.interp1d``.

    ``kind`` is "linear", "nearest", "nearest-up", "previous", "next", or "cubic", the spline that is not a knot at
    its ends; others raise NotImplementedError. Outside a ValueError is raised, unless ``fill_value`` is "extrapolate",
    or with ``bounds_error=False`` a number, or a pair for below and above. Gradients go to x, y and points.

    >>> tape.interpolate.interp1d([0.0, 1.0, 2.0], tape.tensor([0.0, 1.0, 4.0]))([0.5, 1.5]).tolist()
    [0.5, 2.5]
    """

    def __init__(
        self, x: Any, y: Any, kind: Any = "linear", axis: int = -1, copy: bool = True, bounds_error: Any = None,
        fill_value: Any = math.nan, assume_sorted: bool = False,
    ) -> None:  # fmt: skip
        """Put the data in the order of their knots."""
        del copy
        if kind not in ("linear", "nearest", "nearest-up", "previous", "next", "cubic"):
            raise NotImplementedError(f"interp1d: kind {kind!r} is not supported")
        self.x, self._y = _knots("interp1d", x, y, axis, 4 if kind == "cubic" else 2)
        if not assume_sorted:
            order = np.argsort(self.x.detach())
            self.x, self._y = self.x[order], self._y[order]
        self._axis, self._kind, self._fill = axis, kind, fill_value
        self._goes_on = isinstance(fill_value, str) and fill_value == "extrapolate"
        if self._goes_on and bounds_error:
            raise ValueError("interp1d: bounds_error=True and fill_value='extrapolate' exclude each other")
        self._raises = not self._goes_on if bounds_error is None else bounds_error
        self._spline = CubicSpline(self.x, self._y) if kind == "cubic" else None

    def __call__(self, x: Any) -> Any:
        """Return the values at points of any shape."""
        at, knots = alike(floating(x), self.x)
        below, above = at < knots[0], at > knots[-1]
        if self._raises and bool((below | above).any()):
            raise ValueError("interp1d: a point is outside of x; give bounds_error=False, or fill_value='extrapolate'")
        value = self._values(at, knots) if self._spline is None else self._spline(at)
        if self._goes_on and self._kind in ("previous", "next"):  # a step goes on to one side only
            missing = below if self._kind == "previous" else above
            value = np.where(_behind(missing, self._y), math.nan, value)
        if not self._goes_on:
            low, high = self._fill if isinstance(self._fill, tuple) else (self._fill, self._fill)
            value = np.where(_behind(below, self._y), low, np.where(_behind(above, self._y), high, value))
        return _back(value, len(at.spec.shape), self._axis)

    def _values(self, at: Any, knots: Any) -> Any:
        n, kind = knots.spec.shape[0], self._kind
        if kind == "linear":
            i = _placed(knots, at)
            share = _behind((at - knots[i]) / (knots[i + 1] - knots[i]), self._y)
            return self._y[i] + share * (self._y[i + 1] - self._y[i])
        places, right = knots.detach(), kind in ("previous", "nearest-up")
        if kind.startswith("nearest"):
            places = (places[1:] + places[:-1]) * 0.5
        i = searchsorted(places, at.detach(), right=right) - (kind == "previous")
        return self._y[np.clip(i, 0, n - 1)]


class RegularGridInterpolator:
    """Values on a regular grid in several dims: SciPy's ``scipy.interpolate.RegularGridInterpolator``.

    ``points`` are a vector for each dim, strictly increasing; ``method`` is "linear" or "nearest", others raise
    NotImplementedError. A point outside raises ValueError, or with ``bounds_error=False`` gives ``fill_value``, None
    to go on. Gradients go to values, of "linear" to grid and points too.

    >>> grid = tape.interpolate.RegularGridInterpolator(([0.0, 1.0], [0.0, 2.0]), tape.tensor([[0.0, 1.0], [2.0, 3.0]]))
    >>> grid([[0.5, 1.0]])
    tensor([1.5000])
    """

    def __init__(
        self, points: Any, values: Any, method: str = "linear", bounds_error: bool = True, fill_value: Any = math.nan
    ) -> None:
        """Take grid and values; each call interpolates anew."""
        self.grid, self.values = tuple(floating(p) for p in points), floating(values)
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        for k, (knots, n) in enumerate(zip(self.grid, self.values.spec.shape, strict=False)):
            if knots.spec.shape != (n,):
                raise ValueError(f"RegularGridInterpolator: {list(knots.shape)} points for {n} values along dim {k}")
            _increasing("RegularGridInterpolator", knots)

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """Return the values at points (..., dims)."""
        method = self.method if method is None else method
        if method not in ("linear", "nearest"):
            raise NotImplementedError(f"RegularGridInterpolator: method {method!r} is not supported")
        at = floating(np.stack(np.broadcast_arrays(*xi), axis=-1) if isinstance(xi, tuple) else xi)
        rank = len(self.grid)
        if at.spec.shape[-1:] != (rank,):
            raise ValueError(f"RegularGridInterpolator: points (..., {rank}) are wanted; they are {list(at.shape)}")
        outside: Any = np.stack([(at[..., k] < p[0]) | (at[..., k] > p[-1]) for k, p in enumerate(self.grid)]).any(0)
        if self.bounds_error and bool(outside.any()):
            raise ValueError("RegularGridInterpolator: a point is outside of the grid; give bounds_error=False")
        chosen: list[tuple[tuple[Any, ...], Any]] = [((), 1.0)]
        for k, knots in enumerate(self.grid):
            i = _placed(knots, at[..., k])
            share = (at[..., k] - knots[i]) / (knots[i + 1] - knots[i])
            ends = [(i, 1 - share), (i + 1, share)] if method == "linear" else [(np.where(share <= 0.5, i, i + 1), 1.0)]  # noqa: PLR2004
            chosen = [((*where, index), weight * w) for where, weight in chosen for index, w in ends]
        trailing = self.values.spec.shape[rank:]
        total: Any = 0.0
        for where, weight in chosen:
            shaped = (
                weight.reshape((*weight.spec.shape, *(1,) * len(trailing))) if isinstance(weight, Tensor) else weight
            )
            total = total + self.values[where] * shaped
        if self.fill_value is None:
            return total
        return np.where(outside.reshape((*outside.spec.shape, *(1,) * len(trailing))), self.fill_value, total)
