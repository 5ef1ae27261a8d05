"""Pullbacks and pushforwards of small rows, whose elements may stand apart, for float64 or float32.

Layout: how many rows there are before each other, their length, how many stand side by side, the bits of a number.
Pointers: the target, the cotangent or tangent, then what is saved: the operand x, the result y where a rule has them.
What is of a row alone, as a sum, stands in order. A number of a row whose cotangent is nothing (-0.0) is skipped.
"""

from __future__ import annotations

import math

from kernels.language.native_types import Void, Word, Words
from kernels.native.memory import double_of
from kernels.rules.elements import ITEM, load, real, store

ZERO, ONE = real(0.0), real(1.0)
TWO = real(2.0)


def first(layout, row):
    """Where a row begins, in bytes."""
    return ((row // layout[2]) * layout[1] * layout[2] + row % layout[2]) * ITEM


def put(at, value, accumulate):
    store(at, load(at) + value if accumulate else value + ZERO)


def is_nothing(g):
    return g == ZERO and math.copysign(ONE, g) < ZERO


def keep_nothing(into, n, step, accumulate):
    """Leave a row without a contribution."""
    if not accumulate:
        for k in range(n):
            store(into + k * step, -ZERO)


def mean(x, n, step):
    s = ZERO
    for k in range(n):
        s += load(x + k * step)
    return s / real(n)


def product_of_others(x, n, step, at):
    product = ONE
    for k in range(n):
        if k != at:
            product *= load(x + k * step)
    return product


def has_zero(x, n, step):
    count = 0
    for k in range(n):
        count += load(x + k * step) == ZERO
    return count > 0


def spread_vjp(layout, into, x, g, accumulate):
    n, step = layout[1], layout[2] * ITEM
    m, factor = mean(x, n, step), g * (TWO / real(double_of(layout[3])))
    for k in range(n):
        put(into + k * step, factor * (load(x + k * step) - m), accumulate)


def spread_jvp(layout, x, t):
    n, step, s = layout[1], layout[2] * ITEM, ZERO
    m = mean(x, n, step)
    for k in range(n):
        s += load(t + k * step) * (load(x + k * step) - m)
    return s * (TWO / real(double_of(layout[3])))


def cumsum_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        into, g, s = pointers[0] + first(layout, row), pointers[1] + first(layout, row), ZERO
        for k in range(n - 1, -1, -1):
            s += load(g + k * step)
            put(into + k * step, s, accumulate)


def cumsum_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        into, t, s = pointers[0] + first(layout, row), pointers[1] + first(layout, row), ZERO
        for k in range(n):
            s += load(t + k * step)
            put(into + k * step, s, accumulate)


def softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first(layout, row), ZERO
        into, g, y = pointers[0] + at, pointers[1] + at, pointers[2] + at
        for k in range(n):
            s += load(g + k * step) * load(y + k * step)
        for k in range(n):
            put(into + k * step, load(y + k * step) * (load(g + k * step) - s), accumulate)


def log_softmax_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first(layout, row), ZERO
        into, g, y = pointers[0] + at, pointers[1] + at, pointers[2] + at
        for k in range(n):
            s += load(g + k * step)
        for k in range(n):
            put(into + k * step, load(g + k * step) - math.exp(load(y + k * step)) * s, accumulate)


def log_softmax_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        at, s = first(layout, row), ZERO
        into, t, y = pointers[0] + at, pointers[1] + at, pointers[2] + at
        for k in range(n):
            s += load(t + k * step) * math.exp(load(y + k * step))
        for k in range(n):
            put(into + k * step, load(t + k * step) - s, accumulate)


def prod_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        into, x = pointers[0] + first(layout, row), pointers[2] + first(layout, row)
        g, y = load(pointers[1] + row * ITEM), load(pointers[3] + row * ITEM)
        if is_nothing(g):
            keep_nothing(into, n, step, accumulate)
        elif has_zero(x, n, step):
            for k in range(n):
                put(into + k * step, g * product_of_others(x, n, step, k), accumulate)
        else:
            for k in range(n):
                put(into + k * step, g * (y / load(x + k * step)), accumulate)


def prod_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    n, step = layout[1], layout[2] * ITEM
    for row in range(layout[0] * layout[2]):
        t, x, s = pointers[1] + first(layout, row), pointers[2] + first(layout, row), ZERO
        y, zero = load(pointers[3] + row * ITEM), has_zero(x, n, step)
        for k in range(n):
            others = product_of_others(x, n, step, k) if zero else y / load(x + k * step)
            s += load(t + k * step) * others
        put(pointers[0] + row * ITEM, s, accumulate)


def var_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    for row in range(layout[0] * layout[2]):
        into, x = pointers[0] + first(layout, row), pointers[2] + first(layout, row)
        g = load(pointers[1] + row * ITEM)
        if is_nothing(g):
            keep_nothing(into, layout[1], layout[2] * ITEM, accumulate)
        else:
            spread_vjp(layout, into, x, g, accumulate)


def var_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    for row in range(layout[0] * layout[2]):
        at = first(layout, row)
        put(pointers[0] + row * ITEM, spread_jvp(layout, pointers[2] + at, pointers[1] + at), accumulate)


def std_vjp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    for row in range(layout[0] * layout[2]):
        into, x = pointers[0] + first(layout, row), pointers[2] + first(layout, row)
        g, y = load(pointers[1] + row * ITEM), load(pointers[3] + row * ITEM)
        if is_nothing(g):
            keep_nothing(into, layout[1], layout[2] * ITEM, accumulate)
        else:
            spread_vjp(layout, into, x, g / (TWO * y) if y != ZERO else ZERO, accumulate)


def std_jvp(layout: Words, pointers: Words, accumulate: Word) -> Void:
    for row in range(layout[0] * layout[2]):
        at, y = first(layout, row), load(pointers[3] + row * ITEM)
        t = spread_jvp(layout, pointers[2] + at, pointers[1] + at)
        put(pointers[0] + row * ITEM, t / (TWO * y) if y != ZERO else ZERO, accumulate)
