"""The exponential, its kin and the error function: exp(x) is 2**n times exp(r), where r lies within half of ln 2."""

from __future__ import annotations

import math

from kernels.vectormath.coefficients import FITS, LN2, LOG2E
from kernels.vectormath.llvm_values import Value, fast_two_sum, two_product, two_sum

_LARGEST = {"double": 710.0, "single": 89.0}
_LEAST = {"double": -746.0, "single": -104.0}
_TINY = {"double": 2.0**-28, "single": 2.0**-13}
_STEEPEST = {"double": 20.0, "single": 10.0}
_HALFWAY = 0.55
"""About here tanh(x) is 1/2."""
_HIGHEST = {"double": 710.7, "single": 89.6}


def reduced(x: Value) -> tuple[Value, Value, Value]:
    """Return n (in the low bits of a word), r, and what rounding took from r."""
    high, low = LN2[x.form.name]
    n, word = x.nearest(LOG2E)
    start, rest = x - n * high, n * low
    r = start.minus(rest)
    return word, r, start.minus(r).minus(rest)


def less_one(r: Value) -> Value:
    """Return exp(r) - 1 of a reduced number."""
    return r + r * r * r.polynomial(FITS[r.form.name]["EXP"])


def exp(x: Value) -> Value:
    """Return e**x."""
    word, r, _ = reduced(x.at_most(_LARGEST[x.form.name]).at_least(_LEAST[x.form.name]))
    return (1.0 + less_one(r)).scaled(word)


def exp2(x: Value) -> Value:
    """Return 2**x."""
    double = x.form.is_double
    x = x.at_most(1025.0 if double else 129.0).at_least(-1076.0 if double else -151.0)
    n, word = x.nearest(1.0)
    r = x.minus(n)
    return (1.0 + r * r.polynomial(FITS[x.form.name]["EXP2"])).scaled(word)


def expm1(x: Value) -> Value:
    """Return e**x - 1."""
    name = x.form.name
    word, r, rest = reduced(x.at_most(_LARGEST[name]).at_least(-40.0))
    half = word.power_of_two(at=0.5)  # 2**n itself would overflow before the result does
    y = r + (r * r * r.polynomial(FITS[name]["EXP"]) + rest)
    return (abs(x) < _TINY[name] * _TINY[name]).select(x, 2.0 * (half * y + half.minus(0.5)))


def logistic(x: Value) -> Value:
    """Return 1 / (1 + e**-x)."""
    word, r, rest = reduced((-abs(x)).at_least(_LEAST[x.form.name]))
    start, lost = fast_two_sum(r.constant(1.0), less_one(r))
    lost = (lost + rest) * (2.0 - start)  # about what is lost of e, relative to it
    e = start.scaled(word)
    below, more = fast_two_sum(r.constant(1.0), e)
    left = x < 0.0
    y = left.select(e, 1.0) / below
    return y + y * (left.select(lost, 0.0) - (more + e * lost) * left.select(1.0 - y, y))


def sinh(x: Value) -> Value:
    """Return (e**x - e**-x) / 2: a sum of sinh and cosh of n ln 2, which are powers of two, and of those of r."""
    fits, a = FITS[x.form.name], abs(x)
    bounded = a.at_most(_HIGHEST[x.form.name])
    n, word = bounded.nearest(LOG2E)
    r = bounded - n * LN2[x.form.name][0] - n * LN2[x.form.name][1]
    up, down = word.power_of_two(at=0.25), word.power_of_two(at=0.25, turned=True)
    low, high = up.minus(down), up.plus(down)  # a half of sinh and cosh: the whole would overflow
    square = r * r
    odd = square * r * square.polynomial(fits["SINH"])  # sinh(r) less r
    even = square * square.polynomial(fits["COSH"])  # cosh(r) less 1
    y = r * high + low + (even * low + odd * high)
    return (a < _TINY[x.form.name]).select(x, (2.0 * y).signed(x.sign))


def cosh(x: Value) -> Value:
    """Return (e**x + e**-x) / 2."""
    word, r, rest = reduced(abs(x).at_most(_HIGHEST[x.form.name]))
    e = (1.0 + (less_one(r) + rest)) * word.power_of_two(at=0.25)  # a quarter: the whole would overflow
    return 2.0 * (e + 0.0625 / e)


def tanh(x: Value) -> Value:
    """Return sinh(x) / cosh(x): a series, or what it lacks to 1."""
    a = abs(x)
    square = a * a
    near = a + a * (square * square.polynomial(FITS[x.form.name]["TANH"]))
    up = (a + a).at_most(2 * _STEEPEST[x.form.name])
    n, word = up.nearest(LOG2E)
    e = (up - n * math.log(2.0)).polynomial([1.0, 1.0, *FITS[x.form.name]["EXP"]])
    e = (e.word + (word << x.form.fraction)).real  # times 2**n
    return (a >= _HALFWAY).select(1.0 - 2.0 / (1.0 + e), near).signed(x.sign)  # near, nan stays


# The error function and its complement: a series up to 1/2, beyond it exp(-a*a) times a slow function of a.

_HALF = 0.5
_FAR = {"double": 28.0, "single": 10.5}
_POLE = 2.0


def _near(x: Value) -> Value:
    """Return erf(x) up to 1/2."""
    return x + x * (x * x).polynomial(FITS[x.form.name]["ERF"])


def _complement(a: Value) -> Value:
    """Return erfc(a) from 1/2 on: of each factor's rounding the first order is kept."""
    name = a.form.name
    a = a.at_most(_FAR[name]).at_least(_HALF)
    square, square_low = two_product(a, a)
    n, word = (-square).nearest(LOG2E)
    start, rest = -square - n * LN2[name][0], n * LN2[name][1] + square_low
    r = start.minus(rest)
    r_low = start.minus(r).minus(rest)
    series = r * r * r.polynomial(FITS[name]["EXP"]) + r_low
    power, power_low = fast_two_sum(r.constant(1.0), r)
    power, more = fast_two_sum(power, series)
    power_low = power_low + more
    t = (a - _POLE) / (a + _POLE)
    first, *others = FITS[name]["ERFC"]
    slow, slow_low = fast_two_sum(t.constant(first), t * t.polynomial(others))
    below, below_low = two_sum(2.0 * a, a.constant(1.0))
    above, above_low = two_product(power, slow)
    inverse = 1.0 / below
    quotient = above.times(inverse)
    back, back_low = two_product(quotient, below)
    rest = above.minus(back).minus(back_low) + above_low + (power_low * slow + slow_low * power) - quotient * below_low
    return (quotient + rest * inverse).scaled(word)


def erf(x: Value) -> Value:
    """Return the error function."""
    a = abs(x)
    return (a < _HALF).select(_near(a), 1.0 - _complement(a)).signed(x.sign)


def erfc(x: Value) -> Value:
    """Return 1 - erf(x)."""
    far = _complement(abs(x))
    return (abs(x) < _HALF).select(1.0 - _near(x), (x < 0.0).select(2.0 - far, far))
