"""The kernels of logsums for rows, one after the other, of float64 or float32.

The layout says how many rows, of how many elements. A row is done in parts that stay in the first cache, by loops that
vectorise. Pointers: the result, then the operands; logsumexp has memory for one part behind them.
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
