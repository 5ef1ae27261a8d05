"""Routines on tensors."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.arrays.specs import Spec
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from tape.kinds.kind import Kind, Operand, Planned, Pullbacks, Values, batch_size
from tape.recording import routine_calls, views
from tape.tensors.tensor import Tensor


class RoutineKind(Kind):
    """A routine is called for each example; several results stand end to end."""

    def pullbacks(self, form: Form) -> Pullbacks:
        """Return what runs the pullbacks of instructions of a form."""
        return Pullbacks(form, _pull)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Call the routine."""
        del spec
        (frozen, *extra), op, size = step.params, step.op, batch_size(operands)

        def called(e: int) -> Tensor:
            results = routine_calls.call(op, *[x.value[e] if x.batched else x.value for x in operands], **dict(frozen))
            if not isinstance(results, tuple):
                return results  # type: ignore[no-any-return]
            if extra:
                return results[len(op.results) + extra[0]]  # type: ignore[no-any-return]
            parts = results[: len(op.results)]
            return parts[0] if len(parts) == 1 else views.cat([views.reshape(x, -1) for x in parts])

        return called(0) if size is None else views.stack([called(e) for e in range(size)])


def _pull(instruction: Instruction, i: int, g: Tensor, values: Values) -> Tensor:
    """Run the vjp of a routine whose pullback is a kernel."""
    call = instruction.form.params[0]
    gradient: Tensor = call.run(call.op.vjp, {**values, "g": g})[i]
    return gradient
