"""What a program shows of itself: a graph, the memory that it needs, the times of its calls; and to notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.programs.calling.compiled_machine import CompiledMachine
from kernels.programs.calling.tiers import Uncompiled, loop_program, reason_of
from kernels.programs.interpreter.machine import GuardMissed
from kernels.programs.memory_use import MemoryUse, compiled_memory_use, memory_use
from kernels.programs.recording.program import ProgramError, Recipe
from tape.foundation.dot import Graph, installed
from tape.programs import drawing, profiling
from tape.tensors.pytrees import Structure


class Seen:
    """The part of a program that shows what it does."""

    _first: dict[bool, Any]
    _recipe: Recipe
    _template: Structure
    _unfinished: str
    _check_scalar: Callable[..., None]
    _checked: Callable[..., tuple[Any, bool]]
    _replayed: Callable[..., list[Any]]
    _replayed_back: Callable[..., tuple[list[Any], list[Any]]]

    def graph(self, *, reverse: bool = True) -> Graph:
        r"""Return the program as a graph, whose text is Graphviz's DOT: values, operations and, below, the pullbacks.

        Operations that repeat, as those of a loop, are drawn once, in a frame with their count; a dashed edge leads to
        the next time. ``reverse=False`` leaves out the pullbacks, which are there if the result is one floating number.

        >>> import tape
        >>> print(tape.record(lambda x: x.exp(), 1.0).graph(reverse=False))  # doctest: +ELLIPSIS
        digraph {
        ...
            s0 [label="exp\nfloat64[]"];
        ...
          v0 -> s0;
          s0 -> o0;
        }
        """
        self._check_finished()
        return drawing.drawn(self._recipe, reverse=reverse)

    def memory(self, *, reverse: bool = False) -> MemoryUse:
        """Return the bytes that a call needs, or with ``reverse`` a call of :meth:`value_and_grad`, before it runs.

        ``print`` shows them as tables: by kind (arguments, results, values, gradient buffers), how many of these are
        shared, and what operations made, by operation, by what repeats and by line, if lines are kept. Of a program
        that has been compiled to machine code, they are the bytes of its workspace.

        >>> import numpy as np
        >>> import tape
        >>> program = tape.record(lambda x: (x * x).sum(), np.ones(1000))
        >>> use = program.memory(reverse=True)
        >>> use.kinds["arguments"].bytes, use.kinds["gradients"].count, use.total
        (8000, 3, 24064)
        """
        self._check_finished()
        machine = self._first.get(reverse)
        if isinstance(machine, CompiledMachine):
            return compiled_memory_use(machine.code, reverse=reverse)
        return memory_use(self._recipe, reverse=reverse)

    def loops(self, *, reverse: bool = False) -> str:
        """Return as text the loops that the program is compiled as; with ``reverse`` those of its value and gradient.

        What repeats is printed once. On top stands the memory: arguments, results, gradients, constants and workspace.
        Names in the text are ``v`` for values, ``p`` for what a loop carries, ``s`` for sums, ``g_v`` for gradients.
        ProgramError, naming the reason, for a program that the interpreter has to run.

        >>> import numpy as np
        >>> import tape
        >>> print(tape.record(lambda x: (x * x).sum(), np.ones(1000)).loops())
        # a0: argument 0, float64[1000]
        # r1: result 0, float64[]
        def program(a0, r1):
            s3 = -0.0
            for i1 in range(1000):
                v1 = a0[i1]
                v2 = (v1 * v1)
                s3 = accumulators.added(s3, v2)
            r1[0] = s3
            return -1
        """
        self._check_finished()
        try:
            return loop_program(self._recipe, reverse=reverse)
        except Uncompiled as refused:
            raise ProgramError(f"the interpreter runs the program: {reason_of(self._recipe, refused)}") from None

    def profile(self, *args: Any, reverse: bool = True, **kwargs: Any) -> profiling.Profile:
        """Time each call of the program on these arguments, which are not changed; ``print`` shows tables.

        They have calls, bytes and times by operation, by what repeats and by line, if lines are kept;
        ``profile(...).speedscope(path)`` writes them for https://www.speedscope.app. The program runs some times, as a
        whole and call by call. ProgramError for a program that returns no single floating number, unless ``reverse`` is
        False, and for arguments that it cannot be called on.

        >>> import numpy as np
        >>> import tape
        >>> program = tape.record(lambda x: (x * x).sum(), np.ones(1000))
        >>> profile = program.profile(np.ones(1000))
        >>> sorted((entry.name, entry.calls) for entry in profile.groups["operation"])
        [('MulBackward0', 2), ('SumBackward0', 3), ('multiply', 1), ('sum', 2)]
        """
        self._check_finished()
        if reverse:
            self._check_scalar(has_aux=self._template.kind is tuple)
        arguments, _ = self._checked(args, kwargs, writes=False)
        try:
            values, gradients = self._replayed_back(arguments) if reverse else (self._replayed(arguments), [])
        except GuardMissed as miss:
            raise ProgramError(f"profile: on these arguments guard {miss.number} stops the program") from None
        return profiling.profiled(self._recipe, arguments, [*values, *gradients], reverse=reverse)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how much it computes, and the beginning of its listing."""
        return drawing.shown(self._recipe)

    def _repr_svg_(self) -> str | None:
        """Return the graph as a drawing; None where Graphviz is missing, or the graph is large."""
        return self.graph()._repr_svg_() if not self._unfinished and installed() else None

    def _check_finished(self) -> None:
        if self._unfinished:
            raise ProgramError(self._unfinished)
