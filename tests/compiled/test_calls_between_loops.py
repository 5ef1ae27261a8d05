"""Operations that are no statements: called between loops, natively or by the interpreter, in loops and out of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation
from kernels.kinds import routine
from kernels.language.expressions import UntranslatedError
from kernels.machine_code.compiled_machine import CompiledMachine

RNG = np.random.default_rng(0)
SQUARE = RNG.normal(size=(5, 5)) + 5 * np.eye(5)
GRID = RNG.normal(size=(4, 5))
VECTOR = RNG.normal(size=5)


def filtered(a: Any, x: Any) -> Any:
    """Solve and scale, step by step."""
    for _ in range(12):
        x = tape.linalg.solve(a, x) + tape.cumsum(x, 0) * 0.1
        a = a + 0.01 * tape.linalg.inv(a).T
    return (x * x).sum() + tape.linalg.det(a)


def of_a_view(x: Any) -> Any:
    """Read a part of a transposed matrix, and write to a result."""
    y = tape.linalg.inv(x.T[:3, :3]) * 1.0
    z = tape.linalg.cholesky(y @ y.T)
    z[0] = z[1] * 2.0
    return (z * x[:3, :3]).sum()


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solves in a loop": (filtered, (SQUARE, RNG.normal(size=5))),
    "views and writes": (of_a_view, (SQUARE,)),
    "of a number": (lambda x: tape.special.gammaln(x * x + 1.0) * x, (1.5,)),
    "by a kernel": (lambda x: (tape.cumprod(x, 0) * tape.cumsum(x, 1)).sum() + x.std() * x.var(1).sum(), (GRID,)),
    "median": (lambda x: tape.median(x) * x.sum(), (VECTOR,)),
    "of integers": (lambda x: x.sum() * (x > 0).sum() + (x // 1).sum(), (VECTOR,)),
    "batched": (
        lambda x, y: (tape.linalg.inv(x) * tape.linalg.inv(y)).sum(),
        (SQUARE, SQUARE[None] + RNG.normal(size=(3, 1, 5))),
    ),
    "twice the same": (lambda x: (tape.linalg.inv(x) @ tape.linalg.inv(x)).sum(), (SQUARE,)),
    "interpolated": (lambda x: tape.interp(x, np.arange(5.0), VECTOR).sum(), (RNG.uniform(size=7) * 4,)),
}


def machine_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, CompiledMachine, Compilation]:
    program = tape.record(function, *arguments)
    compilation = Compilation(program._recipe, reverse=True)
    return program, CompiledMachine(compilation.code()), compilation


@pytest.mark.quick
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_interpreter(name: str) -> None:
    function, arguments = CASES[name]
    program, machine, compilation = machine_of(function, arguments)
    assert any(line.lstrip().startswith("call_kernel") for line in compilation.source().splitlines())
    value, gradients = program.value_and_grad(*arguments)
    for _ in range(3):
        for got, expected in zip(machine.whole(arguments), (value, *gradients), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.quick
def test_what_python_raises_comes_from_a_call() -> None:
    compiled = tape.compile(tape.value_and_grad(lambda a: tape.linalg.inv(a).sum() * 2.0), mode="max")
    for _ in range(4):
        before = compiled(SQUARE)
    assert "1 call of inv by Python" in compiled.explain()
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        compiled(np.ones((5, 5)))
    np.testing.assert_array_equal(compiled(SQUARE)[1], before[1])


@pytest.mark.quick
def test_an_interrupt_in_a_call_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tape.compile(lambda a: tape.linalg.inv(a).sum() * 2.0, mode="max")
    for _ in range(4):
        compiled(SQUARE)

    came = []

    def interrupted(op: Any, arrays: Any, params: Any) -> Any:
        came.append(op.name)
        if len(came) == 1:
            raise KeyboardInterrupt
        return computed(op, arrays, params)

    computed = routine.computed
    monkeypatch.setattr(routine, "computed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(SQUARE)
    assert came == ["inv"], came
    compiled(SQUARE)


def test_calls_from_several_threads() -> None:
    function, arguments = CASES["solves in a loop"]
    program, machine, _ = machine_of(function, arguments)
    expected, found = program.value_and_grad(*arguments)[1][0], list[Any]()
    threads = [
        threading.Thread(target=lambda: found.extend(machine.whole(arguments)[1] for _ in range(20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for gradient in found:
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-13)


def test_what_has_a_call_is_exported_to_no_c(tmp_path: Path) -> None:
    compiled = tape.compile(lambda a: tape.linalg.inv(a).sum() * 2.0, mode="max")
    for _ in range(4):
        compiled(SQUARE)
    with pytest.raises(UntranslatedError, match="inv"):
        compiled.export_c(tmp_path / "unwritten.c", name="f")


@numba.njit
def _pushed(q: Any, k: Any) -> Any:
    if k > 100.0:
        raise ValueError("too stiff")
    force = np.empty_like(q)
    for i in range(q.size):
        force[i] = 0.1 * q[i - 1] - k * q[i] ** 3
    return force


@numba.njit
def _pushed_vjp(g: Any, q: Any, k: Any) -> Any:
    if k > 50.0:
        raise ValueError("too steep")
    q_bar, k_bar = np.zeros_like(q), 0.0
    for i in range(q.size):
        q_bar[i] -= 3.0 * k * q[i] ** 2 * g[i]
        q_bar[i - 1] += 0.1 * g[i]
        k_bar -= q[i] ** 3 * g[i]
    return q_bar, k_bar


pushed = tape.custom(_pushed, _pushed_vjp)


def swinging(q: Any, p: Any, k: Any) -> Any:
    """Integrate in time what a jitted function gives."""
    for _ in range(30):
        p = p + 0.01 * pushed(q, k)
        q = q + 0.01 * p
    return (q * q).sum() + pushed(q, 2.0 * k)[1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what Numba prints
def test_jitted_functions_are_called_and_what_they_raise_is_told() -> None:
    gradient = tape.value_and_grad(swinging, (0, 1, 2))
    compiled = tape.compile(gradient, mode="max", check="never")
    q, p = np.linspace(0.1, 1.0, 20), np.ones(20)
    for k in (1.3, 0.5, 2.0, 1.3):
        value, gradients = compiled(q, p, k)
        expected, slopes = gradient(q, p, k)
        assert value == pytest.approx(expected, rel=1e-12)
        for got, slope in zip(gradients, slopes, strict=True):
            np.testing.assert_allclose(got, slope, rtol=1e-12)
    assert "calls of _pushed by a kernel" in compiled.explain()
    for k in (60.0, 200.0):
        with pytest.raises(ValueError, match="too s"):  # as in dynamic mode, to which such a call goes back
            compiled(q, p, k)
        assert compiled(q, p, 1.3)[0] == pytest.approx(gradient(q, p, 1.3)[0], rel=1e-12)
    raised = 0
    for k in (60.0, 1.3) * 10:
        try:
            compiled(q, p, k)
        except ValueError:
            raised += 1
    assert raised == 10


@pytest.mark.quick
@pytest.mark.parametrize("size", [4, 45])
@pytest.mark.parametrize("lag", [1, 2, 3])
def test_calls_behind_a_loop_read_what_any_step_gave(lag: int, size: int) -> None:
    """What the last step gave is not all that is kept: of values and of gradients."""

    def passed(x: Any, s: Any) -> Any:
        history = [x]
        for _ in range(8):
            history.append(tape.stack([history[-1] * s, x * 0.5], -1).mean(-1))
        return tape.cumsum(history[-lag], 0).sum() + tape.cumprod(history[-lag - 1], 0).sum()

    gradient = tape.value_and_grad(passed, (0, 1))
    compiled = tape.compile(gradient, mode="max", check="never")
    for k in range(4):
        x, s = np.linspace(0.5, 0.9 + 0.1 * k, size), 0.9 + 0.1 * k
        value, slopes = compiled(x, s)
        expected, expected_slopes = gradient(x, s)
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(slopes[0], expected_slopes[0], rtol=1e-11)
        assert slopes[1] == pytest.approx(expected_slopes[1], rel=1e-11)
    assert "8 times" in compiled.explain()
