"""Optimisers use sparse derivatives by themselves where there are many unknowns and few colours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import tape

quick = pytest.mark.quick
N = 80


def valley(x: Any) -> Any:
    return (10.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def residuals(x: Any) -> Any:
    return tape.cat([3.0 * (x[1:] - x[:-1] ** 2), 1.0 - x[:-1]])


@quick
def test_least_squares_get_sparse_jacobians() -> None:
    fit = tape.optimize.least_squares(residuals, np.full(N, 0.5))
    assert isinstance(fit.jac, scipy.sparse.csr_array)
    np.testing.assert_allclose(fit.x, 1.0, atol=1e-5)
    for more in ({"method": "lm"}, {"tr_solver": "exact"}):
        fit = tape.optimize.least_squares(residuals, np.full(N, 0.9), **more)
        assert isinstance(fit.jac, np.ndarray)
        np.testing.assert_allclose(fit.x, 1.0, atol=1e-5)
    few = tape.optimize.least_squares(residuals, np.full(5, 0.5))
    assert isinstance(few.jac, np.ndarray)
    dense = tape.optimize.least_squares(lambda x: tape.cumsum(x, 0) - 1.0, np.zeros(N))
    assert isinstance(dense.jac, np.ndarray)


@quick
def test_roots() -> None:
    def layer(u: Any) -> Any:
        w = tape.cat([tape.zeros(1), u, tape.zeros(1)])
        return (w[2:] - 2.0 * w[1:-1] + w[:-2]) * (N + 1) ** 2 + tape.exp(w[1:-1])

    found = tape.optimize.root(layer, np.zeros(N))
    assert found.success
    assert abs(layer(tape.tensor(found.x)).numpy()).max() < 1e-8


@quick
@pytest.mark.parametrize("method", ["trust-constr", "trust-exact"])
def test_minimisers_get_sparse_hessians(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = []
    minimize = scipy.optimize.minimize

    def looked_at(*args: Any, **kwargs: Any) -> Any:
        kinds.append(type(kwargs["hess"](np.ones(N))))
        return minimize(*args, **kwargs)

    monkeypatch.setattr(scipy.optimize, "minimize", looked_at)
    found = tape.optimize.minimize(valley, np.full(N, 0.8), method=method)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-4)
    assert kinds == [scipy.sparse.csr_array if method == "trust-constr" else np.ndarray]


@quick
def test_constraints_get_sparse_jacobians() -> None:
    products = scipy.optimize.NonlinearConstraint(lambda x: x[1:] * x[:-1], 0.5, 0.81)
    found = tape.optimize.minimize(valley, np.full(N, 0.8), method="trust-constr", constraints=products)
    assert scipy.sparse.issparse(found.jac[0])
    assert found.constr_violation < 1e-6
    dense = {"type": "ineq", "fun": lambda x: 0.81 - x[1:] * x[:-1]}
    other = tape.optimize.minimize(valley, np.full(N, 0.8), method="slsqp", constraints=dense)
    np.testing.assert_allclose(found.fun, other.fun, rtol=1e-3)
