"""Logarithms and powers: x is 2**k times m, where m lies within the square root of 2 of 1."""

from __future__ import annotations

import math

from kernels.vectormath.coefficients import FITS, LN2, LN2_LONG, LOG2E, LOG10_2, TWO_THIRDS
from kernels.vectormath.exponentials import less_one
from kernels.vectormath.llvm_values import F4, F8, Value, fast_two_sum, less_product, two_product

_ROOT = math.sqrt(0.5)
_EXACT = {"double": 2.0**53, "single": 2.0**24}
"""Up to here 1 + x, less 1, is exact."""


def _split(x: Value) -> tuple[Value, Value, Value]:
    """Return the k of a positive normal number, as a float and as an exponent in its place, and m."""
    form = x.form
    moved = x.word - form.pattern(_ROOT)
    low = (1 << form.fraction) - 1
    return moved.shifted_down(form.fraction).number, moved & ~low, ((moved & low) + form.pattern(_ROOT)).real


def _any(x: Value) -> tuple[Value, Value]:
    """Return k and m of a positive number, subnormal ones too; for others but 0, k is what the logarithm is."""
    form = x.form
    least, places = 1 << form.fraction, form.fraction + 2
    odd = x.word - least >= form.pattern(math.inf) - least  # negative, subnormal or not finite
    k, _, m = _split(odd.select(x * 2.0**places, x))
    return odd.select(k.plus(_end(x).minus(float(places))), k), m


def _end(x: Value) -> Value:
    """Return nan of negative numbers, and others as they are."""
    nan = x.form.pattern(math.nan)
    return (x.word < nan).select(x.word, nan).real


def _series(f: Value, scale: float = 1.0) -> Value:
    """Return ``scale`` times log(1 + f): s times the rest is what f has too much."""
    s = f / (2.0 + f)
    z = s * s
    rest = f - z * z.polynomial(FITS[f.form.name]["LOG"])
    if scale == 1.0:
        return f - s * rest
    return -less_product(s * scale * rest, f, f.constant(scale))  # more than one rounding would be seen


def _logarithm(x: Value, of_two: float, scale: float = 1.0, more: float = 0.0) -> Value:
    """Return ``scale`` times the natural logarithm; ``of_two``, and ``more`` of it if need be, is that of 2."""
    k, m = _any(x)
    y = _series(m.minus(1.0), scale)
    return x.equals(0.0).select(-math.inf, k * of_two + (k * more + y if more else y))


def log(x: Value) -> Value:
    """Return the natural logarithm."""
    return _logarithm(x, math.log(2.0))


def log2(x: Value) -> Value:
    """Return the logarithm to base 2."""
    return _logarithm(x, 1.0, LOG2E)


def log10(x: Value) -> Value:
    """Return the logarithm to base 10."""
    of_two, more = LOG10_2[x.form.name]
    return _logarithm(x, of_two, math.log10(math.e), more)


def log1p(x: Value) -> Value:
    """Return log(1 + x): what rounding took from 1 + x comes back in f, which is x where k is 0."""
    form = x.form
    u = x.plus(1.0)
    lost = x.minus(u.minus(1.0))
    k, stored, m = _split(u)
    f = m.minus(1.0)
    f = (x < _EXACT[form.name]).select(f + lost * (form.pattern(1.0) - stored).real, f)
    y = k * math.log(2.0) + _series(f)
    y = (u.word < form.pattern(math.inf)).select(y, _end(u))
    return u.equals(0.0).select(-math.inf, y).call("llvm.copysign", x)


def _long_log(x: Value) -> tuple[Value, Value]:
    """Return log of a positive double as a sum of two, to 2**-64 of it."""
    k, m = _any(x)
    f, d = m.minus(1.0), m.plus(1.0)
    inverse = 1.0 / d
    s = f.times(inverse)
    s_low = (less_product(f, s, d) - s * m.minus(d.minus(1.0))) * inverse
    z, z_low = two_product(s, s)
    z_low = z_low + 2.0 * s * s_low
    c, c_low = two_product(s, z)
    c_low = c_low + (s * z_low + s_low * z)
    e, e_low = two_product(c, c.constant(TWO_THIRDS[0]))
    e_low = e_low + (c * (z * z.polynomial(FITS["double"]["POW"]) + TWO_THIRDS[1]) + c_low * TWO_THIRDS[0])
    a, a_low = fast_two_sum(2.0 * s, e)
    high, low = fast_two_sum(k * LN2_LONG[0], a)
    return fast_two_sum(high, low.plus(k * LN2_LONG[1] + (2.0 * s_low + e_low + a_low)))


def _double_power(x: Value, y: Value) -> Value:
    high, low = _long_log(x)
    p, p_low = two_product(y, high)
    p_low = p_low + y * low
    bounded = p.at_most(750.0).at_least(-750.0)
    p_low = p.equals(bounded).select(p_low, 0.0)
    n, word = bounded.nearest(LOG2E)
    r = (bounded - n * LN2["double"][0]) - (n * LN2["double"][1] - p_low)
    return (1.0 + less_one(r)).scaled(word)


def _single_power(x: Value, y: Value) -> Value:
    """Return a power of floats, as doubles: these need no corrections."""
    x, y = x.to(F8), y.to(F8)
    k, _, m = _split(x)
    s = m.minus(1.0) / m.plus(1.0)
    z = s * s
    logarithm = k * (LN2_LONG[0] + LN2_LONG[1]) + s * (2.0 + z * z.polynomial(FITS["double"]["LOGW"]))
    p = (y * logarithm).at_most(100.0).at_least(-110.0)
    n, word = p.nearest(LOG2E)
    r = p - n * (LN2_LONG[0] + LN2_LONG[1])
    e = 1.0 + r + r * r * r.polynomial(FITS["double"]["EXPW"])
    return (e * word.power_of_two()).to(F4)


def power(x: Value, y: Value) -> Value:
    """Return x**y; at the ends what C's pow returns."""
    a = abs(x)
    result = (_double_power if x.form.is_double else _single_power)(a, y.within(2.0**65))
    ends = a.equals(0.0) | a.equals(math.inf)
    result = ends.select(((y > 0.0) ^ a.equals(0.0)).select(math.inf, x.constant(0.0)), result)
    whole = y.call("llvm.trunc").equals(y)
    half = 0.5 * y
    odd = whole & ~half.call("llvm.trunc").equals(half)
    result = odd.select(result.signed(x.sign), result)
    result = ((x < 0.0) & (a < math.inf) & ~whole).select(math.nan, result)
    result = x.unordered(y).select(math.nan, result)
    return (y.equals(0.0) | x.equals(1.0)).select(1.0, result)


def whole(x: Value, n: Value) -> Value:
    """Return x**n for a whole n up to 4, the same for all elements: products, as in kernels/records/symbols.py."""
    square = x.times(x)
    odd = (n.equals(1.0) | n.equals(3.0)).select(x, 1.0)
    even = (n.equals(2.0) | n.equals(3.0)).select(square, 1.0)
    return n.equals(4.0).select(square.times(square), odd.times(even))


def rooted(x: Value, p: Value) -> Value:
    """Return x**p for a p up to 4 that is a multiple of a half: a product, a root, or an inverse of these."""
    size = abs(p)
    n = size.call("llvm.trunc")
    product = n.equals(size).select(1.0, x.call("llvm.sqrt")).times(whole(x, n))
    return (p < 0.0).select(1.0 / product, product)
