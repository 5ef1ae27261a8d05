"""Programs that differ in the extents of their arrays alone share machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiled_code import CompiledCode, SharedSizes
from kernels.compiler.compiling import Compilation
from kernels.machine_code.compiled_machine import CompiledMachine
from tests.compiled.test_loop_texts import rosenbrock


def mean(x: Any) -> Any:
    """Divide by a number of elements."""
    return (tape.sin(x) * x).mean()


def standardized(x: Any) -> Any:
    """Divide by numbers of elements, less one, along one axis and all."""
    return (((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)) ** 3).mean()


def weights(x: Any) -> Any:
    return (tape.softmax(x, 1) * x).sum()


def layer(x: Any, w: Any) -> Any:
    return tape.tanh(x @ w).sum()


def diffused(u: Any) -> Any:
    """Carry an array, whose rows are saved."""
    for _ in range(30):
        u = tape.cat([u[:1], u[1:-1] + 0.2 * u[1:-1] * (u[2:] - 2.0 * u[1:-1] + u[:-2]), u[-1:]])
    return (u * u).sum()


def largest(x: Any, w: Any) -> Any:
    return (tape.logsumexp(x * w, 1) * x.amax(1)).sum()


def lengths(x: Any) -> Any:
    """Call kernels between loops."""
    return (tape.cumsum(tape.exp(-x * x), 0) * tape.sqrt(x)).sum()


CASES: list[tuple[Callable[..., Any], list[tuple[int, ...]], list[tuple[int, ...]]]] = [
    (rosenbrock, [(50,)], [(51,)]),
    (diffused, [(50,)], [(51,)]),
    (rosenbrock, [(1_000_000,)], [(1_000_001,)]),
    (mean, [(50,)], [(51,)]),
    (mean, [(50, 70)], [(51, 75)]),
    (standardized, [(50, 70)], [(51, 71)]),
    (weights, [(30, 50)], [(29, 51)]),
    (weights, [(2000, 1100)], [(1999, 1200)]),
    (layer, [(50, 70), (70, 90)], [(51, 74), (74, 93)]),
    (layer, [(50, 7), (7, 90)], [(51, 7), (7, 93)]),
    (diffused, [(101,)], [(119,)]),
    (largest, [(50, 70), (70,)], [(51, 75), (75,)]),
    (lengths, [(150,)], [(151,)]),
]


def made(function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> tuple[CompiledCode, list[Any], Any]:
    """Return compiled code, arguments for it, and what dynamic mode gives for them."""
    draws = np.random.default_rng(len(shapes))
    args = [draws.uniform(0.5, 1.5, shape) for shape in shapes]
    code = Compilation(tape.record(function, *args)._recipe, reverse=True).code()
    return code, args, tape.value_and_grad(function, argnums=tuple(range(len(args))))(*args)


def agrees(code: CompiledCode, args: list[Any], expected: Any) -> None:
    value, *gradients = CompiledMachine(code).whole(args)
    np.testing.assert_allclose(value, float(expected[0]), rtol=1e-11)
    for gradient, wanted in zip(gradients, expected[1], strict=True):
        np.testing.assert_allclose(gradient, np.asarray(wanted), rtol=1e-11, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.quick
@pytest.mark.parametrize(("function", "first", "second"), CASES)
def test_other_extents_share_machine_code(
    function: Callable[..., Any], first: list[tuple[int, ...]], second: list[tuple[int, ...]]
) -> None:
    one, *known = made(function, first)
    two, *others = made(function, second)
    assert one.address == two.address
    agrees(one, *known)
    agrees(two, *others)
    agrees(one, *known)  # the code keeps nothing of the other


@pytest.mark.quick
def test_what_is_not_alike_has_code_of_its_own() -> None:
    """Rows as long as there are many, and constants of the user's, are other programs, at most, never other numbers."""
    square, rectangle = made(weights, [(40, 40)]), made(weights, [(40, 42)])
    agrees(*square)
    agrees(*rectangle)

    def scaled(x: Any) -> Any:
        return (x * 60.0 / 50.0).sum()

    for n in (50, 51, 60):
        agrees(*made(scaled, [(n,)]))


@pytest.mark.quick
def test_the_readable_program_has_numbers() -> None:
    text = Compilation(tape.record(rosenbrock, np.zeros(50))._recipe, reverse=True).listing()
    assert "range(2, 49)" in text or "range(1, 49)" in text
    assert "size" not in text


@pytest.mark.quick
def test_numbers_that_are_no_sizes_stay() -> None:
    """Names with digits, floats, sizes on the stack and places in tables are read as they are."""
    text = """def program(a0, c5):
    x100 = a0[100] * 100.5 + 1e-20 + 2500.0
    w[i1 + 64 * k0] = 49.0 + local_f8(128) + load_i8(table + 64)
    return 16


def run(table):
    return program(load_i8(table + 100), 100)
"""
    shared = SharedSizes(text, {50}, "c5", 3)
    assert shared.numbers == [100, 2500, 64, 49]
    lines = shared.text.splitlines()
    assert lines[1:7] == [
        "    size0 = c5[3]",
        "    size1 = c5[4]",
        "    f_size1 = np.float64(size1)",
        "    size2 = c5[5]",
        "    size3 = c5[6]",
        "    f_size3 = np.float64(size3)",
    ]
    assert lines[7:9] == [
        "    x100 = a0[size0] * 100.5 + 1e-20 + f_size1",
        "    w[i1 + size2 * k0] = f_size3 + local_f8(128) + load_i8(table + 64)",
    ]
    assert text.endswith("\n".join(lines[9:]) + "\n")
