"""Replays that keep the memory they ran in, so that a sweep runs the program back without running it forward again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.native.memory import where
from kernels.programs.interpreter.machine import Machine, pullback_plan
from kernels.programs.recording.program import Recipe
from kernels.programs.running.exchange import Exchange
from kernels.programs.running.pullback_structs import MOST_RESULTS

Array = np.ndarray[Any, Any]
_MOST = 1 << 16
"""Bytes that a replay keeps: where it needs more, its forward runs again on the way back."""


class KeptReplay:
    """Machines of a program that runs forward now and back in a later sweep, from a copy of their memory.

    Only for what :func:`kept_replay` finds fit for it. ``graded`` are the numbers of the arguments that have a
    gradient, ``with_gradient`` those of the results.
    """

    def __init__(self, machine: Machine, count: int, graded: Sequence[int], with_gradient: Sequence[int]) -> None:
        self.graded, self.with_gradient = graded, with_gradient
        self._count, self._back = count, machine
        self._free: list[tuple[Machine, Exchange]] = []

    def forward(self, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the results of a replay on leaves, then the memory that it leaves, as words; None as :meth:`whole`.

        The last word is 0.
        """
        try:
            free = self._free.pop()
        except IndexError:
            free = self._another()
        machine, exchange = free
        try:
            results = exchange.whole(*values)  # type: ignore[misc]
            if type(results) is int:
                if results:
                    raise machine.missed(results - 1)
                return None
            return results  # type: ignore[no-any-return]
        finally:
            self._free.append(free)

    def _another(self) -> tuple[Machine, Exchange]:
        """Return a machine, and what exchanges its arguments for results and memory."""
        machine = self._back.copy()
        first = machine.start - where(machine.memory)
        memory = machine.memory[first : first + machine.size + 8].view(np.int64)
        rows = (machine.forward.start, len(machine.forward.words), False)
        inputs, outputs = machine.inputs[: self._count], [*machine.outputs, memory]
        return machine, Exchange(inputs, outputs, [], rows, exactly=True)

    def table(self, tensors: Sequence[int], slots: Sequence[int], reached: Sequence[frozenset[int]]) -> Array:
        """Return what a sweep runs the program back by: see kernels/programs/running/pullback_structs.py.

        ``tensors`` are the numbers of the arguments that are operands, ``slots`` how far the slot of each result with a
        gradient is from that of the call, ``reached`` the arguments that each of these depends on.
        """
        back = self._back
        rows = back.reverse
        words = [back.start, back.size, rows.start, len(rows.words), rows.work, len(slots)]
        for slot, cotangent in zip(slots, back.inputs[self._count :], strict=True):
            words += [slot, where(cotangent), cotangent.size, cotangent.itemsize]
        gradients = dict(zip(self.graded, back.gradients, strict=False))
        for i in tensors:
            reaches = sum(1 << k for k, arguments in enumerate(reached) if i in arguments)
            gradient = gradients.get(i)
            words += [0, 0, 0] if gradient is None else [where(gradient), gradient.size, reaches]
        return np.array(words, np.int64)


def kept_replay(recipe: Recipe, graded: Sequence[int]) -> KeptReplay | None:
    """Return it for a program that is small, has results with a gradient, and runs natively throughout."""
    with_gradient = [k for k, o in enumerate(recipe.outputs) if recipe.wants(o)]
    least = sum(node.spec.bytes for node in recipe.nodes if node.base is None and not node.argument)
    if not 0 < len(with_gradient) <= MOST_RESULTS or least > _MOST:
        return None
    machine = Machine(pullback_plan(recipe, results=True), exactly=True, marks=True)
    fits = machine.is_short and machine.size <= _MOST and all(g.flags.c_contiguous for g in machine.gradients)
    return KeptReplay(machine, len(recipe.arguments), graded, with_gradient) if fits else None
