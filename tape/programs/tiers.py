"""Tiers of a program: rows at once, machine code when the compiler is done."""

from __future__ import annotations

import operator
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.machine_code.tiers import Uncompiled, compiled_machine
from kernels.native.threads import WORKERS
from kernels.programs.program import Recipe

Outcome = CompiledMachine | Uncompiled
_FAULTS = ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError
"""What a fault of the compiler raises; the interpreter then serves, and a warning tells of it."""


class Failed(Uncompiled):
    """The compiler has a fault."""


def machine_code(recipe: Recipe, *, memory: int | None, **options: Any) -> Outcome:
    """Return a machine that runs machine code, or the reason that the interpreter has to run the program.

    Without ``always`` that may be that it is as fast. ``options`` are those of
    :func:`kernels.machine_code.tiers.compiled_machine`.
    """
    try:
        machine = compiled_machine(recipe, memory=memory, **options)
        if memory is not None and memory < machine.size < 2 * memory:  # leave room for what stands beside the workspace
            machine = compiled_machine(recipe, memory=2 * memory - machine.size, **options)
    except Uncompiled as refused:
        return type(refused)(refused.reason, refused.step)  # without its frames, which refer to the program
    except _FAULTS as error:
        return Failed(f"the compiler failed: {error!r}")
    return machine


class BackgroundCompile:
    """What a thread of its own makes; who asks for it waits. A process that was forked meanwhile makes it itself."""

    def __init__(self, make: Callable[[Callable[[float], None]], Outcome], calls: int) -> None:
        self.calls, self.seconds = calls, 0.0
        """How many calls go on beside it, and how long it takes, about, as far as that is known."""
        self._make, self._made = make, list[Outcome]()
        self._process, self._stages = os.getpid(), queue.SimpleQueue[float]()
        self._thread = threading.Thread(target=self._run, name="tape: compiling")
        try:
            self._thread.start()
        except RuntimeError:  # there are no threads here, or no more
            self._run()
            self._process = -1

    def _run(self) -> None:
        try:
            self._made.append(self._make(self._stages.put))
        finally:
            self._stages.put(0.0)

    def more_calls(self, calls_in: Callable[[float], int]) -> int:
        """Return how many more calls go on beside it: as many as its next stages take, 0 behind the last."""
        while self._process == os.getpid() and (stage := self._stages.get()):
            self.seconds += stage
            more = calls_in(self.seconds) - self.calls
            if more > 0:
                self.calls += more
                return more
        return 0

    def result(self) -> Outcome:
        """Return what was made."""
        if self._process == os.getpid():
            self._thread.join()
        if not self._made:
            self._run()
        return self._made[0]


__all__ = ["get_num_threads", "set_num_threads"]


def set_num_threads(n: int) -> None:
    """Have ``n`` threads run large loops of compiled programs; 1, as at first, has each call run on its own thread.

    A loop over arrays is cut into parts where its steps are independent and it takes longer than some tens of
    microseconds. Results do not depend on ``n``, to the last bit. If several threads call programs at a time, one
    call has the workers, and the others run alone. ``tape.ensemble`` makes ``n`` threads, if that is more than one.
    A process that was forked has one thread, until it asks for more. Raises RuntimeError for what is no positive
    int, as PyTorch does.

    >>> tape.set_num_threads(2)
    >>> tape.get_num_threads()
    2
    >>> tape.set_num_threads(1)
    """
    if isinstance(n, bool) or not hasattr(type(n), "__index__"):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    count = operator.index(n)
    if count < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    WORKERS.use(count)


def get_num_threads() -> int:
    """Return how many threads run large loops of compiled programs.

    >>> tape.get_num_threads()
    1
    """
    return WORKERS.wanted
