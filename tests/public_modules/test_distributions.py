"""Distributions: densities and entropies beside SciPy, samples by their moments, and all of it beside PyTorch."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
from scipy import stats

import tape
from tape import distributions as d

pytestmark = pytest.mark.quick

COVARIANCE = [[2.0, 0.5], [0.5, 1.0]]
MADE: dict[str, tuple[Any, Any, Any]] = {
    "Normal": (lambda m, t: m.Normal(t([0.5, -1.0]), t([1.0, 2.0])), stats.norm([0.5, -1.0], [1.0, 2.0]), [0.3, 2.0]),
    "Uniform": (lambda m, t: m.Uniform(t([0.0, -1.0]), t([1.0, 2.0])), stats.uniform([0, -1.0], [1, 3.0]), [0.3, 1.5]),
    "Gamma": (lambda m, t: m.Gamma(t([0.7, 3.0]), t([1.0, 2.0])), stats.gamma([0.7, 3.0], scale=[1, 0.5]), [0.3, 2.0]),
    "Beta": (lambda m, t: m.Beta(t([0.7, 3.0]), t([1.5, 2.0])), stats.beta([0.7, 3.0], [1.5, 2.0]), [0.3, 0.9]),
    "Bernoulli": (lambda m, t: m.Bernoulli(t([0.2, 0.7])), stats.bernoulli([0.2, 0.7]), [1.0, 0.0]),
}


@pytest.mark.parametrize("name", MADE)
def test_densities_entropies_and_moments_are_scipys(name: str) -> None:
    make, scipys, at = MADE[name]
    made = make(d, tape.tensor)
    log_density = scipys.logpmf if name == "Bernoulli" else scipys.logpdf
    np.testing.assert_allclose(made.log_prob(tape.tensor(at)), log_density(at), rtol=1e-12)
    np.testing.assert_allclose(made.entropy(), scipys.entropy(), rtol=1e-12)
    np.testing.assert_allclose(made.mean, scipys.mean(), rtol=1e-12)
    np.testing.assert_allclose(made.stddev, scipys.std(), rtol=1e-12)
    if hasattr(made, "cdf"):
        np.testing.assert_allclose(made.cdf(tape.tensor(at)), scipys.cdf(at), rtol=1e-12)
    tape.manual_seed(0)
    samples = made.sample((20000,)).numpy()
    assert samples.shape == (20000, 2)
    assert (abs(samples.mean(0) - scipys.mean()) < 5 * scipys.std() / 140).all()
    np.testing.assert_allclose(samples.std(0), scipys.std(), rtol=0.05)


@pytest.mark.parametrize("name", MADE)
def test_densities_have_gradients(name: str) -> None:
    kinds = {"Bernoulli": 1}
    values = [[0.2, 0.7]] if name in kinds else [[0.1, 0.3], [1.2, 2.0]]
    at = tape.tensor([1.0, 0.0] if name == "Bernoulli" else [0.3, 0.6])

    def density(*parameters: Any) -> Any:
        return getattr(d, name)(*parameters).log_prob(at).sum() + getattr(d, name)(*parameters).entropy().sum()

    assert tape.autograd.gradcheck(density, [tape.tensor(v, requires_grad=True) for v in values])


def test_samples_with_gradients() -> None:
    tape.manual_seed(1)
    loc, scale = (tape.tensor(v, requires_grad=True) for v in (1.0, 2.0))
    x = d.Normal(loc, scale).rsample((50,))
    x.sum().backward()
    assert loc.grad.item() == 50.0
    assert scale.grad.item() == pytest.approx(((x.detach() - 1.0) / 2.0).sum().item())
    assert not d.Normal(loc, scale).sample((2,)).requires_grad
    with pytest.raises(NotImplementedError, match="has no rsample"):
        d.Gamma(loc, scale).rsample()


def test_vectors_and_classes() -> None:
    normal = d.MultivariateNormal(tape.tensor([1.0, -1.0]), tape.tensor(COVARIANCE))
    scipys = stats.multivariate_normal([1.0, -1.0], COVARIANCE)
    at = np.array([[0.5, 0.5], [1.0, -2.0], [0.0, 0.0]])
    np.testing.assert_allclose(normal.log_prob(tape.tensor(at)), scipys.logpdf(at), rtol=1e-12)
    np.testing.assert_allclose(normal.entropy(), scipys.entropy(), rtol=1e-12)
    other = d.MultivariateNormal(tape.tensor([1.0, -1.0]), precision_matrix=tape.linalg.inv(tape.tensor(COVARIANCE)))
    np.testing.assert_allclose(other.covariance_matrix, COVARIANCE, rtol=1e-12)
    tape.manual_seed(0)
    samples = normal.sample((20000,)).numpy()
    np.testing.assert_allclose(np.cov(samples.T), COVARIANCE, atol=0.1)
    classes = d.Categorical(tape.tensor([[1.0, 3.0, 0.0], [2.0, 2.0, 4.0]]))
    np.testing.assert_allclose(classes.probs, [[0.25, 0.75, 0.0], [0.25, 0.25, 0.5]])
    np.testing.assert_allclose(classes.entropy(), stats.entropy(classes.probs.numpy(), axis=1))
    np.testing.assert_allclose(classes.log_prob(tape.tensor([1, 2])), np.log([0.75, 0.5]))
    draws = classes.sample((8000,)).numpy()
    counts = [np.bincount(draws[:, k], minlength=3) / 8000 for k in (0, 1)]
    np.testing.assert_allclose(counts, classes.probs, atol=0.03)
    assert (classes.batch_shape, classes.event_shape) == ((2,), ())


def test_bad_parameters_say_what() -> None:
    for call, said in (
        (lambda: d.Normal(0.0, -1.0), "scale is not positive"),
        (lambda: d.Uniform(1.0, 0.0), "high - low is not positive"),
        (d.Bernoulli, "must be specified, but not both"),
        (lambda: d.MultivariateNormal(tape.zeros(2)), "Exactly one"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    with pytest.raises(NotImplementedError, match="Normal and Gamma"):
        d.kl_divergence(d.Normal(0.0, 1.0), d.Gamma(1.0, 1.0))
    assert repr(d.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"


@pytest.mark.parametrize("name", [*MADE, "MultivariateNormal", "Categorical"])
def test_divergences_are_expectations(name: str) -> None:
    tape.manual_seed(2)
    if name == "MultivariateNormal":
        covariance = tape.tensor(COVARIANCE)
        p, q = (d.MultivariateNormal(tape.ones(2) * a, covariance * b) for a, b in ((0.0, 1.0), (0.5, 2.0)))
    elif name == "Categorical":
        p, q = (d.Categorical(tape.tensor(w)) for w in ([1.0, 2.0, 3.0], [3.0, 1.0, 1.0]))
    elif name == "Uniform":
        p, q = d.Uniform(0.0, 1.0), d.Uniform(-1.0, 3.0)
    elif name == "Bernoulli":
        p, q = d.Bernoulli(0.3), d.Bernoulli(logits=tape.tensor(1.0))
    else:
        p, q = getattr(d, name)(1.5, 2.0), getattr(d, name)(2.0, 1.2)
    x = p.sample((60000,))
    expectation = (p.log_prob(x) - q.log_prob(x)).mean().item()
    assert tape.distributions.kl_divergence(p, q).item() == pytest.approx(expectation, rel=0.05, abs=0.01)
    assert tape.distributions.kl_divergence(p, p).item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_numbers_are_pytorchs() -> None:
    torch: Any = importlib.import_module("torch")
    torch.set_default_dtype(torch.float64)
    theirs = importlib.import_module("torch.distributions")
    for name, (make, _, at) in MADE.items():
        a, b = make(theirs, torch.tensor), make(d, tape.tensor)
        np.testing.assert_allclose(b.log_prob(tape.tensor(at)), a.log_prob(torch.tensor(at)), rtol=1e-12)
        if name in ("Normal", "Uniform", "Bernoulli"):
            torch.manual_seed(0)
            tape.manual_seed(0)
            np.testing.assert_allclose(b.sample((20,)), a.sample((20,)), rtol=1e-12)
    for shape, sample_shape in (((3,), ()), ((2, 4), ()), ((2, 3, 5), (1,)), ((3, 4), (2, 6))):
        torch.manual_seed(0)
        tape.manual_seed(0)
        b, a = (m.Categorical(logits=lib.randn(*shape)) for m, lib in ((d, tape), (theirs, torch)))
        np.testing.assert_array_equal(b.sample(sample_shape), a.sample(sample_shape))
