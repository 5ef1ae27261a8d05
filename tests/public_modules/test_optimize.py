"""tape.ravel, and tape.optimize: SciPy's solvers on structures of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import tape

TREE: dict[str, Any] = {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "rest": [0.5, (np.float32([2.0]), None)]}


def test_ravel_of_arrays() -> None:
    vector, back = tape.ravel(TREE)
    assert isinstance(vector, np.ndarray)
    assert vector.tolist() == [1.0, 2.0, 3.0, 4.0, 0.5, 2.0]
    found = back(vector * 2)
    assert found["w"].tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert (found["rest"][0], type(found["rest"][0]), found["rest"][1][1]) == (1.0, float, None)
    assert found["rest"][1][0].dtype == np.float32
    found["w"][...] = 0.0
    vector[...] = 7.0
    assert TREE["w"][0, 0] == 1.0
    with pytest.raises(ValueError, match=r"takes a vector of 6, not of shape \(5,\)"):
        back(vector[:5])
    with pytest.raises(TypeError, match=r"ravel: \['a'\]\[1\] is a str, no number"):
        tape.ravel({"a": [1.0, "b"]})


def test_ravel_of_tensors_is_recorded() -> None:
    x, y = tape.tensor([[1.0, 2.0]], requires_grad=True), tape.tensor(3.0, requires_grad=True)
    vector, back = tape.ravel({"x": x, "y": y, "n": 2})
    (vector * tape.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert (x.grad.tolist(), y.grad.item()) == ([[1.0, 10.0]], 100.0)
    v = tape.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    parts = back(v)
    assert parts["x"].shape == (1, 2)
    ((parts["x"] ** 2).sum() * parts["y"] * parts["n"]).backward()
    assert v.grad.tolist() == [24.0, 48.0, 20.0, 15.0]
    assert isinstance(back(np.ones(4))["x"], np.ndarray)


def test_ravel_of_a_tensor_is_as_before() -> None:
    x = tape.ones(2, 3)
    assert tape.ravel(x).shape == (6,)
    assert x.ravel().shape == (6,)
    assert tape.ravel(np.ones((2, 3))).shape == (6,)
    assert tape.ravel({})[0].shape == (0,)


@dataclass(frozen=True)
class Curve:
    """Parameters."""

    a: Any
    b: Any
    name: str = "curve"


def rosenbrock(x: Any, scale: Any = 100.0) -> Any:
    return (scale * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def of_curve(p: Curve, scale: Any = 100.0) -> Any:
    assert p.name == "curve"
    return rosenbrock(tape.stack([p.a, *p.b]) if isinstance(p.a, tape.Tensor) else np.array([p.a, *p.b]), scale)


START = Curve(-1.2, np.array([1.0, 0.5]))
METHODS = [
    None, "BFGS", "CG", "L-BFGS-B", "TNC", "SLSQP", "Newton-CG", "trust-ncg", "trust-krylov", "trust-exact", "dogleg",
    "trust-constr", "Nelder-Mead", "Powell", "COBYLA",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:delta_grad")
@pytest.mark.parametrize("method", METHODS)
def test_each_method_as_scipy(method: str | None) -> None:
    start = Curve(0.98, np.array([0.96, 0.93])) if method == "dogleg" else START  # it wants a convex neighbourhood
    x0 = np.array([start.a, *start.b])
    options = {"maxiter": 2000} if method not in ("trust-constr", "TNC") else None
    found = tape.optimize.minimize(of_curve, start, args=(10.0,), method=method, options=options)
    assert isinstance(found.x, Curve)
    assert isinstance(found.x.a, float)
    assert found.x.b.shape == (2,)
    np.testing.assert_allclose([found.x.a, *found.x.b], 1.0, atol=2e-2 if method == "COBYLA" else 2e-3)
    if method in (None, "BFGS", "L-BFGS-B", "SLSQP"):
        by_scipy = optimize.minimize(lambda x: rosenbrock(x, 10.0), x0, method=method, options=options)
        assert {*by_scipy} == {*found}
        assert found.nfev < by_scipy.nfev
        assert isinstance(found.jac, Curve)


def test_arrays_and_lists_of_numbers_are_as_scipys() -> None:
    for x0 in (np.array([-1.2, 1.0]), [-1.2, 1.0], (-1.2, 1), np.array([-1, 1])):
        found = tape.optimize.minimize(rosenbrock, x0)
        assert isinstance(found.x, np.ndarray)
        np.testing.assert_allclose(found.x, 1.0, atol=1e-4)
    found = tape.optimize.minimize(lambda x: (x - 2.0) ** 2, 0.5)
    assert found.x == pytest.approx(2.0)


def test_tensors() -> None:
    found = tape.optimize.minimize(of_curve, Curve(tape.tensor(-1.2, requires_grad=True), tape.tensor([1.0, 0.5])))
    assert isinstance(found.x.a, tape.Tensor)
    assert not found.x.a.requires_grad
    np.testing.assert_allclose(found.x.b.numpy(), 1.0, atol=1e-4)


def test_bounds() -> None:
    for bounds in (
        Curve((None, 0.5), (0.0, [0.2, None])),
        [(None, 0.5), (0.0, 0.2), (0.0, None)],
        optimize.Bounds([-np.inf, 0.0, 0.0], [0.5, 0.2, np.inf]),
    ):
        found = tape.optimize.minimize(of_curve, START, method="L-BFGS-B", bounds=bounds)
        expected = optimize.minimize(
            rosenbrock, [-1.2, 1.0, 0.5], method="L-BFGS-B", bounds=[(None, 0.5), (0.0, 0.2), (0.0, None)]
        )
        np.testing.assert_allclose([found.x.a, *found.x.b], expected.x, atol=1e-4)
    found = tape.optimize.minimize(
        lambda p: ((p["a"] - 3.0) ** 2).sum() + p["b"] ** 2,
        {"a": np.zeros(2), "b": 1.0},
        bounds={"a": (0, 1), "b": None},
    )
    np.testing.assert_allclose(found.x["a"], 1.0)
    with pytest.raises(TypeError, match=r"bounds is a dict, where a structure like \{'a': \*\}"):
        tape.optimize.minimize(lambda p: p["a"] ** 2, {"a": 1.0}, bounds={"b": None})


@pytest.mark.filterwarnings("ignore:delta_grad")
@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_constraints(method: str) -> None:
    def on_circle(p: Curve, radius: Any = 1.0) -> Any:
        return p.a**2 + (p.b**2).sum() - radius

    def positive(p: Curve) -> Any:
        return {"a": p.a, "b": p.b[1]}

    expected = optimize.minimize(
        rosenbrock,
        [0.5, 0.4, 0.3],
        method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda x: (x**2).sum() - 0.5},
            {"type": "ineq", "fun": lambda x: x[[0, 2]]},
        ],
        tol=1e-10,
    )
    for constraints in (
        [{"type": "eq", "fun": on_circle, "args": (0.5,)}, {"type": "ineq", "fun": positive}],
        [
            optimize.NonlinearConstraint(lambda p: on_circle(p, 0.5), 0.0, 0.0),
            optimize.LinearConstraint([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], 0.0, np.inf),
        ],
    ):
        start = Curve(0.5, np.array([0.4, 0.3]))
        found = tape.optimize.minimize(of_curve, start, method=method, constraints=constraints, tol=1e-8)
        np.testing.assert_allclose([found.x.a, *found.x.b], expected.x, atol=1e-3)


def test_ones_own_derivatives_and_callbacks() -> None:
    seen: list[Any] = []
    quadratic = {"a": 1.0, "b": np.array([2.0, 3.0])}

    def f(p: Any) -> Any:
        return p["a"] ** 2 + (p["b"] ** 2).sum()

    def gradient(p: Any) -> Any:
        return {"a": 2 * p["a"], "b": 2 * p["b"]}

    for more in (
        {"jac": gradient},
        {"jac": gradient, "hess": lambda _: 2 * np.eye(3), "method": "trust-exact"},
        {"jac": gradient, "hessp": lambda _, d: {"a": 2 * d["a"], "b": 2 * d["b"]}, "method": "Newton-CG"},
        {"jac": "2-point"},
        {"jac": False},
        {"callback": seen.append},
        {"callback": lambda intermediate_result: seen.append(intermediate_result.x)},
    ):
        found = tape.optimize.minimize(f, quadratic, **more)
        np.testing.assert_allclose(found.x["b"], 0.0, atol=1e-5)
    found = tape.optimize.minimize(lambda p: (f(p), gradient(p)), quadratic, jac=True)
    np.testing.assert_allclose(found.x["b"], 0.0, atol=1e-5)
    assert len(seen) >= 2
    assert all(isinstance(p, dict) for p in seen)


def test_least_squares_and_root() -> None:
    x = np.linspace(0.0, 2.0, 15)
    y = 2.5 * np.exp(-1.3 * x) + 0.5

    def residuals(p: Any, offset: Any = 0.0) -> Any:
        return {"all": p["a"] * np.exp(-p["k"][0] * x) + p["k"][1] + offset - y}

    for more in ({}, {"jac": "2-point"}, {"method": "lm"}, {"loss": "soft_l1"}):
        found = tape.optimize.least_squares(residuals, {"a": 1.0, "k": [1.0, 0.0]}, **more)
        np.testing.assert_allclose([found.x["a"], *found.x["k"]], [2.5, 1.3, 0.5], atol=1e-5)
    found = tape.optimize.root(lambda p: [p["a"] ** 2 - 4.0, p["b"] * p["a"] - 1.0], {"a": 1.0, "b": 1.0})
    assert (found.x["a"], found.x["b"]) == (pytest.approx(2.0), pytest.approx(0.5))
