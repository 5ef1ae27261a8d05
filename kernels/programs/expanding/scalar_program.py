"""The program element by element: blocks of scalar operations, loads and stores, in loops; each name is given once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kernels.foundation.tables import dataclass
from kernels.programs.fusing.statements import NativeCall, ScalarOperation
from kernels.programs.rolled_program import Loop

if TYPE_CHECKING:
    import numpy as np

Terms: TypeAlias = tuple[tuple[str, int], ...]


class Address(NamedTuple):
    """Where an element stands: bytes from the begin of a value's memory, and multiples of what names say.

    ``at`` are the steps of the loops around the value that are not around the reader, each a number and multiples.
    """

    value: int
    constant: int
    terms: Terms = ()
    at: tuple[tuple[int, Terms], ...] = ()

    def names(self) -> set[str]:
        """Return the names of integers that it depends on."""
        return {name for name, _ in (*self.terms, *(term for _, terms in self.at for term in terms))}


@dataclass(slots=True, eq=False)
class Operation:
    """``name = operation(operands)``; an operand is a name or the text of a number. Gradients go to the ``wanted``."""

    name: str
    operation: ScalarOperation
    operands: tuple[str, ...]
    wanted: tuple[bool, ...]


@dataclass(slots=True, eq=False)
class Load:
    """``name`` is an element of memory."""

    name: str
    address: Address


@dataclass(slots=True, eq=False)
class Store:
    """An element of memory becomes ``operand``, a name or the text of a number.

    ``reduces``: ``np.add`` if the element is a sum, to which it is added, ``np.maximum`` if the larger of both is kept,
    ``np.positive`` if both are the same.
    ``overwrites``: what was there has a gradient of its own, which ends here if this ``clears`` it.
    """

    address: Address
    operand: str
    wanted: bool
    reduces: np.ufunc | None = None
    overwrites: bool = False
    clears: bool = True


@dataclass(slots=True, eq=False)
class Fill:
    """Elements of a value that follow each other become what ``reduces`` starts from, before it stores there."""

    address: Address
    elements: int
    reduces: np.ufunc


@dataclass(slots=True, eq=False)
class Term:
    """A name is added to a total, which the nest around it starts at -0.0; or the larger of the two is kept.

    ``reduces``: ``np.add``, ``np.maximum``, or ``np.positive`` where all terms are the same.
    """

    total: str
    operand: str
    wanted: bool
    reduces: np.ufunc


GIVE_UP, LEAVE, LEAVE_ALL = -1, -2, -3
"""In the place of a guard's number: the program gives up; a recorded loop ends; it does, and the loops within it."""


@dataclass(slots=True, eq=False)
class Check:
    """The program stops with ``number``, gives up, or leaves a loop, where the bits of two elements differ."""

    names: tuple[str, str]
    number: int
    terms: Terms = ()
    """What is added to the number in the steps of loops."""


@dataclass(slots=True, eq=False)
class NestLoop:
    """A loop over an axis, any of whose steps may come first; ``totals`` are sums, or maxima, over all of them."""

    index: str
    extent: int
    body: ScalarBlock
    totals: dict[str, np.ufunc] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CarriedNumber:
    """A number that a loop carries: ``name`` is ``initial``, then what ``update`` was in the step before."""

    name: str
    initial: str
    update: str = ""


@dataclass(slots=True, eq=False)
class StepLoop:
    """A loop of the program, step after step; ``exits`` are names behind it for what names in it were last.

    Of one that was recorded ``ends`` are names for what it carries in the end, and ``limit`` says the most steps.
    """

    loop: Loop
    index: str
    body: ScalarBlock
    numbers: list[CarriedNumber] = field(default_factory=list)
    exits: list[tuple[str, str]] = field(default_factory=list)
    ends: list[tuple[str, str]] = field(default_factory=list)
    limit: str = ""

    @property
    def behind(self) -> list[str]:
        """The names of integers behind a recorded one: how many steps it took; in a loop also the row of its end."""
        n = self.loop.number
        return [] if self.loop.ends is None else [f"m{n}"] if self.loop.parent < 0 else [f"m{n}", f"row{n}"]


@dataclass(slots=True, eq=False)
class Call:
    """``target = call(operands)``, arrays in memory that begin at these addresses."""

    call: NativeCall
    operands: tuple[Address, ...]
    target: Address
    wanted: tuple[bool, ...]
    sizes: tuple[int, ...]
    """Elements of the operands."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Of the operands and of the target."""
        return (*self.operands, self.target)


ScalarItem: TypeAlias = Operation | Load | Store | Fill | Term | Check | Call | NestLoop | StepLoop


@dataclass(slots=True, eq=False)
class ScalarBlock:
    """Items in order, and the loop that it is the body of."""

    parent: ScalarBlock | None = None
    loop: NestLoop | StepLoop | None = None
    items: list[ScalarItem] = field(default_factory=list)

    def path(self) -> list[ScalarBlock]:
        """Return the blocks around it, from the outermost to itself."""
        return [*(self.parent.path() if self.parent is not None else ()), self]

    def loops(self) -> list[NestLoop | StepLoop]:
        """Return the loops around it, outermost first."""
        return [block.loop for block in self.path() if block.loop is not None]

    def steps(self) -> list[StepLoop]:
        """Return the loops of the program around it, outermost first."""
        return [loop for loop in self.loops() if isinstance(loop, StepLoop)]


def walk(block: ScalarBlock) -> Iterator[tuple[ScalarBlock, ScalarItem]]:
    """Return all items with their blocks, in order; a loop comes before what is in it."""
    for item in block.items:
        yield block, item
        if isinstance(item, NestLoop | StepLoop):
            yield from walk(item.body)
