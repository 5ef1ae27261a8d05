"""The loops that lowered operations run, and what they compute."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from kernels.arrays.specs import Spec, Strides, broadcast
from kernels.codegen.loop_printer import Loop
from kernels.codegen.operand_spaces import Operand


class Expression(Protocol):
    """An elementwise operation, as far as a loop needs it."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the expression calls its operands."""

    @property
    def forward(self) -> Any:
        """The expression."""

    @property
    def vector(self) -> bool:
        """Whether large results are computed by our own kernel."""


def forward(op: Expression, result: Spec, specs: tuple[Spec, ...]) -> Loop:
    """Return the loop of an elementwise expression over its operands."""
    reads = [
        Operand(name, spec.dtype, k, broadcast(spec.shape, spec.strides, result.shape))
        for k, (name, spec) in enumerate(zip(op.inputs, specs, strict=True), start=1)
    ]
    target = Operand("target", result.dtype, 0, result.strides)
    return Loop(op.forward, result.shape, (target, *reads), pullback=False)


def same(x: Any) -> Any:
    """Return the operand: a copy."""
    return x


def tie(x: Any, y: Any) -> Any:
    """Count an element that ties with the extremum ``y``; nan ties with nan."""
    return np.where((x == y) | ((x != x) & (y != y)), 1.0, 0.0)


def spread(strides: Strides, rank: int, axes: Strides, keepdims: bool) -> Strides:
    """Return the strides of a reduction's result over the space of its input."""
    remaining = iter(strides)
    kept = [next(remaining) if keepdims or i not in axes else 0 for i in range(rank)]
    return tuple(0 if i in axes else stride for i, stride in enumerate(kept))
