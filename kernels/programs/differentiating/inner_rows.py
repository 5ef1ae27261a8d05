"""How many rows the steps of recorded loops have that are within other loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernels.programs.rolling.rolled_program import Loop, RolledProgram


class InnerRows(NamedTuple):
    """Rows of each such loop: at ``least``, and ``of_step`` for each step of loops around it, recorded ones apart.

    Of a loop in blocks these are the steps of one.
    """

    least: int
    of_step: int

    def of(self, program: RolledProgram, blocks: Mapping[int, int]) -> dict[int, int]:
        """Return the rows by the loops' numbers."""
        loops = [loop for loop in program.loops if loop.ends is not None and loop.parent >= 0]
        return {loop.number: max(self.least, self.of_step * _steps(loop, program, blocks)) for loop in loops}


def _steps(loop: Loop, program: RolledProgram, blocks: Mapping[int, int]) -> int:
    """Return how many steps the loops around one have together, recorded ones apart."""
    steps = 1
    while loop.parent >= 0:
        loop = program.loops[loop.parent]
        steps *= blocks.get(loop.number, loop.count) if loop.ends is None else 1
    return steps
