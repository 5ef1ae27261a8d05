"""When a program is compiled: it runs on rows of words at first, and as machine code once that pays.

The decision counts calls and elements, never time, so that results do not depend on how busy a machine is: a compiled
program may round sums otherwise than the interpreter. So machine code that is made beside the calls runs from a certain
one on, even if it is ready earlier.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable

from kernels.programs.calling.compiled_machine import CompiledMachine, GuardPlace
from kernels.programs.compiler.compiled_code import calls_of
from kernels.programs.compiler.compiling import Compilation
from kernels.programs.fusing.statements import INTERPRETER, PYTHON
from kernels.programs.machine import Machine, plan
from kernels.programs.program import Recipe
from kernels.programs.rolled_program import Uncompiled

MODES = ("eager", "default", "max")
"""``eager``: never compiled; ``max``: compiled before the first replay; ``default``: when it has paid."""
MEANWHILE = 2
"""Times the calls until a program is compiled that go on while a thread compiles it, at least."""
_ROW, _ELEMENT = 12e-9, 0.4e-9
"""Seconds of a row of the interpreter, and of an element that it computes, about."""
_GAIN_ROW, _GAIN_ELEMENT = 60e-9, 0.7e-9
"""Seconds that machine code gains for a row, and for an element, at most."""
_ITERATIONS = 20
"""Of a recorded loop, whose number is not known, about."""
_CALL = 10e-6
"""Seconds that a call of the interpreter takes from within machine code, and its pullback, about."""
_ROLL_ROW = 15e-6
"""Seconds that it takes to find out whether a row repeats, about."""
_COMPILE, _COMPILE_ROW, _MOST_ROWS = 30e-3, 150e-6, 2_000
"""Seconds that compiling takes at least, and for a row, of so many: what repeats is compiled once."""


def calls_until_compiled(machine: Machine) -> int:
    """Return after how many calls the interpreter has taken as long as compiling would, about."""
    return max(calls_in(_COMPILE + _COMPILE_ROW * min(_rows(machine), _MOST_ROWS), machine), 3)


def calls_meanwhile(machine: Machine) -> int:
    """Return how many calls go on beside the compiler until it says how long it takes, about."""
    return MEANWHILE * calls_until_compiled(machine) + calls_in(_ROLL_ROW * _rows(machine), machine)


def calls_in(seconds: float, machine: Machine) -> int:
    """Return how many calls the interpreter does in a time, about."""
    times = 1 if machine.shared is None else _ITERATIONS
    rows = times * _rows(machine)
    elements = times * (machine.forward.work + machine.reverse.work)
    return int(seconds / (_ROW * rows + _ELEMENT * elements + 1e-6))


def _rows(machine: Machine) -> int:
    return len(machine.forward.words) + len(machine.reverse.words)


class Unprofitable(Uncompiled):
    """Machine code of a program would spend most of its time in calls of the interpreter."""


def compiled_machine(
    recipe: Recipe,
    *,
    reverse: bool,
    exactly: bool,
    always: bool,
    memory: int | None = None,
    expected: Callable[[float], None] | None = None,
) -> CompiledMachine:
    """Return a compiled program; Uncompiled, which says why, where the interpreter has to run it.

    It has to where that is as fast, unless programs are compiled ``always``. With ``memory`` the workspace has so many
    bytes, if that can be. ``expected`` is told how many seconds the next stage takes, about, as soon as that is known.
    """
    compilation = Compilation(recipe, reverse=reverse, memory=memory, expected=expected)
    if not always:
        _check_profit(compilation)
    if expected is not None:
        expected(compilation.seconds())
    places = [
        GuardPlace(str(recipe.steps[step].params[0]), at, size)
        for step, (at, size) in zip(compilation.program.guards, compilation.guard_places(), strict=True)
    ]
    machine = CompiledMachine(
        compilation.code(),
        exactly=exactly,
        guards=places,
        interpreter=lambda: Machine(plan(recipe, reverse=reverse), exactly=exactly),
    )
    if os.environ.get("TAPE_LOOPS"):
        print(compilation.listing(), file=sys.stderr)  # noqa: T201 (it was asked for)
    return machine


def _check_profit(compilation: Compilation) -> None:
    """Raise Unprofitable where calls of the interpreter cost more than the loops around them gain."""
    calls = [c for c in calls_of(compilation.program, compilation.fusion) if c.by in (INTERPRETER, PYTHON)]
    cost = sum(call.times for call in calls) * _CALL
    if cost > _GAIN_ROW * compilation.operations + _GAIN_ELEMENT * compilation.elements:
        name = Counter({call.name: call.times for call in calls}).most_common(1)[0][0]
        raise Unprofitable(f"calls of {name} take most of the time", next(c.step for c in calls if c.name == name))


def loop_program(recipe: Recipe, *, reverse: bool) -> str:
    """Return as text the loops that a program is compiled as; Uncompiled, which says why, where it cannot be."""
    return Compilation(recipe, reverse=reverse).listing()


def reason_of(recipe: Recipe, refused: Uncompiled) -> str:
    """Return why a program is not compiled, and at which line, if lines are kept."""
    if recipe.lines is None or not 0 <= refused.step < len(recipe.steps):
        return refused.reason
    number = int(recipe.lines.of_steps(recipe.steps)[refused.step])
    return f"{refused.reason}, at {recipe.lines.text(number)}" if number >= 0 else refused.reason


__all__ = [
    "MODES",
    "Uncompiled",
    "Unprofitable",
    "calls_in",
    "calls_meanwhile",
    "calls_until_compiled",
    "compiled_machine",
    "loop_program",
    "reason_of",
]
