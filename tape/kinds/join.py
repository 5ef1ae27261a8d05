"""Joins of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.kinds.kind import Kind, Operand, Planned, Pullbacks, Values, batch_size
from tape.operations import indexing
from tape.recording import views
from tape.tensors.tensor import Tensor


class JoinKind(Kind):
    """The axis is counted behind that of the batch."""

    def pullbacks(self, form: Form) -> Pullbacks:
        """Return what runs the pullbacks of instructions of a form."""
        return Pullbacks(form, _pull)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Join the operands of each example."""
        del spec
        (axis, new), size = step.params, batch_size(operands)
        join = views.stack if new else views.cat
        if size is None:
            return join([x.value for x in operands], axis)
        return join([x.value if x.batched else views.expand(x.value, (size, *x.shape)) for x in operands], axis + 1)


def _pull(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    del values
    axis, new = instruction.form.params
    if new:
        return indexing.index(g, (slice(None),) * axis + (i,))
    extents = [spec.shape[axis] for spec in instruction.form.specs if spec is not None]
    start = sum(extents[:i])
    return indexing.index(g, (slice(None),) * axis + (slice(start, start + extents[i]),))
