"""Tiers of a program: rows at once, machine code when the compiler is done."""

from __future__ import annotations

import functools
import operator
import os
import queue
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from kernels.compiler.compiled_code import CompiledCode
from kernels.foundation.tables import Lock
from kernels.language import jit
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.machine_code.tiers import (
    Uncompiled,
    Unprofitable,
    calls_in,
    calls_meanwhile,
    calls_until_compiled,
    compiled_machine,
    reason_of,
)
from kernels.native.threads import WORKERS
from kernels.programs.machine import Machine, plan
from kernels.programs.program import ProgramError, Recipe
from tape.errors import CompileWarning
from tape.tensors.bytecode import stack_level
from tape.tensors.tensor import Tensor

Outcome = CompiledMachine | Uncompiled
_FAULTS = ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError
"""What a fault of the compiler raises; the interpreter then serves, and a warning tells of it."""


class Failed(Uncompiled):
    """The compiler has a fault."""


def machine_code(
    recipe: Recipe, *, always: bool, expected: Callable[[float], None] | None = None, **options: Any
) -> Outcome:
    """Return a machine that runs machine code, or the reason that the interpreter has to run the program.

    Without ``always`` that may be that it is as fast. ``options``, and what ``expected`` is told, are those of
    :func:`kernels.machine_code.tiers.compiled_machine`.
    """
    try:
        return compiled_machine(recipe, always=always, expected=expected, **options)
    except Uncompiled as refused:
        return type(refused)(refused.reason, refused.step)  # without its frames, which refer to the program
    except _FAULTS as error:
        return Failed(f"the compiler failed: {error!r}")


def warn_of(failed: Failed) -> None:
    """Warn the caller of a function of this package of a fault of the compiler."""
    message = f"a program is interpreted, since {failed.reason}; please report it"
    warnings.warn(message, CompileWarning, stacklevel=stack_level())


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


AnyMachine = Machine | CompiledMachine
"""What runs a program: the interpreter, or machine code."""


class TieredProgram:
    """What has a recipe, and machines for its calls, forward and with its reverse."""

    _recipe: Recipe
    _exactly = False
    """Whether arguments are floats and C-contiguous arrays only, on the native way."""
    _mode = "default"
    """When it is compiled: one of :data:`kernels.machine_code.tiers.MODES`."""
    _budget: int | None = None
    """Bytes of memory that it may use; None if that is not limited."""

    def _begin_tiers(self) -> None:
        self._first: dict[bool, AnyMachine] = {}
        self._machines: dict[bool, list[AnyMachine]] = {False: [], True: []}
        self._due: dict[bool, int] = {}
        """After how many calls it is compiled, forward and with its reverse; nothing where that has been tried."""
        self._beside: dict[bool, BackgroundCompile] = {}
        """Machine code that is being made; after so many calls it runs, or they wait for it."""
        self._interpreted: dict[bool, Uncompiled] = {}
        """Why it is not compiled."""
        self._apart: dict[bool, CompiledMachine | None] = {}
        """Machine code that calls of it do not use."""
        self._lock = Lock()

    def _started(self, arguments: Sequence[Any], *, reverse: bool) -> Any:
        machine = self._machine(reverse=reverse)
        for place, x in zip(machine.inputs, arguments, strict=True):
            place[...] = x._value if isinstance(x, Tensor) else x
        return machine

    def _machine(self, *, reverse: bool) -> AnyMachine:
        try:
            return self._machines[reverse].pop()
        except IndexError:
            with self._lock:
                first = self._first.get(reverse)
                if first is None:
                    return self._made(reverse=reverse)
            return first.copy()

    def _made(self, *, reverse: bool) -> AnyMachine:
        compiles = self._mode == "max" or self._budget is not None or not jit.makes_native_code()
        if compiles and self._compile(reverse=reverse):
            return self._machines[reverse].pop()
        machine = Machine(plan(self._recipe, reverse=reverse), exactly=self._exactly)
        self._check_budget(machine)
        if self._mode == "default":
            self._due[reverse] = calls_until_compiled(machine)
        self._first[reverse] = machine
        return machine

    def _count(self, *, reverse: bool) -> None:
        """Count a call of the interpreter; compile beside the calls when that pays, and take over some calls later.

        How many does not depend on when the code is ready: results would, on how busy the machine is.
        """
        left = self._due.get(reverse, 1)
        if left > 1:
            self._due[reverse] = left - 1
            return
        with self._lock:
            first = self._first.get(reverse)
            if not isinstance(first, Machine):
                self._due.pop(reverse, None)
                return
            if self._due.get(reverse, 2) > 1:  # another thread was here
                return
            more = self._calls_beside(first, reverse=reverse)
            if more > 0:
                self._due[reverse] = more
            else:
                self._compile(reverse=reverse, always=False)

    def _calls_beside(self, machine: Machine, *, reverse: bool) -> int:
        """Return how many more calls the interpreter does beside the compiler, which is started if need be."""
        beside = self._beside.get(reverse)
        if beside is not None:
            return beside.more_calls(functools.partial(calls_in, machine=machine))
        calls = calls_meanwhile(machine)
        self._beside[reverse] = BackgroundCompile(
            functools.partial(self._made_code, reverse=reverse, always=False), calls
        )
        return calls

    def _compile(self, *, reverse: bool, always: bool = True) -> bool:
        machine = self._machine_code(reverse=reverse, always=always)
        if machine is not None:
            self._first[reverse] = machine
            self._machines[reverse][:] = [machine]
        self._due.pop(reverse, None)  # last: a process that is forked, or a call that is interrupted, tries again
        return machine is not None

    def _machine_code(self, *, reverse: bool, always: bool = True) -> CompiledMachine | None:
        known = self._interpreted.get(reverse)
        if known is not None and not (always and isinstance(known, Unprofitable)):
            return None
        beside = self._beside.pop(reverse, None)
        machine = beside.result() if beside is not None else self._made_code(reverse=reverse, always=always)
        if always and isinstance(machine, Unprofitable):
            machine = self._made_code(reverse=reverse, always=True)
        if isinstance(machine, CompiledMachine):
            self._check_budget(machine)
            self._interpreted.pop(reverse, None)
            return machine
        if isinstance(machine, Failed):
            warn_of(machine)
        self._interpreted[reverse] = machine
        return None

    def _made_code(
        self, expected: Callable[[float], None] | None = None, *, reverse: bool, always: bool
    ) -> CompiledMachine | Uncompiled:
        options: dict[str, Any] = {
            "reverse": reverse, "exactly": self._exactly, "always": always, "expected": expected,
        }  # fmt: skip
        machine = machine_code(self._recipe, memory=self._budget, **options)
        if self._budget is not None and isinstance(machine, CompiledMachine) and self._budget < machine.size:
            within = 2 * self._budget - machine.size  # leaves room for what stands beside the workspace
            if within > 0:
                return machine_code(self._recipe, memory=within, **options)
        return machine

    def _code(self, *, reverse: bool) -> CompiledCode:
        machine: AnyMachine | None
        with self._lock:
            if self._mode == "eager":
                if reverse not in self._apart:
                    self._apart[reverse] = self._machine_code(reverse=reverse)
                machine = self._apart[reverse]
            else:
                if not isinstance(self._first.get(reverse), CompiledMachine):
                    self._compile(reverse=reverse)
                machine = self._first.get(reverse)
        if not isinstance(machine, CompiledMachine):
            raise ProgramError(f"no machine code: {reason_of(self._recipe, self._interpreted[reverse])}")
        return machine.code

    def _check_budget(self, machine: AnyMachine) -> None:
        if self._budget is not None and machine.size > self._budget:
            kind = "machine code" if isinstance(machine, CompiledMachine) else "the interpreter"
            raise MemoryError(
                f"{kind} of this program needs {machine.size:,} bytes of memory, of which compile(..., memory=...) "
                f"allows {self._budget:,}"
            )
