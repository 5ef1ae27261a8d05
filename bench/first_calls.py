"""What the first calls of a compiled program cost beyond recording it, in a fresh process with a cache of its own.

The parent calls `first_calls`; `python -m bench.first_calls NAME` is the other end, which prints
its answer as one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.compiled_rivals import compiled_function
from bench.compiled_workloads import WORKLOADS

_ROOT = Path(__file__).parent.parent
# Recorded, recorded again and compared, planned: the fourth call is the first that may be checked.
CALLS = 3


@dataclass(frozen=True)
class FirstCalls:
    """The first calls of a program, and one recording of it when everything else is there.

    Attributes:
        calls: The seconds of each call.
        recording: The seconds of one recording.
        recorded: How many of the calls recorded.
    """

    calls: list[float]
    recording: float
    recorded: int

    @property
    def beyond(self) -> float:
        """The seconds of all the calls beyond their recordings."""
        return sum(self.calls) - self.recorded * self.recording


def first_calls(name: str, cache: Path) -> FirstCalls:
    """Return the first calls of a workload with the kernels of this cache, which is filled."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"TAPE_CACHE_DIR": str(cache), "TAPE_QUIET": "1"}
    command = [sys.executable, "-m", "bench.first_calls", name]
    done = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return FirstCalls(**json.loads(done.stdout))


def _main(name: str) -> None:
    warnings.simplefilter("ignore")  # a program that stays in dynamic mode shows in its times
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    tape, arguments = importlib.import_module("tape"), workload.arguments
    both = compiled_function(workload)
    calls = [_seconds(lambda: both(*arguments)) for _ in range(CALLS)]
    found = re.search(r"(\d+) recorded", both.explain())
    recordings = [
        _seconds(lambda: tape.record(lambda *given: workload.function(tape, *given), *arguments)) for _ in range(3)
    ]
    answer = {"calls": calls, "recording": statistics.median(recordings), "recorded": int(found[1]) if found else 0}
    sys.stdout.write(json.dumps(answer) + "\n")


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    _main(*sys.argv[1:])
