"""Checkpoints in dynamic mode: memory and time of a wave equation, with and without.

`python -m pytest bench/bench_checkpoint.py -s` prints each row. Every run is a fresh process, `python -m bench.wave`,
which gives its peak of resident memory and the processor time of value and gradient; these are checked against those
without checkpoints, of fewer steps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from bench.bars import CHECKPOINT_PEAK, CHECKPOINT_STEP, Scoreboard

STEPS, SHORT = 10_000, 2_000


def fresh(way: str, steps: int) -> dict[str, Any]:
    """Return what a fresh process gives."""
    command = [sys.executable, "-m", "bench.wave", way, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for key in ("value", "gradient"):
        assert found[key] == pytest.approx(wanted[key], rel=1e-10)


@pytest.mark.quick
@pytest.mark.parametrize("way", ["checkpoints", "compiled", "budget"])
def test_short_waves_have_the_gradient_of_dynamic_mode(way: str) -> None:
    """Value and gradient agree."""
    _same(fresh(way, 120), fresh("plain", 120))


def test_the_wave_equation_stays_in_memory(scoreboard: Scoreboard) -> None:
    """Ten thousand steps; the time of a step beside that without checkpoints, of fewer steps, which fit."""
    plain, short = [[fresh(way, SHORT) for _ in range(3)] for way in ("plain", "checkpoints")]
    _same(short[0], plain[0])
    whole = fresh("checkpoints", STEPS)
    scoreboard.add(CHECKPOINT_PEAK, whole["peak"], f"{whole['peak']:.0f} MB, {1e3 * whole['step']:.2f} ms a step")
    best = [min(row["step"] for row in rows) for rows in (plain, short)]
    figure = best[1] / best[0]
    text = f"{figure:.2f} ({1e3 * best[1]:.2f} and {1e3 * best[0]:.2f} ms; {plain[0]['peak']:.0f} MB for {SHORT} steps)"
    scoreboard.add(CHECKPOINT_STEP, figure, text)
