"""Loops that end by a value, as machine code: while loops forward and back, in blocks, with arrays and inner loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler import compiling, roll
from tests.support.representatives import in_turns

pytestmark = pytest.mark.usefixtures("few_passes")

U, V = np.linspace(0.1, 1.0, 12), np.linspace(0.3, 0.5, 12)


def newton(x: Any) -> Any:
    y = x
    while abs(y * y - x) > 1e-12 * x:
        y = y - (y * y - x) / (2.0 * y)
    return y


def logistic(x: Any) -> Any:
    """Stop at a time, in steps that depend on the state."""
    t, y = 0.0 * x, x
    while t < 5.0:
        y = y + 0.1 * y * (1.0 - y)
        t = t + 0.1 * abs(1.1 - y)
    return y + t


def relaxed(u: Any) -> Any:
    error = (u * u).sum()
    while error > 1e-3:
        u = u - 0.1 * tape.sin(u) * tape.cos(u) + 0.001 * u.mean()
        error = (u * u).sum()
    return (u * u).sum() + u[0]


def spirals(u: Any, v: Any) -> Any:
    """Carry two arrays, each of which needs the other."""
    while (u * u).sum() > 0.5:
        u, v = u * 0.9 - v * 0.01, v * 0.95 + u * 0.02
    return (u * v).sum() * 3.0 + v[1]


def up_and_down(x: Any) -> Any:
    a = x
    while a < 100.0:
        a = a * 1.5 + x
    b = a * x
    while b > 1.0:
        b = b * 0.7 - 0.01 * x
    return a * b


def loops_within(u: Any, x: Any) -> Any:
    while (u * u).sum() > 1e-2:
        for _ in range(30):
            u = u * (1.0 - 0.01 * x * tape.cos(u))
    return (u * u).sum()


def halved(x: Any) -> Any:
    while x > 1.0:
        x = x * 0.5 if x > 3.0 else x - 0.3
    return x


def adaptive(u: Any, p: Any) -> Any:
    """Take the steps of Heun's method whose error is small, others again that are shorter."""
    t, h = 0.0 * p[0], 0.3 + 0.0 * p[0]
    while t < 2.0:
        slope = tape.stack([p[0] * u[0] - u[0] * u[1], u[0] * u[1] - p[1] * u[1]])
        euler = u + h * slope
        further = tape.stack([p[0] * euler[0] - euler[0] * euler[1], euler[0] * euler[1] - p[1] * euler[1]])
        error = (0.5 * h * (further - slope)).abs().max()
        if error < 1e-2:
            t, u = t + h, u + 0.5 * h * (slope + further)
        h = h * tape.clip(0.9 * tape.sqrt(1e-2 / (error + 1e-30)), 0.3, 3.0)
        h = tape.minimum(h, 2.0 - t + 1e-12)
    return (u * u).sum() + h


def implicit(u: Any, p: Any) -> Any:
    """Take implicit steps: the equation of each is solved by as many iterations as that needs."""
    for _ in range(8):
        v = u
        while True:
            rest = v - u + 0.3 * p * v**3
            if abs(rest).max() < 1e-6:
                break
            v = v - rest / (1.0 + 0.9 * p * v * v)
        u = v
    return u.sum()


def rooted(x: Any, s: Any) -> Any:
    """Take roots where there are any: elsewhere they are nan, and their gradients."""
    while x > -0.6:
        if x > 0.0:
            x = tape.sqrt(x) * 0.5 - 0.5 * s
        elif x > -0.3:
            x = x - s * tape.log(-x) * 0.1 - 0.2
        else:
            x = x * 1.3 - 0.1
    return x * x


def left_early(u: Any, p: Any) -> Any:
    for _ in range(50):
        u = u * 0.8 + 0.01 * p
        if (u * u).sum() < 0.05:
            break
        if u[0] > 0.2:
            continue
        u = u + 0.05 * tape.sin(p)
    return u.sum()


def carried_from_within(x: Any) -> Any:
    """Carry the last of what a loop within computes: a part of that loop's memory that moves with its steps."""
    t, y = 0.0 * x[0], x
    while t < 4.0:
        for _ in range(5):
            y = 0.6 * x + 0.3 / (1.5 + y * y)
        t = t + y.sum() * 0.3
    return (y * y).sum() + t


def guarded_within(u: Any, x: Any) -> Any:
    """Choose in a loop within: a step of the outer one is left halfway where the other way is gone."""
    while (u * u).sum() > 1e-2:
        for _ in range(20):
            u = u * (1.0 - 0.1 * x / (1.0 + u * u)) if u[0] < 2.0 else 0.5 * u
    return (u * u).sum()


CASES: dict[Callable[..., Any], list[tuple[Any, ...]]] = {
    newton: [(x,) for x in (0.3, 2.0, 5.0, 0.01, 100.0, 1.0)],
    logistic: [(x,) for x in (0.3, 0.2, 0.1, 0.5, 0.7)],
    relaxed: [(U * s,) for s in (1.0, 0.9, 0.5, 0.1, 1.2, 0.01)],
    spirals: [(U * s, V) for s in (1.0, 2.0, 0.5, 0.9, 4.0, 0.01)],
    up_and_down: [(x,) for x in (1.0, 2.0, 3.0, 0.5, 1.5, 50.0)],
    halved: [(x,) for x in (9.0, 20.0, 7.0, 3.5, 0.5, 40.0)],
    adaptive: [(np.array([a, 0.8]), np.array([1.1, b])) for a, b in ((1.0, 0.4), (1.2, 0.5), (0.5, 0.9), (2.0, 3.0))],
    implicit: [(U * s, p) for s, p in ((1.0, 0.5), (0.9, 0.6), (3.0, 0.1), (0.1, 2.0), (5.0, 3.0))],
    rooted: [(x, 0.2) for x in (4.0, 3.0, 0.5, -0.1, 9.0)],
    left_early: [(U * s, V) for s in (1.0, 0.9, 0.5, 2.0, 0.1)],
    loops_within: [(U * s, 0.5) for s in (1.0, 0.9, 0.5, 0.1, 1.2, 0.01)],
    carried_from_within: [(np.linspace(0.1, 0.4, 3) * s,) for s in (1.0, 2.0, 0.3, 9.0, 0.01)],
    guarded_within: [(U * s, 1.2) for s in (1.0, 25.0, 0.9, 1.9, 30.0, 0.01)],
}


def flat(result: Any) -> Any:
    """Return a value and its gradients as one vector."""
    return np.concatenate([np.ravel(x) for x in (result[0], *result[1])])


@pytest.mark.parametrize(("function", "block"), in_turns(CASES, [2, 3, 1024]))
def test_value_and_gradients_are_those_of_dynamic_mode(
    function: Callable[..., Any], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_BLOCK", block)
    arguments = CASES[function]
    gradient = tape.value_and_grad(function, tuple(range(len(arguments[0]))))
    compiled = tape.compile(gradient, mode="max", check="never")
    for _ in range(3):
        for each in arguments:
            np.testing.assert_allclose(flat(compiled(*each)), flat(gradient(*each)), rtol=1e-12, atol=1e-14)
    assert "until it ends" in compiled.explain()
    assert "interpreter" not in compiled.explain()


@pytest.mark.quick
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_values_alone(function: Callable[..., Any]) -> None:
    compiled = tape.compile(function, mode="max", check="never")
    for _ in range(3):
        for each in CASES[function]:
            np.testing.assert_allclose(compiled(*each), function(*each), rtol=1e-12)
    assert "until it ends" in compiled.explain()


@pytest.mark.quick
@pytest.mark.quick
@pytest.mark.parametrize("size", [0, 2, 30])
@pytest.mark.parametrize("deep", [False, True])
def test_a_loop_without_iterations_contributes_nothing(size: int, *, deep: bool) -> None:
    """A slope that is infinite is not multiplied by what did not come."""

    def shrunk(x: Any, s: Any) -> Any:
        root, last = tape.sqrt(x), s * 1.0
        for _ in range(3 if deep else 1):
            s = last * 1.0
            while s > 1.0:
                s = s * 0.5 * (1.0 + 0.01 * root.sum())
            last = 0.9 * last + 0.1 * s
        return last

    def argument(value: float) -> Any:
        return np.full(size, value) if size else value

    gradient = tape.value_and_grad(shrunk, (0, 1))
    compiled = tape.compile(gradient, mode="max", check="never")
    for x, s in ((1.0, 5.0), (2.0, 3.0), (1.5, 9.0), (1.0, 6.0), (0.0, 0.5), (0.0, 0.9), (1.0, 0.9), (2.0, 7.0)):
        value, slopes = compiled(argument(x), s)
        expected, expected_slopes = gradient(argument(x), s)
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(slopes[0], expected_slopes[0], rtol=1e-12)
        assert slopes[1] == pytest.approx(expected_slopes[1], rel=1e-12)
    assert "until it ends" in compiled.explain()


def test_more_steps_than_machine_code_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_BLOCK", 2)
    monkeypatch.setattr(roll, "MOST_ITERATIONS", 4)
    gradient = tape.value_and_grad(newton, (0,))
    compiled = tape.compile(gradient, mode="max", check="never")
    for x in (2.0, 3.0, 5.0, 2.0, 1e10, 1e-8, 2.0):
        np.testing.assert_allclose(flat(compiled(x)), flat(gradient(x)), rtol=1e-12)
    assert "after 4 times at most" in compiled.explain()


def test_a_budget_for_a_long_loop() -> None:
    def heat(u: Any, steps: Any) -> Any:
        k = 0.0 * steps
        while k < steps:
            u = u + 0.1 * (tape.roll(u, 1) - 2.0 * u + tape.roll(u, -1)) - 0.001 * u * u * u
            k = k + 1.0
        return (u * u).sum()

    u = np.sin(np.linspace(0.0, 6.0, 100))
    compiled = tape.compile(tape.value_and_grad(heat), memory="1 MB")
    for steps in (5.0, 6.0, 7.0, 8.0, 9.0):
        compiled(u, steps)
    assert compiled.memory().total <= 1_000_000
    value, slope = compiled(u, 50_000.0)
    change = np.cos(np.arange(100.0))
    far = (compiled(u + 1e-4 * change, 50_000.0)[0] - compiled(u - 1e-4 * change, 50_000.0)[0]) / 2e-4
    assert slope @ change == pytest.approx(far, rel=1e-4)
    assert 0.0 < value < 0.1


def _by_a_number(x: Any) -> Any:
    while x > 1.0:
        x = x * (0.5, 0.7, 0.6)[int(tape.floor(0.1 * x))]
    return x


def _with_a_call(x: Any) -> Any:
    while x > 1.0:
        x = x * 0.5 if x > 3.0 else x - tape.linalg.solve(tape.eye(9) * x, np.ones(9))[3]
    return x


def _with_a_look_up(x: Any) -> Any:
    table, k = tape.tensor(np.linspace(0.8, 0.9, 4)), tape.tensor(0)
    while x > 1.0:
        if k < 4:
            x, k = x * table[k[None]].sum(), k + 1
        else:
            x = x - 0.9
    return x


@pytest.mark.quick
@pytest.mark.parametrize(
    ("function", "reason"),
    {
        _by_a_number: "several ways by what is no condition",
        _with_a_call: "in some ways alone",
        _with_a_look_up: "in some ways alone",
    }.items(),
)
def test_ways_that_stay_with_the_interpreter(function: Callable[..., Any], reason: str) -> None:
    compiled = tape.compile(function, mode="max")
    for x in (9.0, 25.0, 7.0, 9.0, 28.0, 25.0, 7.0) * 3:
        assert compiled(x) == function(x)
    assert reason in compiled.explain()
