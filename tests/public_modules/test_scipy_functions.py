"""SciPy's functions with gradients: values are SciPy's in each mode, gradients those of differences."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.special

import tape

pytestmark = pytest.mark.quick
_RNG = np.random.default_rng(4)
_IMAGE, _SIGNAL = _RNG.normal(size=(6, 7)), _RNG.normal(size=9)
_MODES = ("reflect", "grid-mirror", "mirror", "nearest", "wrap", "grid-wrap", "constant", "grid-constant")


def _leaf(x: Any) -> tape.Tensor:
    return tape.tensor(np.array(x, dtype=float), requires_grad=True)


def _differentiated(function: Callable[..., Any], *points: Any) -> None:
    """Check first and second derivatives, and that a compiled function replays what is run."""
    leaves = tuple(map(_leaf, points))
    assert tape.autograd.gradcheck(function, leaves)
    assert tape.autograd.gradgradcheck(function, leaves)
    both = tape.value_and_grad(lambda *a: (function(*a) ** 2).sum(), tuple(range(len(points))))
    compiled = tape.compile(both, check="never")
    for k in range(4):
        at = [np.asarray(p, dtype=float) * (1 + 0.01 * k) for p in points]
        found, wanted = compiled(*at), both(*at)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-10)
        for x, y in zip(found[1], wanted[1], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


def _same(found: Any, wanted: Any, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-10, atol=atol)


@pytest.mark.parametrize("mode", _MODES)
def test_filters_of_images(mode: str) -> None:
    for shape, origin in itertools.product(((3, 3), (2, 4), (1, 5)), (0, (0, -1), (0, 1))):
        weights = _RNG.normal(size=shape)
        for name in ("correlate", "convolve"):
            options: Any = {"mode": mode, "cval": 0.3, "origin": origin}
            wanted = getattr(scipy.ndimage, name)(_IMAGE, weights, **options)
            _same(getattr(tape.ndimage, name)(_IMAGE, weights, **options), wanted)
    for sigma, order in itertools.product((0.7, (1.0, 2.5)), (0, 1, 2, (0, 1))):
        wanted = scipy.ndimage.gaussian_filter(_IMAGE, sigma, order, mode=mode, cval=0.2)
        _same(tape.ndimage.gaussian_filter(_IMAGE, sigma, order, mode=mode, cval=0.2), wanted)


@pytest.mark.parametrize("mode", ["reflect", "grid-mirror", "mirror", "nearest", "wrap", "constant"])
@pytest.mark.parametrize("order", [0, 1, 3])
def test_interpolation_of_images(mode: str, order: int) -> None:
    inside = np.array([[0, 5, 5.0, 2, 0, -1, 6], [0, 6, 0, 3.0, 6.0, 7, -1]])
    for at in (inside, _RNG.uniform(-10, 17, size=(2, 5, 6))):
        wanted = scipy.ndimage.map_coordinates(_IMAGE, at, order=order, mode=mode, cval=0.4)
        _same(tape.ndimage.map_coordinates(_IMAGE, at, order=order, mode=mode, cval=0.4), wanted)
    for by in (0.5, -1.0, (1.3, -2.2), 0.0):
        wanted = scipy.ndimage.shift(_IMAGE, by, order=order, mode=mode, cval=0.4)
        _same(tape.ndimage.shift(_IMAGE, by, order=order, mode=mode, cval=0.4), wanted)


def test_gradients_of_images() -> None:
    small, at = _IMAGE[:4, :3], np.array([[0.4, 1.3, 2.7], [1.1, 0.2, 1.6]])
    _differentiated(lambda x, w: tape.ndimage.convolve(x, w, mode="nearest"), small, _IMAGE[:2, 5:])
    _differentiated(tape.ndimage.gaussian_filter, small, 0.9)
    _differentiated(lambda x, c: tape.ndimage.map_coordinates(x, c, mode="mirror"), small, at)
    _differentiated(lambda x, s: tape.ndimage.shift(x, s, order=1, mode="reflect"), _SIGNAL, 0.4)


def test_filters_of_signals() -> None:
    pairs = ((_SIGNAL, _SIGNAL[:3]), (_SIGNAL[:3], _SIGNAL), (_SIGNAL, _SIGNAL[:4]), (_IMAGE, _IMAGE[:3, :2]))
    for mode, (x, kernel) in itertools.product(("full", "same", "valid"), pairs):
        _same(tape.signal.convolve(x, kernel, mode), scipy.signal.convolve(x, kernel, mode))
        _same(tape.signal.fftconvolve(x, kernel, mode), scipy.signal.convolve(x, kernel, mode))
    for b, a in (([1.0, 2.0], [1.0, 0.5]), ([0.5], [2.0, 0.1, 0.2]), ([1.0, 2, 3], [2.0])):
        _same(tape.signal.lfilter(b, a, _SIGNAL), scipy.signal.lfilter(b, a, _SIGNAL))
        _same(tape.signal.lfilter(b, a, _IMAGE, axis=0), scipy.signal.lfilter(b, a, _IMAGE, axis=0))
    _differentiated(tape.signal.lfilter, [1.0, 0.5], [1.5, 0.3, -0.2], _SIGNAL[:6])
    _differentiated(lambda x, k: tape.signal.convolve(x, k, "same"), _SIGNAL, _SIGNAL[:3])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 9])
def test_cubic_splines(n: int) -> None:
    x, y, several = np.sort(_RNG.uniform(0, 5, n)), _RNG.normal(size=n), _RNG.normal(size=(2, n, 3))
    at = _RNG.uniform(x[0] - 1, x[-1] + 1, size=(3, 4))
    pairs = ((1, 0.5), (2, -0.3)), ("natural", "not-a-knot"), ((2, 0.1), "clamped")
    ends: Any = ("not-a-knot", "natural", "clamped", *pairs)
    for end, nu in itertools.product(ends, range(4)):
        wanted = scipy.interpolate.CubicSpline(x, y, bc_type=end)(at, nu)
        error = 1e-9 * max(1.0, float(np.abs(wanted).max()))
        _same(tape.interpolate.CubicSpline(x, y, bc_type=end)(at, nu), wanted, error)
    for end in ends[:3]:
        spline = scipy.interpolate.CubicSpline(x, several, 1, bc_type=end, extrapolate=False)
        _same(tape.interpolate.CubicSpline(x, several, 1, bc_type=end, extrapolate=False)(at), spline(at), 1e-9)
    if n > 3:
        closed = np.r_[y[:-1], y[0]]
        wanted = scipy.interpolate.CubicSpline(x, closed, bc_type="periodic")(at)
        error = 1e-9 * float(np.abs(wanted).max())
        _same(tape.interpolate.CubicSpline(x, closed, bc_type="periodic")(at), wanted, error)


@pytest.mark.parametrize("kind", ["linear", "nearest", "nearest-up", "previous", "next", "cubic"])
def test_interp1d(kind: str) -> None:
    x, y, several = np.sort(_RNG.uniform(0, 5, 6)), _RNG.normal(size=6), _RNG.normal(size=(2, 6, 3))
    at, order = _RNG.uniform(x[0] - 0.5, x[-1] + 0.5, size=(3, 4)), _RNG.permutation(6)
    for fill in ("extrapolate", 0.5, (1.0, 2.0)):
        for knots, data in ((x, y), (x[order], y[order])):
            wanted = scipy.interpolate.interp1d(knots, data, kind, fill_value=fill, bounds_error=False)(at)
            found = tape.interpolate.interp1d(knots, data, kind, fill_value=fill, bounds_error=False)(at)
            _same(found, wanted, 1e-8)
    wanted = scipy.interpolate.interp1d(x, several, kind, axis=1, bounds_error=False)(at)
    _same(tape.interpolate.interp1d(x, several, kind, axis=1, bounds_error=False)(at), wanted, 1e-9)
    with pytest.raises(ValueError, match="a point is outside"):
        tape.interpolate.interp1d(x, y, kind)(x[-1] + 0.1)


def test_gradients_of_splines() -> None:
    x, y, at = np.array([0.0, 0.7, 1.5, 2.2, 3.1]), _RNG.normal(size=5), np.array([0.3, 1.1, 2.9])
    for end in ("not-a-knot", "natural"):
        _differentiated(lambda x, y, p, end=end: tape.interpolate.CubicSpline(x, y, bc_type=end)(p), x, y, at)
    closed = lambda x, y, p: tape.interpolate.CubicSpline(x, np.concatenate([y, y[:1]]), bc_type="periodic")(p)  # noqa: E731
    _differentiated(closed, x, y[:4], at)
    _differentiated(lambda x, y, p: tape.interpolate.interp1d(x, y)(p), x, y, at)


def test_grids() -> None:
    grid = (np.array([0, 1.0, 2.5]), np.array([0, 0.5, 2, 3.0]))
    values, at = _RNG.normal(size=(3, 4, 2)), _RNG.uniform(-0.5, 3.5, size=(5, 2))
    for method, fill in itertools.product(("linear", "nearest"), (np.nan, 1.5, None)):
        arguments: Any = (grid, values, method, False, fill)
        wanted = scipy.interpolate.RegularGridInterpolator(*arguments)(at)
        _same(tape.interpolate.RegularGridInterpolator(*arguments)(at), wanted)
    _differentiated(lambda v, p: tape.interpolate.RegularGridInterpolator(grid, v)(p), values, np.clip(at, 0.1, 2.2))
    with pytest.raises(ValueError, match="outside of the grid"):
        tape.interpolate.RegularGridInterpolator(grid, values)([[9.0, 0.0]])


def test_rules_of_samples() -> None:
    for n in (2, 3, 4, 5, 8):
        y, x = _RNG.normal(size=(n, 3)), np.sort(_RNG.uniform(size=n))
        for options in ({"axis": 0}, {"axis": 0, "x": x}, {"axis": 0, "dx": 0.3}):
            _same(tape.quadrature.simpson(y, **options), scipy.integrate.simpson(y, **options))
            for initial in (None, 0):
                wanted = scipy.integrate.cumulative_trapezoid(y, initial=initial, **options)
                _same(tape.quadrature.cumulative_trapezoid(y, initial=initial, **options), wanted)
    _differentiated(tape.quadrature.simpson, _SIGNAL[:6], np.arange(6.0) ** 1.2)


def test_linear_algebra() -> None:
    a = _RNG.normal(size=(3, 3))
    p, b = a @ a.T + np.eye(3), _RNG.normal(size=3)
    for lower in (True, False):
        _same(tape.linalg.cho_solve(tape.linalg.cho_factor(p, lower), b), np.linalg.solve(p, b))
    _same(tape.linalg.expm(a), scipy.linalg.expm(a))
    _same(tape.linalg.toeplitz(b), scipy.linalg.toeplitz(b))
    _same(tape.linalg.toeplitz(b, _SIGNAL[:5]), scipy.linalg.toeplitz(b, _SIGNAL[:5]))
    _same(tape.linalg.block_diag(tape.tensor(a), tape.tensor(p)), scipy.linalg.block_diag(a, p))
    _differentiated(lambda r, b: tape.linalg.cho_solve(tape.linalg.cho_factor(r @ r.T + np.eye(3)), b), a, b)
    _differentiated(tape.linalg.toeplitz, b, _SIGNAL[:4])
    x = _leaf(b)
    for name in ("expm1", "log1p", "exp2"):
        assert getattr(scipy.special, name)(x).requires_grad


_REFUSED: dict[str, Callable[[Any], Any]] = {
    "tape.interpolate.interp1d": lambda v: scipy.interpolate.interp1d(np.arange(9), v),
    "tape.interpolate.CubicSpline": lambda v: scipy.interpolate.CubicSpline(np.arange(9), v),
    "tape.interpolate.RegularGridInterpolator": lambda v: scipy.interpolate.RegularGridInterpolator((np.arange(9),), v),
    "tape.ndimage.gaussian_filter": lambda v: scipy.ndimage.gaussian_filter(v, 1.0),
    "tape.ndimage.map_coordinates": lambda v: scipy.ndimage.map_coordinates(v, [[1.5]]),
    "tape.ndimage.shift": lambda v: scipy.ndimage.shift(v, 1.5),
    "tape.ndimage.convolve": lambda v: scipy.ndimage.convolve(np.ones(9), v),
    "tape.signal.convolve": lambda v: scipy.signal.convolve(v, [1.0, 2.0]),
    "tape.signal.fftconvolve": lambda v: scipy.signal.fftconvolve(v, v),
    "tape.signal.lfilter": lambda v: scipy.signal.lfilter([1.0], [1.0, 0.5], v),
    "tape.quadrature.simpson": scipy.integrate.simpson,
    "tape.quadrature.cumulative_trapezoid": scipy.integrate.cumulative_trapezoid,
    "tape.linalg.toeplitz": scipy.linalg.toeplitz,
    "tape.linalg.cho_factor": lambda v: scipy.linalg.cho_factor(v.reshape(3, 3)),
    "tape.linalg.expm": lambda v: scipy.linalg.expm(v.reshape(3, 3)),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_scipys_own_say_what_to_write(name: str) -> None:
    with pytest.raises(TypeError, match=f"use {name}"):
        _REFUSED[name](_leaf(_SIGNAL))


def test_what_is_not_supported() -> None:
    with pytest.raises(NotImplementedError, match="order 2"):
        tape.ndimage.map_coordinates(_IMAGE, [[1.0], [1.0]], order=2)
    with pytest.raises(NotImplementedError, match="'grid-wrap'"):
        tape.ndimage.shift(_IMAGE, 1.0, mode="grid-wrap")
    with pytest.raises(RuntimeError, match="boundary mode 'edge'"):
        tape.ndimage.correlate(_SIGNAL, [1.0, 2.0], mode="edge")
    with pytest.raises(NotImplementedError, match="zi="):
        tape.signal.lfilter([1.0], [1.0], _SIGNAL, zi=[0.0])
    with pytest.raises(NotImplementedError, match="kind 'quadratic'"):
        tape.interpolate.interp1d(np.arange(9), _SIGNAL, "quadratic")
    with pytest.raises(NotImplementedError, match="gradient to sigma"):
        tape.ndimage.gaussian_filter(_SIGNAL, _leaf(1.0), 1)
    with pytest.raises(ValueError, match="x must increase"):
        tape.interpolate.CubicSpline([0.0, 0.0, 1.0], [1.0, 2.0, 3.0])
