"""Loops that write in place what they carry: values, gradients and what shares the memory are those of dynamic mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.tensors.pytrees import leaves

INPUTS = [(np.linspace(0.5, 1.5, 6) * (1.0 + 0.05 * k), 0.7 + 0.03 * (k % 11)) for k in range(24)]


def jacobi(u: Any, k: Any) -> Any:
    """Write a slice in each sweep, compared with what was there."""
    x = u.clone()
    while True:
        old = x.clone()
        x[1:-1] = 0.5 * (x[2:] + x[:-2]) * k
        if abs(x - old).max() < 1e-6:
            break
    return (x * x).sum()


def gauss_seidel(u: Any, k: Any) -> Any:
    """Write one element after the other."""
    x = u.clone()
    for _ in range(40):
        before = x.sum()
        for i in range(1, 5):
            x[i] = 0.5 * k * (x[i - 1] + x[i + 1])
        if abs(x.sum() - before) < 1e-7:
            break
    return (x * x).sum()


def written_behind(u: Any, k: Any) -> Any:
    """Write what the loop carried behind it, and another array in it."""
    x, y = u.clone(), u * k
    while (x * x).sum() > 0.3:
        x *= 0.8
        y[0] += x[1]
        x[0] = y[2] * 0.1
        y = y * 0.9
    x[2] = 3.0
    return (x * y).sum()


def view_from_before(u: Any, k: Any) -> Any:
    """Read a view, made before the loop, in it and behind it."""
    x, total = u.clone(), 0.0 * k
    tail = x[1:]
    while x.sum() > 1.0:
        x *= 0.8
        total = total + tail[0] * x[2]
    return (tail * tail).sum() + total


def view_written_in_a_loop_within(u: Any, k: Any) -> Any:
    """Write through a view from before all loops; read what it is of behind the loop within, and behind both."""
    x, total = u.clone(), 0.0 * k
    tail = x[1:]
    for _ in range(3):
        e = 1.0 + k
        while e > 0.4:
            e = e * 0.7
            tail += 0.1 * k
            tail[:1] *= 0.9
        total = total + x.sum()
    return (x * x).sum() + total


def view_of_three_loops(u: Any, k: Any) -> Any:
    x = u.clone()
    tail = x.reshape(2, -1)[1:]
    for _ in range(2):
        d = 1.0 + k
        while d > 0.8:
            d, e = d * 0.7, 1.0 + k
            while e > 0.4:
                e = e * 0.7
                tail *= 0.9 + 0.01 * k
    return (x * x).sum()


def views_within(u: Any, k: Any) -> Any:
    """Write through views that overlap."""
    x = u.clone()
    while x.sum() > 1.0:
        v = x[1:]
        v *= 0.8
        x[0] *= 0.5
        w = x[2:4]
        w += 0.01 * v[0]
    return (x * x).sum() * k


def one_in_another(u: Any, k: Any) -> Any:
    """Write in an inner loop, and behind it, what the outer one carries."""
    x = u.clone()
    for _ in range(4):
        while x.sum() > 2.0:
            x *= 0.8
        x += 0.3 * k
    return (x * x).sum()


def one_way_alone(u: Any, k: Any) -> Any:
    """Write in some iterations, and make another array in others."""
    x, n = u.clone(), 0.0 * k
    while n < 6.0:
        if x.sum() > 3.0:
            x *= 0.7
        else:
            x = x + 0.2
        n = n + 1.0
    return (x * x).sum()


def two_names(u: Any, k: Any) -> Any:
    """Begin with two names of one array."""
    x, n = u.clone(), 0.0 * k
    y = x
    while n < 6.0 * k:
        x *= 0.7
        y = y + 0.1
        n = n + 1.0
    return (x * y).sum()


def by_an_argument(u: Any, k: Any) -> Any:
    """Add an argument, and write where no gradient is wanted."""
    x, n = u * 1.0, 0.0 * k
    while n < 4.0 * k:
        x += u
        with tape.no_grad():
            x *= 0.5
        n = n + 1.0
    return (x * x).sum()


FUNCTIONS = [
    jacobi, gauss_seidel, written_behind, view_from_before, views_within, one_in_another, one_way_alone, two_names,
    by_an_argument, view_written_in_a_loop_within, view_of_three_loops,
]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("mode", ["default", "max"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_and_gradients_are_those_of_dynamic_mode(function: Callable[..., Any], mode: str) -> None:
    gradient = tape.value_and_grad(function, (0, 1))
    compiled = tape.compile(gradient, mode=mode, check="never")  # type: ignore[call-overload]
    for u, k in INPUTS:
        value, slopes = compiled(u, k)
        expected, expected_slopes = gradient(u, k)
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(slopes[0], expected_slopes[0], rtol=1e-10, atol=1e-13)
        assert slopes[1] == pytest.approx(expected_slopes[1], rel=1e-10, abs=1e-13)
    assert compiled.calls["recorded"] <= 6
    if mode == "max":
        assert "until it ends" in compiled.explain()
        assert "interpreter:" not in compiled.explain()


def halved_within(u: Any, k: Any) -> Any:
    """Write an argument in the loop."""
    n = 0.0 * k
    while n < 4.0 * k:
        u *= 0.5
        n = n + 1.0
    return (u * u).sum()


def halved_behind(u: Any, k: Any) -> Any:
    """Write an argument behind the loop that reads it."""
    n = 0.0 * k
    while n < 4.0 * k:
        n = n + 1.0 + 0.0 * u.sum()
    u[1:] *= 0.5
    return u.sum() + n


@pytest.mark.quick
@pytest.mark.parametrize("mode", ["default", "max"])
@pytest.mark.parametrize("halved", [halved_within, halved_behind])
def test_an_argument_is_written(halved: Callable[..., Any], mode: str) -> None:
    compiled = tape.compile(halved, mode=mode, check="never")  # type: ignore[call-overload]
    for call in range(12):
        k = 0.7 + 0.1 * call
        mine, other = (tape.tensor(np.linspace(1.0, 2.0, 4) + call) for _ in range(2))
        assert float(compiled(mine, k)) == pytest.approx(float(halved(other, tape.tensor(k))), rel=1e-12)
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-12)


STARTS: dict[str, Callable[[], Any]] = {
    "a constant": lambda: tape.tensor([0.3, -0.2, 0.5]),
    "zeros": lambda: tape.zeros(3),
    "a part of a constant": lambda: tape.zeros(5)[1:4],
    "a part with gaps": lambda: tape.tensor([0.3, 0.1, -0.2, 0.4, 0.5])[::2],
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "an element": lambda u, e: (u.__setitem__(1, 0.5 * u[0] + e), u * 0.9 + 0.1)[1],
    "a part": lambda u, _e: (u[1:].mul_(0.5), u * 0.9 + 0.1)[1],
    "an element into another": lambda u, e: (u.__setitem__(2, u[0]), u * 0.5 + e * u[2])[1],
    "what was carried": lambda u, e: (u * 1.1, u.__setitem__(0, 2.0 * e))[0] + u.sum(),
    "where it is detached": lambda u, e: (u * 1.1, u.detach().__setitem__(0, 2.0 * e))[0] + u.sum(),
}


@pytest.mark.quick
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("write", WRITES)
def test_a_constant_that_a_loop_begins_with_is_written(write: str, start: str) -> None:
    def f(x: Any, w: Any) -> Any:
        u, e = STARTS[start](), 1.0 + 0.3 * tape.sin(x)
        for _ in range(9):
            e = e * 0.7
            u = WRITES[write](u, e)
            if e < 0.4:
                break
        return (u * w).sum()

    w = np.array([0.7, -0.4, 0.2])
    dynamic = tape.value_and_grad(f, (0, 1))
    for arguments in ((lambda x: (x, w)), (lambda x: (tape.tensor(x), tape.tensor(w)))):
        compiled = tape.compile(tape.value_and_grad(f, (0, 1)), mode="eager", check="never")
        for x in (0.5, 0.6, 0.5, 3.5, -1.5, 1.5, 4.5, -1.4):  # two to four iterations
            for got, right in zip(*(leaves(g(*arguments(x))) for g in (compiled, dynamic)), strict=True):
                np.testing.assert_allclose(np.asarray(got), np.asarray(right), rtol=1e-12, atol=1e-14)


@pytest.mark.quick
def test_differences_agree() -> None:
    """The truth is another one than dynamic mode."""
    gradient = tape.compile(tape.value_and_grad(gauss_seidel, (0, 1)), mode="max")
    for u, k in INPUTS[:8]:
        slope = gradient(u, k)[1][1]
        far = [float(gauss_seidel(tape.tensor(u), tape.tensor(k + h))) for h in (1e-6, -1e-6)]
        assert slope == pytest.approx((far[0] - far[1]) / 2e-6, rel=1e-5)
