"""Where the time goes: the phases of Lotka-Volterra apart, one row each.

They have no bars; they show which phase a change moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.rows import check, seconds_of, tape
from bench.workloads import LOTKA_VOLTERRA, Workload, lotka_volterra_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

# At most so many rounds of a phase, and about so long.
ROUNDS = 10
SECONDS = 1.0


def _leaves(workload: Workload, *, requires_grad: bool = True) -> list[Any]:
    lib = tape()
    return [lib.tensor(leaf, dtype=lib.float64, requires_grad=requires_grad) for leaf in workload.leaves]


def _forward(workload: Workload, leaves: list[Any]) -> Any:
    return workload.function(tape(), *leaves)


def _recorded(workload: Workload) -> Any:
    """Return a program; it calls the workload's function with tensors."""
    lib = tape()
    return lib.record(lambda *leaves: workload.function(lib, *leaves), *workload.leaves)


def python_floats(workload: Workload) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the workload's text on Python floats: the control without any tape."""
    return lambda: list(workload.leaves), lambda leaves: _forward(workload, leaves)


def forward_unwanted(workload: Workload) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the forward computation of leaves that want no gradient: nothing is recorded."""
    return (
        lambda: _leaves(workload, requires_grad=False),
        lambda leaves: _forward(workload, leaves).item(),
    )


def forward_recorded(workload: Workload) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the forward computation that appends to the tape; nothing is swept."""
    return lambda: _leaves(workload), lambda leaves: _forward(workload, leaves).item()


def backward(workload: Workload) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the sweep of a graph that was recorded outside the timing."""

    def build() -> tuple[list[Any], Any]:
        leaves = _leaves(workload)
        return leaves, _forward(workload, leaves)

    def sweep(graph: tuple[list[Any], Any]) -> Any:
        leaves, end = graph
        end.backward()
        return end.item(), tuple(leaf.grad.item() for leaf in leaves)

    return build, sweep


def record(workload: Workload) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the recording of a program and its first replay, which prepares the rest."""
    return lambda: None, lambda _: _recorded(workload).value_and_grad(*workload.leaves)


def replay_forward(workload: Workload) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the replay of the value alone."""
    program = _recorded(workload)
    return lambda: None, lambda _: np.asarray(program(*workload.leaves)).item()


def replay_both(workload: Workload) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the replay of value and gradients."""
    program = _recorded(workload)
    return lambda: None, lambda _: program.value_and_grad(*workload.leaves)


PHASES = (
    python_floats,
    forward_unwanted,
    forward_recorded,
    backward,
    record,
    replay_forward,
    replay_both,
)


@pytest.mark.parametrize(
    "workload",
    [pytest.param(lotka_volterra_of(50), marks=pytest.mark.quick), LOTKA_VOLTERRA],
    ids=str,
)
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_phase(benchmark: BenchmarkFixture, phase: Callable[..., Any], workload: Workload) -> None:
    """One phase; what it returns is the value, or value and gradients."""
    setup, run = phase(workload)
    answer = run(setup())
    state = setup()
    seconds = seconds_of(lambda: run(state))
    if isinstance(answer, tuple):
        check(answer, workload)
    else:
        assert answer == pytest.approx(workload.answer[0], rel=1e-10)
    benchmark.group = f"phases of {workload}"
    benchmark.name = phase.__name__
    benchmark.pedantic(run, setup=lambda: ((setup(),), {}), rounds=min(ROUNDS, max(1, round(SECONDS / seconds))))
