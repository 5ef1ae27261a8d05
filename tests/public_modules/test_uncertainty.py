"""`tape.uncertainty`: linear models are exact, and known sensitivities are met."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import tape
from tape import uncertainty
from tape.errors import DetachWarning

pytestmark = pytest.mark.quick

T = np.linspace(0, 1, 20)
DESIGN = np.stack([np.ones(20), T, T**2], 1)
Y = DESIGN @ [1.0, 2.0, -0.5] + np.random.default_rng(0).normal(size=20) * 0.1
BEST, SQUARES, *_ = np.linalg.lstsq(DESIGN, Y)


def residuals(p: Any) -> Any:
    return p["line"][0] + p["line"][1] * T + p["bend"] * T**2 - Y


FIT = {"line": BEST[:2], "bend": float(BEST[2])}


def test_a_linear_model_has_the_covariance_of_least_squares() -> None:
    exact = np.linalg.inv(DESIGN.T @ DESIGN)
    known = uncertainty.laplace(residuals, FIT, residuals=True, noise=0.1)
    np.testing.assert_allclose(known.covariance, 0.01 * exact, rtol=1e-10)
    estimated = uncertainty.laplace(residuals, FIT, residuals=True)
    np.testing.assert_allclose(estimated.covariance, SQUARES[0] / 17 * exact, rtol=1e-10)
    posterior = uncertainty.laplace(lambda p: (residuals(p) ** 2).sum() / (2 * 0.01), FIT)
    np.testing.assert_allclose(posterior.covariance, 0.01 * exact, rtol=1e-10)
    assert list(known.std) == ["line", "bend"]
    np.testing.assert_allclose(known.std["line"], 0.1 * np.sqrt(np.diagonal(exact))[:2])
    low, high = known.interval(0.9)
    assert high["bend"] - low["bend"] == pytest.approx(2 * stats.norm.ppf(0.95) * known.std["bend"])
    assert np.diagonal(known.correlation) == pytest.approx(np.ones(3))
    assert "std={'line'" in repr(known)


def test_prediction_of_a_linear_model_is_exact_and_of_a_nonlinear_one_of_first_order() -> None:
    fit = uncertainty.laplace(residuals, FIT, residuals=True, noise=0.1)
    x = np.array([2.0, 3.0])
    predicted = fit.propagate(lambda p: {"y": p["line"][0] + p["line"][1] * x + p["bend"] * x**2, "bend": p["bend"]})
    rows = np.concatenate([np.stack([np.ones(2), x, x**2], 1), [[0.0, 0.0, 1.0]]])
    np.testing.assert_allclose(predicted.covariance, rows @ fit.covariance @ rows.T, rtol=1e-12)
    np.testing.assert_allclose(predicted.mean["y"], rows[:2] @ BEST)
    assert type(predicted.mean["bend"]) is float
    ratio = uncertainty.delta(lambda p: p[0] / p[1], np.array([3.0, 2.0]), np.diag([0.01, 0.04]))
    assert ratio.covariance.item() == pytest.approx(0.01 / 4 + 0.04 * 9 / 16)


def test_the_covariance_of_a_result_can_be_differentiated() -> None:
    x = tape.tensor([1.0, 2.0], requires_grad=True)
    uncertainty.delta(lambda p: p**2, x, np.eye(2)).covariance.sum().backward()
    assert x.grad.tolist() == [8.0, 16.0]
    c = tape.tensor(2.0, requires_grad=True)
    with pytest.warns(DetachWarning, match="uses a tensor that requires grad"):
        uncertainty.laplace(lambda p: (c * p * p).sum(), np.ones(2))


def test_what_tells_no_covariance_raises() -> None:
    for fun, x in ((lambda p: p[0] ** 2 - p[1] ** 2, np.ones(2)), (lambda p: (p[0] + p[1]) ** 2, np.zeros(2))):
        with pytest.raises(ValueError, match="Hessian is not positive definite"):
            uncertainty.laplace(fun, x)
    with pytest.raises(ValueError, match="J'J is not positive definite"):
        uncertainty.laplace(lambda p: (p[0] + p[1]) * T, np.ones(2), residuals=True)
    with pytest.raises(ValueError, match="give noise="):
        uncertainty.laplace(lambda p: p * 2.0, np.ones(2), residuals=True)
    with pytest.raises(ValueError, match="noise is that of residuals"):
        uncertainty.laplace(lambda p: (p**2).sum(), np.ones(2), noise=1.0)
    with pytest.raises(ValueError, match="returned 2 elements"):
        uncertainty.laplace(lambda p: p**2, np.ones(2))
    with pytest.raises(ValueError, match="has shape"):
        uncertainty.Gaussian(np.ones(2), np.eye(3))
    with pytest.raises(ValueError, match="between 0 and 1"):
        uncertainty.Gaussian(np.ones(2), np.eye(2)).interval(95)


@given(st.integers(1, 4), st.integers(0, 1000))
def test_parameters_of_any_scale_and_structure(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-8, 8, size + 1)
    root = np.eye(size + 1) + 0.3 * rng.normal(size=(size + 1, size + 1))
    design = root @ np.diag(1.0 / scales)
    x = {"a": [float(v) for v in scales[:1]], "b": (scales[1:],)}

    def errors(p: Any) -> Any:
        return design @ tape.ravel(p)[0]

    normal = uncertainty.laplace(errors, x, residuals=True, noise=1.0)
    exact = np.linalg.inv(root.T @ root)
    np.testing.assert_allclose(normal.covariance / np.outer(scales, scales), exact, rtol=1e-6, atol=1e-8)
    double = normal.propagate(lambda p: {"double": p["b"][0] * 2.0, "first": p["a"][0]})
    np.testing.assert_allclose(double.std["double"], 2.0 * normal.std["b"][0])
    assert double.std["first"] == pytest.approx(normal.std["a"][0])


A, B = 7.0, 0.1
PI = np.pi


def ishigami(x: Any) -> Any:
    return tape.sin(x["x1"]) + A * tape.sin(x["rest"][0]) ** 2 + B * x["rest"][1] ** 4 * tape.sin(x["x1"])


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor])
def test_ishigami_has_the_known_sensitivities(executor: Any) -> None:
    """Sobol' and Kucherenko 2009; the total indices are those of Ishigami and Homma 1990."""
    high = {"x1": PI, "rest": np.array([PI, PI])}
    low = {"x1": -PI, "rest": -np.array([PI, PI])}
    s = uncertainty.dgsm(ishigami, uniform=(low, high), count=4096, executor=executor)
    nu = [(1 + 2 * B * PI**4 / 5 + B**2 * PI**8 / 9) / 2, A**2 / 2, 8 * B**2 * PI**6 / 7]
    assert [s.nu["x1"], *s.nu["rest"]] == pytest.approx(nu, rel=1e-3)
    variance = A**2 / 8 + B * PI**4 / 5 + B**2 * PI**8 / 18 + 0.5
    assert (s.mean, s.variance) == pytest.approx((A / 2, variance), rel=5e-3)
    first = (1 + B * PI**4 / 5) ** 2 / 2
    both = 8 * B**2 * PI**8 / 225
    totals = [(first + both) / variance, A**2 / 8 / variance, both / variance]
    bounds = [s.total["x1"], *s.total["rest"]]
    assert all(bound >= total for bound, total in zip(bounds, totals, strict=True))
    assert bounds == pytest.approx([4 * v / variance for v in nu], rel=1e-2)
    assert np.shape(s.error["rest"]) == (2,)


def test_normal_inputs_of_a_linear_function_have_their_indices() -> None:
    weights, std = np.array([2.0, 1.0, 0.5]), np.array([1.0, 3.0, 0.1])
    s = uncertainty.dgsm(lambda x: weights @ x + 1.0, normal=(np.ones(3), std), count=2048)
    np.testing.assert_allclose(s.nu, weights**2)
    np.testing.assert_allclose(s.total, weights**2 * std**2 / ((weights * std) ** 2).sum(), rtol=1e-2)
    other = uncertainty.dgsm(tape.compile(lambda x: (weights * x).sum()), normal=(np.ones(3), std), count=100, seed=3)
    np.testing.assert_allclose(other.slope, weights)
    still = uncertainty.dgsm(lambda x: (0.0 * x).sum(), uniform=(np.zeros(2), np.ones(2)), count=8)
    assert still.total.tolist() == [0.0, 0.0]


def test_wrong_inputs_raise() -> None:
    for wrong in ({}, {"uniform": (0.0, 1.0), "normal": (0.0, 1.0)}):
        with pytest.raises(ValueError, match="either uniform"):
            uncertainty.dgsm(lambda x: x, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="high lies above low"):
        uncertainty.dgsm(lambda x: x.sum(), uniform=(np.zeros(2), np.zeros(2)))
    with pytest.raises(ValueError, match="std above 0"):
        uncertainty.dgsm(lambda x: x.sum(), normal=(np.zeros(2), np.ones(3)))
    with pytest.raises(ValueError, match="count is 1"):
        uncertainty.dgsm(lambda x: x, uniform=(0.0, 1.0), count=1)
