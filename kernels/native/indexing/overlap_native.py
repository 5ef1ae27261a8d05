"""How a part that is written, and the value written there, stand to each other in one memory."""

from __future__ import annotations

from kernels.native.call_structs import APART, OVERLAPPING, SAME
from kernels.native.memory import word

CONTROL = True


def stride_in(layout, at):
    """A stride of a nest of two operands, without its sign: of the first, then of the second."""
    return abs(word(layout, 3 + word(layout, 2) + at))


def steps_in(layout, at):
    """How often the same stride is taken."""
    axis = at % (word(layout, 2) + 1)
    return (word(layout, 1) if axis == 0 else word(layout, 2 + axis)) - 1


def extent_of(layout, operand, period, item):
    """How many bytes an operand extends over, its strides by multiples of a period left out; 0: of none."""
    axes, total = word(layout, 2) + 1, item
    for at in range(operand * axes, (operand + 1) * axes):
        stride = stride_in(layout, at)
        if period == 0 or stride % period != 0:
            total += stride * steps_in(layout, at)
    return total


def lowest(layout, operand):
    """Where the first byte of an operand is, from its first element on."""
    axes, total = word(layout, 2) + 1, 0
    for at in range(operand * axes, (operand + 1) * axes):
        total += min(word(layout, 3 + word(layout, 2) + at), 0) * steps_in(layout, at)
    return total


def are_same(layout, first, second):
    """Whether the two operands of a nest are the same elements in the same order."""
    axes, others = word(layout, 2) + 1, 0
    for axis in range(axes):
        others += 1 if word(layout, 2 + axes + axis) != word(layout, 2 + 2 * axes + axis) else 0
    return first == second and others == 0


def relation(layout: int, first: int, second: int, item: int) -> int:
    """How the elements of the two operands of a nest stand to each other, by where they begin and their strides.

    They are apart one behind the other in memory, or in each period of some stride, as rows, columns, blocks and every
    other element are. Other patterns count as overlapping, though they may be apart.
    """
    if are_same(layout, first, second):
        return SAME
    distance = first + lowest(layout, 0) - second - lowest(layout, 1)
    if distance >= extent_of(layout, 1, 0, item) or -distance >= extent_of(layout, 0, 0, item):
        return APART
    for at in range(2 * (word(layout, 2) + 1)):
        period = stride_in(layout, at)
        if period != 0:
            place = distance % period
            if place >= extent_of(layout, 1, period, item) and place + extent_of(layout, 0, period, item) <= period:
                return APART
    return OVERLAPPING
