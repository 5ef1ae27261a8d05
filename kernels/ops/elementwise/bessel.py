"""The table of Bessel functions of any order, under SciPy's names: none has a derivative by its order.

Derivatives: Abramowitz and Stegun, 9.1.27 and 9.6.26.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.ops.elementwise.arithmetic import POSITIVE, REAL
from kernels.records.scipy_ufuncs import special
from kernels.records.symbols import Rule


def _bessel(name: str, doc: str, slope: Any, domain: str) -> None:
    """Declare a function of an order and a tensor; ``slope(a, b, y)`` is its derivative by b."""
    ufunc = getattr(special, name)
    Elementwise(
        name=name,
        doc=f"{doc}; its first argument, the order, has no gradient.",
        function=False,
        arguments=("v", "z"),
        grad_fn=f"Special{name.capitalize()}Backward0",
        ufunc=ufunc,
        forward=_call(ufunc),
        pullback=(None, slope),
        domain=("constant", domain),
    )


def _call(ufunc: Any) -> Rule:
    return lambda a, b: ufunc(a, b)  # its parameters name the inputs


_bessel(
    "jv", "Bessel function of the first kind",
    lambda g, a, b: g * (0.5 * (special.jv(a - 1, b) - special.jv(a + 1, b))), POSITIVE,
)  # fmt: skip
_bessel(
    "yv", "Bessel function of the second kind",
    lambda g, a, b: g * (0.5 * (special.yv(a - 1, b) - special.yv(a + 1, b))), POSITIVE,
)  # fmt: skip
_bessel(
    "iv", "Modified Bessel function of the first kind",
    lambda g, a, b: g * (0.5 * (special.iv(a - 1, b) + special.iv(a + 1, b))), POSITIVE,
)  # fmt: skip
_bessel(
    "ive", "Modified Bessel function of the first kind, times exp(-|x|)",
    lambda g, a, b, y: g * (0.5 * (special.ive(a - 1, b) + special.ive(a + 1, b)) - np.sign(b) * y), REAL,
)  # fmt: skip
_bessel(
    "kv", "Modified Bessel function of the second kind",
    lambda g, a, b: -g * (0.5 * (special.kv(a - 1, b) + special.kv(a + 1, b))), POSITIVE,
)  # fmt: skip
_bessel(
    "kve", "Modified Bessel function of the second kind, times exp(x)",
    lambda g, a, b, y: g * (y - 0.5 * (special.kve(a - 1, b) + special.kve(a + 1, b))), POSITIVE,
)  # fmt: skip
