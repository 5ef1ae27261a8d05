"""Compiled programs of large arrays on one thread and on two: value and all gradients, the same bits.

`python -m pytest bench/bench_threads.py -s` prints a row a workload. It needs two cores that nobody else uses.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tape
from bench.bars import Scoreboard
from bench.compiled_rivals import WARM_CALLS, compiled_function
from bench.compiled_workloads import CompiledWorkload, black_scholes_of, rosenbrock_of, rows_of, wave_of
from bench.in_turn import readable, times_in_turn

THREADS = (1, 2)
WORKLOADS = (
    rosenbrock_of(1_000_000, 1.0),
    black_scholes_of(1_000_000),
    rows_of("logsumexp", 1000),
    rows_of("softmax", 1000),
    wave_of(512, 500),
)
SHORT = (rosenbrock_of(60_000, 1.0), black_scholes_of(20_000), rows_of("softmax", 150), wave_of(400, 5))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Leave one thread behind."""
    yield
    tape.set_num_threads(1)


def call_with(threads: int, both: Any, arguments: tuple[Any, ...]) -> Any:
    """Return value and gradients, computed by so many threads."""
    tape.set_num_threads(threads)
    return both(*arguments)


def bits_of(results: Any) -> list[bytes]:
    """Return value and gradients as bytes."""
    value, gradients = results
    return [np.asarray(x).tobytes() for x in (value, *gradients)]


def compiled(workload: CompiledWorkload, calls: int) -> Any:
    """Return value and gradients of a workload, compiled; their bits are the same by one and by several threads."""
    both = compiled_function(workload)
    for _ in range(calls):
        both(*workload.arguments)
    one, two = (bits_of(call_with(threads, both, workload.arguments)) for threads in THREADS)
    assert one == two
    return both


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_threads(workload: CompiledWorkload, scoreboard: Scoreboard) -> None:
    """The time on two threads, as a part of that on one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < max(THREADS):
        pytest.skip("one core")
    both = compiled(workload, 4 if workload.name == "wave" else WARM_CALLS)
    runs = {str(n): functools.partial(call_with, n, both, workload.arguments) for n in THREADS}
    times = times_in_turn(runs)
    line = (
        f"{workload.name}, threads: 1: {readable(times['1'].median)}, 2: {readable(times['2'].median)}, "
        f"{times['2'].over(times['1']):.2f} of one"
    )
    scoreboard.note(line)
    sys.stdout.write(line + "\n")


@pytest.mark.quick
@pytest.mark.parametrize("workload", SHORT, ids=str)
def test_bits(workload: CompiledWorkload) -> None:
    """The same bits by one and by two threads."""
    compiled(workload, 4)
