"""A time loop of small arrays: five bodies, (5, 5, 3) arrays by broadcasting, 100 steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.bars import RatioBar, Scoreboard, ratio_bars_of
from bench.rows import ROWS, measure, time_row
from bench.workloads import N_BODY

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.mark.quick
@pytest.mark.parametrize("row", ROWS)
def test_row(benchmark: BenchmarkFixture, row: str) -> None:
    """One row of the group."""
    time_row(benchmark, row, N_BODY)


@pytest.mark.quick
@pytest.mark.parametrize("bar", ratio_bars_of(N_BODY), ids=str)
def test_bar(bar: RatioBar, scoreboard: Scoreboard) -> None:
    """The interleaved ratio that a bar is about."""
    measure(bar, scoreboard)
