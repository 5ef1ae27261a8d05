"""Elementary functions for printed kernels, of doubles and floats: loops that call them vectorise.

The formulas, by range reduction and fitted polynomials, come first. Of each an intrinsic is made: Numba appends its
instructions in place of the call, without a branch. Right to 2 units in the last place (``power`` 4) over the full
range, at zeros, subnormals, infinities and nan; tests/language/test_vectormath.py has the table. ``sin``, ``cos`` and
``tan`` hold for angles that are not ``beyond``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from kernels.language.jit import intrinsic, named_intrinsic, types
from kernels.language.lanes import CallingModule
from kernels.language.llvm_values import (
    F4,
    F8,
    FITS,
    HALF_PI,
    HALF_PI_FUSED,
    HALF_PI_ROUNDED,
    HALF_PI_SHORT,
    LN2,
    LN2_LONG,
    LOG2E,
    LOG10_2,
    TWO_THIRDS,
    Format,
    LaneValue,
    fast_two_sum,
    less_product,
    two_product,
    two_sum,
)

# The exponential, its kin and the error function: exp(x) is 2**n times exp(r), where r lies within half of ln 2.

_LARGEST = {"double": 710.0, "single": 89.0}
_LEAST = {"double": -746.0, "single": -104.0}
_TINY = {"double": 2.0**-28, "single": 2.0**-13}
_STEEPEST = {"double": 20.0, "single": 10.0}
_HALFWAY = 0.55  # about here tanh(x) is 1/2
_HIGHEST = {"double": 710.7, "single": 89.6}


def reduced(x: LaneValue) -> tuple[LaneValue, LaneValue, LaneValue]:
    """Return n (in the low bits of a word), r, and what rounding took from r."""
    high, low = LN2[x.form.name]
    n, word = x.nearest(LOG2E)
    start, rest = x - n * high, n * low
    r = start.minus(rest)
    return word, r, start.minus(r).minus(rest)


def less_one(r: LaneValue) -> LaneValue:
    """Return exp(r) - 1 of a reduced number."""
    return r + r * r * r.polynomial(FITS[r.form.name]["EXP"])


def _exp(x: LaneValue) -> LaneValue:
    """Return e**x."""
    word, r, _ = reduced(x.at_most(_LARGEST[x.form.name]).at_least(_LEAST[x.form.name]))
    return (1.0 + less_one(r)).scaled(word)


def _exp2(x: LaneValue) -> LaneValue:
    """Return 2**x."""
    double = x.form.is_double
    x = x.at_most(1025.0 if double else 129.0).at_least(-1076.0 if double else -151.0)
    n, word = x.nearest(1.0)
    r = x.minus(n)
    return (1.0 + r * r.polynomial(FITS[x.form.name]["EXP2"])).scaled(word)


def _expm1(x: LaneValue) -> LaneValue:
    """Return e**x - 1."""
    name = x.form.name
    word, r, rest = reduced(x.at_most(_LARGEST[name]).at_least(-40.0))
    half = word.power_of_two(at=0.5)  # 2**n itself would overflow before the result does
    y = r + (r * r * r.polynomial(FITS[name]["EXP"]) + rest)
    return (abs(x) < _TINY[name] * _TINY[name]).select(x, 2.0 * (half * y + half.minus(0.5)))


def _logistic(x: LaneValue) -> LaneValue:
    """Return 1 / (1 + e**-x)."""
    word, r, rest = reduced((-abs(x)).at_least(_LEAST[x.form.name]))
    start, lost = fast_two_sum(r.constant(1.0), less_one(r))
    lost = (lost + rest) * (2.0 - start)  # about what is lost of e, relative to it
    e = start.scaled(word)
    below, more = fast_two_sum(r.constant(1.0), e)
    left = x < 0.0
    y = left.select(e, 1.0) / below
    return y + y * (left.select(lost, 0.0) - (more + e * lost) * left.select(1.0 - y, y))


def _sinh(x: LaneValue) -> LaneValue:
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


def _cosh(x: LaneValue) -> LaneValue:
    """Return (e**x + e**-x) / 2."""
    word, r, rest = reduced(abs(x).at_most(_HIGHEST[x.form.name]))
    e = (1.0 + (less_one(r) + rest)) * word.power_of_two(at=0.25)  # a quarter: the whole would overflow
    return 2.0 * (e + 0.0625 / e)


def _tanh(x: LaneValue) -> LaneValue:
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


def _near(x: LaneValue) -> LaneValue:
    return x + x * (x * x).polynomial(FITS[x.form.name]["ERF"])


def _complement(a: LaneValue) -> LaneValue:
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


def _erf(x: LaneValue) -> LaneValue:
    """Return the error function."""
    a = abs(x)
    return (a < _HALF).select(_near(a), 1.0 - _complement(a)).signed(x.sign)


def _erfc(x: LaneValue) -> LaneValue:
    """Return 1 - erf(x)."""
    far = _complement(abs(x))
    return (abs(x) < _HALF).select(1.0 - _near(x), (x < 0.0).select(2.0 - far, far))


# Logarithms and powers: x is 2**k times m, where m lies within the square root of 2 of 1.

_ROOT = math.sqrt(0.5)
_EXACT = {"double": 2.0**53, "single": 2.0**24}  # up to here 1 + x, less 1, is exact


def _split(x: LaneValue) -> tuple[LaneValue, LaneValue, LaneValue]:
    """Return the k of a positive normal number, as a float and as an exponent in its place, and m."""
    form = x.form
    moved = x.word - form.pattern(_ROOT)
    low = (1 << form.fraction) - 1
    return moved.shifted_down(form.fraction).number, moved & ~low, ((moved & low) + form.pattern(_ROOT)).real


def _any(x: LaneValue) -> tuple[LaneValue, LaneValue]:
    """Return k and m of a positive number, subnormal ones too; for others but 0, k is what the logarithm is."""
    form = x.form
    least, places = 1 << form.fraction, form.fraction + 2
    odd = x.word - least >= form.pattern(math.inf) - least  # negative, subnormal or not finite
    k, _, m = _split(odd.select(x * 2.0**places, x))
    return odd.select(k.plus(_end(x).minus(float(places))), k), m


def _end(x: LaneValue) -> LaneValue:
    """Return nan of negative numbers, and others as they are."""
    nan = x.form.pattern(math.nan)
    return (x.word < nan).select(x.word, nan).real


def _series(f: LaneValue, scale: float = 1.0) -> LaneValue:
    """Return ``scale`` times log(1 + f): s times the rest is what f has too much."""
    s = f / (2.0 + f)
    z = s * s
    rest = f - z * z.polynomial(FITS[f.form.name]["LOG"])
    if scale == 1.0:
        return f - s * rest
    return -less_product(s * scale * rest, f, f.constant(scale))  # more than one rounding would be seen


def _logarithm(x: LaneValue, of_two: float, scale: float = 1.0, more: float = 0.0) -> LaneValue:
    """Return ``scale`` times the natural logarithm; ``of_two``, and ``more`` of it if need be, is that of 2."""
    k, m = _any(x)
    y = _series(m.minus(1.0), scale)
    return x.equals(0.0).select(-math.inf, k * of_two + (k * more + y if more else y))


def _log(x: LaneValue) -> LaneValue:
    """Return the natural logarithm."""
    return _logarithm(x, math.log(2.0))


def _log2(x: LaneValue) -> LaneValue:
    """Return the logarithm to base 2."""
    return _logarithm(x, 1.0, LOG2E)


def _log10(x: LaneValue) -> LaneValue:
    """Return the logarithm to base 10."""
    of_two, more = LOG10_2[x.form.name]
    return _logarithm(x, of_two, math.log10(math.e), more)


def _log1p(x: LaneValue) -> LaneValue:
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


def _long_log(x: LaneValue) -> tuple[LaneValue, LaneValue]:
    """Return the logarithm of a positive double as a sum of two, to 2**-64 of it."""
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


def _double_power(x: LaneValue, y: LaneValue) -> LaneValue:
    high, low = _long_log(x)
    p, p_low = two_product(y, high)
    p_low = p_low + y * low
    bounded = p.at_most(750.0).at_least(-750.0)
    p_low = p.equals(bounded).select(p_low, 0.0)
    n, word = bounded.nearest(LOG2E)
    r = (bounded - n * LN2["double"][0]) - (n * LN2["double"][1] - p_low)
    return (1.0 + less_one(r)).scaled(word)


def _single_power(x: LaneValue, y: LaneValue) -> LaneValue:
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


def _power(x: LaneValue, y: LaneValue) -> LaneValue:
    """Return x**y; at the ends what C's pow returns."""
    a = abs(x)
    result = (_double_power if x.form.is_double else _single_power)(a, y.within(2.0**65))
    ends = a.equals(0.0) | a.equals(math.inf)
    result = ends.select(((y > 0.0) ^ a.equals(0.0)).select(math.inf, x.constant(0.0)), result)
    is_whole = y.call("llvm.trunc").equals(y)
    half = 0.5 * y
    odd = is_whole & ~half.call("llvm.trunc").equals(half)
    result = odd.select(result.signed(x.sign), result)
    result = ((x < 0.0) & (a < math.inf) & ~is_whole).select(math.nan, result)
    result = x.unordered(y).select(math.nan, result)
    return (y.equals(0.0) | x.equals(1.0)).select(1.0, result)


def _whole(x: LaneValue, n: LaneValue) -> LaneValue:
    """Return x**n for a whole n up to 4, the same for all elements: products, as in kernels/rules/op.py."""
    square = x.times(x)
    odd = (n.equals(1.0) | n.equals(3.0)).select(x, 1.0)
    even = (n.equals(2.0) | n.equals(3.0)).select(square, 1.0)
    return n.equals(4.0).select(square.times(square), odd.times(even))


def _rooted(x: LaneValue, p: LaneValue) -> LaneValue:
    """Return x**p for a p up to 4 that is a multiple of a half: a product, a root, or an inverse of these."""
    size = abs(p)
    n = size.call("llvm.trunc")
    product = n.equals(size).select(1.0, x.call("llvm.sqrt")).times(_whole(x, n))
    return (p < 0.0).select(1.0 / product, product)


# Sine, cosine, tangent of angles up to ``FURTHEST``, and the arctangent; what is taken off is pi / 2 in parts.

FURTHEST = {"double": 1.5e6, "single": 1e5}
"""Up to here a multiple of pi / 2 has 20 bits, and its products with the parts of pi / 2 are exact."""
_PER_HALF_PI = 0.6366197723675814


def _beyond(x: LaneValue) -> LaneValue:
    """Whether an angle needs another method."""
    least = x.form.pattern(FURTHEST[x.form.name]) + 1
    return abs(x).word - least < x.form.pattern(math.inf) - least  # compared without a sign


def _farther(far: LaneValue, x: LaneValue) -> LaneValue:
    """Return a word whose sign is set if that of ``far`` is or the angle is ``beyond``."""
    word, least = abs(x).word, x.form.pattern(FURTHEST[x.form.name]) + 1
    return far | (~(word - least) & (word - x.form.pattern(math.inf)))


def _quarters(a: LaneValue, *, steep: bool = False) -> tuple[LaneValue, LaneValue | None, LaneValue]:
    """Return what is left of an angle, what rounding took from that (if it counts), and the number of quarter turns."""
    if a.fused:
        return _fused(a, steep=steep or a.form.is_double)
    if a.form.is_double:
        return _exact(a)
    wide = a.to(F8)
    n, word = wide.nearest(_PER_HALF_PI)
    left = wide - n * HALF_PI_SHORT[0] - n * HALF_PI_SHORT[1]
    r = left.to(a.form)
    return r, left.minus(r.to(F8)).to(a.form) if steep else None, word.to(a.form)


def _fused(a: LaneValue, *, steep: bool) -> tuple[LaneValue, LaneValue | None, LaneValue]:
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


def _exact(a: LaneValue) -> tuple[LaneValue, LaneValue, LaneValue]:
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


def _turned(a: LaneValue, quarters: int) -> LaneValue:
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


def _sin(x: LaneValue) -> LaneValue:
    """Return the sine of an angle up to FURTHEST."""
    return _turned(abs(x), 0).signed(x.sign)


def _cos(x: LaneValue) -> LaneValue:
    """Return the cosine of an angle up to FURTHEST."""
    return _turned(abs(x), 1)


def _tan(x: LaneValue) -> LaneValue:
    """Return the tangent of an angle up to FURTHEST."""
    r, rest, word = _quarters(abs(x), steep=True)
    square = r * r
    more = r * (square * square.polynomial(FITS[r.form.name]["TAN"]))
    t = r + (more if rest is None else more + rest * (1.0 + square))
    return (word & 1).equals(1).select(-1.0 / t, t).signed(x.sign)


def _arctan(x: LaneValue) -> LaneValue:
    """Return the angle, within pi / 2, of a tangent."""
    a = abs(x)
    far = a > 1.0
    z = far.select(-1.0 / a, a)
    square = z * z
    high, low = HALF_PI_ROUNDED[x.form.name]
    start, lost = fast_two_sum(far.select(high, x.constant(0.0)), z)
    rest = z * (square * square.polynomial(FITS[x.form.name]["ATAN"]))
    return (start + (rest + far.select(lost + low, 0.0))).signed(x.sign)


# Intrinsics of the formulas.

_FORMS = {types.float64: F8, types.float32: F4}
Function = Callable[..., LaneValue]


def _name(function: Function) -> str:
    return function.__name__.removeprefix("_")


def _called(function: Function, form: Format, builder: Any, args: Any, result: Any) -> Any:
    name = f"tape.{_name(function)}.{form.name}"
    module = builder.module
    callee = module.globals.get(name)
    if callee is None:
        callee = _defined(function, form, module, name, len(args), result)
        if isinstance(module, CallingModule) and result == form.real:
            module.add_forms(callee, lambda width, full: _defined(function, form.wide(width), module, full, len(args)))
        else:
            callee.attributes.add("alwaysinline")
    return builder.call(callee, args)


def _defined(
    function: Function, form: Format, module: ir.Module, name: str, count: int, result: ir.Type | None = None
) -> ir.Function:
    defined = ir.Function(module, ir.FunctionType(result or form.real, [form.real] * count), name)
    defined.linkage = "internal"
    inner = ir.IRBuilder(defined.append_basic_block("entry"))
    inner.ret(function(*[LaneValue(inner, form, a) for a in defined.args]).node)
    return defined


def _intrinsic(function: Function, result: Any = None) -> Any:
    count = function.__code__.co_argcount

    def typed(_: Any, *kinds: Any) -> Any:
        kind = kinds[0] if kinds[0] in _FORMS and all(other is kinds[0] for other in kinds) else types.float64
        form = _FORMS[kind]

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            returned = form.real if result is None else ir.IntType(1)
            return _called(function, form, builder, args, returned)

        return (result or kind)(*[kind] * count), codegen

    return named_intrinsic(_name(function), count, typed)


exp, exp2, expm1 = _intrinsic(_exp), _intrinsic(_exp2), _intrinsic(_expm1)
log, log1p = _intrinsic(_log), _intrinsic(_log1p)
log2, log10 = _intrinsic(_log2), _intrinsic(_log10)
sin, cos, tan = _intrinsic(_sin), _intrinsic(_cos), _intrinsic(_tan)
sinh, cosh, tanh = _intrinsic(_sinh), _intrinsic(_cosh), _intrinsic(_tanh)
erf, erfc = _intrinsic(_erf), _intrinsic(_erfc)
logistic, arctan, power = _intrinsic(_logistic), _intrinsic(_arctan), _intrinsic(_power)
whole, rooted = _intrinsic(_whole), _intrinsic(_rooted)
beyond = _intrinsic(_beyond, types.boolean)


@intrinsic
def farther(typingctx: Any, far: Any, x: Any) -> Any:  # noqa: ARG001 (Numba fixes the names)
    """Return a word of an angle's width, negative if ``far`` is or the angle is ``beyond``."""
    form = _FORMS[x]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return _farther(*[LaneValue(builder, form, a) for a in args]).node

    return far(far, x), codegen
