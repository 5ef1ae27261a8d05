"""The table of comparisons and of logic: results are bool, and no gradient passes."""

from __future__ import annotations

import numpy as np

from kernels.elementwise import BOOLEAN, ONE, TWO
from kernels.op import Elementwise

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
