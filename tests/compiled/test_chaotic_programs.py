"""Programs in which rounding grows: machine code that is checked, and differs, gives way to the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from tape.errors import CompileWarning


def lorenz(state: Any) -> Any:
    """Return the sum of a Lorenz system after so many steps that the last bits of its start decide."""
    x, y, z = state[0], state[1], state[2]
    for _ in range(6_000):
        x, y, z = x + 0.01 * 10.0 * (y - x), y + 0.01 * (x * (28.0 - z) - y), z + 0.01 * (x * y - 8.0 / 3.0 * z)
    return x + y + z


def test_chaos_is_interpreted() -> None:
    """Results are those of dynamic mode, to the last bit, and explain says why it is not machine code."""
    f, start = tape.compile(lorenz, mode="max"), np.array([1.0, 1.0, 1.0])
    expected = lorenz(tape.tensor(start)).item()
    with pytest.warns(CompileWarning, match="interpreted"):
        results = [f(start) for _ in range(8)]
    assert results[3:] == [expected] * 5
    assert f.calls["checked"] > 1
    assert "rounding" in f.explain()
