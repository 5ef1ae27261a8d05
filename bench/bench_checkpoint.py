"""Checkpoints in dynamic mode: memory and time of a wave equation, with and without.

`python -m pytest bench/bench_checkpoint.py -s` prints each row. Every run is a fresh process, which gives its peak of
resident memory and the processor time of value and gradient, checked against the gradient of a shorter run without
checkpoints. `python -m bench.bench_checkpoint STEPS BLOCK` is such a process; BLOCK 0 is without.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from bench.bars import CHECKPOINT_PEAK, CHECKPOINT_STEP, Scoreboard

POINTS, STEPS, BLOCK, SHORT = 200, 10_000, 100, 300


def run(steps: int, block: int) -> dict[str, Any]:
    """Return value, gradient at the source, seconds and peak memory of the wave equation."""
    import tape

    n = POINTS
    y, x = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n), indexing="ij")
    bump = np.exp(-40 * (x**2 + y**2))

    def advance(before: Any, now: Any, speed: Any, count: int) -> tuple[Any, Any]:
        for _ in range(count):
            laplacian = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4.0 * now[1:-1, 1:-1]
            inner = 2.0 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + speed * laplacian
            before, now = now, np.pad(inner, 1)
        return before, now

    def energy(speed: Any) -> Any:
        before = now = tape.tensor(bump)
        for start in range(0, steps, block or steps):
            count = min(block or steps, steps - start)
            if block:
                before, now = tape.checkpoint(advance, before, now, speed, count)
            else:
                before, now = advance(before, now, speed, count)
        return (now**2).sum()

    tape.value_and_grad(lambda speed: (advance(tape.tensor(bump), tape.tensor(bump), speed, 2)[1] ** 2).sum())(0.1)
    start = time.process_time()
    value, gradient = tape.value_and_grad(energy)(0.1)
    seconds = time.process_time() - start
    return {
        "value": value,
        "gradient": gradient,
        "step": seconds / steps,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def fresh(steps: int, block: int) -> dict[str, Any]:
    """Return what a fresh process gives."""
    command = [sys.executable, "-m", "bench.bench_checkpoint", str(steps), str(block)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.quick
def test_a_short_wave_has_the_gradient_of_dynamic_mode() -> None:
    """Value and gradient agree bit for bit."""
    with_checkpoints, without = fresh(40, 7), fresh(40, 0)
    assert [with_checkpoints[k] for k in ("value", "gradient")] == [without[k] for k in ("value", "gradient")]


def test_the_wave_equation_stays_in_memory(scoreboard: Scoreboard) -> None:
    """Ten thousand steps; the time of a step beside that without checkpoints, of fewer steps, which fit."""
    plain, short = [[fresh(SHORT, block) for _ in range(3)] for block in (0, BLOCK)]
    assert short[0]["gradient"] == plain[0]["gradient"]
    whole = fresh(STEPS, BLOCK)
    scoreboard.add(CHECKPOINT_PEAK, whole["peak"], f"{whole['peak']:.0f} MB, {1e3 * whole['step']:.2f} ms a step")
    best = [min(row["step"] for row in rows) for rows in (plain, short)]
    figure = best[1] / best[0]
    text = f"{figure:.2f} ({1e3 * best[1]:.2f} and {1e3 * best[0]:.2f} ms; {plain[0]['peak']:.0f} MB for {SHORT} steps)"
    scoreboard.add(CHECKPOINT_STEP, figure, text)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))) + "\n")
