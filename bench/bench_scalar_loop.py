"""A time loop of scalars: Lotka-Volterra by RK4 on 0-d leaves, 58 operations a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.bars import RatioBar, Scoreboard, ratio_bars_of
from bench.rows import ROWS, measure, time_row
from bench.workloads import LOTKA_VOLTERRA, Workload, lotka_volterra_of

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.parametrize(
    "workload",
    [pytest.param(lotka_volterra_of(50), marks=pytest.mark.quick), LOTKA_VOLTERRA],
    ids=str,
)
@pytest.mark.parametrize("row", ROWS)
def test_row(benchmark: BenchmarkFixture, row: str, workload: Workload) -> None:
    """One row of the workload's group."""
    time_row(benchmark, row, workload)


@pytest.mark.parametrize("bar", ratio_bars_of(LOTKA_VOLTERRA), ids=str)
def test_bar(bar: RatioBar, scoreboard: Scoreboard) -> None:
    """The interleaved ratio that a bar is about."""
    measure(bar, scoreboard)
