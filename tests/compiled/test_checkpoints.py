"""Memory budgets: loops in blocks, whose steps run forward again from checkpoints, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation
from kernels.compiler.forward_text import StepLoopText
from kernels.machine_code.compiled_machine import CompiledMachine

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("few_passes")]

U = np.sin(np.linspace(0.0, 6.0, 40))


def orbit(x: Any, y: Any) -> Any:
    """Numbers in registers, each of which needs the other."""
    for _ in range(101):
        x, y = x + 0.01 * tape.sin(x * y), y - 0.02 * x * y * x
    return x * y


def diffusion(u: Any) -> Any:
    for _ in range(50):
        u = u + 0.1 * (tape.roll(u, 1) - 2.0 * u + tape.roll(u, -1)) - 0.01 * u * u * u
    return (u * u).sum()


def two_and_a_sum(u: Any) -> Any:
    v, total = u * 1.0, 0.0
    for k in range(37):
        u, v = u * tape.cos(v), u + 0.1 * k * u * v
        total = total + (u * v).sum()
    return total + (v**2).sum()


def every_step(u: Any) -> Any:
    """Read what all steps gave behind the loop."""
    sums = []
    for _ in range(30):
        u = tape.sin(u) * 1.1
        sums.append(u.sum())
    return (tape.stack(sums) ** 2).sum()


def loops_in_loops(u: Any) -> Any:
    for _ in range(40):
        for _ in range(30):
            u = u + 0.01 * tape.sin(u) * u
        u = u * 0.99
    return (u * u).sum()


def solves(u: Any) -> Any:
    a = tape.outer(u[:5], u[:5]) + 2.0 * np.eye(5)
    x = u[:5]
    for _ in range(40):
        x = tape.linalg.solve(a, x) + tape.sin(x)
    return (x * x).sum()


def masks(u: Any) -> Any:
    x, y = u * 1.0, u[0]
    for _ in range(60):
        x = tape.where(x > y, x * 0.9, x * 1.1 + y)
    return (x * y).sum()


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "orbit": (orbit, (0.5, 0.7)),
    **{f.__name__: (f, (U,)) for f in (diffusion, two_and_a_sum, every_step, loops_in_loops, solves, masks)},
}


@pytest.mark.quick
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_without_a_budget(name: str) -> None:
    function, arguments = CASES[name]
    recipe = tape.record(function, *arguments)._recipe
    whole = Compilation(recipe, reverse=True)
    size, expected = whole.storage.work()[1], CompiledMachine(whole.code()).whole(arguments)
    sizes = []
    for budget in (size // 2, size // 3, 1):
        compilation = Compilation(recipe, reverse=True, memory=budget)
        machine = CompiledMachine(compilation.code())
        sizes.append(compilation.storage.work()[1])
        assert compilation.storage.blocks
        for _ in range(2):
            for got, value in zip(machine.whole(arguments), expected, strict=True):
                np.testing.assert_allclose(got, value, rtol=1e-13, atol=1e-15)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= size // 2 or sizes[0] == sizes[-1]
    assert not Compilation(recipe, reverse=True, memory=size).storage.blocks


@pytest.mark.quick
def test_a_budget_of_a_compiled_function() -> None:
    gradient = tape.value_and_grad(diffusion)
    expected = gradient(U)
    compiled = tape.compile(gradient, memory="12 kB")
    for _ in range(5):
        value, slope = compiled(U)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-12)
    assert value == pytest.approx(expected[0], rel=1e-12)
    assert "machine code" in compiled.explain()
    assert compiled.memory().total <= 12_000
    with pytest.raises(MemoryError, match=r"needs [\d,]+ bytes of memory, of which .* allows 100"):
        _called(tape.compile(gradient, memory=100), U)


def test_a_budget_that_the_workspace_alone_fills_is_kept() -> None:
    """Some bytes stand beside it: a larger budget works where a smaller one does."""
    recipe, expected = tape.record(diffusion, U)._recipe, tape.value_and_grad(diffusion)(U)
    for budget in (12_000, 16_000):
        size = Compilation(recipe, reverse=True, memory=budget).storage.work()[1]
        for memory in (size, size + 8, budget):
            compiled = tape.compile(tape.value_and_grad(diffusion), memory=memory)
            value, slope = _called(compiled, U)
            np.testing.assert_allclose(slope, expected[1], rtol=1e-12)
            assert value == pytest.approx(expected[0], rel=1e-12)
            assert compiled.memory().total <= memory


def _called(compiled: Any, *arguments: Any) -> Any:
    for _ in range(4):
        result = compiled(*arguments)
    return result


@pytest.mark.quick
@pytest.mark.parametrize("memory", ["x", 0, -1, True, "5 QB", "", "-3 MB"])
def test_what_is_no_memory(memory: Any) -> None:
    with pytest.raises(ValueError, match="memory is"):
        tape.compile(orbit, memory=memory)


@pytest.mark.quick
def test_memory_needs_machine_code() -> None:
    with pytest.raises(TypeError):
        tape.compile(orbit, memory=1.5)
    with pytest.raises(ValueError, match="eager"):
        tape.compile(orbit, memory="1 GB", mode="eager")


def test_a_lost_checkpoint_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tape.record(diffusion, U)._recipe
    expected = CompiledMachine(Compilation(recipe, reverse=True).code()).whole((U,))[1]
    monkeypatch.setattr(StepLoopText, "_resume_block", lambda *_: None)
    found = CompiledMachine(Compilation(recipe, reverse=True, memory=1).code()).whole((U,))[1]
    assert not np.allclose(found, expected, rtol=1e-9)
