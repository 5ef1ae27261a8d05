"""Elementwise operations on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from kernels.kinds.elementwise import Elementwise
from kernels.ops.registry import OPS
from tape.kinds.kind import Contribution, Kind, Operand, Planned, aligned
from tape.kinds.rule_pullbacks import RulePullbacks
from tape.kinds.rules_on_tensors import full, negative_zeros, onto
from tape.operations import operators
from tape.tensors.tensor import Tensor

_STATIC = {op.scalar: op.name for op in OPS.values() if isinstance(op, Elementwise) and op.scalar}
RUN = {**operators.RUN, **{number: operators.RUN[name] for number, name in _STATIC.items()}}
"""The function of each elementwise record; one with a static number is a variant of another record."""


class ElementwiseKind(Kind):
    """Operands get as many dims behind the batch as the result has."""

    def pullbacks(self, form: Form) -> _Pullbacks:
        """Return what runs the pullbacks of instructions of a form."""
        return _Pullbacks(form)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Run the operation on a batch."""
        return run(step.op, [*[aligned(x, len(spec.shape)) for x in operands], *step.params])


def run(op: Elementwise, values: Sequence[Any]) -> Tensor:
    """Run an elementwise operation on operands that are aligned."""
    table = RUN if any(type(x) is Tensor for x in values) else operators.RUN
    return table[op.name](*values)  # type: ignore[no-any-return]


class _Pullbacks(RulePullbacks):
    """The rules on tensors of the saved values, which elementwise operations alone read."""

    def __init__(self, form: Form) -> None:
        super().__init__(form, {"p": form.params[0]} if form.params else {})
        names, self.shape = form.op.inputs, form.spec.shape
        self.alike = all(spec is None or spec.shape == self.shape for spec in form.specs)
        self.sources = tuple(names.index(name) if name in names else -1 for name in form.saved)

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        form, operands = self.form, instruction.operands
        have = g._form.spec.shape
        if have != self.shape and (have or not self.alike):
            g = full(g, self.shape)
        cut = None if clean else negative_zeros(g)
        values = []
        for at, value in zip(self.sources, instruction.saved, strict=True):
            slot, spec = (instruction.slot, form.spec) if at < 0 else (operands[at], form.specs[at])
            values.append(value if spec is None else saved.read(slot, value, spec))
        values.append(g)
        contributions = []
        for i in wanted:
            rule, take, cuts = self.rules[i]  # type: ignore[misc]
            if cut is None and not cuts and type(value := rule(*take(values))) is Tensor:
                clean = True  # the usual case
            else:
                value, clean = self.ruled(i, g, cut, values)
            contributions.append((i, value if self.alike else onto(value, form.specs[i].shape), clean))  # type: ignore[union-attr]
        return contributions
