"""PyTorch's ``torch.distributions``: commonest ones, with densities, entropies, samples and divergences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tape import linalg, special
from tape.functions import broadcast_tensors, digamma, erf, erfinv, exp, lgamma, log, sigmoid, where
from tape.numpy_interface.sampling import bernoulli, multinomial, rand, randint, randn
from tape.recording.creation import tensor
from tape.tensors.dtypes import Size
from tape.tensors.grad_modes import no_grad
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, constant_tensor

__all__ = [
    "Bernoulli", "Beta", "Categorical", "Distribution", "Gamma", "MultivariateNormal", "Normal", "Uniform",
    "kl_divergence",
]  # fmt: skip
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class Distribution:
    """What all have: ``batch_shape`` and ``event_shape``, ``sample``, ``rsample``, ``log_prob``, ``entropy``, moments.

    ``sample(shape)`` has shape (*shape, *batch_shape, *event_shape), and no gradient; ``rsample`` has one, where
    ``has_rsample`` is true.
    """

    has_rsample: ClassVar[bool] = False

    def __init__(self, parameters: dict[str, Any], events: int = 0) -> None:
        self._parameters = parameters
        vars(self).update(parameters)
        shape = next(iter(parameters.values())).shape
        self.batch_shape, self.event_shape = Size(shape[: len(shape) - events]), Size(shape[len(shape) - events :])

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Return samples with gradients to the parameters; NotImplementedError where there is no way to it."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample; sample() has no gradient")

    def sample(self, sample_shape: Any = ()) -> Any:
        """Return samples without gradients."""
        with no_grad():
            return self.rsample(sample_shape).detach()

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density, or of the probability, of values."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """Return the entropy, in nats."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The root of the variance."""
        return self.variance**0.5  # type: ignore[attr-defined]

    def _shape(self, sample_shape: Any) -> tuple[int, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        parts = [f"{k}: {v if v.numel() == 1 else tuple(v.shape)}" for k, v in self._parameters.items()]
        return f"{type(self).__name__}({', '.join(parts)})"


def _broadcast(**parameters: Any) -> dict[str, Any]:
    values = [tensor(float(x)) if isinstance(x, (int, float)) else tensor_of(x) for x in parameters.values()]
    return dict(zip(parameters, broadcast_tensors(*values), strict=True))


def _positive(kind: str, **parameters: Any) -> None:
    for name, x in parameters.items():
        if not bool((x.detach() > 0).all()):
            raise ValueError(f"{kind}: {name} is not positive everywhere: {x.detach().tolist()}")


class Normal(Distribution):
    """The normal distribution of this mean and standard deviation.

    >>> tape.distributions.Normal(0.0, 1.0).log_prob(tape.tensor(0.0))
    tensor(-0.9189)
    """

    has_rsample = True
    loc: Any
    scale: Any

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        super().__init__(_broadcast(loc=loc, scale=scale))
        _positive("Normal", scale=self.scale)
        self.mean, self.variance = self.loc, self.scale * self.scale

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Return samples with gradients."""
        return self.loc + randn(*self._shape(sample_shape), dtype=self.loc.dtype) * self.scale

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density."""
        z = (value - self.loc) / self.scale
        return -0.5 * z * z - log(self.scale) - _HALF_LOG_TAU

    def entropy(self) -> Any:
        """Return the entropy."""
        return 0.5 + _HALF_LOG_TAU + log(self.scale)

    def cdf(self, value: Any) -> Any:
        """Return the probability of smaller values."""
        return 0.5 * (1.0 + erf((value - self.loc) / (self.scale * math.sqrt(2.0))))

    def icdf(self, value: Any) -> Any:
        """Return what smaller values of this probability are below."""
        return self.loc + self.scale * erfinv(2.0 * value - 1.0) * math.sqrt(2.0)


class Uniform(Distribution):
    """The uniform distribution between two bounds."""

    has_rsample = True
    low: Any
    high: Any

    def __init__(self, low: Any, high: Any, validate_args: Any = None) -> None:
        super().__init__(_broadcast(low=low, high=high))
        _positive("Uniform", **{"high - low": self.high - self.low})
        self.mean, self.variance = (self.low + self.high) / 2.0, (self.high - self.low) ** 2 / 12.0

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Return samples with gradients."""
        return self.low + rand(*self._shape(sample_shape), dtype=self.low.dtype) * (self.high - self.low)

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density: -inf outside."""
        value = tensor_of(value)
        inside = (value >= self.low) & (value < self.high)
        return where(inside, -log(self.high - self.low), -math.inf)

    def entropy(self) -> Any:
        """Return the entropy."""
        return log(self.high - self.low)

    def cdf(self, value: Any) -> Any:
        """Return the probability of smaller values."""
        return ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)


class _OfLogits(Distribution):
    def _of(self, probs: Any, logits: Any, to_logits: Callable[[Any], Any], to_probs: Callable[[Any], Any]) -> Any:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        (x,) = _broadcast(x=probs if logits is None else logits).values()
        return (x, to_logits(x)) if logits is None else (to_probs(x), x)


class Bernoulli(_OfLogits):
    """0 or 1, of a probability or its ``logits``."""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        self.probs, self.logits = self._of(probs, logits, special.logit, sigmoid)
        super().__init__({"probs": self.probs})
        self.mean, self.variance = self.probs, self.probs * (1.0 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        """Return samples."""
        return bernoulli(self.probs.detach().expand(self._shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the probability."""
        return value * special.log_expit(self.logits) + (1.0 - value) * special.log_expit(-self.logits)

    def entropy(self) -> Any:
        """Return the entropy."""
        return -(self.probs * special.log_expit(self.logits) + (1.0 - self.probs) * special.log_expit(-self.logits))


class Categorical(_OfLogits):
    """0 up to n - 1, of n probabilities along the last dim, which are normalised, or their ``logits``.

    >>> tape.distributions.Categorical(tape.tensor([1.0, 3.0])).probs.tolist()
    [0.25, 0.75]
    """

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        parts, logits = self._of(probs, logits, lambda p: log(p / p.sum(-1, keepdim=True)), exp)
        self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self.probs = parts / parts.sum(-1, keepdim=True) if probs is not None else self.logits.softmax(-1)
        super().__init__({"probs": self.probs}, 1)
        self.event_shape = Size(())

    def sample(self, sample_shape: Any = ()) -> Any:
        """Return samples, integers."""
        rows = self.probs.detach().reshape(-1, self.probs.shape[-1])
        draws = multinomial(rows, math.prod(sample_shape), replacement=True)
        return draws.T.reshape(self._shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the probability."""
        places = tensor_of(value).long()[..., None]
        shape = np.broadcast_shapes(places.shape[:-1], self.logits.shape[:-1])
        return self.logits.expand(*shape, -1).gather(-1, places.expand(*shape, 1))[..., 0]

    def entropy(self) -> Any:
        """Return the entropy."""
        return -(self.probs * where(self.probs > 0, self.logits, 0.0)).sum(-1)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors (*, n), by one of its covariance, its inverse or its Cholesky factor."""

    has_rsample = True
    loc: Any

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: Any = None,
    ) -> None:  # fmt: skip
        matrices = [x for x in (covariance_matrix, precision_matrix, scale_tril) if x is not None]
        if len(matrices) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if scale_tril is None:
            matrix = covariance_matrix if precision_matrix is None else linalg.inv(tensor_of(precision_matrix))
            scale_tril = linalg.cholesky(tensor_of(matrix))
        self.scale_tril = tensor_of(scale_tril)
        n = self.scale_tril.shape[-1]
        shape = np.broadcast_shapes(tensor_of(loc).shape[:-1], self.scale_tril.shape[:-2])
        super().__init__({"loc": tensor_of(loc).expand(*shape, n)}, 1)
        self.mean, self.covariance_matrix = self.loc, self.scale_tril @ self.scale_tril.mT
        self.variance = (self.scale_tril**2).sum(-1).expand(*shape, n)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Return samples with gradients."""
        draws = randn(*self._shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self.scale_tril @ draws[..., None])[..., 0]

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density."""
        apart = (tensor_of(value) - self.loc)[..., None]
        shape = np.broadcast_shapes(apart.shape[:-2], self.scale_tril.shape[:-2])
        n = apart.shape[-2]
        z = linalg.solve_triangular(self.scale_tril.expand(*shape, n, n), apart.expand(*shape, n, 1), upper=False)
        return -0.5 * (z**2).sum((-2, -1)) - n * _HALF_LOG_TAU - self._half_log_det()

    def entropy(self) -> Any:
        """Return the entropy."""
        whole = self.loc.shape[-1] * (0.5 + _HALF_LOG_TAU) + self._half_log_det()
        return whole.expand(*self.batch_shape)

    def _half_log_det(self) -> Any:
        return log(self.scale_tril.diagonal(dim1=-2, dim2=-1)).sum(-1)


def _gamma_draws(shape: tuple[int, ...], concentration: Any) -> Tensor:
    draws = np.random.default_rng(randint(2**62, ()).item()).standard_gamma(np.asarray(concentration.detach()), shape)
    return constant_tensor(np.asarray(draws, concentration.dtype))


class Gamma(Distribution):
    """The gamma distribution, by ``concentration`` and ``rate``; its samples are not PyTorch's numbers."""

    concentration: Any
    rate: Any

    def __init__(self, concentration: Any, rate: Any, validate_args: Any = None) -> None:
        super().__init__(_broadcast(concentration=concentration, rate=rate))
        _positive("Gamma", concentration=self.concentration, rate=self.rate)
        self.mean, self.variance = self.concentration / self.rate, self.concentration / self.rate**2

    def sample(self, sample_shape: Any = ()) -> Any:
        """Return samples."""
        return _gamma_draws(self._shape(sample_shape), self.concentration) / self.rate.detach()

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density."""
        a, b = self.concentration, self.rate
        return special.xlogy(a, b) + special.xlogy(a - 1.0, value) - b * value - lgamma(a)

    def entropy(self) -> Any:
        """Return the entropy."""
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1.0 - a) * digamma(a)


class Beta(Distribution):
    """The beta distribution between 0 and 1; its samples are not PyTorch's numbers."""

    concentration1: Any
    concentration0: Any

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Any = None) -> None:
        super().__init__(_broadcast(concentration1=concentration1, concentration0=concentration0))
        _positive("Beta", concentration1=self.concentration1, concentration0=self.concentration0)
        a, b = self.concentration1, self.concentration0
        self.mean, self.variance = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1.0))

    def sample(self, sample_shape: Any = ()) -> Any:
        """Return samples."""
        x, y = (_gamma_draws(self._shape(sample_shape), a) for a in (self.concentration1, self.concentration0))
        return x / (x + y)

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density."""
        a, b = self.concentration1, self.concentration0
        return special.xlogy(a - 1.0, value) + special.xlog1py(b - 1.0, -value) - self._log_beta()

    def entropy(self) -> Any:
        """Return the entropy."""
        a, b = self.concentration1, self.concentration0
        whole = (a + b - 2.0) * digamma(a + b)
        return self._log_beta() - (a - 1.0) * digamma(a) - (b - 1.0) * digamma(b) + whole

    def _log_beta(self) -> Any:
        a, b = self.concentration1, self.concentration0
        return lgamma(a) + lgamma(b) - lgamma(a + b)


def _normals(p: Normal, q: Normal) -> Any:
    ratio, z = (p.scale / q.scale) ** 2, (p.loc - q.loc) / q.scale
    return 0.5 * (ratio + z * z - 1.0 - log(ratio))


def _vectors(p: MultivariateNormal, q: MultivariateNormal) -> Any:
    n = p.loc.shape[-1]
    between = linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    z = linalg.solve_triangular(q.scale_tril, (q.loc - p.loc)[..., None], upper=False)
    return q._half_log_det() - p._half_log_det() + 0.5 * ((between**2).sum((-2, -1)) + (z**2).sum((-2, -1)) - n)


def _gammas(p: Gamma, q: Gamma) -> Any:
    a, b = p.concentration, q.concentration
    ratio = q.rate / p.rate
    return (a - b) * digamma(a) - lgamma(a) + lgamma(b) - b * log(ratio) + a * (ratio - 1.0)


def _betas(p: Beta, q: Beta) -> Any:
    a, b = p.concentration1 - q.concentration1, p.concentration0 - q.concentration0
    parts = a * digamma(p.concentration1) + b * digamma(p.concentration0)
    return q._log_beta() - p._log_beta() + parts - (a + b) * digamma(p.concentration1 + p.concentration0)


_DIVERGENCES: dict[type, Callable[[Any, Any], Any]] = {
    Normal: _normals,
    MultivariateNormal: _vectors,
    Gamma: _gammas,
    Beta: _betas,
    Bernoulli: lambda p, q: (
        p.probs * (special.log_expit(p.logits) - special.log_expit(q.logits))
        + (1.0 - p.probs) * (special.log_expit(-p.logits) - special.log_expit(-q.logits))
    ),
    Categorical: lambda p, q: (p.probs * where(p.probs > 0, p.logits - q.logits, 0.0)).sum(-1),
    Uniform: lambda p, q: where(
        (q.low > p.low) | (q.high < p.high), math.inf, log((q.high - q.low) / (p.high - p.low))
    ),
}


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """Return Kullback and Leibler's divergence of two distributions of one kind; NotImplementedError for others.

    >>> normal = tape.distributions.Normal
    >>> tape.distributions.kl_divergence(normal(0.0, 1.0), normal(1.0, 1.0))
    tensor(0.5000)
    """
    if type(p) is not type(q) or type(p) not in _DIVERGENCES:
        raise NotImplementedError(f"no KL(p || q) is implemented for {type(p).__name__} and {type(q).__name__}")
    return _DIVERGENCES[type(p)](p, q)
