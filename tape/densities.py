"""The continuous distributions of :mod:`tape.stats`: each by its density and areas at loc 0 and scale 1."""

from __future__ import annotations

import math
from typing import Any

from tape import special
from tape.distributions import Continuous
from tape.operations.elementwise import FUNCTIONS

__all__ = ["Beta", "Exponential", "Gamma", "LogNormal", "Normal", "Student", "Uniform"]

_where, _log, _exp = FUNCTIONS["where"], FUNCTIONS["log"], FUNCTIONS["exp"]
_log1p, _expm1 = FUNCTIONS["log1p"], FUNCTIONS["expm1"]
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


class Normal(Continuous):
    """The normal distribution: ``norm.logpdf(x, loc=0, scale=1)``."""

    name = "norm"

    def _log_density(self, z: Any) -> Any:
        return -0.5 * z * z - _LOG_ROOT

    def _area(self, z: Any) -> Any:
        return special.ndtr(z)

    def _tail(self, z: Any) -> Any:
        return special.ndtr(-z)

    def _log_area(self, z: Any) -> Any:
        return special.log_ndtr(z)

    def _log_tail(self, z: Any) -> Any:
        return special.log_ndtr(-z)

    def _inverse(self, q: Any) -> Any:
        return special.ndtri(q)


class LogNormal(Continuous):
    """Its logarithm is normal, of standard deviation s: ``lognorm.logpdf(x, s, loc=0, scale=1)``."""

    name, shapes, low = "lognorm", ("s",), 0.0

    def _log_density(self, z: Any, s: Any) -> Any:
        u = _log(z) / s
        return _where(z > 0, -0.5 * u * u - _LOG_ROOT - _log(s) - _log(z), -math.inf)

    def _area(self, z: Any, s: Any) -> Any:
        return special.ndtr(_log(z) / s)

    def _tail(self, z: Any, s: Any) -> Any:
        return special.ndtr(-_log(z) / s)

    def _log_area(self, z: Any, s: Any) -> Any:
        return special.log_ndtr(_log(z) / s)

    def _log_tail(self, z: Any, s: Any) -> Any:
        return special.log_ndtr(-_log(z) / s)

    def _inverse(self, q: Any, s: Any) -> Any:
        return _exp(s * special.ndtri(q))


class Student(Continuous):
    """Student's t distribution: ``t.logpdf(x, df, loc=0, scale=1)``."""

    name, shapes = "t", ("df",)

    def _log_density(self, z: Any, df: Any) -> Any:
        front = special.gammaln(0.5 * df + 0.5) - special.gammaln(0.5 * df) - 0.5 * _log(math.pi * df)
        return front - (0.5 * df + 0.5) * _log1p(z * z / df)

    def _area(self, z: Any, df: Any) -> Any:
        return special.stdtr(df, z)

    def _tail(self, z: Any, df: Any) -> Any:
        return special.stdtr(df, -z)

    def _inverse(self, q: Any, df: Any) -> Any:
        return _where(q == 0, -math.inf, special.stdtrit(df, q))  # SciPy's ufunc says inf


class Gamma(Continuous):
    """The gamma distribution: ``gamma.logpdf(x, a, loc=0, scale=1)``."""

    name, shapes, low = "gamma", ("a",), 0.0

    def _log_density(self, z: Any, a: Any) -> Any:
        return special.xlogy(a - 1, z) - z - special.gammaln(a)

    def _area(self, z: Any, a: Any) -> Any:
        return special.gammainc(a, z)

    def _tail(self, z: Any, a: Any) -> Any:
        return special.gammaincc(a, z)

    def _inverse(self, q: Any, a: Any) -> Any:
        return special.gammaincinv(a, q)


class Beta(Continuous):
    """The beta distribution: ``beta.logpdf(x, a, b, loc=0, scale=1)``."""

    name, shapes, low, high = "beta", ("a", "b"), 0.0, 1.0

    def _log_density(self, z: Any, a: Any, b: Any) -> Any:
        return special.xlog1py(b - 1, -z) + special.xlogy(a - 1, z) - special.betaln(a, b)

    def _area(self, z: Any, a: Any, b: Any) -> Any:
        return special.betainc(a, b, z)

    def _tail(self, z: Any, a: Any, b: Any) -> Any:
        return special.betaincc(a, b, z)

    def _inverse(self, q: Any, a: Any, b: Any) -> Any:
        return special.betaincinv(a, b, q)


class Exponential(Continuous):
    """The exponential distribution: ``expon.logpdf(x, loc=0, scale=1)``."""

    name, low = "expon", 0.0

    def _log_density(self, z: Any) -> Any:
        return -z

    def _area(self, z: Any) -> Any:
        return -_expm1(-z)

    def _tail(self, z: Any) -> Any:
        return _exp(-z)

    def _log_tail(self, z: Any) -> Any:
        return -z

    def _inverse(self, q: Any) -> Any:
        return -_log1p(-q)


class Uniform(Continuous):
    """Even between loc and loc + scale: ``uniform.logpdf(x, loc=0, scale=1)``."""

    name, low, high = "uniform", 0.0, 1.0

    def _log_density(self, z: Any) -> Any:
        return 0 * z

    def _area(self, z: Any) -> Any:
        return z

    def _inverse(self, q: Any) -> Any:
        return q
