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
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent
FIRST_GRADIENT = """
import tape
x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
(x * tape.sin(x)).sum().backward()
"""
_LIMIT = 8 << 30
"""Bytes of address space of a process that records."""
_FEWEST, _MOST_SECONDS = 4, 20.0  # calls of a compiled function, and how long replays are waited for


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


@dataclass(frozen=True)
class FirstCalls:
    """The first calls of a compiled workload in a fresh process: processor seconds, and memory in bytes.

    Attributes:
        dynamic: The seconds of a dynamic call; 0 if there was none.
        calls: The seconds of each call.
        dynamic_peak: How far the peak of resident memory rose in a dynamic call.
        peak: How far it rose in the calls.
        held: How far resident memory lay above its start after each call.
        workspace: What the program says that it needs.
        whole: The peak of the process.
        tier: What runs the program, as it says itself.
        value: What the last call returned.
        failed: Why there are no figures, as one line.
    """

    dynamic: float = 0.0
    calls: tuple[float, ...] = ()
    dynamic_peak: int = 0
    peak: int = 0
    held: tuple[int, ...] = ()
    workspace: int = 0
    whole: int = 0
    tier: str = ""
    value: float = 0.0
    failed: str = ""


def import_seconds(module: str, clock: str = "perf_counter") -> float:
    """Return the time of `import module` in a process that has imported nothing else."""
    code = f"import time; start = time.{clock}(); import {module}; print(time.{clock}() - start)"
    return float(_output("-c", code))


def process_seconds(code: str) -> float:
    """Return the processor time of a whole process that runs code, with a kernel cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        _output("-c", code, TAPE_CACHE_DIR=folder)
        after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def recording(name: str, steps: float, *, dynamic: bool = True, budget: str = "", seconds: float = 600) -> FirstCalls:
    """Make the first calls of a workload of `recorded_workloads.STEPPED`, in `mode="max"` and within 8 GB."""
    command = "-m", "bench.fresh", "recording", name, str(steps), str(int(dynamic)), budget
    try:
        answer = json.loads(_output(*command, seconds=seconds))
    except subprocess.TimeoutExpired:
        return FirstCalls(failed=f"no answer in {seconds:.0f} s")
    except AssertionError as error:
        return FirstCalls(failed=str(error).strip().splitlines()[-1][:100])
    return FirstCalls(**answer)


def first_backward() -> dict[str, Any]:
    """Return `seconds` and `gradients` of the tiny graph, first thing after `import tape`."""
    answer: dict[str, Any] = json.loads(_output("-m", "bench.fresh", "first-backward"))
    return answer


def chain(lib: str, operations: int) -> Chain:
    """Run a chain by `lib`, `tape` or `torch`, after a short one to warm up."""
    return Chain(**json.loads(_output("-m", "bench.fresh", "chain", lib, str(operations))))


def _output(*arguments: str, seconds: float | None = None, **added: str) -> str:
    command = [sys.executable, *arguments]
    # Users import byte code; a container that forbids writing it would measure Python's compiler.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | added
    done = subprocess.run(
        command, cwd=_ROOT, check=False, capture_output=True, text=True, env=environment, timeout=seconds
    )
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


def _recording(name: str, steps: str, dynamic: str, budget: str) -> dict[str, Any]:
    resource = importlib.import_module("resource")
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT, _LIMIT))
    tape, workloads = importlib.import_module("tape"), importlib.import_module("bench.recorded_workloads")
    warm, work = workloads.STEPPED[name](2), workloads.STEPPED[name](float(steps) if "." in steps else int(steps))
    warm.both()(*warm.arguments)
    answer: dict[str, Any] = {}
    if dynamic == "1":
        _, answer["dynamic"], answer["dynamic_peak"], _ = _measured(work.both(), work.arguments)
    compiled = tape.compile(work.both(), mode="max", check="never", memory=budget or None)
    _give_back()
    start, calls = _memory("VmRSS"), []
    while len(calls) < _FEWEST or not _is_replayed([seconds for seconds, *_ in calls]):
        value, *figures = _measured(compiled, work.arguments)
        calls.append(figures)
    seconds, peaks, kept = zip(*calls, strict=True)
    held = [sum(kept[: k + 1]) for k in range(len(kept))]
    return {
        **answer,
        "calls": seconds,
        "peak": max(before + rise for before, rise in zip([0, *held], peaks, strict=False)),
        "held": held,
        "workspace": compiled.memory().block if compiled.programs else 0,
        "whole": max(_memory("VmHWM"), start + max(peaks)),
        "tier": next((line.strip() for line in compiled.explain().splitlines() if "machine code:" in line), "none"),
        "value": value,
    }


def _is_replayed(calls: list[float]) -> bool:
    """Whether the last call was a replay, or none is to be expected: machine code may be made beside dynamic calls."""
    return calls[-1] < calls[0] / 8 or sum(calls[2:]) > max(_MOST_SECONDS, 3 * calls[0])


def _measured(run: Any, arguments: Any) -> tuple[float, float, int, int]:
    """Return a call's value, its processor time, how far the peak of memory rose, and memory when it was over."""
    _give_back()
    _reset_peak()
    start, started = _memory("VmRSS"), time.process_time()
    value, _ = run(*arguments)
    seconds = time.process_time() - started
    peak = _memory("VmHWM") - start
    _give_back()
    return float(value), seconds, peak, _memory("VmRSS") - start


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
    elif command == "recording":
        answer = _recording(*arguments)
    else:
        lib_name, operations = arguments
        answer = _chain(lib_name, int(operations))
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
