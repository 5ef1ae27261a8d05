"""SciPy's functions called with tensors that require grad: each raises, and says what to write."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate as si
import scipy.optimize as so
import scipy.sparse as ss
import scipy.sparse.linalg as sl

import tape

A = ss.csr_array(np.array([[4.0, 1.0], [1.0, 3.0]]))
ONES = np.ones(2)
ROOT, MINIMUM, ODE = r"write tape\.implicit\.root\(", r"write tape\.implicit\.minimize\(", r"write tape\.ode\.solve\("
FIXED = r"write tape\.implicit\.fixed_point\("
QUAD, LINEAR = r"write tape\.quadrature\.quad\(", r"write tape\.implicit\.linear_solve\("


def _f(x: Any, a: Any) -> Any:
    return x * x - a


def _q(x: Any, a: Any) -> Any:
    return ((x - a) ** 2).sum()


def _operator(v: Any) -> Any:
    return sl.LinearOperator((2, 2), matvec=lambda x: x * v)


CALLS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "root": (ROOT, lambda _, v: so.root(lambda x: _f(x, v), ONES)),
    "root, args": (ROOT, lambda _, v: so.root(_f, ONES, args=(v,))),
    "root, start": (ROOT, lambda _, v: so.root(lambda x: x - 1, v)),
    "root, lm": (ROOT, lambda _, v: so.root(_f, ONES, args=(v,), method="lm")),
    "root, krylov": (ROOT, lambda _, v: so.root(_f, ONES, args=(v,), method="krylov")),
    "root, list": (ROOT, lambda t, _: so.root(lambda x: [x[0] ** 2 - t, x[1] - 1], ONES)),
    "root, jac": (ROOT, lambda _, v: so.root(lambda x: x - 1, ONES, jac=lambda x: v[:, None] * np.diag(x))),
    "fsolve": (ROOT, lambda _, v: so.fsolve(lambda x: _f(x, v), ONES)),
    "fsolve, number": (ROOT, lambda t, _: so.fsolve(_f, 1.0, args=(t,))),
    "brentq": (ROOT, lambda t, _: so.brentq(lambda x: _f(x, t), 0, 9)),
    "brentq, args": (ROOT, lambda t, _: so.brentq(_f, 0, 9, args=(t,))),
    "bisect": (ROOT, lambda t, _: so.bisect(_f, 0, 9, args=(t,))),
    "ridder": (ROOT, lambda t, _: so.ridder(_f, 0, 9, args=(t,))),
    "toms748": (ROOT, lambda t, _: so.toms748(_f, 0, 9, args=(t,))),
    "newton": (ROOT, lambda t, _: so.newton(lambda x: _f(x, t), 1.0)),
    "newton, slope": (ROOT, lambda t, _: so.newton(_f, 1.0, fprime=lambda x, _: 2 * x, args=(t,))),
    "newton, arrays": (ROOT, lambda _, v: so.newton(_f, ONES, args=(v,))),
    "newton, all": (ROOT, lambda t, _: so.newton(_f, 1.0, args=(t,), full_output=True)),
    "newton, start": (ROOT, lambda t, _: so.newton(lambda x: x * x - 2.0, t)),
    "root_scalar": (ROOT, lambda t, _: so.root_scalar(_f, args=(t,), bracket=(0, 9))),
    "root_scalar, secant": (ROOT, lambda t, _: so.root_scalar(_f, args=(t,), x0=1.0, x1=2.0)),
    "root_scalar, slope": (ROOT, lambda t, _: so.root_scalar(lambda x: (x * x - t, 2 * x), x0=1.0, fprime=True)),
    "newton_krylov": (ROOT, lambda _, v: so.newton_krylov(lambda x: _f(x, v), ONES)),
    "fixed_point": (FIXED, lambda t, _: so.fixed_point(lambda x: (x + t / x) / 2, 1.0)),
    "fixed_point, arrays": (
        FIXED, lambda _, v: so.fixed_point(lambda x, a: (x + a / x) / 2, ONES, (v,))
    ),
    "minimize": (MINIMUM, lambda _, v: so.minimize(_q, np.zeros(2), args=(v,))),
    "minimize, start": (MINIMUM, lambda _, v: so.minimize(lambda x: (x**2).sum(), v)),
    "minimize, Nelder-Mead": (MINIMUM, lambda _, v: so.minimize(_q, np.zeros(2), args=(v,), method="Nelder-Mead")),
    "minimize, SLSQP": (MINIMUM, lambda _, v: so.minimize(_q, np.zeros(2), args=(v,), method="SLSQP")),
    "minimize, gradient": (
        MINIMUM, lambda _, v: so.minimize(tape.value_and_grad(lambda x: _q(x, v)), np.zeros(2), jac=True)
    ),
    "minimize, bounds": (MINIMUM, lambda t, _: so.minimize(lambda x: (x**2).sum(), ONES, bounds=[(t, 9), (0, 9)])),
    "minimize, constraint": (
        MINIMUM,
        lambda t, _: so.minimize(lambda x: (x**2).sum(), ONES, constraints={"type": "eq", "fun": lambda x: x[0] - t}),
    ),
    "minimize_scalar": (MINIMUM, lambda t, _: so.minimize_scalar(lambda x: (x - t) ** 2)),
    "minimize_scalar, bounds": (MINIMUM, lambda t, _: so.minimize_scalar(lambda x: (x - t) ** 2, bounds=(0, 9))),
    "brent": (MINIMUM, lambda t, _: so.brent(lambda x: (x - t) ** 2)),
    "golden": (MINIMUM, lambda t, _: so.golden(lambda x: (x - t) ** 2)),
    "fminbound": (MINIMUM, lambda t, _: so.fminbound(lambda x: (x - 1) ** 2, 0, t)),
    "fmin": (MINIMUM, lambda _, v: so.fmin(_q, np.zeros(2), args=(v,), disp=0)),
    "least_squares": (r"write tape\.implicit\.minimize\(lambda", lambda _, v: so.least_squares(_f, ONES, args=(v,))),
    "curve_fit, y": ("without gradients|minimize", lambda _, v: so.curve_fit(lambda x, a: a * x, np.arange(2.0), v)),
    "linprog": ("scipy.optimize.linprog", lambda _, v: so.linprog(v, A_ub=[[-1.0, -1.0]], b_ub=[-1.0])),
    "quad": (QUAD, lambda t, _: si.quad(lambda x: x * t, 0, 1)),
    "quad, args": (QUAD, lambda t, _: si.quad(_f, 0, 1, args=(t,))),
    "quad, bound": (QUAD, lambda t, _: si.quad(lambda x: x, 0, t)),
    "quad_vec": (QUAD, lambda _, v: si.quad_vec(lambda x: x * v, 0, 1)),
    "dblquad": (QUAD, lambda t, _: si.dblquad(lambda y, x: x * y * t, 0, 1, 0, 1)),
    "solve_ivp": (ODE, lambda t, _: si.solve_ivp(lambda _, y: -t * y, (0, 1), [1.0])),
    "solve_ivp, args": (ODE, lambda t, _: si.solve_ivp(lambda _, y, a: -a * y, (0, 1), [1.0], args=(t,))),
    "solve_ivp, start": (ODE, lambda _, v: si.solve_ivp(lambda _, y: -y, (0, 1), v)),
    "solve_ivp, span": (ODE, lambda t, _: si.solve_ivp(lambda _, y: -y, (0, t), [1.0])),
    "solve_ivp, list": (ODE, lambda t, _: si.solve_ivp(lambda _, y: [y[1], -t * y[0]], (0, 1), ONES, method="LSODA")),
    "solve_ivp, event": (ODE, lambda t, _: si.solve_ivp(lambda _, y: -y, (0, 1), [1.0], events=lambda _, y: y[0] - t)),
    "odeint": (ODE, lambda t, _: si.odeint(lambda y, _: [y[1], -t * y[0]], ONES, [0.0, 1.0])),
    "odeint, start": (ODE, lambda _, v: si.odeint(lambda y, _: -y, v, [0.0, 1.0])),
    "spsolve": (LINEAR, lambda _, v: sl.spsolve(A, v)),
    "spsolve, matrix": ("tape.sparse.CSR", lambda t, _: sl.spsolve(A * t, ONES)),
    "cg": (LINEAR, lambda _, v: sl.cg(A, v)),
    "cg, operator": (LINEAR, lambda _, v: sl.cg(_operator(v), ONES)),
    "gmres": (LINEAR, lambda _, v: sl.gmres(A, v)),
    "bicgstab": (LINEAR, lambda _, v: sl.bicgstab(A, v)),
    "lsqr": (LINEAR, lambda _, v: sl.lsqr(A, v)),
    "splu": ("Tensor", lambda _, v: sl.splu(A.tocsc()).solve(v)),
    "eigsh": ("tape", lambda t, _: sl.eigsh(sl.LinearOperator((9, 9), matvec=lambda x: x * t, dtype=float), k=1)),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.filterwarnings("error::tape.errors.DetachWarning")
@pytest.mark.parametrize("name", CALLS)
def test_each_raises_and_says_what_to_write(name: str, capfd: Any) -> None:
    message, call = CALLS[name]
    t, v = tape.tensor(2.0, requires_grad=True), tape.tensor([2.0, 3.0], requires_grad=True)
    for number, vector in ((t, v), (t * 1, v * 1)):
        with pytest.raises((TypeError, RuntimeError), match=message):
            call(number, vector)

    def within(a: Any) -> Any:
        call(a * 1, tape.stack([a, a + 1]))
        return a

    for run in (tape.value_and_grad(within), tape.compile(tape.value_and_grad(within)), tape.compile(within)):
        with pytest.raises((TypeError, RuntimeError), match=message):
            run(tape.tensor(2.0, requires_grad=True))
    capfd.readouterr()


CONSTANT = [
    name for name in CALLS if name not in ("splu", "minimize, gradient", "linprog", "spsolve, matrix", "newton_krylov")
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::scipy.optimize.OptimizeWarning")
@pytest.mark.parametrize("name", CONSTANT)
def test_tensors_that_do_not_require_grad_go_on_working(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", tape.errors.DetachWarning)
        CALLS[name][1](tape.tensor(2.0), tape.tensor([2.0, 3.0]))


def test_functions_of_the_users_within_solvers_decide_by_tensors() -> None:
    t = tape.tensor(2.0, requires_grad=True)

    def f(x: Any) -> float:
        y = t * x
        return y.item() - 4.0 if y > 0 else np.atleast_1d(y)[0].item() - 4.0

    assert so.brentq(f, -1.0, 5.0) == pytest.approx(2.0)
    assert so.newton(f, 1.0) == pytest.approx(2.0)
