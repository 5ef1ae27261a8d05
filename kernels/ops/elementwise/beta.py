"""The table of beta functions, of the areas of beta, gamma and Student's densities and their inverses: SciPy's names.

Derivatives: Abramowitz and Stegun, 6.2 and 26.5. By the parameters of a density the areas have none in closed form.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.ops.elementwise.arithmetic import ONE, POSITIVE, REAL, flat
from kernels.ops.elementwise.special import FRACTION, _gamma_density
from kernels.records.scipy_ufuncs import special


def _beta_density(a, b, c):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (of arrays, tensors and symbols)
    return np.exp(special.xlogy(a - 1, c) + special.xlog1py(b - 1, -c) - special.betaln(a, b))


def _student_density(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    log = special.gammaln(0.5 * a + 0.5) - special.gammaln(0.5 * a) - 0.5 * np.log(math.pi * a)
    return np.exp(log - (0.5 * a + 0.5) * np.log1p(b * b / a))


def _rgamma_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    at_poles = np.cos(math.pi * x) * special.gamma(1 - x)  # of gamma, where psi has poles too
    return np.where((x <= 0) & (x == np.floor(x)), at_poles, -special.psi(x) * y)


def _area(name: str, doc: str, forward: Any, slope: Any, domain: tuple[str, ...]) -> None:
    """Declare an area, or its inverse: a gradient to the last argument alone."""
    Elementwise(
        name=name,
        doc=f"{doc}; only its last argument has a gradient.",
        function=False,
        grad_fn=f"Special{name.capitalize()}Backward0",
        ufunc=getattr(special, name),
        forward=forward,
        pullback=(*(None,) * (len(domain) - 1), slope),
        domain=domain,
    )


Elementwise(
    name="beta",
    doc="Beta function.",
    function=False,
    grad_fn="SpecialBetaBackward0",
    ufunc=special.beta,
    forward=lambda a, b: special.beta(a, b),
    pullback=(
        lambda g, a, b, y: g * (y * (special.psi(a) - special.psi(a + b))),
        lambda g, a, b, y: g * (y * (special.psi(b) - special.psi(a + b))),
    ),
    domain=(POSITIVE, POSITIVE),
)
Elementwise(
    name="betaln",
    doc="Logarithm of the absolute value of the beta function.",
    function=False,
    grad_fn="SpecialBetalnBackward0",
    ufunc=special.betaln,
    forward=lambda a, b: special.betaln(a, b),
    pullback=(
        lambda g, a, b: g * (special.psi(a) - special.psi(a + b)),
        lambda g, a, b: g * (special.psi(b) - special.psi(a + b)),
    ),
    domain=(POSITIVE, POSITIVE),
)
Elementwise(
    name="rgamma",
    doc="One divided by the gamma function.",
    function=False,
    grad_fn="SpecialRgammaBackward0",
    ufunc=special.rgamma,
    forward=lambda x: special.rgamma(x),
    pullback=(lambda g, x, y: g * _rgamma_slope(x, y),),
    domain=ONE,
)
Elementwise(
    name="gammasgn",
    doc="Sign of the gamma function; the gradient is 0.",
    function=False,
    grad_fn="SpecialGammasgnBackward0",
    ufunc=special.gammasgn,
    forward=lambda x: special.gammasgn(x),
    pullback=(flat,),
    domain=(POSITIVE,),
)
_area(
    "betainc", "Area under the beta density up to x",
    lambda a, b, c: special.betainc(a, b, c), lambda g, a, b, c: g * _beta_density(a, b, c),
    ("constant", "constant", FRACTION),
)  # fmt: skip
_area(
    "betaincc", "Area under the beta density from x on",
    lambda a, b, c: special.betaincc(a, b, c), lambda g, a, b, c: -g * _beta_density(a, b, c),
    ("constant", "constant", FRACTION),
)  # fmt: skip
_area(
    "betaincinv", "Number up to which the area under the beta density is this",
    lambda a, b, c: special.betaincinv(a, b, c), lambda g, a, b, y: g / _beta_density(a, b, y),
    ("constant", "constant", FRACTION),
)  # fmt: skip
_area(
    "gammaincinv", "Number up to which the area under the gamma density is this",
    lambda a, b: special.gammaincinv(a, b), lambda g, a, y: g / _gamma_density(a, y), ("constant", FRACTION),
)  # fmt: skip
_area(
    "gammainccinv", "Number from which on the area under the gamma density is this",
    lambda a, b: special.gammainccinv(a, b), lambda g, a, y: -g / _gamma_density(a, y), ("constant", FRACTION),
)  # fmt: skip
_area(
    "stdtr", "Area under Student's density of so many degrees of freedom up to x",
    lambda a, b: special.stdtr(a, b), lambda g, a, b: g * _student_density(a, b), ("constant", REAL),
)  # fmt: skip
_area(
    "stdtrit", "Number up to which the area under Student's density is this",
    lambda a, b: special.stdtrit(a, b), lambda g, a, y: g / _student_density(a, y), ("constant", FRACTION),
)  # fmt: skip
