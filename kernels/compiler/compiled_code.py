"""A compiled program: its source text as a tree of lines, machine code, and how it is called."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from kernels.compiler.fusion import FusedBlock, FusedLoop, Fusion, Nest
from kernels.compiler.statements import CallStatement
from kernels.compiler.storage import Element, Region, Storage
from kernels.foundation.specs import Array, Spec
from kernels.foundation.tables import dataclass
from kernels.programs.rolled_program import Loop, RolledInstruction, RolledProgram

# A printed program: lines, and loops and branches of lines; what is done to it before it is source.
#
# A line knows which elements of memory it reads and writes, by indices that are affine in the variables of loops:
# memory is shared and aligned, and loops are run in parallel, by these. Sizes become arguments.

INDENT = "    "
NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
Range: TypeAlias = tuple[int, int]  # the least and the largest value


class Affine(NamedTuple):
    """A number, and multiples of variables by their names, sorted."""

    constant: int
    terms: tuple[tuple[str, int], ...] = ()

    def plus(self, other: Affine, times: int = 1) -> Affine:
        """Return the sum of this and a multiple of another."""
        terms = dict(self.terms)
        for name, step in other.terms:
            terms[name] = terms.get(name, 0) + times * step
        return Affine(
            self.constant + times * other.constant, tuple(sorted((n, step) for n, step in terms.items() if step))
        )

    def step(self, name: str) -> int:
        """Return the multiple of a variable."""
        return dict(self.terms).get(name, 0)


class ElementUse(NamedTuple):
    """An element that is ``read``, ``written``, ``added`` to, or the ``greater`` of itself and another number."""

    region: Region
    index: Affine
    how: str


@dataclass(slots=True, eq=False)
class Line:
    """A statement: its text, and the elements that it uses; ``sums``: how it adds a term to a variable, if it does."""

    text: str
    uses: tuple[ElementUse, ...] = ()
    sums: str = ""

    @property
    def assigns(self) -> str:
        """The variable that it assigns; "" if it assigns none."""
        name, _, rest = self.text.partition(" ")
        return name if rest[:2] in ("= ", "+=", "-=") and name.isidentifier() else ""


@dataclass(slots=True, eq=False)
class Suite(Line):
    """A loop or a branch: its head, and what stands in it.

    Of a loop over elements ``span`` is the range of its ``index``, and ``variable`` stands for that in affine indices.
    """

    body: list[Line] = field(default_factory=list)
    index: str = ""
    variable: str = ""
    span: Range = (0, 0)

    @property
    def steps(self) -> int:
        """How many steps a loop over elements has; 1 of other loops, and of branches."""
        return max(0, self.span[1] - self.span[0] + 1)

    @property
    def assigns(self) -> str:
        """The index of a loop."""
        return self.text[4:].partition(" ")[0] if self.text.startswith("for ") else ""


def lines_in(body: Iterable[Line]) -> Iterator[Line]:
    """Yield lines and heads with all that stands in them, in order."""
    for line in body:
        yield line
        if isinstance(line, Suite):
            yield from lines_in(line.body)


def printed(body: Sequence[Line], depth: int = 1) -> list[str]:
    """Return lines of native source."""
    lines: list[str] = []
    for line in body:
        lines.append(INDENT * depth + line.text)
        if isinstance(line, Suite):
            lines += printed(line.body, depth + 1) or [INDENT * (depth + 1) + "pass"]
    return lines


class ProgramText:
    """A program that is being printed: lines are appended to the innermost loop or branch that is open."""

    def __init__(self) -> None:
        self.body: list[Line] = []
        self._open = [self.body]
        self.known: dict[str, Affine] = {}
        """Integers that are affine in variables, by name: indices of loops, and what is computed of them."""
        self.ranges: dict[str, Range] = {}  # of variables that are bounded

    @property
    def depth(self) -> int:
        """How many loops and branches are open; to set it closes inner ones."""
        return len(self._open)

    @depth.setter
    def depth(self, depth: int) -> None:
        del self._open[depth:]

    @property
    def here(self) -> list[Line]:
        """What stands in the innermost loop or branch that is open."""
        return self._open[-1]

    def put(self, *lines: str) -> None:
        """Append lines."""
        self.here.extend(map(Line, lines))

    def let(self, name: str, value: str, *read: Element, sign: str = "=", sums: str = "") -> None:
        """Append the assignment of a variable; ``read`` are the elements in the value."""
        self.here.append(Line(f"{name} {sign} {value}", self._uses(read), sums))

    def store(self, element: Element, sign: str, value: str, *read: Element, how: str = "") -> None:
        """Append the assignment of an element, or with ``+=`` what is added to it."""
        uses = self._uses(read) + self._uses((element,), how or ("added" if sign == "+=" else "written"))
        self.here.append(Line(f"{element} {sign} {value}", uses))

    def opened(self, head: str) -> None:
        """Append the head of a loop of the program, or of a branch: what follows stands within it."""
        self._enter(Suite(head))

    def _enter(self, suite: Suite) -> None:
        self.here.append(suite)
        self._open.append(suite.body)

    def loop(self, index: str, stop: int | str, first: int = 0, *, most: int = 0, kind: str = "range") -> None:
        """Append the head of a loop over elements; ``most``: which stop it has at most, if that is no number."""
        span = first, (stop if isinstance(stop, int) else most) - 1
        variable = self.bounded(index, span)
        head = f"for {index} in {kind}({f'{first}, ' if first else ''}{stop}):"
        self._enter(Suite(head, index=index, variable=variable, span=span))

    def each(self, count: int, element: Element, sign: str, value: str, *read: Element) -> None:
        """Append a loop over so many ``i`` that assigns an element, or adds to it."""
        self.loop("i", count)
        self.store(element, sign, value, *read)
        self.depth -= 1

    def when(self, test: str, *then: str) -> None:
        """Append a branch."""
        self.opened(f"if {test}:")
        self.put(*then)
        self.depth -= 1

    def bounded(self, name: str, span: Range) -> str:
        """Let a name be an integer within bounds, from here on; return the variable that it is."""
        variable = f"{name}.{len(self.ranges)}"
        self.ranges[variable], self.known[name] = span, Affine(0, ((variable, 1),))
        return variable

    def moved(self, name: str, base: str, less: int) -> None:
        """Append the assignment of an index that is so many steps behind another."""
        self.let(name, f"{base} - {less}" if less else base)
        self.known[name] = self.known[base].plus(Affine(-less))

    def double_buffer(self, name: str, of: str, other: str = "") -> None:
        """Append what says which of two rows a step has, and ``other`` for the row that it has not."""
        self.put(f"{name} = {of} & 1", *[f"{other} = 1 - {name}"] if other else [])
        self.ranges[name] = 0, 1
        if other:
            self.known[other] = Affine(1, ((name, -1),))

    def _uses(self, elements: Iterable[Element], how: str = "read") -> tuple[ElementUse, ...]:
        return tuple([ElementUse(element.region, self._affine(element), how) for element in elements])

    def _affine(self, element: Element) -> Affine:
        item = element.region.dtype.itemsize
        index = Affine(element.constant // item)
        for name, step in element.terms:
            if step % item:  # bytes that are looked up: elements of another variable
                index = index.plus(Affine(0, ((f"{name}.{step}/{item}", 1),)))
            else:
                index = index.plus(self.known.get(name, Affine(0, ((name, 1),))), step // item)
        return index


# Memory of a printed program that is used one after the other, as one: its pointers are told not to alias.

_LEAST_SHARED = 1 << 15
"""Bytes of memory up to which it is not worth it: parts of loops that threads run may have that for themselves."""


def share_memory(body: Sequence[Line], regions: Sequence[Region]) -> list[Region]:
    """Let workspace have the name of such as is no longer used, in all lines; return the regions that are gone.

    Memory is in use from the first to the last statement, outside of all loops, that names it.
    """
    uses = _uses(body, {region.name for region in regions})
    free: list[tuple[int, Region]] = []  # regions with the last statement that uses them
    names: dict[str, str] = {}
    gone = []
    for region in sorted(regions, key=lambda region: uses.get(region.name, (-1, -1))):
        if region.name not in uses or region.size <= _LEAST_SHARED:
            continue
        first, last = uses[region.name]
        past = [k for k, (end, other) in enumerate(free) if end < first and other.dtype == region.dtype]
        if not past:
            free.append((last, region))
            continue
        best = min(past, key=lambda k: abs(free[k][1].size - region.size))
        other = free[best][1]
        other.size = max(other.size, region.size)
        free[best] = last, other
        other.names.append(region.name)
        names[region.name] = other.name
        gone.append(region)
    for line in lines_in(body) if names else ():
        line.text = NAME.sub(lambda match: names.get(match[0], match[0]), line.text)
    for region in gone:
        region.name = names[region.name]
    return gone


def _uses(body: Sequence[Line], names: set[str]) -> dict[str, tuple[int, int]]:
    """Return the first and the last statement that uses memory, by its name."""
    uses: dict[str, tuple[int, int]] = {}
    for number, statement in enumerate(body):
        for line in lines_in([statement]):
            for name in names.intersection(NAME.findall(line.text)):
                uses[name] = uses.get(name, (number, number))[0], number
    return uses


def arrange_memory(body: Sequence[Line], regions: Sequence[Region]) -> list[Region]:
    """Let workspace be used again, and begin where it suits the loops; return the regions that are gone."""
    gone, begins = share_memory(body, regions), begins_of(body)
    for region in regions:
        region.begin = begins.get(region.name, 0)
    return gone


# A printed program with extents and strides as arguments, so that programs of other sizes share its machine code.

LEAST = 17  # the least extent that is an argument: those of small arrays are worth knowing to LLVM
_TOKEN = re.compile(
    r"local_\w+\(\d+\)|load_i8\(table \+ \d+\)|[A-Za-z_]\w*|\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|(?P<whole>\d+)"
)
"""What is looked at as a whole; the sizes of local arrays and places in tables are no arguments."""
_FUNCTION = re.compile(r"^(def (?:program|loop\d+|part\d+)\(.*\)(?: -> Word)?:\n)((?: .*\n|\n)*)", re.MULTILINE)
"""The head and the body of a function."""
_WHOLE_FLOAT = re.compile(r"(\d+)\.0")


class SharedSizes:
    """The text of a program that reads integers from :data:`LEAST` on from the memory ``pointer``, behind ``first``.

    So it does floats that are the number of some elements, which means divide by. Such numbers that the text has by
    chance are arguments, too, which changes nothing but what LLVM knows. In functions of parts of loops ``pointer`` is
    there from their first line on.
    """

    def __init__(self, text: str, extents: Collection[int], pointer: str, first: int) -> None:
        self._pointer, self._first = pointer, first
        self._extents = extents
        self._places: dict[int, int] = {}
        self.text = _FUNCTION.sub(lambda match: match[1] + self._function(match[2]), text)
        self.numbers = [*self._places]
        """What the memory has to hold, from ``first`` on."""

    def _function(self, body: str) -> str:
        """Return the body of a function, in which numbers are variables that it starts with."""
        self._used: dict[str, str] = {}
        body = _TOKEN.sub(self._token, body)
        first, _, rest = body.partition("\n")
        opening, body = (f"{first}\n", rest) if first.startswith(f"    {self._pointer} = ") else ("", body)
        return opening + "".join([f"    {name} = {value}\n" for name, value in self._used.items()]) + body

    def _token(self, match: re.Match[str]) -> str:
        token = match[0]
        if match["whole"] is not None:
            return self._variable(int(token)) if int(token) >= LEAST else token
        whole = _WHOLE_FLOAT.fullmatch(token)
        if not whole or not self._counts(int(whole[1])):
            return token
        name = self._variable(int(whole[1]))
        self._used[f"f_{name}"] = f"np.float64({name})"
        return f"f_{name}"

    def _variable(self, number: int) -> str:
        place = self._places.setdefault(number, len(self._places))
        self._used[f"size{place}"] = f"{self._pointer}[{self._first + place}]"
        return f"size{place}"

    def _counts(self, number: int) -> bool:
        """Whether so many are elements along one axis or two, or one less, as in unbiased variances."""
        return any(
            n in self._extents or any(n % extent == 0 and n // extent in self._extents for extent in self._extents)
            for n in (number, number + 1)
        )


# Where memory of a printed program begins, so that vectors that its loops read and write are in one line of the cache.
#
# A vector that crosses two lines takes twice as long, and a stencil's never all begin where a line does: most should.

_ITEM, _LANES = 8, 8  # bytes of an element, and elements of a line of the cache, which a vector has, too
_LEAST_ALIGNED = 64  # steps of a loop that matters
_STORE, _MANY = 2, 1 << 8  # what a store counts, in loads, and a loop in others, in steps
_ALIGNED = "wdt"  # the first letters of memory whose begin can be chosen: values, gradients, and what is saved


def begins_of(body: Sequence[Line]) -> dict[str, int]:
    """Return by how many bytes behind a line of the cache memory should begin, by name; others are best at one."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for loop, steps in _innermost(body, 1):
        vectors = {
            (use.region.name, use.index.constant + loop.span[0], 1 if use.how == "read" else _STORE)
            for line in lines_in(loop.body)
            for use in line.uses
            if use.region.name[0] in _ALIGNED and _is_row(use.index, loop.variable)
        }
        for name, element, weight in vectors:
            counts[name][-element % _LANES] += weight * steps
    best = {name: max(sorted(places), key=places.__getitem__) for name, places in counts.items()}
    return {name: _ITEM * place for name, place in best.items() if place}


def _is_row(index: Affine, variable: str) -> bool:
    """Whether elements of an index follow each other with a variable, and are moved by whole vectors with others."""
    return all(step == 1 if name == variable else step % _LANES == 0 for name, step in index.terms) and (
        index.step(variable) == 1
    )


def _innermost(body: Sequence[Line], times: int) -> Iterator[tuple[Suite, int]]:
    """Yield long loops over elements without others in them, and their steps; in loops of the program as if many."""
    for suite in body:
        if not isinstance(suite, Suite):
            continue
        yield from _innermost(suite.body, _MANY if suite.text.startswith("for k") else times)
        inner = any(isinstance(line, Suite) and line.variable for line in lines_in(suite.body))
        if suite.variable and not inner and suite.steps * times >= _LEAST_ALIGNED:
            yield suite, suite.steps * times


# What became of a program that was compiled: its loops, its nests, what kept two of these apart, and its workspace.

ROLES = {
    "w": ("values", "values"),
    "d": ("gradients", "gradients"),
    "t": ("intermediates", "values saved for the way back"),
    "z": ("checkpoints", "what a loop carries at the begin of each block of steps"),
    "u": ("intermediates", "what a guard found"),
    "q": ("intermediates", "addresses"),
    "f": ("intermediates", "sums over parts of loops, and what pieces hand on"),
}
"""What the regions of a workspace hold, by the first letters of their names: the kind of memory, and in words."""


@dataclass(slots=True, frozen=True)
class LoopAccount:
    """A loop: how often, the steps in the recipe of its own operations, and how many loops are around it.

    With ``ends`` it was recorded as one, that guards or a value end.
    """

    count: int
    steps: tuple[int, ...]
    depth: int
    ends: bool = False


@dataclass(slots=True, frozen=True)
class NestAccount:
    """A nest: how many statements, over how many elements, their steps in the recipe.

    ``apart`` are the step of a statement in an earlier nest over as many, and that of the statement here that could not
    join it; None where there is no such nest.
    """

    statements: int
    elements: int
    steps: tuple[int, ...]
    apart: tuple[int, int] | None


@dataclass(slots=True, frozen=True)
class CallAccount:
    """A call between nests: what is called, what runs it, its step in the recipe, and how often."""

    name: str
    by: str
    step: int
    times: int


@dataclass(slots=True, frozen=True)
class Account:
    """What a compiled program is made of; steps are those of the recipe."""

    lines: int  # of source, for value and gradient
    loops: tuple[LoopAccount, ...]
    nests: tuple[NestAccount, ...]
    calls: tuple[CallAccount, ...]
    straight: tuple[int, ...]  # steps that are in no loop
    memory: dict[str, tuple[int, int]]  # by kind of what stands in the workspace, how many, and their bytes


@dataclass(slots=True, eq=False)
class CompiledCode:
    """One native function, ``int64 run(int64 table)``, and what it takes.

    The table is the address of int64 words: the addresses of the arguments, of the constants, of the results, and
    that of ``work`` bytes of workspace, aligned to 64; behind that, if there are ``parts``, the address of these.
    An argument has the strides of its spec; a result is dense, in C order: the outputs, then the gradients of the
    first output by the arguments in ``differentiated``. The function returns -1, or the number of the guard that
    missed, or how many guards there are where a call gave up; then results are undefined. It keeps nothing between
    calls and writes to results and workspace alone. If there are ``owners``, Python may run in it: whoever calls it
    need not hold the interpreter's lock, but must not keep others from it.
    """

    address: int
    source: str
    """Native source that does the same without threads: a module in the part of Python that
    kernels/language/statements.py translates, whose cfunc is called ``run``."""
    arguments: list[Spec]
    constants: list[Array]
    outputs: list[Spec]
    gradients: list[Spec]
    differentiated: list[int]
    work: int
    elements: int  # how many elements are computed, about: the work of a call
    owners: list[Any] = field(default_factory=list)
    """What has to live as long as it: what native functions that it calls belong to."""
    parts: Array | None = None
    """Addresses of what it calls: parts of its loops, behind what runs them in threads, and pieces of a long one."""
    account: Account | None = None  # what became of the program; None of one that was written by hand


# The account of a program that is being compiled.


def account_of(program: RolledProgram, fusion: Fusion, storage: Storage, lines: int) -> Account:
    """Return the account of a program whose source, of so many lines, has been printed."""
    loops = tuple(_loops(program.body, storage.nested_history, 0))
    nests = tuple(_nests(fusion.root, fusion.apart))
    memory: dict[str, tuple[int, int]] = {}
    for region in storage.regions:
        if region.role == "work":
            kind, _ = ROLES[region.name[0]]
            count, size = memory.get(kind, (0, 0))
            memory[kind] = count + 1, size + region.size
    calls = tuple(calls_of(program, fusion))
    return Account(lines, loops, nests, calls, _steps(program.body), memory)


def _steps(body: list[RolledInstruction | Loop]) -> tuple[int, ...]:
    return tuple([item.line for item in body if isinstance(item, RolledInstruction)])


def calls_of(program: RolledProgram, fusion: Fusion) -> Iterator[CallAccount]:
    """Yield the calls of a program."""
    for placed in fusion.placed:
        statement = placed.statement
        if isinstance(statement, CallStatement) and statement.call.by:
            times = math.prod([program.loops[loop].count for loop in program.loops_around(statement.result.value)])
            yield CallAccount(statement.call.name, statement.call.by, statement.line, times)


def _loops(body: list[RolledInstruction | Loop], rows: Mapping[int, int], depth: int) -> Iterator[LoopAccount]:
    for item in body:
        if isinstance(item, Loop):
            most = rows.get(item.number, item.count)
            yield LoopAccount(most, _steps(item.body), depth, item.ends is not None)
            yield from _loops(item.body, rows, depth + 1)


def _nests(block: FusedBlock, apart: dict[str, tuple[int, int]]) -> Iterator[NestAccount]:
    for item in block.items:
        if isinstance(item, FusedLoop):
            yield from _nests(item.body, apart)
        elif isinstance(item, Nest):
            placed = [*item.body.placed()]
            elements = max(math.prod(p.statement.space) for p in placed)
            steps = tuple([p.statement.line for p in placed])
            yield NestAccount(len(placed), elements, steps, apart.get(item.name))
