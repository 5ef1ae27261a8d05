"""Iterations of recorded loops that did the same are told by their words, and made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.compiled import body_maker

pytestmark = pytest.mark.quick


def damped(x: Any) -> Any:
    while (x * x).sum() > 1e-3:
        x = 0.9 * x + 0.01 * x * x
    return x.sum()


def in_two_ways(x: Any) -> Any:
    while x > 1e-3:
        x = 0.9 * x if x > 0.1 else 0.8 * x + 0.001 * x * x
    return x


def with_memory(x: Any) -> Any:
    before, now = x, 0.9 * x
    while now > 1e-3:
        before, now = now, 0.5 * now + 0.3 * before
    return now - before


@pytest.mark.parametrize(("function", "most"), [(damped, 3), (in_two_ways, 6), (with_memory, 4)])
def test_iterations_are_made_once(function: Callable[[Any], Any], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[int](), body_maker._IterationMaker.made
    monkeypatch.setattr(body_maker._IterationMaker, "made", lambda self: made.append(self.first) or make(self))
    compiled = tape.compile(tape.value_and_grad(function), check="never", mode="eager")
    start = np.linspace(0.5, 1.0, 4) if function is damped else 1.0
    for scale in (1.0, 0.97, 0.93, 0.9, 1.1):
        found, wanted = compiled(scale * start), tape.value_and_grad(function)(scale * start)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)
    assert compiled.calls["recorded"] < 5
    assert 0 < len(made) <= most * compiled.calls["recorded"]


@pytest.mark.parametrize("first", [3, 5])
def test_numbers_that_change_are_told(first: int) -> None:
    def function(x: Any) -> Any:
        k = first
        while x > 1e-3:
            x = x * (0.5 if k % 2 else 0.7) + 1e-5 * k
            k += 1
        return x

    compiled = tape.compile(tape.value_and_grad(function), check="never")
    for x in (1.0, 0.9, 0.8, 2.0, 5.0, 0.7):
        np.testing.assert_allclose(compiled(x), tape.value_and_grad(function)(x), rtol=1e-12)
