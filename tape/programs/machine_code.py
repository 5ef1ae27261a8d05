"""Machine code of a program, or why there is none."""

from __future__ import annotations

import warnings

from kernels.programs.calling.compiled_machine import CompiledMachine
from kernels.programs.calling.tiers import compiled_machine
from kernels.programs.recording.program import Recipe
from kernels.programs.rolling.rolled_program import Uncompiled
from tape.errors import CompileWarning
from tape.foundation.call_sites import stack_level

_FAULTS = ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError
"""What a fault of the compiler raises; the interpreter then serves, and a warning tells of it."""


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
        message = f"a program is interpreted, since the compiler failed; please report it: {error!r}"
        warnings.warn(message, CompileWarning, stacklevel=stack_level())
        return Uncompiled(f"the compiler failed: {error!r}")
