"""SciPy's continuous distributions: parameters bound and checked, densities, areas and their inverses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from tape import special
from tape.operations.elementwise import FUNCTIONS, floating
from tape.tensors.tensor import Tensor

__all__ = [
    "BetaLaw", "Continuous", "Exponential", "Frozen", "GammaLaw", "Law", "LogNorm", "Norm", "Student", "Unif",
]  # fmt: skip

_where, _log, _exp = FUNCTIONS["where"], FUNCTIONS["log"], FUNCTIONS["exp"]


class Frozen:
    """A distribution with its parameters: its methods take what is asked for alone."""

    def __init__(self, of: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._of, self._args, self._kwargs = of, args, kwargs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._of, name)
        return functools.wraps(method)(lambda x: method(x, *self._args, **self._kwargs))


class _SignatureOfCalls:
    """What ``help`` shows of calls: an attribute of distributions, since ``inspect`` asks their class for its own."""

    def __get__(self, distribution: Any, kind: type) -> Signature:
        if distribution is None:
            raise AttributeError(f"{kind.__name__} has no attribute '__signature__'")
        both, numbers = Parameter.POSITIONAL_OR_KEYWORD, {"loc": 0.0, "scale": 1.0}
        names = distribution._names()
        return Signature([Parameter(n, both, default=numbers.get(n, Parameter.empty)) for n in names])


class Law:
    """What all distributions share: parameters bound as SciPy binds them; ``shapes`` names those before ``loc``."""

    name: str
    shapes: tuple[str, ...] = ()
    scaled = True

    __signature__ = _SignatureOfCalls()

    def _names(self) -> tuple[str, ...]:
        return (*self.shapes, "loc", *(["scale"] if self.scaled else []))

    def __call__(self, *args: Any, **kwargs: Any) -> Frozen:
        """Return the distribution with these parameters."""
        self.bound(args, kwargs)
        return Frozen(self, args, kwargs)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any, Any]:
        """Return shape parameters, loc and scale as floating tensors."""
        names = self._names()
        if len(args) > len(names):
            raise TypeError(f"{self.name}: takes the parameters {', '.join(names)}, got {len(args)}")
        parameters = dict(zip(names, args, strict=False))
        twice, unknown = parameters.keys() & kwargs.keys(), kwargs.keys() - set(names)
        if twice or unknown:
            what = "a parameter is given twice" if twice else "no parameter"
            raise TypeError(f"{self.name}: {what}: {', '.join(sorted(twice or unknown))}")
        parameters = {"loc": 0.0, "scale": 1.0, **parameters, **kwargs}
        missing = [name for name in self.shapes if name not in parameters]
        if missing:
            raise TypeError(f"{self.name}: missing the parameter {', '.join(missing)}")
        shapes = [floating(parameters[n]) for n in self.shapes]
        return shapes, floating(parameters["loc"]), floating(parameters["scale"])

    def valid(self, *shapes: Any) -> Any:
        """Return where shape parameters are in range: positive."""
        valid = np.True_
        for shape in shapes:
            valid = (shape > 0) & valid
        return valid


def checked(x: Any, valid: Any, result: Any) -> Any:
    """Return nan where parameters are out of range or the argument is nan."""
    return _where(valid & (x == x), result, np.nan)  # noqa: PLR0124


class Continuous(Law):
    """A distribution with a density, given by what it is at loc 0 and scale 1."""

    low, high = -math.inf, math.inf

    _log_density: Callable[..., Any]
    _area: Callable[..., Any]
    _inverse: Callable[..., Any]

    def _tail(self, z: Any, *shapes: Any) -> Any:
        return 1 - self._area(z, *shapes)

    def _log_area(self, z: Any, *shapes: Any) -> Any:
        return _log(self._area(z, *shapes))

    def _log_tail(self, z: Any, *shapes: Any) -> Any:
        return _log(self._tail(z, *shapes))

    def _at(self, x: Any, args: Any, kwargs: Any, of: Any, ends: tuple[float, float], *, density: bool = False) -> Any:
        shapes, loc, scale = self.bound(args, kwargs)
        x = floating(x)
        z = (x - loc) / scale
        with np.errstate(all="ignore"):
            result = of(z, *shapes)
            if density:
                result = result - _log(scale)
            result = _where(z < self.low, ends[0], result) if self.low > -math.inf else result
            result = _where(z > self.high, ends[1], result) if self.high < math.inf else result
            return checked(x, self.valid(*shapes) & (scale > 0), result)

    def logpdf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the density at x; -inf outside of the support."""
        return self._at(x, args, kwargs, self._log_density, (-math.inf, -math.inf), density=True)  # type: ignore[no-any-return]

    def pdf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the density at x; 0 outside of the support."""
        return _exp(self.logpdf(x, *args, **kwargs))  # type: ignore[no-any-return]

    def cdf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the area under the density up to x."""
        return self._at(x, args, kwargs, self._area, (0.0, 1.0))  # type: ignore[no-any-return]

    def sf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the area under the density from x on."""
        return self._at(x, args, kwargs, self._tail, (1.0, 0.0))  # type: ignore[no-any-return]

    def logcdf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the area under the density up to x."""
        return self._at(x, args, kwargs, self._log_area, (-math.inf, 0.0))  # type: ignore[no-any-return]

    def logsf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the area under the density from x on."""
        return self._at(x, args, kwargs, self._log_tail, (0.0, -math.inf))  # type: ignore[no-any-return]

    def ppf(self, q: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the number up to which the area under the density is q; nan for q outside of [0, 1]."""
        shapes, loc, scale = self.bound(args, kwargs)
        q = floating(q)
        with np.errstate(all="ignore"):
            standard = self._inverse(q, *shapes) * scale + loc
            return checked(q, self.valid(*shapes) & (scale > 0) & (q >= 0) & (q <= 1), standard)  # type: ignore[no-any-return]

    def isf(self, q: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the number from which on the area under the density is q."""
        return self.ppf(1 - floating(q), *args, **kwargs)


# The continuous distributions of :mod:`tape.stats`: each by its density and areas at loc 0 and scale 1.

_log1p, _expm1 = FUNCTIONS["log1p"], FUNCTIONS["expm1"]
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


class Norm(Continuous):
    """The normal distribution: ``norm.logpdf(x, loc=0, scale=1)``."""

    name = "norm"
    _log_density = staticmethod(lambda z: -0.5 * z * z - _LOG_ROOT)
    _area = staticmethod(special.ndtr)
    _tail = staticmethod(lambda z: special.ndtr(-z))
    _log_area = staticmethod(special.log_ndtr)
    _log_tail = staticmethod(lambda z: special.log_ndtr(-z))
    _inverse = staticmethod(special.ndtri)


class LogNorm(Continuous):
    """Its logarithm is normal, of standard deviation s: ``lognorm.logpdf(x, s, loc=0, scale=1)``."""

    name, shapes, low = "lognorm", ("s",), 0.0

    def _log_density(self, z: Any, s: Any) -> Any:
        u = _log(z) / s
        return _where(z > 0, -0.5 * u * u - _LOG_ROOT - _log(s) - _log(z), -math.inf)

    _area = staticmethod(lambda z, s: special.ndtr(_log(z) / s))
    _tail = staticmethod(lambda z, s: special.ndtr(-_log(z) / s))
    _log_area = staticmethod(lambda z, s: special.log_ndtr(_log(z) / s))
    _log_tail = staticmethod(lambda z, s: special.log_ndtr(-_log(z) / s))
    _inverse = staticmethod(lambda q, s: _exp(s * special.ndtri(q)))


class Student(Continuous):
    """Student's t distribution: ``t.logpdf(x, df, loc=0, scale=1)``."""

    name, shapes = "t", ("df",)

    def _log_density(self, z: Any, df: Any) -> Any:
        front = special.gammaln(0.5 * df + 0.5) - special.gammaln(0.5 * df) - 0.5 * _log(math.pi * df)
        return front - (0.5 * df + 0.5) * _log1p(z * z / df)

    _area = staticmethod(lambda z, df: special.stdtr(df, z))
    _tail = staticmethod(lambda z, df: special.stdtr(df, -z))
    _inverse = staticmethod(lambda q, df: _where(q == 0, -math.inf, special.stdtrit(df, q)))  # SciPy's ufunc says inf


class GammaLaw(Continuous):
    """The gamma distribution: ``gamma.logpdf(x, a, loc=0, scale=1)``."""

    name, shapes, low = "gamma", ("a",), 0.0
    _log_density = staticmethod(lambda z, a: special.xlogy(a - 1, z) - z - special.gammaln(a))
    _area = staticmethod(lambda z, a: special.gammainc(a, z))
    _tail = staticmethod(lambda z, a: special.gammaincc(a, z))
    _inverse = staticmethod(lambda q, a: special.gammaincinv(a, q))


class BetaLaw(Continuous):
    """The beta distribution: ``beta.logpdf(x, a, b, loc=0, scale=1)``."""

    name, shapes, low, high = "beta", ("a", "b"), 0.0, 1.0
    _log_density = staticmethod(
        lambda z, a, b: special.xlog1py(b - 1, -z) + special.xlogy(a - 1, z) - special.betaln(a, b)
    )
    _area = staticmethod(lambda z, a, b: special.betainc(a, b, z))
    _tail = staticmethod(lambda z, a, b: special.betaincc(a, b, z))
    _inverse = staticmethod(lambda q, a, b: special.betaincinv(a, b, q))


class Exponential(Continuous):
    """The exponential distribution: ``expon.logpdf(x, loc=0, scale=1)``."""

    name, low = "expon", 0.0
    _log_density = staticmethod(lambda z: -z)
    _area = staticmethod(lambda z: -_expm1(-z))
    _tail = staticmethod(lambda z: _exp(-z))
    _log_tail = staticmethod(lambda z: -z)
    _inverse = staticmethod(lambda q: -_log1p(-q))


class Unif(Continuous):
    """Even between loc and loc + scale: ``uniform.logpdf(x, loc=0, scale=1)``."""

    name, low, high = "uniform", 0.0, 1.0
    _log_density = staticmethod(lambda z: 0 * z)
    _area = staticmethod(lambda z: z)
    _inverse = staticmethod(lambda q: q)
