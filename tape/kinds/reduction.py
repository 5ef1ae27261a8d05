"""Reductions on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.kinds.kind import Contribution, Kind, Operand, Planned
from tape.kinds.rule_pullbacks import RulePullbacks
from tape.kinds.rules_on_tensors import full, negative_zeros
from tape.operations import sums_and_extrema
from tape.recording import elementwise, views
from tape.tensors.tensor import Tensor, constant_tensor


class ReductionKind(Kind):
    """Axes stand behind that of the batch."""

    def pullbacks(self, form: Form) -> _Pullbacks:
        """Return what runs the pullbacks of instructions of a form."""
        return _Pullbacks(form)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Reduce each example."""
        del spec
        (x,), (axes, keepdims) = operands, step.params
        moved = tuple([axis + len(x.lead) for axis in axes])
        if len(moved) == 1:
            return sums_and_extrema.along(step.op, x.value, moved[0], None, keepdims, None, None)
        return elementwise.reduction(step.op, x.value, moved, keepdims, step.op.dims_grad_fn)


class _Pullbacks(RulePullbacks):
    """The rules of reductions, run before the cotangent is broadcast where they read nothing of the operand's shape."""

    def __init__(self, form: Form) -> None:
        super().__init__(form, {})
        spec = form.specs[0]
        assert spec is not None
        self.axes, self.keepdims = form.params
        self.shape = spec.shape
        self.wide = tuple(1 if k in self.axes else n for k, n in enumerate(self.shape))
        self.narrow = form.saved in ((), ("n",)) and not form.op.selects  # type: ignore[attr-defined]

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        if self.narrow:
            g = g if not g._form.spec.shape else full(g, self.form.spec.shape)
            value, clean = self.ruled(0, g, None if clean else negative_zeros(g), (*instruction.saved, g))
            return [(0, self._spread(value), clean)] if wanted else []
        if not wanted:
            return []
        form = self.form
        g = self._widened(full(g, form.spec.shape))
        values = [
            self._value(name, value, instruction, saved)
            for name, value in zip(form.saved, instruction.saved, strict=True)
        ]
        result, clean = self.ruled(0, g, None if clean else negative_zeros(g), (*values, g))
        return [(0, result if result._form.spec.shape == self.shape else views.expand(result, self.shape), clean)]

    def _value(self, name: str, value: Any, instruction: Instruction, saved: Any) -> Any:
        """Return a saved value as a rule reads it, beside the operand."""
        if name == "x":
            return saved.read(instruction.operands[0], value, self.form.specs[0])
        if name == "y":
            return self._widened(saved.read(instruction.slot, value, self.form.spec))
        return self._widened(constant_tensor(value)) if isinstance(value, np.ndarray) else value

    def _widened(self, value: Tensor) -> Tensor:
        """Return a value of the result's shape with dims of length one for those that were reduced."""
        return value if self.keepdims or not value._form.spec.shape else views.reshape(value, self.wide)

    def _spread(self, value: Tensor) -> Tensor:
        """Return a value broadcast to the operand's shape; a 0-d one stays as it is."""
        return views.expand(self._widened(value), self.shape) if value._form.spec.shape else value
