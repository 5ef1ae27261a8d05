"""Loops and guards: parts of a program that are run again, natively, as long as the guards of one of them hold.

``loop_begin p1 p2 ..`` begins one; the ``p`` are its phis, nodes that carry values from one iteration to the next.
Bodies follow, each ended by ``loop_again u1 u2 ..``: the values that the next iteration starts from; then comes
``loop_end``. An iteration is that of the first body whose guards hold; if none does, the loop is over, and nothing of
what was tried has changed a phi.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kernels.arrays.specs import dense, spec_of
from kernels.codegen.tasks import Comparison, Place, node_of
from kernels.foundation.data_classes import dataclass
from kernels.kinds.program_interface import Lowering, Step
from kernels.native.tape_structs import LoopWords
from kernels.records.op import Op
from kernels.records.symbols import Rule

LOOP_STATE = spec_of(np.zeros(LoopWords.SIZE, np.int64))
"""The pattern of a loop's own node: how many iterations there were, and what else it has to know."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopMark(Op):
    """A step that marks where a loop or a body of it begins or ends; its result is the loop's own node."""

    pullback: tuple[Rule | None, ...] = ()
    function: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopBegin(LoopMark):
    """The begin of a loop: parameters are the most iterations, or None, and whether the last operand is their number.

    Then whether they are exactly so many, though no guard ends the last one, and the line.
    """

    inputs: ClassVar[tuple[str, ...]] = ("phis",)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Begin a loop."""
        lowering.loops.begin(step, lowering)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopAgain(LoopMark):
    """The end of a body."""

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Carry on."""
        lowering.loops.again(step, lowering)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopEnd(LoopMark):
    """The end of a loop."""

    def lower(self, step: Step, lowering: Lowering) -> None:
        """End the loop."""
        lowering.loops.end(step)


# Guards: values that left for Python while a program was recorded; a replay stops where one differs.


@dataclass(frozen=True, eq=False, kw_only=True)
class Guard(Op):
    """A value and what it was when the program was recorded, bit for bit; its parameter is the line where it left.

    Its result is the value itself.
    """

    inputs: ClassVar[tuple[str, ...]] = ("x", "expected")
    repeatable: ClassVar[bool] = True

    pullback: tuple[Rule | None, ...] = (None, None)
    function: bool = False

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Compare the bytes of the value, in C order, with those expected."""
        x, expected = map(node_of, step.operands)
        spec = lowering.spec(x)
        if spec.strides != dense(spec.shape, spec.dtype.itemsize):
            x = lowering.cast(x, spec.dtype)
        lowering.tasks.append(Comparison(spec.size * spec.dtype.itemsize, (Place(x), Place(expected))))
