"""Loops that values end in steps that repeat, whose number, time or data differs: machine code has a loop in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler import compiling, storage
from kernels.compiler.expansion import Expansion
from kernels.compiler.storage import Storage
from kernels.programs.several_ways import without_unchanged
from tests.support.agreeing_gradients import assert_agrees

pytestmark = pytest.mark.exhaustive

INPUTS = (1.3, 0.7, 3.1, 0.9, 2.4, 1.1, 2.9)
FORCES = np.cos(np.arange(12.0 * 20).reshape(12, 20))


def solved(x: Any, forced: Any, h: float) -> Any:
    """Take an implicit step of ``x' = forced - x**3``."""
    new = x * 0.9
    for _ in range(30):
        rest = new - x - h * (forced - new**3)
        if abs(rest) < 1e-12:
            break
        new = new - rest / (1.0 + 3.0 * h * new * new)
    return new


def by_time(x: Any) -> Any:
    """Apply a force that depends on the time."""
    for step in range(9):
        x = solved(x, np.sin(step * 0.3) + 1.0, 0.05)
    return x * x


def by_accumulated_time(x: Any) -> Any:
    """Add up the time, and let steps grow."""
    t, h = 0.0, 0.02
    for _ in range(8):
        t, h = t + h, h * 1.1
        x = solved(x, tape.exp(-tape.tensor(t)) + 1.0, h)
    return x


def trajectory(x: Any) -> Any:
    """Keep all that was passed, and read some of it behind."""
    passed = []
    for step in range(7):
        x = solved(x, 0.2 * step, 0.1)
        passed.append(x)
    return (tape.stack(passed) ** 2).sum() + passed[2] * passed[5]


def with_data(x: Any) -> Any:
    """Carry arrays, and read a row of data in each step."""
    u = tape.linspace(0.5, 1.5, 20) * x
    for row in FORCES:
        new = u * 1.0
        while abs(rest := new - u - 0.1 * (row - new**3)).max() > 1e-10:
            new = new - rest / (1.0 + 0.3 * new * new)
        u = new
    return (u * u).sum() + u[3]


def passed_arrays(x: Any) -> Any:
    """Keep arrays of all steps."""
    u, passed = tape.linspace(0.5, 1.5, 20) * x, []
    for row in FORCES:
        new = u * 1.0
        while abs(rest := new - u - 0.1 * (row - new**3)).max() > 1e-10:
            new = new - rest / (1.0 + 0.3 * new * new)
        u = new
        passed.append(u)
    return (tape.stack(passed) ** 2).sum() + passed[4][2]


def repeats_in_repeats(x: Any) -> Any:
    """Solve in steps of steps, and have repeats in the loop that solves."""
    weights = np.linspace(0.1, 0.4, 40)
    for step in range(5):
        for part in range(4):
            new = x * 0.9
            while abs(rest := new - x - 0.02 * (step + 0.3 * part - new**3)) > 1e-11:
                slope = x * 0.0 + 1.0
                for weight in weights:
                    slope = slope + 0.001 * weight * tape.sin(new * weight)
                new = new - rest / (slope + 0.06 * new * new)
            x = new
    return x


def looked_at(x: Any) -> Any:
    """Decide something in each step, outside of the loop that solves."""
    for step in range(6):
        x = solved(x, 0.1 * step, 0.05)
        x = x * 1.01 if x > 0.2 else x * 0.5
    return x


def counted(x: Any) -> Any:
    """Have a loop in each step that runs as often as a value says."""
    for step in range(6):
        often = x.detach() * 2.0 + 2.0
        for _ in range(int(often)):
            x = x * 0.9 + 0.01 * step
        x = x + 0.3
    return x


FUNCTIONS = [
    by_time, by_accumulated_time, trajectory, with_data, passed_arrays, repeats_in_repeats, looked_at, counted,
]  # fmt: skip


def in_blocks(_: int, expansion: Expansion, place: Callable[[dict[int, int]], Storage]) -> Storage:
    """Return a storage with all loops that can in blocks of a third of their steps."""
    return place({loop.loop.number: -(-loop.loop.count // 3) for loop in storage._restartable(expansion)})


@pytest.mark.parametrize("memory", [None, "1GB"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_machine_code(function: Callable[[Any], Any], memory: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget, loops are in blocks."""
    monkeypatch.setattr(compiling, "storage_within", in_blocks)
    gradient = tape.compile(tape.value_and_grad(function), mode="max", check="never", memory=memory)
    alone = tape.compile(function, mode="max", check="never")
    for x in INPUTS * 4:
        value, slope = tape.value_and_grad(function)(x)
        found, found_slope = gradient(x)
        assert found == pytest.approx(value, rel=1e-11), x
        assert found_slope == pytest.approx(slope, rel=1e-9, abs=1e-12), x
        assert alone(x) == pytest.approx(value, rel=1e-11), x
    for explained in (gradient.explain(), alone.explain()):
        lines = explained.splitlines()
        inner = [k for k, line in enumerate(lines) if "loop, until it ends" in line or "as often as" in line]
        assert inner, explained
        assert len(inner) <= 3, explained
        outer = [line for line in lines[: inner[-1]] if "loop, " in line]  # by a number, or by what ends it
        assert any(" times " in line for line in outer), explained


@pytest.mark.quick
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_values_and_gradients_are_those_of_dynamic_mode(function: Callable[[Any], Any]) -> None:
    compiled, gradient = tape.compile(function), tape.compile(tape.value_and_grad(function))
    for x in INPUTS * 3:
        value, slope = tape.value_and_grad(function)(x)
        found, found_slope = gradient(x)
        assert compiled(x) == value == found, x
        assert found_slope == pytest.approx(slope, rel=1e-12, abs=1e-300), x


@pytest.mark.quick
def test_a_step_that_decides_otherwise_is_told() -> None:
    """Guards of steps have numbers of their own, those of loops in steps have none."""
    compiled = tape.compile(tape.value_and_grad(looked_at), mode="max", check="never")
    for x in (1.3, 1.2, 1.1, 1.3, 1.2, 0.21, 0.22, 0.3, 1.3, 0.205, 0.9):
        value, slope = tape.value_and_grad(looked_at)(x)
        found, found_slope = compiled(x)
        assert (found, found_slope) == (pytest.approx(value, rel=1e-12), pytest.approx(slope, rel=1e-10)), x
    assert "6 times" in compiled.explain()


@pytest.mark.quick
def test_rows_of_inner_iterations_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_ROWS", 4)
    monkeypatch.setattr(compiling, "_ROWS_OF_STEP", 3)

    def often(x: Any, tolerance: Any) -> Any:
        for step in range(5):
            y = x * 1.0
            while y > tolerance:
                y = y * 0.9
            x = x + 0.1 * y * step
        return x

    compiled = tape.compile(tape.value_and_grad(often), mode="max", check="never")
    for tolerance in (1.1, 1.0, 1.1, 1.0, 0.2, 1e-3, 1e-9, 1.1):
        for _ in range(2):
            assert_agrees(compiled, often, 1.2, tolerance)
    assert "5 times" in compiled.explain()


@pytest.mark.quick
def test_what_loops_do_not_change_they_do_not_carry() -> None:
    """Neither do those around them, which would hand on what inner ones do."""

    def scaled(x: Any, y: Any, factors: Any) -> Any:
        while x > 0.5:
            z = x * 1.0
            while z > factors[1]:
                z = z * factors[0]
            x = z * 0.5 + 0.01 * y
        return x * y + factors[0]

    compiled = tape.compile(tape.value_and_grad(scaled, (0, 1)), check="never")
    for x in (3.0, 4.0, 5.0, 2.5, 3.0, 7.0):
        value, slopes = tape.value_and_grad(scaled, (0, 1))(x, 0.3, [0.8, 0.7])
        found, found_slopes = compiled(x, 0.3, [0.8, 0.7])
        assert found == value
        assert found_slopes == pytest.approx(slopes, rel=1e-12)
    (program,) = compiled.programs
    recipe = program._recipe
    assert without_unchanged(recipe) is recipe
    begins = [line.partition("False")[0] for line in str(program).splitlines() if "loop_begin" in line]
    assert [line.partition("loop_begin")[2].count("%") for line in begins] == [1, 1], program
