"""Differential equations, value and gradient, compiled, beside diffrax with its best adjoint in one process.

`python -m pytest bench/bench_ode.py -s` prints them, where diffrax is installed. Tolerances are the same,
and so are methods, but for stiff problems: Rodas5P beside Kvaerno 5. Ratios are medians of interleaved pairs.
"""

from __future__ import annotations

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

SETTLE_SECONDS = 40.0
_AGREE = 2e-3


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


@pytest.mark.parametrize("name", PROBLEMS)
def test_value_and_gradient_beside_diffrax(name: str) -> None:
    """Print the ratio of times, and both first calls."""
    problem = PROBLEMS[name]
    arguments = problem.start.copy(), problem.parameters.copy()  # compiled functions take none that they read, too
    functions, firsts, values = {"tape": ours(problem), "diffrax": diffraxs(problem)}, {}, {}
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
    np.testing.assert_allclose(values["tape"][0], np.asarray(values["diffrax"][0]), rtol=_AGREE)
    times = times_in_turn({kind: lambda f=f: f(*arguments) for kind, f in functions.items()})  # type: ignore[misc]
    ratio = times["diffrax"].over(times["tape"])
    bar = Bar(f"{name}: diffrax / tape, value and gradient", at_least=problem.bar)
    verdict = "pass" if ratio >= problem.bar else "FAIL"
    sys.stdout.write(
        f"{verdict}  {bar.name}  at least {problem.bar:g}  {ratio:.1f}: {times['diffrax'].median * 1e6:,.0f} / "
        f"{times['tape'].median * 1e6:,.1f} us; first calls {firsts['diffrax']:.1f} / {firsts['tape']:.2f} s\n"
    )


@pytest.mark.quick
def test_problems_end_where_scipy_says() -> None:
    """Check values of the problems by a tight solution of SciPy's."""
    from scipy.integrate import solve_ivp

    for problem in PROBLEMS.values():
        if problem.method == "rosenbrock":
            continue

        def slopes(t: Any, y: Any, problem: Problem = problem) -> Any:  # noqa: ARG001
            return problem.slopes(np, y, problem.parameters)

        exact = solve_ivp(slopes, (0, problem.end), problem.start, "DOP853", rtol=1e-11, atol=1e-11).y[:, -1]
        found = solve(
            lambda t, y, problem=problem: problem.slopes(tape, y, problem.parameters),  # type: ignore[misc]  # noqa: ARG005
            problem.start,
            (0.0, problem.end),
            method=problem.method,
            rtol=1e-8,
            atol=1e-8,
        ).y[-1]
        np.testing.assert_allclose(found, exact, atol=1e-4)
