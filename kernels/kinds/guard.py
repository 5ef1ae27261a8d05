"""Guards: values that left for Python while a program was recorded; a replay stops where one differs."""

from __future__ import annotations

from typing import ClassVar

from kernels.arrays.specs import dense
from kernels.codegen.tasks import Comparison, Place, node_of
from kernels.foundation.data_classes import dataclass
from kernels.kinds.program_interface import Lowering, Step
from kernels.records.op import Op
from kernels.records.rule_text import Rule


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
