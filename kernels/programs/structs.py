"""The steps of a program as words: a growable block of integers of 64 bits, and tables of what they stand for."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kernels.foundation.specs import Array
from kernels.kinds.form import Form
from kernels.kinds.routine import LoopAgain, LoopBegin, LoopEnd
from kernels.language.native_types import Struct
from kernels.rules.op import Op
from kernels.rules.scalar_loops import NodeRef

N_APARTS = 3
"""Types of operations that are left to Python."""


class RecorderTables(Struct):
    """Addresses of objects: types, the recorder's tables, its numbers and steps."""

    float_type: int
    tensor_type: int
    form_type: int
    tuple_type: int
    none: int
    known: int
    nodes: int
    forms: int
    alike: int
    held: int
    numbers: int
    slowly: int  # the Python function for everything else
    apart: int  # the first of the N_APARTS types
    steps: StepWords = 12 + N_APARTS


class StepWords(Struct):
    """The steps of a program, end to end."""

    address: int  # where the words are
    used: int
    room: int  # how many there may be


HEAD = 2
"""In front of the operands of each step: the number of its kind, and its result."""

ALIKE_NODE, ALIKE_KIND, ALIKE_PARAMS = range(3)
"""What stands for results that are alike, as a tuple: the node, the kind of their steps, its parameters."""


Operand = int | float
"""A node's number, or a Python number."""


@dataclass(slots=True)
class Step:
    """``result = op(operands, params)``; ``form`` if its gradient was recorded; ``at``: its place among the steps."""

    op: Op
    operands: tuple[Operand | NodeRef, ...]
    result: int
    params: tuple[Any, ...]
    form: Form | None
    at: int = -1


class StepKind(NamedTuple):
    """What steps that do the same have in common: all but their nodes and numbers."""

    op: Op
    form: Form | None
    params: tuple[Any, ...]
    count: int  # operands


class Steps(Sequence[Step]):
    """The steps of a program, end to end in one block of words: the number of the kind, the result, the operands.

    An operand is a node, or where it is negative ``~k`` for the Python number ``numbers[k]``. Steps of one kind have
    operands and results of the same specs. Objects for steps are made when one is looked at: a program of a million
    operations would be a million objects, to keep and for Python's collector to look through.
    """

    __slots__ = ("_block", "_starts", "head", "kinds", "numbers")

    def __init__(self) -> None:
        self.kinds: list[StepKind] = []
        self.numbers: list[Any] = []
        self.head = array("q", bytes(8 * 3))
        """Address of the words, how many there are, and for how many there is room: native code appends, too."""
        self._starts: tuple[array[int], int] = array("q"), 0
        self.hold(array("q", bytes(8 * FIRST)))

    def hold(self, block: array[int]) -> None:
        """Have the words in this block."""
        self._block = block
        self.head[StepWords.address], self.head[StepWords.room] = block.buffer_info()

    @property
    def words(self) -> array[int]:
        """A copy of the words."""
        return self._block[: self.head[StepWords.used]]

    @property
    def starts(self) -> array[int]:
        """Where each step begins among the words."""
        starts, end = self._starts
        if end != self.head[StepWords.used]:
            words, sizes = self.words.tolist(), [HEAD + kind.count for kind in self.kinds]
            starts, end = starts[:], len(words)  # other threads may be reading those, or do the same
            at = self._starts[1]
            while at < end:
                starts.append(at)
                at += sizes[words[at]]
            self._starts = starts, end
        return starts

    def number(self, value: Any) -> int:
        """Return the word of a Python number."""
        self.numbers.append(value)
        return -len(self.numbers)

    def add(self, kind: int, result: int, operands: Iterable[int]) -> None:
        """Append a step."""
        words = array("q", (kind, result, *operands))
        used = self.head[StepWords.used]
        if used + len(words) + MOST > self.head[StepWords.room]:
            block = array("q", bytes(8 * (2 * used + len(words) + MOST)))
            block[:used] = self._block[:used]
            self.hold(block)
        self._block[used : used + len(words)] = words
        self.head[StepWords.used] = used + len(words)

    def fit(self) -> None:
        """Give back the room for more steps."""
        self.hold(self.words)

    def of_kind(self, cls: type[Op]) -> list[int]:
        """Return the steps whose operation is one of a class."""
        words, chosen = self.words, [isinstance(kind.op, cls) for kind in self.kinds]
        return [at for at, start in enumerate(self.starts) if chosen[words[start]]] if any(chosen) else []

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        starts, words = self.starts, self._block
        at = range(len(starts))[at]
        first = starts[at] + HEAD
        op, form, params, count = self.kinds[words[first - HEAD]]
        operands = tuple(NodeRef(o) if o >= 0 else self.numbers[~o] for o in words[first : first + count])
        return Step(op, operands, words[first - 1], params, form, at)

    def __reduce__(self) -> Any:
        return steps_from, (self.kinds, self.numbers, self.words)


FIRST = 1 << 10
"""Words for which there is room at first."""
MOST = 32
"""Words for which there is room when Python has appended a step."""


def steps_from(kinds: list[StepKind], numbers: list[Any], words: array[int]) -> Steps:
    """Return the steps of these words, as pickles hold them."""
    steps = Steps()
    steps.kinds, steps.numbers = kinds, numbers
    steps.hold(words)
    steps.head[StepWords.used] = len(words)
    return steps


@dataclass(slots=True)
class Lines:
    """Steps whose words begin at ``begins[k]`` or later, up to the next, are of line ``numbers[k]`` of the table."""

    table: list[tuple[str, int, str]] = field(default_factory=list)
    """Files, numbers in them, and what stood there when the program was recorded."""
    begins: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[int] = field(default_factory=lambda: array("q"))

    def mark(self, begin: int, number: int) -> None:
        """Have the steps from this word on be of a line."""
        if not self.numbers or self.numbers[-1] != number:
            self.begins.append(begin)
            self.numbers.append(number)

    def of_steps(self, steps: Steps) -> Array:
        """Return the number of the line of each step, -1 where it is not known."""
        numbers = np.array([-1, *self.numbers], np.int64)
        return numbers[np.searchsorted(np.array(self.begins, np.int64), np.array(steps.starts), "right")]

    def text(self, number: int, *, short: bool = False) -> str:
        """Return a line as ``file:number: source``, as far as it is known; ``short``: without folders."""
        if number < 0:
            return "unknown"
        path, line, source = self.table[number]
        return f"{os.path.basename(path) if short else path}:{line}" + (f": {source}" if source else "")  # noqa: PTH119 (of any system)


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
