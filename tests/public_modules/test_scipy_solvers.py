"""SciPy's solvers with functions of tensors: they call them, and Jacobians of ``tape.func``, with arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import curve_fit, least_squares, minimize, newton, root, root_scalar

import tape
from tape.func import grad, hessian, jacfwd, jacrev, jvp

X = np.linspace(0.0, 2.0, 15)
Y = 2.5 * np.exp(-1.3 * X) + 0.5


def residuals(p: Any) -> Any:
    return p[0] * np.exp(-p[1] * X) + p[2] - Y


def residuals_of_tape(p: Any) -> Any:
    return p[0] * tape.exp(-p[1] * tape.as_tensor(X)) + p[2] - tape.as_tensor(Y)


def stacked(p: Any) -> Any:
    return tape.stack([p[0] ** 2 + p[1] - 3.0, p[0] - p[1] ** 2 + 1.0, tape.sin(p[0] * p[1])])


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
@pytest.mark.parametrize("function", [residuals, residuals_of_tape])
@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares(transform: Any, function: Callable[..., Any], method: str) -> None:
    found = least_squares(function, np.ones(3), jac=transform(function), method=method)
    assert found.success
    np.testing.assert_allclose(found.x, [2.5, 1.3, 0.5], atol=1e-6)


def test_least_squares_of_a_stack() -> None:
    by_hand = least_squares(lambda p: [p[0] ** 2 + p[1] - 3, p[0] - p[1] ** 2 + 1, np.sin(p[0] * p[1])], [1.0, 1.0])
    found = least_squares(stacked, [1.0, 1.0], jac=jacrev(stacked))
    np.testing.assert_allclose(found.x, by_hand.x, rtol=1e-5)
    np.testing.assert_allclose(found.cost, by_hand.cost, rtol=1e-8)


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
@pytest.mark.parametrize("method", ["hybr", "lm"])
def test_root(transform: Any, method: str) -> None:
    def f(p: Any) -> Any:
        return tape.stack([p[0] ** 2 + p[1] - 3.0, p[0] - p[1] ** 2 + 1.0])

    found = root(f, [1.0, 1.0], jac=transform(f), method=method)
    assert found.success
    np.testing.assert_allclose(np.asarray(f(found.x)), 0.0, atol=1e-9)


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_curve_fit(transform: Any) -> None:
    def model(x: Any, a: Any, rate: Any, c: Any) -> Any:
        return a * np.exp(-rate * x) + c

    def jacobian(x: Any, *p: Any) -> Any:
        return np.stack(transform(lambda *q: model(x, *q), argnums=(0, 1, 2))(*p), axis=1)

    def of_a_vector(x: Any, *p: Any) -> Any:
        return transform(lambda q: model(x, *q))(np.array(p))

    for jac in (jacobian, of_a_vector):
        found, covariance = curve_fit(model, X, Y, p0=[1.0, 1.0, 0.0], jac=jac)
        np.testing.assert_allclose(found, [2.5, 1.3, 0.5], rtol=1e-6)
        assert covariance.shape == (3, 3)


@pytest.mark.parametrize("method", ["BDF", "Radau", "LSODA"])
@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_solve_ivp(method: str, transform: Any) -> None:
    def rhs(t: Any, y: Any) -> Any:
        del t
        return tape.stack([y[1], 5.0 * (1.0 - y[0] ** 2) * y[1] - y[0]])

    def by_hand(_: float, y: Any) -> Any:
        return [[0.0, 1.0], [-10.0 * y[0] * y[1] - 1.0, 5.0 * (1.0 - y[0] ** 2)]]

    def jacobian(t: float, y: Any) -> Any:
        return transform(lambda v: rhs(t, v))(y)

    np.testing.assert_allclose(jacobian(0.0, np.array([2.0, 0.5])), by_hand(0.0, [2.0, 0.5]))
    found = solve_ivp(rhs, (0.0, 1.0), [2.0, 0.0], method=method, jac=jacobian, rtol=1e-8)
    expected = solve_ivp(rhs, (0.0, 1.0), [2.0, 0.0], method=method, jac=by_hand, rtol=1e-8)
    assert found.success
    np.testing.assert_allclose(found.y[:, -1], expected.y[:, -1], rtol=1e-7)


def test_numbers() -> None:
    def f(x: Any) -> Any:
        return np.cos(x) - x

    for found in (
        root_scalar(f, x0=0.5, fprime=grad(f), method="newton").root,
        root_scalar(f, x0=0.5, fprime=grad(f), fprime2=grad(grad(f)), method="halley").root,
        newton(f, 0.5, fprime=grad(f)),
    ):
        assert abs(found - 0.7390851332151607) < 1e-9


def test_minimize() -> None:
    def rosenbrock(x: Any) -> Any:
        return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()

    start = np.array([-1.2, 1.0, 0.5])
    for options in (
        {"jac": grad(rosenbrock), "hess": hessian(rosenbrock), "method": "trust-exact"},
        {
            "jac": grad(rosenbrock),
            "hessp": lambda x, p: jvp(grad(rosenbrock), (x,), (p,))[1],
            "method": "Newton-CG",
        },
    ):
        np.testing.assert_allclose(minimize(rosenbrock, start, **options).x, 1.0, atol=1e-4)
    np.testing.assert_allclose(minimize(tape.value_and_grad(rosenbrock), start, jac=True).x, 1.0, atol=1e-4)
