"""Adjoint by hand in Numba: the log likelihood of a Kalman filter.

Products of small matrices are loops: a call of BLAS costs more than they do.
"""

from __future__ import annotations

import math

import numpy as np

from bench.by_hand import Array
from bench.by_hand.native import native

Gradients = tuple[Array, Array, Array, Array]
Step = tuple[Array, Array, Array, Array, Array, Array]


@native
def _add_product(a: Array, b: Array, factor: float, found: Array) -> None:
    """Add `factor * a @ b`."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            found[i, j] += factor * total


@native
def _add_vector(a: Array, b: Array, factor: float, found: Array) -> None:
    """Add `factor * a @ b`, of a vector."""
    for i in range(a.shape[0]):
        total = 0.0
        for k in range(a.shape[1]):
            total += a[i, k] * b[k]
        found[i] += factor * total


@native
def _add_outer(a: Array, b: Array, factor: float, found: Array) -> None:
    """Add `factor * a b^T` of vectors."""
    for i in range(len(a)):
        for j in range(len(b)):
            found[i, j] += factor * a[i] * b[j]


@native
def _invert(s: Array, found: Array) -> float:
    """Set `found` to the inverse of a matrix (2, 2); return the determinant."""
    determinant: float = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
    found[0, 0], found[1, 1] = s[1, 1] / determinant, s[0, 0] / determinant
    found[0, 1], found[1, 0] = -s[0, 1] / determinant, -s[1, 0] / determinant
    return determinant


@native
def _predict(f: Array, q: Array, mean: Array, cov: Array, mean_p: Array, cov_p: Array, half: Array) -> None:
    """Set mean and covariance (n, n) before the observation, and `half`, which is F P."""
    mean_p[:], half[:], cov_p[:] = 0.0, 0.0, q
    _add_vector(f, mean, 1.0, mean_p)
    _add_product(f, cov, 1.0, half)
    _add_product(half, f.T, 1.0, cov_p)


@native
def _zeros(f: Array, h: Array, q: Array, r: Array) -> Gradients:
    return np.zeros_like(f), np.zeros_like(h), np.zeros_like(q), np.zeros_like(r)


@native
def _room(steps: int, n: int, m: int) -> Gradients:
    """Return arrays for residuals, inverses, P H^T, and gains."""
    return np.empty((steps, m)), np.empty((steps, m, m)), np.empty((steps, n, m)), np.empty((steps, n, m))


@native
def _form(a: Array, x: Array) -> float:
    """Return `x @ a @ x`."""
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            total += x[i] * a[i, j] * x[j]
    return total


@native
def _pull_update(h: Array, step: Step, g_mean: Array, g_cov: Array, g: Gradients) -> tuple[Array, Array]:
    """Return the cotangents of mean and covariance before an observation, from those after it."""
    mean, cov, residual, inverse, cross, gain = step
    n, m = cross.shape
    seen_p, g_seen_p, g_gain = np.zeros((m, n)), np.zeros((m, n)), np.zeros((n, m))
    _add_product(h, cov, 1.0, seen_p)
    _add_outer(g_mean, residual, 1.0, g_gain)  # mean + gain residual
    _add_product(g_cov, seen_p.T, -1.0, g_gain)  # cov - gain H cov
    _add_product(gain.T, g_cov, -1.0, g_seen_p)
    g_cov_p, g_mean_p, g_residual = g_cov.copy(), g_mean.copy(), np.zeros(m)
    _add_product(g_seen_p, cov.T, 1.0, g[1])
    _add_product(h.T, g_seen_p, 1.0, g_cov_p)
    _add_vector(gain.T, g_mean, 1.0, g_residual)
    _add_vector(inverse, residual, -0.5, g_residual)
    _add_vector(inverse.T, residual, -0.5, g_residual)
    g_cross, g_inverse = np.zeros((n, m)), np.zeros((m, m))
    _add_product(g_gain, inverse.T, 1.0, g_cross)  # gain = cross inverse
    _add_product(cross.T, g_gain, 1.0, g_inverse)
    _add_outer(residual, residual, -0.5, g_inverse)
    half, g_innovation = np.zeros((m, m)), -0.5 * inverse.T
    _add_product(inverse.T, g_inverse, 1.0, half)
    _add_product(half, inverse.T, -1.0, g_innovation)
    g[3][:] += g_innovation
    _add_product(g_innovation, cross.T, 1.0, g[1])  # innovation = H cross + R
    _add_product(h.T, g_innovation, 1.0, g_cross)
    _add_product(g_cross, h, 1.0, g_cov_p)  # cross = cov H^T
    _add_product(g_cross.T, cov, 1.0, g[1])
    _add_outer(g_residual, mean, -1.0, g[1])  # residual = seen - H mean
    _add_vector(h.T, g_residual, -1.0, g_mean_p)
    return g_mean_p, g_cov_p


@native
def _pull_predict(
    f: Array, mean: Array, cov: Array, half: Array, g_mean_p: Array, g_cov_p: Array, g: Gradients
) -> tuple[Array, Array]:
    """Return the cotangents of mean and covariance after the observation before."""
    n = len(f)
    g_mean, g_cov, g_half = np.zeros(n), np.zeros((n, n)), np.zeros((n, n))
    g[2][:] += g_cov_p
    _add_outer(g_mean_p, mean, 1.0, g[0])  # F mean
    _add_vector(f.T, g_mean_p, 1.0, g_mean)
    _add_product(g_cov_p, f, 1.0, g_half)  # half F^T + Q
    _add_product(g_cov_p.T, half, 1.0, g[0])
    _add_product(g_half, cov.T, 1.0, g[0])  # half = F cov
    _add_product(f.T, g_half, 1.0, g_cov)
    return g_mean, g_cov


@native
def kalman(
    f: Array, h: Array, q: Array, r: Array, mean: Array, covariance: Array, seen: Array
) -> tuple[float, tuple[Array, Array, Array, Array]]:
    """Return the log likelihood of observations (steps, 2), and its gradients to F, H, Q, R."""
    steps, n, m = len(seen), len(f), len(h)
    means, covs = np.empty((steps + 1, n)), np.empty((steps + 1, n, n))
    means_p, covs_p, halves = np.empty((steps, n)), np.empty((steps, n, n)), np.empty((steps, n, n))
    residuals, inverses, crosses, gains = _room(steps, n, m)
    means[0], covs[0] = mean, covariance
    innovation, seen_p = np.empty((m, m)), np.empty((m, n))
    value = -0.5 * steps * m * math.log(2.0 * math.pi)
    for t in range(steps):
        _predict(f, q, means[t], covs[t], means_p[t], covs_p[t], halves[t])
        residual, inverse, cross, gain = residuals[t], inverses[t], crosses[t], gains[t]
        residual[:], innovation[:], cross[:], gain[:], seen_p[:] = seen[t], r, 0.0, 0.0, 0.0
        _add_vector(h, means_p[t], -1.0, residual)
        _add_product(covs_p[t], h.T, 1.0, cross)
        _add_product(h, cross, 1.0, innovation)
        determinant = _invert(innovation, inverse)
        _add_product(cross, inverse, 1.0, gain)
        means[t + 1], covs[t + 1] = means_p[t], covs_p[t]
        _add_vector(gain, residual, 1.0, means[t + 1])
        _add_product(h, covs_p[t], 1.0, seen_p)
        _add_product(gain, seen_p, -1.0, covs[t + 1])
        value -= 0.5 * (_form(inverse, residual) + math.log(determinant))
    g = _zeros(f, h, q, r)
    g_mean, g_cov = np.zeros(n), np.zeros((n, n))
    for t in range(steps - 1, -1, -1):
        step = (means_p[t], covs_p[t], residuals[t], inverses[t], crosses[t], gains[t])
        g_mean_p, g_cov_p = _pull_update(h, step, g_mean, g_cov, g)
        g_mean, g_cov = _pull_predict(f, means[t], covs[t], halves[t], g_mean_p, g_cov_p, g)
    return value, g
