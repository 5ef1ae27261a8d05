"""Reused cotangents: a pullback that reads a cotangent for the last time may leave its result in the same memory.

One contribution of an elementwise operation then needs no memory of its own, which halves memory traffic; where the
contribution is the cotangent itself, nothing is written at all.
"""

from __future__ import annotations

from dataclasses import replace

from kernels.arrays.specs import Spec, dense
from kernels.codegen.loop_printer import Loop
from kernels.native.tape_structs import ITSELF, NO_KERNEL, UNWANTED

LEAST = 1 << 13
"""Elements from which on it is worth a kernel of its own."""


def suits(pull: Loop, source: Spec, result: Spec, *, covers: bool) -> int:
    """Whether a pullback can leave its result in the cotangent's memory: UNWANTED as yet, ITSELF, or NO_KERNEL."""
    if not (covers and pull.pullback and pull.skips) or pull.scatter is not None or pull.gather is not None:
        return NO_KERNEL
    target, cotangent, *_ = pull.operands
    alike = target.dtype == cotangent.dtype and target.strides == cotangent.strides
    whole = (
        source.buffer_size == result.buffer_size == pull.steps >= LEAST and target.offset is cotangent.offset is None
    )
    if not (alike and whole):
        return NO_KERNEL
    expression = pull.expression
    return ITSELF if expression.head == cotangent.name and not expression.parts else UNWANTED


def in_place(pull: Loop) -> Loop:
    """Return the loop that writes where it reads the cotangent; both are one pointer, so that it vectorises."""
    target, cotangent, *others = pull.operands
    return replace(pull, operands=(replace(target, place=cotangent.place), cotangent, *others))


def run_of(pull: Loop) -> int:
    """Return how many adjacent elements a pullback writes, each once, so that a first contribution may be stored.

    0 for other patterns. Only the elements before and behind them have to be initialised.
    """
    target = pull.operands[0]
    alone = pull.pullback and pull.covers and target.offset is None
    return pull.steps if alone and target.strides == dense(pull.shape, target.dtype.itemsize) else 0
