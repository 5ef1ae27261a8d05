"""The table of operations that choose or round, element by element: bounds, extrema that skip nan, signs, steps.

What is not chosen receives nothing (:func:`kernels.rules.symbols.cut`), not 0 times what may be infinite.
"""

from __future__ import annotations

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.operations.arithmetic import NONZERO, REAL, TWO, flat
from kernels.rules.symbols import Rule, cut

CONSTANT = "constant"
"""A domain: Python numbers, which have no gradient."""

Elementwise(
    name="relu",
    doc="Tensor where it is positive, else 0; the gradient at 0 is 0.",
    grad_fn="ReluBackward0",
    composed=True,
    forward=lambda x: np.maximum(x, 0),
    vector=True,
    pullback=(lambda g, y: cut(y <= 0, g),),
    domain=(NONZERO,),
)


def _at_least(name: str, grad_fn: str, number_grad_fn: str, *, function: bool) -> None:
    Elementwise(
        name=name,
        doc="First tensor, but not less than the second; a tie gives the first the gradient.",
        function=function,
        arguments=("input", name.removeprefix("clamp_")),
        grad_fn=grad_fn,
        number_grad_fn=number_grad_fn,
        composed=True,
        forward=lambda a, b: np.maximum(a, b),
        pullback=(
            lambda g, a, b: cut(np.logical_not(a >= b), g),
            lambda g, a, b: cut(np.logical_not(a < b), g),
        ),
        domain=TWO,
    )


def _at_most(name: str, grad_fn: str, number_grad_fn: str, *, function: bool) -> None:
    Elementwise(
        name=name,
        doc="First tensor, but not more than the second; a tie gives the first the gradient.",
        function=function,
        arguments=("input", name.removeprefix("clamp_")),
        grad_fn=grad_fn,
        number_grad_fn=number_grad_fn,
        composed=True,
        forward=lambda a, b: np.minimum(a, b),
        pullback=(
            lambda g, a, b: cut(np.logical_not(a <= b), g),
            lambda g, a, b: cut(np.logical_not(a > b), g),
        ),
        domain=TWO,
    )


_at_least("clamp_min", "ClampMinBackward1", "ClampMinBackward0", function=True)
_at_most("clamp_max", "ClampMaxBackward1", "ClampMaxBackward0", function=True)
_at_least("clamp_below", "ClampBackward0", "ClampBackward1", function=False)
_at_most("clamp_above", "ClampBackward0", "ClampBackward1", function=False)

_INSIDE: Rule = lambda g, a, b, c: cut(np.logical_not((a >= b) & (a <= c)), g)  # noqa: E731 (a rule)

Elementwise(
    name="clamp",
    doc="First tensor, but not less than the second nor more than the third; at the bounds it has the gradient.",
    function=False,
    grad_fn="ClampBackward0",
    number_grad_fn="ClampBackward1",
    composed=True,
    forward=lambda a, b, c: np.minimum(np.maximum(a, b), c),
    pullback=(
        _INSIDE,
        lambda g, a, b, c: cut(np.logical_not((a < b) & (b < c)), g),
        lambda g, a, b, c: cut(np.logical_not((a > c) | (c < b)), g),
    ),
    domain=(REAL, "low", "high"),
)
Elementwise(
    name="fmax",
    doc="Larger of two tensors, or the one that is not nan; a tie gives the first the gradient.",
    grad_fn="FmaxBackward0",
    forward=lambda a, b: np.fmax(a, b),
    pullback=(
        lambda g, a, b: cut(np.logical_not((a >= b) | np.isnan(b)), g),
        lambda g, a, b: cut((a >= b) | np.isnan(b), g),
    ),
    domain=TWO,
)
Elementwise(
    name="fmin",
    doc="Smaller of two tensors, or the one that is not nan; a tie gives the first the gradient.",
    grad_fn="FminBackward0",
    forward=lambda a, b: np.fmin(a, b),
    pullback=(
        lambda g, a, b: cut(np.logical_not((a <= b) | np.isnan(b)), g),
        lambda g, a, b: cut((a <= b) | np.isnan(b), g),
    ),
    domain=TWO,
)
Elementwise(
    name="sign",
    doc="Sign: -1, 0 or 1, and nan of nan, as NumPy has it; the gradient is 0.",
    function=False,
    grad_fn="SignBackward0",
    forward=lambda x: np.sign(x),
    pullback=(flat,),
    domain=(NONZERO,),
)


def _sign(name: str, grad_fn: str, torch: tuple[str, ...] = ()) -> None:
    Elementwise(
        name=name,
        doc="Sign: -1, 0 or 1, and 0 of nan; the gradient is 0.",
        torch=torch,
        function=not torch,
        grad_fn=grad_fn,
        composed=True,
        vector=True,
        forward=lambda x: np.where(np.equal(x, x), np.sign(x), 0),
        pullback=(flat,),
        domain=(NONZERO,),
    )


_sign("sign_number", "SignBackward0", ("sign",))
_sign("sgn", "SgnBackward0")

Elementwise(
    name="copysign",
    doc="First tensor with the sign of the second; the gradient at 0 is 0.",
    grad_fn="CopysignBackward0",
    number_grad_fn="CopysignBackward1",
    forward=lambda a, b: np.copysign(a, b),
    pullback=(
        lambda g, a, b: cut(a == 0, g * (np.copysign(1.0, a) * np.copysign(1.0, b))),
        flat,
    ),
    domain=TWO,
)
Elementwise(
    name="heaviside",
    doc="0 where the first is negative, 1 where it is positive, the second where it is 0; nan of nan, as NumPy has it.",
    function=False,
    grad_fn="HeavisideBackward0",
    forward=lambda a, b: np.heaviside(a, b),
    pullback=(flat, lambda g, a: cut(a != 0, g)),
    domain=TWO,
)
Elementwise(
    name="heaviside_number",
    doc="0 where the first is negative or nan, 1 where it is positive, the second where it is 0.",
    torch=("heaviside",),
    arguments=("input", "values"),
    function=False,
    grad_fn="HeavisideBackward0",
    composed=True,
    forward=lambda a, b: np.heaviside(np.where(np.equal(a, a), a, -1), b),
    pullback=(flat, lambda g, a: cut(a != 0, g)),
    domain=TWO,
)
Elementwise(
    name="nan_to_num",
    doc="First tensor with b for nan, c for inf, d for -inf; what is replaced has no gradient.",
    function=False,
    grad_fn="NanToNumBackward0",
    composed=True,
    forward=lambda a, b, c, d: np.where(
        np.equal(a, np.inf), c, np.where(np.equal(a, -np.inf), d, np.where(np.equal(a, a), a, b))
    ),
    pullback=(lambda g, a: cut(np.logical_not(np.isfinite(a)), g), None, None, None),
    domain=(REAL, CONSTANT, CONSTANT, CONSTANT),
)
Elementwise(
    name="lerp",
    doc="Point on the way from the first tensor to the second; the third is 0 at the first, 1 at the second.",
    function=False,
    grad_fn="LerpBackward1",
    composed=True,
    forward=lambda a, b, c: np.where(
        np.less(np.absolute(c), 0.5), np.add(a, np.multiply(c, b - a)), np.subtract(b, np.multiply(b - a, 1 - c))
    ),
    pullback=(lambda g, c: g * (1 - c), lambda g, c: g * c, lambda g, a, b: g * (b - a)),
    domain=(REAL, REAL, REAL),
)


def _lerp_number(name: str, phrase: str, forward: Rule) -> None:
    Elementwise(
        name=name,
        doc=f"Point on the way from the first tensor to the second, by a Python number {phrase}.",
        function=False,
        grad_fn="LerpBackward0",
        composed=True,
        forward=forward,
        pullback=(lambda g, c: g * (1 - c), lambda g, c: g * c, None),
        domain=(REAL, REAL, CONSTANT),
    )


_lerp_number("lerp_near", "nearer to 0", lambda a, b, c: np.add(a, np.multiply(b - a, c)))
_lerp_number("lerp_far", "from a half", lambda a, b, c: np.subtract(b, np.multiply(b - a, 1 - c)))
Elementwise(
    name="addcmul",
    doc="First tensor plus the product of the others.",
    function=False,
    grad_fn="AddcmulBackward0",
    composed=True,
    forward=lambda a, b, c: np.add(a, np.multiply(b, c)),
    pullback=(lambda g: g, lambda g, c: g * c, lambda g, b: g * b),
    domain=(REAL, REAL, REAL),
)
Elementwise(
    name="addcdiv",
    doc="First tensor plus the quotient of the others.",
    function=False,
    grad_fn="AddcdivBackward0",
    composed=True,
    forward=lambda a, b, c: np.add(a, np.divide(b, c)),
    pullback=(lambda g: g, lambda g, c: g / c, lambda g, b, c: -g * ((b / c) / c)),
    domain=(REAL, REAL, NONZERO),
)


# The table of roundings, of remainders and of neighbours: what is constant, or linear, between jumps.

APART = "apart"
"""A domain: reals away from where roundings jump."""
_ROUNDED = (APART,)

Elementwise(
    name="floor",
    doc="Largest integer that is not larger; the gradient is 0.",
    grad_fn="FloorBackward0",
    forward=lambda x: np.floor(x),
    pullback=(flat,),
    domain=_ROUNDED,
)
Elementwise(
    name="ceil",
    doc="Smallest integer that is not smaller; the gradient is 0.",
    grad_fn="CeilBackward0",
    forward=lambda x: np.ceil(x),
    pullback=(flat,),
    domain=_ROUNDED,
)
Elementwise(
    name="rint",
    doc="Nearest integer, the even one of two; the gradient is 0.",
    grad_fn="RoundBackward0",
    forward=lambda x: np.rint(x),
    pullback=(flat,),
    domain=_ROUNDED,
)
Elementwise(
    name="round_decimals",
    doc="Nearest multiple of c / b; the gradient is 0.",
    function=False,
    grad_fn="RoundBackward1",
    composed=True,
    forward=lambda a, b, c: np.divide(np.multiply(np.rint(np.divide(np.multiply(a, b), c)), c), b),
    pullback=(flat, None, None),
    domain=(APART, "constant", "constant"),
)
Elementwise(
    name="trunc",
    doc="Integer part, towards zero; the gradient is 0.",
    torch=("fix",),
    grad_fn="TruncBackward0",
    forward=lambda x: np.trunc(x),
    pullback=(flat,),
    domain=_ROUNDED,
)
Elementwise(
    name="frac",
    doc="What the integer part leaves, with the sign of the tensor.",
    grad_fn="FracBackward0",
    composed=True,
    forward=lambda x: np.subtract(x, np.trunc(x)),
    vector=True,
    pullback=(lambda g: g,),
    domain=_ROUNDED,
)
Elementwise(
    name="floor_divide",
    doc="Largest integer not larger than the quotient; the gradients are 0.",
    grad_fn="DivBackward2",
    operator="//",
    forward=lambda a, b: np.floor_divide(a, b),
    pullback=(flat, flat),
    domain=(REAL, NONZERO),
)
Elementwise(
    name="divide_trunc",
    doc="Integer part of the quotient, towards zero; the gradients are 0.",
    function=False,
    grad_fn="DivBackward2",
    composed=True,
    forward=lambda a, b: np.trunc(np.divide(a, b)),
    pullback=(flat, flat),
    domain=(REAL, NONZERO),
)
Elementwise(
    name="remainder",
    doc="What floor division leaves, with the sign of the divisor.",
    grad_fn="RemainderBackward1",
    number_grad_fn="RemainderBackward0",
    operator="%",
    forward=lambda a, b: np.remainder(a, b),
    pullback=(lambda g: g, lambda g, a, b: -g * np.floor(a / b)),
    domain=(REAL, NONZERO),
)
Elementwise(
    name="fmod",
    doc="What truncated division leaves, with the sign of the dividend.",
    grad_fn="FmodBackward1",
    number_grad_fn="FmodBackward0",
    forward=lambda a, b: np.fmod(a, b),
    pullback=(lambda g: g, lambda g, a, b: -g * np.trunc(a / b)),
    domain=(REAL, NONZERO),
)
Elementwise(
    name="nextafter",
    doc="Next number of the dtype, from the first towards the second; where they are equal, no gradient.",
    grad_fn="NextafterBackward0",
    forward=lambda a, b: np.nextafter(a, b),
    pullback=(lambda g, a, b: cut(a == b, g), flat),
    domain=TWO,
)
