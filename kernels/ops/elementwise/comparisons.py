"""The table of comparisons, of logic and of operations on integers: no gradient passes."""

from __future__ import annotations

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.ops.elementwise.arithmetic import BOOLEAN, ONE, TWO

INTEGER = "integer"
"""A domain: small integers that are not negative."""

Elementwise(
    name="less",
    doc="True where the first is less.",
    torch=("lt",),
    grad_fn="",
    operator="<",
    forward=lambda a, b: a < b,
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="less_equal",
    doc="True where the first is less or equal.",
    torch=("le",),
    grad_fn="",
    operator="<=",
    forward=lambda a, b: a <= b,
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="greater",
    doc="True where the first is greater.",
    torch=("gt",),
    grad_fn="",
    operator=">",
    forward=lambda a, b: a > b,
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="greater_equal",
    doc="True where the first is greater or equal.",
    torch=("ge",),
    grad_fn="",
    operator=">=",
    forward=lambda a, b: a >= b,
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="equal",
    doc="True where both are equal.",
    torch=("eq",),
    function=False,
    grad_fn="",
    operator="==",
    forward=lambda a, b: a == b,
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="not_equal",
    doc="True where they differ.",
    torch=("ne",),
    grad_fn="",
    operator="!=",
    forward=lambda a, b: a != b,
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="logical_not",
    doc="True where the tensor is zero or False.",
    grad_fn="",
    forward=lambda x: np.logical_not(x),
    pullback=(None,),
    domain=ONE,
)
Elementwise(
    name="logical_and",
    doc="True where both are nonzero or True.",
    grad_fn="",
    forward=lambda a, b: np.logical_and(a, b),
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="logical_or",
    doc="True where one is nonzero or True.",
    grad_fn="",
    forward=lambda a, b: np.logical_or(a, b),
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="bitwise_and",
    doc="Bits, or truth, of both; integer and bool tensors only.",
    grad_fn="",
    operator="&",
    forward=lambda a, b: a & b,
    pullback=(None, None),
    domain=(BOOLEAN, BOOLEAN),
)
Elementwise(
    name="bitwise_or",
    doc="Bits, or truth, of either; integer and bool tensors only.",
    grad_fn="",
    operator="|",
    forward=lambda a, b: a | b,
    pullback=(None, None),
    domain=(BOOLEAN, BOOLEAN),
)
Elementwise(
    name="logical_xor",
    doc="True where one of the two, but not both, is nonzero or True.",
    grad_fn="",
    forward=lambda a, b: np.logical_xor(a, b),
    pullback=(None, None),
    domain=TWO,
)
Elementwise(
    name="bitwise_xor",
    doc="Bits, or truth, of one of the two but not both; integer and bool tensors only.",
    grad_fn="",
    operator="^",
    forward=lambda a, b: a ^ b,
    pullback=(None, None),
    domain=(BOOLEAN, BOOLEAN),
)
Elementwise(
    name="invert",
    doc="Bits, or truth, turned; integer and bool tensors only.",
    torch=("bitwise_not",),
    grad_fn="",
    operator="~",
    forward=lambda x: np.invert(x),
    pullback=(None,),
    domain=(BOOLEAN,),
)
Elementwise(
    name="left_shift",
    doc="Bits of the first moved up by the second; integer tensors only.",
    torch=("bitwise_left_shift",),
    grad_fn="",
    operator="<<",
    forward=lambda a, b: np.left_shift(a, b),
    pullback=(None, None),
    domain=(INTEGER, INTEGER),
)
Elementwise(
    name="right_shift",
    doc="Bits of the first moved down by the second, its sign kept; integer tensors only.",
    torch=("bitwise_right_shift",),
    grad_fn="",
    operator=">>",
    forward=lambda a, b: np.right_shift(a, b),
    pullback=(None, None),
    domain=(INTEGER, INTEGER),
)
Elementwise(
    name="isnan",
    doc="True where the tensor is nan.",
    grad_fn="",
    forward=lambda x: np.isnan(x),
    pullback=(None,),
    domain=ONE,
)
Elementwise(
    name="isinf",
    doc="True where the tensor is inf or -inf.",
    grad_fn="",
    forward=lambda x: np.isinf(x),
    pullback=(None,),
    domain=ONE,
)
Elementwise(
    name="isfinite",
    doc="True where the tensor is neither inf nor nan.",
    grad_fn="",
    forward=lambda x: np.isfinite(x),
    pullback=(None,),
    domain=ONE,
)
Elementwise(
    name="signbit",
    doc="True where the sign is minus, that of -0.0 too.",
    grad_fn="",
    forward=lambda x: np.signbit(x),
    pullback=(None,),
    domain=ONE,
)
Elementwise(
    name="isposinf",
    doc="True where the tensor is inf.",
    grad_fn="",
    composed=True,
    forward=lambda x: np.equal(x, np.inf),
    pullback=(None,),
    domain=ONE,
)
Elementwise(
    name="isneginf",
    doc="True where the tensor is -inf.",
    grad_fn="",
    composed=True,
    forward=lambda x: np.equal(x, -np.inf),
    pullback=(None,),
    domain=ONE,
)
Elementwise(
    name="gcd",
    doc="Greatest common divisor, not negative; integer tensors only.",
    grad_fn="",
    forward=lambda a, b: np.gcd(a, b),
    pullback=(None, None),
    domain=(INTEGER, INTEGER),
)
Elementwise(
    name="lcm",
    doc="Least common multiple, not negative; integer tensors only.",
    grad_fn="",
    forward=lambda a, b: np.lcm(a, b),
    pullback=(None, None),
    domain=(INTEGER, INTEGER),
)
