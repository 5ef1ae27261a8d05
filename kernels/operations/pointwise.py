"""The tables of elementwise operations: arithmetic, comparisons, rounding, logarithms, choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.rules.op import SMALL, Rule, cut, special

# The table of arithmetic and comparisons.

# Vocabulary of a rule: ``g`` the cotangent, ``y`` the result, ``x`` or ``a, b`` or ``c, a, b`` the inputs, ``p`` a
# static number. Derivatives: Abramowitz and Stegun, chapters 3 and 4; choices at kinks and ties are PyTorch's.

REAL, POSITIVE, NONZERO, BOOLEAN = "real", "positive", "nonzero", "boolean"
ONE, TWO = (REAL,), (REAL, REAL)


def flat(g: Any) -> float:  # noqa: ARG001 (a rule's name for it)
    """The rule of an operation that is constant between its jumps."""
    return 0.0


def _no_inverse(a: Any, b: Any) -> Any:
    """Return whether an exponent is 0 and the inverse of its base is not finite: their product, 0, would be nan."""
    return (b == 0) & ~np.isfinite(1 / a)


Elementwise(
    name="add", doc="Sum of two tensors.", grad_fn="AddBackward0", operator="+", scaled=True, exact=True,
    forward=lambda a, b: a + b, pullback=(lambda g: g, lambda g: g),
)  # fmt: skip
Elementwise(
    name="subtract", doc="Difference of two tensors.", torch=("sub",), grad_fn="SubBackward0",
    reversed_grad_fn="RsubBackward1", operator="-", scaled=True, exact=True,
    forward=lambda a, b: a - b, pullback=(lambda g: g, lambda g: -g),
)  # fmt: skip
Elementwise(
    name="multiply", doc="Product of two tensors.", torch=("mul",), grad_fn="MulBackward0", operator="*", exact=True,
    forward=lambda a, b: a * b, pullback=(lambda g, b: g * b, lambda g, a: g * a),
)  # fmt: skip
Elementwise(
    name="divide", doc="Quotient of two tensors.", torch=("true_divide",), grad_fn="DivBackward0",
    reversed_grad_fn="MulBackward0", operator="/", function=False, exact=True,
    forward=lambda a, b: a / b, pullback=(lambda g, b: g / b, lambda g, a, b: -g * ((a / b) / b)),
    domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="power", doc="First tensor raised to the second.", torch=("pow",), arguments=("input", "exponent"),
    grad_fn="PowBackward1", reversed_grad_fn="PowBackward2", operator="**", scalar="power_scalar",
    forward=lambda a, b: a**b,
    pullback=(
        lambda g, a, b: np.where(_no_inverse(a, b), 0.0, g * (b * a ** (b - 1))),
        lambda g, y, a, b: np.where((a == 0) & (b >= 0), 0.0, g * (y * np.log(a))),
    ),
    domain=(POSITIVE, REAL),
)  # fmt: skip
Elementwise(
    name="power_scalar", doc="Tensor raised to a Python number.", grad_fn="PowBackward0", function=False,
    variants=SMALL,
    forward=lambda x, p: x**p, ufunc=np.power, pullback=(lambda g, x, p: g * (p * x ** (p - 1)) if p else 0.0,),
    domain=(POSITIVE,),
)  # fmt: skip
Elementwise(
    name="negative", doc="Tensor with its sign turned.", torch=("neg",), grad_fn="NegBackward0", operator="-",
    exact=True, forward=lambda x: -x, pullback=(lambda g: -g,),
)  # fmt: skip
Elementwise(
    name="positive", doc="The tensor itself.", grad_fn="AliasBackward0", operator="+", identity=True, exact=True,
    forward=lambda x: +x, pullback=(lambda g: g,),
)  # fmt: skip
Elementwise(
    name="square", doc="Square.", grad_fn="PowBackward0", exact=True,
    forward=lambda x: x * x, pullback=(lambda g, x: g * (2 * x),),
)  # fmt: skip
Elementwise(
    name="sqrt", doc="Square root.", grad_fn="SqrtBackward0", exact=True,
    forward=lambda x: np.sqrt(x), pullback=(lambda g, y: g / (2 * y),), domain=(POSITIVE,),
)  # fmt: skip
Elementwise(
    name="reciprocal", doc="One over the tensor.", grad_fn="ReciprocalBackward0", exact=True, vector=True,
    forward=lambda x: 1 / x, pullback=(lambda g, y: -g * (y * y),), domain=(NONZERO,),
)  # fmt: skip
Elementwise(
    name="absolute", doc="Absolute value; the gradient at 0 is 0.", torch=("abs",), grad_fn="AbsBackward0",
    operator="abs", exact=True,
    forward=lambda x: np.absolute(x), pullback=(lambda g, x: g * np.sign(x),), domain=(NONZERO,),
)  # fmt: skip
Elementwise(
    name="exp", doc="Exponential.", grad_fn="ExpBackward0",
    forward=lambda x: np.exp(x), pullback=(lambda g, y: g * y,),
)  # fmt: skip
Elementwise(
    name="log", doc="Natural logarithm.", grad_fn="LogBackward0",
    forward=lambda x: np.log(x), pullback=(lambda g, x: g / x,), domain=(POSITIVE,),
)  # fmt: skip
Elementwise(
    name="sin", doc="Sine of an angle in radians.", grad_fn="SinBackward0", vector=True,
    forward=lambda x: np.sin(x), pullback=(lambda g, x: g * np.cos(x),),
)  # fmt: skip
Elementwise(
    name="cos", doc="Cosine of an angle in radians.", grad_fn="CosBackward0", vector=True,
    forward=lambda x: np.cos(x), pullback=(lambda g, x: -g * np.sin(x),),
)  # fmt: skip
Elementwise(
    name="tan", doc="Tangent of an angle in radians.", grad_fn="TanBackward0",
    forward=lambda x: np.tan(x), pullback=(lambda g, y: g * (1 + y * y),),
)  # fmt: skip
Elementwise(
    name="tanh", doc="Hyperbolic tangent.", grad_fn="TanhBackward0", vector=True,
    forward=lambda x: np.tanh(x), pullback=(lambda g, y: g * (1 - y * y),),
)  # fmt: skip
Elementwise(
    name="maximum", doc="Larger of two tensors, element by element; a tie gives each half of the gradient.",
    grad_fn="MaximumBackward0", forward=lambda a, b: np.maximum(a, b),
    pullback=(
        lambda g, a, b: cut(a < b, np.where(a == b, g / 2, g)),
        lambda g, a, b: cut(b < a, np.where(a == b, g / 2, g)),
    ),
)  # fmt: skip
Elementwise(
    name="minimum", doc="Smaller of two tensors, element by element; a tie gives each half of the gradient.",
    grad_fn="MinimumBackward0", forward=lambda a, b: np.minimum(a, b),
    pullback=(
        lambda g, a, b: cut(a > b, np.where(a == b, g / 2, g)),
        lambda g, a, b: cut(b > a, np.where(a == b, g / 2, g)),
    ),
)  # fmt: skip
Elementwise(
    name="where", doc="Second tensor where the first, a condition, holds, and the third elsewhere.",
    grad_fn="WhereBackward0", condition=True, exact=True, forward=lambda c, a, b: np.where(c, a, b),
    pullback=(None, lambda g, c: cut(np.logical_not(c), g), lambda g, c: cut(c, g)), domain=(BOOLEAN, REAL, REAL),
)  # fmt: skip


INTEGER = "integer"  # A domain: small integers that are not negative


def _without_gradient(name: str, doc: str, forward: Rule, domain: tuple[str, ...] = TWO, **more: Any) -> None:
    nothing = (None,) * len(domain)
    Elementwise(name=name, doc=doc, grad_fn="", forward=forward, pullback=nothing, domain=domain, **more)


_without_gradient("less", "True where the first is less.", lambda a, b: a < b, torch=("lt",), operator="<")
_without_gradient(
    "less_equal", "True where the first is less or equal.", lambda a, b: a <= b, torch=("le",), operator="<="
)
_without_gradient("greater", "True where the first is greater.", lambda a, b: a > b, torch=("gt",), operator=">")
_without_gradient(
    "greater_equal", "True where the first is greater or equal.", lambda a, b: a >= b, torch=("ge",), operator=">="
)
_without_gradient(
    "equal", "True where both are equal.", lambda a, b: a == b, torch=("eq",), function=False, operator="=="
)
_without_gradient("not_equal", "True where they differ.", lambda a, b: a != b, torch=("ne",), operator="!=")
_without_gradient("logical_not", "True where the tensor is zero or False.", lambda x: np.logical_not(x), ONE)
_without_gradient("logical_and", "True where both are nonzero or True.", lambda a, b: np.logical_and(a, b))
_without_gradient("logical_or", "True where one is nonzero or True.", lambda a, b: np.logical_or(a, b))
_without_gradient(
    "bitwise_and", "Bits, or truth, of both; integer and bool tensors only.", lambda a, b: a & b, (BOOLEAN, BOOLEAN),
    operator="&",
)  # fmt: skip
_without_gradient(
    "bitwise_or", "Bits, or truth, of either; integer and bool tensors only.", lambda a, b: a | b, (BOOLEAN, BOOLEAN),
    operator="|",
)  # fmt: skip
_without_gradient(
    "logical_xor", "True where one of the two, but not both, is nonzero or True.", lambda a, b: np.logical_xor(a, b)
)
_without_gradient(
    "bitwise_xor", "Bits, or truth, of one of the two but not both; integer and bool tensors only.", lambda a, b: a ^ b,
    (BOOLEAN, BOOLEAN), operator="^",
)  # fmt: skip
_without_gradient(
    "invert", "Bits, or truth, turned; integer and bool tensors only.", lambda x: np.invert(x), (BOOLEAN,),
    torch=("bitwise_not",), operator="~",
)  # fmt: skip
_without_gradient(
    "left_shift", "Bits of the first moved up by the second; integer tensors only.", lambda a, b: np.left_shift(a, b),
    (INTEGER, INTEGER), torch=("bitwise_left_shift",), operator="<<",
)  # fmt: skip
_without_gradient(
    "right_shift", "Bits of the first moved down by the second, its sign kept; integer tensors only.",
    lambda a, b: np.right_shift(a, b), (INTEGER, INTEGER), torch=("bitwise_right_shift",), operator=">>",
)  # fmt: skip
_without_gradient("isnan", "True where the tensor is nan.", lambda x: np.isnan(x), ONE)
_without_gradient("isinf", "True where the tensor is inf or -inf.", lambda x: np.isinf(x), ONE)
_without_gradient("isfinite", "True where the tensor is neither inf nor nan.", lambda x: np.isfinite(x), ONE)
_without_gradient("signbit", "True where the sign is minus, that of -0.0 too.", lambda x: np.signbit(x), ONE)
_without_gradient("isposinf", "True where the tensor is inf.", lambda x: np.equal(x, np.inf), ONE, composed=True)
_without_gradient("isneginf", "True where the tensor is -inf.", lambda x: np.equal(x, -np.inf), ONE, composed=True)
_without_gradient(
    "gcd", "Greatest common divisor, not negative; integer tensors only.", lambda a, b: np.gcd(a, b), (INTEGER, INTEGER)
)
_without_gradient(
    "lcm", "Least common multiple, not negative; integer tensors only.", lambda a, b: np.lcm(a, b), (INTEGER, INTEGER)
)


# The table of exponentials, logarithms, trigonometry, and of functions that are made of pieces.

CONSTANT = "constant"  # A domain: Python numbers, which have no gradient
_LN2, _LN10, _LOG2E = math.log(2), math.log(10), 1 / math.log(2)


def _softplus(x: Any, z: Any, b: Any, c: Any) -> Any:
    """Return ``log(1 + exp(z)) / b``, of an exponential that is not above 1."""
    return np.where(np.greater(z, c), x, np.divide(np.add(np.maximum(z, 0.0), np.log1p(np.exp(-np.absolute(z)))), b))


def _scaled(x: Any, b: Any) -> Any:
    """Return ``x * 2**b`` in two steps, which do not overflow where the result does not."""
    half = np.trunc(b * 0.5)
    return np.multiply(np.multiply(x, np.exp2(half)), np.exp2(b - half))


Elementwise(
    name="exp2", doc="Two raised to the tensor.", grad_fn="Exp2Backward0",
    forward=lambda x: np.exp2(x), pullback=(lambda g, y: g * (y * _LN2),),
)  # fmt: skip
Elementwise(
    name="expm1", doc="Exponential less one, right for small arguments.", grad_fn="Expm1Backward0", vector=True,
    forward=lambda x: np.expm1(x), pullback=(lambda g, y: g * (y + 1),),
)  # fmt: skip
Elementwise(
    name="log2", doc="Logarithm to base 2.", grad_fn="Log2Backward0",
    forward=lambda x: np.log2(x), pullback=(lambda g, x: g / (x * _LN2),), domain=(POSITIVE,),
)  # fmt: skip
Elementwise(
    name="log10", doc="Logarithm to base 10.", grad_fn="Log10Backward0",
    forward=lambda x: np.log10(x), pullback=(lambda g, x: g / (x * _LN10),), domain=(POSITIVE,),
)  # fmt: skip
Elementwise(
    name="log1p", doc="Logarithm of one plus the tensor, right for small arguments.", grad_fn="Log1PBackward0",
    forward=lambda x: np.log1p(x), pullback=(lambda g, x: g / (1 + x),), domain=(POSITIVE,),
)  # fmt: skip
Elementwise(
    name="logaddexp", doc="Logarithm of the sum of the exponentials of two tensors.", grad_fn="LogaddexpBackward0",
    vector=True, forward=lambda a, b: np.where(a == b, a + _LN2, np.maximum(a, b) + np.log1p(np.exp(-abs(a - b)))),
    pullback=(lambda g, a, b: g * special.expit(a - b), lambda g, a, b: g * special.expit(b - a)),
)  # fmt: skip
Elementwise(
    name="logaddexp2", doc="Logarithm to base 2 of the sum of two raised to two tensors.",
    grad_fn="Logaddexp2Backward0", vector=True,
    forward=lambda a, b: np.where(a == b, a + 1.0, np.maximum(a, b) + np.log1p(np.exp2(-abs(a - b))) * _LOG2E),
    pullback=(lambda g, a, b: g * special.expit((a - b) * _LN2), lambda g, a, b: g * special.expit((b - a) * _LN2)),
)  # fmt: skip
Elementwise(
    name="sigmoid", doc="Logistic function, 1 / (1 + exp(-x)).", grad_fn="SigmoidBackward0", vector=True,
    forward=lambda x: special.expit(x), ufunc=special.expit, pullback=(lambda g, y: g * ((1 - y) * y),),
)  # fmt: skip
Elementwise(
    name="log_expit", doc="Logarithm of the logistic function.", grad_fn="LogSigmoidBackward0", function=False,
    forward=lambda x: special.log_expit(x), ufunc=special.log_expit, pullback=(lambda g, x: g * special.expit(-x),),
)  # fmt: skip
Elementwise(
    name="softplus", doc="Logarithm of one plus exp(b a), divided by b; a itself where b a is larger than c.",
    grad_fn="SoftplusBackward0", function=False, composed=True, forward=lambda a, b, c: _softplus(a, a * b, b, c),
    pullback=(lambda g, a, b, c: np.where(a * b > c, g, g * special.expit(a * b)), None, None),
    domain=(REAL, CONSTANT, CONSTANT),
)  # fmt: skip
Elementwise(
    name="rsqrt", doc="One over the square root.", grad_fn="RsqrtBackward0", composed=True, vector=True,
    forward=lambda x: np.divide(1.0, np.sqrt(x)), pullback=(lambda g, y: g * (-0.5 * (y * y * y)),), domain=(POSITIVE,),
)  # fmt: skip
Elementwise(
    name="cbrt", doc="Cube root, of negative numbers too.", grad_fn="CbrtBackward0",
    forward=lambda x: np.cbrt(x), pullback=(lambda g, y: g / (3 * (y * y)),),
)  # fmt: skip
Elementwise(
    name="ldexp", doc="First tensor times two to the power of the second.", grad_fn="LdexpBackward0", function=False,
    composed=True,
    forward=lambda a, b: _scaled(a, b), pullback=(lambda g, b: _scaled(g, b), lambda g, y: g * (y * _LN2)),
)  # fmt: skip


UNIT, ABOVE = "unit", "above"  # domains: between -1 and 1; above 1

_NEAR = 0.2  # below it the derivative of sin(z) / z is its series: the closed form loses digits
_LARGE = 1e8  # from here on the square of x is not changed by adding 1
_TINY = 1e-20  # sin(z) / z is 1 there, as it is at 0


def _sine_over(z):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (of arrays and symbols)
    return np.divide(np.sin(z), z)


def _hypot(high, low):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (of arrays and symbols)
    """Return the square root of the sum of the squares of two sizes, the first the larger, or inf."""
    ends = (low == 0) | (high == math.inf)
    return np.where(ends, high, high * np.sqrt(1 + low / high * (low / high)))


def _turning(u, v):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (of arrays, tensors and symbols)
    """Return ``u / (u u + v v)`` without overflow: by the quotient of the smaller and the larger."""
    return np.where(
        np.absolute(u) < np.absolute(v), u / v / (v * (1 + u / v * (u / v))), 1 / (u * (1 + v / u * (v / u)))
    )


def _sinc_slope(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (of arrays, tensors and symbols)
    """Return the derivative of sin(z) / z at z = pi x, times pi."""
    z = math.pi * x
    s = z * z
    series = 1 - s / 10 * (1 - s / 28 * (1 - s / 54 * (1 - s / 88 * (1 - s / 130))))
    return math.pi * np.where(np.absolute(z) < _NEAR, -z / 3 * series, (np.cos(z) - np.sin(z) / z) / z)


Elementwise(
    name="arcsin", doc="Angle in radians of this sine.", torch=("asin",), grad_fn="AsinBackward0",
    forward=lambda x: np.arcsin(x), pullback=(lambda g, x: g / np.sqrt((1 - x) * (1 + x)),), domain=(UNIT,),
)  # fmt: skip
Elementwise(
    name="arccos", doc="Angle in radians of this cosine.", torch=("acos",), grad_fn="AcosBackward0",
    forward=lambda x: np.arccos(x), pullback=(lambda g, x: -g / np.sqrt((1 - x) * (1 + x)),), domain=(UNIT,),
)  # fmt: skip
Elementwise(
    name="arctan", doc="Angle in radians of this tangent.", torch=("atan",), grad_fn="AtanBackward0",
    forward=lambda x: np.arctan(x), pullback=(lambda g, x: g / (1 + x * x),),
)  # fmt: skip
Elementwise(
    name="arctan2", doc="Angle in radians of the point (b, a); the gradient at the origin is 0.", torch=("atan2",),
    grad_fn="Atan2Backward0", forward=lambda a, b: np.arctan2(a, b),
    pullback=(
        lambda g, a, b: cut((a == 0) & (b == 0), g * _turning(b, a)),
        lambda g, a, b: cut((a == 0) & (b == 0), -g * _turning(a, b)),
    ),
)  # fmt: skip
Elementwise(
    name="sinh", doc="Hyperbolic sine.", grad_fn="SinhBackward0", vector=True,
    forward=lambda x: np.sinh(x), pullback=(lambda g, x: g * np.cosh(x),),
)  # fmt: skip
Elementwise(
    name="cosh", doc="Hyperbolic cosine.", grad_fn="CoshBackward0",
    forward=lambda x: np.cosh(x), pullback=(lambda g, x: g * np.sinh(x),),
)  # fmt: skip
Elementwise(
    name="arcsinh", doc="Number of this hyperbolic sine.", torch=("asinh",), grad_fn="AsinhBackward0",
    forward=lambda x: np.arcsinh(x),
    pullback=(lambda g, x: g / np.where(np.absolute(x) < _LARGE, np.sqrt(1 + x * x), np.absolute(x)),),
)  # fmt: skip
Elementwise(
    name="arccosh", doc="Positive number of this hyperbolic cosine.", torch=("acosh",), grad_fn="AcoshBackward0",
    forward=lambda x: np.arccosh(x), pullback=(lambda g, x: g / (np.sqrt(x - 1) * np.sqrt(x + 1)),), domain=(ABOVE,),
)  # fmt: skip
Elementwise(
    name="arctanh", doc="Number of this hyperbolic tangent.", torch=("atanh",), grad_fn="AtanhBackward0",
    forward=lambda x: np.arctanh(x), pullback=(lambda g, x: g / ((1 - x) * (1 + x)),), domain=(UNIT,),
)  # fmt: skip
Elementwise(
    name="hypot", doc="Square root of the sum of two squares, without overflow.", grad_fn="HypotBackward0", vector=True,
    forward=lambda a, b: _hypot(np.fmax(abs(a), abs(b)), np.minimum(abs(a), abs(b))),
    pullback=(lambda g, y, a: g * (a / y), lambda g, y, b: g * (b / y)),
)  # fmt: skip
Elementwise(
    name="deg2rad", doc="Angle in radians of one in degrees.", grad_fn="Deg2RadBackward0", vector=True, exact=True,
    forward=lambda x: x * (math.pi / 180), pullback=(lambda g: g * (math.pi / 180),),
)  # fmt: skip
Elementwise(
    name="rad2deg", doc="Angle in degrees of one in radians.", grad_fn="Rad2DegBackward0", vector=True,
    forward=lambda x: x * (180 / math.pi), pullback=(lambda g: g * (180 / math.pi),),
)  # fmt: skip
Elementwise(
    name="sinc", doc="Sine of pi x divided by pi x; 1 at 0.", grad_fn="SincBackward0", composed=True,
    forward=lambda x: _sine_over(np.where(np.equal(x, 0), _TINY, math.pi * x)),
    pullback=(lambda g, x: g * _sinc_slope(x),), domain=(REAL,),
)  # fmt: skip


# What is not chosen receives nothing (:func:`kernels.rules.op.cut`), not 0 times what may be infinite.

Elementwise(
    name="relu", doc="Tensor where it is positive, else 0; the gradient at 0 is 0.", grad_fn="ReluBackward0",
    composed=True, vector=True,
    forward=lambda x: np.maximum(x, 0), pullback=(lambda g, y: cut(y <= 0, g),), domain=(NONZERO,),
)  # fmt: skip


_CLAMPED: dict[str, tuple[Rule, tuple[Rule, Rule]]] = {
    "less": (
        lambda a, b: np.maximum(a, b),
        (lambda g, a, b: cut(np.logical_not(a >= b), g), lambda g, a, b: cut(np.logical_not(a < b), g)),
    ),
    "more": (
        lambda a, b: np.minimum(a, b),
        (lambda g, a, b: cut(np.logical_not(a <= b), g), lambda g, a, b: cut(np.logical_not(a > b), g)),
    ),
}
for _name, _side, _grad_fn, _number_grad_fn, _function in (
    ("clamp_min", "less", "ClampMinBackward1", "ClampMinBackward0", True),
    ("clamp_max", "more", "ClampMaxBackward1", "ClampMaxBackward0", True),
    ("clamp_below", "less", "ClampBackward0", "ClampBackward1", False),
    ("clamp_above", "more", "ClampBackward0", "ClampBackward1", False),
):
    Elementwise(
        name=_name, doc=f"First tensor, but not {_side} than the second; a tie gives the first the gradient.",
        arguments=("input", _name.removeprefix("clamp_")), grad_fn=_grad_fn, number_grad_fn=_number_grad_fn,
        function=_function, composed=True, forward=_CLAMPED[_side][0], pullback=_CLAMPED[_side][1],
    )  # fmt: skip

_INSIDE: Rule = lambda g, a, b, c: cut(np.logical_not((a >= b) & (a <= c)), g)  # noqa: E731 (a rule)

Elementwise(
    name="clamp",
    doc="First tensor, but not less than the second nor more than the third; at the bounds it has the gradient.",
    grad_fn="ClampBackward0", function=False, composed=True, forward=lambda a, b, c: np.minimum(np.maximum(a, b), c),
    pullback=(
        _INSIDE,
        lambda g, a, b, c: cut(np.logical_not((a < b) & (b < c)), g),
        lambda g, a, b, c: cut(np.logical_not((a > c) | (c < b)), g),
    ),
    number_grad_fn="ClampBackward1", domain=(REAL, "low", "high"),
)  # fmt: skip
Elementwise(
    name="fmax", doc="Larger of two tensors, or the one that is not nan; a tie gives the first the gradient.",
    grad_fn="FmaxBackward0", forward=lambda a, b: np.fmax(a, b),
    pullback=(
        lambda g, a, b: cut(np.logical_not((a >= b) | np.isnan(b)), g),
        lambda g, a, b: cut((a >= b) | np.isnan(b), g),
    ),
)  # fmt: skip
Elementwise(
    name="fmin", doc="Smaller of two tensors, or the one that is not nan; a tie gives the first the gradient.",
    grad_fn="FminBackward0", forward=lambda a, b: np.fmin(a, b),
    pullback=(
        lambda g, a, b: cut(np.logical_not((a <= b) | np.isnan(b)), g),
        lambda g, a, b: cut((a <= b) | np.isnan(b), g),
    ),
)  # fmt: skip
Elementwise(
    name="sign", doc="Sign: -1, 0 or 1, and nan of nan, as NumPy has it; the gradient is 0.", grad_fn="SignBackward0",
    function=False, forward=lambda x: np.sign(x), pullback=(flat,), domain=(NONZERO,),
)  # fmt: skip


def _sign(name: str, grad_fn: str, torch: tuple[str, ...] = ()) -> None:
    Elementwise(
        name=name, doc="Sign: -1, 0 or 1, and 0 of nan; the gradient is 0.", torch=torch, grad_fn=grad_fn,
        function=not torch, composed=True, vector=True,
        forward=lambda x: np.where(np.equal(x, x), np.sign(x), 0), pullback=(flat,), domain=(NONZERO,),
    )  # fmt: skip


_sign("sign_number", "SignBackward0", ("sign",))
_sign("sgn", "SgnBackward0")

Elementwise(
    name="copysign", doc="First tensor with the sign of the second; the gradient at 0 is 0.",
    grad_fn="CopysignBackward0", forward=lambda a, b: np.copysign(a, b),
    pullback=(lambda g, a, b: cut(a == 0, g * (np.copysign(1.0, a) * np.copysign(1.0, b))), flat),
    number_grad_fn="CopysignBackward1",
)  # fmt: skip
Elementwise(
    name="heaviside",
    doc="0 where the first is negative, 1 where it is positive, the second where it is 0; nan of nan, as NumPy has it.",
    grad_fn="HeavisideBackward0", function=False,
    forward=lambda a, b: np.heaviside(a, b), pullback=(flat, lambda g, a: cut(a != 0, g)),
)  # fmt: skip
Elementwise(
    name="heaviside_number",
    doc="0 where the first is negative or nan, 1 where it is positive, the second where it is 0.", torch=("heaviside",),
    arguments=("input", "values"), grad_fn="HeavisideBackward0", function=False, composed=True,
    forward=lambda a, b: np.heaviside(np.where(np.equal(a, a), a, -1), b), pullback=(flat, lambda g, a: cut(a != 0, g)),
)  # fmt: skip
Elementwise(
    name="nan_to_num", doc="First tensor with b for nan, c for inf, d for -inf; what is replaced has no gradient.",
    grad_fn="NanToNumBackward0", function=False, composed=True,
    forward=lambda a, b, c, d: np.where(
        np.equal(a, np.inf), c, np.where(np.equal(a, -np.inf), d, np.where(np.equal(a, a), a, b))
    ),
    pullback=(lambda g, a: cut(np.logical_not(np.isfinite(a)), g), None, None, None),
    domain=(REAL, CONSTANT, CONSTANT, CONSTANT),
)  # fmt: skip
Elementwise(
    name="lerp",
    doc="Point on the way from the first tensor to the second; the third is 0 at the first, 1 at the second.",
    grad_fn="LerpBackward1", function=False, composed=True,
    forward=lambda a, b, c: np.where(
        np.less(np.absolute(c), 0.5), np.add(a, np.multiply(c, b - a)), np.subtract(b, np.multiply(b - a, 1 - c))
    ),
    pullback=(lambda g, c: g * (1 - c), lambda g, c: g * c, lambda g, a, b: g * (b - a)), domain=(REAL, REAL, REAL),
)  # fmt: skip


def _lerp_number(name: str, phrase: str, forward: Rule) -> None:
    Elementwise(
        name=name, doc=f"Point on the way from the first tensor to the second, by a Python number {phrase}.",
        grad_fn="LerpBackward0", function=False, composed=True,
        forward=forward, pullback=(lambda g, c: g * (1 - c), lambda g, c: g * c, None), domain=(REAL, REAL, CONSTANT),
    )  # fmt: skip


_lerp_number("lerp_near", "nearer to 0", lambda a, b, c: np.add(a, np.multiply(b - a, c)))
_lerp_number("lerp_far", "from a half", lambda a, b, c: np.subtract(b, np.multiply(b - a, 1 - c)))
Elementwise(
    name="addcmul", doc="First tensor plus the product of the others.", grad_fn="AddcmulBackward0", function=False,
    composed=True, forward=lambda a, b, c: np.add(a, np.multiply(b, c)),
    pullback=(lambda g: g, lambda g, c: g * c, lambda g, b: g * b), domain=(REAL, REAL, REAL),
)  # fmt: skip
Elementwise(
    name="addcdiv", doc="First tensor plus the quotient of the others.", grad_fn="AddcdivBackward0", function=False,
    composed=True, forward=lambda a, b, c: np.add(a, np.divide(b, c)),
    pullback=(lambda g: g, lambda g, c: g / c, lambda g, b, c: -g * ((b / c) / c)), domain=(REAL, REAL, NONZERO),
)  # fmt: skip


APART = "apart"  # A domain: reals away from where roundings jump


def _rounding(name: str, phrase: str, grad_fn: str, forward: Rule, torch: tuple[str, ...] = ()) -> None:
    Elementwise(
        name=name, doc=f"{phrase}; the gradient is 0.", torch=torch, grad_fn=grad_fn,
        forward=forward, pullback=(flat,), domain=(APART,),
    )  # fmt: skip


_rounding("floor", "Largest integer that is not larger", "FloorBackward0", lambda x: np.floor(x))
_rounding("ceil", "Smallest integer that is not smaller", "CeilBackward0", lambda x: np.ceil(x))
_rounding("rint", "Nearest integer, the even one of two", "RoundBackward0", lambda x: np.rint(x))
Elementwise(
    name="round_decimals", doc="Nearest multiple of c / b; the gradient is 0.", grad_fn="RoundBackward1",
    function=False, composed=True,
    forward=lambda a, b, c: np.divide(np.multiply(np.rint(np.divide(np.multiply(a, b), c)), c), b),
    pullback=(flat, None, None), domain=(APART, CONSTANT, CONSTANT),
)  # fmt: skip
_rounding("trunc", "Integer part, towards zero", "TruncBackward0", lambda x: np.trunc(x), ("fix",))
Elementwise(
    name="frac", doc="What the integer part leaves, with the sign of the tensor.", grad_fn="FracBackward0",
    composed=True, vector=True, forward=lambda x: np.subtract(x, np.trunc(x)), pullback=(lambda g: g,), domain=(APART,),
)  # fmt: skip
Elementwise(
    name="floor_divide", doc="Largest integer not larger than the quotient; the gradients are 0.",
    grad_fn="DivBackward2", operator="//",
    forward=lambda a, b: np.floor_divide(a, b), pullback=(flat, flat), domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="divide_trunc", doc="Integer part of the quotient, towards zero; the gradients are 0.", grad_fn="DivBackward2",
    function=False, composed=True,
    forward=lambda a, b: np.trunc(np.divide(a, b)), pullback=(flat, flat), domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="remainder", doc="What floor division leaves, with the sign of the divisor.", grad_fn="RemainderBackward1",
    operator="%", forward=lambda a, b: np.remainder(a, b), pullback=(lambda g: g, lambda g, a, b: -g * np.floor(a / b)),
    number_grad_fn="RemainderBackward0", domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="fmod", doc="What truncated division leaves, with the sign of the dividend.", grad_fn="FmodBackward1",
    forward=lambda a, b: np.fmod(a, b), pullback=(lambda g: g, lambda g, a, b: -g * np.trunc(a / b)),
    number_grad_fn="FmodBackward0", domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="nextafter",
    doc="Next number of the dtype, from the first towards the second; where they are equal, no gradient.",
    grad_fn="NextafterBackward0",
    forward=lambda a, b: np.nextafter(a, b), pullback=(lambda g, a, b: cut(a == b, g), flat),
)  # fmt: skip
