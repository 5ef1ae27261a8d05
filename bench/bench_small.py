"""Small graphs rebuilt at each call: the tiny graph and Rosenbrock by slices, all overhead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.bars import RatioBar, Scoreboard, ratio_bars_of
from bench.rows import ROWS, measure, time_row
from bench.workloads import ROSENBROCK, TINY, TINY_0D, Workload

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

WORKLOADS = (TINY, TINY_0D, ROSENBROCK)


@pytest.mark.quick
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("row", ROWS)
def test_row(benchmark: BenchmarkFixture, row: str, workload: Workload) -> None:
    """One row of the workload's group."""
    time_row(benchmark, row, workload)


@pytest.mark.quick
@pytest.mark.parametrize("bar", ratio_bars_of(*WORKLOADS), ids=str)
def test_bar(bar: RatioBar, scoreboard: Scoreboard) -> None:
    """The interleaved ratio that a bar is about."""
    measure(bar, scoreboard)
