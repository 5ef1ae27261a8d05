"""By what a sweep runs a program back: kernels/programs/interpreter/machine.py lays this out.

What saves them is an instruction that Python runs otherwise. Its last two saved values are the array of these words,
and the memory that the program had after its forward, with one word behind it: not 0 where Python has to act.
"""

from __future__ import annotations

from kernels.compiler.native_types import Struct


class PullbackRun(Struct):
    """The head; behind it a :class:`PulledResult` each that has a gradient, then a :class:`PulledOperand` each."""

    memory: int  # of the machine that runs back
    bytes: int  # of that
    rows: int
    row_count: int
    work: int  # the elements that the rows compute
    results: int  # how many have a gradient


class PulledResult(Struct):
    """A result that has a gradient."""

    slot: int  # less that of the call
    place: int  # where its cotangent goes
    count: int  # elements
    item: int  # bytes of one


class PulledOperand(Struct):
    """An operand."""

    place: int  # where its gradient stands, 0 where it has none
    count: int  # elements
    reaches: int  # the results that depend on it, a bit each


REPLAYED, RESULT = 1, 2
"""In a form's block, in place of the first operand's kernel: a call of a program, one of its results."""
MOST_RESULTS = 62
"""Results that have a gradient, a bit each."""
