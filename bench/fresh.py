"""What is measured in fresh processes: imports, a first backward, peak memory.

The parent calls the functions; `python -m bench.fresh COMMAND ...` is their other end, which
prints its answer as one line of JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Chain:
    """A chain run in a fresh process: its answer and its memory, in bytes.

    Attributes:
        value: The end of the chain.
        gradient: To the leaf.
        growth: How far the peak of resident memory rose, graph and backward together.
        kept: How far resident memory lay above its start when everything was dropped.
    """

    value: float
    gradient: float
    growth: int
    kept: int


def import_seconds(module: str) -> float:
    """Return the time of `import module` in a process that has imported nothing else."""
    code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return float(_output("-c", code))


def first_backward() -> dict[str, Any]:
    """Return `seconds` and `gradients` of the tiny graph, first thing after `import tape`."""
    answer: dict[str, Any] = json.loads(_output("-m", "bench.fresh", "first-backward"))
    return answer


def chain(lib: str, operations: int) -> Chain:
    """Run a chain by `lib`, `tape` or `torch`, after a short one to warm up."""
    return Chain(**json.loads(_output("-m", "bench.fresh", "chain", lib, str(operations))))


def _output(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    # Users import byte code; a container that forbids writing it would measure Python's compiler.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _first_backward() -> dict[str, Any]:
    workloads = importlib.import_module("bench.workloads")
    run = workloads.dynamic(importlib.import_module("tape"), workloads.TINY)
    start = time.perf_counter()
    _, gradients = run()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "gradients": [gradient.item() for gradient in gradients]}


def _chain(lib_name: str, operations: int) -> dict[str, Any]:
    workloads = importlib.import_module("bench.workloads")
    lib = importlib.import_module(lib_name)
    if lib_name == "torch":
        lib.set_num_threads(1)
    workloads.dynamic(lib, workloads.chain_of(100))()
    run = workloads.dynamic(lib, workloads.chain_of(operations))
    _give_back()
    _reset_peak()
    start, start_peak = _memory("VmRSS"), _memory("VmHWM")
    value, (gradient,) = run()
    peak = _memory("VmHWM")
    _give_back()
    return {
        "value": value,
        "gradient": gradient.item(),
        "growth": peak - start_peak,
        "kept": _memory("VmRSS") - start,
    }


def _memory(field: str) -> int:
    """Return a field of this process's status in bytes (`ru_maxrss` would be the parent's too)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    message = f"/proc/self/status has no {field}"
    raise LookupError(message)


def _reset_peak() -> None:
    """Let the peak start from what is resident now, where the kernel allows it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _give_back() -> None:
    """Collect garbage, and have the C library return free memory where it has a call for it."""
    gc.collect()
    ctypes = importlib.import_module("ctypes")
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _main(command: str, *arguments: str) -> None:
    if command == "first-backward":
        answer = _first_backward()
    else:
        lib_name, operations = arguments
        answer = _chain(lib_name, int(operations))
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
