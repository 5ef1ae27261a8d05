"""Workloads of large arrays: where the time goes into arithmetic and memory, not into calls."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from bench import by_hand, by_hand_arrays
from bench.by_hand_arrays import RATE, data_of
from bench.workloads import Workload, rosenbrock


def _normal(lib: Any, d: Any) -> Any:
    """Return the normal distribution function by erf, as every library has it."""
    return 0.5 * (1.0 + lib.erf(d * float(np.sqrt(0.5))))


def black_scholes(lib: Any, s: Any, x: Any, t: Any, v: Any) -> Any:
    """Return the sum of the prices of calls (Black and Scholes 1973)."""
    root = v * lib.sqrt(t)
    d1 = (lib.log(s / x) + (RATE + 0.5 * v * v) * t) / root
    return (s * _normal(lib, d1) - x * lib.exp(-RATE * t) * _normal(lib, d1 - root)).sum()


@functools.cache
def _constant(lib: Any, key: tuple[int, ...]) -> Any:
    """Return arrays that receive no gradient as tensors of a library, made once."""
    arrays = data_of(*key) if len(key) == 3 else (_weights(*key),)
    return tuple(lib.as_tensor(array) for array in arrays)


@functools.cache
def _weights(rows: int, columns: int) -> Any:
    return np.random.default_rng(1).uniform(0.5, 1.5, (rows, columns))


def logsumexp(lib: Any, x: Any) -> Any:
    """Return the weighted sum of the rows' logsumexp."""
    (weights,) = _constant(lib, tuple(x.shape))
    return (lib.logsumexp(x, 1) * weights[:, 0]).sum()


def softmax(lib: Any, x: Any) -> Any:
    """Return the sum of a weighted softmax of the rows."""
    (weights,) = _constant(lib, tuple(x.shape))
    return (lib.softmax(x, 1) * weights).sum()


def mlp(lib: Any, *parameters: Any, key: tuple[int, int, int]) -> Any:
    """Return the mean cross-entropy of a tanh network with biases."""
    state, labels = _constant(lib, key)
    for k in range(0, len(parameters) - 2, 2):
        state = lib.tanh(state @ parameters[k] + parameters[k + 1])
    logits = state @ parameters[-2] + parameters[-1]
    return (lib.logsumexp(logits, 1) - (logits * labels).sum(1)).mean()


def mlp_of(batch: int, *widths: int) -> Workload:
    """Return the network with layers of these widths."""
    rng = np.random.default_rng(0)
    leaves: list[Any] = []
    for a, b in itertools.pairwise(widths):
        leaves += [rng.normal(size=(a, b)) / np.sqrt(a), np.zeros(b)]
    key = (batch, widths[0], widths[-1])
    inputs, labels = data_of(*key)
    return Workload(
        f"MLP {'-'.join(map(str, widths))}, batch {batch}",
        functools.partial(mlp, key=key),
        tuple(leaves),
        functools.partial(by_hand_arrays.mlp, inputs=inputs, labels=labels),
    )


def black_scholes_of(n: int) -> Workload:
    """Return Black-Scholes of n options with four gradients."""
    rng = np.random.default_rng(0)
    bounds = ((80.0, 120.0), (80.0, 120.0), (0.2, 2.0), (0.1, 0.5))
    leaves = tuple(rng.uniform(low, high, n) for low, high in bounds)
    return Workload(f"Black-Scholes, n={n}", black_scholes, leaves, by_hand_arrays.black_scholes)


def _of_rows(name: str, function: Any, adjoint: Any, rows: int) -> Workload:
    x = np.random.default_rng(2).normal(size=(rows, rows))
    return Workload(
        f"{name} of ({rows}, {rows})", function, (x,), functools.partial(adjoint, weights=_weights(rows, rows))
    )


BLACK_SCHOLES = black_scholes_of(1_000_000)
ROSENBROCK_LARGE = Workload(
    "Rosenbrock by slices, n=1000000", rosenbrock, (np.linspace(-1.2, 1.3, 1_000_000),), by_hand.rosenbrock
)
LOGSUMEXP = _of_rows("logsumexp", logsumexp, by_hand_arrays.logsumexp, 1000)
SOFTMAX = _of_rows("softmax", softmax, by_hand_arrays.softmax, 1000)
MLP_LARGE = mlp_of(1024, 784, 512, 512, 10)
MLP_SMALL = mlp_of(32, 64, 64, 10)
