"""Special functions: SciPy's values through every door, derivatives against mpmath at ordinary and extreme points."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats

import tape
from tape import special

if TYPE_CHECKING:
    from collections.abc import Callable

mp = mpmath.mp.clone()
mp.dps = 40

# (function, what it is to mpmath, points, how many digits of the derivative are lost there)
FUNCTIONS: list[tuple[str, Callable[[Any], Any], list[float], float]] = [
    ("erf", mp.erf, [-5.0, -0.3, 1e-8, 2.0, 5.0], 1e-14),
    ("erfc", mp.erfc, [-3.0, 0.0, 2.0, 20.0], 1e-13),
    ("erfinv", mp.erfinv, [-0.999, -0.3, 0.0, 0.5, 0.9999999], 1e-13),
    ("erfcx", lambda x: mp.exp(x * x) * mp.erfc(x), [-4.0, 0.0, 1.0, 7.0, 59.0, 61.0, 1e4, 1e8], 2e-12),
    ("expit", lambda x: 1 / (1 + mp.exp(-x)), [-30.0, -1.0, 0.0, 2.0, 10.0], 1e-11),
    ("log_expit", lambda x: -mp.log1p(mp.exp(-x)), [-700.0, -1.0, 0.0, 30.0, 700.0], 1e-14),
    ("logit", lambda x: mp.log(x / (1 - x)), [1e-300, 0.25, 0.5, 0.999], 1e-13),
    ("gammaln", mp.loggamma, [1e-10, 0.5, 2.5, 30.0, 1e10], 1e-13),
    ("digamma", mp.digamma, [1e-10, 0.5, 2.5, 30.0, 1e10], 1e-13),
    ("gamma", mp.gamma, [0.1, 0.5, 2.5, 30.0], 1e-13),
    ("i0", lambda x: mp.besseli(0, x), [-3.0, 0.0, 1e-5, 2.0, 30.0, 700.0], 1e-13),
    ("i1", lambda x: mp.besseli(1, x), [-3.0, 0.0, 1e-5, 2.0, 30.0, 700.0], 1e-13),
    ("i0e", lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), [-20.0, -2.0, 1e-5, 5.0, 900.0, 1100.0, 1e6, 1e12], 1e-11),
    ("i1e", lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), [-20.0, -2.0, 1e-5, 5.0, 900.0, 1100.0, 1e6, 1e12], 1e-11),
    ("j0", lambda x: mp.besselj(0, x), [-3.0, 0.0, 1e-5, 2.0, 30.0], 1e-13),
    ("j1", lambda x: mp.besselj(1, x), [-3.0, 0.0, 1e-5, 2.0, 30.0], 1e-12),
    ("y0", lambda x: mp.bessely(0, x), [1e-5, 0.5, 2.0, 30.0], 1e-13),
    ("y1", lambda x: mp.bessely(1, x), [1e-5, 0.5, 2.0, 30.0], 1e-12),
    ("k0", lambda x: mp.besselk(0, x), [1e-5, 0.5, 2.0, 30.0, 600.0], 1e-13),
    ("k1", lambda x: mp.besselk(1, x), [1e-5, 0.5, 2.0, 30.0, 600.0], 1e-13),
    ("ndtr", mp.ncdf, [-30.0, -1.0, 0.0, 2.0, 10.0], 1e-13),
    ("ndtri", lambda p: -mp.sqrt(2) * mp.erfinv(1 - 2 * p), [1e-20, 0.1, 0.5, 0.999], 1e-12),
    ("log_ndtr", lambda x: mp.log(mp.ncdf(x)), [-1e3, -30.0, -1.0, 0.0, 2.0, 10.0], 1e-13),
    ("entr", lambda x: -x * mp.log(x), [1e-300, 0.1, 1.0, 1e10], 1e-14),
    ("sinc", mp.sincpi, [1e-15, 1e-9, 0.01, 0.063, 0.065, 0.5, 1.0, 7.3], 1e-13),
    ("erfcinv", lambda y: mp.erfinv(1 - y), [1e-10, 0.3, 1.0, 1.9], 1e-12),
]  # fmt: skip


@pytest.mark.parametrize(("name", "exact", "points", "rtol"), FUNCTIONS, ids=[row[0] for row in FUNCTIONS])
def test_derivatives(name: str, exact: Callable[[Any], Any], points: list[float], rtol: float) -> None:
    x = tape.tensor(points, requires_grad=True)
    result = getattr(special, name)(x)
    np.testing.assert_array_equal(result.detach().numpy(), getattr(scipy.special, name)(np.array(points)))
    result.sum().backward()
    expected = [float(slope(exact, p)) for p in points]
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=rtol)


NEAR_ZERO = ["erf", "erfinv", "erfcx", "sinc", "i0", "i0e", "i1", "i1e", "j0", "j1"]


@pytest.mark.parametrize("name", NEAR_ZERO)
def test_second_derivatives_near_zero(name: str) -> None:
    """Where a derivative is a quotient of functions that vanish there."""
    exact = next(row[1] for row in FUNCTIONS if row[0] == name)
    points = [1e-30, -1e-16, 1e-8, 1e-3, 0.24, -0.26, 0.6]
    x = tape.tensor(points, requires_grad=True)
    (first,) = tape.autograd.grad(getattr(special, name)(x).sum(), x, create_graph=True)
    (second,) = tape.autograd.grad(first.sum(), x)
    expected = [float(slope(lambda p: slope(exact, p, 400), p, 400)) for p in points]
    np.testing.assert_allclose(second.numpy(), expected, rtol=1e-10)


def test_logit_outside_of_its_domain() -> None:
    x = tape.tensor([-0.5, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    special.logit(x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [np.nan, np.inf, 4.0, np.inf, np.nan])


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_hessians_are_symmetric_at_zero(name: str) -> None:
    a, b = tape.zeros(4, requires_grad=True), tape.tensor([0.5, 1.0, 3.0, 1e200], requires_grad=True)
    slopes = tape.autograd.grad(getattr(special, name)(a, b).sum(), (a, b), create_graph=True)
    (mixed,) = tape.autograd.grad(slopes[0].sum(), b, retain_graph=True)
    (other,) = tape.autograd.grad(slopes[1].sum(), a)
    np.testing.assert_allclose(mixed.numpy(), 1 / (b.detach().numpy() + (name == "xlog1py")), rtol=1e-15)
    np.testing.assert_array_equal(other.numpy(), mixed.numpy())


def slope(function: Callable[[Any], Any], at: float, digits: int = 120) -> Any:
    """Return a derivative by differences of so many digits, with a step that suits the point."""
    with mp.workdps(digits):
        point = mp.mpf(at)
        step = mp.mpf(10) ** (-digits // 6) * (abs(point) or 1)
        return (function(point + step) - function(point - step)) / (2 * step)


TWO: list[tuple[str, Callable[[Any, Any], Any], list[tuple[float, float]]]] = [
    ("xlogy", lambda a, b: a * mp.log(b), [(2.0, 3.0), (-1.0, 1e-300), (1e300, 2.0)]),
    ("xlog1py", lambda a, b: a * mp.log1p(b), [(2.0, 3.0), (-1.0, 1e-20), (0.5, -0.999)]),
    ("zeta", mp.zeta, [(2.0, 0.5), (3.5, 2.0), (10.0, 30.0)]),
    ("gammainc", lambda a, x: mp.gammainc(a, 0, x, regularized=True), [(0.5, 0.1), (3.0, 2.0), (30.0, 20.0)]),
    ("gammaincc", lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True), [(0.5, 0.1), (3.0, 2.0), (30.0, 20.0)]),
    ("jv", mp.besselj, [(2.0, 0.5), (0.5, 3.0), (3.0, 30.0)]),
    ("yv", mp.bessely, [(2.0, 0.5), (0.5, 3.0), (1.0, 30.0)]),
    ("iv", mp.besseli, [(2.0, 0.5), (0.5, 3.0), (1.0, 30.0)]),
    ("ive", lambda v, x: mp.exp(-abs(x)) * mp.besseli(v, x), [(2.0, 0.5), (0.5, 3.0), (1.0, 8.0)]),
    ("kv", mp.besselk, [(2.0, 0.5), (0.5, 3.0), (1.0, 30.0)]),
    ("kve", lambda v, x: mp.exp(x) * mp.besselk(v, x), [(2.0, 0.5), (0.5, 3.0), (1.0, 8.0)]),
    ("beta", mp.beta, [(2.0, 0.5), (0.5, 3.0), (10.0, 20.0)]),
    ("betaln", lambda a, b: mp.log(mp.beta(a, b)), [(2.0, 0.5), (0.5, 3.0), (1e3, 2.0)]),
    (
        "stdtr",
        lambda v, t: (
            mp.mpf(1) / 2
            + t
            * mp.gamma((v + 1) / 2)
            / mp.sqrt(v * mp.pi)
            / mp.gamma(v / 2)
            * mp.hyp2f1(mp.mpf(1) / 2, (v + 1) / 2, mp.mpf(3) / 2, -t * t / v)
        ),
        [(2.0, 0.5), (5.0, -1.5)],
    ),
    ("polygamma", lambda n, x: mp.polygamma(int(n), x), [(0, 0.5), (1, 0.5), (2, 3.0), (5, 20.0)]),
]


@pytest.mark.parametrize(("name", "exact", "points"), TWO, ids=[row[0] for row in TWO])
def test_derivatives_by_the_second(name: str, exact: Any, points: list[tuple[float, float]]) -> None:
    for a, b in points:
        x = tape.tensor(b, requires_grad=True)
        result = getattr(special, name)(a, x)
        assert result.item() == getattr(scipy.special, name)(a, b)
        result.backward()
        expected = float(slope(lambda t, a=a: exact(mp.mpf(a), t), b))
        np.testing.assert_allclose(x.grad.item(), expected, rtol=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["erf", "expit", "gammaln", "psi", "i0e", "ndtr", "logit", "j0", "log_expit"])
def test_scipys_functions_are_recorded(name: str) -> None:
    points = np.array([0.25, 0.5])
    x, z = (tape.tensor(points, requires_grad=True) for _ in range(2))
    result = getattr(scipy.special, name)(x)
    assert isinstance(result, tape.Tensor)
    result.sum().backward()
    getattr(special, name)(z).sum().backward()
    assert x.grad.tolist() == z.grad.tolist()
    single = getattr(special, name)(tape.tensor(points.astype(np.float32)))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single.numpy(), getattr(scipy.special, name)(points.astype(np.float32)))


def test_scipys_functions_of_two() -> None:
    x = tape.tensor([2.0, 3.0], requires_grad=True)
    for name in ("xlogy", "xlog1py", "gammainc", "gammaincc", "zeta"):
        found = getattr(scipy.special, name)(1.5, x)
        np.testing.assert_array_equal(found.detach().numpy(), getattr(scipy.special, name)(1.5, np.array([2.0, 3.0])))
        assert found.requires_grad


def test_derivatives_of_any_order() -> None:
    x = tape.tensor(1.5, requires_grad=True)
    value = special.digamma(x)
    for n in range(1, 5):
        (value,) = tape.autograd.grad(value, x, create_graph=True)
        np.testing.assert_allclose(value.item(), scipy.special.polygamma(n, 1.5), rtol=1e-13)
    value = special.i0(x)
    for _ in range(2):
        (value,) = tape.autograd.grad(value, x, create_graph=True)
    np.testing.assert_allclose(value.item(), (scipy.special.iv(0, 1.5) + scipy.special.iv(2, 1.5)) / 2, rtol=1e-14)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_mvlgamma(p: int) -> None:
    points = np.array([2.0, 3.5, 10.0])
    x = tape.tensor(points, requires_grad=True)
    result = tape.mvlgamma(x, p)
    np.testing.assert_array_equal(result.detach().numpy(), scipy.special.multigammaln(points, p))
    result.sum().backward()
    expected = sum(scipy.special.digamma(points - k / 2) for k in range(p))
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-14)


def test_orders_that_are_none() -> None:
    x = tape.tensor([2.0])
    with pytest.raises(RuntimeError, match="does not support negative n"):
        tape.polygamma(-1, x)
    with pytest.raises(RuntimeError, match="greater than or equal to 1"):
        tape.mvlgamma(x, 0)
    with pytest.raises(TypeError):
        tape.polygamma(1.5, x)


@pytest.mark.parametrize("name", ["zeta", "gammainc", "gammaincc"])
def test_a_derivative_that_nobody_has_raises(name: str) -> None:
    a, x = tape.tensor(2.0, requires_grad=True), tape.tensor(1.5)
    for function in (getattr(special, name), getattr(scipy.special, name)):
        with pytest.raises(NotImplementedError, match=f"{name}.*not implemented"):
            function(a, x)
    with tape.no_grad():
        getattr(special, name)(a.detach(), x)


def test_a_replay_calls_scipy() -> None:
    program = tape.record(lambda t: special.erfcx(t) * special.i1e(t) + special.log_ndtr(t), np.ones(4))
    points = np.array([-2.0, 0.0, 0.5, 70.0])
    x = tape.tensor(points, requires_grad=True)
    result = special.erfcx(x) * special.i1e(x) + special.log_ndtr(x)
    np.testing.assert_array_equal(program(points), result.detach().numpy())


def test_every_name_is_there() -> None:
    assert all(callable(getattr(special, name)) for name in special.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        special.nothing  # noqa: B018 (the access itself)


def test_values_outside_of_the_domain_are_nan() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, point in (("erfinv", 2.0), ("ndtri", -1.0), ("logit", 2.0), ("xlogy", np.nan)):
            given = (tape.tensor([point]),) * (2 if name == "xlogy" else 1)
            assert np.isnan(getattr(special, name)(*given).numpy()).all()


@pytest.mark.parametrize("name", ["betainc", "betaincc", "betaincinv"])
def test_areas_of_beta(name: str) -> None:
    sign = -1 if name == "betaincc" else 1
    for a, b, c in ((2.0, 3.0, 0.3), (0.5, 0.5, 0.9), (10.0, 2.0, 0.6)):
        x = tape.tensor(c, requires_grad=True)
        result = getattr(scipy.special, name)(a, b, x)
        assert result.item() == getattr(scipy.special, name)(a, b, c)
        result.backward()
        at = scipy.special.betaincinv(a, b, c) if name == "betaincinv" else c
        density = scipy.stats.beta.pdf(at, a, b)
        expected = 1 / density if name == "betaincinv" else sign * density
        np.testing.assert_allclose(x.grad.item(), expected, rtol=1e-11)
    with pytest.raises(NotImplementedError, match="all arguments but the last"):
        getattr(special, name)(x, 2.0, 0.5)


def test_inverses_of_areas() -> None:
    x = tape.tensor([0.1, 0.5, 0.9], requires_grad=True)
    q = x.detach().numpy()
    for found, density in (
        (special.gammaincinv(2.5, x), lambda at: scipy.stats.gamma.pdf(at, 2.5)),
        (special.gammainccinv(2.5, x), lambda at: -scipy.stats.gamma.pdf(at, 2.5)),
        (special.stdtrit(3.5, x), lambda at: scipy.stats.t.pdf(at, 3.5)),
    ):
        (slope,) = tape.autograd.grad(found.sum(), x)
        np.testing.assert_allclose(slope.numpy(), 1 / density(found.detach().numpy()), rtol=1e-11)
    assert q.shape == (3,)


def test_reciprocal_gamma() -> None:
    points = [-2.0, -1.5, -1.0, 0.0, 0.5, 3.0]
    x = tape.tensor(points, requires_grad=True)
    special.rgamma(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [float(slope(mp.rgamma, p)) for p in points], rtol=1e-12)
    y = tape.tensor([-1.5, -0.5, 2.0], requires_grad=True)
    (scipy.special.gammasgn(y) * y).sum().backward()
    assert y.grad.tolist() == [1.0, -1.0, 1.0]


def test_orders_are_numbers_or_tensors_without_gradients() -> None:
    x = tape.tensor([0.5, 2.0], requires_grad=True)
    orders = np.array([[0.0], [1.0]])
    for name in ("jv", "jn", "yv", "yn", "iv", "ive", "kv", "kn", "kve"):
        found = getattr(scipy.special, name)(orders, x)
        np.testing.assert_allclose(found.detach().numpy(), getattr(scipy.special, name)(orders, [0.5, 2.0]), rtol=1e-14)
        assert found.requires_grad
        with pytest.raises(NotImplementedError, match="derivative by the first argument"):
            getattr(special, name)(x, 1.0)
    (second,) = tape.autograd.grad(tape.autograd.grad(special.jv(2, x).sum(), x, create_graph=True)[0].sum(), x)
    np.testing.assert_allclose(second.numpy(), scipy.special.jvp(2, [0.5, 2.0], 2), rtol=1e-12)
