"""Compiled programs beside adjoints written by hand in Numba, JAX, PyTorch and CasADi: value and all gradients.

`python -m pytest bench/bench_compiled.py -s` prints a row a workload as it is measured, and the
table at the end; `-k lotka_volterra` selects. Each runner is called in turn with the others, on one
core; the quotients are medians of rounds. A bar missed fails no test, a wrong answer does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.bars import Scoreboard
from bench.by_hand.native_loops import hand_loop, native_loop
from bench.compiled_rivals import (
    CASADI,
    COMPILED,
    DYNAMIC,
    INTERPRETER,
    RUNNERS,
    WARM_CALLS,
    check,
    compiled_function,
    runner_of,
)
from bench.compiled_workloads import HAND, JAX, PYTORCH, SHORT, TINY, WORKLOADS, CompiledWorkload, Limit
from bench.first_calls import first_calls
from bench.in_turn import Times, readable, times_in_turn
from bench.library_names import NUMPY

COLUMNS = (
    "workload", DYNAMIC, INTERPRETER, COMPILED, HAND, JAX, PYTORCH, CASADI, "of hand", "of best rival", "bar", "",
)  # fmt: skip
_STEP = 1e-30
SHOWN = ("tiny_floats", "rosenbrock_1000", "lotka_volterra_1000")  # in the quick part, beside the rivals


@pytest.fixture(scope="module", autouse=True)
def one_core() -> Iterator[None]:
    """Keep the process on one core, and with it the threads that rivals start."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module")
def table(scoreboard: Scoreboard) -> Iterator[list[tuple[str, ...]]]:
    """Return the rows to add to; they go below the bars."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    yield rows
    widths = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
    for row in rows:
        scoreboard.note("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


@pytest.mark.parametrize(
    "workload", [pytest.param(w, marks=pytest.mark.quick if w.name in SHOWN else ()) for w in WORKLOADS], ids=str
)
def test_workload(workload: CompiledWorkload, table: list[tuple[str, ...]], scoreboard: Scoreboard) -> None:
    """All runners agree with the adjoint by hand; their times, in turn."""
    found = {name: runner_of(name, workload) for name in RUNNERS}
    runners = {name: runner for name, runner in found.items() if not isinstance(runner, str)}
    wanted = workload.hand(*workload.arguments)
    for name, run in runners.items():
        check(name, run(), wanted)
    times = times_in_turn(runners)
    scoreboard.times[workload.name] = {name: each.median for name, each in times.items()}
    row = _row(workload, times)
    table.append(row)
    skipped = [f"{name}: {reason}" for name, reason in found.items() if isinstance(reason, str) and reason != "-"]
    sys.stdout.write("  ".join((*row, *skipped)) + "\n")


def _row(workload: CompiledWorkload, times: dict[str, Times]) -> tuple[str, ...]:
    cells = [readable(times[name].median) if name in times else "-" for name in RUNNERS]
    compiled = times[COMPILED]
    rivals = [name for name in (JAX, PYTORCH, CASADI) if name in times]
    best = min(rivals, key=lambda name: times[name].median, default=None)
    of_best = f"{compiled.over(times[best]):.2f} ({best})" if best else "-"
    bars = "; ".join(map(str, workload.limits))
    verdict = "pass" if all(_reached(limit, times) for limit in workload.limits) else "FAIL"
    return (workload.name, *cells, f"{compiled.over(times[HAND]):.2f}", of_best, bars, verdict)


def _reached(limit: Limit, times: dict[str, Times]) -> bool:
    """Whether a bar is met; one against a rival that is not there is not."""
    if limit.against is None:
        return times[COMPILED].median * 1e6 <= limit.at_most
    return limit.against in times and times[COMPILED].over(times[limit.against]) <= limit.at_most


FIRST_CALLS = ("tiny_floats", "rosenbrock_1000", "black_scholes", "lotka_volterra_1000", "burgers_by_cat", "n_body_500")


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_first_calls(name: str, tmp_path: Path, scoreboard: Scoreboard) -> None:
    """What the first calls cost beyond their recordings, with an empty cache of kernels, and with a full one."""
    for cache, at_most in (("empty", 1.0), ("full", 0.3 if name == "lotka_volterra_1000" else 0.1)):
        found = first_calls(name, tmp_path)
        verdict = "pass" if found.beyond <= at_most else "FAIL"
        line = (
            f"{verdict}  {name}, first calls, {cache} cache: {found.beyond:.3f} s beyond {found.recorded} recordings "
            f"of {readable(found.recording)}; wanted <= {at_most} s"
        )
        scoreboard.note(line)
        sys.stdout.write(line + "\n")


def test_in_native_code(scoreboard: Scoreboard) -> None:
    """The tiny graph in a loop of `@njit` code, by its compiled program and by hand."""
    a, b, c, d = map(float, TINY.leaves)
    both = compiled_function(TINY)
    for _ in range(WARM_CALLS):
        both(a, b, c, d)
    if not hasattr(both, "native"):
        pytest.skip("compiled programs cannot be called in @njit code")
    calls = {COMPILED: native_loop(both.native), HAND: hand_loop}
    gradients = {name: np.zeros(4) for name in calls}
    totals = [calls[name](1000, a, b, c, d, gradients[name]) for name in calls]
    assert totals[0] == pytest.approx(totals[1], rel=1e-9)
    np.testing.assert_allclose(gradients[COMPILED], gradients[HAND], rtol=1e-9)
    times = times_in_turn({name: partial(calls[name], 1000, a, b, c, d, gradients[name]) for name in calls})
    nanoseconds = {name: each.median * 1e6 for name, each in times.items()}  # of one call in 1000
    verdict = "pass" if nanoseconds[COMPILED] <= 40 else "FAIL"
    line = (
        f"{verdict}  tiny graph in @njit code: {nanoseconds[COMPILED]:.1f} ns a call, by hand "
        f"{nanoseconds[HAND]:.1f} ns; wanted <= 40 ns"
    )
    scoreboard.note(line)
    sys.stdout.write(line + "\n")


@pytest.mark.quick
@pytest.mark.parametrize("workload", SHORT, ids=str)
def test_answers(workload: CompiledWorkload) -> None:
    """Dynamic mode and compiled programs, from the first call on, agree with the adjoint by hand."""
    wanted = workload.hand(*workload.arguments)
    for name in (DYNAMIC, INTERPRETER, COMPILED):
        run = runner_of(name, workload)
        assert not isinstance(run, str), run
        check(name, run(), wanted)


@pytest.mark.quick
@pytest.mark.parametrize("workload", [w for w in SHORT if w.complex_steps], ids=str)
def test_by_hand(workload: CompiledWorkload) -> None:
    """The adjoint by hand gives the derivatives along random directions that complex steps give."""
    value, gradients = workload.hand(*workload.arguments)
    rng = np.random.default_rng(0)
    for k, gradient in enumerate(gradients):
        for _ in range(3):
            direction = rng.normal(size=np.shape(workload.leaves[k]))
            leaves: list[Any] = [np.array(leaf, dtype=complex) for leaf in workload.leaves]
            leaves[k] = leaves[k] + 1j * _STEP * direction
            stepped = np.ravel(workload.function(NUMPY, *leaves, *workload.constants))[0]
            np.testing.assert_allclose(stepped.real, value, rtol=1e-10)
            np.testing.assert_allclose(np.sum(gradient * direction), stepped.imag / _STEP, rtol=1e-8)
