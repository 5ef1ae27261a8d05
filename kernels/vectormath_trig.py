"""Sine, cosine, tangent of angles up to ``FURTHEST``, and the arctangent; what is taken off is pi / 2 in parts."""

from __future__ import annotations

from kernels.vectormath_fits import FITS, HALF_PI, HALF_PI_ROUNDED, HALF_PI_SHORT
from kernels.vectormath_values import F8, Value, fast_two_sum

FURTHEST = 1.5e6
"""Up to here a multiple of pi / 2 has 20 bits, and its products with the parts of pi / 2 are exact."""
_PER_HALF_PI = 0.6366197723675814


def beyond(x: Value) -> Value:
    """Whether an angle needs another method."""
    a = abs(x)
    return (a > FURTHEST) & (a < float("inf"))


def _less(x: Value, j: Value) -> tuple[Value, Value]:
    """Return x - j * pi / 2 as a sum of two."""
    if x.form is not F8:
        wide = x.to(F8)
        r = wide - j * HALF_PI_SHORT[0] - j * HALF_PI_SHORT[1]
        near = r.to(x.form)
        return near, (r.minus(near.to(F8))).to(x.form)
    start = x.minus(j.times(HALF_PI[0]))
    rest, last = j.times(HALF_PI[1]), j.times(HALF_PI[2])
    first = start.minus(rest)
    lost = start.minus(first).minus(rest)
    second = first.minus(last)
    lost = lost.plus(first.minus(second).minus(last) - j * HALF_PI[3])
    r = second.plus(lost)
    return r, second.minus(r).plus(lost)


def _turned(a: Value, quarters: int) -> Value:
    """Return the sine of a positive angle plus so many quarters of a turn."""
    n, word = a.to(F8).nearest(_PER_HALF_PI)
    r, rest = _less(a, n)
    word = word.to(a.form) + quarters
    square = r * r
    fits = FITS[a.form.name]
    sine = r + (r * (square * square.polynomial(fits["SIN"])) + rest)
    half = 0.5 * square
    near = 1.0 - half
    lost = a.constant(1.0).minus(near).minus(half)
    cosine = near + (square * square * square.polynomial(fits["COS"]) + (lost - r * rest))
    chosen = (word & 1).equals(1).select(cosine, sine)
    return chosen.signed((word >> 1) << (a.form.bits - 1))


def sin(x: Value) -> Value:
    """Return the sine of an angle up to FURTHEST."""
    return _turned(abs(x), 0).signed(x.sign)


def cos(x: Value) -> Value:
    """Return the cosine of an angle up to FURTHEST."""
    return _turned(abs(x), 1)


def tan(x: Value) -> Value:
    """Return the tangent of an angle up to FURTHEST."""
    a = abs(x)
    n, word = a.to(F8).nearest(_PER_HALF_PI)
    r, rest = _less(a, n)
    square = r * r
    t = r + (r * (square * square.polynomial(FITS[r.form.name]["TAN"])) + rest * (1.0 + square))
    odd = (word.to(x.form) & 1).equals(1)
    return (odd.select(-1.0, t) / odd.select(t, 1.0)).signed(x.sign)


def arctan(x: Value) -> Value:
    """Return the angle, within pi / 2, of a tangent."""
    a = abs(x)
    far = a > 1.0
    z = far.select(-1.0 / a, a)
    square = z * z
    high, low = HALF_PI_ROUNDED[x.form.name]
    start, lost = fast_two_sum(far.select(high, x.constant(0.0)), z)
    rest = z * (square * square.polynomial(FITS[x.form.name]["ATAN"]))
    return (start + (rest + far.select(lost + low, 0.0))).signed(x.sign)
