"""Integrals of functions, with gradients to the bounds and to what the function uses."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tape.errors import ConvergenceError
from tape.operations import sorting
from tape.operations.elementwise import array_like
from tape.recording.promotion import alike
from tape.tensors import grad_modes
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Array, constant_tensor

__all__ = ["cumulative_trapezoid", "gauss_legendre", "quad", "simpson", "trapezoid"]


@functools.lru_cache(64)
def _legendre(n: int) -> tuple[Array, Array]:
    points, weights = np.polynomial.legendre.leggauss(n)
    return points, weights


def gauss_legendre(f: Callable[..., Any], a: Any, b: Any, n: int = 5, *, args: tuple[Any, ...] = ()) -> Any:
    """Return the integral of f from a to b by the Gauss-Legendre rule of n points, exact for degree 2 n - 1.

    f takes the points as a vector (n,), then ``args``, and returns (..., n); the result is (...). SciPy's fixed_quad.

    >>> tape.quadrature.gauss_legendre(lambda x: x**4, 0.0, 1.0, 3)
    tensor(0.2000)
    """
    a, b, count = _bounds(a, b, n, 1)
    points, weights = (constant_tensor(x.astype(a.spec.dtype)) for x in _legendre(count))
    half = (b - a) * 0.5
    return (tensor_of(f(points * half + (a + b) * 0.5, *args)) * weights).sum(-1) * half


def trapezoid(f: Callable[..., Any], a: Any, b: Any, n: int = 100, *, args: tuple[Any, ...] = ()) -> Any:
    """Return the integral of f from a to b by the trapezoid rule with n intervals.

    f takes the points as a vector (n + 1,), then ``args``, and returns (..., n + 1); the result is (...).

    >>> tape.quadrature.trapezoid(lambda x: x, 0.0, 2.0, 4)
    tensor(2.)
    """
    a, b, count = _bounds(a, b, n, 1)
    places = np.linspace(0.0, 1.0, count + 1).astype(a.spec.dtype)
    weights = np.ones_like(places) / count
    weights[[0, -1]] *= 0.5
    width = b - a
    return (tensor_of(f(constant_tensor(places) * width + a, *args)) * constant_tensor(weights)).sum(-1) * width


_POINTS, _FEWER = 21, 10  # of the rule on a part, and of the one that it is compared with
_MOST_PARTS, _SHORTEST = 2000, 1e-30


def quad(f: Callable[..., Any], a: Any, b: Any, *args: Any, points: Any = (), tol: float = 1e-10) -> Any:
    """Return the integral of f from a to b, either of which may be infinite, by as many parts as ``tol`` asks for.

    f takes points as a vector (n,), then ``args``, and returns (..., n); the result is (...). Parts are halved until
    Gauss-Legendre rules of 21 and 10 points differ by ``tol`` of the integral's magnitude in all; gradients, also to
    ``args`` and to what f closes over, are those of the rule with 21. ``points`` are numbers within finite bounds at
    which f jumps. Raises ConvergenceError where 2000 parts are not enough. SciPy's quad, of a function of arrays.

    >>> tape.quadrature.quad(lambda x: tape.exp(-x * x), -np.inf, np.inf) ** 2
    tensor(3.1416)
    """
    a, b, _ = _bounds(a, b, 1, 1)
    infinite = bool(np.isinf(a.detach())), bool(np.isinf(b.detach()))
    if (infinite[0] and bool(a > 0)) or (infinite[1] and bool(b < 0)):
        if infinite[0] and infinite[1] and bool(a == b):
            raise ValueError(f"quadrature.quad: both bounds are {a.item()}")
        return -quad(f, b, a, *args, points=points, tol=tol)
    part = functools.partial(_sums, f, a, b, args, infinite)
    edges = _edges(a, b, points)
    while True:
        with grad_modes.no_grad():
            sums = part(edges, _POINTS)
            errors = abs(sums - part(edges, _FEWER)).reshape(-1, len(edges) - 1)
            target = tol * abs(sums).reshape(errors.shape).sum(1, keepdim=True) / (len(edges) - 1)
            halved = np.array((errors > target).any(0).tolist())
        if not halved.any():
            return part(edges, _POINTS).sum(-1)
        middles = (edges[:-1] + edges[1:])[halved] / 2
        if len(edges) > _MOST_PARTS or np.diff(edges)[halved].min() < _SHORTEST or np.isin(middles, edges).any():
            raise ConvergenceError(
                f"quadrature.quad: {len(edges) - 1} parts are not enough for tol {tol:.0e}: f may jump, which points= "
                "tell, or have no integral"
            )
        edges = np.sort(np.concatenate([edges, middles]))


def _edges(a: Any, b: Any, points: Any) -> Array:
    if len(points) == 0:
        return np.array([0.0, 1.0])
    low, high = a.item(), b.item()
    inner = (np.asarray(points, np.float64) - low) / (high - low)
    if not np.all((inner > 0) & (inner < 1)):
        raise ValueError(f"quadrature.quad: points are between finite bounds, {low} and {high}; they are {points}")
    return np.unique([0.0, *inner, 1.0])


def _mapped(u: Array, infinite: tuple[bool, bool]) -> tuple[Array, Array]:
    """Return places for those in [0, 1], and the slope: themselves, distances from the finite bound, or all numbers."""
    if not any(infinite):
        return u, np.ones_like(u)
    if not all(infinite):
        return u / (1 - u), 1 / (1 - u) ** 2
    t = 2 * u - 1
    return t / (1 - t * t), 2 * (1 + t * t) / (1 - t * t) ** 2


def _sums(f: Any, a: Any, b: Any, args: tuple[Any, ...], infinite: tuple[bool, bool], edges: Array, count: int) -> Any:
    """Return the integrals over parts of [0, 1], to which the range from a to b is mapped."""
    nodes, weights = _legendre(count)
    half = np.diff(edges)[:, None] / 2
    places, slopes = _mapped((edges[:-1, None] + half * (nodes + 1.0)).reshape(-1), infinite)
    at = constant_tensor(places.astype(a.spec.dtype))
    slope: Any = constant_tensor((slopes * (half * weights).reshape(-1)).astype(a.spec.dtype))
    if infinite == (False, False):
        x, slope = a + (b - a) * at, slope * (b - a)
    else:
        x = at if all(infinite) else b - at if infinite[0] else a + at
    values = tensor_of(f(x, *args))
    if values.spec.shape[-1:] != at.spec.shape:
        raise ValueError(f"quadrature.quad: f returned the shape {list(values.spec.shape)}, which does not end in n")
    return (values * slope).reshape(*values.spec.shape[:-1], len(half), count).sum(-1)


def _bounds(a: Any, b: Any, n: int, least: int) -> tuple[Any, Any, int]:
    count = operator.index(n)
    if count < least:
        raise ValueError(f"quadrature: n is {count}; one or more is needed")
    bounds = alike(a, b)
    for x in bounds:
        if x.spec.shape:
            raise ValueError(f"quadrature: the bounds are numbers; one has shape {list(x.spec.shape)}")
    a, b = (x if x.spec.dtype.kind == "f" else x.to(np.float64) for x in bounds)
    return a, b, count


def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None) -> Any:
    """Return the running integral of samples: SciPy's ``scipy.integrate.cumulative_trapezoid``.

    One less than there are samples, or with ``initial=0`` as many; ValueError for another initial value.

    >>> tape.quadrature.cumulative_trapezoid(tape.tensor([1.0, 2.0, 4.0]), dx=0.5, initial=0).tolist()
    [0.0, 0.75, 2.25]
    """
    if initial not in (None, 0):
        raise ValueError("cumulative_trapezoid: initial is None or 0")
    y = array_like(y)
    spacing = {"dx": dx} if x is None else {"x": array_like(x)}
    sums = sorting.cumulative_trapezoid(y, dim=axis, **spacing)
    if initial is None:
        return sums
    width = [(int(k == axis % len(sums.spec.shape)), 0) for k in range(len(sums.spec.shape))]
    return np.pad(sums, width)


def simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Any:
    """Return the integral of samples by Simpson's rule: SciPy's ``scipy.integrate.simpson``.

    Of an even number of samples the last interval is corrected by a parabola through the last three, as SciPy does.
    Gradients go to samples, coordinates and dx. ValueError where there is not one coordinate for each sample.

    >>> tape.quadrature.simpson(tape.tensor([0.0, 1.0, 4.0]))
    tensor(2.6667)
    """
    y = np.moveaxis(_floating(y), axis, -1)
    n = y.spec.shape[-1]
    if x is None:
        h = array_like(dx) * np.ones(n - 1)
    else:
        x = _floating(x)
        x = np.moveaxis(x, axis, -1) if len(x.spec.shape) > 1 else x
        if x.spec.shape[-1] != n:
            raise ValueError(f"simpson: {x.spec.shape[-1]} coordinates for {n} samples")
        h = x[..., 1:] - x[..., :-1]
    if n == 2:  # noqa: PLR2004
        return 0.5 * h[..., 0] * (y[..., 0] + y[..., 1])
    odd = n - 1 + n % 2
    h0, h1 = h[..., 0 : odd - 1 : 2], h[..., 1 : odd - 1 : 2]
    both, ratio = h0 + h1, h0 / h1
    y0, y1, y2 = y[..., 0 : odd - 2 : 2], y[..., 1 : odd - 1 : 2], y[..., 2:odd:2]
    total = (both / 6 * (y0 * (2 - 1 / ratio) + y1 * (both * both / (h0 * h1)) + y2 * (2 - ratio))).sum(-1)
    if n % 2 == 0:
        a, b = h[..., -2], h[..., -1]
        total = total + y[..., -1] * (2 * b * b + 3 * a * b) / (6 * (a + b))
        total = total + y[..., -2] * (b * b + 3 * a * b) / (6 * a) - y[..., -3] * b**3 / (6 * a * (a + b))
    return total


def _floating(x: Any) -> Any:
    x = array_like(x)
    return x if x.spec.dtype.kind == "f" else x.to(np.float64)
