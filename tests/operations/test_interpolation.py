"""Interpolation against NumPy and SciPy, quadrature against integrals that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.interpolate

import tape
from tests.support.matrix_domains import differentiated

quick = pytest.mark.quick
rng = np.random.default_rng(8)
KNOTS = np.cumsum(rng.uniform(0.5, 1.5, 6))
VALUES = rng.uniform(-2, 2, 6)
POINTS = np.array([[0.1, 1.9, 3.1], [KNOTS[2], 9.0, KNOTS[-1]]])
INSIDE = np.array([1.3, 2.9, 3.7, 4.4])


@quick
def test_linear_is_numpys() -> None:
    x, xp, fp = map(tape.tensor, (POINTS, KNOTS, VALUES))
    expected = np.interp(POINTS, KNOTS, VALUES)
    np.testing.assert_array_equal(tape.interp(x, xp, fp).numpy(), expected)
    np.testing.assert_array_equal(np.interp(POINTS, KNOTS, fp).numpy(), expected)
    np.testing.assert_array_equal(
        np.interp(x, KNOTS, VALUES, left=-1.0, right=7.0).numpy(),
        np.interp(POINTS, KNOTS, VALUES, left=-1.0, right=7.0),
    )
    np.testing.assert_allclose(
        np.interp(x, KNOTS[::-1], fp, period=2.7).numpy(),
        np.interp(POINTS, KNOTS[::-1], VALUES, period=2.7),
        rtol=1e-13,
    )
    assert tape.interp(2.0, KNOTS, VALUES).shape == ()


SPLINES: dict[str, Any] = {
    "not-a-knot": scipy.interpolate.CubicSpline,
    "natural": lambda x, y: scipy.interpolate.CubicSpline(x, y, bc_type="natural"),
    "clamped": lambda x, y: scipy.interpolate.CubicSpline(x, y, bc_type="clamped"),
    "monotone": scipy.interpolate.PchipInterpolator,
}


def ours(name: str) -> Any:
    if name == "monotone":
        return lambda x, xp, fp: tape.interp(x, xp, fp, kind=name)
    return lambda x, xp, fp: tape.interp(x, xp, fp, kind="cubic", bc_type=name)


@pytest.mark.parametrize("name", SPLINES)
@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_cubic_pieces_are_scipys(name: str, n: int) -> None:
    found = ours(name)(tape.tensor(POINTS), KNOTS[:n], VALUES[:n])
    np.testing.assert_allclose(found.numpy(), SPLINES[name](KNOTS[:n], VALUES[:n])(POINTS), rtol=1e-11, atol=1e-12)


def test_monotone_is_flat_where_values_turn() -> None:
    fp = np.array([0.0, 1.0, 1.0, 3.0, 2.0, -4.0])
    found = tape.interp(tape.tensor(POINTS), KNOTS, tape.tensor(fp), kind="pchip")
    np.testing.assert_allclose(found.numpy(), scipy.interpolate.PchipInterpolator(KNOTS, fp)(POINTS), rtol=1e-12)
    single = tape.interp(tape.tensor(INSIDE.astype(np.float32)), KNOTS.astype(np.float32), fp.astype(np.float32))
    assert single.dtype == np.float32


@pytest.mark.parametrize("name", ["linear", "not-a-knot", "natural", "monotone"])
def test_gradients_to_points_knots_and_values(name: str) -> None:
    function = tape.interp if name == "linear" else ours(name)
    differentiated(function, INSIDE, KNOTS, VALUES)
    program = tape.record(lambda *xs: function(*xs).sum(), INSIDE, KNOTS, VALUES)
    moved = (INSIDE + 0.4, KNOTS * 1.1, VALUES[::-1].copy())  # other intervals
    assert float(program(*moved)) == pytest.approx(function(*map(tape.tensor, moved)).sum().item(), rel=1e-12)


def test_subgradients_at_knots_and_beyond_the_ends() -> None:
    x = tape.tensor([0.0, 1.0, 2.0, 3.0], requires_grad=True)
    tape.interp(x, np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [0, 1, 2, 2], "a knot belongs to the interval on its right"
    fp = tape.tensor([1.0, 2.0], requires_grad=True)
    tape.interp(tape.tensor([-5.0, 7.0, 8.0]), np.array([0.0, 1.0]), fp).sum().backward()
    assert fp.grad.tolist() == [1, 2]


def test_bad_interpolations() -> None:
    x = tape.tensor(INSIDE)
    for match, call in {
        "must be increasing": lambda: tape.interp(x, KNOTS[::-1].copy(), VALUES),
        "strictly increasing": lambda: tape.interp(x, np.sort([*KNOTS[1:], KNOTS[1]]), VALUES, kind="monotone"),
        "same length": lambda: tape.interp(x, KNOTS, VALUES[1:]),
        "2 or more": lambda: tape.interp(x, KNOTS[:1], VALUES[:1], kind="cubic"),
        "1 or more": lambda: tape.interp(x, KNOTS[:0], VALUES[:0]),
        "kind is": lambda: tape.interp(x, KNOTS, VALUES, kind="quintic"),
        "bc_type is": lambda: tape.interp(x, KNOTS, VALUES, kind="cubic", bc_type="x"),
        "for kind='linear'": lambda: tape.interp(x, KNOTS, VALUES, 0.0, kind="cubic"),
        "period must be": lambda: tape.interp(x, KNOTS, VALUES, period=0),
        "method is": lambda: tape.interpn((KNOTS,), VALUES, x[:, None], "nearest"),
        "lengths": lambda: tape.interpn((KNOTS, KNOTS), VALUES, x[:, None]),
        "last dim": lambda: tape.interpn((KNOTS,), VALUES, x),
        "out of bounds": lambda: tape.interpn((KNOTS,), VALUES, x[:, None] + 99),
        "each axis": lambda: tape.interpn((KNOTS[:1],), VALUES[:1], x[:, None]),
    }.items():
        with pytest.raises(ValueError, match=match):
            call()


@quick
def test_regular_grids_are_scipys() -> None:
    grids, values = (KNOTS, KNOTS[:4], KNOTS[:3]), rng.uniform(-1, 1, (6, 4, 3))
    xi = rng.uniform(0.1, 3.2, (2, 5, 3))
    for options in ({"fill_value": None}, {"fill_value": -7.0}, {}):
        run = scipy.interpolate.RegularGridInterpolator(grids, values, bounds_error=False, **options)
        found = tape.interpn(grids, values, tape.tensor(xi), bounds_error=False, **options)
        np.testing.assert_allclose(found.numpy(), run(xi), rtol=1e-12)
    inside = rng.uniform(KNOTS[0], KNOTS[1], (2, 2))
    differentiated(lambda a, b, v, x: tape.interpn((a, b), v, x), KNOTS[:3], KNOTS[:2], values[:3, :2, 0], inside)


@quick
def test_rules_of_quadrature() -> None:
    a, b, k = (tape.tensor(v, requires_grad=True) for v in (0.5, 2.0, 3.0))
    found = tape.quadrature.gauss_legendre(lambda x: (k * x).exp(), a, b, 12)
    assert found.item() == pytest.approx((np.exp(6) - np.exp(1.5)) / 3, rel=1e-12)
    found.backward()
    expected = (2 * np.exp(6) - 0.5 * np.exp(1.5)) / 3 - (np.exp(6) - np.exp(1.5)) / 9
    np.testing.assert_allclose([a.grad.item(), b.grad.item(), k.grad.item()], [-np.exp(1.5), np.exp(6), expected])
    assert tape.quadrature.gauss_legendre(lambda x: x**5, 0, 1, 3).item() == pytest.approx(1 / 6, rel=1e-14)
    pair = tape.quadrature.gauss_legendre(lambda x, c: tape.stack([x, c * x * x]), 0.0, 3.0, args=(2.0,))
    np.testing.assert_allclose(pair.numpy(), [4.5, 18.0])
    coarse = tape.quadrature.trapezoid(lambda x: x * x, 0.0, b, 4)
    grid = np.linspace(0, 2, 5)
    assert coarse.item() == pytest.approx(np.trapezoid(grid**2, grid))
    differentiated(lambda a, b: tape.quadrature.trapezoid(tape.sin, a, b, 7), np.array(0.5), np.array(2.0))
    assert tape.quadrature.gauss_legendre(lambda x: x * 0 + 1, a.float(), b.float()).dtype == np.float32
    with pytest.raises(ValueError, match="bounds are numbers"):
        tape.quadrature.trapezoid(tape.sin, tape.zeros(2), 1.0)
    with pytest.raises(ValueError, match="one or more"):
        tape.quadrature.gauss_legendre(tape.sin, 0.0, 1.0, 0)
