"""What `import tape.numpy as np` costs where nothing is differentiated, beside NumPy's own calls.

`python -m pytest bench/bench_numpy.py -s` prints a row for each function. The overhead is the least time of a call less
that of NumPy's own, over interleaved rounds by processor time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape.numpy
from bench.bars import NEW_ARRAYS, Scoreboard

ROUNDS, CALLS = 40, 5_000
NANOSECONDS = 1e9
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "zeros": (8,), "ones": (8,), "empty": ((4, 4),), "array": ([1.0, 2.0],), "asarray": ([1.0, 2.0],),
    "linspace": (0.0, 1.0, 10), "eye": (3,), "full": (5, 2.0), "zeros_like": (np.zeros(4),),
}  # fmt: skip


def _seconds(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        function(*arguments)
    return (time.process_time() - start) / CALLS


@pytest.mark.quick
@pytest.mark.parametrize("name", ARGUMENTS)
def test_values(name: str) -> None:
    """Outside of transforms the functions give NumPy's arrays."""
    with tape.no_grad():  # leaves of other benches may be alive
        made, wanted = (getattr(module, name)(*ARGUMENTS[name]) for module in (tape.numpy, np))
    assert type(made) is np.ndarray
    assert made.shape == wanted.shape
    if name != "empty":
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_overhead(name: str, scoreboard: Scoreboard) -> None:
    """What a call costs beyond NumPy's own."""
    functions = [getattr(module, name) for module in (np, tape.numpy)]
    plain, ours = (
        min(column)
        for column in zip(*([_seconds(f, ARGUMENTS[name]) for f in functions] for _ in range(ROUNDS)), strict=True)
    )
    figure = (ours - plain) * NANOSECONDS
    scoreboard.add(NEW_ARRAYS[name], figure, f"{figure:.0f} ns beyond {plain * NANOSECONDS:.0f}")
    result = scoreboard.results[-1]
    sys.stdout.write(f"{result.verdict}  {result.bar.name}  {result.bar.wanted}  {result.text}\n")
