"""Guards of programs."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.arrays.specs import Spec
from kernels.programs.recording.program import ProgramError
from tape.kinds.kind import Kind, Operand, Planned
from tape.tensors.tensor import as_array


class GuardDiffersError(ProgramError):
    """Another value left for Python than when the program was recorded."""


class GuardKind(Kind):
    """A program that is run operation by operation ends where a guard misses."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> None:
        """Compare with what was expected; ProgramError where it differs."""
        del spec
        value, expected = (as_array(o.value).tobytes() for o in operands)
        if value != expected:
            raise GuardDiffersError(
                f"at {step.params[0]} another value left for Python than when the program was recorded"
            )
