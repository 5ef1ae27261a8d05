# ruff: noqa: ARG001, ARG005 (functions of t and y, of which they need one)
"""Differential equations: values beside closed forms and SciPy, orders, gradients, structures, errors."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import tape
from tape.ode import StepError, jacobians, solve

pytestmark = pytest.mark.quick
EXPLICIT = ("tsit5", "dopri5", "dop853")
ADAPTIVE = (*EXPLICIT, "rosenbrock", "esdirk")
PREY = np.array([1.5, 1.0, 3.0, 1.0])


def predators(t: Any, y: Any, p: Any) -> Any:
    return [p[0] * y[0] - p[1] * y[0] * y[1], p[3] * y[0] * y[1] - p[2] * y[1]]


def oscillator(t: Any, y: Any, mu: Any) -> Any:
    return [y[1], mu * (1.0 - y[0] * y[0]) * y[1] - y[0]]


def fading(t: Any, y: Any, rate: Any) -> Any:
    return -rate * tape.sin(t) * y


@pytest.mark.parametrize("rtol", [1e-6, 1e-9])
@pytest.mark.parametrize("method", ADAPTIVE)
def test_a_closed_form(method: str, rtol: float) -> None:
    times = np.linspace(0.0, 3.0, 7)
    found = solve(fading, 2.0, times, 1.5, method=method, rtol=rtol, atol=rtol)
    exact = 2.0 * np.exp(1.5 * (np.cos(times) - 1.0))
    assert isinstance(found.y, np.ndarray)
    np.testing.assert_allclose(found.y, exact, atol=50 * rtol)
    assert found.success
    assert found.accepted > 1
    assert found.nfev > found.accepted


@pytest.mark.parametrize("method", ADAPTIVE)
def test_as_scipy_at_tight_tolerances(method: str) -> None:
    times = np.linspace(0.0, 4.0, 9)
    exact = solve_ivp(predators, (0, 4), [1.0, 1.0], "DOP853", times, args=(PREY,), rtol=1e-12, atol=1e-12).y.T
    found = solve(predators, [1.0, 1.0], times, PREY, method=method, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.y, exact, atol=2e-7)
    up = solve(predators, found.y[-1], (4.0, 0.0), PREY, method=method, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(up.y[-1], [1.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("method", ["rosenbrock", "esdirk"])
def test_a_stiff_oscillator_as_radau(method: str) -> None:
    exact = solve_ivp(oscillator, (0, 2000), [2.0, 0.0], "Radau", args=(1000.0,), rtol=1e-9, atol=1e-9).y[:, -1]
    found = solve(oscillator, [2.0, 0.0], (0.0, 2000.0), 1000.0, method=method, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.y[-1], exact, rtol=1e-5)
    assert found.accepted + found.rejected < 700


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("leapfrog", 2), ("velocity_verlet", 2), ("rk4", 4)])
def test_orders_of_fixed_steps(method: str, order: int) -> None:
    def error(steps: int) -> float:
        found = solve(lambda t, y: [y[1], -y[0]], [1.0, 0.0], (0.0, 1.0), method=method, steps=steps)
        return abs(float(found.y[-1, 0]) - math.cos(1.0))

    assert math.log2(error(20) / error(40)) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize(
    ("method", "order"), [("tsit5", 5), ("dopri5", 5), ("dop853", 8), ("rosenbrock", 5), ("esdirk", 5)]
)
def test_orders_of_adaptive_methods_with_steps_of_one_length(method: str, order: int) -> None:
    def error(steps: int) -> float:
        h, loose = 2.0 / steps, {"rtol": 1e9, "atol": 1e9}
        options = {"first_step": h, "max_step": h, **loose}
        found = solve(lambda t, y: [y[1] * tape.cos(t), -y[0]], [1.0, 0.5], (0.0, 2.0), method=method, **options)
        return float(np.abs(found.y[-1] - exact).max())

    exact = solve_ivp(lambda t, y: [y[1] * math.cos(t), -y[0]], (0, 2), [1.0, 0.5], "DOP853", rtol=1e-13, atol=1e-14).y[
        :, -1
    ]
    coarse = 4 if order == 8 else 16
    assert math.log2(error(coarse) / error(2 * coarse)) > order - 0.6


def loss(method: str) -> Any:
    options = {"steps": 40} if method in ("rk4", "euler") else {"rtol": 1e-10, "atol": 1e-10}

    def total(y0: Any, p: Any, times: Any) -> Any:
        y = solve(predators, y0, times, p, method=method, **options).y
        return (y[1:] * y[1:]).sum()

    return total


@pytest.mark.parametrize("method", [*ADAPTIVE, "rk4"])
def test_gradients_beside_differences(method: str) -> None:
    at = [np.array([1.0, 1.1]), PREY, np.array([0.1, 0.5, 1.0])]
    _, slopes = tape.value_and_grad(loss(method), (0, 1, 2))(*at)
    for k, slope in enumerate(slopes):
        for i in range(at[k].size):
            moved = [[x.copy() for x in at] for _ in (0, 1)]
            moved[0][k][i] += 1e-5
            moved[1][k][i] -= 1e-5
            up, down = (float(loss(method)(*map(tape.tensor, x))) for x in moved)
            assert slope[i] == pytest.approx((up - down) / 2e-5, abs=2e-5)


def test_gradients_to_the_ends_are_slopes() -> None:
    def end(t0: Any, t1: Any) -> Any:
        return solve(fading, 2.0, (t0, t1), 1.5, rtol=1e-10, atol=1e-10).y[-1]

    _, (by_start, by_end) = tape.value_and_grad(end, (0, 1))(0.5, 2.0)
    value = 2.0 * math.exp(1.5 * (math.cos(2.0) - math.cos(0.5)))
    assert by_end == pytest.approx(-1.5 * math.sin(2.0) * value, rel=1e-7)
    assert by_start == pytest.approx(1.5 * math.sin(0.5) * value, rel=1e-7)


@pytest.mark.parametrize("method", ADAPTIVE)
def test_second_derivatives_of_a_closed_form(method: str) -> None:
    def end(rate: Any) -> Any:
        return solve(fading, 1.0, (0.0, 2.0), rate, method=method, rtol=1e-9, atol=1e-9).y[-1]

    c = math.cos(2.0) - 1.0
    second = tape.func.grad(tape.func.grad(end))(0.7)
    assert float(second) == pytest.approx(c * c * math.exp(0.7 * c), rel=1e-5)


@pytest.mark.parametrize("method", ADAPTIVE)
def test_three_derivatives_of_what_is_not_linear(method: str) -> None:
    mpmath = pytest.importorskip("mpmath")

    def end(rate: Any) -> Any:  # by reverse sweeps of reverse sweeps
        return solve(lambda t, y: rate * y * (1.0 - y), 0.3, (0.0, 2.0), method=method, rtol=1e-9, atol=1e-9).y[-1]

    def exact(rate: Any) -> Any:
        return 1 / (1 + (1 / mpmath.mpf(0.3) - 1) * mpmath.exp(-2 * rate))

    for order in (1, 2, 3):
        end = tape.func.grad(end)
        assert float(end(1.3)) == pytest.approx(float(mpmath.diff(exact, 1.3, order)), rel=3e-6)


def test_a_tensor_that_f_closes_over_has_a_gradient() -> None:
    rate = tape.tensor(0.7, requires_grad=True)
    y = solve(lambda t, y: -rate * y, 1.0, (0.0, 2.0), rtol=1e-9, atol=1e-9).y
    y[-1].backward()
    assert float(rate.grad) == pytest.approx(-2.0 * math.exp(-1.4), rel=1e-7)


@dataclasses.dataclass
class Body:
    """Where something is, and how fast it moves."""

    place: Any
    speed: Any


def test_structures() -> None:
    found = solve(lambda t, b: Body(b.speed, -b.place), Body(np.ones(2), np.zeros(2)), (0.0, 1.0), rtol=1e-9)
    np.testing.assert_allclose(found.y.place[-1], math.cos(1.0), atol=1e-7)
    pair = solve(lambda t, y: (y[1], -y[0]), (np.ones(2), np.zeros(2)), (0.0, 1.0), method="leapfrog", steps=500)
    np.testing.assert_allclose(pair.y[0][-1], math.cos(1.0), atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.recursive(st.floats(-2, 2), lambda x: st.dictionaries(st.sampled_from("abc"), x, min_size=1), max_leaves=4))
def test_any_structure_decays(y0: Any) -> None:
    found = solve(lambda t, y: _mapped(lambda x: -x, y), y0, (0.0, 1.0))
    for y, start in zip(_leaves(found.y), _leaves(y0), strict=True):
        np.testing.assert_allclose(y[-1], start * math.exp(-1.0), atol=1e-5)


def _mapped(f: Any, x: Any) -> Any:
    return {key: _mapped(f, part) for key, part in x.items()} if isinstance(x, dict) else f(x)


def _leaves(x: Any) -> list[Any]:
    return [leaf for part in x.values() for leaf in _leaves(part)] if isinstance(x, dict) else [x]


def test_a_batch_shares_its_steps() -> None:
    starts = np.array([[1.0, 1.0], [2.0, 0.5], [0.3, 1.5]])

    def many(t: Any, y: Any) -> Any:
        return tape.stack([y[:, 0] * (1.5 - y[:, 1]), y[:, 1] * (y[:, 0] - 3.0)], 1)

    found = solve(many, starts, (0.0, 2.0), rtol=1e-9, atol=1e-9).y[-1]
    for start, y in zip(starts, found, strict=True):
        np.testing.assert_allclose(y, solve(predators, start, (0.0, 2.0), PREY, rtol=1e-9, atol=1e-9).y[-1], atol=1e-7)


@pytest.mark.parametrize("method", ADAPTIVE)
def test_an_ensemble_and_why_not_vmap(method: str) -> None:
    starts = np.array([[1.0, 1.0], [2.0, 0.5], [0.3, 1.5]])

    def end(y0: Any, p: Any = PREY) -> Any:
        return solve(predators, y0, (0.0, 1.0), p, method=method).y[-1]

    for start, y in zip(starts, tape.ensemble(end, starts), strict=True):
        np.testing.assert_array_equal(y, end(start))
    gradient = tape.value_and_grad(lambda y0: end(y0)[0])
    for start, (_, slope) in zip(starts, tape.ensemble(gradient, starts), strict=True):
        np.testing.assert_array_equal(slope, gradient(start)[1])
    for mapped in (end, tape.func.grad(lambda y0: end(y0)[0]), lambda y0: end(np.ones(2), PREY * y0[0])):
        with pytest.raises(RuntimeError, match=r"one array \(many, n\).*tape.ensemble"):
            tape.func.vmap(mapped)(tape.tensor(starts))
    with pytest.raises(RuntimeError, match="by tape"):
        tape.func.vmap(lambda end: solve(fading, 1.0, (0.0, end), 1.0, method=method).y[-1])(tape.tensor([1.0, 2.0]))
    jacobian = tape.func.jacfwd(end)(tape.tensor(starts[0]))
    np.testing.assert_allclose(jacobian, tape.func.jacrev(end)(tape.tensor(starts[0])), atol=1e-10)


def test_fixed_steps_under_vmap() -> None:
    def end(y0: Any) -> Any:
        return solve(predators, y0, (0.0, 1.0), PREY, method="rk4", steps=10).y[-1]

    starts = np.array([[1.0, 1.0], [2.0, 0.5]])
    np.testing.assert_allclose(tape.func.vmap(end)(tape.tensor(starts)), [end(y0) for y0 in starts])


@pytest.mark.parametrize("method", ADAPTIVE)
def test_dense_output(method: str) -> None:
    found = solve(fading, 2.0, (0.0, 3.0), 1.5, method=method, rtol=1e-8, atol=1e-8, dense=True)
    times = np.linspace(0.0, 3.0, 50)
    np.testing.assert_allclose(found(times), 2.0 * np.exp(1.5 * (np.cos(times) - 1.0)), atol=1e-5)
    with pytest.raises(ValueError, match="known from"):
        found(3.5)


def test_a_way_of_no_length() -> None:
    value, slope = tape.value_and_grad(lambda t1: solve(fading, 2.0, (1.0, t1), 1.5).y[-1])(1.0)
    assert value == 2.0
    assert slope == pytest.approx(-3.0 * math.sin(1.0))


@pytest.mark.parametrize(
    ("error", "message", "arguments", "options"),
    [
        (StepError, "vanish at t = 1|not finite", (lambda t, y: y * y, 1.0, (0.0, 2.0)), {}),
        (StepError, "not finite", (lambda t, y: tape.log(0.5 - t) * y, 1.0, (0.0, 2.0)), {}),
        (StepError, "max_steps", (lambda t, y: -y, 1.0, (0.0, 20.0)), {"max_steps": 3}),
        (StepError, "not finite.* t = 0", (lambda t, y: y * math.nan, 1.0, (0.0, 1.0)), {}),
        (StepError, "not finite.* t = 0", (lambda t, y: -y, math.inf, (0.0, 1.0)), {}),
        (ValueError, "give atol", (lambda t, y: 1.0 - y, 0.0, (0.0, 1.0)), {"atol": 0.0}),
        (ValueError, "no elements", (lambda t, y: -y, np.zeros(0), (0.0, 1.0)), {}),
        (ValueError, "times are finite", (lambda t, y: -y, 1.0, (0.0, math.inf)), {}),
        (ValueError, "above 0", (lambda t, y: -y, 1.0, (0.0, 1.0)), {"max_step": -1.0}),
        (ValueError, "above 0", (lambda t, y: -y, 1.0, (0.0, 1.0)), {"first_step": math.nan}),
        (ValueError, "writes to its state", (lambda t, y: y.mul_(-1.0), np.ones(2), (0.0, 1.0)), {}),
        (ValueError, "it is one of", (lambda t, y: y, 1.0, (0.0, 1.0)), {"method": "rk45"}),
        (ValueError, "takes steps=", (lambda t, y: y, 1.0, (0.0, 1.0)), {"method": "rk4"}),
        (ValueError, "all go up", (lambda t, y: y, 1.0, (0.0, 2.0, 1.0)), {}),
        (ValueError, "returns shape", (lambda t, y: tape.zeros(3), [1.0, 2.0], (0.0, 1.0)), {}),
        (ValueError, "takes a pair", (lambda t, y: y, np.ones((3, 2)), (0.0, 1.0)), {"method": "leapfrog", "steps": 1}),
    ],
)
def test_errors(error: type[Exception], message: str, arguments: Any, options: Any) -> None:
    with np.errstate(all="ignore"), pytest.raises(error, match=message):
        solve(*arguments, **options)


@pytest.mark.parametrize("times", [(0.0, 3.0), (0.0, 1.0, 2.0, 3.0)])
@pytest.mark.parametrize("method", ["dopri5", "tsit5"])
def test_compiled_loops_are_native(method: str, times: Any) -> None:
    def total(y0: Any, p: Any, times: Any) -> Any:
        y = solve(predators, y0, times, p, method=method).y
        return (y * y).sum()

    both = tape.value_and_grad(total, (0, 1, 2))
    compiled = tape.compile(both, mode="max")
    for scale in (1.0, 1.2, 1.5, 2.0, 2.5):
        arguments = np.array([1.0, 1.2]), PREY, scale * np.array(times)
        value, slopes = compiled(*arguments)
        expected, by_hand = both(*arguments)
        assert value == pytest.approx(expected, rel=1e-8)
        for slope, other in zip(slopes, by_hand, strict=True):
            np.testing.assert_allclose(slope, other, rtol=1e-6, atol=1e-8)
    assert "until it ends" in compiled.explain()
    assert compiled.calls["recorded"] + compiled.calls["dynamic"] <= 4


def falling(t: Any, y: Any, gravity: Any) -> Any:
    return [y[1], -gravity]


def ground(t: Any, y: Any, gravity: Any) -> Any:
    return y[0]


ground.terminal, ground.direction = True, -1  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ADAPTIVE)
def test_when_a_ball_hits_the_ground(method: str) -> None:
    def hit(gravity: Any) -> Any:
        return solve(falling, [10.0, 0.0], (0.0, 100.0), gravity, method=method, events=ground).t_events[0][0]

    exact = math.sqrt(20.0 / 9.81)
    value, slope = tape.value_and_grad(hit)(9.81)
    assert value == pytest.approx(exact, rel=1e-9)
    assert slope == pytest.approx(-0.5 * exact / 9.81, rel=1e-8)
    assert float(tape.func.grad(tape.func.grad(hit))(9.81)) == pytest.approx(0.75 * exact / 9.81**2, rel=1e-7)


def test_a_ball_that_bounces() -> None:
    def place(bounce: Any) -> Any:
        t, y = 0.0, [10.0, 0.0]
        for _ in range(2):
            found = solve(falling, y, (t, 100.0), 10.0, events=ground)
            assert found.status == 1
            t, y = found.t[-1], [0.0, -bounce * found.y[-1, 1]]
        return solve(falling, y, (t, 6.0), 10.0).y[-1, 0]

    def exact(bounce: float) -> float:
        first = math.sqrt(2.0)
        speed = 10.0 * first * bounce
        rest = 6.0 - first - 2.0 * speed / 10.0
        return speed * bounce * rest - 5.0 * rest * rest

    value, slope = tape.value_and_grad(place)(0.9)
    assert value == pytest.approx(exact(0.9), abs=1e-7)
    assert slope == pytest.approx((exact(0.9 + 1e-6) - exact(0.9 - 1e-6)) / 2e-6, abs=1e-5)


@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_events_as_scipy_finds_them(direction: int) -> None:
    def level(t: Any, y: Any, mu: Any) -> Any:
        return y[0] - 0.5

    level.direction = direction  # type: ignore[attr-defined]
    times = np.linspace(0.0, 20.0, 5)
    options = {"rtol": 1e-10, "atol": 1e-10}
    exact = solve_ivp(oscillator, (0, 20), [2.0, 0.0], "DOP853", times, args=(1.0,), events=level, **options)
    found = solve(oscillator, [2.0, 0.0], times, 1.0, method="dop853", events=[level], **options)
    np.testing.assert_allclose(found.t_events[0], exact.t_events[0], atol=1e-7)
    np.testing.assert_allclose(found.y_events[0], exact.y_events[0], atol=1e-7)
    np.testing.assert_allclose(found.y, exact.y.T, atol=1e-7)
    level.terminal = 2  # type: ignore[attr-defined]
    ended = solve(oscillator, [2.0, 0.0], times, 1.0, method="dop853", events=[level], **options)
    np.testing.assert_allclose(ended.t[-1], exact.t_events[0][1], atol=1e-7)
    assert len(ended.t) == len(ended.y) == 1 + (times < ended.t[-1]).sum()


def diffusion(t: Any, y: Any, rate: Any) -> Any:
    ends = tape.zeros(1, dtype=y.dtype)
    wide = tape.cat([ends, y, ends])
    return rate * (wide[2:] - 2.0 * y + wide[:-2]) - y * y * y


def chain(dense: bool, method: str = "rosenbrock") -> Any:
    def slopes(t: Any, y: Any, rate: Any) -> Any:
        if dense and y[0] > 1e9:  # what reads values stays dense
            return 0.0 * y
        return diffusion(t, y, rate)

    def total(y0: Any, rate: Any) -> Any:
        y = solve(slopes, y0, (0.0, 0.05), rate, method=method).y[-1]
        return (y * y).sum()

    return tape.value_and_grad(total, (0, 1))


@pytest.mark.parametrize("method", ["rosenbrock", "esdirk"])
def test_sparse_jacobians_are_as_dense_ones(method: str) -> None:
    y0 = 1.0 + np.sin(np.arange(48.0))
    sparse, dense = (chain(way, method)(y0, 30.0) for way in (False, True))
    assert sparse[0] == pytest.approx(dense[0], rel=1e-12)
    np.testing.assert_allclose(sparse[1][0], dense[1][0], atol=1e-10)
    assert sparse[1][1] == pytest.approx(dense[1][1], rel=1e-9)
    up, down = (chain(False, method)(y0, rate)[0] for rate in (30.01, 29.99))
    assert sparse[1][1] == pytest.approx((up - down) / 0.02, rel=1e-4)


def test_which_jacobians_are_coloured() -> None:
    def colours(f: Any, n: int) -> Any:
        return jacobians.colours_of(f, tape.tensor(0.0), tape.ones(n, dtype=tape.float64))

    found = colours(lambda t, y: diffusion(t, y, 1.0), 60)
    assert found is not None
    assert len(found.seeds) == 3
    assert colours(lambda t, y: diffusion(t, y, 1.0), 40) is None  # small
    assert colours(lambda t, y: y * y.sum(), 60) is None  # dense
    assert colours(lambda t, y: y * y if y[0] > 0 else y * y.sum(), 60) is None  # may depend on else
    assert colours(lambda t, y: y * y if t < 1 else y * y.sum(), 60) is None
    many = jacobians.colours_of(lambda t, y: -y.flip(1), tape.tensor(0.0), tape.ones(30, 2, dtype=tape.float64))
    assert many is not None
    assert len(many.seeds) == 2


def test_second_derivatives_through_sparse_jacobians() -> None:
    def end(rate: Any) -> Any:
        start = tape.ones(44, dtype=tape.float64)
        return solve(lambda t, y: -rate * y, start, (0.0, 1.0), method="rosenbrock").y[-1, 3]

    assert float(tape.func.grad(tape.func.grad(end))(0.7)) == pytest.approx(math.exp(-0.7), rel=1e-4)


def test_a_tensor_that_a_sparse_problem_closes_over_has_a_gradient() -> None:
    rate = tape.tensor(30.0, dtype=tape.float64, requires_grad=True)
    y0 = 1.0 + np.sin(np.arange(48.0))
    y = solve(lambda t, y: diffusion(t, y, rate), y0, (0.0, 0.05), method="rosenbrock").y[-1]
    (y * y).sum().backward()
    assert float(rate.grad) == pytest.approx(chain(False)(y0, 30.0)[1][1], rel=1e-9)


@pytest.mark.parametrize("method", ["rosenbrock", "esdirk"])
def test_compiled_stiff_problems_are_native(method: str) -> None:
    def total(y0: Any, mu: Any, end: Any) -> Any:
        y = solve(oscillator, y0, (0.0, end), mu, method=method, rtol=1e-4, atol=1e-4).y[-1]
        return (y * y).sum()

    both = tape.value_and_grad(total, (0, 1, 2))
    compiled = tape.compile(both, mode="max")
    for end in (0.1, 0.12, 0.15, 0.2, 0.25, 3.0):
        arguments = np.array([2.0, 0.0]), 20.0, end
        value, slopes = compiled(*arguments)
        expected, by_hand = both(*arguments)
        assert value == pytest.approx(expected, rel=1e-8)
        for slope, other in zip(slopes, by_hand, strict=True):
            np.testing.assert_allclose(slope, other, rtol=1e-6, atol=1e-8)
    assert "until it ends" in compiled.explain()
    assert compiled.calls["recorded"] + compiled.calls["dynamic"] <= 4


def test_a_stage_that_is_not_solved_leaves_gradients_finite() -> None:
    def end(rate: Any) -> Any:
        options = {"rtol": 1e-6, "atol": 1e-6, "first_step": 1.0}
        return solve(lambda t, y: -rate * y * y * y, 30.0, (0.0, 1.0), method="esdirk", **options).y[-1]

    value, slope = tape.value_and_grad(end)(2.0)
    assert value == pytest.approx((30.0**-2 + 4.0) ** -0.5, rel=1e-5)
    assert slope == pytest.approx(-((30.0**-2 + 4.0) ** -1.5), rel=1e-5)


def test_there_is_no_bdf() -> None:
    with pytest.raises(ValueError, match=r"it is one of.*esdirk"):
        solve(fading, 1.0, (0.0, 1.0), 1.0, method="bdf")
