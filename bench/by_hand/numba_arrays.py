"""Adjoints by hand in Numba: functions of large arrays, one fused loop each."""

from __future__ import annotations

import math

import numpy as np

from bench.by_hand import Array
from bench.by_hand.native import native
from bench.by_hand_arrays import RATE

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


@native
def rosenbrock(x: Array) -> tuple[float, tuple[Array]]:
    """Return the Rosenbrock function and its gradient, (n,)."""
    gradient = np.zeros_like(x)
    value = 0.0
    for i in range(len(x) - 1):
        bend, rest = x[i + 1] - x[i] * x[i], 1.0 - x[i]
        value += 100.0 * bend * bend + rest * rest
        gradient[i] -= 400.0 * bend * x[i] + 2.0 * rest
        gradient[i + 1] = 200.0 * bend
    return value, (gradient,)


@native
def black_scholes(s: Array, x: Array, t: Array, v: Array) -> tuple[float, tuple[Array, Array, Array, Array]]:
    """Return the sum of call prices and its gradients, by the closed form."""
    gs, gx, gt, gv = np.empty_like(s), np.empty_like(s), np.empty_like(s), np.empty_like(s)
    value = 0.0
    for i in range(len(s)):
        root_t = math.sqrt(t[i])
        root = v[i] * root_t
        d1 = (math.log(s[i] / x[i]) + (RATE + 0.5 * v[i] * v[i]) * t[i]) / root
        n1 = 0.5 * (1.0 + math.erf(d1 * _ROOT_HALF))
        n2 = 0.5 * (1.0 + math.erf((d1 - root) * _ROOT_HALF))
        discount = math.exp(-RATE * t[i])
        density = s[i] * _DENSITY * math.exp(-0.5 * d1 * d1)
        value += s[i] * n1 - x[i] * discount * n2
        gs[i], gx[i] = n1, -discount * n2
        gt[i] = 0.5 * density * v[i] / root_t + RATE * x[i] * discount * n2
        gv[i] = density * root_t
    return value, (gs, gx, gt, gv)


@native
def logsumexp(x: Array, weights: Array) -> tuple[float, tuple[Array]]:
    """Return the weighted sum of the rows' logsumexp, and its gradient."""
    gradient = np.empty_like(x)
    rows, columns = x.shape
    value = 0.0
    for i in range(rows):
        largest = x[i].max()
        total = 0.0
        for j in range(columns):
            gradient[i, j] = math.exp(x[i, j] - largest)
            total += gradient[i, j]
        value += weights[i] * (largest + math.log(total))
        factor = weights[i] / total
        for j in range(columns):
            gradient[i, j] *= factor
    return value, (gradient,)


@native
def softmax(x: Array, weights: Array) -> tuple[float, tuple[Array]]:
    """Return the sum of a weighted softmax of the rows, and its gradient."""
    gradient = np.empty_like(x)
    rows, columns = x.shape
    value = 0.0
    for i in range(rows):
        largest = x[i].max()
        total = weighted = 0.0
        for j in range(columns):
            gradient[i, j] = math.exp(x[i, j] - largest)
            total += gradient[i, j]
            weighted += gradient[i, j] * weights[i, j]
        mean = weighted / total
        value += mean
        for j in range(columns):
            gradient[i, j] *= (weights[i, j] - mean) / total
    return value, (gradient,)
