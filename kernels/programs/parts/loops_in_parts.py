"""Large loops of a printed program whose steps are independent, cut into parts that several threads may run.

The parts are those of the text: how many there are, and what each adds up to, does not depend on the threads. Where
steps add to elements that others add to, not far away, each second part is run first, then those between.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kernels.language.lanes import statements_in
from kernels.native.structs import MOST_PARTS
from kernels.native.threads import WORKERS
from kernels.programs.parts.printed_loops import (
    HEAD,
    INDENT,
    DependentError,
    Element,
    Known,
    PrintedLoop,
    VariableUses,
    apart,
    lines_of,
    outermost,
)

# A loop of a printed program as native functions that run a part of it, and the lines that call them.

IMPORTS = "\nfrom kernels.native.memory import call_at, double_of, local_b1, local_f4, local_f8, local_i8"
"""What a program with loops in parts imports besides."""
STARTS = {"added": "-0.0", "greater": "(-math.inf)"}
"""What sums and maxima start from."""
_FUNCTIONS = """

def {loop}({parameters}):
{body}


def {part}(table: Word, part: Word, unused: Word, unused_too: Word) -> Word:
{begin}    low = {first} + {size} * {number}
    high = min(low + {size}, {stop})
    {loop}({arguments})
    return 0
"""


class Memory(NamedTuple):
    """Memory of a pointer: how many elements of ``f8``, ``f4``, ``b1`` or ``i8``, and whether it is workspace."""

    name: str
    kind: str
    count: int
    is_work: bool


class Cut(NamedTuple):
    """How a loop is cut: how many parts of how many steps, and whether each second one is run first."""

    parts: int
    size: int
    alternate: bool
    local: list[str]
    """Memory that each step has for itself."""
    summed: dict[str, str]
    """Memory that steps add to wherever they are, and how: each part has its own."""


class PartText:
    """Parameters, arguments and lines of the functions of one loop; ``words`` are those of the table they read.

    ``sizes``: a pointer to integers, "" if there is none, that both functions have before all else.
    """

    def __init__(self, number: int, loop: PrintedLoop, cut: Cut, sizes: str = "") -> None:
        self.number, self.loop, self.cut = number, loop, cut
        self.names: list[str] = []
        self.arguments: list[str] = []
        self.words = ["0"]
        """The first says, of each second part, which ones are run."""
        self.body: list[str] = []
        """Lines before the loop."""
        self.ends: list[str] = []
        """Lines behind it."""
        self.after: list[str] = []
        """Lines of the program behind the call."""
        self._begin = ""
        if sizes:
            self._begin = f"    {sizes} = pointer_i8(load_i8(table + {8 * len(self.words)}))\n"
            self._pass(sizes, f"begin_of({sizes})", sizes)
        self._part = "(2 * part + load_i8(table))" if cut.alternate else "part"

    def value(self, name: str, packed: str, unpacked: str) -> None:
        """Pass a variable as a word."""
        self._pass(name, packed.format(name), unpacked)

    def _pass(self, name: str, word: str, argument: str) -> None:
        self.names.append(name)
        self.arguments.append(argument.format(f"load_i8(table + {8 * len(self.words)})"))
        self.words.append(word)

    def integer(self, name: str) -> None:
        """Pass an integer."""
        self._pass(name, name, "{}")

    def pointer(self, memory: Memory) -> None:
        """Pass memory."""
        self._pass(memory.name, f"begin_of({memory.name})", f"pointer_{memory.kind}({{}})")

    def local(self, memory: Memory) -> None:
        """Let each part have memory of its own, instead of some."""
        self.names.append(memory.name)
        self.arguments.append(f"local_{memory.kind}({1 << (memory.count - 1).bit_length()})")  # for all sizes near it

    def summed(self, memory: Memory, parts: str, how: str) -> None:
        """Let each part have sums of its own, in ``parts``, which are then added to memory."""
        count = memory.count
        self._pass(memory.name, f"begin_of({parts})", f"pointer_f8({{}} + {8 * count} * {self._part})")
        self.body += [f"for i in range({count}):", f"    {memory.name}[i] = {STARTS[how]}"]
        element = f"{parts}[{count} * part + i]"
        both = f"{{0}} = accumulators.greater({{0}}, {element})" if how == "greater" else f"{{0}} += {element}"
        self.after += [
            f"for part in range({self.cut.parts}):",
            f"    for i in range({count}):",
            "        " + both.format(f"{memory.name}[i]"),
        ]

    def totals(self, parts: str) -> None:
        """Let each part have totals of its own, in ``parts``, which are then added."""
        sums = self.loop.sums
        self._pass(parts, f"begin_of({parts})", f"pointer_f8({{}} + {8 * len(sums)} * {self._part})")
        self.body += [f"{name} = {STARTS[how]}" for name, how in sums.items()]
        self.ends += [f"{parts}[{k}] = {name}" for k, name in enumerate(sums)]
        self.after.append(f"for part in range({self.cut.parts}):")
        for k, (name, how) in enumerate(sums.items()):
            self.after.append(f"    {name} = accumulators.{how}({name}, {parts}[{len(sums)} * part + {k}])")

    def functions(self, body: list[str]) -> str:
        """Return the functions as text; ``body`` are the lines in the loop, as deep as that."""
        assert isinstance(self.loop.loop.target, ast.Name)
        head = f"for {self.loop.loop.target.id} in range(low, high):"
        return _FUNCTIONS.format(
            loop=f"loop{self.number}",
            part=f"part{self.number}",
            begin=self._begin,
            parameters=", ".join([*self.names, "low", "high"]),
            body="\n".join(f"    {line}" for line in [*self.body, head, *body, *self.ends]),
            first=self.loop.range[0],
            stop=self.loop.range[1] + 1,
            size=self.cut.size,
            number=self._part,
            arguments=", ".join([*self.arguments, "low", "high"]),
        )

    def call(self, table: str) -> list[str]:
        """Return the lines of the program that run all parts."""
        run = f"call_at(parts[1], parts[0], parts[{2 + self.number}], begin_of({table}), "
        parts = self.cut.parts
        calls = [f"{run}{parts})"]
        if self.cut.alternate:
            calls = [f"{run}{-(-parts // 2)})", f"{table}[0] = 1", f"{run}{parts // 2})"]
        return [*[f"{table}[{k}] = {word}" for k, word in enumerate(self.words)], *calls, *self.after]


LARGE, GRAIN = 1 << 20, 1 << 17
"""What a loop costs, in additions of vectors' elements, from which on it is cut, and a part: some tens of microseconds,
or of loops that are all in registers and caches some ten."""
_VECTORS = 64
"""Elements that a part of an innermost loop has a multiple of: no vector is cut."""
_PAIRS = 4_000
"""Pairs of elements that are compared, at most."""
_LOCAL = 1 << 12
"""Elements of workspace that a part may have on the stack."""
_SUMMED = 64
"""What a part costs, at least, for each element of the memory that it has for sums."""
_FEW = 1 << 12
_AS_WORDS = {
    "f8": ("bits_of({})", "double_of({})"),
    "f4": ("bits_of(np.float64({}))", "np.float32(double_of({}))"),
    "b1": ("bits_of({})", "({} != 0)"),
    "i8": ("{}", "{}"),
}
"""How a variable is passed as a word, and what it is of the word."""


class LoopsInParts:
    """The lines of a program in which large loops are calls of ``functions``, by addresses in ``parts``.

    ``memory`` is what the program's pointers point at; ``add`` adds some, of a kind, to the workspace, and returns its
    name. ``kind_of`` says what a variable is, ``f8``, ``f4``, ``b1`` or ``i8``; ``sizes`` is a pointer that the
    functions begin with.
    """

    def __init__(
        self,
        lines: list[str],
        memory: Iterable[Memory],
        kind_of: Callable[[str], str],
        add: Callable[[str, int], str],
        sizes: str = "",
    ) -> None:
        self.lines, self.add, self.kind_of, self.sizes = lines, add, kind_of, sizes
        self.memory = {each.name: each for each in memory}
        self.functions: list[str] = []
        self._replaced: list[tuple[int, int, list[str]]] = []
        if _has_large(lines) and WORKERS.native is not None:
            tree = ast.parse("def program():\n" + "\n".join(lines)).body[0]
            assert isinstance(tree, ast.FunctionDef)
            self._uses = VariableUses(tree.body)
            self._block(tree.body, Known(), [])
        for first, last, instead in reversed(self._replaced):
            self.lines = [*self.lines[:first], *instead, *self.lines[last:]]

    @property
    def words(self) -> int:
        """How many words the lines call functions by."""
        return 2 + len(self.functions) if self.functions else 0

    def addresses(self, module: Any) -> list[int]:
        """Return these words: what runs the functions, and those of a module."""
        if not self.functions:
            return []
        functions = [getattr(module, f"part{k}").address for k in range(len(self.functions))]
        return [WORKERS.address, WORKERS.native.run.address, *functions]

    def _block(self, statements: list[ast.stmt], known: Known, around: list[ast.For]) -> None:
        for node in statements:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    known.assign(name, value)
                case ast.For():
                    if not self._cut(node, known, around):
                        self._inside(node, known, around)
                    known.forget(node)
                case _:
                    known.forget(node)

    def _inside(self, node: ast.For, known: Known, around: list[ast.For]) -> None:
        """Look for loops in the body of one that is not cut."""
        assert isinstance(node.target, ast.Name)
        known.forget(node)
        try:
            known.begin(node)
        except DependentError:
            known.variable(node.target.id, None)  # a step of the program, of as many as a constant says
        self._block(node.body, known, [*around, node])

    def _cut(self, node: ast.For, known: Known, around: list[ast.For]) -> bool:
        """Cut a loop into parts, if that may be and is worth it; return whether it was."""
        assert isinstance(node.target, ast.Name)
        if node.target.id[0] != "i":
            return False
        try:
            loop = PrintedLoop(node, known.copy())
            cut = self._parts_of(loop, around)
        except DependentError:
            return False
        if cut is not None:
            self._print(loop, cut, known)
        return cut is not None

    def _parts_of(self, loop: PrintedLoop, around: list[ast.For]) -> Cut | None:
        total = loop.work * loop.count
        if total < LARGE or any(self._uses.outlives(name, loop.loop, around) for name in loop.plain & loop.written):
            return None
        by_name: dict[str, list[Element]] = {}
        for element in loop.elements:
            by_name.setdefault(element.name, []).append(element)
        fixed = {
            name: {element.how for element in elements}
            for name, elements in by_name.items()
            if all(e.index is not None and e.index.step(loop.index) == 0 for e in elements)
        }
        local = self._local(loop, fixed)
        summed = {
            name: min(hows) for name, hows in fixed.items() if len(hows) == 1 and hows < {*STARTS} and name not in local
        }
        distance = self._distance(loop, {*local, *summed})
        elements = sum(self.memory[name].count for name in summed)
        most = min(MOST_PARTS, total // GRAIN, total // (_SUMMED * elements) if elements else MOST_PARTS)
        size = -(-loop.count // max(1, most))
        if not any(isinstance(part, ast.For) for part in statements_in(loop.loop.body)):
            size += -size % _VECTORS
        size = max(size, distance)
        parts = -(-loop.count // size)
        return Cut(parts, size, distance > 0, local, summed) if parts > 1 + (distance > 0) else None

    def _local(self, loop: PrintedLoop, fixed: dict[str, set[str]]) -> list[str]:
        """Return the workspace whose elements each step writes before it reads them: other steps do without."""
        local = [name for name in fixed if self.memory[name].is_work and self._uses.is_within(name, loop.loop)]
        return local if sum(self.memory[name].count for name in local) <= _LOCAL else []

    def _distance(self, loop: PrintedLoop, but: set[str]) -> int:
        """Return how many steps are at most between two that add to one element; DependentError for other elements."""
        written = [element for element in loop.elements if element.how != "read" and element.name not in but]
        pairs = [(a, b) for a in written for b in loop.elements if a.name == b.name]
        if len(pairs) > _PAIRS:
            raise DependentError("many elements")
        largest = 0
        for a, b in pairs:
            if a.index is None or b.index is None:
                raise DependentError("an index")
            distance = apart(a.index, b.index, loop.index, loop.private, loop.known.ranges)
            if distance is None or (distance > 0 and (a.how != b.how or a.how not in STARTS)):
                raise DependentError("elements of other steps")
            largest = max(largest, distance)
        return largest

    def _print(self, loop: PrintedLoop, cut: Cut, known: Known) -> None:
        """Replace a loop by a call, and print the functions that it calls."""
        text = PartText(len(self.functions), loop, cut, self.sizes)
        for name in dict.fromkeys([element.name for element in loop.elements]):
            memory = self.memory[name]
            if name in cut.local:
                text.local(memory)
            elif name in cut.summed:
                text.summed(memory, self.add("f8", cut.parts * memory.count), cut.summed[name])
            else:
                text.pointer(memory)
        for name in loop.outer:
            if self._literal(name):
                text.body.append(f"{name} = {self._literal(name)}")
            elif known.is_integer(name):
                text.integer(name)
            else:
                text.value(name, *_AS_WORDS[self.kind_of(name)])
        if loop.sums:
            text.totals(self.add("f8", cut.parts * len(loop.sums)))
        first, last = lines_of(loop.loop)
        indent = loop.loop.col_offset
        body = [line[indent:] for line in self.lines[first - 1 : last - 1]]
        self.functions.append(text.functions(body))
        table = self.add("i8", len(text.words))
        self._replaced.append((first - 2, last - 1, [" " * indent + line for line in text.call(table)]))

    def _literal(self, name: str) -> str:
        """Return the number that a variable is throughout the program; "" of others."""
        places = self._uses.assignments[name]
        if len(places) != 1:
            return ""
        text = self.lines[places[0].line - 2].strip()
        match = re.fullmatch(rf"{name} = (\(?-?\d+\.\d+(?:e[-+]?\d+)?\)?)", text)
        return match[1] if match else ""


def _has_large(lines: list[str]) -> bool:
    """Whether some loops around each other have many steps."""
    open_: list[tuple[int, int]] = []
    for line in lines:
        match = HEAD.match(line)
        if match is None:
            continue
        depth, steps = len(match[1]), int(match[4]) - int(match[3] or 0)
        while open_ and open_[-1][0] >= depth:
            open_.pop()
        open_.append((depth, steps * (open_[-1][1] if open_ else 1)))
        if open_[-1][1] >= _FEW:
            return True
    return False


# A long program in pieces that are compiled one by one: LLVM's time for one function grows faster than its length.
#
# What a piece assigns and a later one reads is handed on in memory, from the last assignment to the first use.

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
