"""Native or plain: how tapes are swept and collected, chosen once by whether memory can be read."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from kernels import plain, sweep
from kernels.memory import readable
from kernels.observing import Observer, Outcome, Seed
from kernels.workspace import Workspace

NATIVE = readable() and not os.environ.get("TAPE_PLAIN")
"""False where this interpreter keeps its objects otherwise, or where ``TAPE_PLAIN`` is set (tests)."""

_spaces = threading.local()


def workspace() -> Workspace:
    """Return this thread's memory for native sweeps."""
    space: Workspace | None = getattr(_spaces, "space", None)
    if space is None:
        space = _spaces.space = Workspace()
    return space


def run(
    entries: list[Any],
    number: int,
    seeds: list[Seed],
    observers: Sequence[Observer],
    *,
    restrict: bool,
    free: bool,
    required: bool = False,
) -> Outcome:
    """Sweep a tape back from the seeds; see :func:`kernels.sweep.sweep`."""
    if NATIVE:
        space = workspace()
        return sweep.sweep(space, entries, number, seeds, observers, restrict=restrict, free=free, required=required)
    return plain.sweep(entries, number, seeds, observers, restrict=restrict, free=free, required=required)


def collect(entries: list[Any], number: int, dying: int = 0) -> int:
    """Drop the instructions whose results nobody can reach; return how many entries they had.

    ``dying`` is the slot of a tensor that is just being deleted, and still counts as a holder.
    """
    if NATIVE:
        return sweep.collect(workspace(), entries, number, dying)
    return plain.collect(entries, dying)
