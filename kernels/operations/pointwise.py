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
    name="add", doc="Sum of two tensors.", operator="+", scaled=True, exact=True,
    forward=lambda a, b: a + b, pullback=(lambda g: g, lambda g: g),
)  # fmt: skip
Elementwise(
    name="subtract", doc="Difference of two tensors.", torch=("sub",), reversed_grad_fn="RsubBackward1", operator="-",
    scaled=True, exact=True, forward=lambda a, b: a - b, pullback=(lambda g: g, lambda g: -g),
)  # fmt: skip
Elementwise(
    name="multiply", doc="Product of two tensors.", torch=("mul",), operator="*", exact=True,
    forward=lambda a, b: a * b, pullback=(lambda g, b: g * b, lambda g, a: g * a),
)  # fmt: skip
Elementwise(
    name="divide", doc="Quotient of two tensors.", torch=("true_divide",), grad_fn="DivBackward0",
    reversed_grad_fn="MulBackward0", reversed_within="ReciprocalBackward0", operator="/", function=False, exact=True,
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
    name="negative", doc="Tensor with its sign turned.", torch=("neg",), operator="-", exact=True,
    forward=lambda x: -x, pullback=(lambda g: -g,),
)  # fmt: skip
Elementwise(
    name="positive", doc="The tensor itself.", grad_fn="AliasBackward0", operator="+", identity=True, exact=True,
    forward=lambda x: +x, pullback=(lambda g: g,),
)  # fmt: skip
Elementwise(
    name="square", doc="Square.", grad_fn="PowBackward0", exact=True,
    forward=lambda x: x * x, pullback=(lambda g, x: g * (2 * x),),
)  # fmt: skip
Elementwise(name="sqrt", doc="Square root.", exact=True, pullback=(lambda g, y: g / (2 * y),), domain=(POSITIVE,))
Elementwise(
    name="reciprocal", doc="One over the tensor.", exact=True, vector=True,
    forward=lambda x: 1 / x, pullback=(lambda g, y: -g * (y * y),), domain=(NONZERO,),
)  # fmt: skip
Elementwise(
    name="absolute", doc="Absolute value; the gradient at 0 is 0.", torch=("abs",), operator="abs", exact=True,
    pullback=(lambda g, x: g * np.sign(x),), domain=(NONZERO,),
)  # fmt: skip
Elementwise(name="exp", doc="Exponential.", pullback=(lambda g, y: g * y,))
Elementwise(name="log", doc="Natural logarithm.", pullback=(lambda g, x: g / x,), domain=(POSITIVE,))
Elementwise(name="sin", doc="Sine of an angle in radians.", vector=True, pullback=(lambda g, x: g * np.cos(x),))
Elementwise(name="cos", doc="Cosine of an angle in radians.", vector=True, pullback=(lambda g, x: -g * np.sin(x),))
Elementwise(name="tan", doc="Tangent of an angle in radians.", pullback=(lambda g, y: g * (1 + y * y),))
Elementwise(name="tanh", doc="Hyperbolic tangent.", vector=True, pullback=(lambda g, y: g * (1 - y * y),))
Elementwise(
    name="maximum", doc="Larger of two tensors, element by element; a tie gives each half of the gradient.",
    pullback=(
        lambda g, a, b: cut(a < b, np.where(a == b, g / 2, g)),
        lambda g, a, b: cut(b < a, np.where(a == b, g / 2, g)),
    ),
)  # fmt: skip
Elementwise(
    name="minimum", doc="Smaller of two tensors, element by element; a tie gives each half of the gradient.",
    pullback=(
        lambda g, a, b: cut(a > b, np.where(a == b, g / 2, g)),
        lambda g, a, b: cut(b > a, np.where(a == b, g / 2, g)),
    ),
)  # fmt: skip
Elementwise(
    name="where", doc="Second tensor where the first, a condition, holds, and the third elsewhere.", condition=True,
    exact=True, forward=lambda c, a, b: np.where(c, a, b),
    pullback=(None, lambda g, c: cut(np.logical_not(c), g), lambda g, c: cut(c, g)), domain=(BOOLEAN, REAL, REAL),
)  # fmt: skip


INTEGER = "integer"  # A domain: small integers that are not negative


def _without_gradient(name: str, doc: str, domain: tuple[str, ...] = TWO, **more: Any) -> None:
    Elementwise(name=name, doc=doc, pullback=(None,) * len(domain), domain=domain, **more)


_without_gradient("less", "True where the first is less.", forward=lambda a, b: a < b, torch=("lt",), operator="<")
_without_gradient(
    "less_equal", "True where the first is less or equal.", forward=lambda a, b: a <= b, torch=("le",), operator="<="
)
_without_gradient(
    "greater", "True where the first is greater.", forward=lambda a, b: a > b, torch=("gt",), operator=">"
)
_without_gradient(
    "greater_equal", "True where the first is greater or equal.", forward=lambda a, b: a >= b, torch=("ge",),
    operator=">=",
)  # fmt: skip
_without_gradient(
    "equal", "True where both are equal.", forward=lambda a, b: a == b, torch=("eq",), function=False, operator="=="
)
_without_gradient("not_equal", "True where they differ.", forward=lambda a, b: a != b, torch=("ne",), operator="!=")
_without_gradient("logical_not", "True where the tensor is zero or False.", ONE)
_without_gradient("logical_and", "True where both are nonzero or True.")
_without_gradient("logical_or", "True where one is nonzero or True.")
_without_gradient(
    "bitwise_and", "Bits, or truth, of both; integer and bool tensors only.", (BOOLEAN, BOOLEAN),
    forward=lambda a, b: a & b, operator="&",
)  # fmt: skip
_without_gradient(
    "bitwise_or", "Bits, or truth, of either; integer and bool tensors only.", (BOOLEAN, BOOLEAN),
    forward=lambda a, b: a | b, operator="|",
)  # fmt: skip
_without_gradient("logical_xor", "True where one of the two, but not both, is nonzero or True.")
_without_gradient(
    "bitwise_xor", "Bits, or truth, of one of the two but not both; integer and bool tensors only.", (BOOLEAN, BOOLEAN),
    forward=lambda a, b: a ^ b, operator="^",
)  # fmt: skip
_without_gradient(
    "invert", "Bits, or truth, turned; integer and bool tensors only.", (BOOLEAN,), torch=("bitwise_not",), operator="~"
)
_without_gradient(
    "left_shift", "Bits of the first moved up by the second; integer tensors only.", (INTEGER, INTEGER),
    torch=("bitwise_left_shift",), operator="<<",
)  # fmt: skip
_without_gradient(
    "right_shift", "Bits of the first moved down by the second, its sign kept; integer tensors only.",
    (INTEGER, INTEGER), torch=("bitwise_right_shift",), operator=">>",
)  # fmt: skip
_without_gradient("isnan", "True where the tensor is nan.", ONE)
_without_gradient("isinf", "True where the tensor is inf or -inf.", ONE)
_without_gradient("isfinite", "True where the tensor is neither inf nor nan.", ONE)
_without_gradient("signbit", "True where the sign is minus, that of -0.0 too.", ONE)
_without_gradient(
    "isposinf", "True where the tensor is inf.", ONE, forward=lambda x: np.equal(x, np.inf), composed=True
)
_without_gradient(
    "isneginf", "True where the tensor is -inf.", ONE, forward=lambda x: np.equal(x, -np.inf), composed=True
)
_without_gradient("gcd", "Greatest common divisor, not negative; integer tensors only.", (INTEGER, INTEGER))
_without_gradient("lcm", "Least common multiple, not negative; integer tensors only.", (INTEGER, INTEGER))


# The table of exponentials, logarithms, trigonometry, and of functions that are made of pieces.

CONSTANT = "constant"  # A domain: Python numbers, which have no gradient
_LN2, _LN10, _LOG2E = math.log(2), math.log(10), 1 / math.log(2)
_ROOT_HALF, _ROOT_PI = math.sqrt(0.5), math.sqrt(math.pi)


def _softplus(x: Any, z: Any, b: Any, c: Any) -> Any:
    """Return ``log(1 + exp(z)) / b``, of an exponential that is not above 1."""
    return np.where(np.greater(z, c), x, np.divide(np.add(np.maximum(z, 0.0), np.log1p(np.exp(-np.absolute(z)))), b))


def _scaled(x: Any, b: Any) -> Any:
    """Return ``x * 2**b`` in two steps, which do not overflow where the result does not."""
    half = np.trunc(b * 0.5)
    return np.multiply(np.multiply(x, np.exp2(half)), np.exp2(b - half))


Elementwise(name="exp2", doc="Two raised to the tensor.", pullback=(lambda g, y: g * (y * _LN2),))
Elementwise(
    name="expm1", doc="Exponential less one, right for small arguments.", vector=True,
    pullback=(lambda g, y: g * (y + 1),),
)  # fmt: skip
Elementwise(name="log2", doc="Logarithm to base 2.", pullback=(lambda g, x: g / (x * _LN2),), domain=(POSITIVE,))
Elementwise(name="log10", doc="Logarithm to base 10.", pullback=(lambda g, x: g / (x * _LN10),), domain=(POSITIVE,))
Elementwise(
    name="log1p", doc="Logarithm of one plus the tensor, right for small arguments.",
    pullback=(lambda g, x: g / (1 + x),), domain=(POSITIVE,),
)  # fmt: skip
Elementwise(
    name="logaddexp", doc="Logarithm of the sum of the exponentials of two tensors.", vector=True,
    forward=lambda a, b: np.where(a == b, a + _LN2, np.maximum(a, b) + np.log1p(np.exp(-abs(a - b)))),
    pullback=(lambda g, a, b: g * special.expit(a - b), lambda g, a, b: g * special.expit(b - a)),
)  # fmt: skip
Elementwise(
    name="logaddexp2", doc="Logarithm to base 2 of the sum of two raised to two tensors.", vector=True,
    forward=lambda a, b: np.where(a == b, a + 1.0, np.maximum(a, b) + np.log1p(np.exp2(-abs(a - b))) * _LOG2E),
    pullback=(lambda g, a, b: g * special.expit((a - b) * _LN2), lambda g, a, b: g * special.expit((b - a) * _LN2)),
)  # fmt: skip
Elementwise(
    name="sigmoid", doc="Logistic function, 1 / (1 + exp(-x)).", vector=True,
    ufunc=special.expit, pullback=(lambda g, y: g * ((1 - y) * y),),
)  # fmt: skip
Elementwise(
    name="log_expit", doc="Logarithm of the logistic function.", grad_fn="LogSigmoidBackward0", function=False,
    ufunc=special.log_expit, pullback=(lambda g, x: g * special.expit(-x),),
)  # fmt: skip
Elementwise(
    name="softplus", doc="Logarithm of one plus exp(b a), divided by b; a itself where b a is larger than c.",
    function=False, composed=True, vector=True, forward=lambda a, b, c: _softplus(a, a * b, b, c),
    pullback=(lambda g, a, b, c: np.where(a * b > c, g, g * special.expit(a * b)), None, None),
    domain=(REAL, CONSTANT, CONSTANT),
)  # fmt: skip
Elementwise(
    name="rsqrt", doc="One over the square root.", composed=True, vector=True,
    forward=lambda x: np.divide(1.0, np.sqrt(x)), pullback=(lambda g, y: g * (-0.5 * (y * y * y)),), domain=(POSITIVE,),
)  # fmt: skip
Elementwise(name="cbrt", doc="Cube root, of negative numbers too.", pullback=(lambda g, y: g / (3 * (y * y)),))
Elementwise(
    name="ldexp", doc="First tensor times two to the power of the second.", function=False, composed=True,
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
    name="arcsin", doc="Angle in radians of this sine.", torch=("asin",),
    pullback=(lambda g, x: g / np.sqrt((1 - x) * (1 + x)),), domain=(UNIT,),
)  # fmt: skip
Elementwise(
    name="arccos", doc="Angle in radians of this cosine.", torch=("acos",),
    pullback=(lambda g, x: -g / np.sqrt((1 - x) * (1 + x)),), domain=(UNIT,),
)  # fmt: skip
Elementwise(
    name="arctan", doc="Angle in radians of this tangent.", torch=("atan",), pullback=(lambda g, x: g / (1 + x * x),)
)
Elementwise(
    name="arctan2", doc="Angle in radians of the point (b, a); the gradient at the origin is 0.", torch=("atan2",),
    pullback=(
        lambda g, a, b: cut((a == 0) & (b == 0), g * _turning(b, a)),
        lambda g, a, b: cut((a == 0) & (b == 0), -g * _turning(a, b)),
    ),
)  # fmt: skip
Elementwise(name="sinh", doc="Hyperbolic sine.", vector=True, pullback=(lambda g, x: g * np.cosh(x),))
Elementwise(name="cosh", doc="Hyperbolic cosine.", pullback=(lambda g, x: g * np.sinh(x),))
Elementwise(
    name="arcsinh", doc="Number of this hyperbolic sine.", torch=("asinh",),
    pullback=(lambda g, x: g / np.where(np.absolute(x) < _LARGE, np.sqrt(1 + x * x), np.absolute(x)),),
)  # fmt: skip
Elementwise(
    name="arccosh", doc="Positive number of this hyperbolic cosine.", torch=("acosh",),
    pullback=(lambda g, x: g / (np.sqrt(x - 1) * np.sqrt(x + 1)),), domain=(ABOVE,),
)  # fmt: skip
Elementwise(
    name="arctanh", doc="Number of this hyperbolic tangent.", torch=("atanh",),
    pullback=(lambda g, x: g / ((1 - x) * (1 + x)),), domain=(UNIT,),
)  # fmt: skip
Elementwise(
    name="hypot", doc="Square root of the sum of two squares, without overflow.", vector=True,
    forward=lambda a, b: _hypot(np.fmax(abs(a), abs(b)), np.minimum(abs(a), abs(b))),
    pullback=(lambda g, y, a: g * (a / y), lambda g, y, b: g * (b / y)),
)  # fmt: skip
Elementwise(
    name="deg2rad", doc="Angle in radians of one in degrees.", vector=True, exact=True,
    forward=lambda x: x * (math.pi / 180), pullback=(lambda g: g * (math.pi / 180),),
)  # fmt: skip
Elementwise(
    name="rad2deg", doc="Angle in degrees of one in radians.", vector=True,
    forward=lambda x: x * (180 / math.pi), pullback=(lambda g: g * (180 / math.pi),),
)  # fmt: skip
Elementwise(
    name="sinc", doc="Sine of pi x divided by pi x; 1 at 0.", composed=True,
    forward=lambda x: _sine_over(np.where(np.equal(x, 0), _TINY, math.pi * x)),
    pullback=(lambda g, x: g * _sinc_slope(x),), domain=(REAL,),
)  # fmt: skip


# What is not chosen receives nothing (:func:`kernels.rules.op.cut`), not 0 times what may be infinite.

Elementwise(
    name="relu", doc="Tensor where it is positive, else 0; the gradient at 0 is 0.", composed=True, vector=True,
    forward=lambda x: np.where(np.less_equal(x, 0), 0, x), pullback=(lambda g, y: cut(y <= 0, g),),
    domain=(NONZERO,),
)  # fmt: skip
Elementwise(
    name="leaky_relu", doc="Tensor where it is positive, else b of it.", function=False, composed=True, vector=True,
    forward=lambda a, b: np.where(np.greater(a, 0.0), a, np.multiply(a, b)),
    pullback=(lambda g, a, b: np.where(a > 0, g, g * b), None), domain=(NONZERO, CONSTANT),
)  # fmt: skip
Elementwise(
    name="elu", doc="Tensor where it is positive, else b (exp(a / c) - 1).", function=False, composed=True, vector=True,
    forward=lambda a, b, c: np.where(np.greater(a, 0.0), a, np.multiply(b, np.expm1(np.divide(a, c)))),
    pullback=(lambda g, a, b, c: np.where(a > 0, g, g * (b / c * np.exp(np.minimum(a, 0.0) / c))), None, None),
    domain=(NONZERO, CONSTANT, CONSTANT),
)  # fmt: skip
Elementwise(
    name="silu", doc="Tensor times its logistic function.", function=False, composed=True, vector=True,
    forward=lambda x: np.multiply(x, special.expit(x)),
    pullback=(lambda g, x: g * (special.expit(x) * (1 + x * special.expit(-x))),),
)  # fmt: skip
Elementwise(
    name="gelu", doc="Tensor times the area under the normal density up to it.", function=False, composed=True,
    vector=True, forward=lambda x: np.multiply(x, np.multiply(0.5, special.erfc(np.multiply(x, -_ROOT_HALF)))),
    pullback=(
        lambda g, x: g * (0.5 * special.erfc(-_ROOT_HALF * x) + x * (_ROOT_HALF / _ROOT_PI * np.exp(-0.5 * x * x))),
    ),
)  # fmt: skip
Elementwise(
    name="huber", doc="Half the squared difference of two tensors, from c on in a line.", function=False, composed=True,
    vector=True, forward=lambda a, b, c: np.where(
        np.less(np.absolute(a - b), c), np.multiply(0.5, np.square(a - b)),
        np.multiply(c, np.absolute(a - b) - 0.5 * c),
    ),
    pullback=(
        lambda g, a, b, c: g * np.where(np.absolute(a - b) < c, a - b, c * np.sign(a - b)),
        lambda g, a, b, c: g * np.where(np.absolute(a - b) < c, b - a, c * np.sign(b - a)), None,
    ),
    domain=(REAL, REAL, CONSTANT),
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
    function=False, composed=True, forward=lambda a, b, c: np.minimum(np.maximum(a, b), c),
    pullback=(
        _INSIDE,
        lambda g, a, b, c: cut(np.logical_not((a < b) & (b < c)), g),
        lambda g, a, b, c: cut(np.logical_not((a > c) | (c < b)), g),
    ),
    number_grad_fn="ClampBackward1", domain=(REAL, "low", "high"),
)  # fmt: skip
Elementwise(
    name="fmax", doc="Larger of two tensors, or the one that is not nan; a tie gives the first the gradient.",
    pullback=(
        lambda g, a, b: cut(np.logical_not((a >= b) | np.isnan(b)), g),
        lambda g, a, b: cut((a >= b) | np.isnan(b), g),
    ),
)  # fmt: skip
Elementwise(
    name="fmin", doc="Smaller of two tensors, or the one that is not nan; a tie gives the first the gradient.",
    pullback=(
        lambda g, a, b: cut(np.logical_not((a <= b) | np.isnan(b)), g),
        lambda g, a, b: cut((a <= b) | np.isnan(b), g),
    ),
)  # fmt: skip
Elementwise(
    name="sign", doc="Sign: -1, 0 or 1, and nan of nan, as NumPy has it; the gradient is 0.", function=False,
    pullback=(flat,), domain=(NONZERO,),
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
    pullback=(lambda g, a, b: cut(a == 0, g * (np.copysign(1.0, a) * np.copysign(1.0, b))), flat),
    number_grad_fn="CopysignBackward1",
)  # fmt: skip
Elementwise(
    name="heaviside",
    doc="0 where the first is negative, 1 where it is positive, the second where it is 0; nan of nan, as NumPy has it.",
    function=False, pullback=(flat, lambda g, a: cut(a != 0, g)),
)  # fmt: skip
Elementwise(
    name="heaviside_number",
    doc="0 where the first is negative or nan, 1 where it is positive, the second where it is 0.", torch=("heaviside",),
    arguments=("input", "values"), function=False, composed=True,
    forward=lambda a, b: np.heaviside(np.where(np.equal(a, a), a, -1), b), pullback=(flat, lambda g, a: cut(a != 0, g)),
)  # fmt: skip
Elementwise(
    name="nan_to_num", doc="First tensor with b for nan, c for inf, d for -inf; what is replaced has no gradient.",
    function=False, composed=True,
    forward=lambda a, b, c, d: np.where(
        np.equal(a, np.inf), c, np.where(np.equal(a, -np.inf), d, np.where(np.equal(a, a), a, b))
    ),
    pullback=(lambda g, a: cut(np.logical_not(np.isfinite(a)), g), None, None, None),
    domain=(REAL, CONSTANT, CONSTANT, CONSTANT),
)  # fmt: skip
Elementwise(
    name="lerp",
    doc="Point on the way from the first tensor to the second; the third is 0 at the first, 1 at the second.",
    grad_fn="LerpBackward1", function=False, composed=True, vector=True,
    forward=lambda a, b, c: np.where(
        np.less(np.absolute(c), 0.5), np.add(a, np.multiply(c, b - a)), np.subtract(b, np.multiply(b - a, 1 - c))
    ),
    pullback=(lambda g, c: g * (1 - c), lambda g, c: g * c, lambda g, a, b: g * (b - a)), domain=(REAL, REAL, REAL),
)  # fmt: skip


def _lerp_number(name: str, phrase: str, forward: Rule) -> None:
    Elementwise(
        name=name, doc=f"Point on the way from the first tensor to the second, by a Python number {phrase}.",
        grad_fn="LerpBackward0", function=False, composed=True, vector=True,
        forward=forward, pullback=(lambda g, c: g * (1 - c), lambda g, c: g * c, None), domain=(REAL, REAL, CONSTANT),
    )  # fmt: skip


_lerp_number("lerp_near", "nearer to 0", lambda a, b, c: np.add(a, np.multiply(b - a, c)))
_lerp_number("lerp_far", "from a half", lambda a, b, c: np.subtract(b, np.multiply(b - a, 1 - c)))
Elementwise(
    name="addcmul", doc="First tensor plus the product of the others.", function=False, composed=True, vector=True,
    forward=lambda a, b, c: np.add(a, np.multiply(b, c)),
    pullback=(lambda g: g, lambda g, c: g * c, lambda g, b: g * b), domain=(REAL, REAL, REAL),
)  # fmt: skip
Elementwise(
    name="addcdiv", doc="First tensor plus the quotient of the others.", function=False, composed=True,
    forward=lambda a, b, c: np.add(a, np.divide(b, c)),
    pullback=(lambda g: g, lambda g, c: g / c, lambda g, b, c: -g * ((b / c) / c)), domain=(REAL, REAL, NONZERO),
)  # fmt: skip


APART = "apart"  # A domain: reals away from where roundings jump


def _rounding(name: str, phrase: str, **more: Any) -> None:
    Elementwise(name=name, doc=f"{phrase}; the gradient is 0.", pullback=(flat,), domain=(APART,), **more)


_rounding("floor", "Largest integer that is not larger")
_rounding("ceil", "Smallest integer that is not smaller")
_rounding("rint", "Nearest integer, the even one of two", grad_fn="RoundBackward0")
Elementwise(
    name="round_decimals", doc="Nearest multiple of c / b; the gradient is 0.", grad_fn="RoundBackward1",
    function=False, composed=True,
    forward=lambda a, b, c: np.divide(np.multiply(np.rint(np.divide(np.multiply(a, b), c)), c), b),
    pullback=(flat, None, None), domain=(APART, CONSTANT, CONSTANT),
)  # fmt: skip
_rounding("trunc", "Integer part, towards zero", torch=("fix",), grad_fn="TruncBackward0")
Elementwise(
    name="frac", doc="What the integer part leaves, with the sign of the tensor.", composed=True, vector=True,
    forward=lambda x: np.subtract(x, np.trunc(x)), pullback=(lambda g: g,), domain=(APART,),
)  # fmt: skip
Elementwise(
    name="floor_divide", doc="Largest integer not larger than the quotient; the gradients are 0.",
    grad_fn="DivBackward2", operator="//", pullback=(flat, flat), domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="divide_trunc", doc="Integer part of the quotient, towards zero; the gradients are 0.", grad_fn="DivBackward2",
    function=False, composed=True,
    forward=lambda a, b: np.trunc(np.divide(a, b)), pullback=(flat, flat), domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="remainder", doc="What floor division leaves, with the sign of the divisor.", grad_fn="RemainderBackward1",
    operator="%", pullback=(lambda g: g, lambda g, a, b: -g * np.floor(a / b)), number_grad_fn="RemainderBackward0",
    domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="fmod", doc="What truncated division leaves, with the sign of the dividend.", grad_fn="FmodBackward1",
    pullback=(lambda g: g, lambda g, a, b: -g * np.trunc(a / b)), number_grad_fn="FmodBackward0",
    domain=(REAL, NONZERO),
)  # fmt: skip
Elementwise(
    name="nextafter",
    doc="Next number of the dtype, from the first towards the second; where they are equal, no gradient.",
    pullback=(lambda g, a, b: cut(a == b, g), flat),
)  # fmt: skip
