"""The gradients of the array workloads written by hand, in NumPy and SciPy: the reference of every row."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

RATE = 0.03


def black_scholes(s: Array, x: Array, t: Array, v: Array) -> tuple[float, tuple[Array, ...]]:
    """Return the sum of call prices and the Greeks: delta, by strike, theta's negative, vega (Hull, chapter 19)."""
    root = v * np.sqrt(t)
    d1 = (np.log(s / x) + (RATE + 0.5 * v * v) * t) / root
    d2 = d1 - root
    n1, n2 = special.ndtr(d1), special.ndtr(d2)
    discounted = x * np.exp(-RATE * t)
    density = np.exp(-0.5 * d1 * d1) / np.sqrt(2 * np.pi)
    vega = s * density * np.sqrt(t)
    return float((s * n1 - discounted * n2).sum()), (
        n1,
        -discounted / x * n2,
        0.5 * s * density * v / np.sqrt(t) + RATE * discounted * n2,
        vega,
    )


def logsumexp(x: Array, weights: Array) -> tuple[float, tuple[Array]]:
    """Return the weighted sum of the rows' logsumexp, and its gradient."""
    return float((special.logsumexp(x, axis=1) * weights[:, 0]).sum()), (weights[:, :1] * special.softmax(x, axis=1),)


def softmax(x: Array, weights: Array) -> tuple[float, tuple[Array]]:
    """Return the sum of a weighted softmax of the rows, and its gradient."""
    y = special.softmax(x, axis=1)
    return float((y * weights).sum()), (y * (weights - (y * weights).sum(1, keepdims=True)),)


def mlp(*parameters: Array, inputs: Array, labels: Array) -> tuple[float, tuple[Array, ...]]:
    """Return the mean cross-entropy of a tanh network, and its gradients by weights and biases."""
    layers = list(zip(parameters[::2], parameters[1::2], strict=True))
    states = [inputs]
    for weight, bias in layers[:-1]:
        states.append(np.tanh(states[-1] @ weight + bias))
    logits = states[-1] @ layers[-1][0] + layers[-1][1]
    loss = (special.logsumexp(logits, axis=1) - (logits * labels).sum(1)).mean()
    g = (special.softmax(logits, axis=1) - labels) / len(inputs)
    found: list[Array] = []
    for k in reversed(range(len(layers))):
        found[:0] = [states[k].T @ g, g.sum(0)]
        if k:
            g = (g @ layers[k][0].T) * (1 - states[k] ** 2)
    return float(loss), tuple(found)


@functools.cache
def data_of(rows: int, columns: int, classes: int) -> tuple[Array, Array]:
    """Return inputs and one-hot labels."""
    rng = np.random.default_rng(rows)
    return rng.normal(size=(rows, columns)), np.eye(classes)[rng.integers(classes, size=rows)]
