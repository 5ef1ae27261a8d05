"""Where the first contribution to the gradient of a value meets each element once, so that it is stored, not added."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, TypeAlias

import numpy as np

from kernels.compiler import scalar_program as scalar
from kernels.compiler.adjoint import Adjoint
from kernels.compiler.scalar_program import walk
from kernels.compiler.storage import Storage

# Which nests read elements of one value at several places along their axes: stencils, whose reverse is a gather.

_MOST = 12
"""Shifts of a gather, at most: each is another copy of the body."""
_LONGEST = 1 << 10
"""Operations of all copies together, at most."""

Shift: TypeAlias = tuple[int, ...]


class ShiftedLoads(NamedTuple):
    """Loads of one value, each with its shift; ``constant`` is where a load would be that is not shifted."""

    loads: list[tuple[scalar.Load, Shift]]
    constant: int

    @property
    def value(self) -> int:
        """The value that they read."""
        return self.loads[0][0].address.value


class StencilGather(NamedTuple):
    """Loads that are shifted along one loop, or two around each other; ``shifts`` are all there are, in order."""

    loops: list[scalar.NestLoop]
    groups: list[ShiftedLoads]
    shifts: list[Shift]

    @property
    def most(self) -> Shift:
        """The largest shift along each loop."""
        return tuple(map(max, zip(*self.shifts, strict=True)))

    @property
    def body(self) -> scalar.ScalarBlock:
        """The body of the innermost loop."""
        return self.loops[-1].body


def gather_of(item: scalar.NestLoop, adjoint: Adjoint) -> StencilGather | None:
    """Return how the gradients of a nest's loads are gathered; None where they are added one by one."""
    loops = [item]
    if len(item.body.items) == 1 and isinstance(item.body.items[0], scalar.NestLoop):
        loops.append(item.body.items[0])
    body = loops[-1].body
    if any(
        isinstance(part, scalar.NestLoop | scalar.StepLoop) or getattr(part, "overwrites", False) for part in body.items
    ):
        return None
    touched = {part.address.value for part in body.items if isinstance(part, scalar.Store)}
    loads: dict[int, list[scalar.Load]] = defaultdict(list)
    for part in body.items:
        if isinstance(part, scalar.Load) and part.name in adjoint.reached and part.address.value not in touched:
            loads[part.address.value].append(part)
    each = [_group(parts, loops) for parts in loads.values()]
    groups = [group for group in each if group is not None]
    shifts = sorted({shift for group in groups for _, shift in group.loads})
    copies = sum(isinstance(part, scalar.Compute) for part in body.items) * len(shifts)
    if len(loops) > 1 and groups and not any(shift[0] != shifts[0][0] for shift in shifts):
        return None  # along the inner loop alone
    return StencilGather(loops, groups, shifts) if groups and len(shifts) <= _MOST and copies < _LONGEST else None


def _group(loads: list[scalar.Load], loops: list[scalar.NestLoop]) -> ShiftedLoads | None:
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
    return ShiftedLoads(list(zip(loads, shifts, strict=True)), constant)


def _places(constant: int, steps: list[int]) -> tuple[Shift, int]:
    """Return how many steps of each loop a byte offset is, and what remains."""
    place = []
    for step in steps:
        place.append(constant // step)
        constant %= step
    return tuple(place), constant


class FirstGradients:
    """``blocks`` has, by value, the block whose loads' gradients come first; ``only`` are values with no others."""

    def __init__(self, adjoint: Adjoint, storage: Storage) -> None:
        self.adjoint, self.storage = adjoint, storage
        self.blocks: dict[int, scalar.ScalarBlock] = {}
        self.only: set[int] = set()
        loads: dict[int, list[tuple[scalar.ScalarBlock, scalar.Load]]] = defaultdict(list)
        written: set[int] = set()
        for block, item in walk(adjoint.expansion.root):
            if isinstance(item, scalar.Load) and item.name in adjoint.reached:
                loads[item.address.value].append((block, item))
            elif isinstance(item, scalar.Store) and item.overwrites:
                written.add(item.address.value)
            elif isinstance(item, scalar.CallKernel):
                written |= {address.value for address in item.operands}
        for row in adjoint.expansion.rows:
            if row.phi in loads or row.phi in written:  # whose gradient is what the step before adds to
                written |= {row.start, row.update}
        for value, reads in loads.items():
            if value not in written:
                self._look(value, reads)

    def _look(self, value: int, loads: list[tuple[scalar.ScalarBlock, scalar.Load]]) -> None:
        block = loads[-1][0]
        here = [load for around, load in loads if around is block]
        together = all(around is block for around, _ in loads[-len(here) :])
        home = self.storage.buffers.get(self.adjoint.home(value))
        steps = [loop.loop.number for loop in block.loops() if isinstance(loop, scalar.StepLoop)]
        if not together or home is None or home.rows or steps != self.storage.program.loops_around(value):
            return
        if any(load.address.at for _, load in loads):
            return
        nests = [loop for loop in block.loops() if isinstance(loop, scalar.NestLoop)]
        if any(loop in nests for around, _ in loads if around is not block for loop in around.loops()):
            return  # steps of a nest alternate between these loads and those
        if self._meets_each(value, block, here):
            self.blocks[value] = block
            if len(here) == len(loads):
                self.only.add(value)

    def _meets_each(self, value: int, block: scalar.ScalarBlock, loads: list[scalar.Load]) -> bool:
        """Whether gradients of loads, those of one element summed, go to each element of a value once."""
        nests = [loop for loop in block.loops() if isinstance(loop, scalar.NestLoop)]
        spec = self.adjoint.expansion.program.values[value].spec
        item = spec.dtype.itemsize
        mask = np.zeros(self.storage.bytes_of(value) // item, np.bool_)
        terms, indices = {load.address.terms for load in loads}, sorted(loop.index for loop in nests)
        if len(mask) != spec.size or [sorted(name for name, _ in each) for each in terms] != [indices]:
            return False
        shift = {loop.index: 0 for loop in nests}
        constants = {load.address.constant for load in loads}
        gathers = [gather_of(loop, self.adjoint) for loop in nests[-2:]]
        gather = next((gather for gather in gathers if gather is not None and gather.loops[-1] is nests[-1]), None)
        group = gather and next((group for group in gather.groups if group.value == value), None)
        if gather is not None and group is not None:
            if len(group.loads) != len(loads):
                return False
            constants = {group.constant}
            shift |= dict(zip([loop.index for loop in gather.loops], gather.most, strict=True))
        stored = 0
        for constant in constants:
            places = np.array([constant // item])
            for loop in nests:
                step = dict(loads[0].address.terms)[loop.index] // item
                places = np.add.outer(places, np.arange(loop.extent + shift[loop.index]) * step).ravel()
            if places.max() >= len(mask):
                return False
            mask[places] = True
            stored += len(places)
        return bool(mask.all()) and stored == len(mask)
