"""A wave equation on 200 x 200 points in a process of its own.

`python -m bench.wave WAY STEPS` prints value, gradient, seconds of a step and the peak of resident memory in MB. The
way is `plain`; `checkpoints` of a hundred steps; `compiled`: so many in a Python loop; `both`; or `budget`: all is
compiled, in 100 MB.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np

import tape

POINTS, BLOCK = 200, 100


def advance(before: Any, now: Any, speed: Any, count: int) -> tuple[Any, Any]:
    """Return the field before and after so many steps."""
    for _ in range(count):
        laplacian = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4.0 * now[1:-1, 1:-1]
        inner = 2.0 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + speed * laplacian
        before, now = now, np.pad(inner, 1)
    return before, now


def run(way: str, steps: int) -> dict[str, Any]:
    """Return value, gradient at the speed, seconds of a step and peak memory."""
    y, x = np.meshgrid(np.linspace(-1, 1, POINTS), np.linspace(-1, 1, POINTS), indexing="ij")
    bump = np.exp(-40 * (x**2 + y**2))
    block = BLOCK if way in ("checkpoints", "compiled", "both") else steps
    compiled = tape.compile(advance, mode="max", check="never")

    step = compiled if way == "both" else advance

    def energy(speed: Any) -> Any:
        before = now = tape.tensor(bump)
        for start in range(0, steps, block):
            count = min(block, steps - start)
            if way in ("checkpoints", "both"):
                before, now = tape.checkpoint(step, before, now, speed, count)
            elif way == "compiled":
                before, now = compiled(before, now, speed, count)
            else:
                before, now = advance(before, now, speed, count)
        return (now**2).sum()

    both = tape.value_and_grad(energy)
    if way == "budget":
        both = tape.compile(both, mode="max", memory="100 MB", check="never")
        for _ in range(2):
            both(0.1)
    else:
        advance(tape.tensor(bump), tape.tensor(bump), 0.1, 2)
    times = []
    for _ in range(2):
        start_time = time.process_time()
        value, gradient = both(0.1)
        times.append((time.process_time() - start_time) / steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"value": value, "gradient": gradient, "step": min(times), "peak": peak}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]))) + "\n")
