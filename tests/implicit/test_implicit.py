"""Implicit functions against closed forms, adjoints by hand and differences; to second order, batched, compiled."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import tape
from tape.errors import ConvergenceError

implicit = tape.implicit
A = np.array([0.3, 0.5, 0.7])


def _cubic(a: Any, **more: Any) -> Any:
    """Return x with x^3 + x = a, of which each derivative is known."""
    return implicit.root(lambda x: x**3 + x - a, np.ones(3), **more)


def _slope(a: Any) -> Any:
    return 1.0 / (3.0 * np.asarray(_cubic(a)) ** 2 + 1.0)


def _curvature(a: Any) -> Any:
    return -6.0 * np.asarray(_cubic(a)) * _slope(a) ** 3


def _differences(f: Callable[[Any], Any], a: Any, h: float = 1e-6) -> Any:
    steps = h * np.eye(a.size).reshape(-1, *a.shape)
    return np.array([(float(f(a + s)) - float(f(a - s))) / (2 * h) for s in steps]).reshape(a.shape)


def _value(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda a: tape.value_and_grad(f)(a)[0]


def _sparse_jac(x: Any, *_: Any) -> Any:
    return scipy.sparse.diags_array(3 * np.asarray(x) ** 2 + 1.0).tocsr()


WAYS: dict[str, dict[str, Any]] = {
    "newton": {},
    "hybr": {"solver": "hybr"},
    "krylov": {"solver": "krylov"},
    "user's": {"solver": lambda f, x: scipy.optimize.fsolve(f, x, xtol=1e-13)},
    "scipy's result": {"solver": lambda f, x: scipy.optimize.root(f, x, jac=f.jac, tol=1e-13)},
    "dense jac": {"jac": lambda x: tape.diag(3 * x**2 + 1.0)},
    "sparse jac": {"jac": _sparse_jac},
    "csc jac": {"jac": lambda x: _sparse_jac(x).tocsc()},
    "tape's csr": {"jac": lambda x: tape.sparse.CSR(3 * x**2 + 1.0, [0, 1, 2], [0, 1, 2, 3], (3, 3))},
    "matrix-free": {"linear": "gmres"},
    "cg": {"linear": "cg"},
    "user's linear": {"linear": lambda product, v: np.linalg.solve(np.stack([product(e) for e in np.eye(3)]), v)},
    "batch": {"batch_dims": 1},
}


@pytest.mark.quick
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_derivatives(way: str) -> None:
    run = partial(_cubic, **WAYS[way])
    value, gradient = tape.value_and_grad(lambda a: run(a).sum())(A)
    assert value == pytest.approx(float(_cubic(A).sum()), abs=1e-10)
    np.testing.assert_allclose(gradient, _slope(A), atol=1e-10)
    np.testing.assert_allclose(tape.func.hessian(lambda a: run(a).sum())(A), np.diag(_curvature(A)), atol=1e-8)


@pytest.mark.quick
def test_arguments_closures_structures_and_orders() -> None:
    def f(a: Any) -> Any:
        x = implicit.root(
            lambda x: {"u": x["u"] * 2 - x["v"].sum() * a[0], "v": x["v"] ** 3 - tape.sin(a) * x["u"]},
            {"u": 1.0, "v": np.ones(3)},
        )
        return (x["u"] * x["v"]).sum()

    np.testing.assert_allclose(tape.func.grad(f)(A), _differences(_value(f), A), rtol=1e-6)
    rows = [(tape.func.grad(f)(A + s) - tape.func.grad(f)(A - s)) / 2e-5 for s in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(tape.func.hessian(f)(A), np.array(rows), rtol=1e-4, atol=1e-7)
    third = tape.func.grad(tape.func.grad(tape.func.grad(lambda a: implicit.root(lambda x, c: x * x - c, 1.0, a))))
    assert third(9.0) == pytest.approx(0.375 * 9.0**-2.5, rel=1e-9)


def test_forward_mode_vmap_and_jacobians() -> None:
    expected = np.diag(_slope(A))
    for jacobian in (tape.func.jacrev, tape.func.jacfwd):
        np.testing.assert_allclose(jacobian(_cubic)(A), expected, atol=1e-12)

    def one(a: Any) -> Any:
        return implicit.root(lambda x: x**3 + x - a, 1.0)

    rows = tape.tensor(A)
    np.testing.assert_allclose(tape.vmap(one)(rows), _cubic(A), atol=1e-12)
    np.testing.assert_allclose(tape.vmap(tape.func.grad(one))(rows), _slope(A), atol=1e-12)
    np.testing.assert_allclose(tape.vmap(tape.func.grad(tape.func.grad(one)))(rows), _curvature(A), atol=1e-10)
    x = tape.tensor(A, requires_grad=True)
    tape.vmap(one)(x).sum().backward()
    np.testing.assert_allclose(x.grad, _slope(A), atol=1e-12)


def test_problems_side_by_side() -> None:
    matrices = np.random.default_rng(0).normal(size=(2, 2, 3, 3)) * 0.2 + np.eye(3)

    def f(m: Any) -> Any:
        x = implicit.root(lambda x: (m @ x[..., None])[..., 0] + 0.1 * x**3 - 1, np.zeros((2, 2, 3)), batch_dims=2)
        return (x**2).sum()

    np.testing.assert_allclose(tape.func.grad(f)(matrices), _differences(_value(f), matrices), rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="batch_dims is 2"):
        implicit.root(lambda x: x, np.zeros(3), batch_dims=2)


@pytest.mark.quick
def test_leaves_modules_and_loops_that_bind_names_anew() -> None:
    w = tape.tensor([2.0, 3.0], requires_grad=True)
    u = w * 2
    implicit.root(lambda x: x**2 - w * u, np.ones(2)).sum().backward(retain_graph=True)
    np.testing.assert_allclose(w.grad, [np.sqrt(2)] * 2, atol=1e-12)
    (g,) = tape.autograd.grad(implicit.root(lambda x: x**3 - w * u, np.ones(2)).sum(), w, create_graph=True)
    (h,) = tape.autograd.grad(g.sum(), w)
    np.testing.assert_allclose(h, -(2 ** (1 / 3)) * 2 / 9 * np.array([2.0, 3.0]) ** (-4 / 3), atol=1e-10)

    def euler(a: Any) -> Any:
        y = tape.ones(2) * a
        for _ in range(3):
            y = implicit.root(lambda z: z - y + 0.1 * z**3 * a, y)  # noqa: B023 (which it stands for when it is called)
        return y.sum()

    assert tape.func.grad(euler)(1.0) == pytest.approx(float(_differences(_value(euler), np.array(1.0))), rel=1e-7)


def test_a_function_that_has_changed_since_raises() -> None:
    class Model:
        def __init__(self, a: Any) -> None:
            self.state = a

        def residual(self, x: Any) -> Any:
            return x**3 + x - self.state

    a = tape.tensor(A, requires_grad=True)
    model = Model(a * 1)
    y = implicit.root(model.residual, np.ones(3))
    model.state = y
    with pytest.raises(RuntimeError, match=r"implicit.root: the function is not what it was .* pass it as an argument"):
        y.sum().backward()


def test_many_calls_keep_their_graphs() -> None:
    gradient = tape.value_and_grad(lambda a: _cubic(tape.sin(a)).sum())
    expected = gradient(A)
    for _ in range(150):  # instructions that nobody reaches are dropped now and then
        value, found = gradient(A)
        assert value == expected[0]
        np.testing.assert_array_equal(found, expected[1])


def test_threads_share_a_leaf() -> None:
    w = tape.tensor(A, requires_grad=True)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            (g,) = tape.autograd.grad(_cubic(w).sum(), w)
            if not np.allclose(g, _slope(A), atol=1e-12):
                wrong.append(g)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.quick
def test_fixed_points_and_minima() -> None:
    def fixed(a: Any, **more: Any) -> Any:
        return implicit.fixed_point(lambda x: tape.cos(a * x), np.full(3, 0.5), **more).sum()

    expected = _differences(_value(fixed), A)
    for more in ({}, {"solver": "del2"}, {"solver": "iteration"}, {"solver": scipy.optimize.fixed_point}):
        np.testing.assert_allclose(tape.func.grad(partial(fixed, **more))(A), expected, rtol=1e-6)

    def least(a: Any, **more: Any) -> Any:
        return implicit.minimize(lambda x, b: ((x - b) ** 2).sum() + (x**4).sum() + x[0] * a[1], np.zeros(3), a, **more)

    jacobian = tape.func.jacrev(least)(A)
    for k in range(3):
        np.testing.assert_allclose(jacobian[k], _differences(_value(lambda a: least(a)[k]), A), rtol=1e-6, atol=1e-8)  # noqa: B023
    by_scipy: Any = lambda f, x: scipy.optimize.minimize(f, x, jac=f.jac, hess=f.hess, method="trust-exact")  # noqa: E731
    for solver in ("Nelder-Mead", "L-BFGS-B", "newton-cg", by_scipy):
        np.testing.assert_allclose(tape.func.jacrev(partial(least, solver=solver))(A), jacobian, atol=1e-9)
    second = tape.func.hessian(lambda a: least(a).sum())(A)
    rows = [(tape.func.grad(lambda a: least(a).sum())(A + s) - tape.func.grad(lambda a: least(a).sum())(A - s)) / 2e-5
            for s in 1e-5 * np.eye(3)]  # fmt: skip
    np.testing.assert_allclose(second, np.array(rows), atol=1e-6)


@pytest.mark.quick
def test_linear_solves() -> None:
    a, b = np.array([[4.0, 1.0, 0.0], [0.5, 3.0, 1.0], [0.0, 1.0, 5.0]]), np.array([1.0, 2.0, 3.0])

    def dense(m: Any) -> Any:
        return (implicit.linear_solve(m, b) ** 2).sum()

    def by_products(m: Any, solver: str) -> Any:
        return (implicit.linear_solve(lambda x: m @ x, b, solver=solver) ** 2).sum()

    adjoint = np.linalg.solve(a.T, 2 * np.linalg.solve(a, b))
    by_hand = -np.outer(adjoint, np.linalg.solve(a, b))
    np.testing.assert_allclose(tape.func.grad(dense)(a), by_hand, atol=1e-12)
    for solver in ("gmres", "bicgstab", "lgmres"):
        np.testing.assert_allclose(tape.func.grad(partial(by_products, solver=solver))(a), by_hand, atol=1e-10)
    gradient = tape.func.grad(lambda b: (implicit.linear_solve(scipy.sparse.csr_array(a), b) ** 2).sum())(b)
    np.testing.assert_allclose(gradient, adjoint, atol=1e-12)
    data = tape.tensor(a[a != 0], requires_grad=True)
    matrix = tape.sparse.csr(scipy.sparse.csr_array(a), data)
    for solver in (None, "gmres"):
        (g,) = tape.autograd.grad((implicit.linear_solve(matrix, b, solver=solver) ** 2).sum(), data)
        np.testing.assert_allclose(g, by_hand[a != 0], atol=1e-10)


@pytest.mark.quick
def test_errors_say_what_is_wrong() -> None:
    a = tape.tensor(A, requires_grad=True)
    with pytest.raises(ConvergenceError, match="Newton's method did not converge"):
        implicit.root(lambda x: x * x + 1.0 + a**2, np.ones(3))
    with pytest.raises(ConvergenceError, match="the solver did not converge"):
        implicit.root(lambda x: x * x + 1.0, 1.0, solver=scipy.optimize.root)
    with pytest.raises(ConvergenceError, match="the iteration did not converge"):
        implicit.fixed_point(lambda x: 2 * x + 1.0, 1.0, max_steps=20)
    with pytest.raises(ValueError, match="3 numbers for 1 unknowns"):
        implicit.root(lambda x: x - a, 1.0)
    with pytest.raises(TypeError, match="2 numbers; one is minimised"):
        implicit.minimize(lambda x: x, np.ones(2))
    with pytest.raises(ConvergenceError, match="is no minimum"):
        implicit.minimize(
            lambda x: (x - 3.0) ** 2, 0.5, solver=lambda f, x: scipy.optimize.minimize(f, x, bounds=[(0.0, 1.0)])
        )
    y = implicit.root(lambda x: (x - a) * 0.0, np.ones(3), solver=lambda _, x: x)
    with pytest.raises(np.linalg.LinAlgError, match=r"implicit.root: the Jacobian at the solution is singular"):
        y.sum().backward()
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        implicit.root(lambda x: x.sum() - a, np.ones(3), jac=scipy.sparse.csr_array(np.ones((3, 3))))
    with pytest.raises(ValueError, match="the function writes to a tensor"):
        implicit.root(lambda x: x - a.clone().copy_(a) + w.add_(1.0), np.ones(3)) if (w := a * 1) is not None else None
    with pytest.raises(TypeError, match="ravel"):
        implicit.root(lambda x: x, "x")


def _nested(a: Any) -> Any:
    held = [a * 2, {"q": tape.sin(a)}]

    def inner(x: Any) -> Any:
        return x * held[0] - held[1]["q"]

    total = a.sum()
    return implicit.root(lambda x, scale=total: inner(x) * scale + x**3, np.zeros(3)).sum()


def _steps(a: Any) -> Any:
    y = tape.ones(3) * a
    for _ in range(4):
        y = implicit.root(lambda z: z - y + 0.1 * z**3 * a, y)  # noqa: B023 (which it stands for when it is called)
    return y.sum()


def _with_csr(a: Any) -> Any:
    m = tape.sparse.CSR(a + 3.0, [0, 1, 2], [0, 1, 2, 3], (3, 3))
    ones = np.arange(4)
    return implicit.root(
        lambda x: m @ x + x**3 - a, np.ones(3), jac=lambda x: tape.sparse.CSR(m.data + 3 * x**2, ones[:3], ones, (3, 3))
    ).sum()


COMPILED: dict[str, Callable[[Any], Any]] = {
    "argument": lambda a: implicit.root(lambda x, a: x**3 + x - a, np.ones(3), a).sum(),
    "closure": lambda a: _cubic(tape.sin(a) * a).sum(),
    "nested": _nested,
    "minimum": lambda a: implicit.minimize(lambda x: ((x - a) ** 2).sum() + (x**4).sum(), np.zeros(3)).sum(),
    "loop": _steps,
    "sparse": _with_csr,
}


@pytest.mark.quick
@pytest.mark.parametrize("name", COMPILED)
def test_one_operation_of_a_compiled_program(name: str) -> None:
    f = COMPILED[name]
    plain = tape.value_and_grad(f)
    both = tape.compile(tape.value_and_grad(f), mode="max")
    outside = tape.value_and_grad(tape.compile(f, mode="max"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(200):  # how soon they are replayed is a matter of time
            if all(sum(program.hits for program in c.programs) > 3 for c in (both, outside)):
                break
            expected = plain(A + 0.1 * k)
            for compiled in (both, outside):
                value, gradient = compiled(A + 0.1 * k)
                assert value == pytest.approx(expected[0], abs=1e-11)
                np.testing.assert_allclose(gradient, expected[1], atol=1e-10)
    assert both.programs


def test_programs_see_what_changes_outside() -> None:
    w = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    rates = {"k": 0.5}

    def f(a: Any) -> Any:
        return implicit.root(lambda x: x**3 + w * x * rates["k"] - a, np.ones(3)).sum()

    compiled = tape.compile(f, mode="max")
    for k in range(60):
        rates["k"] = 0.5 if k < 40 else 2.0
        with tape.no_grad():
            w.add_(0.1)
        found = []
        for run in (compiled, f):
            a, w.grad = tape.tensor(A + 0.1 * k, requires_grad=True), None
            value = run(a)
            value.backward()
            found.append((value.item(), a.grad, w.grad))
        assert found[0][0] == pytest.approx(found[1][0], abs=1e-12)
        for x, y in zip(found[0][1:], found[1][1:], strict=True):
            np.testing.assert_allclose(x, y, atol=1e-11)
    assert compiled.programs


def test_constants_and_single_precision() -> None:
    with tape.no_grad():
        x = implicit.root(lambda x, a: x * x - a, 1.0, 4.0)
    assert not x.requires_grad
    assert x.item() == pytest.approx(2.0)
    single = tape.tensor([4.0, 9.0], dtype=tape.float32, requires_grad=True)
    y = implicit.root(lambda x: x * x - single, tape.ones(2, dtype=tape.float32))
    assert y.dtype == tape.float32
    y.sum().backward()
    np.testing.assert_allclose(single.grad, [0.25, 1 / 6], rtol=1e-5)
    start = tape.ones(2, requires_grad=True)
    assert not implicit.root(lambda x: x * x - 4.0, start).requires_grad
