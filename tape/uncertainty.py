"""Uncertainty by derivatives: covariances at a minimum, of results, and which inputs matter.

Laplace's approximation takes a posterior for the normal one with the curvature of its peak (MacKay 1992, "Bayesian
interpolation"); Gauss and Newton's has the Jacobian of the residuals alone (Bates and Watts 1988). The delta method
propagates a covariance by a Jacobian. Derivative-based global sensitivities bound the total Sobol' indices (Sobol' and
Kucherenko 2009; Lamboni, Iooss, Popelin and Gamboa 2013).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tape import func
from tape.ensembles import ensemble
from tape.operations.diagonals import raveled
from tape.tensors import pytrees
from tape.tensors.tensor import Array
from tape.transforms.value_and_grad import value_and_grad

__all__ = ["Gaussian", "Sensitivities", "delta", "dgsm", "laplace"]


class Gaussian:
    """A normal distribution of parameters in any structure: ``mean``, and ``covariance`` of their vector.

    The vector is what ``tape.ravel`` makes of the structure. Everything is an array or a float, or a tensor where the
    mean or the covariance it was made of are.
    """

    def __init__(self, mean: Any, covariance: Any) -> None:
        vector, self._back = raveled(mean)
        size = vector.shape[0]
        if np.shape(covariance) != (size, size):
            raise ValueError(
                f"Gaussian: the covariance has shape {np.shape(covariance)}; of {size} parameters it has {(size, size)}"
            )
        self.mean, self.covariance, self._vector = mean, covariance, vector

    @property
    def std(self) -> Any:
        """The standard deviations, in the structure of the mean."""
        return self._back(self._deviations)

    @property
    def _deviations(self) -> Any:
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def correlation(self) -> Any:
        """The matrix of correlations."""
        deviations = self._deviations
        return self.covariance / (deviations[:, None] * deviations[None, :])

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return lower and upper ends, structures as the mean, of what holds each parameter with this probability."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"interval: the level is {level}; it is a probability between 0 and 1")
        from scipy.special import ndtri

        reach = float(ndtri(0.5 + 0.5 * level)) * self._deviations
        return self._back(self._vector - reach), self._back(self._vector + reach)

    def propagate(self, fun: Callable[[Any], Any]) -> Gaussian:
        """Return the distribution of ``fun(parameters)``, a structure, to first order: :func:`delta`."""
        return delta(fun, self.mean, self.covariance)

    def __repr__(self) -> str:
        return f"Gaussian(mean={self.mean}, std={self.std})"


def laplace(fun: Callable[[Any], Any], x: Any, *, residuals: bool = False, noise: float | None = None) -> Gaussian:
    """Return the normal distribution that a posterior is like near its peak ``x``, a structure of arrays and numbers.

    ``fun(x)`` is the negative logarithm of the posterior, up to a constant, one element: the covariance is the inverse
    of its Hessian. With ``residuals=True`` it returns a vector of residuals, whose squares over twice the squared
    ``noise``, their standard deviation, are that: the covariance is ``noise**2`` times the inverse of J'J, Gauss and
    Newton's. Without ``noise`` it is estimated: the sum of squares over as many as there are more residuals than
    parameters.

    Raises ValueError where the matrix is not positive definite: x is no minimum, or the data do not tell all
    parameters; and where the noise is to be estimated from no more residuals than parameters.

    >>> t = np.arange(4.0)
    >>> fit = tape.uncertainty.laplace(lambda p: p["a"] * t - 2.0 * t, {"a": 2.0}, residuals=True, noise=1.0)
    >>> round(fit.std["a"], 6), round(14.0**-0.5, 6)
    (0.267261, 0.267261)
    """
    vector, back = raveled(x)
    vector = np.asarray(vector, np.float64)
    if not residuals:
        if noise is not None:
            raise ValueError("laplace: noise is that of residuals; without residuals=True, fun has it within")
        matrix = np.asarray(func.hessian(lambda v: _scalar(fun(back(v))))(vector))
        return Gaussian(x, _inverse((matrix + matrix.T) * 0.5, "the Hessian"))

    def errors(v: Any) -> Any:
        return raveled(fun(back(v)))[0]

    value, jacobian = np.asarray(errors(vector)), np.asarray(func.jacrev(errors)(vector))
    free = value.size - vector.size
    if noise is None and free <= 0:
        raise ValueError(
            f"laplace: {value.size} residuals of {vector.size} parameters do not tell the noise; give noise="
        )
    squared = float(value @ value) / free if noise is None else noise**2
    return Gaussian(x, squared * _inverse(jacobian.T @ jacobian, "J'J"))


def _scalar(y: Any) -> Any:
    if np.size(y) != 1:
        raise ValueError(
            f"laplace: fun returned {np.size(y)} elements; it returns one, or residuals with residuals=True"
        )
    return y.reshape(()) if np.ndim(y) else y


def _inverse(matrix: Array, name: str) -> Array:
    scale = np.sqrt(np.abs(np.diagonal(matrix)))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / scale[:, None] / scale[None, :])
    if not values[0] > np.finfo(np.float64).eps * len(values) * values[-1]:
        raise ValueError(
            f"laplace: {name} is not positive definite (its least eigenvalue, scaled, is {values[0]:.2e}): x is no "
            "minimum, or what fun computes does not tell all parameters"
        )
    inverse: Array = (vectors / values) @ vectors.T / scale[:, None] / scale[None, :]
    return inverse


def delta(fun: Callable[[Any], Any], x: Any, covariance: Any) -> Gaussian:
    """Return the distribution of ``fun(x)`` for x of this mean and covariance, to first order: J C J'.

    ``x`` and what ``fun`` returns are structures; the covariances are those of their vectors, as ``tape.ravel`` makes
    them. Exact for linear functions. With tensors in, the results can be differentiated.

    >>> y = tape.uncertainty.delta(lambda p: {"sum": p[0] + 2.0 * p[1]}, np.zeros(2), np.eye(2))
    >>> y.mean["sum"], round(y.std["sum"], 6)
    (0.0, 2.236068)
    """
    vector, back = raveled(x)

    def results(v: Any) -> tuple[Any, Any]:
        value = fun(back(v))
        return raveled(value)[0], value

    jacobian, mean = func.jacrev(results, has_aux=True)(vector)
    mean = pytrees.mapped(lambda y: y.item() if isinstance(y, np.ndarray) and not y.ndim else y, mean)
    return Gaussian(mean, jacobian @ covariance @ jacobian.T)


class Sensitivities(NamedTuple):
    """Global sensitivities by derivatives, in structures as the inputs, beside the value's mean and variance.

    ``nu`` is the mean of the squared derivative, ``slope`` of the derivative itself. ``total`` bounds the total Sobol'
    index from above: what an input, alone and with others, has of the variance. ``error`` is the standard error of nu.
    """

    nu: Any
    slope: Any
    total: Any
    error: Any
    mean: float
    variance: float


def dgsm(
    fun: Callable[..., Any],
    *,
    uniform: tuple[Any, Any] | None = None,
    normal: tuple[Any, Any] | None = None,
    count: int = 1024,
    seed: int = 0,
    executor: Any = None,
) -> Sensitivities:
    """Return derivative-based global sensitivities of ``fun(x)``, one element, for independent inputs.

    Inputs are ``uniform=(low, high)`` or ``normal=(mean, std)``: structures of arrays and numbers. The function and its
    gradient are taken at ``count`` points of a scrambled Sobol' sequence, or where that is no power of two of a Latin
    hypercube, by ``tape.ensemble`` with this ``executor``. The bound of the total index is C nu / variance with
    Poincare's constant C: ((high - low) / pi)**2 of uniform inputs, std**2 of normal ones.

    >>> s = tape.uncertainty.dgsm(lambda x: 2.0 * x[0] + x[1], normal=(np.zeros(2), np.ones(2)))
    >>> s.nu.tolist(), np.round(s.total, 1).tolist()
    ([4.0, 1.0], [0.8, 0.2])
    """
    if (uniform is None) == (normal is None):
        raise ValueError("dgsm: give either uniform=(low, high) or normal=(mean, std)")
    if count <= 1:
        raise ValueError(f"dgsm: count is {count}; variances need two points")
    from scipy.special import ndtri
    from scipy.stats import qmc

    first, second = uniform or normal or ((), ())
    (a, back), (b, _) = raveled(first), raveled(second)
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape or not np.all(b > (a if uniform else 0.0)):
        raise ValueError("dgsm: high lies above low, and std above 0, in the same structure")
    sampler = qmc.LatinHypercube if count & (count - 1) else qmc.Sobol
    unit = sampler(a.size, seed=seed).random(count)
    points = a + (b - a) * unit if uniform else a + b * ndtri(np.clip(unit, 2.0**-40, 1.0 - 2.0**-40))
    both = functools.partial(_at, value_and_grad(fun), back)
    values, gradients = map(np.array, zip(*ensemble(both, list(points), executor), strict=True))
    squares, variance = gradients**2, float(values.var(ddof=1))
    nu = squares.mean(0)
    constant = ((b - a) / math.pi) ** 2 if uniform else b**2
    total = constant * nu / variance if variance > 0 else np.zeros_like(nu)
    error = squares.std(0, ddof=1) / math.sqrt(count)
    slope, mean = gradients.mean(0), float(values.mean())
    return Sensitivities(back(nu), back(slope), back(total), back(error), mean, variance)


def _at(both: Callable[..., Any], back: Callable[[Any], Any], point: Array) -> tuple[float, Array]:
    value, gradient = both(back(point))
    return float(value), np.asarray(raveled(gradient)[0])
