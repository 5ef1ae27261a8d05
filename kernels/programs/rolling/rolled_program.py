"""A program as the compiler sees it: values, instructions without views, and loops that stand for repeats."""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernels.arrays.specs import Spec
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form
from kernels.records.op import Op

Array = np.ndarray[Any, Any]

SMALL = 8
"""Elements of an array up to which each is a number of its own, in a register, where the others stand in memory."""


class Index(NamedTuple):
    """An integer that depends on the steps of loops.

    It is ``constant``, plus a multiple of the step of each loop, plus what a table has at the steps of its loops.
    """

    constant: int
    terms: tuple[tuple[int, int], ...] = ()
    """Numbers of loops, with what one step adds."""
    table: tuple[tuple[int, ...], Array] | None = None
    """Numbers of loops, and int64 integers, an axis a loop."""


def moves_alike(one: Index, other: Index) -> bool:
    """Whether two indices differ by the same number in all steps of all loops."""
    if one.terms != other.terms or (one.table is None) != (other.table is None):
        return False
    if one.table is None or other.table is None:
        return True
    return one.table[0] == other.table[0] and np.array_equal(one.table[1], other.table[1])


class Numbers(NamedTuple):
    """A Python number that changes with the steps of loops: float64, an axis a loop, outermost first."""

    loops: tuple[int, ...]
    table: Array


class Ref(NamedTuple):
    """Elements of a value: its memory, at ``offset`` bytes, in the pattern of ``spec``.

    ``at`` are the steps of the loops around the value that are not around the reader, outermost first: which of the
    values that were made there. ``wanted``: the gradient of what is read flows to the same place in the gradient of the
    value.
    """

    value: int
    offset: Index
    spec: Spec
    wanted: bool
    at: tuple[Index, ...] = ()


Operand: TypeAlias = Ref | float | Numbers


@dataclass(slots=True, eq=False)
class Value:
    """Memory of the program in the pattern of ``spec``: an argument, a constant, a result or what a loop carries."""

    spec: Spec
    argument: int = -1
    """Its place among the arguments; -1 for others."""
    constant: Array | None = None
    loop: int = -1
    """The innermost loop that it is made in; -1 outside of loops."""
    written: bool = False
    """Whether a write changes it."""
    differentiable: bool = False


@dataclass(slots=True, eq=False)
class Instruction:
    """One operation; ``form`` is None where no gradient was recorded.

    Of a write, ``target`` is the part that is written, and the operands are the values alone; there is no result.
    """

    op: Op
    params: tuple[Any, ...]
    form: Form | None
    operands: tuple[Operand, ...]
    result: int
    target: Ref | None = None
    line: int = -1
    """The step of the recorded program that it stands for: the first of many in a loop."""
    extras: tuple[tuple[tuple[Any, ...], Spec], ...] = ()
    """The steps behind it for its results that have no gradient: their parameters and what they give."""


class Phi(NamedTuple):
    """What a loop carries: ``value`` is ``initial`` in its first step, then what ``update`` was in the step before."""

    value: int
    initial: Operand
    update: Ref


class Ends(NamedTuple):
    """How a loop ends that was recorded as one: after ``limit`` steps, if not None, which may be a value.

    If it is ``counted`` at no other time; if not where a guard in it misses, that step then having done nothing.
    """

    limit: Operand | None
    counted: bool


@dataclass(slots=True, eq=False)
class Loop:
    """``count`` steps of ``body``; ``number`` is what indices know it by.

    With ``ends`` there are at most so many steps. An index of what such a loop carries, behind it, that moves with the
    loop itself stands for its end.
    """

    number: int
    count: int
    parent: int
    """The number of the loop around it; -1 for none."""
    phis: list[Phi] = field(default_factory=list)
    body: list[Instruction | Loop] = field(default_factory=list)
    ends: Ends | None = None
    guards: int = 0
    """How many guards of the recorded program one of its steps stands for; of a recorded loop they have no numbers."""


@dataclass(slots=True, eq=False)
class RolledProgram:
    """The whole program: ``values`` by number; ``loops`` by number."""

    values: list[Value]
    body: list[Instruction | Loop]
    loops: list[Loop]
    arguments: list[int]
    outputs: list[Ref]
    guards: list[int] = field(default_factory=list)
    """The steps of the recorded program that are guards, in order."""
    conditional: frozenset[int] = frozenset()
    """Those that some ways through a loop's iterations do, but not all, where all are run."""

    @property
    def length(self) -> int:
        """How many instructions it has, those of a loop counted once."""
        return sum(len(body) for body in [self.body, *[loop.body for loop in self.loops]])

    def loops_around(self, value: int) -> list[int]:
        """Return the numbers of the loops that a value is made in, outermost first."""
        around: list[int] = []
        loop = self.values[value].loop
        while loop >= 0:
            around.insert(0, loop)
            loop = self.loops[loop].parent
        return around


class Uncompiled(Exception):  # noqa: N818 (no error: the interpreter serves)
    """A program has something that the compiler does not know; the message says what, at which step."""

    def __init__(self, reason: str, step: int = -1) -> None:
        super().__init__(reason)
        self.reason, self.step = reason, step
