"""Operands side by side along an axis: the record, its instruction form, its tasks in a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from kernels.arrays.specs import Spec
from kernels.codegen.loop_printer import Loop, Operand
from kernels.codegen.tasks import node_of
from kernels.foundation.data_classes import dataclass
from kernels.instructions.form import Form, pulls_of
from kernels.kinds.program_interface import Lowering, Step
from kernels.records.op import Op
from kernels.records.symbols import Rule, passed


@dataclass(frozen=True, eq=False, kw_only=True)
class Join(Op):
    """Operands copied side by side along an axis."""

    contribution: ClassVar[str] = "its part of {}"
    repeatable: ClassVar[bool] = True

    join: Callable[..., Any]
    pullback: tuple[Rule | None, ...] = (lambda g: g,)

    def form(
        self, specs: Any, spec: Spec, wanted: tuple[bool, ...], params: tuple[Any, ...] = (), name: str = ""
    ) -> Form:
        """Return the form of a join along (axis, new); with ``new`` the axis is one that the operands do not have."""
        axis, new = params
        starts = np.cumsum([0] + [1 if new else source.shape[axis] for source in specs[:-1]])
        gradient = list(spec.gradient)
        stride = gradient[axis]
        if new:
            gradient.pop(axis)

        def pull(i: int, source: Spec) -> Loop:
            target = Operand("target", source.dtype, 0, source.gradient)
            cotangent = Operand("g", spec.dtype, 1, tuple(gradient), offset=int(starts[i]) * stride)
            return Loop(passed, source.shape, (target, cotangent))

        return Form(self, specs, spec, wanted, (), pulls_of(specs, wanted, pull), params, name)

    def lower(self, step: Step, lowering: Lowering) -> None:
        """Copy each operand to its part of the result."""
        axis, new = step.params
        strides = list(lowering.spec(step.result).strides)
        stride = strides[axis]
        if new:
            strides.pop(axis)
        start = 0
        for operand in step.operands:
            node = node_of(operand)
            lowering.copy_between(node, step.result, tuple(strides), start * stride)
            start += 1 if new else lowering.spec(node).shape[axis]

    def recomputed(self, form: Form, saved: tuple[Any, ...], *values: Any) -> Any:
        """Return the value of a result."""
        del saved
        return self.join(values, axis=form.params[0])
