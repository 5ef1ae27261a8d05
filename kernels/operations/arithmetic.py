"""The table of arithmetic and comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.rules.op import SMALL, Rule, cut

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
