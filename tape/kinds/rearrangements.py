"""Kinds on tensors that move elements: views, copies, joins and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.kinds.kind import Contribution, Kind, Operand, Planned, Pullbacks, Values, aligned, batch_size
from tape.kinds.picking import key_of, located
from tape.kinds.rules_on_tensors import full
from tape.operations import indexing
from tape.recording import record, views
from tape.tensors.tensor import Tensor

# Views of tensors: of a batch, the same view of all examples.


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


# Copies of tensors.


class CopyKind(Kind):
    """A batch is copied whole."""

    def pullbacks(self, form: Form) -> _Pullbacks:
        """Return what runs the pullbacks of instructions of a form."""
        return _Pullbacks(form)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Copy all examples."""
        x: Tensor = operands[0].value
        return views.clone(x) if x.spec.dtype == spec.dtype else record.to_dtype(x, spec.dtype, step.op)


class _Pullbacks(Pullbacks):
    """Copies, which hand their cotangent on."""

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        del instruction, saved
        spec = self.form.specs[0]
        assert spec is not None
        same = g.spec.dtype == spec.dtype
        g = full(g, self.form.spec.shape) if g.spec.shape else g
        value = g if same else record.to_dtype(g, spec.dtype)
        return [(i, value, clean) for i in wanted]


# Joins of tensors.


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


# Writes into parts of tensors.


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
