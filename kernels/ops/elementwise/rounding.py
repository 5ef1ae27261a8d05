"""The table of roundings, of remainders and of neighbours: what is constant, or linear, between jumps."""

from __future__ import annotations

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.ops.elementwise.arithmetic import NONZERO, REAL, TWO, flat
from kernels.records.symbols import cut

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
