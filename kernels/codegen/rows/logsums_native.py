"""The kernels of logsums for rows of doubles, one after the other; for floats the same text with their names.

The layout says how many rows, of how many elements. A row is done in parts that stay in the first cache, by loops that
vectorise. Pointers: the result, then the operands; logsumexp has memory for one part behind them.
"""

from __future__ import annotations

import math

import numpy as np

from kernels import vectormath
from kernels.compiler.jit import SIGNATURE, cfunc, njit
from kernels.native import accumulators
from kernels.native.memory import pointer_f8, store_f8

ITEM = 8
PART = np.uint64(1024)
INFINITY, ZERO, ONE = np.float64(np.inf), np.float64(0.0), np.float64(1.0)


@njit(error_model="numpy")
def largest(place, n):
    """Return the largest of n elements; any number if one is nan, which shows in what follows."""
    x, top = pointer_f8(place), -INFINITY
    for k in range(n):
        top = accumulators.greater(top, x[k])
    return top


@njit(error_model="numpy")
def total(place, n):
    """Return the sum of n elements."""
    x, s = pointer_f8(place), ZERO
    for k in range(n):
        s = accumulators.added(s, x[k])
    return s


@njit(error_model="numpy")
def product(left, right, n):
    """Return the sum of the products of n elements."""
    x, y, s = pointer_f8(left), pointer_f8(right), ZERO
    for k in range(n):
        s = accumulators.added(s, x[k] * y[k])
    return s


@njit(error_model="numpy")
def shifted(into, place, top, n):
    """Write exp(x - top) for n elements. In the loop of its caller the many constants would not stay in registers."""
    x, y = pointer_f8(place), pointer_f8(into)
    for k in range(n):
        y[k] = vectormath.exp(x[k] - top)


@njit(error_model="numpy")
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


@njit(error_model="numpy")
def log_vjp(into, cotangent, result, s, n):
    """Write g - exp(y) s for n elements."""
    g, y, target = pointer_f8(cotangent), pointer_f8(result), pointer_f8(into)
    for k in range(n):
        target[k] = g[k] - vectormath.exp(y[k]) * s


@cfunc(SIGNATURE, cache=True, error_model="numpy")
def logsumexp(layout, pointers, accumulate):
    n, row = np.uint64(layout[1]), pointers[1]
    for i in range(layout[0]):
        top = largest(row, n)
        if top == INFINITY or top == -INFINITY:
            top = ZERO
        store_f8(pointers[0] + i * ITEM, math.log(exponentials(pointers[2], 0, row, top, n)) + top)
        row += layout[1] * ITEM


@cfunc(SIGNATURE, cache=True, error_model="numpy")
def softmax(layout, pointers, accumulate):
    n = np.uint64(layout[1])
    for i in range(layout[0]):
        at = i * layout[1] * ITEM
        place, row = pointers[0] + at, pointers[1] + at
        s = exponentials(place, np.int64(PART) * ITEM, row, largest(row, n), n)
        into, share = pointer_f8(place), ONE / s  # one division: as many as there are elements would take half the time
        for k in range(n):
            into[k] = into[k] * share


@cfunc(SIGNATURE, cache=True, error_model="numpy")
def softmax_vjp(layout, pointers, accumulate):
    n = np.uint64(layout[1])
    for i in range(layout[0]):
        at = i * layout[1] * ITEM
        s = product(pointers[1] + at, pointers[2] + at, n)
        g, y, into = pointer_f8(pointers[1] + at), pointer_f8(pointers[2] + at), pointer_f8(pointers[0] + at)
        if accumulate:
            for k in range(n):
                into[k] += (g[k] - s) * y[k]
        else:
            for k in range(n):
                into[k] = (g[k] - s) * y[k] + ZERO


@cfunc(SIGNATURE, cache=True, error_model="numpy")
def log_softmax(layout, pointers, accumulate):
    n = np.uint64(layout[1])
    for i in range(layout[0]):
        at = i * layout[1] * ITEM
        place, row = pointers[0] + at, pointers[1] + at
        top = largest(row, n)
        s = math.log(exponentials(place, np.int64(PART) * ITEM, row, top, n))
        x, into = pointer_f8(row), pointer_f8(place)
        for k in range(n):
            into[k] = (x[k] - top) - s


@cfunc(SIGNATURE, cache=True, error_model="numpy")
def log_softmax_vjp(layout, pointers, accumulate):
    n = np.uint64(layout[1])
    for i in range(layout[0]):
        at = i * layout[1] * ITEM
        log_vjp(pointers[0] + at, pointers[1] + at, pointers[2] + at, total(pointers[1] + at, n), n)
