"""Views of tensors: of a batch, the same view of all examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kernels.arrays.specs import Spec
from kernels.kinds.view import Part
from kernels.ops.registry import OPS
from tape.kinds.kind import Kind, Operand, Planned, aligned
from tape.operations import indexing
from tape.recording import record
from tape.tensors.tensor import Tensor

_TURNED = {"transpose", "permute", "t"}
INDEXED: frozenset[Any] = frozenset(OPS[name] for name in ("slice", "select", "newaxis", "alias", "unbind"))
"""The views that basic indices give."""


class ViewKind(Kind):
    """The batch's extent or index is put before the first parameter, a tuple. A sweep needs no pullback of a view."""

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Tensor:
        """Take the same view of all examples. ValueError where the memory does not allow it."""
        del spec
        x, name = operands[0], step.op.name
        (first, *rest) = step.params
        first = first if isinstance(first, tuple) else (first,)
        if step.op in INDEXED:
            return indexing.index(x.value, (slice(None), *first) if x.batched else first)
        if not x.batched:
            return record.view(step.op, x.value, step.params)
        if name in _TURNED:
            params: Any = ((0, *[axis + 1 for axis in first]),)
        elif name == "as_strided" or isinstance(step.op, Part):
            params = ((*x.lead, *first), (math.prod(x.shape), *rest[0]), rest[1])
        else:
            params = ((*x.lead, *first),)
            x = Operand(aligned(x, max(len(first), len(x.shape))), batched=True) if name == "expand" else x
        return record.view(step.op, x.value, params)
