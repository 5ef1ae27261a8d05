"""Adjoints by hand in Numba: a Gaussian mixture, and bundle adjustment."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bench.by_hand import Array
from bench.by_hand.native import native

Integers: TypeAlias = NDArray[np.int64]
Three: TypeAlias = tuple[float, float, float]


@native
def _unpack(factors: Array, means: Array, whiten: Array, shifts: Array) -> float:
    """Set the lower triangles (k, d, d) and their products with the means; return the prior."""
    k, d = means.shape
    prior = 0.0
    for c in range(k):
        place = d
        for column in range(d):
            whiten[c, column, column] = math.exp(factors[c, column])
            prior += 0.5 * whiten[c, column, column] ** 2
            for row in range(column + 1, d):
                whiten[c, row, column] = factors[c, place]
                prior += 0.5 * factors[c, place] ** 2
                place += 1
        for row in range(d):
            for column in range(row + 1):
                shifts[c, row] += whiten[c, row, column] * means[c, column]
    return prior


@native
def _softmax_row(row: Array) -> float:
    """Return the logsumexp of a row; leave its softmax there."""
    largest, total = -np.inf, 0.0
    for c in range(len(row)):
        largest = max(largest, row[c])
    for c in range(len(row)):
        row[c] = math.exp(row[c] - largest)
        total += row[c]
    for c in range(len(row)):
        row[c] /= total
    return largest + math.log(total)


@native
def _weigh(white: Array, shifts: Array, starts: Array, parts: Array) -> float:
    """Return the sum of the points' logsumexp; leave shares in `parts`, cotangents in `white` (n, k, d)."""
    n, k, d = white.shape
    total = 0.0
    for i in range(n):
        for c in range(k):
            square = 0.0
            for r in range(d):
                white[i, c, r] -= shifts[c, r]
                square += white[i, c, r] * white[i, c, r]
            parts[i, c] = starts[c] - 0.5 * square
        total += _softmax_row(parts[i])
        for c in range(k):
            for r in range(d):
                white[i, c, r] *= -parts[i, c]
    return total


@native
def _pack(g_whiten: Array, whiten: Array, factors: Array, shares: Array, g_factors: Array) -> None:
    """Set the gradient to the factors from that to the triangles, the shares, and the prior."""
    k, d = whiten.shape[0], whiten.shape[1]
    for c in range(k):
        place = d
        for column in range(d):
            q = whiten[c, column, column]
            g_factors[c, column] = (g_whiten[c, column, column] + q) * q + shares[c]
            for row in range(column + 1, d):
                g_factors[c, place] = g_whiten[c, row, column] + factors[c, place]
                place += 1


@native
def mixture(
    alphas: Array, means: Array, factors: Array, x: Array, constant: float
) -> tuple[float, tuple[Array, Array, Array]]:
    """Return ADBench's log likelihood of a Gaussian mixture, and its gradients."""
    (n, d), k = x.shape, len(alphas)
    whiten, shifts, starts, parts = np.zeros((k, d, d)), np.zeros((k, d)), alphas.copy(), np.empty((n, k))
    value = _unpack(factors, means, whiten, shifts) + constant
    for c in range(k):
        starts[c] += factors[c, :d].sum()
    flat = np.dot(x, whiten.reshape((k * d, d)).T)
    value += _weigh(flat.reshape((n, k, d)), shifts, starts, parts)
    portions = alphas.copy()
    value -= n * _softmax_row(portions)
    shares, g_shifts = np.zeros(k), np.zeros(k * d)
    for i in range(n):
        for c in range(k):
            shares[c] += parts[i, c]
        for r in range(k * d):
            g_shifts[r] -= flat[i, r]
    g_whiten, g_means, g_factors = np.dot(flat.T, x).reshape((k, d, d)), np.zeros_like(means), np.empty_like(factors)
    for c in range(k):
        for row in range(d):
            for column in range(row + 1):
                g_whiten[c, row, column] += g_shifts[c * d + row] * means[c, column]
                g_means[c, column] += g_shifts[c * d + row] * whiten[c, row, column]
    _pack(g_whiten, whiten, factors, shares, g_factors)
    return value, (shares - n * portions, g_means, g_factors)


@native
def _cross(a: Three, b: Three) -> Three:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@native
def _dot(a: Three, b: Three) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@native
def _sum(a: Three, s: float, b: Three, t: float, c: Three, u: float) -> Three:
    """Return `s a + t b + u c`."""
    return (
        a[0] * s + b[0] * t + c[0] * u,
        a[1] * s + b[1] * t + c[1] * u,
        a[2] * s + b[2] * t + c[2] * u,
    )


@native
def _pull_rotated(unit: Three, angle: float, x: Three, g: Three) -> tuple[Three, Three]:
    """Return the cotangents of rotation vector and point, from that of the rotated point."""
    cosine, sine = math.cos(angle), math.sin(angle)
    turned, along = _cross(unit, x), _dot(unit, x)
    by_unit = _dot(g, unit)
    g_x = _sum(g, cosine, _cross(g, unit), sine, unit, by_unit * (1.0 - cosine))
    g_unit = _sum(_cross(x, g), sine, g, along * (1.0 - cosine), x, by_unit * (1.0 - cosine))
    g_angle = -sine * _dot(g, x) + cosine * _dot(g, turned) + sine * along * by_unit
    # angle is the length of the vector, unit the vector over it
    return _sum(g_unit, 1.0 / angle, unit, g_angle - _dot(g_unit, unit) / angle, x, 0.0), g_x


@native
def _observe(cam: Array, point: Array, weight: float, seen: Array, g_cam: Array, g_point: Array) -> tuple[float, float]:
    """Return the squared error of one observation and its derivative by the weight; add to the gradients."""
    angle = math.sqrt(cam[0] * cam[0] + cam[1] * cam[1] + cam[2] * cam[2])
    unit = (cam[0] / angle, cam[1] / angle, cam[2] / angle)
    place = (point[0] - cam[3], point[1] - cam[4], point[2] - cam[5])
    cosine = math.cos(angle)
    turned = _sum(place, cosine, _cross(unit, place), math.sin(angle), unit, _dot(unit, place) * (1.0 - cosine))
    x, y = turned[0] / turned[2], turned[1] / turned[2]
    square = x * x + y * y
    bent = 1.0 + cam[9] * square + cam[10] * square * square
    right, down = x * cam[6] * bent + cam[7] - seen[0], y * cam[6] * bent + cam[8] - seen[1]
    a, b = 2.0 * weight * weight * right, 2.0 * weight * weight * down
    g_bent = cam[6] * (a * x + b * y)
    g_square = g_bent * (cam[9] + 2.0 * cam[10] * square)
    g_cam[6] += bent * (a * x + b * y)
    g_cam[7] += a
    g_cam[8] += b
    g_cam[9] += g_bent * square
    g_cam[10] += g_bent * square * square
    gx, gy = a * cam[6] * bent + 2.0 * g_square * x, b * cam[6] * bent + 2.0 * g_square * y
    g = (gx / turned[2], gy / turned[2], -(gx * x + gy * y) / turned[2])
    g_rotation, g_place = _pull_rotated(unit, angle, place, g)
    for k in range(3):
        g_cam[k] += g_rotation[k]
        g_cam[3 + k] -= g_place[k]
        g_point[k] += g_place[k]
    errors = right * right + down * down
    return weight * weight * errors, 2.0 * weight * errors


@native
def bundle(
    cameras: Array, points: Array, weights: Array, seen: Array, camera: Integers, point: Integers
) -> tuple[float, tuple[Array, Array, Array]]:
    """Return ADBench's squared errors of reprojection and weights, and their gradients."""
    g_cameras, g_points, g_weights = np.zeros_like(cameras), np.zeros_like(points), np.zeros_like(weights)
    value = 0.0
    for i in range(len(weights)):
        c, p, weight = camera[i], point[i], weights[i]
        error, g_weight = _observe(cameras[c], points[p], weight, seen[i], g_cameras[c], g_points[p])
        off = 1.0 - weight * weight
        value += error + off * off
        g_weights[i] = g_weight - 4.0 * off * weight
    return value, (g_cameras, g_points, g_weights)
