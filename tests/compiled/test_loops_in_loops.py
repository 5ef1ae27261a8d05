"""Loops that values end within one another: one program, whatever the numbers of iterations; and as machine code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler import compiling
from tests.support.agreeing_gradients import assert_agrees

pytestmark = pytest.mark.usefixtures("few_passes")

INPUTS = (1.3, 0.2, 3.7, 0.9, 2.4, 0.05, 5.0)


def implicit_steps(q: Any) -> Any:
    """Take implicit Euler steps of an oscillator; the equation of each is solved by Newton's method."""
    p, h = q * 0.0, 0.05
    for _ in range(12):
        v = p
        rest = v - p + h * (q + h * v + (q + h * v) ** 3)
        while abs(rest) > 1e-11:
            v = v - rest / (1.0 + h * (h + 3.0 * h * (q + h * v) ** 2))
            rest = v - p + h * (q + h * v + (q + h * v) ** 3)
        q, p = q + h * v, v
    return q * q + p


def roots_of_roots(x: Any) -> Any:
    """Take the roots of what falls below a half."""
    total = x * 0.0
    while x > 0.5:
        y = x * 1.0
        while abs(y * y - x) > 1e-9:
            y = 0.5 * (y + x / y)
        total, x = total + y, x * 0.2
    return total


def bisected(x: Any) -> Any:
    """Bisect several times, with numbers that change: what is outermost stays Python."""
    total = x * 0.0
    for k in range(3):
        low, high = x * 0.0, x * 0.0 + 10.0
        while high - low > 1e-6:
            middle = 0.5 * (low + high)
            if middle**3 + middle > x + k:
                high = middle
            else:
                low = middle
        total = total + low * x
    return total


def searched(x: Any) -> Any:
    """Descend, with steps that are halved until the value falls."""
    slope = 2.0 * (x - 0.7) + 4.0 * x**3
    while abs(slope) > 1e-4:
        step, value = 1.0 + 0.0 * x, (x - 0.7) ** 2 + x**4
        while (x - step * slope - 0.7) ** 2 + (x - step * slope) ** 4 > value - 0.3 * step * slope * slope:
            step = step * 0.5
        x = x - step * slope
        slope = 2.0 * (x - 0.7) + 4.0 * x**3
    return x


def three_deep(x: Any) -> Any:
    """Run a loop in a loop in a loop; the inner ones have no iteration at times."""
    t = x * 1.0
    while t > 0.3:
        u = t * 1.0
        while u > 0.8:
            w = u * x
            while w > 1.1:
                w = w * 0.6
            u = u * 0.55 + 0.01 * w
        t = t * 0.5 + 0.02 * u
    return t * x


def left_from_within(x: Any) -> Any:
    """Leave both loops from the inner one."""
    t = x * 1.0
    while t > 0.1:
        for _ in range(3):
            t = t * 0.8
            if t < 0.4:
                return t * x
        t = t - 0.01
    return t + x


def counted_by_tensors(x: Any) -> Any:
    """Run as often as values say."""
    total, n = x * 0.0, x.detach() * 2.0
    while n > 1.0:
        y = x * 1.0
        for _ in range(int(n)):
            y = y * 0.9 + 0.1
        total, n = total + y, n - 1.5
    return total


def with_choices(x: Any) -> Any:
    """Go two ways in each iteration of an inner loop that has always as many."""
    t = x * 1.0
    while t > 0.2:
        for _ in range(4):
            t = t * 0.8 if t > 1.0 else t * 0.7 + 0.01 * x
    return t


def vectors(x: Any) -> Any:
    """Carry arrays, large and small ones."""
    u, s = tape.linspace(0.1, 1.0, 30) * x, tape.linspace(0.5, 1.5, 3) * x
    while (u * u).sum() > 0.5:
        v = u * 1.0
        while abs(v).max() > 0.3:
            v = v * 0.7 + 0.01 * s.sum()
            s = s * 0.9
        u = 0.5 * u + 0.3 * v - 0.002 * tape.roll(u, 1)
    return (u * u).sum() + s.sum()


FUNCTIONS = [
    implicit_steps, roots_of_roots, bisected, searched, three_deep, left_from_within, counted_by_tensors,
    with_choices, vectors,
]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_and_gradients_are_those_of_dynamic_mode(function: Callable[[Any], Any]) -> None:
    compiled = tape.compile(function)
    gradient = tape.compile(tape.value_and_grad(function))
    through = tape.value_and_grad(tape.compile(function))
    for x in INPUTS * 3:
        value, slope = tape.value_and_grad(function)(x)
        assert compiled(x) == value, x
        for way in (gradient, through):
            found, found_slope = way(x)
            assert found == value, x
            assert found_slope == pytest.approx(slope, rel=1e-12, abs=1e-300), x
    assert compiled.calls["recorded"] <= 9
    assert compiled.calls["dynamic"] == 0


@pytest.mark.parametrize("block", [2, 1024])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_machine_code(function: Callable[[Any], Any], block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_BLOCK", block)
    gradient = tape.compile(tape.value_and_grad(function), mode="max", check="never")
    alone = tape.compile(function, mode="max", check="never")
    for x in INPUTS * 3:
        value, slope = tape.value_and_grad(function)(x)
        found, found_slope = gradient(x)
        assert found == pytest.approx(value, rel=1e-11), x
        assert found_slope == pytest.approx(slope, rel=1e-9, abs=1e-12), x
        assert alone(x) == pytest.approx(value, rel=1e-11), x
    assert "until it ends" in gradient.explain()


@pytest.mark.quick
def test_differences_agree() -> None:
    """The truth is another one than dynamic mode: differences of values."""
    gradient = tape.compile(tape.value_and_grad(implicit_steps), mode="max")
    for x in INPUTS * 3:
        far = [float(implicit_steps(tape.tensor(x + h))) for h in (1e-6, -1e-6)]
        assert gradient(x)[1] == pytest.approx((far[0] - far[1]) / 2e-6, rel=1e-6)


@pytest.mark.quick
def test_second_derivatives() -> None:
    for function in (implicit_steps, roots_of_roots):
        compiled = tape.compile(function)
        for a in INPUTS * 2:
            found = []
            for f in (function, compiled):
                x = tape.tensor(a, requires_grad=True)
                (slope,) = tape.autograd.grad(f(x * 1.0), x, create_graph=True)
                found.append(float(tape.autograd.grad(slope, x)[0]) if slope.requires_grad else 0.0)
            assert found[1] == pytest.approx(found[0], rel=1e-9, abs=1e-12)


@pytest.mark.quick
def test_a_saved_function_has_its_loops(tmp_path: Path) -> None:
    compiled = tape.compile(roots_of_roots)
    for x in INPUTS:
        compiled(x)
    compiled.save(tmp_path / "roots")
    loaded = tape.load(tmp_path / "roots")
    for x in (0.3, 0.7, 4.1, 77.0):
        assert loaded(x) == compiled(x)


@pytest.mark.quick
def test_memory_of_inner_iterations_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more than it has rows for, the interpreter takes over."""
    monkeypatch.setattr(compiling, "_ROWS", 16)

    def often(x: Any, tolerance: Any) -> Any:
        t = x * 1.0
        while t > 0.5:
            y = t * 1.0
            while y > tolerance:
                y = y * 0.9
            t = t * 0.6 + 0.01 * y
        return t

    compiled = tape.compile(tape.value_and_grad(often), mode="max", check="never")
    for tolerance in (0.9, 0.8, 0.7, 0.9, 0.1, 1e-3, 1e-9, 0.8):
        for _ in range(3):
            assert_agrees(compiled, often, 1.2, tolerance)
    assert "until it ends" in compiled.explain()


@pytest.mark.quick
def test_constants_of_iterations_are_those_of_the_call() -> None:
    """What NumPy computes in the loop is another array in each call: no iteration of an earlier one is replayed."""
    weights, factor = np.array([0.9, 0.8, 0.5]), np.array([0.5])

    def scaled(x: Any) -> Any:
        for _ in range(4):
            x = x * (0.5 * weights) if x.sum() > 1.0 else x * float(factor[0]) + 0.3
        return x.sum()

    compiled = tape.compile(scaled, check="never")
    chance = np.random.default_rng(0)
    for call in range(40):
        if call % 5 != 4:
            weights[:], factor[:] = chance.uniform(0.5, 1.5, 3), chance.uniform(0.1, 0.9, 1)
        x = chance.uniform(0.5, 3.0, 3)
        assert compiled(x) == float(scaled(tape.tensor(x))), call


@pytest.mark.quick
def test_arrays_that_are_equal_at_first_are_two() -> None:
    a, b = np.zeros(3), np.zeros(3)

    def shifted(x: Any) -> Any:
        while x.sum() > 1.0:
            x = (x + a) * 0.5 + b
        return x.sum()

    compiled = tape.compile(shifted, check="never")
    for call in range(30):
        if call == 10:
            b[:] = 0.1
        x = np.array([1.0, 2.0, 3.0]) + 0.1 * call
        assert compiled(x) == float(shifted(tape.tensor(x))), call
