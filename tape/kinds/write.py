"""Writes into parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.arrays.specs import Spec
from tape.kinds.kind import Kind, Operand, Planned, aligned
from tape.kinds.picking import located
from tape.operations import indexing


class WriteKind(Kind):
    """The same part of each example is written. Sweeps handle writes themselves."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> None:
        """Write into all examples."""
        part, value, *places = operands
        if places:
            if part.batched or value.batched or places[0].batched:
                raise NotImplementedError("vmap: an index of a compiled function, computed in it, cannot be mapped")
            indexing.assign_at(part.value, (places[0].value,), value.value, step.op.name, adds=True)
            return
        if not step.params:
            x, new = part.value, aligned(value, len(spec.shape))
            x.add_(new) if step.op.adds else x.copy_(new)
            return
        memory = step.params[0]
        x, key = located(part, memory)
        indexing.assign_at(x, key, aligned(value, memory.ndim), step.op.name, adds=step.op.adds)
