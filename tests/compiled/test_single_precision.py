"""Programs in float32 as machine code: they compute in float32, beside float64 where a program mixes both."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tape
from kernels.compiler import compiling, parallel_loops
from kernels.compiler.compiling import Compilation
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.programs.rolled_program import Uncompiled
from tests.compiled.test_compiled_programs_at_random import Case, in_blocks
from tests.compiled.test_exported_c import COMPILER, assert_alike
from tests.support.quick_compiles import honour_marks
from tests.support.random_programs import program_of
from tests.support.representatives import examples

EXAMPLES = int(os.environ.get("TAPE_PROGRAM_EXAMPLES", "240"))
DTYPES = ("float32",), ("float32", "float64"), ("float64", "float32"), ("float32", "float32", "float64")
WAYS: tuple[tuple[bool, bool, int | None], ...] = (
    (True, True, None), (True, True, -1), (False, True, None), (True, False, None)
)  # fmt: skip
"""Whether there are loops, and the reverse, and the budget."""
CHANCE = np.random.default_rng(4)
X, Y = CHANCE.normal(size=(2, 40)).astype(np.float32)
A, B = CHANCE.normal(size=(2, 6, 6)).astype(np.float32)
WIDE = CHANCE.normal(size=40)


def burgers(x: Any, a: Any) -> Any:
    for _ in range(20):
        x = x - 0.02 * x * (tape.roll(x, -1) - tape.roll(x, 1)) + 0.01 * a * (x[2] - x)
    return (x * x).sum()


def written(x: Any, a: Any) -> Any:
    y = x * 1.0
    for k in range(12):
        y[1:-1] += 0.1 * (y[2:] - 2.0 * y[1:-1] + y[:-2])
        y[k] = a[k] * 0.5
    return (y * y).sum()


def counted(x: Any, a: Any) -> Any:
    s = a.sum()
    for k in range(15):
        x, s = x * 0.9 + 0.01 * k * a, s * 0.5 + tape.tanh(x[k])
    return x.sum() * s


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "elementwise": (lambda x, a: (tape.exp(-x * x) * tape.sin(a) + tape.sigmoid(x) / (1.0 + a * a)).sum(), [X, Y]),
    "a number beside it": (lambda x, a: (x * a + tape.log(1.5 + x * x)).sum(), [X, 0.7]),
    "angles of any size": (lambda x, a: (tape.sin(x * 131072.0) + tape.cos(a)).mean(), [X[:3], Y[:3]]),
    "reductions": (lambda x, a: x.mean() * tape.amax(a) + tape.logsumexp(x, 0) + a.var() + x.prod(), [X[:9], Y[:9]]),
    "softmax": (lambda x, a: (tape.softmax(x, 1) * a).sum() + tape.log_softmax(a, 0).square().sum(), [A, B]),
    "matrices": (lambda x, a: ((x @ a) @ tape.tanh(x)).sum() + tape.linalg.det(a[:3, :3]), [A, B]),
    "large products": (lambda x, a: ((x @ a) * 0.1).sum(), [np.tile(A, (5, 6)), np.tile(B, (6, 5))]),
    "calls": (lambda x, a: (tape.cumsum(x, 0) * tape.sort(a, 0)[0]).sum() + tape.linalg.vector_norm(x), [X, Y]),
    "joins and picks": (lambda x, a: (tape.cat([x[3:], a[::2]]) ** 2).sum() + x[np.array([1, 3, 3])].sum(), [X, Y]),
    "choices": (lambda x, a: tape.where(x > a, x * a, tape.maximum(x, 0.25)).sum() + (x > 0.1).sum() * a[0], [X, Y]),
    "a stencil": (burgers, [X, Y]),
    "in place": (written, [X, Y]),
    "numbers by step": (counted, [X, Y]),
    "beside float64": (lambda x, a: (x * a).sum() + tape.tanh(x).sum(), [X, WIDE]),
    "a wide constant": (lambda x, a: ((x * WIDE).exp() * a).sum(), [X, Y]),
    "widened": (lambda x, a: (tape.sin(x.double()) * a.double()).sum() + (x * a).sum(), [X, Y]),
    "narrowed": (lambda x, a: (tape.sin(x) * a).float().square().sum(), [WIDE, WIDE[::-1].copy()]),
}


def truth_of(function: Callable[..., Any], args: list[Any]) -> list[Any]:
    """Return value and gradients in float64, which is not what a program in float32 is made of."""
    wide = [np.asarray(x, np.float64) for x in args]
    value, gradients = tape.value_and_grad(function, tuple(range(len(args))))(*wide)
    return [np.asarray(x) for x in (value, *gradients)]


@pytest.mark.quick
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str) -> None:
    function, args = FUNCTIONS[name]
    both = tape.compile(tape.value_and_grad(function, (0, 1)), mode="max")
    for _ in range(5):
        value, gradients = both(*args)
    assert "machine code:" in both.explain()
    for got, expected in zip((value, *gradients), truth_of(function, args), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())
    for x, gradient in zip(args, gradients, strict=True):
        assert np.asarray(gradient).dtype == np.asarray(x).dtype


@pytest.mark.quick
def test_arithmetic_is_that_of_float32() -> None:
    program = tape.record(lambda x, a: (x * a + 0.1) / (1.0 + x * x) - a, X, Y)
    compilation = Compilation(program._recipe, reverse=False)
    with_products_rounded = compilation.source().replace("CONTRACT = True", "CONTRACT = False")
    compilation.source = lambda: with_products_rounded  # type: ignore[method-assign]
    (got,) = CompiledMachine(compilation.code()).whole([X, Y])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, (X * Y + np.float32(0.1)) / (np.float32(1.0) + X * X) - Y)


@pytest.mark.quick
def test_an_infinite_element_of_logsumexp() -> None:
    x = np.array([1.0, np.inf, 2.0], np.float32)
    program = tape.record(lambda x: tape.logsumexp(x, 0), x)
    value, gradient = CompiledMachine(Compilation(program._recipe, reverse=True).code()).whole([x])
    assert value == np.inf
    np.testing.assert_array_equal(gradient, np.array([0.0, np.nan, 0.0], np.float32))


@pytest.mark.quick
def test_native_code_calls_it() -> None:
    both = tape.compile(tape.value_and_grad(burgers, (0, 1)), mode="max")
    for _ in range(5):
        value, (by_x, by_a) = both(X, Y)
    native = both.native

    @numba.njit
    def called(x: Any, a: Any, by_x: Any, by_a: Any) -> Any:
        return native(x, a, by_x, by_a)

    found = np.zeros_like(X), np.zeros_like(Y)
    result = called(X, Y, *found)
    assert result[1] == pytest.approx(value, rel=1e-6)
    np.testing.assert_array_equal(found[0], by_x)
    np.testing.assert_array_equal(found[1], by_a)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")
@pytest.mark.parametrize("name", ["elementwise", "in place", "numbers by step", "beside float64"])
def test_exported_to_c(name: str, tmp_path: Path) -> None:
    function, args = FUNCTIONS[name]
    code = Compilation(tape.record(function, *args)._recipe, reverse=True).code()
    assert_alike(tmp_path, code, *args, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["elementwise", "a stencil", "beside float64", "softmax", "reductions"])
@pytest.mark.usefixtures("one_thread", "short_parts")
def test_threads(name: str) -> None:
    function, args = FUNCTIONS[name]
    code = Compilation(tape.record(function, *args)._recipe, reverse=True).code()
    assert code.parts is not None
    results = []
    for count in (1, 2, 3):
        tape.set_num_threads(count)
        results.append([np.array(x) for x in CompiledMachine(code).whole(args)])
    for others in results[1:]:
        for one, other in zip(others, results[0], strict=True):
            np.testing.assert_array_equal(one, other)
    for got, expected in zip(results[0], truth_of(function, args), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


def test_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_loops, "LONG", 60)
    monkeypatch.setattr(parallel_loops, "PIECE", 20)
    function, args = FUNCTIONS["choices"]
    compilation = Compilation(tape.record(lambda x, a: function(x, a) + counted(x, a), *args)._recipe, reverse=True)
    code = compilation.code()
    assert code.parts is not None
    expected = truth_of(lambda x, a: function(x, a) + counted(x, a), args)
    for got, value in zip(CompiledMachine(code).whole(args), expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=2e-5, atol=2e-5 * np.abs(value).max())


@examples(16, EXAMPLES)
def test_random_programs(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, derandomize=True, phases=[Phase.generate])
    @given(st.integers(0, 1 << 30), st.sampled_from(DTYPES), st.sampled_from(WAYS))
    def check(seed: int, dtypes: tuple[str, ...], way: tuple[bool, bool, int | None]) -> None:
        case = Case(replace(program_of(random.Random(seed), seed), dtypes=dtypes))  # noqa: S311 (no secret)
        roll, reverse, memory = way
        try:
            case.check(roll=roll or len(case.recorded) > 100, reverse=reverse, memory=memory, quick=True)
            counts["compiled"] += 1
        except Uncompiled as refused:
            counts[str(refused)] += 1

    monkeypatch.setattr(compiling, "storage_within", in_blocks)
    monkeypatch.setattr(compiling, "_LONGEST", 6_000)
    honour_marks(monkeypatch)
    check()
    assert counts["compiled"] > 0.9 * count, counts
