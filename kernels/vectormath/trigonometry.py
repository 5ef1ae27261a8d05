"""Sine, cosine, tangent of angles up to ``FURTHEST``, and the arctangent; what is taken off is pi / 2 in parts."""

from __future__ import annotations

import math

from kernels.vectormath.coefficients import FITS, HALF_PI, HALF_PI_FUSED, HALF_PI_ROUNDED, HALF_PI_SHORT
from kernels.vectormath.llvm_values import F8, Value, fast_two_sum

FURTHEST = {"double": 1.5e6, "single": 1e5}
"""Up to here a multiple of pi / 2 has 20 bits, and its products with the parts of pi / 2 are exact."""
_PER_HALF_PI = 0.6366197723675814


def beyond(x: Value) -> Value:
    """Whether an angle needs another method."""
    least = x.form.pattern(FURTHEST[x.form.name]) + 1
    return abs(x).word - least < x.form.pattern(math.inf) - least  # compared without a sign


def farther(far: Value, x: Value) -> Value:
    """Return a word whose sign is set if that of ``far`` is or the angle is ``beyond``."""
    word, least = abs(x).word, x.form.pattern(FURTHEST[x.form.name]) + 1
    return far | (~(word - least) & (word - x.form.pattern(math.inf)))


def _quarters(a: Value, *, steep: bool = False) -> tuple[Value, Value | None, Value]:
    """Return what is left of an angle by its quarter turns, and their number in a word.

    With it stands what rounding took from it, where that counts: in doubles, and in a ``steep`` function.
    """
    if a.fused:
        return _fused(a, steep=steep or a.form.is_double)
    if a.form.is_double:
        return _exact(a)
    wide = a.to(F8)
    n, word = wide.nearest(_PER_HALF_PI)
    left = wide - n * HALF_PI_SHORT[0] - n * HALF_PI_SHORT[1]
    r = left.to(a.form)
    return r, left.minus(r.to(F8)).to(a.form) if steep else None, word.to(a.form)


def _fused(a: Value, *, steep: bool) -> tuple[Value, Value | None, Value]:
    """Return the same by fused products: of their sums the first is exact, and the second known to its last bit."""
    n, word = a.nearest(_PER_HALF_PI)
    first, second, third = (n.constant(-part) for part in HALF_PI_FUSED[a.form.name])
    start = n.call("llvm.fma", first, a)
    r = n.call("llvm.fma", second, start)
    if not steep:
        return n.call("llvm.fma", third, r), None, word
    back = start.minus(r)
    rounded = start.minus(back).minus(r)
    return r, n.call("llvm.fma", second, back).plus(n.call("llvm.fma", third, rounded)), word


def _exact(a: Value) -> tuple[Value, Value, Value]:
    """Return the same of a double: a difference may be smaller than the error of a single product with pi / 2."""
    n, word = a.nearest(_PER_HALF_PI)
    start = a.minus(n.times(HALF_PI[0]))
    rest, last = n.times(HALF_PI[1]), n.times(HALF_PI[2])
    first = start.minus(rest)
    lost = start.minus(first).minus(rest)
    second = first.minus(last)
    lost = lost.plus(first.minus(second).minus(last) - n * HALF_PI[3])
    r = second.plus(lost)
    return r, second.minus(r).plus(lost), word


def _turned(a: Value, quarters: int) -> Value:
    """Return the sine of a positive angle plus so many quarters of a turn."""
    r, rest, word = _quarters(a)
    word = word + quarters
    square = r * r
    fits = FITS[a.form.name]
    more = r * (square * square.polynomial(fits["SIN"]))
    sine = r + (more if rest is None else more + rest)
    half = 0.5 * square
    near = 1.0 - half
    lost = a.constant(1.0).minus(near).minus(half)
    tail = square * square * square.polynomial(fits["COS"])
    cosine = near + (tail + (lost if rest is None else lost - r * rest))
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
    r, rest, word = _quarters(abs(x), steep=True)
    square = r * r
    more = r * (square * square.polynomial(FITS[r.form.name]["TAN"]))
    t = r + (more if rest is None else more + rest * (1.0 + square))
    return (word & 1).equals(1).select(-1.0 / t, t).signed(x.sign)


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
