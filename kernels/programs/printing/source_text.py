"""Lines of native source, and what is done to them: memory is shared and aligned, sizes become arguments."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field

from kernels.foundation.tables import dataclass
from kernels.programs.differentiating.storage import Region
from kernels.programs.parts.printed_loops import HEAD, INDENT, outermost


class Text:
    """Lines of source, each with its depth."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def put(self, *lines: str) -> None:
        """Append lines at the present depth."""
        self.lines += [INDENT * self.depth + line for line in lines]

    def opened(self, line: str) -> None:
        """Append a line; what follows stands within it."""
        self.put(line)
        self.depth += 1

    def each(self, count: int, line: str) -> None:
        """Append a loop over so many ``i`` of one line."""
        self.put(f"for i in range({count}):", INDENT + line)


# Memory of a printed program that is used one after the other, as one: its pointers are told not to alias.

_NAME = re.compile(r"\b[a-z]\d+\b")
_LEAST_SHARED = 1 << 15
"""Bytes of memory up to which it is not worth it: parts of loops that threads run may have that for themselves."""


def share_memory(lines: list[str], regions: Sequence[Region]) -> list[Region]:
    """Let workspace have the name of such as is no longer used, in all lines; return the regions that are gone.

    Memory is in use from the first to the last statement, outside of all loops, that names it.
    """
    uses = _uses(lines, {region.name for region in regions})
    free: list[tuple[int, Region]] = []
    """Regions with the last statement that uses them."""
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
        names[region.name] = other.name
        other.names.append(region.name)
        gone.append(region)
    if names:
        lines[:] = [_NAME.sub(lambda match: names.get(match[0], match[0]), line) for line in lines]
    return gone


def _uses(lines: list[str], names: set[str]) -> dict[str, tuple[int, int]]:
    """Return the first and the last statement that uses memory, by its name."""
    uses: dict[str, tuple[int, int]] = {}
    for number, statement in enumerate(outermost(lines)):
        for name in names.intersection(_NAME.findall("\n".join(statement))):
            uses[name] = uses.get(name, (number, number))[0], number
    return uses


# A printed program with extents and strides as arguments, so that programs of other sizes share its machine code.

LEAST = 17
"""The least extent that is an argument: those of small arrays are worth knowing to LLVM."""
_TOKEN = re.compile(
    r"local_\w+\(\d+\)|load_i8\(table \+ \d+\)|[A-Za-z_]\w*|\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|(?P<whole>\d+)"
)
"""What is looked at as a whole; the sizes of local arrays and places in tables are no arguments."""
_FUNCTION = re.compile(r"^def (?:program|loop\d+|part\d+)\(.*\)(?: -> Word)?:\n", re.MULTILINE)
_END = re.compile(r"^(?=\S)", re.MULTILINE)
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
        pieces, at = [], 0
        for match in _FUNCTION.finditer(text):
            ending = _END.search(text, match.end())
            end = ending.start() if ending else len(text)
            pieces += [text[at : match.end()], self._function(text[match.end() : end])]
            at = end
        self.text = "".join([*pieces, text[at:]])
        self.numbers = [*self._places]
        """What the memory has to hold, from ``first`` on."""

    def _function(self, body: str) -> str:
        """Return the body of a function, in which numbers are variables that it starts with."""
        self._used: dict[str, str] = {}
        body = _TOKEN.sub(self._token, body)
        lines = [f"    {name} = {value}\n" for name, value in self._used.items()]
        opening = f"    {self._pointer} = "
        if body.startswith(opening):
            first, _, body = body.partition("\n")
            lines.insert(0, f"{first}\n")
        return "".join([*lines, body])

    def _token(self, match: re.Match[str]) -> str:
        token = match[0]
        if match["whole"] is not None:
            return self._variable(int(token)) if int(token) >= LEAST else token
        whole = _WHOLE_FLOAT.fullmatch(token)
        return self._float(int(whole[1])) if whole and self._counts(int(whole[1])) else token

    def _variable(self, number: int) -> str:
        place = self._places.setdefault(number, len(self._places))
        self._used[f"size{place}"] = f"{self._pointer}[{self._first + place}]"
        return f"size{place}"

    def _float(self, number: int) -> str:
        name = self._variable(number)
        self._used[f"f_{name}"] = f"np.float64({name})"
        return f"f_{name}"

    def _counts(self, number: int) -> bool:
        """Whether so many are elements along one axis or two, or one less, as in unbiased variances."""
        return any(
            n in self._extents or any(n % extent == 0 and n // extent in self._extents for extent in self._extents)
            for n in (number, number + 1)
        )


# Where memory of a printed program begins, so that vectors that its loops read and write are in one line of the cache.
#
# A vector that crosses two lines takes twice as long, and a stencil's never all begin where a line does: most should.

_ITEM, _LANES = 8, 8
"""Bytes of an element, and elements of a line of the cache, which a vector has, too."""
_LEAST_ALIGNED = 64
"""Steps of a loop that matters."""
_ALIAS = re.compile(r" *(i\w*) = (i\w*)(?: - (\d+))?")
_ELEMENT = re.compile(r"\b([wdt]\d+)\[([^\]]*)\]")
_STORE, _MANY = 2, 1 << 8
"""What a store counts, in loads, and a loop in others, in steps."""


@dataclass(slots=True)
class _Loop:
    """An innermost loop: how deep it is, where it begins, how many steps it has; and indices that follow its own."""

    depth: int
    first: int
    steps: int
    behind: dict[str, int]
    elements: set[tuple[str, int, int]] = field(default_factory=set)
    """Memory, which element a vector begins at, and what it counts."""


def begins_of(lines: list[str]) -> dict[str, int]:
    """Return by how many bytes behind a line of the cache memory should begin, by name; others are best at one."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for loop in _innermost(lines):
        for name, element, weight in loop.elements:
            counts[name][-element % _LANES] += weight * loop.steps
    best = {name: max(sorted(places), key=places.__getitem__) for name, places in counts.items()}
    return {name: _ITEM * place for name, place in best.items() if place}


def _innermost(lines: list[str]) -> Iterator[_Loop]:
    """Yield long loops without others in them; those in loops of the program count as if these had many steps."""
    loop = None
    within = 0
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if loop is not None and depth <= loop.depth:
            yield loop
            loop = None
        within = 0 if depth <= within else within
        head = HEAD.fullmatch(line)
        if head:
            first, steps = int(head[3] or 0), int(head[4]) - int(head[3] or 0)
            steps = steps * _MANY if within else steps
            loop = _Loop(depth, first, steps, {head[2]: 0}) if steps >= _LEAST_ALIGNED else None
        elif line.lstrip().startswith("for k"):
            within = within or depth
        elif loop is not None:
            _look(line, loop)
    if loop is not None:
        yield loop


def _look(line: str, loop: _Loop) -> None:
    """Take note of the elements of a line."""
    alias = _ALIAS.fullmatch(line)
    if alias and alias[2] in loop.behind:
        loop.behind[alias[1]] = loop.behind[alias[2]] + int(alias[3] or 0)
    for element in _ELEMENT.finditer(line):
        first = _first(element[2], loop)
        if first is not None:
            is_store = not line[: element.start()].strip()
            loop.elements.add((element[1], first, _STORE if is_store else 1))


def _first(index: str, loop: _Loop) -> int | None:
    """Return the element, but for whole vectors, that the first step of a loop is at; None of what is not in a row."""
    element, is_row = loop.first, False
    for term in index.split(" + "):
        times, _, name = term.rpartition(" * ")
        if term in loop.behind and not is_row:
            element, is_row = element - loop.behind[term], True
        elif term.isdigit():
            element += int(term)
        elif name in loop.behind or not times.isdigit() or int(times) % _LANES:
            return None
    return element if is_row else None
