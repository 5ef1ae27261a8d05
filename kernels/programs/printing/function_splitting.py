"""A long program in functions that are compiled one by one: LLVM's time for one function grows faster than its length.

What a piece assigns and a later one reads is handed on in memory, from the last assignment to the first use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from kernels.programs.differentiating.storage import KINDS, Dtype
from kernels.programs.printing.source_text import NAME, Line, Suite, lines_in, printed

LONG = 6_000
"""Lines from which on a program is cut."""
PIECE = 2_000
"""Lines of a piece, about: it has whole statements."""
_TAKEN = {"f8": "{}", "i8": "{}", "f4": "np.float32({})", "b1": "({} != 0)"}
"""Expression that reloads a variable, by its type."""


class FunctionPiece:
    """Some statements of a program, and the names that they have."""

    def __init__(self) -> None:
        self.statements: list[Line] = []
        self.length = 0
        self.first: dict[str, int] = {}
        """The first statement that has a name."""
        self.last: dict[str, int] = {}
        """The last statement that assigns a variable."""
        self.begins: set[str] = set()
        """Variables that are assigned before anything else is done with them."""

    def append(self, statement: Line) -> None:
        """Append a statement, of several lines if it is a loop or a branch."""
        number, names = len(self.statements), NAME.findall(statement.text)
        if names.count(statement.assigns) == 1 and " += " not in statement.text and " -= " not in statement.text:
            self.begins |= {statement.assigns} - self.first.keys()
        for line in lines_in([statement]):
            for name in NAME.findall(line.text):
                self.first.setdefault(name, number)
            if line.assigns:
                self.last[line.assigns] = number
        self.statements.append(statement)
        self.length += len(printed([statement]))


class SplitProgram:
    """The pieces of a program: none of a short one. ``bodies`` are their lines, ``names`` what these name.

    ``dtype_of`` says what a variable is; ``add`` adds memory, of a kind, and returns its name.
    """

    def __init__(self, body: Sequence[Line], dtype_of: Callable[[str], Dtype], add: Callable[[str, int], str]) -> None:
        self._dtype_of = dtype_of
        pieces = [*_pieces(body)] if len(printed(body)) > LONG else []
        taken = _taken(pieces)
        self._slots: dict[str, tuple[str, int]] = {}
        """Where a variable stands between pieces: the memory of its kind, and the element of that."""
        counts: dict[str, int] = defaultdict(int)
        for name in dict.fromkeys([name for names in taken for name in sorted(names)]):
            kind = "f8" if self._kind(name) in ("f8", "f4") else "i8"
            self._slots[name] = kind, counts[kind]
            counts[kind] += 1
        self._memory = {kind: add(kind, count) for kind, count in counts.items()}
        self.bodies: list[list[str]] = []
        needed = set[str]()
        for piece, names in zip(reversed(pieces), reversed(taken), strict=True):
            self.bodies.insert(0, printed(self._body(piece, names, needed & piece.last.keys())))
            needed = (needed - piece.begins) | names
        memory = {*self._memory.values()}
        self.names = [piece.first.keys() | memory for piece in pieces]
        self.longest = max([piece.length for piece in pieces], default=0)
        """The lines of the longest piece."""

    def _kind(self, name: str) -> str:
        return KINDS[self._dtype_of(name)]

    def _body(self, piece: FunctionPiece, taken: set[str], handed: set[str]) -> list[Line]:
        """Return the statements of a piece that takes over variables, and assigns some."""
        before, behind = defaultdict[int, list[Line]](list), defaultdict[int, list[Line]](list)
        for name in sorted(taken):
            value = _TAKEN[self._kind(name)].format(self._element(name))
            before[piece.first[name]].append(Line(f"{name} = {value}"))
        for name in sorted(handed):
            behind[piece.last[name]].append(Line(f"{self._element(name)} = {name}"))
        statements = enumerate(piece.statements)
        return [line for k, statement in statements for line in (*before[k], statement, *behind[k])]

    def _element(self, name: str) -> str:
        kind, number = self._slots[name]
        return f"{self._memory[kind]}[{number}]"


def _pieces(body: Sequence[Line]) -> Iterator[FunctionPiece]:
    piece = FunctionPiece()
    for statement in body:
        if piece.length and piece.length + len(printed([statement])) > PIECE:
            yield piece
            piece = FunctionPiece()
        piece.append(statement)
    yield piece


def _taken(pieces: list[FunctionPiece]) -> list[set[str]]:
    """Return, for each piece, the variables that it takes over from those before."""
    assigned, taken = set[str](), []
    for piece in pieces:
        taken.append(assigned & piece.first.keys() - piece.begins)
        assigned |= piece.last.keys()
    return taken


def call_pieces(words: str, first: int, count: int) -> list[Line]:
    """Return the lines of a program that consists of pieces, whose addresses are so many of ``words``.

    A piece returns what a program does: -1, or where it stopped.
    """
    call = Line(f"stopped = call_at({words}[piece], table, 0, 0, 0)")
    stop = Suite("if stopped != -1:", body=[Line("return stopped")])
    return [Suite(f"for piece in range({first}, {first + count}):", body=[call, stop])]
