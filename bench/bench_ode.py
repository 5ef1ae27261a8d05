"""Differential equations, value and gradient, compiled, beside diffrax and CasADi's CVODES in one process.

`python -m pytest bench/bench_ode.py -s` prints them, where diffrax is installed. Tolerances are the same, and so are
methods of diffrax's best adjoint, but for stiff problems: Rodas5P beside Kvaerno 5. CVODES solves by BDF, with its
adjoint sensitivities. Ratios are medians of interleaved pairs.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tape
from bench.bars import Bar
from bench.in_turn import times_in_turn
from tape.ode import solve

SETTLE_SECONDS = 60.0
_AGREE, _AGREE_LOOSELY = 2e-3, 2e-2  # of methods of one kind; with CVODES, whose tolerances are of each step


class Problem(NamedTuple):
    """An initial value problem; ``slopes`` returns a list, of elements or of vectors, for NumPy's or JAX's names."""

    slopes: Callable[..., Any]
    start: Any
    end: float
    parameters: Any
    method: str
    tolerances: tuple[float, float]
    bar: float


def predators(lib: Any, y: Any, p: Any) -> Any:  # noqa: ARG001
    """Lotka and Volterra."""
    return [p[0] * y[0] - p[1] * y[0] * y[1], p[3] * y[0] * y[1] - p[2] * y[1]]


def oscillator(lib: Any, y: Any, p: Any) -> Any:  # noqa: ARG001
    """Van der Pol."""
    return [y[1], p[0] * (1.0 - y[0] * y[0]) * y[1] - y[0]]


def reactions(lib: Any, y: Any, p: Any) -> Any:  # noqa: ARG001
    """Robertson."""
    slow, fast, back = p[0] * y[0], p[1] * y[1] * y[1], p[2] * y[1] * y[2]
    return [back - slow, slow - fast - back, fast]


def three_bodies(lib: Any, y: Any, p: Any) -> Any:
    """Three bodies in a plane: places, then speeds."""
    pulls = [0.0] * 6
    for i in range(3):
        for j in range(i + 1, 3):
            dx, dy = y[2 * j] - y[2 * i], y[2 * j + 1] - y[2 * i + 1]
            distance = lib.sqrt(dx * dx + dy * dy)
            cube = distance * distance * distance
            for k, d in enumerate((dx, dy)):
                pulls[2 * i + k] = pulls[2 * i + k] + p[j] * d / cube
                pulls[2 * j + k] = pulls[2 * j + k] - p[i] * d / cube
    return [y[6], y[7], y[8], y[9], y[10], y[11], *pulls]


def brusselator(lib: Any, y: Any, p: Any) -> Any:
    """The Brusselator on a line, 100 points of two substances, by differences."""
    u, v = y[:100], y[100:]
    one = lib.ones(1)
    uu, vv = lib.concatenate((one, u, one)), lib.concatenate((3.0 * one, v, 3.0 * one))
    d, w = p[0] * 101.0**2, u * u * v
    first = 1.0 + w - 4.0 * u + d * (uu[2:] - 2.0 * u + uu[:-2])
    return lib.concatenate((first, 3.0 * u - w + d * (vv[2:] - 2.0 * v + vv[:-2])))


_PLACES = np.linspace(0.0, 1.0, 102)[1:-1]
PROBLEMS = {
    "Lotka-Volterra": Problem(predators, np.ones(2), 10.0, np.array([1.5, 1.0, 3.0, 1.0]), "tsit5", (1e-6, 1e-6), 20.0),
    "Van der Pol, mu 1": Problem(oscillator, np.array([2.0, 0.0]), 10.0, np.ones(1), "tsit5", (1e-6, 1e-6), 20.0),
    "Van der Pol, mu 1000": Problem(
        oscillator, np.array([2.0, 0.0]), 1500.0, np.array([1e3]), "rosenbrock", (1e-6, 1e-6), 20.0
    ),
    "Robertson": Problem(
        reactions, np.array([1.0, 0.0, 0.0]), 1e4, np.array([0.04, 3e7, 1e4]), "rosenbrock", (1e-6, 1e-9), 20.0
    ),
    "three bodies": Problem(
        three_bodies,
        np.array([-0.97, 0.243, 0.97, -0.243, 0.0, 0.0, 0.466, 0.432, 0.466, 0.432, -0.932, -0.865]),
        6.0,
        np.ones(3),
        "dopri5",
        (1e-8, 1e-8),
        20.0,
    ),
    "Brusselator, 200": Problem(
        brusselator,
        np.concatenate((1.0 + np.sin(2.0 * np.pi * _PLACES), np.full(100, 3.0))),
        1.0,
        np.array([0.02]),
        "rosenbrock",
        (1e-6, 1e-6),
        1.0,
    ),
}


def ours(problem: Problem) -> Callable[[Any, Any], Any]:
    """Return a compiled function to value and gradients by start and parameters."""

    def loss(start: Any, p: Any) -> Any:
        y = solve(
            lambda t, y: problem.slopes(tape, y, p),  # noqa: ARG005
            start,
            (0.0, problem.end),
            method=problem.method,
            rtol=problem.tolerances[0],
            atol=problem.tolerances[1],
        ).y[-1]
        return (y * y).sum()

    return tape.compile(tape.value_and_grad(loss, (0, 1)), mode="max")


def diffraxs(problem: Problem) -> Callable[[Any, Any], Any]:
    """Return the same by diffrax, recursive checkpoints, jitted."""
    jax, diffrax = pytest.importorskip("jax"), pytest.importorskip("diffrax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    solver = {"tsit5": diffrax.Tsit5, "dopri5": diffrax.Dopri5, "rosenbrock": diffrax.Kvaerno5}[problem.method]()

    def slopes(t: Any, y: Any, p: Any) -> Any:  # noqa: ARG001
        value = problem.slopes(jnp, y, p)
        return jnp.stack(value) if isinstance(value, list) else value

    def loss(start: Any, p: Any) -> Any:
        control = diffrax.PIDController(rtol=problem.tolerances[0], atol=problem.tolerances[1])
        y = diffrax.diffeqsolve(
            diffrax.ODETerm(slopes), solver, 0.0, problem.end, None, start, p,
            stepsize_controller=control, max_steps=1 << 14,
        ).ys[-1]  # fmt: skip
        return (y * y).sum()

    both = jax.jit(jax.value_and_grad(loss, (0, 1)))
    return lambda start, p: jax.block_until_ready(both(start, p))


def casadis(problem: Problem) -> Callable[[Any, Any], Any]:
    """Return the same by CasADi's CVODES (BDF of variable order), with its adjoint sensitivities."""
    casadi = pytest.importorskip("casadi")

    class Names:
        sqrt, ones = casadi.sqrt, staticmethod(lambda n: casadi.DM.ones(n, 1))
        concatenate = staticmethod(lambda parts: casadi.vertcat(*parts))

    n, m = problem.start.size, problem.parameters.size
    y, p = casadi.SX.sym("y", n), casadi.SX.sym("p", m)
    value = problem.slopes(Names, y, p)
    right = casadi.vertcat(*value) if isinstance(value, list) else value
    options = {"reltol": problem.tolerances[0], "abstol": problem.tolerances[1], "max_num_steps": 100_000}
    flow = casadi.integrator("flow", "cvodes", {"x": y, "p": p, "ode": right}, 0.0, problem.end, options)
    start, parameters = casadi.MX.sym("start", n), casadi.MX.sym("parameters", m)
    loss = casadi.sumsqr(flow(x0=start, p=parameters)["xf"])
    by_both = [loss, casadi.gradient(loss, start), casadi.gradient(loss, parameters)]
    both = casadi.Function("both", [start, parameters], by_both)

    def run(start: Any, p: Any) -> Any:
        value, by_start, by_p = both(start, p)
        return float(value), (by_start, by_p)

    return run


@pytest.mark.parametrize("name", PROBLEMS)
def test_value_and_gradient_beside_diffrax_and_casadi(name: str) -> None:
    """Print the ratio of times, and both first calls."""
    problem = PROBLEMS[name]
    arguments = problem.start.copy(), problem.parameters.copy()  # compiled functions take none that they read, too
    functions, firsts, values = {"tape": ours(problem), "diffrax": diffraxs(problem)}, {}, {}
    if importlib.util.find_spec("casadi") is not None:
        functions["casadi"] = casadis(problem)
    for kind, function in functions.items():
        begun = time.perf_counter()
        values[kind] = function(*arguments)
        firsts[kind] = time.perf_counter() - begun
    compiled: Any = functions["tape"]
    begun = time.perf_counter()
    while time.perf_counter() - begun < SETTLE_SECONDS:
        started = time.perf_counter()
        compiled(*arguments)
        if compiled.calls["checked"] and time.perf_counter() - started < firsts["tape"] / 20:
            break
    times = times_in_turn({kind: lambda f=f: f(*arguments) for kind, f in functions.items()})  # type: ignore[misc]
    for kind, least in (("diffrax", problem.bar), ("casadi", 1.0)):
        if kind not in functions:
            continue
        agree = _AGREE if kind == "diffrax" else _AGREE_LOOSELY
        np.testing.assert_allclose(values["tape"][0], np.asarray(values[kind][0]), rtol=agree)
        ratio = times[kind].over(times["tape"])
        bar = Bar(f"{name}: {kind} / tape, value and gradient", at_least=least)
        sys.stdout.write(
            f"{'pass' if ratio >= least else 'FAIL'}  {bar.name}  at least {least:g}  {ratio:.2f}: "
            f"{times[kind].median * 1e6:,.0f} / {times['tape'].median * 1e6:,.1f} us; "
            f"first calls {firsts[kind]:.2f} / {firsts['tape']:.2f} s\n"
        )
        sys.stdout.flush()


@pytest.mark.quick
def test_problems_end_where_scipy_says() -> None:
    """Check values of the problems by a tight solution of SciPy's."""
    from scipy.integrate import solve_ivp

    for problem in PROBLEMS.values():

        def slopes(t: Any, y: Any, problem: Problem = problem) -> Any:  # noqa: ARG001
            return problem.slopes(np, y, problem.parameters)

        name, tight = ("Radau", 1e-9) if problem.method == "rosenbrock" else ("DOP853", 1e-11)
        exact = solve_ivp(slopes, (0, problem.end), problem.start, name, rtol=tight, atol=tight / 10).y[:, -1]
        found = solve(
            lambda t, y, problem=problem: problem.slopes(tape, y, problem.parameters),  # type: ignore[misc]  # noqa: ARG005
            problem.start,
            (0.0, problem.end),
            method=problem.method,
            rtol=1e-7,
            atol=1e-9,
        ).y[-1]
        np.testing.assert_allclose(found, exact, atol=1e-4)
