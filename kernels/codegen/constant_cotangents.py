"""Constant cotangents: all elements are one number, as after a sum; kept as the number, not written out.

A pullback may need two more kernels for them: one reads the number in place of elements, one computes a result that is
constant itself. They are compiled after a sweep has met the first such cotangent.
"""

from __future__ import annotations

from dataclasses import replace

from kernels.codegen.loop_printer import Loop
from kernels.native.tape_structs import ALWAYS, IF_INPUT_IS, NEVER

LEAST = 1 << 13
"""Elements from which on it is worth a kernel: a pass over fewer stays in the nearest cache."""


def reads_constant(pull: Loop, elements: int) -> bool:
    """Whether a pullback has a kernel that reads a constant cotangent of so many elements."""
    return pull.skips and pull.scatter is None and pull.gather is None and elements >= LEAST


def constant_result(pull: Loop, elements: int, *, covers: bool) -> int:
    """When a pullback's contribution to so many elements is constant: ALWAYS, IF_INPUT_IS or NEVER."""
    if not covers or elements < LEAST or pull.scatter is not None or pull.gather is not None:
        return NEVER
    _, cotangent, *others = pull.operands
    if any(stride for operand in others for stride in operand.strides):
        return NEVER
    return IF_INPUT_IS if any(cotangent.strides) or cotangent.offset is not None else ALWAYS


def reading_constant(pull: Loop) -> Loop:
    """Return the loop that reads a constant cotangent."""
    target, cotangent, *others = pull.operands
    everywhere = replace(cotangent, strides=(0,) * len(pull.shape), offset=None)
    return replace(pull, operands=(target, everywhere, *others))


def computing_constant(pull: Loop) -> Loop:
    """Return the loop that computes a constant result: a single element."""
    target, *others = reading_constant(pull).operands
    single = [replace(operand, strides=()) for operand in (replace(target, offset=None), *others)]
    return replace(pull, shape=(), operands=tuple(single))
