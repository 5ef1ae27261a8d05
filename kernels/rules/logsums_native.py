"""The kernels of logsums for rows, one after the other, of float64 or float32.

The layout says how many rows, of how many elements. A row is done in parts that stay in the first cache, by loops that
vectorise. Pointers: the result, then the operands; logsumexp has memory for one part behind them.

Along a dim that is not the last (``column_...``), columns are done side by side. Layout: outer, length, inner, columns
at a time; behind the operands there is memory for two rows of columns.
"""

from __future__ import annotations

import math

import numpy as np

from kernels.language import vectormath
from kernels.language.llvm_values import Void, Word, Words
from kernels.rules import accumulators
from kernels.rules.elements import ITEM, pointer, real, store

PART = np.uint64(1024)
INFINITY, ZERO, ONE = real(np.inf), real(0.0), real(1.0)


def largest(place, n):
    """Return the largest of n elements; any number if one is nan, which shows in what follows."""
    x, top = pointer(place), -INFINITY
    for k in range(n):
        top = accumulators.greater(top, x[k])
    return top


def total(place, n):
    """Return the sum of n elements."""
    x, s = pointer(place), ZERO
    for k in range(n):
        s = accumulators.added(s, x[k])
    return s


def product(left, right, n):
    """Return the sum of the products of n elements."""
    x, y, s = pointer(left), pointer(right), ZERO
    for k in range(n):
        s = accumulators.added(s, x[k] * y[k])
    return s


def shifted(into, place, top, n):
    """Write exp(x - top) for n elements. In the loop of its caller the many constants would not stay in registers."""
    x, y = pointer(place), pointer(into)
    for k in range(n):
        y[k] = vectormath.exp(x[k] - top)


def exponentials(into, step, place, top, n):
    """Write exp(x - top) for n elements, part after part; return their sum."""
    s, done = ZERO, np.uint64(0)
    while done < n:
        m = min(PART, n - done)
        shifted(into, place + np.int64(done) * ITEM, top, m)
        s += total(into, m)
        into += step
        done += m
    return s


def log_vjp(into, cotangent, result, s, n):
    """Write g - exp(y) s for n elements."""
    g, y, target = pointer(cotangent), pointer(result), pointer(into)
    for k in range(n):
        target[k] = g[k] - vectormath.exp(y[k]) * s


def logsumexp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, row = np.uint64(layout[1]), pointers[1]
    for i in range(layout[0]):
        top = largest(row, n)
        if top == INFINITY or top == -INFINITY:
            top = ZERO
        store(pointers[0] + i * ITEM, math.log(exponentials(pointers[2], 0, row, top, n)) + top)
        row += layout[1] * ITEM


def softmax(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n = np.uint64(layout[1])
    for i in range(layout[0]):
        at = i * layout[1] * ITEM
        place, row = pointers[0] + at, pointers[1] + at
        s = exponentials(place, np.int64(PART) * ITEM, row, largest(row, n), n)
        into, share = pointer(place), ONE / s  # one division: as many as there are elements would take half the time
        for k in range(n):
            into[k] = into[k] * share


def softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n = np.uint64(layout[1])
    for i in range(layout[0]):
        at = i * layout[1] * ITEM
        s = product(pointers[1] + at, pointers[2] + at, n)
        g, y, into = pointer(pointers[1] + at), pointer(pointers[2] + at), pointer(pointers[0] + at)
        if accumulate:
            for k in range(n):
                into[k] += (g[k] - s) * y[k]
        else:
            for k in range(n):
                into[k] = (g[k] - s) * y[k] + ZERO


def log_softmax(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n = np.uint64(layout[1])
    for i in range(layout[0]):
        at = i * layout[1] * ITEM
        place, row = pointers[0] + at, pointers[1] + at
        top = largest(row, n)
        s = math.log(exponentials(place, np.int64(PART) * ITEM, row, top, n))
        x, into = pointer(row), pointer(place)
        for k in range(n):
            into[k] = (x[k] - top) - s


def log_softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n = np.uint64(layout[1])
    for i in range(layout[0]):
        at = i * layout[1] * ITEM
        log_vjp(pointers[0] + at, pointers[1] + at, pointers[2] + at, total(pointers[1] + at, n), n)


# Along a dim that is not the last.


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


def shifted_columns(into, place, tops, m):
    x, top, y = pointer(place), pointer(tops), pointer(into)
    for c in range(m):
        y[c] = vectormath.exp(x[c] - top[c])


def column_log_vjp(into, cotangent, result, sums, m):
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


def column_logsumexp(layout: Words, pointers: Words, accumulate: Word) -> Void:
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


def column_softmax(layout: Words, pointers: Words, accumulate: Word) -> Void:
    scratch, row = pointers[2], layout[3] * ITEM
    s = pointer(scratch + row)
    for step in range(steps(layout)):
        first, m = first_of(layout, step), columns_of(layout, step)
        tops(pointers[1] + first * ITEM, layout, m, scratch)
        for c in range(m):
            s[c] = ZERO
        for k in range(layout[1]):
            at = (first + k * layout[2]) * ITEM
            shifted_columns(pointers[0] + at, pointers[1] + at, scratch, m)
            into = pointer(pointers[0] + at)
            for c in range(m):
                s[c] += into[c]
        for c in range(m):
            s[c] = ONE / s[c]
        for k in range(layout[1]):
            into = pointer(pointers[0] + (first + k * layout[2]) * ITEM)
            for c in range(m):
                into[c] = into[c] * s[c]


def column_softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
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


def column_log_softmax(layout: Words, pointers: Words, accumulate: Word) -> Void:
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


def column_log_softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
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
            column_log_vjp(pointers[0] + at, pointers[1] + at, pointers[2] + at, pointers[3], m)
