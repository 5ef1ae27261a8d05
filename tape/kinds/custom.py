"""Jitted functions of the user's on tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kernels.arrays.specs import Spec
from tape.kinds.kind import Kind, Operand, Planned
from tape.recording import jitted_functions, views
from tape.tensors.tensor import Tensor


class CustomKind(Kind):
    """A jitted function is called for each example. Its vjp is compiled, and not differentiated again."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Call the function."""
        del spec
        (shapes,), (x,) = step.params, operands
        ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()

        def called(flat: Tensor) -> Tensor:
            starts = [0, *ends[:-1]]
            parts = [views.reshape(flat[s:e], shape) for s, e, shape in zip(starts, ends, shapes, strict=True)]
            return jitted_functions.call(step.op, tuple(parts))

        return views.stack([called(x.value[e]) for e in range(x.lead[0])]) if x.batched else called(x.value)
