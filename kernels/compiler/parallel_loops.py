"""Loops in parts that threads share, and long programs in functions."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from kernels.compiler.compiled_code import NAME, Affine, ElementUse, Line, ProgramText, Suite, lines_in, printed
from kernels.compiler.statements import BOOL, FLOAT32, FLOAT64, INT32, INT64
from kernels.compiler.storage import Dtype, Region
from kernels.native.structs import MOST_PARTS
from kernels.native.threads import WORKERS

# Large loops of a printed program whose steps are independent, cut into parts that several threads may run.
#
# The parts are those of the text: how many there are, and what each adds up to, does not depend on the threads. Where
# steps add to elements that others add to, not far away, each second part is run first, then those between.

Variable: TypeAlias = tuple[int, tuple[int, int]]  # A multiple, and the least and the largest value of what
_MOST = 4_000  # how many values are tried to find where two indices are equal


def apart(first: Affine, second: Affine, loop: str, private: set[str], spans: dict[str, tuple[int, int]]) -> int | None:
    """Return how many steps of a loop are at most between two in which the indices are equal; 0 where it is one step.

    ``private`` are variables that each step has of its own. None where that is not known.
    """
    step = first.step(loop)
    if second.step(loop) != step or loop not in spans:
        return None
    variables: list[Variable] = []
    constant = second.constant - first.constant
    names = {name for name, _ in (*first.terms, *second.terms)} - {loop}
    for name in sorted(names):
        a, b = first.step(name), second.step(name)
        if name not in spans:
            if name in private or a != b:
                return None
            continue
        low, high = spans[name]
        if name not in private:
            variables.append((b - a, (low, high)))
        elif a == b:
            variables.append((a, (low - high, high - low)))
        else:
            variables += [(-a, (low, high)), (b, (low, high))]
    variables = [variable for variable in variables if variable[0]]
    count = spans[loop][1] - spans[loop][0]
    try:
        if step == 0:
            return count if _distances(constant, variables, None) else 0
        return max(_distances(constant, variables, (step, (-count, count))), default=0)
    except OverflowError:
        return None


def _distances(constant: int, variables: list[Variable], distance: Variable | None) -> set[int]:
    """Return at which distances a sum of multiples is 0, {0} of one without it; OverflowError if that takes long."""
    distances = set[int]()
    sized = sorted([(v, False) for v in variables] + ([(distance, True)] if distance else []), key=_size)
    spreads = [sum(-_size(pair) * max(map(abs, pair[0][1])) for pair in sized[k + 1 :]) for k in range(len(sized))]
    left = _MOST

    def descend(k: int, rest: int, steps: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OverflowError
        if k == len(sized):
            if rest == 0:
                distances.add(steps)
            return
        (times, (low, high)), is_distance = sized[k]
        ends = (-rest - spreads[k]) / times, (-rest + spreads[k]) / times
        for value in range(max(low, math.ceil(min(ends))), min(high, math.floor(max(ends))) + 1):
            descend(k + 1, rest + times * value, abs(value) if is_distance else steps)

    descend(0, constant, 0)
    return distances


def _size(variable: tuple[Variable, bool]) -> int:
    """Return what sorts large multiples first."""
    return -abs(variable[0][0])


class DependentError(Exception):
    """The steps of a loop cannot be told apart."""


_ELEMENT = 4
_COSTS = {"vectormath.": 32, " math.": 8, "(math.": 8, "np.": 4, " / ": 7}
"""What an element of memory costs, in additions, what functions of a module, and what a division more than others."""


def cost_of(body: Iterable[Line]) -> int:
    """Return what statements cost, in additions, about."""
    total = 0
    for line in body:
        if isinstance(line, Suite) and line.variable:
            total += line.steps * cost_of(line.body)
            continue
        text = line.text
        total += text.count(" ") // 2 + _ELEMENT * text.count("[")
        total += sum([cost * text.count(part) for part, cost in _COSTS.items()])
        total += cost_of(line.body) if isinstance(line, Suite) else 0
    return total


class StepUses:
    """What the steps of one loop read and write; DependentError where they do what no part may.

    ``sums`` are the variables that all steps add to, and how. What else is given in a loop is read in the same step
    alone, behind that: names of a scalar program are those of one block.
    """

    def __init__(self, loop: Suite) -> None:
        self.loop, lines = loop, [*lines_in(loop.body)]
        self.elements = [*dict.fromkeys([use for line in lines for use in line.uses])]
        self.names = Counter([name for line in lines for name in NAME.findall(line.text)])
        """How often each name stands in it."""
        local = {line.assigns for line in lines if not line.sums} | {loop.index}
        self.sums = {line.assigns: line.sums for line in lines if line.sums and line.assigns not in local}
        self.written = local | self.sums.keys()
        for line in lines:
            self._check(line)
        counts = Counter([line.assigns for line in lines])
        if any(self.names[name] != 2 * counts[name] for name in self.sums):
            raise DependentError("a sum that is read")
        variables = {name for use in self.elements for name, _ in use.index.terms}
        self.private = {name for name in variables if name.partition(".")[0] in self.written}
        """Variables of indices that each step has of its own."""

    def _check(self, line: Line) -> None:
        """Raise DependentError for a statement that does more than assign, and for sums of several kinds."""
        is_known = (
            line.variable or line.text.startswith("if ") if isinstance(line, Suite) else line.assigns or line.uses
        )
        is_sum = line.assigns in self.sums
        if not is_known or ("[" in line.text) != bool(line.uses) or (is_sum and line.sums != self.sums[line.assigns]):
            raise DependentError(line.text)
        if is_sum and line.sums not in STARTS:
            raise DependentError("a reduction of another kind")


class Partition(NamedTuple):
    """How a loop is cut: into how many parts of how many steps, and whether each second one is run first."""

    parts: int
    size: int
    alternate: bool
    local: list[Region]  # memory that each step has for itself
    summed: dict[Region, str]  # memory that steps add to wherever they are, and how: each part has its own


# A loop of a printed program as native functions that run a part of it, and the lines that call them.

STARTS = {"added": "-0.0", "greater": "(-math.inf)"}  # what sums and maxima start from
_FUNCTIONS = """

def {loop}({parameters}):
{body}


def {part}(table: Word, part: Word, unused: Word, unused_too: Word) -> Word:
{begin}    low = {first} + {size} * {number}
    high = min(low + {size}, {stop})
    {loop}({arguments})
    return 0
"""


class PartitionText:
    """Parameters, arguments and lines of the functions of one loop; ``words`` are those of the table they read.

    ``sizes``: a pointer to integers, "" if there is none, that both functions have before all else.
    """

    def __init__(self, number: int, loop: StepUses, partition: Partition, sizes: str = "") -> None:
        self.number, self.loop, self.partition = number, loop, partition
        self.names: list[str] = []
        self.arguments: list[str] = []
        self.words = ["0"]  # the first says, of each second part, which ones are run
        self.body: list[str] = []  # lines before the loop
        self.ends: list[str] = []  # lines behind it
        self.after: list[Line] = []  # lines of the program behind the call
        self._begin = ""
        if sizes:
            self._begin = f"    {sizes} = pointer_i8(load_i8(table + {8 * len(self.words)}))\n"
            self.word(sizes, f"begin_of({sizes})", sizes)
        self._part = "(2 * part + load_i8(table))" if partition.alternate else "part"

    def word(self, name: str, word: str, argument: str) -> None:
        """Pass a variable as a word."""
        self.names.append(name)
        self.arguments.append(argument.format(f"load_i8(table + {8 * len(self.words)})"))
        self.words.append(word)

    def summed(self, memory: Region, parts: str, how: str) -> None:
        """Let each part have sums of its own, in ``parts``, which are then added to memory."""
        count = memory.count
        self.word(memory.name, f"begin_of({parts})", f"pointer_f8({{}} + {8 * count} * {self._part})")
        self.body += [f"for i in range({count}):", f"    {memory.name}[i] = {STARTS[how]}"]
        target, element = f"{memory.name}[i]", f"{parts}[{count} * part + i]"
        both = f"{target} = accumulators.greater({target}, {element})" if how == "greater" else f"{target} += {element}"
        self._for_each_part(Suite(f"for i in range({count}):", body=[Line(both)]))

    def totals(self, parts: str) -> None:
        """Let each part have totals of its own, in ``parts``, which are then added."""
        sums = self.loop.sums
        self.word(parts, f"begin_of({parts})", f"pointer_f8({{}} + {8 * len(sums)} * {self._part})")
        self.body += [f"{name} = {STARTS[how]}" for name, how in sums.items()]
        self.ends += [f"{parts}[{k}] = {name}" for k, name in enumerate(sums)]
        elements = [f"{parts}[{len(sums)} * part + {k}]" for k in range(len(sums))]
        pairs = zip(sums.items(), elements, strict=True)
        self._for_each_part(*[Line(f"{name} = accumulators.{how}({name}, {x})") for (name, how), x in pairs])

    def _for_each_part(self, *lines: Line) -> None:
        self.after.append(Suite(f"for part in range({self.partition.parts}):", body=[*lines]))

    def functions(self) -> str:
        """Return the functions as text."""
        loop, (first, last) = self.loop.loop, self.loop.loop.span
        lines = [*self.body, f"for {loop.index} in range(low, high):", *printed(loop.body), *self.ends]
        return _FUNCTIONS.format(
            loop=f"loop{self.number}",
            part=f"part{self.number}",
            begin=self._begin,
            parameters=", ".join([*self.names, "low", "high"]),
            body="\n".join(f"    {line}" for line in lines),
            first=first,
            stop=last + 1,
            size=self.partition.size,
            number=self._part,
            arguments=", ".join([*self.arguments, "low", "high"]),
        )

    def call(self, table: str) -> list[Line]:
        """Return the lines of the program that run all parts."""
        run = f"call_at(parts[1], parts[0], parts[{2 + self.number}], begin_of({table}), "
        parts = self.partition.parts
        calls = [f"{run}{parts})"]
        if self.partition.alternate:
            calls = [f"{run}{-(-parts // 2)})", f"{table}[0] = 1", f"{run}{parts // 2})"]
        return [*map(Line, [*[f"{table}[{k}] = {word}" for k, word in enumerate(self.words)], *calls]), *self.after]


LARGE, GRAIN = 1 << 20, 1 << 17
"""What a loop costs, in additions of vectors' elements, from which on it is cut, and a part: some tens of microseconds,
or of loops that are all in registers and caches some ten."""
_VECTORS = 64  # elements that a part of an innermost loop has a multiple of: no vector is cut
_PAIRS = 4_000  # pairs of elements that are compared, at most
_LOCAL = 1 << 12  # elements of workspace that a part may have on the stack
_SUMMED = 64  # what a part costs, at least, for each element of the memory that it has for sums
_FEW = 1 << 12
_AS_WORDS = {
    FLOAT64: ("bits_of({})", "double_of({})"),
    FLOAT32: ("bits_of(np.float64({}))", "np.float32(double_of({}))"),
    BOOL: ("bits_of({})", "({} != 0)"),
    INT64: ("{}", "{}"),
    INT32: ("{}", "{}"),
}
"""How a variable is passed, or handed on, as a word, and what it is of the word."""
_NUMBER = re.compile(r"\(?-?\d+\.\d+(?:e[-+]?\d+)?\)?")


class ParallelLoops:
    """A printed program in which large loops are calls of ``functions``, by addresses in ``parts``.

    ``dtype_of`` says what a variable is; ``add`` adds memory, of a kind, to the workspace, and returns its name;
    ``sizes`` is a pointer that the functions begin with.
    """

    def __init__(
        self, text: ProgramText, dtype_of: Callable[[str], Dtype], add: Callable[[str, int], str], sizes: str = ""
    ) -> None:
        self.body, self.functions = text.body, list[str]()
        self._text, self._dtype_of, self._add, self._sizes = text, dtype_of, add, sizes
        if _has_large(text.body, 1) and WORKERS.native is not None:
            lines = [*lines_in(text.body)]
            self._names = Counter([name for line in lines for name in NAME.findall(line.text)])
            self._assigned = defaultdict[str, list[Line]](list)
            for line in lines:
                self._assigned[line.assigns].append(line)
            self.body = self._block(text.body)

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

    def _block(self, body: Sequence[Line]) -> list[Line]:
        """Return statements in which loops are cut that may be, and are worth it."""
        made: list[Line] = []
        for line in body:
            if not isinstance(line, Suite) or not line.assigns:
                made.append(line)
                continue
            try:
                loop = StepUses(line) if line.variable else None
                partition = loop and self._partition(loop)
            except DependentError:
                partition = None
            made += self._call(loop, partition) if partition else [Suite(line.text, body=self._block(line.body))]
        return made

    def _partition(self, loop: StepUses) -> Partition | None:
        """Return how a loop is cut; None where that is not worth it."""
        total = cost_of([loop.loop])
        if total < LARGE:
            return None
        by_region: dict[Region, list[ElementUse]] = defaultdict(list)
        for element in loop.elements:
            by_region[element.region].append(element)
        fixed = {
            region: {element.how for element in elements}
            for region, elements in by_region.items()
            if all(element.index.step(loop.loop.variable) == 0 for element in elements)
        }
        mine = [region for region in fixed if self._names[region.name] == loop.names[region.name]]
        local = [region for region in mine if region.role == "work"]  # each step writes it before it reads it
        if sum(region.count for region in local) > _LOCAL:
            local = []
        summed = {
            region: min(hows)
            for region, hows in fixed.items()
            if len(hows) == 1 and hows < {*STARTS} and region not in local
        }
        distance = self._distance(loop, {*local, *summed})
        elements = sum(region.count for region in summed)
        most = min(MOST_PARTS, total // GRAIN, total // (_SUMMED * elements) if elements else MOST_PARTS)
        size = -(-loop.loop.steps // max(1, most))
        if not any(isinstance(line, Suite) and line.variable for line in lines_in(loop.loop.body)):
            size += -size % _VECTORS
        size = max(size, distance)
        parts = -(-loop.loop.steps // size)
        return Partition(parts, size, distance > 0, local, summed) if parts > 1 + (distance > 0) else None

    def _distance(self, loop: StepUses, but: set[Region]) -> int:
        """Return how many steps are at most between two that add to one element; DependentError for other elements."""
        written = [element for element in loop.elements if element.how != "read" and element.region not in but]
        pairs = [(a, b) for a in written for b in loop.elements if a.region is b.region]
        if len(pairs) > _PAIRS:
            raise DependentError("many elements")
        largest = 0
        for a, b in pairs:
            distance = apart(a.index, b.index, loop.loop.variable, loop.private, self._text.ranges)
            if distance is None or (distance > 0 and (a.how != b.how or a.how not in STARTS)):
                raise DependentError("elements of other steps")
            largest = max(largest, distance)
        return largest

    def _call(self, loop: StepUses, partition: Partition) -> list[Line]:
        """Return the lines that call a loop, and print the functions that they call."""
        text = PartitionText(len(self.functions), loop, partition, self._sizes)
        for memory in dict.fromkeys([element.region for element in loop.elements]):
            if memory in partition.local:
                size = 1 << (memory.count - 1).bit_length()  # for all sizes near it
                text.names.append(memory.name)
                text.arguments.append(f"local_{memory.kind}({size})")
            elif memory in partition.summed:
                text.summed(memory, self._add("f8", partition.parts * memory.count), partition.summed[memory])
            else:
                text.word(memory.name, f"begin_of({memory.name})", f"pointer_{memory.kind}({{}})")
        for name in sorted((loop.names.keys() & self._assigned.keys()) - loop.written):
            lines = self._assigned[name]
            number = lines[0].text.removeprefix(f"{name} = ")
            if len(lines) == 1 and _NUMBER.fullmatch(number):
                text.body.append(lines[0].text)
            else:
                word, argument = _AS_WORDS[self._dtype_of(name)]
                text.word(name, word.format(name), argument)
        if loop.sums:
            text.totals(self._add("f8", partition.parts * len(loop.sums)))
        self.functions.append(text.functions())
        return text.call(self._add("i8", len(text.words)))


def _has_large(body: Sequence[Line], steps: int) -> bool:
    """Whether some loops around each other have many steps."""
    for line in body:
        if isinstance(line, Suite):
            inner = steps * line.steps
            if (line.variable and inner >= _FEW) or _has_large(line.body, inner):
                return True
    return False


# A long program in functions that are compiled one by one: LLVM's time for one function grows faster than its length.
#
# What a piece assigns and a later one reads is handed on in memory, from the last assignment to the first use.

LONG = 6_000  # lines from which on a program is cut
PIECE = 2_000  # lines of a piece, about: it has whole statements


class FunctionPiece:
    """Some statements of a program, and the names that they have."""

    def __init__(self) -> None:
        self.statements: list[Line] = []
        self.length = 0
        self.first: dict[str, int] = {}  # the first statement that has a name
        self.last: dict[str, int] = {}  # the last statement that assigns a variable
        self.begins: set[str] = set()  # variables that are assigned before anything else is done with them

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
        assigned, taken = set[str](), []
        for piece in pieces:
            taken.append(assigned & piece.first.keys() - piece.begins)
            assigned |= piece.last.keys()
        self._slots = {name: k for k, name in enumerate(dict.fromkeys([x for names in taken for x in sorted(names)]))}
        """Where a variable stands between pieces, as a word."""
        self._memory = add("i8", len(self._slots)) if self._slots else ""
        self.bodies: list[list[str]] = []
        needed = set[str]()
        for piece, names in zip(reversed(pieces), reversed(taken), strict=True):
            self.bodies.insert(0, printed(self._body(piece, names, needed & piece.last.keys())))
            needed = (needed - piece.begins) | names
        self.names = [piece.first.keys() | {self._memory} for piece in pieces]
        self.longest = max([piece.length for piece in pieces], default=0)  # the lines of the longest piece

    def _body(self, piece: FunctionPiece, taken: set[str], handed: set[str]) -> list[Line]:
        """Return the statements of a piece that takes over variables, and assigns some."""
        before, behind = defaultdict[int, list[Line]](list), defaultdict[int, list[Line]](list)
        for name in sorted(taken | handed):
            word, value = _AS_WORDS[self._dtype_of(name)]
            element = f"{self._memory}[{self._slots[name]}]"
            if name in taken:
                before[piece.first[name]].append(Line(f"{name} = {value.format(element)}"))
            if name in handed:
                behind[piece.last[name]].append(Line(f"{element} = {word.format(name)}"))
        statements = enumerate(piece.statements)
        return [line for k, statement in statements for line in (*before[k], statement, *behind[k])]


def _pieces(body: Sequence[Line]) -> Iterator[FunctionPiece]:
    piece = FunctionPiece()
    for statement in body:
        if piece.length and piece.length + len(printed([statement])) > PIECE:
            yield piece
            piece = FunctionPiece()
        piece.append(statement)
    yield piece


def call_pieces(words: str, first: int, count: int) -> list[Line]:
    """Return the lines of a program that consists of pieces, whose addresses are so many of ``words``.

    A piece returns what a program does: -1, or where it stopped.
    """
    call = Line(f"stopped = call_at({words}[piece], table, 0, 0, 0)")
    stop = Suite("if stopped != -1:", body=[Line("return stopped")])
    return [Suite(f"for piece in range({first}, {first + count}):", body=[call, stop])]
