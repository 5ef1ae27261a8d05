"""Gradients of arrays that loops take from step to step, where steps read them without one, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tests.compiled.test_versions import agrees


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


def read_at_the_end(x: Any, y: Any) -> Any:
    for _ in range(8):
        x, y = y * 1.1, y + 0.1
    return (x * x).sum()


@pytest.mark.quick
@pytest.mark.parametrize("shape", [(2, 3), (2, 20), (5, 70)])
@pytest.mark.parametrize("function", [replaced, replaced_from_detached, replaced_in_loops_in_loops, read_at_the_end])
def test_what_a_step_replaces_has_no_gradient(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    agrees(function, rng.normal(size=shape), rng.normal(size=shape))
