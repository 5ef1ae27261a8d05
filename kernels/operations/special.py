"""The table of special functions: SciPy's names and SciPy's ufuncs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.foundation.tables import cached_property
from kernels.kinds.elementwise import Elementwise
from kernels.operations.arithmetic import ONE, POSITIVE, REAL, flat
from kernels.rules.op import LateUfunc, Rule, cut, special

# Derivatives: Abramowitz and Stegun, chapters 6, 7 and 9, and where they lose digits, the asymptotic series there.

FRACTION = "fraction"  # A domain: between 0 and 1

_ROOT = math.sqrt(math.pi)
_FAR = 1000.0  # from here on the differences of Bessel functions lose digits, and few terms of their series do
_FURTHER = 60.0  # likewise for erfcx
_BELOW = -5.0  # likewise for the quotient of the normal density and its area
_NEAR = 0.25  # up to here quotients of Bessel functions lose digits in derivatives, and few terms of their series do


class _Zeta(LateUfunc):
    """Hurwitz's zeta function, which ``scipy.special.zeta`` wraps."""

    @cached_property
    def ufunc(self) -> Any:
        import scipy.special._ufuncs as private

        return private._zeta  # noqa: SLF001 (there is no public ufunc)


vars(special)["zeta"] = _Zeta("zeta")


def _special(name: str, doc: str, grad_fn: str, pullback: Rule, domain: tuple[str, ...], **more: Any) -> None:
    ufunc = getattr(special, more.pop("ufunc", name))
    Elementwise(
        name=name,
        doc=doc,
        grad_fn=grad_fn,
        pullback=(pullback,),
        domain=domain,
        ufunc=ufunc,
        forward=lambda x: ufunc(x),
        **more,
    )


def _i0e_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (of arrays, tensors and symbols)
    far = 0.5 + (0.125 + (0.125 + 25 / 128 / np.absolute(x)) / np.absolute(x)) / np.absolute(x)
    return np.where(np.absolute(x) > _FAR, -y * far / x, special.i1e(x) - np.sign(x) * y)


def _bessel_series(s):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Return the derivative of i1 near 0, of the square of its argument; of j1, of that with the other sign."""
    return 0.5 + s * (3 / 16 + s * (5 / 384 + s * (7 / 18432 + s * (9 / 1474560 + s * (11 / 176947200)))))


def _i1e_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    far = 0.5 - (0.375 + (0.375 + 63 / 128 / np.absolute(x)) / np.absolute(x)) / np.absolute(x)
    series = np.exp(-np.absolute(x)) * _bessel_series(x * x)
    near = np.where(np.absolute(x) < _NEAR, series, special.i0e(x) - y / x) - np.sign(x) * y
    return np.where(np.absolute(x) > _FAR, -y * far / x, near)


def _i1_slope(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    quotient = np.exp(np.absolute(x)) * (special.i0e(x) - special.i1e(x) / x)
    return np.where(np.absolute(x) < _NEAR, _bessel_series(x * x), quotient)


def _j1_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return np.where(np.absolute(x) < _NEAR, _bessel_series(-x * x), special.j0(x) - y / x)


def _erfcx_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    t = 0.5 / x / x
    far = -2 / _ROOT * t * (1 - 3 * t * (1 - 5 * t * (1 - 7 * t * (1 - 9 * t))))
    return np.where(x > _FURTHER, far, 2 * x * y - 2 / _ROOT)


def _log_ndtr_slope(x, y):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    near = math.sqrt(0.5 / math.pi) * np.exp(-0.5 * x * x - y)
    return np.where(x < _BELOW, math.sqrt(2 / math.pi) / special.erfcx(-math.sqrt(0.5) * x), near)


def _gamma_density(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return np.exp(special.xlogy(a - 1, b) - b - special.gammaln(a))


_special(
    "erf", "Error function.", "ErfBackward0", lambda g, x: g * (2 / _ROOT * np.exp(-x * x)), ONE, vector=True,
)  # fmt: skip
_special(
    "erfc", "One less the error function.", "ErfcBackward0",
    lambda g, x: g * (-2 / _ROOT * np.exp(-x * x)), ONE, vector=True,
)  # fmt: skip
_special(
    "erfinv", "Number whose error function this is.", "ErfinvBackward0",
    lambda g, y: g * (_ROOT / 2 * np.exp(y * y)), ("unit",),
)  # fmt: skip
_special(
    "erfcinv", "Number whose complementary error function this is.", "SpecialErfcinvBackward0",
    lambda g, y: g * (-_ROOT / 2 * np.exp(y * y)), (FRACTION,), function=False,
)  # fmt: skip
_special(
    "erfcx", "Complementary error function times exp(x x).", "SpecialErfcxBackward0",
    lambda g, x, y: g * _erfcx_slope(x, y), ONE,
)  # fmt: skip
_special(
    "lgamma", "Logarithm of the absolute value of the gamma function.", "LgammaBackward0",
    lambda g, x: g * special.psi(x), ONE, ufunc="gammaln",
)  # fmt: skip
_special(
    "digamma", "Derivative of the logarithm of the gamma function.", "DigammaBackward0",
    lambda g, x: g * special.zeta(2.0, x), (POSITIVE,), ufunc="psi",
)  # fmt: skip
_special(
    "gamma", "Gamma function.", "SpecialGammaBackward0",
    lambda g, x, y: g * (y * special.psi(x)), (POSITIVE,), function=False,
)  # fmt: skip
_special(
    "logit", "Logarithm of x / (1 - x).", "LogitBackward0",
    lambda g, x: g / np.where((x < 0) | (x > 1), math.nan, x * (1 - x)), (FRACTION,), function=False,
)  # fmt: skip
_special(
    "i0", "Modified Bessel function of the first kind of order 0.", "I0Backward0", lambda g, x: g * special.i1(x), ONE,
)  # fmt: skip
_special(
    "i0e", "Modified Bessel function of order 0 times exp(-|x|).", "SpecialI0EBackward0",
    lambda g, x, y: g * _i0e_slope(x, y), ONE,
)  # fmt: skip
_special(
    "i1", "Modified Bessel function of the first kind of order 1.", "SpecialI1Backward0",
    lambda g, x: g * _i1_slope(x), ONE,
)  # fmt: skip
_special(
    "i1e", "Modified Bessel function of order 1 times exp(-|x|).", "SpecialI1EBackward0",
    lambda g, x, y: g * _i1e_slope(x, y), ONE,
)  # fmt: skip
_special(
    "ndtr", "Area under the normal density up to x.", "SpecialNdtrBackward0",
    lambda g, x: g * (math.sqrt(0.5 / math.pi) * np.exp(-0.5 * x * x)), ONE,
)  # fmt: skip
_special(
    "ndtri", "Number up to which the area under the normal density is x.", "SpecialNdtriBackward0",
    lambda g, y: g * (math.sqrt(2 * math.pi) * np.exp(0.5 * y * y)), (FRACTION,),
)  # fmt: skip
_special(
    "log_ndtr", "Logarithm of the area under the normal density up to x.", "SpecialLogNdtrBackward0",
    lambda g, x, y: g * _log_ndtr_slope(x, y), ONE,
)  # fmt: skip
_special(
    "j0", "Bessel function of the first kind of order 0.", "SpecialBesselJ0Backward0",
    lambda g, x: -g * special.j1(x), ONE, function=False,
)  # fmt: skip
_special(
    "j1", "Bessel function of the first kind of order 1.", "SpecialBesselJ1Backward0",
    lambda g, x, y: g * _j1_slope(x, y), ONE, function=False,
)  # fmt: skip
_special(
    "y0", "Bessel function of the second kind of order 0.", "SpecialBesselY0Backward0",
    lambda g, x: -g * special.y1(x), (POSITIVE,), function=False,
)  # fmt: skip
_special(
    "y1", "Bessel function of the second kind of order 1.", "SpecialBesselY1Backward0",
    lambda g, x, y: g * (special.y0(x) - y / x), (POSITIVE,), function=False,
)  # fmt: skip
_special(
    "k0", "Modified Bessel function of the second kind of order 0.", "SpecialModifiedBesselK0Backward0",
    lambda g, x: -g * special.k1(x), (POSITIVE,), function=False,
)  # fmt: skip
_special(
    "k1", "Modified Bessel function of the second kind of order 1.", "SpecialModifiedBesselK1Backward0",
    lambda g, x, y: -g * (special.k0(x) + y / x), (POSITIVE,), function=False,
)  # fmt: skip
_special(
    "entr", "Entropy, -x log x; 0 at 0 and -inf below.", "SpecialEntrBackward0",
    lambda g, x: -g * (1 + np.log(x)), (POSITIVE,),
)  # fmt: skip

Elementwise(
    name="xlogy", doc="First tensor times the logarithm of the second; 0 where the first is 0.",
    grad_fn="XlogyBackward0", reversed_grad_fn="XlogyBackward1",
    forward=lambda a, b: special.xlogy(a, b), ufunc=special.xlogy,
    pullback=(
        lambda g, a, b: cut((a == 0) & (b <= 0), g * np.log(b)),
        lambda g, a, b: cut((a == 0) & (b <= 0), g * (a / b)),
    ),
    number_grad_fn="XlogyBackward2", domain=(REAL, POSITIVE),
)  # fmt: skip
Elementwise(
    name="xlog1py", doc="First tensor times the logarithm of one plus the second; 0 where the first is 0.",
    grad_fn="SpecialXlog1PyBackward0", reversed_grad_fn="SpecialXlog1PyBackward1",
    forward=lambda a, b: special.xlog1py(a, b), ufunc=special.xlog1py,
    pullback=(
        lambda g, a, b: cut((a == 0) & (b <= -1), g * np.log1p(b)),
        lambda g, a, b: cut((a == 0) & (b <= -1), g * (a / (1 + b))),
    ),
    number_grad_fn="SpecialXlog1PyBackward2", domain=(REAL, POSITIVE),
)  # fmt: skip
Elementwise(
    name="zeta", doc="Hurwitz's zeta function; its first argument has no gradient.", arguments=("input", "other"),
    grad_fn="SpecialZetaBackward0", function=False, forward=lambda a, b: special.zeta(a, b), ufunc=special.zeta,
    pullback=(None, lambda g, a, b: -g * (a * special.zeta(a + 1, b))), domain=("constant", POSITIVE),
)  # fmt: skip
Elementwise(
    name="polygamma", doc="Derivative of the digamma function: a times Hurwitz's zeta function of b, of order b - 1.",
    grad_fn="PolygammaBackward0", function=False, composed=True,
    forward=lambda a, b, c: np.multiply(a, special.zeta(b, c)),
    pullback=(None, None, lambda g, a, b, c: -g * (a * b * special.zeta(b + 1, c))),
    domain=("constant", "constant", POSITIVE),
)  # fmt: skip
Elementwise(
    name="gammainc", doc="Regularised lower incomplete gamma function; its first argument has no gradient.",
    arguments=("input", "other"), grad_fn="IgammaBackward0", function=False,
    forward=lambda a, b: special.gammainc(a, b), ufunc=special.gammainc,
    pullback=(None, lambda g, a, b: g * _gamma_density(a, b)), domain=("constant", POSITIVE),
)  # fmt: skip
Elementwise(
    name="gammaincc", doc="Regularised upper incomplete gamma function; its first argument has no gradient.",
    arguments=("input", "other"), grad_fn="IgammacBackward0", function=False,
    forward=lambda a, b: special.gammaincc(a, b), ufunc=special.gammaincc,
    pullback=(None, lambda g, a, b: -g * _gamma_density(a, b)), domain=("constant", POSITIVE),
)  # fmt: skip


# Bessel functions of any order: Abramowitz and Stegun, 9.1.27 and 9.6.26.


def _bessel(name: str, doc: str, slope: Any, domain: str) -> None:
    """Declare a function of an order and a tensor; ``slope(a, b, y)`` is its derivative by b."""
    ufunc = getattr(special, name)
    Elementwise(
        name=name, doc=f"{doc}; its first argument, the order, has no gradient.", arguments=("v", "z"),
        grad_fn=f"Special{name.capitalize()}Backward0", function=False,
        forward=lambda a, b: ufunc(a, b), ufunc=ufunc, pullback=(None, slope), domain=("constant", domain),
    )  # fmt: skip


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


# Beta functions and areas: Abramowitz and Stegun, 6.2 and 26.5. By the parameters of a density the areas have no
# derivative in closed form.


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
        name=name, doc=f"{doc}; only its last argument has a gradient.", grad_fn=f"Special{name.capitalize()}Backward0",
        function=False,
        forward=forward, ufunc=getattr(special, name), pullback=(*(None,) * (len(domain) - 1), slope), domain=domain,
    )  # fmt: skip


Elementwise(
    name="beta", doc="Beta function.", grad_fn="SpecialBetaBackward0", function=False,
    forward=lambda a, b: special.beta(a, b), ufunc=special.beta,
    pullback=(
        lambda g, a, b, y: g * (y * (special.psi(a) - special.psi(a + b))),
        lambda g, a, b, y: g * (y * (special.psi(b) - special.psi(a + b))),
    ),
    domain=(POSITIVE, POSITIVE),
)  # fmt: skip
Elementwise(
    name="betaln", doc="Logarithm of the absolute value of the beta function.", grad_fn="SpecialBetalnBackward0",
    function=False, forward=lambda a, b: special.betaln(a, b), ufunc=special.betaln,
    pullback=(
        lambda g, a, b: g * (special.psi(a) - special.psi(a + b)),
        lambda g, a, b: g * (special.psi(b) - special.psi(a + b)),
    ),
    domain=(POSITIVE, POSITIVE),
)  # fmt: skip
Elementwise(
    name="rgamma", doc="One divided by the gamma function.", grad_fn="SpecialRgammaBackward0", function=False,
    forward=lambda x: special.rgamma(x), ufunc=special.rgamma, pullback=(lambda g, x, y: g * _rgamma_slope(x, y),),
)  # fmt: skip
Elementwise(
    name="gammasgn", doc="Sign of the gamma function; the gradient is 0.", grad_fn="SpecialGammasgnBackward0",
    function=False, forward=lambda x: special.gammasgn(x), ufunc=special.gammasgn, pullback=(flat,), domain=(POSITIVE,),
)  # fmt: skip
_area(
    "betainc", "Area under the beta density up to x", lambda a, b, c: special.betainc(a, b, c),
    lambda g, a, b, c: g * _beta_density(a, b, c), ("constant", "constant", FRACTION),
)  # fmt: skip
_area(
    "betaincc", "Area under the beta density from x on", lambda a, b, c: special.betaincc(a, b, c),
    lambda g, a, b, c: -g * _beta_density(a, b, c), ("constant", "constant", FRACTION),
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
