"""Sums at places that an index says, of which several may be one: index_add and its like as machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation
from tests.compiled.test_exported_c import COMPILER, assert_alike

pytestmark = pytest.mark.quick
CHANCE = np.random.default_rng(8)
NODES, EDGES = 12, 50
EDGE = CHANCE.integers(0, NODES, (2, EDGES))
FEW = np.array([2, 0, 2, 2])
DTYPES = [np.float64, np.float32]


def added(x: Any, y: Any) -> Any:
    """Return sums at constant places, beside what was there."""
    z = (2.0 * y).index_add(0, tape.tensor(EDGE[0]), x)
    return (z * z).sum() + y.sum()


def zeros_added(x: Any, y: Any) -> Any:
    z = tape.zeros(NODES, dtype=x.dtype).scatter_add(0, tape.tensor(EDGE[1]), x * x)
    return (z * y).sum()


def few(x: Any, y: Any) -> Any:
    z = y[:3].index_add(0, tape.tensor(FEW), x[:4])
    return (z * z * z).sum()


def put(x: Any, y: Any) -> Any:
    z = y.clone()
    z.index_put_((tape.tensor(EDGE[0]),), x, accumulate=True)
    z.index_put_((tape.tensor(EDGE[1]),), -0.5 * x, accumulate=True)
    return (tape.sin(z) * y).sum()


def springs(x: Any, y: Any) -> Any:
    """Return the energy of nodes that springs have moved for some steps, each force added to two nodes."""
    v = y * 0.0
    for _ in range(20):
        force = x[: len(EDGE[0])] * (y[EDGE[0]] - y[EDGE[1]])
        total = tape.zeros(NODES, dtype=x.dtype).index_add(0, tape.tensor(EDGE[1]), force)
        v = 0.98 * v + 0.01 * total.index_add(0, tape.tensor(EDGE[0]), -force)
        y = y + 0.1 * v
    return (v * v).sum() + (y * y).sum()


FUNCTIONS = [added, zeros_added, few, put, springs]


def arguments(dtype: Any, seed: int = 0) -> tuple[Any, Any]:
    chance = np.random.default_rng(seed)
    return chance.normal(size=EDGES).astype(dtype), chance.normal(size=NODES).astype(dtype)


def compare(found: Any, expected: Any, dtype: Any) -> None:
    apart = 1e-12 if dtype is np.float64 else 3e-5
    for one, other in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=apart, atol=apart * np.abs(other).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients(function: Callable[..., Any], dtype: Any) -> None:
    both = tape.value_and_grad(function, (0, 1))
    compiled = tape.compile(both, mode="max", check="never")
    for seed in range(6):
        x, y = arguments(dtype, seed)
        compare(compiled(x, y), both(x.astype(np.float64), y.astype(np.float64)), dtype)
    assert "machine code:" in compiled.explain()


def test_values_are_those_of_numpy() -> None:
    x, y = arguments(np.float64)
    z = y.copy()
    np.add.at(z, EDGE[0], x)
    compiled = tape.compile(lambda x, y: y.index_add(0, tape.tensor(EDGE[0]), x), mode="max")
    for _ in range(5):
        np.testing.assert_allclose(compiled(x, y), z, rtol=1e-13)
    assert "machine code:" in compiled.explain()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_at_places_that_are_arguments(dtype: Any) -> None:
    def function(x: Any, y: Any, index: Any) -> Any:
        z = y.reshape(4, 3).index_add(0, index, x[:30].reshape(10, 3))
        return tape.exp(0.1 * z).sum()

    both = tape.value_and_grad(function, (0, 1))
    compiled = tape.compile(both, mode="max", check="never")
    for seed in range(8):
        x, y = arguments(dtype, seed)
        index = np.random.default_rng(seed).integers(0, 4, 10)
        compare(compiled(x, y, index), both(x.astype(np.float64), y.astype(np.float64), index), dtype)
    assert "machine code:" in compiled.explain()
    for wrong in (4, -1, 1 << 40, -(1 << 62)):
        before = x.copy(), y.copy()
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(x, y, np.full(10, wrong))
        np.testing.assert_array_equal(x, before[0])
        np.testing.assert_array_equal(y, before[1])


def test_places_that_are_written_and_not_added_to_stay_with_the_interpreter() -> None:
    def function(x: Any, y: Any, index: Any) -> Any:
        z = y.clone()
        z[index] = x[: len(index)]
        return (z * z).sum()

    both = tape.value_and_grad(function, (0, 1))
    compiled = tape.compile(both, mode="max", check="never")
    for seed in range(6):
        x, y = arguments(np.float64, seed)
        index = np.random.default_rng(seed).permutation(NODES)[:5]
        compare(compiled(x, y, index), both(x, y, index), np.float64)


@pytest.mark.usefixtures("one_thread", "short_parts")
def test_parts_of_loops() -> None:
    """A loop that adds at places is no loop whose steps are independent."""
    both = tape.value_and_grad(put, (0, 1))
    for threads in (1, 3):
        tape.set_num_threads(threads)
        compiled = tape.compile(both, mode="max", check="never")
        for seed in range(5):
            compare(compiled(*arguments(np.float64, seed)), both(*arguments(np.float64, seed)), np.float64)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")
def test_exported_to_c(tmp_path: Any) -> None:
    args = arguments(np.float64)
    code = Compilation(tape.record(springs, *args)._recipe, reverse=True).code()
    assert_alike(tmp_path, code, *args, rtol=1e-12, atol=1e-13)


def test_integers_are_added_at_places() -> None:
    def function(x: Any, index: Any) -> tuple[Any, Any]:
        counts = tape.zeros(5, dtype=tape.int64).index_add(0, index, tape.ones(9, dtype=tape.int64))
        return (x * counts).sum(), counts

    compiled = tape.compile(tape.value_and_grad(function, has_aux=True), mode="max", check="never")
    for seed in range(6):
        chance = np.random.default_rng(seed)
        x, index = chance.normal(size=5), chance.integers(0, 5, 9)
        (value, counts), gradient = compiled(x, index)
        expected = np.bincount(index, minlength=5)
        np.testing.assert_array_equal(counts, expected)
        np.testing.assert_array_equal(gradient, expected)
        assert value == pytest.approx((x * expected).sum())
    assert "machine code:" in compiled.explain()
