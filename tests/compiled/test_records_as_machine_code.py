"""Each record as machine code, with its gradient: on all layouts, alone and inside a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.compiler.compiling import Compilation
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.operations import OPS
from kernels.programs.program import Recipe
from tests.support import record_cases
from tests.support.record_cases import Case
from tests.support.representatives import in_turns

CASES = [case for op in OPS.values() for case in record_cases.cases_of(op) if case.replayed]
LAYOUTS = "as it is", "turned", "with gaps"
WAYS = [*[(way, np.float64) for way in (*LAYOUTS, "in a loop")], ("as it is", np.float32), ("in a loop", np.float32)]
APART = {np.float64: (1e-11, 1e-12), np.float32: (2e-4, 2e-5)}
"""How far results are apart, at most: each, and of the largest."""
STEPS = 14


def laid(x: Any, layout: str) -> Any:
    """Return an argument in a layout."""
    if not isinstance(x, np.ndarray) or not x.ndim:
        return x
    if layout != "with gaps":
        return np.asfortranarray(x) if layout == "turned" else x
    room = np.zeros(tuple(2 * n + 1 for n in x.shape), x.dtype)
    part = room[tuple(slice(1, None, 2) for _ in x.shape)]
    part[...] = x
    return part


def number_of(y: Any) -> Any:
    """Return one number that depends on all elements of a result."""
    y = y if isinstance(y, tape.Tensor) else tape.tensor(y)
    return (y * y * 0.5 + y).sum() * 1.0


def alone(case: Case) -> Callable[..., Any]:
    return lambda *leaves: number_of(case.run(*leaves))


def looped(case: Case) -> Callable[..., Any]:
    def function(*leaves: Any) -> Any:
        total: Any = 0.0
        for _ in range(STEPS):
            total = total * 0.5 + number_of(case.run(*[x * 1.0 if _is_floating(x) else x for x in leaves]))
        return total

    return function


def _is_floating(x: Any) -> bool:
    return isinstance(x, tape.Tensor) and x.dtype in (tape.float64, tape.float32)


def compare(recipe: Recipe, expected: list[Any], leaves: list[Any], apart: tuple[float, float]) -> None:
    """Compile a program, which nothing bars, and compare its results."""
    results = CompiledMachine(Compilation(recipe, reverse=True).code()).whole(leaves)
    assert results is not None
    for got, value in zip(results, expected, strict=True):
        finite = np.abs(value)[np.isfinite(value)].max(initial=1.0)
        np.testing.assert_allclose(got, value, rtol=apart[0], atol=apart[1] * finite)


@pytest.mark.parametrize(("case", "way"), in_turns(CASES, WAYS, of=lambda case: case.quick))
def test_each_record(case: Case, way: tuple[str, type]) -> None:
    layout, dtype = way
    leaves = [x.item() if x.dtype == np.float64 and not x.ndim else x for x in case.leaves(dtype)]
    function = looped(case) if layout == "in a loop" else alone(case)
    if layout in LAYOUTS:
        leaves = [laid(x, layout) for x in leaves]
    with np.errstate(all="ignore"):
        program = tape.record(function, *leaves)
        value, gradients = program.value_and_grad(*leaves)
        compare(program._recipe, [np.asarray(x) for x in (value, *gradients) if x is not None], leaves, APART[dtype])
