"""Large arrays and small networks: value and gradients against PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.array_workloads import BLACK_SCHOLES, LOGSUMEXP, MLP_LARGE, MLP_SMALL, ROSENBROCK_LARGE, SOFTMAX
from bench.bars import (
    BY_HAND,
    DYNAMIC,
    GRAD,
    PYTORCH,
    VALUE_AND_GRAD,
    RatioBar,
    Scoreboard,
    ratio_bars_of,
)
from bench.rows import measure, time_row

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from bench.workloads import Workload

WORKLOADS = (BLACK_SCHOLES, ROSENBROCK_LARGE, LOGSUMEXP, SOFTMAX, MLP_LARGE, MLP_SMALL)


@pytest.mark.quick
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("row", [DYNAMIC, GRAD, VALUE_AND_GRAD, BY_HAND, PYTORCH])
def test_row(benchmark: BenchmarkFixture, row: str, workload: Workload) -> None:
    """One row of the workload's group."""
    time_row(benchmark, row, workload)


@pytest.mark.parametrize("bar", ratio_bars_of(*WORKLOADS), ids=str)
def test_bar(bar: RatioBar, scoreboard: Scoreboard) -> None:
    """The interleaved ratio that a bar is about."""
    measure(bar, scoreboard)
