"""A long program in pieces that are compiled one by one: LLVM's time for one function grows faster than its length.

What a piece assigns and a later one reads is handed on in memory, from the last assignment to the first use.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kernels.programs.parts.source_lines import INDENT, outermost

LONG = 6_000
"""Lines from which on a program is cut."""
PIECE = 2_000
"""Lines of a piece, about: it has whole statements."""
_NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r" *(?:for )?(\w+(?:, \w+)*) ([-+*/|&]?=|in) (.*)")
"""A line that assigns variables: these, how, and what."""
_FLOAT = re.compile(r"[vspx]\d+|[a-z]_.*")
"""The names of variables that may be floats; others are integers."""
_TAKEN = {"f8": "{}", "i8": "{}", "f4": "np.float32({})", "b1": "({} != 0)"}
"""How what was handed on is a variable again, by what kind it is."""


class Piece:
    """Some statements of a program, and the names that they have."""

    def __init__(self) -> None:
        self.statements: list[list[str]] = []
        self.length = 0
        self.first: dict[str, int] = {}
        """The first statement that has a name."""
        self.last: dict[str, int] = {}
        """The last statement that assigns a variable."""
        self.begins: set[str] = set()
        """Variables that are assigned before anything else is done with them."""

    def append(self, statement: list[str]) -> None:
        """Append a statement, of several lines if it is a loop or a branch."""
        number = len(self.statements)
        self.begins |= _begun(statement[0]) - self.first.keys()
        for line in statement:
            for name in _NAME.findall(line):
                self.first.setdefault(name, number)
            assignment = _ASSIGNMENT.match(line)
            if assignment:
                self.last |= dict.fromkeys(assignment[1].split(", "), number)
        self.statements.append(statement)
        self.length += len(statement)


class Slot(NamedTuple):
    """Where a variable stands between pieces: the memory of its kind, and the element of that."""

    kind: str
    number: int


class Pieces:
    """The pieces of a program's lines: none of a short one. ``bodies`` are their lines, ``names`` what these name.

    ``kind_of`` says what a variable is: ``f8``, ``f4``, ``b1`` or ``i8``; ``add`` adds memory, of a kind,
    and returns its name.
    """

    def __init__(self, lines: list[str], kind_of: Callable[[str], str], add: Callable[[str, int], str]) -> None:
        self._kind_of = kind_of
        self._pieces = list(_cut(lines)) if len(lines) > LONG else []
        self._counts: dict[str, int] = defaultdict(int)
        taken = self._taken()
        handed = dict.fromkeys([name for names in taken for name in sorted(names)])
        self._slots = {name: self._slot(name) for name in handed}
        self._memory = {kind: add(kind, count) for kind, count in self._counts.items()}
        self.bodies: list[list[str]] = []
        needed = set[str]()
        for piece, names in zip(reversed(self._pieces), reversed(taken), strict=True):
            self.bodies.append(self._body(piece, names, needed & piece.last.keys()))
            needed = (needed - piece.begins) | names
        self.bodies.reverse()
        memory = {*self._memory.values()}
        self.names = [piece.first.keys() | memory for piece in self._pieces]

    @property
    def longest(self) -> int:
        """The lines of the longest piece."""
        return max([piece.length for piece in self._pieces], default=0)

    def _taken(self) -> list[set[str]]:
        """Return, for each piece, the variables that it takes over from those before."""
        assigned = set[str]()
        taken = []
        for piece in self._pieces:
            taken.append(assigned & piece.first.keys() - piece.begins)
            assigned |= piece.last.keys()
        return taken

    def _slot(self, name: str) -> Slot:
        kind = "f8" if _FLOAT.fullmatch(name) and self._kind_of(name) in ("f8", "f4") else "i8"
        self._counts[kind] += 1
        return Slot(kind, self._counts[kind] - 1)

    def _body(self, piece: Piece, taken: set[str], handed: set[str]) -> list[str]:
        """Return the lines of a piece that takes over variables, and gives some."""
        before, behind = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
        for name in sorted(taken):
            value = _TAKEN[self._kind_of(name)].format(self._element(name))
            before[piece.first[name]].append(f"{INDENT}{name} = {value}")
        for name in sorted(handed):
            behind[piece.last[name]].append(f"{INDENT}{self._element(name)} = {name}")
        body: list[str] = []
        for number, statement in enumerate(piece.statements):
            body += [*before[number], *statement, *behind[number]]
        return body

    def _element(self, name: str) -> str:
        slot = self._slots[name]
        return f"{self._memory[slot.kind]}[{slot.number}]"


def call_pieces(words: str, first: int, count: int) -> list[str]:
    """Return the lines of a program that consists of pieces, whose addresses are so many of ``words``.

    A piece returns what a program does: -1, or where it stopped.
    """
    return [
        f"{INDENT}for piece in range({first}, {first + count}):",
        f"{INDENT * 2}stopped = call_at({words}[piece], table, 0, 0, 0)",
        f"{INDENT * 2}if stopped != -1:",
        f"{INDENT * 3}return stopped",
    ]


def _cut(lines: list[str]) -> Iterator[Piece]:
    piece = Piece()
    for statement in outermost(lines):
        if piece.length and piece.length + len(statement) > PIECE:
            yield piece
            piece = Piece()
        piece.append(statement)
    yield piece


def _begun(line: str) -> set[str]:
    """Return the variables that an outermost line gives values that do not depend on those before."""
    assignment = _ASSIGNMENT.match(line)
    if assignment is None or assignment[2] not in ("=", "in"):
        return set()
    return {*assignment[1].split(", ")}.difference(_NAME.findall(assignment[3]))
