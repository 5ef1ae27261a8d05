"""Views of tensors: of a batch, the same view of all examples."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.arrays.specs import Spec
from tape.kinds.kind import Kind, Operand, Planned, aligned
from tape.operations import indexing
from tape.recording import record
from tape.tensors.tensor import Tensor


class ViewKind(Kind):
    """The record says how its parameters change in a batch. A sweep needs no pullback of a view."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Take the same view of all examples. ValueError where the memory does not allow it."""
        (x,), op = operands, step.op
        if op.indexes:
            (key,) = step.params
            items = key if isinstance(key, tuple) else (key,)
            return indexing.index(x.value, (slice(None), *items) if x.batched else items)
        if not x.batched:
            return record.view(op, x.value, step.params)
        if op.batch is None:
            return super().batched(step, operands, spec)  # type: ignore[no-any-return]
        value = aligned(x, max(len(step.params[0]), len(x.shape))) if op.broadcasts else x.value
        return record.view(op, value, op.batch(*x.lead, x.shape, *step.params))
