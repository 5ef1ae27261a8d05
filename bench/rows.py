"""The rows of a group: one workload run by tape, by hand and by PyTorch, checked, then timed."""

from __future__ import annotations

import gc
import importlib
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.bars import (
    BY_HAND,
    DYNAMIC,
    GRAD,
    PAIRS,
    PYTORCH,
    PYTORCH_ARRAYS,
    PYTORCH_GRAD,
    REPLAY,
    VALUE_AND_GRAD,
    RatioBar,
    Scoreboard,
)
from bench.workloads import Workload, dynamic, of_arrays, of_kept_leaves
from tape.testing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    from bench.by_hand import ValueAndGradients

# A row takes about this long, in rounds of at least the second; slow workloads get one round.
_ROW_SECONDS = 0.4
_ROUND_SECONDS = 1e-3
# A first call of this length is not repeated to find out how long the second takes.
_LONG_SECONDS = 5.0


def tape() -> Any:
    """Return the library under test."""
    return importlib.import_module("tape")


def pytorch() -> Any:
    """Return PyTorch on one thread, or skip the row."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own imports warn, which is not our concern
            torch = importlib.import_module("torch")
    except ImportError as error:
        pytest.skip(f"PyTorch is not installed: {error}")
    torch.set_num_threads(1)
    return torch


def _replay(workload: Workload) -> Callable[[], ValueAndGradients]:
    """Return the replay of a program recorded at other values than it is replayed with."""
    lib = tape()
    elsewhere = [leaf * 1.0625 for leaf in workload.leaves]
    program = lib.record(lambda *leaves: workload.function(lib, *leaves), *elsewhere)
    leaves = workload.leaves
    return lambda: program.value_and_grad(*leaves)


ROWS: dict[str, Callable[[Workload], Callable[[], ValueAndGradients]]] = {
    DYNAMIC: lambda workload: dynamic(tape(), workload),
    REPLAY: _replay,
    BY_HAND: lambda workload: lambda: workload.by_hand(*workload.leaves),
    GRAD: lambda workload: of_kept_leaves(tape(), workload),
    VALUE_AND_GRAD: lambda workload: of_arrays(tape(), workload),
    PYTORCH: lambda workload: dynamic(pytorch(), workload),
    PYTORCH_GRAD: lambda workload: of_kept_leaves(pytorch(), workload),
    PYTORCH_ARRAYS: lambda workload: of_arrays(pytorch(), workload),
}


def check(got: ValueAndGradients, workload: Workload) -> None:
    """Assert value and gradients against those by hand, to an error of 1e-10, for small elements of the largest."""
    value, gradients = got
    value_by_hand, gradients_by_hand = workload.answer
    assert np.size(value) == 1
    np.testing.assert_allclose(np.ravel(value), np.ravel(value_by_hand), rtol=1e-10, atol=0)
    assert len(gradients) == len(gradients_by_hand)
    for gradient, by_hand in zip(gradients, gradients_by_hand, strict=True):
        assert np.shape(gradient) == np.shape(by_hand)
        assert np.asarray(gradient).dtype == np.float64
        largest = np.max(np.abs(by_hand), initial=0.0)
        np.testing.assert_allclose(gradient, by_hand, rtol=1e-10, atol=1e-12 * largest)


def checked(row: str, workload: Workload) -> Callable[[], ValueAndGradients]:
    """Return the run of a row, after asserting what it returns."""
    run = ROWS[row](workload)
    check(run(), workload)
    return run


def time_row(benchmark: BenchmarkFixture, row: str, workload: Workload) -> None:
    """Assert a row, then time it as a row of the workload's group."""
    run = ROWS[row](workload)
    _ = workload.answer  # made here, not within the first call's time
    seconds = seconds_of(lambda: check(run(), workload))
    if seconds < _LONG_SECONDS:  # compiled, warm
        seconds = seconds_of(run)
    calls = max(1, round(_ROUND_SECONDS / seconds))
    rounds = min(max(1, round(_ROW_SECONDS / (calls * seconds))), 100)
    benchmark.group, benchmark.name = workload.name, row
    benchmark.pedantic(run, rounds=rounds, iterations=calls)


def seconds_of(run: Callable[[], object]) -> float:
    """Return the time of one call, after collecting what others left."""
    gc.collect()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(bar: RatioBar, scoreboard: Scoreboard) -> None:
    """Assert both rows of a bar, then put the ratio of their times on the board."""
    slow, fast = checked(bar.slow, bar.workload), checked(bar.fast, bar.workload)
    measured = ratio(slow, fast, pairs=PAIRS)
    scoreboard.add(bar, measured.median, str(measured))
