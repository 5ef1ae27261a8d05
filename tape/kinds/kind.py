"""The interface of a kind of records: the pullbacks of a form on tensors, and one run of a step on a whole batch.

A batched tensor has the batch in front: extents (size, *those of the example). Rules call operations of tensors, so
that what they do is recorded. Operands that all examples share have no batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kernels.arrays.specs import Spec
from kernels.foundation.data_classes import dataclass
from kernels.instructions.entries import Instruction
from kernels.instructions.form import Form
from kernels.ops.registry import OPS
from tape.kinds.rules_on_tensors import full, negative_zeros
from tape.recording import record, views
from tape.tensors import modes
from tape.tensors.tensor import Tensor, constant_tensor

_VIEW: Any = OPS["view"]
Contribution = tuple[int, Tensor, bool]
"""The number of an operand, its contribution, and whether that is clean (see rules_on_tensors.py)."""
Values = dict[str, Any]


class Planned(Protocol):
    """A step of vmap's plan or of a program."""

    @property
    def op(self) -> Any:
        """Its record."""

    @property
    def params(self) -> tuple[Any, ...]:
        """The static parameters."""


@dataclass(slots=True)
class Operand:
    """An operand: a number, or a tensor whose example has this spec; ``batched`` if it is one for each example."""

    value: Any
    batched: bool = False
    spec: Spec | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of an example."""
        return () if self.spec is None else self.spec.shape

    @property
    def lead(self) -> tuple[int, ...]:
        """The extent of the batch, if there is one."""
        return (self.value.spec.shape[0],) if self.batched else ()


class Pullbacks:
    """The pullbacks of instructions of one form; ``pulled`` are the numbers of the operands that have one."""

    def __init__(self, form: Form, pull: Any = None) -> None:
        self.form, self.pull = form, pull
        self.pulled = tuple(i for i, pull in enumerate(form.pulls) if pull is not None)

    def run(
        self, instruction: Instruction, wanted: Sequence[int], g: Tensor, clean: bool, saved: Any
    ) -> list[Contribution]:
        """Return an instruction's contributions to operands; ``g`` is its cotangent, ``saved`` its saved tensors."""
        if self.pull is None:
            raise NotImplementedError(
                f"{self.form.op.name}: its vjp is compiled and cannot be differentiated again; write it as an "
                "autograd.Function"
            )
        values, g = saved.of(instruction), full(g, self.form.spec.shape)
        results = [(i, self.pull(instruction, i, g, values)) for i in wanted]
        return [(i, x, clean if x is g else negative_zeros(x) is None) for i, x in results]


class Kind:
    """A kind of records: how its pullbacks run on tensors, and its operations on a batch."""

    def pullbacks(self, form: Form) -> Pullbacks:
        """Return what runs the pullbacks of instructions of a form."""
        return Pullbacks(form)

    def batched(self, step: Planned, operands: Sequence[Operand], spec: Spec) -> Any:
        """Run a step on these operands; ``spec`` is that of the result of one example."""
        del operands, spec
        raise NotImplementedError(f"vmap: {step.op.name} has no batching rule; call it outside of the mapped function")


def batch_size(operands: Sequence[Operand]) -> int | None:
    """Return the extent of the batch; None where all examples share all operands."""
    return next((x.lead[0] for x in operands if x.batched), None)


def whole(x: Tensor, size: int, behind: int = 0) -> Tensor:
    """Return a tensor repeated for each example; the batch comes behind ``behind`` dims."""
    shape = x._form.spec.shape
    wide = (*shape[:behind], size, *shape[behind:])
    if x._slot is None and modes.active() is not None:  # no recorder is to be notified
        value = np.empty(wide, x._form.spec.dtype)
        value[...] = np.expand_dims(x._value, behind) if behind else x._value
        return constant_tensor(value)
    return views.clone(views.expand(views.unsqueeze(x, behind) if behind else x, wide))


def apart(x: Tensor, rank: int) -> Tensor:
    """Return a batched tensor with this many dims: dims of length one are inserted behind the batch."""
    shape = x._form.spec.shape
    return record.view(_VIEW, x, ((shape[0], *(1,) * (rank - len(shape)), *shape[1:]),))


def aligned(operand: Operand, rank: int) -> Any:
    """Return an operand with as many dims behind the batch as the example's result has."""
    if not operand.batched or len(operand.shape) == rank:
        return operand.value
    return apart(operand.value, rank + 1)
