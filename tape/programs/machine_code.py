"""Machine code of a program, or why there is none; made at once, or by a thread beside the calls."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable

from kernels.programs.calling.compiled_machine import CompiledMachine
from kernels.programs.calling.tiers import compiled_machine
from kernels.programs.recording.program import Recipe
from kernels.programs.rolling.rolled_program import Uncompiled
from tape.errors import CompileWarning
from tape.foundation.call_sites import stack_level

Outcome = CompiledMachine | Uncompiled
_FAULTS = ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError
"""What a fault of the compiler raises; the interpreter then serves, and a warning tells of it."""


class Failed(Uncompiled):
    """The compiler has a fault."""


def machine_code(
    recipe: Recipe, *, reverse: bool, exactly: bool, always: bool, memory: int | None = None
) -> CompiledMachine | Uncompiled:
    """Return a machine that runs machine code, or the reason that the interpreter has to run the program.

    Without ``always`` that may be that it is as fast. ``memory`` are the bytes that its workspace should not exceed.
    """
    try:
        return compiled_machine(recipe, reverse=reverse, exactly=exactly, always=always, memory=memory)
    except Uncompiled as refused:
        return type(refused)(refused.reason, refused.step)  # without its frames, which refer to the program
    except _FAULTS as error:
        return Failed(f"the compiler failed: {error!r}")


def warn_of(failed: Failed) -> None:
    """Warn the caller of a function of this package of a fault of the compiler."""
    message = f"a program is interpreted, since {failed.reason}; please report it"
    warnings.warn(message, CompileWarning, stacklevel=stack_level())


class Beside:
    """What a thread of its own makes; who asks for it waits. A process that was forked meanwhile makes it itself."""

    def __init__(self, make: Callable[[], Outcome]) -> None:
        self._make, self._made = make, list[Outcome]()
        self._process, self._thread = os.getpid(), threading.Thread(target=self._run, name="tape: compiling")
        try:
            self._thread.start()
        except RuntimeError:  # there are no threads here, or no more
            self._run()
            self._process = -1

    def _run(self) -> None:
        self._made.append(self._make())

    def result(self) -> Outcome:
        """Return what was made."""
        if self._process == os.getpid():
            self._thread.join()
        if not self._made:
            self._run()
        return self._made[0]
