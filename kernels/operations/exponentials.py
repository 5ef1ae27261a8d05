"""The table of exponentials, logarithms and functions of angles, and of what is built of them: sigmoid, softplus."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.operations.arithmetic import ONE, POSITIVE, REAL, TWO
from kernels.rules.op import special
from kernels.rules.symbols import cut

_LN2, _LN10, _LOG2E = math.log(2), math.log(10), 1 / math.log(2)


def _softplus(x: Any, z: Any, b: Any, c: Any) -> Any:
    """Return ``log(1 + exp(z)) / b``, of an exponential that is not above 1."""
    return np.where(np.greater(z, c), x, np.divide(np.add(np.maximum(z, 0.0), np.log1p(np.exp(-np.absolute(z)))), b))


def _scaled(x: Any, b: Any) -> Any:
    """Return ``x * 2**b`` in two steps, which do not overflow where the result does not."""
    half = np.trunc(b * 0.5)
    return np.multiply(np.multiply(x, np.exp2(half)), np.exp2(b - half))


Elementwise(
    name="exp2",
    doc="Two raised to the tensor.",
    grad_fn="Exp2Backward0",
    forward=lambda x: np.exp2(x),
    pullback=(lambda g, y: g * (y * _LN2),),
    domain=ONE,
)
Elementwise(
    name="expm1",
    doc="Exponential less one, right for small arguments.",
    grad_fn="Expm1Backward0",
    forward=lambda x: np.expm1(x),
    vector=True,
    pullback=(lambda g, y: g * (y + 1),),
    domain=ONE,
)
Elementwise(
    name="log2",
    doc="Logarithm to base 2.",
    grad_fn="Log2Backward0",
    forward=lambda x: np.log2(x),
    pullback=(lambda g, x: g / (x * _LN2),),
    domain=(POSITIVE,),
)
Elementwise(
    name="log10",
    doc="Logarithm to base 10.",
    grad_fn="Log10Backward0",
    forward=lambda x: np.log10(x),
    pullback=(lambda g, x: g / (x * _LN10),),
    domain=(POSITIVE,),
)
Elementwise(
    name="log1p",
    doc="Logarithm of one plus the tensor, right for small arguments.",
    grad_fn="Log1PBackward0",
    forward=lambda x: np.log1p(x),
    pullback=(lambda g, x: g / (1 + x),),
    domain=(POSITIVE,),
)
Elementwise(
    name="logaddexp",
    doc="Logarithm of the sum of the exponentials of two tensors.",
    grad_fn="LogaddexpBackward0",
    vector=True,
    forward=lambda a, b: np.where(a == b, a + _LN2, np.maximum(a, b) + np.log1p(np.exp(-abs(a - b)))),
    pullback=(lambda g, a, b: g * special.expit(a - b), lambda g, a, b: g * special.expit(b - a)),
    domain=TWO,
)
Elementwise(
    name="logaddexp2",
    doc="Logarithm to base 2 of the sum of two raised to two tensors.",
    grad_fn="Logaddexp2Backward0",
    vector=True,
    forward=lambda a, b: np.where(a == b, a + 1.0, np.maximum(a, b) + np.log1p(np.exp2(-abs(a - b))) * _LOG2E),
    pullback=(lambda g, a, b: g * special.expit((a - b) * _LN2), lambda g, a, b: g * special.expit((b - a) * _LN2)),
    domain=TWO,
)
Elementwise(
    name="sigmoid",
    doc="Logistic function, 1 / (1 + exp(-x)).",
    grad_fn="SigmoidBackward0",
    ufunc=special.expit,
    vector=True,
    forward=lambda x: special.expit(x),
    pullback=(lambda g, y: g * ((1 - y) * y),),
    domain=ONE,
)
Elementwise(
    name="log_expit",
    doc="Logarithm of the logistic function.",
    function=False,
    grad_fn="LogSigmoidBackward0",
    ufunc=special.log_expit,
    forward=lambda x: special.log_expit(x),
    pullback=(lambda g, x: g * special.expit(-x),),
    domain=ONE,
)
Elementwise(
    name="softplus",
    doc="Logarithm of one plus exp(b a), divided by b; a itself where b a is larger than c.",
    function=False,
    grad_fn="SoftplusBackward0",
    composed=True,
    forward=lambda a, b, c: _softplus(a, a * b, b, c),
    pullback=(lambda g, a, b, c: np.where(a * b > c, g, g * special.expit(a * b)), None, None),
    domain=(REAL, "constant", "constant"),
)
Elementwise(
    name="rsqrt",
    doc="One over the square root.",
    grad_fn="RsqrtBackward0",
    composed=True,
    forward=lambda x: np.divide(1.0, np.sqrt(x)),
    vector=True,
    pullback=(lambda g, y: g * (-0.5 * (y * y * y)),),
    domain=(POSITIVE,),
)
Elementwise(
    name="cbrt",
    doc="Cube root, of negative numbers too.",
    grad_fn="CbrtBackward0",
    forward=lambda x: np.cbrt(x),
    pullback=(lambda g, y: g / (3 * (y * y)),),
    domain=ONE,
)
Elementwise(
    name="ldexp",
    doc="First tensor times two to the power of the second.",
    function=False,
    grad_fn="LdexpBackward0",
    composed=True,
    forward=lambda a, b: _scaled(a, b),
    pullback=(lambda g, b: _scaled(g, b), lambda g, y: g * (y * _LN2)),
    domain=TWO,
)


# The table of inverse and hyperbolic functions of angles, and of what turns angles and coordinates.

UNIT, ABOVE = "unit", "above"
"""Domains: between -1 and 1; above 1."""

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
    name="arcsin",
    doc="Angle in radians of this sine.",
    torch=("asin",),
    grad_fn="AsinBackward0",
    forward=lambda x: np.arcsin(x),
    pullback=(lambda g, x: g / np.sqrt((1 - x) * (1 + x)),),
    domain=(UNIT,),
)
Elementwise(
    name="arccos",
    doc="Angle in radians of this cosine.",
    torch=("acos",),
    grad_fn="AcosBackward0",
    forward=lambda x: np.arccos(x),
    pullback=(lambda g, x: -g / np.sqrt((1 - x) * (1 + x)),),
    domain=(UNIT,),
)
Elementwise(
    name="arctan",
    doc="Angle in radians of this tangent.",
    torch=("atan",),
    grad_fn="AtanBackward0",
    forward=lambda x: np.arctan(x),
    pullback=(lambda g, x: g / (1 + x * x),),
    domain=ONE,
)
Elementwise(
    name="arctan2",
    doc="Angle in radians of the point (b, a); the gradient at the origin is 0.",
    torch=("atan2",),
    grad_fn="Atan2Backward0",
    forward=lambda a, b: np.arctan2(a, b),
    pullback=(
        lambda g, a, b: cut((a == 0) & (b == 0), g * _turning(b, a)),
        lambda g, a, b: cut((a == 0) & (b == 0), -g * _turning(a, b)),
    ),
    domain=TWO,
)
Elementwise(
    name="sinh",
    doc="Hyperbolic sine.",
    grad_fn="SinhBackward0",
    forward=lambda x: np.sinh(x),
    vector=True,
    pullback=(lambda g, x: g * np.cosh(x),),
    domain=ONE,
)
Elementwise(
    name="cosh",
    doc="Hyperbolic cosine.",
    grad_fn="CoshBackward0",
    forward=lambda x: np.cosh(x),
    pullback=(lambda g, x: g * np.sinh(x),),
    domain=ONE,
)
Elementwise(
    name="arcsinh",
    doc="Number of this hyperbolic sine.",
    torch=("asinh",),
    grad_fn="AsinhBackward0",
    forward=lambda x: np.arcsinh(x),
    pullback=(lambda g, x: g / np.where(np.absolute(x) < _LARGE, np.sqrt(1 + x * x), np.absolute(x)),),
    domain=ONE,
)
Elementwise(
    name="arccosh",
    doc="Positive number of this hyperbolic cosine.",
    torch=("acosh",),
    grad_fn="AcoshBackward0",
    forward=lambda x: np.arccosh(x),
    pullback=(lambda g, x: g / (np.sqrt(x - 1) * np.sqrt(x + 1)),),
    domain=(ABOVE,),
)
Elementwise(
    name="arctanh",
    doc="Number of this hyperbolic tangent.",
    torch=("atanh",),
    grad_fn="AtanhBackward0",
    forward=lambda x: np.arctanh(x),
    pullback=(lambda g, x: g / ((1 - x) * (1 + x)),),
    domain=(UNIT,),
)
Elementwise(
    name="hypot",
    doc="Square root of the sum of two squares, without overflow.",
    grad_fn="HypotBackward0",
    vector=True,
    forward=lambda a, b: _hypot(np.fmax(abs(a), abs(b)), np.minimum(abs(a), abs(b))),
    pullback=(lambda g, y, a: g * (a / y), lambda g, y, b: g * (b / y)),
    domain=TWO,
)
Elementwise(
    name="deg2rad",
    doc="Angle in radians of one in degrees.",
    grad_fn="Deg2RadBackward0",
    forward=lambda x: x * (math.pi / 180),
    vector=True,
    exact=True,
    pullback=(lambda g: g * (math.pi / 180),),
    domain=ONE,
)
Elementwise(
    name="rad2deg",
    doc="Angle in degrees of one in radians.",
    grad_fn="Rad2DegBackward0",
    forward=lambda x: x * (180 / math.pi),
    vector=True,
    pullback=(lambda g: g * (180 / math.pi),),
    domain=ONE,
)
Elementwise(
    name="sinc",
    doc="Sine of pi x divided by pi x; 1 at 0.",
    grad_fn="SincBackward0",
    composed=True,
    forward=lambda x: _sine_over(np.where(np.equal(x, 0), _TINY, math.pi * x)),
    pullback=(lambda g, x: g * _sinc_slope(x),),
    domain=(REAL,),
)
