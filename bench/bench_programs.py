"""Programs: a replay of the tiny graph beside JAX's jit, and what recording and planning cost an operation."""

from __future__ import annotations

import importlib
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.bars import JAX_REPLAY, PAIRS, PLANNING, RECORDING, REPLAY_BEYOND_ARRAYS, Scoreboard
from bench.rows import check, tape
from bench.workloads import TINY, TINY_0D, Workload, lotka_volterra_of, tiny_graph
from kernels.programs.machine import Machine, plan
from tape.testing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 100
"""Of the Lotka-Volterra equations, in what is recorded and planned."""


def _jax() -> Any:
    """Return JAX in double precision, or skip the row."""
    try:
        jax = importlib.import_module("jax")
    except ImportError as error:
        pytest.skip(f"JAX is not installed: {error}")
    jax.config.update("jax_enable_x64", True)
    return jax


def _program(workload: Workload) -> Any:
    """Return the program of a workload, recorded elsewhere."""
    lib = tape()
    elsewhere = [leaf * 1.0625 for leaf in workload.leaves]
    return lib.record(lambda *leaves: workload.function(lib, *leaves).sum(), *elsewhere)


def _seconds(run: Callable[[], object], calls: int = 1) -> float:
    start = time.thread_time()
    for _ in range(calls):
        run()
    return (time.thread_time() - start) / calls


@pytest.mark.quick
def test_tiny_replay_beside_jax(scoreboard: Scoreboard) -> None:
    """Value and gradients of four numbers: compiled by JAX, ready but not read, and replayed, as floats."""
    jax, program = _jax(), _program(TINY_0D)
    compiled = jax.jit(jax.value_and_grad(lambda *leaves: tiny_graph(jax.numpy, *leaves), argnums=(0, 1, 2, 3)))
    leaves = TINY_0D.leaves
    check(program.value_and_grad(*leaves), TINY_0D)
    value, gradients = compiled(*leaves)
    check((float(value), tuple(map(float, gradients))), TINY_0D)
    measured = ratio(
        lambda: jax.block_until_ready(compiled(*leaves)), lambda: program.value_and_grad(*leaves), pairs=PAIRS
    )
    scoreboard.add(JAX_REPLAY, measured.median, str(measured))


@pytest.mark.quick
@pytest.mark.parametrize("workload", [TINY_0D, TINY], ids=str)
def test_tiny_replay_beyond_arrays(workload: Workload, scoreboard: Scoreboard) -> None:
    """What a replay costs more than putting the same arguments into arrays, and taking as many results out."""
    program, leaves = _program(workload), workload.leaves
    places = [np.zeros(np.shape(leaf)) for leaf in leaves]
    read = float if workload is TINY_0D else np.copy

    def arrays() -> Any:
        for place, leaf in zip(places, leaves, strict=True):
            place[...] = leaf
        return places[0].item(), tuple([read(place) for place in places])

    def replay() -> Any:
        return program.value_and_grad(*leaves)

    replay()
    check(replay(), workload)
    rounds = [(_seconds(replay, 200) - _seconds(arrays, 200)) * 1e6 for _ in range(2 * PAIRS)]
    figure = median(rounds[PAIRS:])
    scoreboard.add(REPLAY_BEYOND_ARRAYS[workload.name], figure, f"{figure:.2f} us")


@pytest.mark.quick
def test_recording_beyond_dynamic_mode(scoreboard: Scoreboard) -> None:
    """What an operation costs more while a program is recorded than in dynamic mode: processor time."""
    lib, workload = tape(), lotka_volterra_of(STEPS)

    def dynamic() -> Any:
        return workload.function(lib, *[lib.tensor(leaf, requires_grad=True) for leaf in workload.leaves])

    def record() -> Any:
        return lib.record(lambda *leaves: workload.function(lib, *leaves), *workload.leaves)

    check(record().value_and_grad(*workload.leaves), workload)
    count = len(record())
    dynamic()
    rounds = [(_seconds(record) - _seconds(dynamic)) / count * 1e6 for _ in range(PAIRS)]
    figure = median(rounds[PAIRS // 3 :])
    scoreboard.add(RECORDING, figure, f"{figure:.2f} us")


@pytest.mark.quick
def test_planning(scoreboard: Scoreboard) -> None:
    """What an operation costs when a program is made ready for value and gradients: processor time."""
    program = _program(lotka_volterra_of(STEPS))
    recipe, count = program._recipe, len(program)  # noqa: SLF001 (what a first call does)
    rounds = [_seconds(lambda: Machine(plan(recipe, reverse=True))) / count * 1e6 for _ in range(PAIRS)]
    figure = median(rounds[PAIRS // 3 :])
    scoreboard.add(PLANNING, figure, f"{figure:.2f} us")
