"""Calls of Python in programs, on tensors."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.arrays.specs import Spec
from tape.kinds.kind import Kind, Operand, Planned, batch_size
from tape.recording import views
from tape.tensors.tensor import Tensor


class CallbackKind(Kind):
    """What a program calls is called for each example; several results stand end to end."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Call it."""
        del spec
        (function,), size = step.params, batch_size(operands)

        def called(e: int) -> Tensor:
            results = function.on_tensors([x.value[e] if x.batched else x.value for x in operands])
            return results[0] if len(results) == 1 else views.cat([views.reshape(x, -1) for x in results])

        return called(0) if size is None else views.stack([called(e) for e in range(size)])
