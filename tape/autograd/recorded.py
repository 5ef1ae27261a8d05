"""A backward that is recorded itself: from roots with tensors for cotangents to tensors for gradients."""

from __future__ import annotations

from functools import partial

from kernels.graphs import Graph, mark
from kernels.observing import Seed
from kernels.words import TAPE_BITS
from tape.autograd import crossing, rules
from tape.autograd.accumulation import tape_of
from tape.autograd.arrivals import own_offset
from tape.autograd.gathered import Gathered
from tape.autograd.recorded_sweep import RecordedSweep
from tape.autograd.run import REACH, reached
from tape.tapes import Tape
from tape.tensor import Tensor


class RecordedRun(Gathered):
    """One backward whose operations are recorded; it frees nothing."""

    def sweep(self, seeds: list[tuple[Tensor, Tensor]]) -> None:
        """Sweep from roots with their cotangents."""
        computed = []
        for root, value in seeds:
            if type(root._slot) is int:
                computed.append((Seed(root._slot, root.spec, 1.0, own_offset(root) or 0), value))
            else:
                self.leaf(root._slot, rules.added(value))
        if not computed:
            return
        starts = [seed for seed, _ in computed]
        if len(starts) == 1 or len({seed.slot >> TAPE_BITS for seed in starts}) == 1:
            tape = tape_of(starts[0].slot)
            with tape.reading():
                graph = mark(tape.entries, tape.number, starts)
                if not graph.foreign():
                    self._sweep(graph, [tape], computed)
                    return
        with crossing.reading(starts) as (graph, tapes):
            self._sweep(graph, list(tapes.values()), computed)

    def _sweep(self, graph: Graph, tapes: list[Tape], starts: list[tuple[Seed, Tensor]]) -> None:
        sweep = RecordedSweep(self, graph, tapes, {seed.slot for seed, _ in starts})
        for seed, value in starts:
            sweep.contribute(seed.slot, seed.offset or 0, seed.spec, value, clean=True)
        token = REACH.set(partial(reached, graph, self.asked if self.restrict else None))
        try:
            found = sweep.run()
        finally:
            REACH.reset(token)
        for leaf, value in found:
            self.leaf(leaf, value)
