"""Logarithms and powers: x is 2**k times m, where m lies within the square root of 2 of 1."""

from __future__ import annotations

import math

from kernels.vectormath_exp import less_one
from kernels.vectormath_fits import (
    FITS,
    LN2,
    LN2_LONG,
    LOG2_E,
    LOG2E,
    LOG10_2,
    LOG10_E,
    TWO_THIRDS,
)
from kernels.vectormath_values import F4, F8, Value, fast_two_sum, two_product, two_sum

_ROOT = math.sqrt(0.5)
_INVERSE = (2.8, -2.55, 0.76)
"""1 / m to some hundredths, which is enough for a correction."""


def _split(x: Value, lift: Value | None = None) -> tuple[Value, Value]:
    """Return k as a float and m, of a positive normal number times 2**-lift."""
    form = x.form
    root = form.pattern(_ROOT)
    word = x.word + (form.pattern(1.0) - root)
    m = ((word & ((1 << form.fraction) - 1)) + root).real
    k = ((word >> form.fraction) | form.pattern(2.0**form.fraction)).real
    k = k.minus(2.0**form.fraction + form.bias)
    return (k if lift is None else k.minus(lift)), m


def _any(x: Value) -> tuple[Value, Value]:
    """Return k and m of a positive number, subnormal ones too."""
    form = x.form
    tiny = x < 2.0 ** (1 - form.bias)
    places = form.fraction + 2
    return _split(tiny.select(x * 2.0**places, x), tiny.select(float(places), x.constant(0.0)))


def _series(f: Value) -> tuple[Value, Value]:
    """Return f * f / 2 and the rest of log(1 + f): f less the one, plus the other."""
    s = f / (2.0 + f)
    z = s * s
    half = 0.5 * f * f
    return half, s * (half + z * z.polynomial(FITS[f.form.name]["LOG"]))


def _at_ends(x: Value, y: Value) -> Value:
    """Return y where x is positive, and what a logarithm is of 0, inf, nan and negative numbers."""
    end = x.equals(0.0).select(-math.inf, (x < 0.0).select(math.nan, x))
    return (x.word - 1 < x.form.pattern(math.inf) - 1).select(y, end)  # 0 less 1 is the largest word


def log(x: Value) -> Value:
    """Return the natural logarithm."""
    k, m = _any(x)
    f = m.minus(1.0)
    half, rest = _series(f)
    high, low = LN2[x.form.name]
    return _at_ends(x, k * high - ((half - (rest + k * low)) - f))


def log1p(x: Value) -> Value:
    """Return log(1 + x)."""
    form = x.form
    u, lost = two_sum(x.constant(1.0), x)
    k, m = _split(u)
    stored = (u.word + (form.pattern(1.0) - form.pattern(_ROOT))) & (form.pattern(math.inf))
    lost = lost * (2 * form.pattern(1.0) - stored).real * m.polynomial(_INVERSE)
    whole = k.equals(0.0)
    f = whole.select(x, m.minus(1.0))
    half, rest = _series(f)
    high, low = LN2[x.form.name]
    rest = rest + (k * low + (whole | (k > form.fraction + 2.0)).select(0.0, lost))
    y = k * high - ((half - rest) - f)
    tiny = abs(x) < 2.0 ** (-x.form.fraction - 1)
    return tiny.select(x, _at_ends(u, y))


def log2(x: Value) -> Value:
    """Return the logarithm to base 2."""
    k, m = _any(x)
    f = m.minus(1.0)
    half, rest = _series(f)
    y = f - (half - rest)
    high, low = LOG2_E[x.form.name]
    return _at_ends(x, y * high + (y * low + k))


def log10(x: Value) -> Value:
    """Return the logarithm to base 10."""
    k, m = _any(x)
    f = m.minus(1.0)
    half, rest = _series(f)
    y = f - (half - rest)
    (high, low), (large, small) = LOG10_E[x.form.name], LOG10_2[x.form.name]
    return _at_ends(x, k * large + (y * high + (y * low + k * small)))


def _long_log(x: Value) -> tuple[Value, Value]:
    """Return log of a positive double as a sum of two, to 2**-64 of it."""
    k, m = _any(x)
    f, d = m.minus(1.0), m.plus(1.0)
    inverse = 1.0 / d
    s = f.times(inverse)
    p, p_low = two_product(s, d)
    s_low = (f.minus(p).minus(p_low) - s * m.minus(d.minus(1.0))) * inverse
    z, z_low = two_product(s, s)
    z_low = z_low + 2.0 * s * s_low
    w = z * z.polynomial(FITS["double"]["POW"])
    t, t_low = fast_two_sum(w.constant(TWO_THIRDS[0]), w)
    t_low = t_low + TWO_THIRDS[1]
    c, c_low = two_product(s, z)
    c_low = c_low + (s * z_low + s_low * z)
    e, e_low = two_product(c, t)
    e_low = e_low + (c * t_low + c_low * t)
    a, a_low = fast_two_sum(2.0 * s, e)
    high, low = two_sum(k * LN2_LONG[0], a)
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
    k, m = _split(x)
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
    bounded = y.at_most(2.0**65).at_least(-(2.0**65))
    result = (_double_power if x.form is F8 else _single_power)(a, bounded)
    ends = a.equals(0.0) | a.equals(math.inf)
    grows = (y > 0.0) ^ a.equals(0.0)
    result = ends.select(grows.select(math.inf, x.constant(0.0)), result)
    whole = y.call("llvm.trunc").equals(y)
    half = 0.5 * y
    odd = whole & ~half.call("llvm.trunc").equals(half)
    result = odd.select(result.signed(x.sign), result)
    result = ((x < 0.0) & (a < math.inf) & ~whole).select(math.nan, result)
    result = x.equals(x).select(y.equals(y).select(result, y), x)
    return (y.equals(0.0) | x.equals(1.0)).select(1.0, result)
