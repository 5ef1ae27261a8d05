"""Where memory of a printed program begins, so that vectors that its loops read and write are in one line of the cache.

A vector that crosses two lines takes twice as long, and a stencil's never all begin where a line does: most should.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import field

from kernels.foundation.data_classes import dataclass
from kernels.programs.parts.printed_loops import HEAD

_ITEM, _LANES = 8, 8
"""Bytes of an element, and elements of a line of the cache, which a vector has, too."""
_LEAST = 64
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
            loop = _Loop(depth, first, steps, {head[2]: 0}) if steps >= _LEAST else None
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
