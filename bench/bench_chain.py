"""A chain of n one-element operations: is time linear, is memory, is all of it freed."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench import bars, fresh
from bench.bars import PAIRS, RatioBar, Scoreboard
from bench.rows import ROWS, check, checked, pytorch, seconds_of, tape, time_row
from bench.workloads import CHAINS, Workload
from tape.testing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_benchmark.fixture import BenchmarkFixture

SIZES = [pytest.param(n, marks=pytest.mark.quick if n <= 1_000 else ()) for n in CHAINS]


@pytest.mark.parametrize("operations", SIZES)
@pytest.mark.parametrize("row", ROWS)
def test_row(benchmark: BenchmarkFixture, row: str, operations: int) -> None:
    """One row of the workload's group."""
    time_row(benchmark, row, CHAINS[operations])


def _graph(lib: Any, workload: Workload) -> Callable[[], tuple[Any, Any]]:
    """Return a function that builds leaf and end of the chain."""

    def build() -> tuple[Any, Any]:
        leaf = lib.tensor(workload.leaves[0], dtype=lib.float64, requires_grad=True)
        return leaf, workload.function(lib, leaf)

    return build


def _backward(graph: tuple[Any, Any]) -> Any:
    """Sweep back and read the gradient."""
    leaf, end = graph
    end.backward()
    return leaf.grad.numpy()


@pytest.mark.parametrize(
    "bar",
    [
        pytest.param(bar, marks=pytest.mark.long if bar.workload is CHAINS[1_000_000] else (), id=str(bar))
        for bar in bars.CHAIN_BACKWARD
    ],
)
def test_backward_bar(bar: RatioBar, scoreboard: Scoreboard) -> None:
    """Backward alone, each on a graph of its own that is built outside the timing."""
    build_slow, build_fast = (_graph(lib, bar.workload) for lib in (pytorch(), tape()))
    for build in (build_slow, build_fast):
        graph = build()
        check((graph[1].item(), (_backward(graph),)), bar.workload)
    measured = ratio(_backward, _backward, pairs=PAIRS, setup_slow=build_slow, setup_fast=build_fast)
    scoreboard.add(bar, measured.median, str(measured))


def _slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms: 1 if the cost is linear."""
    return float(np.polynomial.Polynomial.fit(np.log(sizes), np.log(costs), 1).convert().coef[1])


def test_time_is_linear(scoreboard: Scoreboard) -> None:
    """The slope of time from a thousand to a million operations, the median of three calls.

    Calls of one size follow each other: the first after a larger size pays for what the C
    library does with the memory that was freed.
    """
    sizes = [1_000, 10_000, 100_000, 1_000_000]
    seconds = []
    for size in sizes:
        run = checked(bars.DYNAMIC, CHAINS[size])
        seconds.append(statistics.median(seconds_of(run) for _ in range(3)))
    each = ", ".join(f"{1e6 * s / n:.3g}" for s, n in zip(seconds, sizes, strict=True))
    slope = _slope(sizes, seconds)
    scoreboard.add(bars.CHAIN_TIME, slope, f"{slope:.3g} ({each} us an operation)")


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc, which only Linux has")


@linux_only
@pytest.mark.quick
def test_memory_of_a_short_chain() -> None:
    """The probe of the next test answers rightly."""
    probe = fresh.chain("tape", 1_000)
    check((probe.value, (np.array([probe.gradient]),)), CHAINS[1_000])
    assert probe.growth >= 0


@linux_only
def test_memory_is_linear(scoreboard: Scoreboard) -> None:
    """The slope of the growth of peak memory, each size in a fresh process; all of it freed."""
    sizes = [10_000, 100_000, 1_000_000]
    probes = [fresh.chain("tape", size) for size in sizes]
    growths = [probe.growth for probe in probes]
    each = ", ".join(f"{g / n:.0f}" for g, n in zip(growths, sizes, strict=True))
    slope = _slope(sizes, growths)
    scoreboard.add(bars.CHAIN_BYTES, slope, f"{slope:.3g} ({each} bytes an operation)")
    last = probes[-1]
    kept = last.kept / last.growth
    text = f"{kept:.3g} ({last.kept / 1e6:.1f} of {last.growth / 1e6:.1f} MB)"
    scoreboard.add(bars.CHAIN_FREED, kept, text)


@linux_only
@pytest.mark.parametrize("operations", bars.CHAIN_PEAK)
def test_peak_memory(operations: int, scoreboard: Scoreboard) -> None:
    """The growth of peak memory against PyTorch's, each in a fresh process."""
    pytorch()  # or skip
    theirs, ours = fresh.chain("torch", operations), fresh.chain("tape", operations)
    times = theirs.growth / ours.growth
    each = f"{theirs.growth / operations:.0f} and {ours.growth / operations:.0f}"
    text = f"{times:.3g} times ({each} bytes an operation)"
    scoreboard.add(bars.CHAIN_PEAK[operations], times, text)
