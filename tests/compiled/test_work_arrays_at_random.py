"""Random programs with NumPy work arrays that they, or others, refill: right as with copies, in each way of running."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tests.support import work_arrays

EXAMPLES = int(os.environ.get("TAPE_COMPILE_EXAMPLES", "24"))
CALLS = 6


def on_tensors(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def value_and_grad(x: Any) -> Any:
        leaf = tape.tensor(x, requires_grad=True)
        y = f(leaf)
        y.backward()
        return y.item(), leaf.grad.numpy()  # type: ignore[union-attr]

    return value_and_grad


WAYS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "dynamic": on_tensors,
    "value_and_grad": tape.value_and_grad,
    "compiled": lambda f: tape.compile(tape.value_and_grad(f)),
    "compiled, unchecked": lambda f: tape.compile(tape.value_and_grad(f), check="never"),
    "compiled, on tensors": lambda f: on_tensors(tape.compile(f)),
}


def check(seed: int, way: str, n: int) -> None:
    f, copying, between, text = work_arrays.program(seed, n)
    run, reference = WAYS[way](f), tape.value_and_grad(copying)
    for call in range(CALLS):
        x = np.linspace(0.5, 1.5, n) + 0.05 * call
        value, gradient = run(x)
        expected, slope = reference(x)
        note = f"seed {seed}, {way}, n {n}, call {call}:\n{text}"
        np.testing.assert_allclose(value, expected, rtol=1e-9, err_msg=note)
        np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-11, err_msg=note)
        between()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [5, 600])
def test_work_arrays_count_as_they_were_when_used(way: str, n: int) -> None:
    count = EXAMPLES if n == 5 else EXAMPLES // 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tape.errors.CompileWarning)
        for seed in range(count):
            check(seed, way, n)


@pytest.mark.parametrize("n", [5, 600])
def test_programs_hold_work_arrays_as_they_were_when_used(n: int) -> None:
    for seed in range(EXAMPLES):
        f, copying, between, text = work_arrays.program(seed, n)
        x = np.linspace(0.5, 1.5, n)
        program, reference = tape.record(f, x), tape.record(copying, x)
        for call in range(2):
            between()
            one, other = (p.value_and_grad(x + 0.05 * call) for p in (program, reference))
            np.testing.assert_allclose(one[0], other[0], rtol=1e-12, err_msg=f"seed {seed}, n {n}:\n{text}")
            np.testing.assert_allclose(one[1], other[1], rtol=1e-12, err_msg=f"seed {seed}, n {n}:\n{text}")
