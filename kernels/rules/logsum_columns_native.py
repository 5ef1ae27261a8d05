"""The kernels of logsums along a dim that is not the last: columns side by side, as many as the layout says.

Layout: outer, length, inner, columns at a time. Pointers: the result, the operands, memory for two rows of columns.
The elements are float64 or float32.
"""

from __future__ import annotations

import math

import numpy as np

from kernels.language import vectormath
from kernels.language.llvm_values import Void, Word, Words
from kernels.rules.elements import ITEM, pointer, real

INFINITY, ZERO, ONE = real(np.inf), real(0.0), real(1.0)


def first_of(layout, step):
    """Return the first element of the part of the columns that a step is at."""
    parts = (layout[2] + layout[3] - 1) // layout[3]
    return (step // parts) * layout[1] * layout[2] + (step % parts) * layout[3]


def columns_of(layout, step):
    """Return how many columns there are in it."""
    parts = (layout[2] + layout[3] - 1) // layout[3]
    return np.uint64(min(layout[3], layout[2] - (step % parts) * layout[3]))


def steps(layout):
    return layout[0] * ((layout[2] + layout[3] - 1) // layout[3])


def tops(place, layout, m, into):
    """Write the largest of each column."""
    x, top = pointer(place), pointer(into)
    for c in range(m):
        top[c] = x[c]
    for k in range(1, layout[1]):
        x = pointer(place + k * layout[2] * ITEM)
        for c in range(m):
            top[c] = max(top[c], x[c])


# What calls exp is a function for each row: in a nest of loops the many constants would not stay in registers.
def add_shifted(into, place, tops, m):
    x, top, s = pointer(place), pointer(tops), pointer(into)
    for c in range(m):
        s[c] += vectormath.exp(x[c] - top[c])


def shifted(into, place, tops, m):
    x, top, y = pointer(place), pointer(tops), pointer(into)
    for c in range(m):
        y[c] = vectormath.exp(x[c] - top[c])


def log_vjp(into, cotangent, result, sums, m):
    target, g, y, s = pointer(into), pointer(cotangent), pointer(result), pointer(sums)
    for c in range(m):
        target[c] = g[c] - vectormath.exp(y[c]) * s[c]


def sums(place, layout, m, tops, into):
    """Write the sum of exp(x - top) of each column."""
    s = pointer(into)
    for c in range(m):
        s[c] = ZERO
    for k in range(layout[1]):
        add_shifted(into, place + k * layout[2] * ITEM, tops, m)


def logsumexp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    scratch, row = pointers[2], layout[3] * ITEM
    top, s = pointer(scratch), pointer(scratch + row)
    for step in range(steps(layout)):
        first, m = first_of(layout, step), columns_of(layout, step)
        tops(pointers[1] + first * ITEM, layout, m, scratch)
        for c in range(m):
            top[c] = ZERO if top[c] == INFINITY or top[c] == -INFINITY else top[c]
        sums(pointers[1] + first * ITEM, layout, m, scratch, scratch + row)
        outer = first // (layout[1] * layout[2])
        y = pointer(pointers[0] + (first - outer * (layout[1] - 1) * layout[2]) * ITEM)
        for c in range(m):
            y[c] = math.log(s[c]) + top[c]


def softmax(layout: Words, pointers: Words, accumulate: Word) -> Void:
    scratch, row = pointers[2], layout[3] * ITEM
    s = pointer(scratch + row)
    for step in range(steps(layout)):
        first, m = first_of(layout, step), columns_of(layout, step)
        tops(pointers[1] + first * ITEM, layout, m, scratch)
        for c in range(m):
            s[c] = ZERO
        for k in range(layout[1]):
            at = (first + k * layout[2]) * ITEM
            shifted(pointers[0] + at, pointers[1] + at, scratch, m)
            into = pointer(pointers[0] + at)
            for c in range(m):
                s[c] += into[c]
        for c in range(m):
            s[c] = ONE / s[c]
        for k in range(layout[1]):
            into = pointer(pointers[0] + (first + k * layout[2]) * ITEM)
            for c in range(m):
                into[c] = into[c] * s[c]


def softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    s = pointer(pointers[3])
    for step in range(steps(layout)):
        first, m = first_of(layout, step), columns_of(layout, step)
        for c in range(m):
            s[c] = ZERO
        for k in range(layout[1]):
            at = (first + k * layout[2]) * ITEM
            g, y = pointer(pointers[1] + at), pointer(pointers[2] + at)
            for c in range(m):
                s[c] += g[c] * y[c]
        for k in range(layout[1]):
            at = (first + k * layout[2]) * ITEM
            g, y, into = pointer(pointers[1] + at), pointer(pointers[2] + at), pointer(pointers[0] + at)
            for c in range(m):
                into[c] = (g[c] - s[c]) * y[c]


def log_softmax(layout: Words, pointers: Words, accumulate: Word) -> Void:
    scratch, row = pointers[2], layout[3] * ITEM
    top, s = pointer(scratch), pointer(scratch + row)
    for step in range(steps(layout)):
        first, m = first_of(layout, step), columns_of(layout, step)
        tops(pointers[1] + first * ITEM, layout, m, scratch)
        sums(pointers[1] + first * ITEM, layout, m, scratch, scratch + row)
        for c in range(m):
            s[c] = math.log(s[c])
        for k in range(layout[1]):
            at = (first + k * layout[2]) * ITEM
            x, into = pointer(pointers[1] + at), pointer(pointers[0] + at)
            for c in range(m):
                into[c] = (x[c] - top[c]) - s[c]


def log_softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    s = pointer(pointers[3])
    for step in range(steps(layout)):
        first, m = first_of(layout, step), columns_of(layout, step)
        for c in range(m):
            s[c] = ZERO
        for k in range(layout[1]):
            g = pointer(pointers[1] + (first + k * layout[2]) * ITEM)
            for c in range(m):
                s[c] += g[c]
        for k in range(layout[1]):
            at = (first + k * layout[2]) * ITEM
            log_vjp(pointers[0] + at, pointers[1] + at, pointers[2] + at, pointers[3], m)
