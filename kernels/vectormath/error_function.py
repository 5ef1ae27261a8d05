"""The error function and its complement: a series up to 1/2, beyond it exp(-a*a) times a slow function of a."""

from __future__ import annotations

from kernels.vectormath.coefficients import FITS, LN2, LOG2E
from kernels.vectormath.double_double import fast_two_sum, two_product, two_sum
from kernels.vectormath.llvm_values import Value

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
