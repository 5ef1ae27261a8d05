"""Densities, areas and their inverses under the names of ``scipy.stats``, with gradients to all parameters.

``tape.stats.norm.logpdf(x, loc, scale)`` takes tensors, arrays and numbers, of broadcast shapes, in SciPy's order:
what is asked for, the shape parameters, ``loc``, ``scale``. Values agree with SciPy's: -inf or 0 outside of the
support, nan for parameters out of range. ``norm(loc, scale)`` freezes the parameters. The areas of gamma, beta and
Student's t (``cdf``, ``sf``, ``ppf``) have no gradient to shape parameters, and raise NotImplementedError there.

    >>> x = tape.tensor([0.0, 1.0], requires_grad=True)
    >>> tape.stats.norm.logpdf(x, 0.0, 2.0).detach()
    tensor([-1.6121, -1.7371])
    >>> tape.stats.gamma(2.0).sf(1.0)
    tensor(0.7358)
    >>> tape.stats.multivariate_normal.logpdf([0.0, 1.0], [0.0, 0.0], [[2.0, 0.0], [0.0, 1.0]])
    tensor(-2.6845)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tape import continuous, linalg, special
from tape.continuous import Frozen, checked
from tape.operations import reductions
from tape.operations.elementwise import FUNCTIONS, floating
from tape.recording import views
from tape.tensors.tensor import Tensor

__all__ = ["beta", "binom", "expon", "gamma", "lognorm", "multivariate_normal", "norm", "poisson", "t", "uniform"]

_where, _log, _exp, _floor = (FUNCTIONS[name] for name in ("where", "log", "exp", "floor"))
_MATRIX = 2


class Discrete(continuous.Law):
    """A distribution of integers, given by what it is at loc 0."""

    scaled = False

    _log_mass: Callable[..., Any]
    _area: Callable[..., Any]
    _tail: Callable[..., Any]

    def _at(self, k: Any, args: Any, kwargs: Any, of: Any) -> Any:
        shapes, loc, _ = self.bound(args, kwargs)
        k = floating(k)
        with np.errstate(all="ignore"):
            return checked(k, self.valid(*shapes), of(k - loc, *shapes))

    def logpmf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the probability of k; -inf where k is no integer of the support."""
        return self._at(  # type: ignore[no-any-return]
            k, args, kwargs, lambda k, *shapes: _where(k == _floor(k), self._log_mass(k, *shapes), -math.inf)
        )

    def pmf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the probability of k."""
        return _exp(self.logpmf(k, *args, **kwargs))  # type: ignore[no-any-return]

    def cdf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the probability of k and less."""
        return self._at(k, args, kwargs, lambda k, *shapes: self._area(_floor(k), *shapes))  # type: ignore[no-any-return]

    def sf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the probability of more than k."""
        return self._at(k, args, kwargs, lambda k, *shapes: self._tail(_floor(k), *shapes))  # type: ignore[no-any-return]

    def logcdf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the probability of k and less."""
        return _log(self.cdf(k, *args, **kwargs))  # type: ignore[no-any-return]

    def logsf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the probability of more than k."""
        return _log(self.sf(k, *args, **kwargs))  # type: ignore[no-any-return]


class Poisson(Discrete):
    """How often something rare happens: ``poisson.logpmf(k, mu, loc=0)``."""

    name, shapes = "poisson", ("mu",)

    def valid(self, *shapes: Any) -> Any:
        """Return where mu is not negative."""
        return shapes[0] >= 0

    _log_mass = staticmethod(
        lambda k, mu: _where(k >= 0, special.xlogy(k, mu) - special.gammaln(k + 1) - mu, -math.inf)
    )
    _area = staticmethod(lambda k, mu: _where(k >= 0, special.gammaincc(k + 1, mu), 0.0))
    _tail = staticmethod(lambda k, mu: _where(k >= 0, special.gammainc(k + 1, mu), 1.0))


class Binomial(Discrete):
    """How many of n trials succeed: ``binom.logpmf(k, n, p, loc=0)``."""

    name, shapes = "binom", ("n", "p")

    def valid(self, *shapes: Any) -> Any:
        """Return where n is a count and p a probability."""
        n, p = shapes
        return (n >= 0) & (n == _floor(n)) & (p >= 0) & (p <= 1)

    def _log_mass(self, k: Any, n: Any, p: Any) -> Any:
        ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
        log_mass = ways + special.xlogy(k, p) + special.xlog1py(n - k, -p)
        return _where((k >= 0) & (k <= n), log_mass, -math.inf)

    _area = staticmethod(lambda k, n, p: _where(k >= n, 1.0, _where(k >= 0, special.betainc(n - k, k + 1, 1 - p), 0.0)))
    _tail = staticmethod(lambda k, n, p: _where(k >= n, 0.0, _where(k >= 0, special.betainc(k + 1, n - k, p), 1.0)))


class MultivariateNorm:
    """Vectors of normal numbers: ``multivariate_normal.logpdf(x, mean=None, cov=1)``.

    The last dim of x is that of the vectors; ``cov`` is a positive definite matrix, the variances, or one for all.
    """

    name = "multivariate_normal"

    def __call__(self, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Frozen:
        """Return the distribution with these parameters."""
        return Frozen(self, (mean, cov, allow_singular), {})

    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Tensor:
        """Return the logarithm of the density at each vector: of the shape of x without its last dim.

        ValueError for shapes that do not fit; NotImplementedError for ``allow_singular``.
        """
        if allow_singular:
            raise NotImplementedError("multivariate_normal: allow_singular is not supported; give a definite cov")
        x, cov = floating(x), floating(cov)
        mean = None if mean is None else floating(mean)
        n = int(cov.spec.shape[-1] if cov.spec.shape else 1 if mean is None else mean.spec.size)
        if len(cov.spec.shape) < _MATRIX:
            cov = np.eye(n) * cov
        if cov.spec.shape != (n, n) or (mean is not None and mean.spec.shape not in ((), (n,))):
            have = None if mean is None else mean.spec.shape
            raise ValueError(f"multivariate_normal: mean of shape {have} and cov of {cov.spec.shape} do not fit {n}")
        x = self._vectors(x, n)
        factor = linalg.cholesky(cov)
        apart = x if mean is None else x - mean
        rows = views.reshape(apart, -1, n)
        white = linalg.solve_triangular(factor, rows.T, upper=False)
        logs = reductions.sum(_log(factor.diagonal()))
        squares = views.reshape(reductions.sum(white * white, 0), apart.spec.shape[:-1])
        return -0.5 * squares - logs - 0.5 * n * math.log(2 * math.pi)

    def pdf(self, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Tensor:
        """Return the density at each vector."""
        return _exp(self.logpdf(x, mean, cov, allow_singular))  # type: ignore[no-any-return]

    @staticmethod
    def _vectors(x: Any, n: int) -> Any:
        if not x.spec.shape:
            return views.reshape(x, 1)
        if n == 1 and len(x.spec.shape) == 1:
            return views.unsqueeze(x, -1)
        if x.spec.shape[-1] != n:
            raise ValueError(f"multivariate_normal: x of shape {x.spec.shape} does not end in vectors of {n}")
        return x


beta, expon, gamma = continuous.BetaLaw(), continuous.Exponential(), continuous.GammaLaw()
lognorm, norm = continuous.LogNorm(), continuous.Norm()
t, uniform = continuous.Student(), continuous.Unif()
binom, multivariate_normal, poisson = Binomial(), MultivariateNorm(), Poisson()
