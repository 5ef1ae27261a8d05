"""The table of exponentials and logarithms, and of what is built of them: sigmoid, softplus, logaddexp."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.ops.elementwise.arithmetic import ONE, POSITIVE, REAL, TWO
from kernels.records.scipy_ufuncs import special

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
