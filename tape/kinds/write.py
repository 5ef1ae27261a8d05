"""Writes into parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.arrays.specs import Spec
from tape.kinds.kind import Kind, Operand, Planned, aligned
from tape.kinds.picking import key_of, located
from tape.operations import indexing


class WriteKind(Kind):
    """The same part of each example is written. Sweeps handle writes themselves."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> None:
        """Write into all examples."""
        part, value, *places = operands
        if places:
            new, key = aligned(value, len(places[0].shape)), key_of(part, places[0])
            indexing.assign_at(part.value, key, new, step.op.name, adds=step.op.adds)
            return
        if not step.params:
            x, new = part.value, aligned(value, len(spec.shape))
            x.add_(new) if step.op.adds else x.copy_(new)
            return
        memory = step.params[0]
        x, key = located(part, memory)
        indexing.assign_at(x, key, aligned(value, memory.ndim), step.op.name, adds=step.op.adds)
