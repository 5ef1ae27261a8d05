"""Which nests read elements of one value at several places along their axes: stencils, whose reverse is a gather."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, TypeAlias

from kernels.programs.differentiating.adjoint import Adjoint
from kernels.programs.expanding.scalar_program import Load, NestLoop, Operation, ScalarBlock, Store

_MOST = 12
"""Shifts of a gather, at most: each is another copy of the body."""
_LONGEST = 1 << 10
"""Operations of all copies together, at most."""

Shift: TypeAlias = tuple[int, ...]


class Group(NamedTuple):
    """Loads of one value, each with its shift; ``constant`` is where a load would be that is not shifted."""

    loads: list[tuple[Load, Shift]]
    constant: int

    @property
    def value(self) -> int:
        """The value that they read."""
        return self.loads[0][0].address.value


class Gather(NamedTuple):
    """Loads that are shifted along one loop, or two around each other; ``shifts`` are all there are, in order."""

    loops: list[NestLoop]
    groups: list[Group]
    shifts: list[Shift]

    @property
    def most(self) -> Shift:
        """The largest shift along each loop."""
        return tuple(map(max, zip(*self.shifts, strict=True)))

    @property
    def body(self) -> ScalarBlock:
        """The body of the innermost loop."""
        return self.loops[-1].body


def gather_of(item: NestLoop, adjoint: Adjoint) -> Gather | None:
    """Return how the gradients of a nest's loads are gathered; None where they are added one by one."""
    loops = [item]
    if len(item.body.items) == 1 and isinstance(item.body.items[0], NestLoop):
        loops.append(item.body.items[0])
    body = loops[-1].body
    if not all(isinstance(part, Load | Operation) or _is_plain(part) for part in body.items):
        return None
    touched = {part.address.value for part in body.items if isinstance(part, Store)}
    loads: dict[int, list[Load]] = defaultdict(list)
    for part in body.items:
        if isinstance(part, Load) and part.name in adjoint.reached and part.address.value not in touched:
            loads[part.address.value].append(part)
    each = [_group(parts, loops) for parts in loads.values()]
    groups = [group for group in each if group is not None]
    shifts = sorted({shift for group in groups for _, shift in group.loads})
    copies = sum(isinstance(part, Operation) for part in body.items) * len(shifts)
    if len(loops) > 1 and groups and not any(shift[0] != shifts[0][0] for shift in shifts):
        return None  # along the inner loop alone
    return Gather(loops, groups, shifts) if groups and len(shifts) <= _MOST and copies < _LONGEST else None


def _is_plain(part: object) -> bool:
    return not isinstance(part, NestLoop) and not hasattr(part, "loop") and not getattr(part, "overwrites", False)


def _group(loads: list[Load], loops: list[NestLoop]) -> Group | None:
    """Return loads of one value that are shifted along loops; None of others."""
    if len({(load.address.terms, load.address.at) for load in loads}) > 1 or len(loads) == 1:
        return None
    steps = [dict(loads[0].address.terms).get(loop.index, 0) for loop in loops]
    if min(steps) <= 0 or (len(steps) > 1 and steps[0] % steps[1]):
        return None
    places = [_places(load.address.constant, steps) for load in loads]
    if len({rest for _, rest in places}) > 1 or len({place for place, _ in places}) < len(loads):
        return None
    least = tuple(map(min, zip(*[place for place, _ in places], strict=True)))
    shifts = [tuple(a - b for a, b in zip(place, least, strict=True)) for place, _ in places]
    if any(shift >= loop.extent for each in shifts for shift, loop in zip(each, loops, strict=True)):
        return None
    if len(loops) > 1:
        row = steps[0] // steps[1]
        if least[1] + loops[1].extent + max(shift[1] for shift in shifts) > row:
            return None
    constant = sum(place * step for place, step in zip(least, steps, strict=True)) + places[0][1]
    return Group(list(zip(loads, shifts, strict=True)), constant)


def _places(constant: int, steps: list[int]) -> tuple[Shift, int]:
    """Return how many steps of each loop a byte offset is, and what remains."""
    place = []
    for step in steps:
        place.append(constant // step)
        constant %= step
    return tuple(place), constant
