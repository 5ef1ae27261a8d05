"""Where the first contribution to the gradient of a value meets each element once, so that it is stored, not added."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from kernels.programs.differentiating.adjoint import Adjoint
from kernels.programs.differentiating.gathered_gradients import Gather, Group, gather_of
from kernels.programs.differentiating.storage import Storage
from kernels.programs.expanding.scalar_program import Call, Load, NestLoop, ScalarBlock, StepLoop, Store, walk


class FirstGradients:
    """``blocks`` has, by value, the block whose loads' gradients come first; ``only`` are values with no others."""

    def __init__(self, adjoint: Adjoint, storage: Storage) -> None:
        self.adjoint, self.storage = adjoint, storage
        self.blocks: dict[int, ScalarBlock] = {}
        self.only: set[int] = set()
        loads: dict[int, list[tuple[ScalarBlock, Load]]] = defaultdict(list)
        written: set[int] = set()
        for block, item in walk(adjoint.expansion.root):
            if isinstance(item, Load) and item.name in adjoint.reached:
                loads[item.address.value].append((block, item))
            elif isinstance(item, Store) and item.overwrites:
                written.add(item.address.value)
            elif isinstance(item, Call):
                written |= {address.value for address in item.operands}
        for row in adjoint.expansion.rows:
            if row.phi in loads or row.phi in written:  # whose gradient is what the step before adds to
                written |= {row.start, row.update}
        for value, reads in loads.items():
            if value not in written:
                self._look(value, reads)

    def _look(self, value: int, loads: list[tuple[ScalarBlock, Load]]) -> None:
        block = loads[-1][0]
        here = [load for around, load in loads if around is block]
        together = all(around is block for around, _ in loads[-len(here) :])
        home = self.storage.buffers.get(self.adjoint.home(value))
        steps = [loop.loop.number for loop in block.loops() if isinstance(loop, StepLoop)]
        if not together or home is None or home.rows or steps != self.storage.program.loops_around(value):
            return
        if any(load.address.at for _, load in loads):
            return
        nests = [loop for loop in block.loops() if isinstance(loop, NestLoop)]
        if any(loop in nests for around, _ in loads if around is not block for loop in around.loops()):
            return  # steps of a nest alternate between these loads and those
        if self._meets_each(value, block, here):
            self.blocks[value] = block
            if len(here) == len(loads):
                self.only.add(value)

    def _meets_each(self, value: int, block: ScalarBlock, loads: list[Load]) -> bool:
        """Whether gradients of loads, those of one element summed, go to each element of a value once."""
        nests = [loop for loop in block.loops() if isinstance(loop, NestLoop)]
        spec = self.adjoint.expansion.program.values[value].spec
        item = spec.dtype.itemsize
        mask = np.zeros(self.storage.bytes_of(value) // item, np.bool_)
        if len(mask) != spec.size or not all(self._is_simple(load, nests) for load in loads):
            return False
        if len({load.address.terms for load in loads}) > 1:
            return False
        shift = {loop.index: 0 for loop in nests}
        constants = {load.address.constant for load in loads}
        gather, group = self._gathered(value, nests)
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

    def _gathered(self, value: int, nests: list[NestLoop]) -> tuple[Gather | None, Group | None]:
        """Return the gather of the innermost nests, and its group of loads of a value; None where there is none."""
        for loop in nests[-2:]:
            gather = gather_of(loop, self.adjoint)
            if gather is not None and gather.loops[-1] is nests[-1]:
                return gather, next((group for group in gather.groups if group.value == value), None)
        return None, None

    @staticmethod
    def _is_simple(load: Load, nests: list[NestLoop]) -> bool:
        return sorted(name for name, _ in load.address.terms) == sorted(loop.index for loop in nests)
