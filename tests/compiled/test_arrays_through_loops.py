"""Gradients of arrays that loops take from step to step, where steps read them without one, in calls, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tests.compiled.test_versions import agrees
from tests.support.representatives import in_turns

pytestmark = pytest.mark.usefixtures("few_passes")


def replaced(x: Any, y: Any) -> Any:
    """Read an array for nothing, and go on with another: what there was first has no gradient."""
    for k in range(9):
        z = x * 2.0
        if k % 2 == 0:
            x = y + 0.1
            y = tape.relu(x - x.mean(0, keepdims=True)) + 0.0 * z.detach()
    return tape.logsumexp(x.reshape(-1), 0) + y.sum()


def replaced_from_detached(x: Any, y: Any) -> Any:
    total = 0.0
    for _ in range(8):
        total = total + (x * y).sum()
        x = tape.sin(y) + x.detach()
        y = 0.9 * y
    return total + (x * x).sum()


def replaced_in_loops_in_loops(x: Any, y: Any) -> Any:
    for _ in range(12):
        for _ in range(30):
            x = tape.tanh(y) * 0.3 + 0.1 * x.detach()
            y = y + 0.01 * x * x
    return (x * y).sum()


def called(x: Any, y: Any) -> Any:
    """Read an array in a kernel's call, and in the step before in a loop."""
    z = y
    for _ in range(3):
        for _ in range(3):
            y, z = 0.1 * (tape.cumsum(z, 0) ** 2).mean() + y, y
        y = tape.tanh(x * y * y)
    return (x * y).sum()


def called_in_turn(x: Any, y: Any) -> Any:
    for _ in range(9):
        x, y = tape.cumprod(tape.cos(y), -1) + 0.1 * x, tape.flip(x, (0,)) * 0.5
    return (x * y).sum()


def read_at_the_end(x: Any, y: Any) -> Any:
    for _ in range(8):
        x, y = y * 1.1, y + 0.1
    return (x * x).sum()


FUNCTIONS = replaced, replaced_from_detached, replaced_in_loops_in_loops, called, called_in_turn, read_at_the_end


@pytest.mark.parametrize(
    ("function", "shape"),
    in_turns(FUNCTIONS, [(2, 3), (5, 70), (2, 20)], pytest.mark.quick),
)
def test_each_array_gets_its_own_gradient(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    agrees(function, rng.normal(size=shape), rng.normal(size=shape))
