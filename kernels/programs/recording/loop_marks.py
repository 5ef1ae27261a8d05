"""Where a recorded loop's bodies stand among the steps of a program."""

from __future__ import annotations

from kernels.kinds.loop import LoopAgain, LoopBegin, LoopEnd
from kernels.programs.recording.program_words import Steps


def bodies_of(steps: Steps, begin: int) -> list[tuple[int, int]]:
    """Return the first step of each body of the loop that begins at a step, and that which ends it."""
    starts, words, kinds = steps.starts, steps.words, steps.kinds
    bodies, first, depth, at = [], begin + 1, 0, begin + 1
    while not (depth == 0 and isinstance(kinds[words[starts[at]]].op, LoopEnd)):
        op = kinds[words[starts[at]]].op
        depth += isinstance(op, LoopBegin) - isinstance(op, LoopEnd)
        if depth == 0 and isinstance(op, LoopAgain):
            bodies.append((first, at))
            first = at + 1
        at += 1
    return bodies
