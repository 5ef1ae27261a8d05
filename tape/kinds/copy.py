"""Copies of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.kinds.kind import Contribution, Kind, Operand, Planned, Pullbacks
from tape.kinds.rules_on_tensors import full
from tape.recording import record, views
from tape.tensors.tensor import Tensor


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
