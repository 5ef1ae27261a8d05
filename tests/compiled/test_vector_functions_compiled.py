"""Vector functions in compiled loops: angles beyond their range among others, and long chains of them side by side."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

import tape
from kernels.compiler.compiling import Compilation
from kernels.language import cache_files, jit
from kernels.language.lanes import CallingModule, loop_hints
from kernels.machine_code.compiled_machine import CompiledMachine
from tests.support.quick_compiles import MarkedCompilation

pytestmark = pytest.mark.quick
FAR = [1.6e6, -2e9, 1e22, -1e300, np.inf, -np.inf, np.nan, 1.5e6, -0.0, 5e-324]


def angles(count: int, far: float) -> Any:
    """Return angles, a part of which no vector function takes."""
    chance = np.random.default_rng(count)
    x = chance.uniform(-400.0, 400.0, count)
    return np.where(chance.uniform(size=count) < far, chance.choice(FAR, count), x)


@pytest.mark.parametrize("count", [9, 16, 31, 64, 100, 1003])
@pytest.mark.parametrize("far", [0.0, 0.02, 0.5, 1.0])
def test_angles_of_all_sizes(count: int, far: float) -> None:
    def turned(x: Any, w: Any) -> Any:
        y = tape.sin(x)
        z = tape.cos(x) * w + tape.tan(x)
        return (y * w).sum(), y, z

    x, w = angles(count, far), np.linspace(0.5, 1.5, count)
    with np.errstate(all="ignore"):
        program = tape.record(turned, x, w)
        compilation = Compilation(program._recipe, reverse=True)
        assert "vectormath.beyond" in compilation.listing()
        _, y, z, x_bar, w_bar = CompiledMachine(compilation.code()).whole([x, w])
        np.testing.assert_allclose(y, np.sin(x), rtol=1e-15, atol=1e-15)
        np.testing.assert_allclose(z, np.cos(x) * w + np.tan(x), rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(x_bar, np.cos(x) * w, rtol=1e-15, atol=1e-15)
        np.testing.assert_allclose(w_bar, np.sin(x), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("count", [20, 50, 1000])
def test_long_chains(count: int) -> None:
    def chained(x: Any) -> Any:
        for k in range(30):
            x = tape.exp(-x) * (1.0 - 0.01 * k) + 0.1 * tape.tanh(x) * tape.sin(x)
        return (x * x).sum()

    x = np.linspace(0.1, 0.9, count)
    program = tape.record(chained, x)
    value, slope = CompiledMachine(Compilation(program._recipe, reverse=True, roll=False).code()).whole([x])
    expected, gradient = tape.value_and_grad(chained)(x)
    assert value == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(slope, gradient, rtol=1e-11)


@pytest.mark.parametrize(
    ("source", "hints"),
    {
        "for i in range(9):\n    a[i] = 1.0": [],
        "for i in range(9):\n    a[i] = vectormath.exp(b[i])": ["interleave.count"],
        "for i in masked(9):\n    a[i] = vectormath.exp(b[i])": [
            "vectorize.predicate.enable", "unroll.disable", "interleave.count",
        ],
        "for i in masked(9):\n" + "    a[i] = b[i]\n" * 20: ["vectorize.predicate.enable", "unroll.disable"],
        "for i in range(9):\n" + "    a[i] = b[i]\n" * 20: ["interleave.count"],
        "for k in range(9):\n    for i in range(9):\n        a[i] = vectormath.exp(b[i])": [],
    }.items(),
)  # fmt: skip
def test_what_llvm_is_told(source: str, hints: list[str]) -> None:
    (loop,) = ast.parse(source).body
    assert isinstance(loop, ast.For)
    assert [name.removeprefix("llvm.loop.") for name, _ in loop_hints(loop)] == hints


class Called(MarkedCompilation):
    """A program whose vector functions are called."""

    mark = "CALLED = True"


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have vector functions called, however few; what LLVM made of modules is put into the list."""
    texts, optimize = list[str](), jit._optimized

    def noted(module: Any, *, few: bool) -> Any:
        made = optimize(module, few=few)
        texts.append(str(made))
        return made

    monkeypatch.setattr(jit, "MOST_COPIES", -1)
    monkeypatch.setattr(jit, "_optimized", noted)
    monkeypatch.setattr(cache_files, "read", lambda _: None)
    monkeypatch.setattr(cache_files, "write", lambda *_: None)
    return texts


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": tape.exp, "expm1": tape.expm1, "exp2": tape.exp2, "log": tape.log, "log1p": tape.log1p, "log2": tape.log2,
    "log10": tape.log10, "sin": tape.sin, "cos": tape.cos, "tan": tape.tan, "sinh": tape.sinh, "cosh": tape.cosh,
    "tanh": tape.tanh, "sigmoid": tape.sigmoid, "erf": tape.special.erf, "erfc": tape.special.erfc,
    "atan": tape.atan, "pow": lambda x: x**1.7,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_are_called_give_what_copies_give(name: str, dtype: Any, optimized: list[str]) -> None:
    def applied(x: Any) -> Any:
        y = FUNCTIONS[name](x)
        return (y * y).sum(), y

    for count in (9, 23, 200):
        x = np.linspace(0.05, 3.2, count, dtype=dtype)
        x[3] = np.pi
        info = np.finfo(dtype)
        x[::5] = [-0.0, info.max / 2, np.inf, np.nan, info.smallest_subnormal, 745.2, -700.0][count % 7]
        with np.errstate(all="ignore"):
            recipe = tape.record(applied, x)._recipe
            called = CompiledMachine(Called(recipe, reverse=True).code()).whole([x])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(jit, "MOST_COPIES", 1000)
                copied = CompiledMachine(Compilation(recipe, reverse=True).code()).whole([x])
        for one, other in zip(called, copied, strict=True):
            np.testing.assert_allclose(one, other, rtol=4 * info.eps)
    kind, form = ("double", "double") if dtype is np.float64 else ("float", "single")
    assert any(re.search(rf"call <\d+ x {kind}> @tape\.\w+\.{form}\.\d+\(", text) for text in optimized)


def test_a_program_of_many_functions_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made, classes = jit._optimized, list[type]()

    def noted(module: Any, *, few: bool) -> Any:
        classes.append(type(module))
        return made(module, few=few)

    def chained(x: Any, count: int) -> Any:
        for k in range(count):
            x = tape.exp(-x) * (1.0 - 0.01 * k * k) + 0.1
        return x.sum()

    monkeypatch.setattr(jit, "_optimized", noted)
    monkeypatch.setattr(cache_files, "read", lambda _: None)
    monkeypatch.setattr(cache_files, "write", lambda *_: None)
    x = np.linspace(0.1, 0.9, 50)
    for count in (jit.MOST_COPIES, jit.MOST_COPIES + 1):
        recorded = tape.record(lambda x, count=count: chained(x, count), x)
        compilation = Compilation(recorded._recipe, reverse=True, roll=False)
        assert compilation.source().count("vectormath.") == count
        value, slope = CompiledMachine(compilation.code()).whole([x])
        expected, gradient = tape.value_and_grad(chained)(x, count)
        assert value == pytest.approx(expected, rel=1e-13)
        np.testing.assert_allclose(slope, gradient, rtol=1e-11)
    assert classes[0] is ir.Module
    assert classes[-1] is CallingModule
