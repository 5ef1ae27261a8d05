"""``tape.quadrature.quad`` against SciPy's and closed forms, with gradients to bounds, arguments and closures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate

import tape
from tape.errors import ConvergenceError

quad = tape.quadrature.quad

INTEGRALS: list[tuple[Callable[[Any], Any], float, float]] = [
    (lambda x: np.exp(-x * x), -np.inf, np.inf),
    (lambda x: 1 / (1 + x * x), 0.5, np.inf),
    (np.exp, -np.inf, 0.3),
    (lambda x: np.exp(-x), np.inf, 1.0),
    (np.sqrt, 0.0, 2.0),
    (lambda x: np.sin(40 * x), 3.0, -1.0),
    (lambda x: x**3, -1.0, 1.0),
    (lambda x: 1 / (1e-4 + x * x), -1.0, 1.0),
    (lambda x: x * 0.0, 0.0, 1.0),
]


@pytest.mark.quick
@pytest.mark.parametrize("number", range(len(INTEGRALS)))
def test_values_are_scipys(number: int) -> None:
    f, a, b = INTEGRALS[number]
    expected, _ = scipy.integrate.quad(f, a, b, epsabs=1e-13, epsrel=1e-11, limit=500)
    assert quad(f, a, b).item() == pytest.approx(expected, rel=1e-9, abs=1e-11)


@pytest.mark.quick
def test_gradients_to_bounds_arguments_and_closures() -> None:
    def f(a: Any, b: Any, k: Any) -> Any:
        return quad(lambda x, c: tape.exp(-k * x) * c, a, b, k * k)

    _, (by_a, by_b, by_k) = tape.value_and_grad(f, (0, 1, 2))(0.2, 1.5, 0.7)
    assert by_a == pytest.approx(-np.exp(-0.14) * 0.49, rel=1e-10)
    assert by_b == pytest.approx(np.exp(-1.05) * 0.49, rel=1e-10)
    closed = lambda k: k * (np.exp(-k * 0.2) - np.exp(-k * 1.5))  # noqa: E731
    assert by_k == pytest.approx((closed(0.7 + 1e-6) - closed(0.7 - 1e-6)) / 2e-6, rel=1e-8)
    assert tape.func.grad(lambda k: quad(lambda x: tape.exp(-k * x), 0.0, np.inf))(2.0) == pytest.approx(-0.25)
    second = tape.func.grad(tape.func.grad(lambda k: quad(lambda x: tape.exp(-k * x), 0.0, np.inf)))(2.0)
    assert second == pytest.approx(0.25)
    assert tape.func.grad(lambda b: quad(lambda x: tape.exp(-x), b, np.inf))(1.0) == pytest.approx(-np.exp(-1.0))


def test_several_integrals_points_and_errors() -> None:
    k = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    values = quad(lambda x: tape.exp(-k[:, None] * x), 0.0, 1.0)
    np.testing.assert_allclose(values.detach(), (1 - np.exp(-np.arange(1.0, 4.0))) / np.arange(1.0, 4.0), rtol=1e-12)
    jump = quad(lambda x: np.where(x < 0.3, 1.0, 2.0), 0.0, 1.0, points=[0.3])
    assert jump.item() == pytest.approx(1.7, abs=1e-14)
    with pytest.raises(ConvergenceError, match="parts are not enough"):
        quad(lambda x: 1 / x, 0.0, 1.0)
    with pytest.raises(ValueError, match="does not end in n"):
        quad(lambda x: x.sum(), 0.0, 1.0)
    with pytest.raises(ValueError, match="between finite bounds"):
        quad(lambda x: x, 0.0, 1.0, points=[2.0])


def test_programs_of_one_choice_of_parts() -> None:
    f = tape.value_and_grad(lambda k: quad(lambda x: tape.exp(-k * x), 0.0, k))
    compiled = tape.compile(f, mode="max")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(30):
            k = 1.0 + 0.01 * n
            np.testing.assert_allclose(compiled(k), f(k), rtol=1e-12)
    assert compiled.programs
