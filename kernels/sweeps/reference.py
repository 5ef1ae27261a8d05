"""The reverse sweep in plain Python: the whole of a backward, in the order in which it happens.

:class:`Sweep` goes back over the instructions that lead to the roots. It does not say what a gradient is. Its subclass
:class:`kernels.sweeps.reference_pullbacks.ArraySweep` computes with NumPy's arrays: it runs where native code is off,
and is what native sweeps are tested against. :class:`tape.engine.double_backward.RecordedSweep` computes with
tensors, whose operations are recorded themselves (``create_graph=True``). docs/how_it_works.md walks through the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from kernels.foundation.specs import Spec
from kernels.kinds.reference_tape import Instruction
from kernels.native.structs import PULLS, PYTHON, VIEW
from kernels.sweeps.workspace import Families, MarkedGraph, by_slot, relevant


class Sweep(Families):
    """One reverse sweep of a graph.

    ``observed`` are the slots whose gradient is looked at on the way: by hooks, by ``retain_grad``, as an input of
    ``grad``. ``roots`` are the slots that the sweep starts from. ``asked``: the only slots and leaves whose gradient is
    wanted, None for all. Instructions that do not lead to one of these are passed over.
    """

    def __init__(self, graph: MarkedGraph, observed: set[Any], roots: set[Any], asked: Collection[Any] | None) -> None:
        super().__init__(graph.marked, observed | roots | graph.split)
        self.graph, self.observed = graph, observed
        self.relevant: set[Any] | None = None
        if asked is not None and not graph.ends.keys() <= set(asked):
            self.relevant = relevant(graph, set(asked))

    def run(self, hooked: Collection[int] = (), step: Callable[[Instruction], None] | None = None) -> None:
        """Sweep, last instruction first: all that used a result has contributed before the result's turn comes.

        ``hooked`` are leaves with hooks, by id: each is served behind the last instruction that contributes to it.
        ``step`` runs an instruction in place of :meth:`step`.
        """
        leading, step = self.relevant, step or self.step
        complete = by_slot(self.graph, leading, hooked) if hooked else {}
        for instruction in self.graph.marked:
            if leading is None or instruction.slot in leading:
                step(instruction)
                for leaf in complete.get(instruction.slot, ()) if complete else ():
                    if leaf in self.buffers:
                        self.serve(leaf)

    def step(self, instruction: Instruction) -> None:
        """Pass the gradient of one result on to the operands that it was computed from."""
        slot, kind = instruction.slot, instruction.form.kind
        if slot in self.observed and slot in self.buffers:
            self.observe(instruction)
        if kind == PULLS:
            gradient = self.buffers.pop(slot, None)
            if gradient is not None:
                self.pull(instruction, gradient)
        elif kind == PYTHON:  # it may have further results, which something has reached
            self.call(instruction, self.buffers.pop(slot, None))
        else:
            self._pass_through(instruction)

    def _pass_through(self, instruction: Instruction) -> None:
        """Go back through a view or a write, whose gradient is a part of a buffer that others have theirs in."""
        slot = instruction.slot
        apart = slot not in self.homes or slot in self.kept  # it has a buffer of its own
        home = slot if apart else self.home(slot)[0]
        if instruction.form.kind != VIEW and home in self.buffers:
            self.unwrite(instruction, home)
        if apart and slot in self.buffers:
            gradient = self.buffers.pop(slot)
            if instruction.operands[0] is not None:
                self.fold(instruction, gradient)

    def wants(self, operand: Any) -> bool:
        """Whether an operand leads to a gradient that is asked for."""
        return operand is not None and (self.relevant is None or operand in self.relevant)

    def works(self, instruction: Instruction) -> bool:
        """Whether an operand's gradient is wanted; if only the result's is, hooks around the pullback do not run."""
        return any(map(self.wants, instruction.operands))

    # What depends on the kind of values. A buffer is the gradient of a whole family, as bytes at an offset.

    def add(self, key: Any, offset: int, spec: Spec, value: Any) -> None:
        """Add to the part of a buffer that belongs to a tensor of this spec; -0.0 in the value contributes nothing."""
        raise NotImplementedError

    def pull(self, instruction: Instruction, gradient: Any) -> None:
        """Run the pullbacks of an instruction on its result's gradient; add what they return to the operands'."""
        raise NotImplementedError

    def call(self, instruction: Instruction, gradient: Any) -> None:
        """Do the same by an object that the instruction saved: user code. ``gradient`` may be None."""
        raise NotImplementedError

    def unwrite(self, instruction: Instruction, home: Any) -> None:
        """Give the gradient where a value was written to that value, and clear it there unless the write added."""
        raise NotImplementedError

    def fold(self, instruction: Instruction, gradient: Any) -> None:
        """Add a buffer that was kept apart to the one above it."""
        raise NotImplementedError

    def observe(self, instruction: Instruction) -> None:
        """Show the gradient of a result, which is complete, to its hooks, and keep it if it is asked for."""
        raise NotImplementedError

    def serve(self, leaf: Any) -> None:
        """Hand the gradient of a leaf, which is complete, to the leaf's hooks."""
        raise NotImplementedError
