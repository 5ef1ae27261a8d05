"""When a program is compiled, and the callable that stands for it."""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kernels.compiler.compiled_code import calls_of
from kernels.compiler.compiling import Compilation
from kernels.compiler.statements import INTERPRETER, PYTHON
from kernels.language import jit
from kernels.machine_code.call_structs import CallableObject
from kernels.machine_code.compiled_machine import CompiledMachine, GuardPlace
from kernels.native import c_api
from kernels.native.c_api import made, members
from kernels.native.memory import put
from kernels.programs.machine import Machine, plan
from kernels.programs.program import Recipe, native
from kernels.programs.rolled_program import Uncompiled

# When a program is compiled: it runs on rows of words at first, and as machine code once that pays.
#
# The decision counts calls and elements, never time, so that results do not depend on how busy a machine is: a
# compiled program may round sums otherwise than the interpreter. So machine code that is made beside the calls runs
# from a certain one on, even if it is ready earlier.

MODES = ("eager", "default", "max")
"""``eager``: never compiled; ``max``: compiled before the first replay; ``default``: when it has paid."""
_GAIN_ROW, _GAIN_ELEMENT = 60e-9, 0.7e-9  # seconds that machine code gains for a row, and for an element, at most
_CALL = 10e-6  # seconds that a call of the interpreter takes from within machine code, and its pullback, about


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
    cotangents: Mapping[int, int] | None = None,
) -> CompiledMachine:
    """Return a compiled program; Uncompiled, which says why, where the interpreter has to run it.

    It has to where that is as fast, unless programs are compiled ``always``. With ``memory`` the workspace has so many
    bytes, if that can be. ``expected`` is told how many seconds the next stage takes, about, as soon as that is known.
    With ``cotangents`` it is of a :func:`pullback_recipe`, and marks what no gradient reached.
    """
    compilation = Compilation(recipe, reverse=reverse, memory=memory, expected=expected, cotangents=cotangents)
    if not always:
        calls = [c for c in calls_of(compilation.program, compilation.fusion) if c.by in (INTERPRETER, PYTHON)]
        cost = sum(call.times for call in calls) * _CALL
        if cost > _GAIN_ROW * compilation.operations + _GAIN_ELEMENT * compilation.elements:
            name = Counter({call.name: call.times for call in calls}).most_common(1)[0][0]
            raise Unprofitable(f"calls of {name} take most of the time", next(c.step for c in calls if c.name == name))
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
        interpreter=lambda: Machine(
            plan(recipe, reverse=reverse, cotangents=cotangents), exactly=exactly, marks=cotangents is not None
        ),
    )
    if os.environ.get("TAPE_LOOPS"):
        print(compilation.listing(), file=sys.stderr)  # noqa: T201 (it was asked for)
    return machine


def loop_program(recipe: Recipe, *, reverse: bool) -> str:
    """Return as text the loops that a program is compiled as; Uncompiled, which says why, where it cannot be."""
    return Compilation(recipe, reverse=reverse).listing()


def reason_of(recipe: Recipe, refused: Uncompiled) -> str:
    """Return why a program is not compiled, and at which line, if lines are kept."""
    if recipe.lines is None or not 0 <= refused.step < len(recipe.steps):
        return refused.reason
    number = int(recipe.lines.of_steps(recipe.steps)[refused.step])
    return f"{refused.reason}, at {recipe.lines.text(number)}" if number >= 0 else refused.reason


Outcome = CompiledMachine | Uncompiled


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


__all__ = ["MODES", "BackgroundCompile", "Uncompiled", "Unprofitable", "compiled_machine", "loop_program", "reason_of"]

# The native type of objects whose calls programs answer without Python, as long as a plan takes them.

Class = TypeVar("Class", bound=type)

_FLAGS = 168  # where a type has its flags, in bytes


class _PlainCallable:
    """What stands for the type where objects cannot be read natively."""

    _slow: Callable[..., Any]
    _plans: tuple[Any, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._slow(self, *args, **kwargs)


def _made() -> Any:
    code = jit.load_module("machine_code.direct_calls_native")
    rows = {
        "_slow": (c_api.OBJECT, CallableObject.slow, 0),
        "_plans": (c_api.OBJECT, CallableObject.plans, 0),
        "__vectorcalloffset__": (c_api.SIZE, CallableObject.call, c_api.READONLY),
    }
    slots = {
        c_api.MEMBERS: members(rows),
        c_api.CALL: ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value or 0,
        c_api.TRAVERSE: code.traverse,
        c_api.CLEAR: code.clear,
        c_api.DEALLOC: code.dealloc,
    }
    flags = c_api.BASETYPE | c_api.COLLECTED | c_api.VECTORCALL
    return made(f"{__name__}.DirectlyCalled", object, slots, CallableObject.SIZE, flags)


if TYPE_CHECKING:
    DirectlyCalled = _PlainCallable
else:
    DirectlyCalled = _made() if native() else _PlainCallable


def called_at_once(kind: Class) -> Class:
    """Let calls of a class's objects come without a tuple of their arguments; its decorator, beside DirectlyCalled.

    From Python 3.12 on classes inherit that; before, they only do if nobody can change their ``__call__``.
    """
    flags = ctypes.c_ulong.from_address(id(kind) + _FLAGS) if native() and sys.version_info < (3, 12) else None
    if flags is not None and flags.value == kind.__flags__ and "__call__" not in vars(kind):
        flags.value |= c_api.VECTORCALL
    return kind


def begin(thing: DirectlyCalled, slow: Callable[..., Any]) -> None:
    """Set an object up: ``slow(thing, ...)`` makes the calls that no plan takes."""
    thing._slow, thing._plans = slow, ()  # noqa: SLF001 (this is its constructor)
    if DirectlyCalled is not _PlainCallable:
        entry = jit.load_module("machine_code.direct_calls_native").vectorcall.address
        put(id(thing), CallableObject.call // 8, entry)
