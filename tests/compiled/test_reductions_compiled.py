"""Reductions in compiled programs: over middle and leading axes, extrema with ties and nan, in loops."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation
from kernels.machine_code.compiled_machine import CompiledMachine
from tests.support.representatives import in_turns

pytestmark = pytest.mark.usefixtures("few_passes")

RNG = np.random.default_rng(1)
SHAPES = ((7,), (40,), (9, 12), (3, 4, 50), (10, 20, 30))
OPERATIONS: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda x, axis: x.sum(axis),
    "mean, dims kept": lambda x, axis: x.mean(axis, keepdims=True) * x,
    "logsumexp": tape.logsumexp,
    "softmax": lambda x, axis: tape.softmax(x, axis) * x,
    "log_softmax": lambda x, axis: tape.log_softmax(x, axis) * x,
    "amax": tape.amax,
    "amin, dims kept": lambda x, axis: tape.amin(x, axis, keepdim=True) * x,
    "max": lambda x, axis: tape.max(x, axis)[0],
    "min": lambda x, axis: tape.min(x, axis)[0],
}


def compare(function: Callable[[Any], Any], x: Any) -> None:
    """Compare value and gradient of machine code with those of the interpreter."""
    program = tape.record(function, x)
    compilation = Compilation(program._recipe, reverse=True)
    assert "call_kernel(" not in compilation.listing()
    value, (gradient,) = program.value_and_grad(x)
    machine = CompiledMachine(compilation.code())
    for _ in range(2):
        got = machine.whole((x,))
        np.testing.assert_allclose(got[0], value, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(got[1], gradient, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("name", "shape"), in_turns(OPERATIONS, SHAPES))
def test_reductions_along_each_axis(name: str, shape: tuple[int, ...]) -> None:
    x = RNG.integers(-3, 4, shape) * 1.0
    for axis in range(len(shape)):
        compare(lambda x, axis=axis: (OPERATIONS[name](x, axis) ** 2).sum(), x)  # type: ignore[misc]


@pytest.mark.parametrize("axes", [(0, 2), (1, 2), (0, 1), (1,)], ids=str)
def test_sums_over_several_axes(axes: tuple[int, ...]) -> None:
    compare(lambda x: tape.sin(x.sum(axes)).sum(), RNG.normal(size=(10, 11, 12)))
    compare(lambda x: tape.sin(x.sum(axes)).sum(), RNG.normal(size=(9, 3, 10, 12)))
    compare(lambda x: tape.sin(x.transpose(0, 2).sum(axes)).sum(), RNG.normal(size=(10, 11, 12)))


@pytest.mark.quick
@pytest.mark.parametrize(("name", "axis"), [*itertools.product(("amax", "amin", "max", "min"), (0, 1))])
def test_extrema_of_nan_and_inf(name: str, axis: int) -> None:
    x = RNG.integers(-3, 4, (9, 12)) * 1.0
    x[2, 3] = np.nan
    x[4, 5:7], x[5, 2] = np.inf, -np.inf
    function = OPERATIONS.get(name, tape.amin)
    for row in (0, 2, 3, 4, 5, 6):  # others are, like the first, finite
        compare(lambda x, row=row: function(x, axis)[row] * 2.0, x)  # type: ignore[misc]


MATRICES: dict[str, Callable[[Any], Any]] = {
    "inv": lambda x: (tape.linalg.inv(x) ** 2).sum(),
    "det": lambda x: (tape.linalg.det(x) ** 2).sum(),
    "solve": lambda x: (tape.linalg.solve(x, x[..., 0] if x.ndim == 2 else x) ** 2).sum(),
    "solve, several": lambda x: (tape.linalg.solve(x, x[..., ::-1] ** 2) ** 2).sum(),
    "in a loop": lambda x: functools.reduce(lambda a, k: a + tape.linalg.inv(a) / (k + 2.0), range(4), x).sum(),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_small_matrices(n: int, name: str) -> None:
    if n == 1 and name == "solve, several":
        pytest.skip("one column")
    compare(MATRICES[name], RNG.normal(size=(n, n)) + np.eye(n)[::-1] * 3.0)
    if not name.startswith("solve"):
        compare(MATRICES[name], RNG.normal(size=(9, n, n)) + np.eye(n)[::-1] * 3.0)


@pytest.mark.quick
@pytest.mark.parametrize("n", [2, 3, 4])
def test_singular_matrices_raise(n: int) -> None:
    compiled = tape.compile(tape.value_and_grad(lambda x: tape.linalg.inv(x).sum() * 2.0), mode="max")
    for _ in range(4):
        compiled(RNG.normal(size=(n, n)))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        compiled(np.zeros((n, n)))
    batch = RNG.normal(size=(9, n, n))
    for _ in range(4):
        compiled(batch)
    batch[4, 0] = 0.0
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        compiled(batch)


@pytest.mark.quick
def test_variances_and_batched_products() -> None:
    x = RNG.normal(size=(9, 12, 10))
    for axes in (0, 1, 2, (0, 2), None):
        compare(lambda x, axes=axes: (x.var(axes).sum() * x.std(axes, keepdim=True)).sum(), x)  # type: ignore[misc]
    compare(lambda x: ((x @ x.transpose(1, 2)) ** 2).sum(), x)
    compare(lambda x: x.std(0).sum() + x[0, 0, 0], np.ones((5, 2, 2)))


@pytest.mark.quick
def test_reductions_in_a_loop() -> None:
    def function(x: Any) -> Any:
        for _ in range(20):
            x = x - 0.005 * x.sum(1, keepdims=True) + 0.01 * tape.logsumexp(x, 0) + 0.1 * tape.amax(x, 2, keepdim=True)
        return (x * x).sum()

    compare(function, RNG.normal(size=(6, 5, 9)))


def orbit(x: Any, v: Any) -> Any:
    """Collect numbers and arrays of each step."""
    places, parts, sums = [x], [], []
    for _ in range(60):
        v = v - 0.1 * tape.sin(x)
        x = x + 0.1 * v
        places.append(x)
        parts.append(x[1:4])
        sums.append(x.sum())
    along = tape.stack(places, 1)
    return (along**2).sum() + (tape.cat(parts) ** 3).sum() + (tape.stack(sums[1:-1]) * sums[5]).sum() + along[0, 7]


@pytest.mark.quick
def test_what_each_step_gave_is_joined_in_a_loop() -> None:
    x = RNG.normal(size=12)
    compare(lambda x: orbit(x, x * 0.5), x)
    compilation = Compilation(tape.record(lambda x: orbit(x, x * 0.5), x)._recipe, reverse=True)
    assert len(compilation.source().splitlines()) < 400
