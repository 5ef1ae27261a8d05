"""Loops in blocks of steps: histories have the rows of one block, and what a loop carries is kept at each one's begin.

The reverse runs the steps of a block forward again from there: see Griewank, "Achieving logarithmic growth of temporal
and spatial complexity in reverse automatic differentiation" (1992). One level costs at most one more forward pass, and
needs memory for about as many steps as the root of their number.
"""

from __future__ import annotations

from collections.abc import Callable

from kernels.programs.differentiating.storage import Storage
from kernels.programs.expanding.expansion import Expansion
from kernels.programs.expanding.scalar_program import StepLoop, Store, walk

Blocks = dict[int, int]
"""Steps of a block, by the numbers of loops."""


def storage_within(budget: int, expansion: Expansion, place: Callable[[Blocks], Storage]) -> Storage:
    """Return a storage whose workspace fits into so many bytes, if that can be; else one that is as small as it gets.

    ``place`` makes it for these blocks. No more loops have blocks than is needed, those with the most steps first; a
    block is as long as fits.
    """
    best, blocks = place({}), Blocks()
    for loop in _loops(expansion):
        if best.work()[1] <= budget:
            break
        for storage in map(place, _trials(blocks, loop.loop.number, loop.loop.count)):
            if storage.work()[1] < best.work()[1]:
                best, blocks = storage, storage.blocks
            if best.work()[1] <= budget:
                break
    return best


def _trials(blocks: Blocks, loop: int, count: int) -> list[Blocks]:
    """Return blocks of half the steps of a loop, a quarter, and so on."""
    return [{**blocks, loop: -(-count >> k)} for k in range(1, count.bit_length()) if -(-count >> k) < count]


def _loops(expansion: Expansion) -> list[StepLoop]:
    """Return the outermost loops that can be begun anew from what they carry, those with the most steps first."""
    loops = [item for item in expansion.root.items if isinstance(item, StepLoop) and item.loop.ends is None]
    return sorted([item for item in loops if not _writes_outside(item, expansion)], key=lambda item: -item.loop.count)


def _writes_outside(item: StepLoop, expansion: Expansion) -> bool:
    """Whether a loop changes what was made before it."""
    stores = [part for _, part in walk(item.body) if isinstance(part, Store)]
    around = expansion.program.loops_around
    return any(item.loop.number not in around(store.address.value) for store in stores if store.overwrites)
