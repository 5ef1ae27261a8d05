"""The kernels of logsums for rows of doubles, one after the other; for floats the same text with their names.

The layout says how many rows, of how many elements. A row is done in parts that stay in the first cache, by loops that
vectorise. Pointers: the result, then the operands; logsumexp has memory for one part behind them.
"""

from __future__ import annotations

import math

import numpy as np

from kernels import vectormath
from kernels.jit import SIGNATURE, cfunc, njit
from kernels.memory import pointer_f8, store_f8

ITEM = 8
PART, EIGHT = np.uint64(1024), np.uint64(8)
INFINITY, ZERO, ONE = np.float64(np.inf), np.float64(0.0), np.float64(1.0)


@njit(error_model="numpy")
def larger(a, b):
    return a if a > b else b  # noqa: FURB136 (max would look at nan)


@njit(error_model="numpy")
def largest(place, n):
    """Return the largest of n elements that are numbers; eight at a time, so that it vectorises."""
    x = pointer_f8(place)
    a = b = c = d = e = f = g = h = -INFINITY
    k = np.uint64(0)
    while k + EIGHT <= n:
        a, b, c, d = larger(x[k], a), larger(x[k + 1], b), larger(x[k + 2], c), larger(x[k + 3], d)
        e, f, g, h = larger(x[k + 4], e), larger(x[k + 5], f), larger(x[k + 6], g), larger(x[k + 7], h)
        k += EIGHT
    while k < n:
        a = larger(x[k], a)
        k += np.uint64(1)
    return larger(larger(larger(a, b), larger(c, d)), larger(larger(e, f), larger(g, h)))


@njit(error_model="numpy")
def total(place, n):
    """Return the sum of n elements, in a fixed order."""
    x = pointer_f8(place)
    a = b = c = d = e = f = g = h = ZERO
    k = np.uint64(0)
    while k + EIGHT <= n:
        a, b, c, d = a + x[k], b + x[k + 1], c + x[k + 2], d + x[k + 3]
        e, f, g, h = e + x[k + 4], f + x[k + 5], g + x[k + 6], h + x[k + 7]
        k += EIGHT
    while k < n:
        a += x[k]
        k += np.uint64(1)
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@njit(error_model="numpy")
def product(left, right, n):
    """Return the sum of the products of n elements, in a fixed order."""
    x, y = pointer_f8(left), pointer_f8(right)
    a = b = c = d = e = f = g = h = ZERO
    k = np.uint64(0)
    while k + EIGHT <= n:
        a, b = a + x[k] * y[k], b + x[k + 1] * y[k + 1]
        c, d = c + x[k + 2] * y[k + 2], d + x[k + 3] * y[k + 3]
        e, f = e + x[k + 4] * y[k + 4], f + x[k + 5] * y[k + 5]
        g, h = g + x[k + 6] * y[k + 6], h + x[k + 7] * y[k + 7]
        k += EIGHT
    while k < n:
        a += x[k] * y[k]
        k += np.uint64(1)
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@njit(error_model="numpy")
def exponentials(into, step, place, top, n):
    """Write exp(x - top) for n elements, part after part; return their sum."""
    s, done = ZERO, np.uint64(0)
    while done < n:
        m = min(PART, n - done)
        x, y = pointer_f8(place + np.int64(done) * ITEM), pointer_f8(into)
        for k in range(m):
            y[k] = vectormath.exp(x[k] - top)
        s += total(into, m)
        into += step
        done += m
    return s


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
        s = total(pointers[1] + at, n)
        g, y, into = pointer_f8(pointers[1] + at), pointer_f8(pointers[2] + at), pointer_f8(pointers[0] + at)
        for k in range(n):
            into[k] = g[k] - vectormath.exp(y[k]) * s
