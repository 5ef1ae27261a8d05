"""buffers handed on: a pullback that reads a cotangent for the last time may leave its result in the same memory.

Of elementwise pullbacks one contribution so needs no memory of its own, which halves what goes to and fro; where the
contribution is the cotangent itself, nothing is written at all.
"""

from __future__ import annotations

from dataclasses import replace

from kernels.arrays.specs import Spec, dense
from kernels.codegen.loop_printer import Loop
from kernels.native.words import ITSELF, NO_KERNEL, UNWANTED

LEAST = 1 << 13
"""Elements from which on it is worth a kernel of its own."""


def suits(pull: Loop, source: Spec, result: Spec, *, covers: bool) -> int:
    """Whether a pullback can leave its result in the cotangent's memory: UNWANTED as yet, ITSELF as it is, or NEVER."""
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
    """Return the loop that writes where it reads the cotangent: one pointer, which the compiler knows to be one."""
    target, cotangent, *others = pull.operands
    return replace(pull, operands=(replace(target, place=cotangent.place), cotangent, *others))


def run_of(pull: Loop) -> int:
    """Return how many elements side by side a pullback meets, each once: a first contribution may be stored there.

    0 where it meets others. What is before and behind them is all that must be set first.
    """
    target = pull.operands[0]
    alone = pull.pullback and pull.covers and target.offset is None
    return pull.steps if alone and target.strides == dense(pull.shape, target.dtype.itemsize) else 0
