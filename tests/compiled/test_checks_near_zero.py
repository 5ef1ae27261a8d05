"""Checks of machine code where results are what is left of terms that cancel: rounding is no fault, a wrong term is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(20, 5))
SOLUTION = RNG.normal(size=5)
RIGHT = MATRIX @ SOLUTION
FITTED = np.linalg.lstsq(MATRIX, RIGHT + RNG.normal(size=20), rcond=None)[0]


def residual(x: Any) -> Any:
    return tape.exp(x) * np.cos(1.0) - tape.sin(x) * 3 - x * x + 0.3


def root() -> np.ndarray[Any, Any]:
    x = np.linspace(0.5, 0.6, 20)
    for _ in range(30):
        r = np.exp(x) * np.cos(1.0) - np.sin(x) * 3 - x * x + 0.3
        x = x - r / (np.exp(x) * np.cos(1.0) - 3 * np.cos(x) - 2 * x)
    return x


def loss(x: Any) -> Any:
    r = MATRIX @ x - RIGHT
    return (r * r).sum()


def cancelled(x: Any) -> Any:
    return (tape.sin(x) ** 2 + tape.cos(x) ** 2 - 1).sum() + (tape.exp(x) * tape.exp(-x) - 1).sum()


def chaotic(x: Any, steps: int = 150) -> Any:
    for _ in range(steps):
        x = 3.9 * x * (1 - x)
    return x


def settled(x: Any) -> Any:
    """What a loop is still from its limit, which forgets how the arguments round."""
    for _ in range(60):
        x = x + 0.1 * (tape.cos(x) - x)
    return tape.cos(x) - x


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def run(compiled: Any, x: Any, count: int = 12) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(count):
            compiled(x * (1 + k * 1e-15))
    return [str(w.message) for w in caught if issubclass(w.category, CompileWarning)]


def planted(function: Callable[..., Any], wrong: Callable[..., Any], x: Any) -> Any:
    """A compiled function whose machine code is that of another."""
    right, other = (tape.compile(f, mode="max", check="always") for f in (function, wrong))
    for compiled in (other, right):
        for _ in range(3):
            compiled(x)
    program, source = right.programs[0], other.programs[0]
    for reverse, machines in source._machines.items():
        if machines:
            program._first[reverse], program._machines[reverse][:] = source._first[reverse], machines
    right._forget()
    return right


CASES = (
    (residual, root()),
    (tape.value_and_grad(loss), SOLUTION),
    (tape.value_and_grad(lambda x: loss(x) + 1.0), FITTED),
    (cancelled, np.linspace(0.0, 3.0, 50)),
    (tape.func.grad(lambda x: ((x - 1) ** 2 * tape.exp(x)).sum()), np.ones(7)),
    (lambda x: (x - x.mean()).sum(), np.linspace(1.0, 2.0, 77)),
    (settled, np.linspace(0.5, 1.0, 7)),
    (tape.value_and_grad(lambda x: settled(x).sum()), np.linspace(0.5, 1.0, 7)),
    (tape.value_and_grad(lambda x: ((x**2).sum() - x @ x) * 1e8), np.linspace(-1.0, 2.0, 99)),
    (tape.value_and_grad(rosenbrock), np.ones(3)),
    (tape.func.hessian(rosenbrock), np.ones(4)),
)


@pytest.mark.quick
@pytest.mark.parametrize(("function", "x"), CASES)
def test_what_rounding_leaves_of_zero_is_no_fault(function: Callable[..., Any], x: Any) -> None:
    compiled = tape.compile(function, mode="max", check="always")
    assert run(compiled, x) == []
    assert compiled.programs[0].is_machine_code


@pytest.mark.quick
def test_what_rounding_moves_more_is_no_fault() -> None:
    x = np.linspace(0.1, 0.9, 9)
    compiled = planted(lambda x: chaotic(x, 30), lambda x: chaotic(x * (1 - 1e-16), 30), x)
    assert run(compiled, x) == []
    assert compiled.programs[0].is_machine_code
    assert np.abs(compiled(x) / chaotic(x, 30) - 1).max() > 1e-9  # more than what terms of the results' size leave


@pytest.mark.parametrize(
    ("function", "wrong", "x"),
    [
        (residual, lambda x: residual(x) + 1e-10 * x, root()),
        (residual, lambda x: residual(x) + 1e-9 * tape.exp(x), root()),
        (tape.value_and_grad(loss), tape.value_and_grad(lambda x: loss(x) + 1e-10 * x.sum()), SOLUTION),
        (settled, lambda x: settled(x) + 1e-11, np.linspace(0.5, 1.0, 7)),
        (settled, lambda x: settled(x) * (1 + 1e-6), np.linspace(0.5, 1.0, 7)),
        (
            tape.value_and_grad(lambda x: settled(x).sum()),
            tape.value_and_grad(lambda x: settled(x).sum() * (1 + 1e-6)),
            np.linspace(0.5, 1.0, 7),
        ),
        (
            tape.value_and_grad(rosenbrock),
            tape.value_and_grad(lambda x: rosenbrock(x) + 1e-9 * x.sum()),
            np.ones(3) + 1e-7,
        ),
        (cancelled, lambda x: cancelled(x) + 1e-9, np.linspace(0.0, 3.0, 50)),
        (lambda x: tape.sin(x) + x, lambda x: tape.sin(x) * (1 + 1e-6) + x, np.linspace(1.0, 2.0, 9)),
        (lambda x: (1e9 * x).sum() * 0 + residual(x), lambda x: (1e9 * x).sum() * 0 + residual(x) + 1e-9 * x, root()),
        (lambda x: chaotic(x, 30), lambda x: chaotic(x, 30) * (1 + 1e-6), np.linspace(0.1, 0.9, 9)),
        (chaotic, lambda x: chaotic(x + 1e-16), np.linspace(0.1, 0.9, 9)),  # where rounding grows to anything
    ],
)
def test_a_wrong_term_is_a_fault_near_zero_too(function: Callable[..., Any], wrong: Callable[..., Any], x: Any) -> None:
    compiled = planted(function, wrong, x)
    (message,) = run(compiled, x)
    assert "machine code gave other results" in message
    assert not compiled.programs[0].is_machine_code


def test_what_is_near_zero_in_single_precision_and_on_tensors() -> None:
    single = tape.compile(cancelled, mode="max", check="always")
    assert run(single, np.linspace(0.0, 3.0, 50, dtype=np.float32)) == []
    tensors = tape.compile(lambda x: {"r": residual(x), "l": [loss(x[:5]) * 0]}, mode="max", check="always")
    assert run(tensors, tape.tensor(root(), requires_grad=True)) == []
    assert single.programs[0].is_machine_code
    assert tensors.programs[0].is_machine_code
