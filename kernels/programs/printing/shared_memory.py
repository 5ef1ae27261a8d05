"""Memory of a printed program that is used one after the other, as one: its pointers are told not to alias."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernels.programs.differentiating.regions import Region
from kernels.programs.parts.source_lines import outermost

_NAME = re.compile(r"\b[a-z]\d+\b")
_LEAST = 1 << 15
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
        if region.name not in uses or region.size <= _LEAST:
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
