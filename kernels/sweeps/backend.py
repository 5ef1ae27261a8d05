"""Chooses between native and plain Python sweeps, by whether native code can read this interpreter's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kernels.foundation.numpy_arrays import Array, Outcome, Readers, Seed, Task
from kernels.native import c_api
from kernels.sweeps import reference, reverse
from kernels.sweeps.reverse import Root, RootOptions, ShortOptions
from kernels.sweeps.workspace import Workspace

NATIVE = c_api.NATIVE
"""Whether native code sweeps; tests turn it off."""

_spaces = threading.local()


def workspace() -> Workspace:
    """Return this thread's memory for native sweeps."""
    space: Workspace | None = getattr(_spaces, "space", None)
    if space is None or space.busy:  # a hook has started another sweep in the middle of one
        space = _spaces.space = Workspace()
    return space


def run(task: Task) -> Outcome:
    """Sweep a tape; see :func:`kernels.sweeps.reverse.sweep`."""
    return reverse.sweep(workspace(), task) if NATIVE else reference.sweep(task)


def short_backward(entries: Any, x: Any, root: Callable[[Any], Root], readers: Readers, options: ShortOptions) -> Any:
    """See :func:`kernels.sweeps.reverse.short_backward`."""
    if not NATIVE:
        return NotImplemented
    space = getattr(_spaces, "space", None)
    if space is None or space.busy:
        space = workspace()
    return reverse.short_backward(space, entries, x, root, readers, options)


def leads(entries: Any, x: Any, readers: Readers, targets: tuple[Any, ...]) -> bool:
    """See :func:`kernels.sweeps.reverse.leads`; False where only plain Python sweeps."""
    return NATIVE and reverse.leads(workspace(), entries, x, readers, targets)


def run_one(
    entries: Any, number: int, root: Root, readers: Readers, free: bool, options: RootOptions
) -> list[tuple[Any, Array | float]] | None:
    """Return the gradients of leaves for one root without observers; CrossingError if it leads to other tapes.

    HookedError if it leads to a leaf with hooks, or may lead to an observed slot; None where only :func:`run` can find
    out.
    """
    if NATIVE:
        return reverse.sweep_one(workspace(), entries, root, readers, free, options)
    value, only, hooked, seen = options
    if only is not None or seen:
        return None
    try:
        readers.readers.append(None)
        slot, spec, offset = root
        seed = Seed(slot, spec, 1.0 if value is None else value, offset)
        return reference.sweep(Task(entries, number, [seed], free=readers if free else None, hooked=hooked))[0]
    finally:
        readers.readers.pop()
