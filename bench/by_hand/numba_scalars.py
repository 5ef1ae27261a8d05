"""Adjoints by hand in Numba: programs of scalars."""

from __future__ import annotations

import math

import numpy as np

from bench.by_hand import IMPLICIT_STEP, LV_STEP, Array
from bench.by_hand.native import native

Four = tuple[float, float, float, float]
Six = tuple[float, float, float, float, float, float]


@native
def tiny_graph(a: float, b: float, c: float, d: float) -> tuple[float, Four]:
    """Return `a*b + log(d)*c` and its gradients."""
    t = math.log(d)
    return a * b + t * c, (b, a, t, c / d)


@native
def _one(value: float) -> Array:
    one = np.empty(1)
    one[0] = value
    return one


@native
def tiny_arrays(a: Array, b: Array, c: Array, d: Array) -> tuple[float, tuple[Array, Array, Array, Array]]:
    """Return the same of arrays of one element."""
    t = math.log(d[0])
    return a[0] * b[0] + t * c[0], (_one(b[0]), _one(a[0]), _one(t), _one(c[0] / d[0]))


@native
def _implicit_forward(q: float, k: float, kicks: Array, path: Array, tried: Array, counts: Array) -> tuple[float, int]:
    """Fill `path` with position and speed before each step, `tried` with the speeds that Newton's method leaves."""
    h, p, n = IMPLICIT_STEP, 0.0, 0
    for i in range(len(counts)):
        p += kicks[i]
        path[i, 0], path[i, 1] = q, p
        v, first = p, n
        a = q + h * v
        rest = v - p + h * (a + k * a * a * a)
        while abs(rest) > 1e-12:
            tried[n] = v
            n += 1
            v -= rest / (1.0 + h * (h + 3.0 * h * k * a * a))
            a = q + h * v
            rest = v - p + h * (a + k * a * a * a)
        counts[i] = n - first
        q, p = q + h * v, v
    return q, n


@native
def implicit(q: float, k: float, kicks: Array) -> tuple[float, tuple[float, float]]:
    """Return the position after implicit Euler steps, and two gradients; each iteration is taken back."""
    h, steps = IMPLICIT_STEP, len(kicks)
    path, tried, counts = np.empty((steps, 2)), np.empty(50 * steps), np.empty(steps, np.int64)
    value, n = _implicit_forward(q, k, kicks, path, tried, counts)
    gq, gp, gk = 1.0, 0.0, 0.0
    for i in range(steps - 1, -1, -1):
        q, p = path[i, 0], path[i, 1]
        gv, gp, g = gp + h * gq, 0.0, 0.0
        for _ in range(counts[i]):
            n -= 1
            v = tried[n]
            a = q + h * v
            rest, slope = v - p + h * (a + k * a * a * a), 1.0 + h * (h + 3.0 * h * k * a * a)
            b = q + h * (v - rest / slope)
            gv, gp = gv + g * (1.0 + h * h * (1.0 + 3.0 * k * b * b)), gp - g
            gq, gk = gq + g * h * (1.0 + 3.0 * k * b * b), gk + g * h * b * b * b
            g, gs = -gv / slope, gv * rest / (slope * slope)
            ga = gs * 6.0 * h * h * k * a
            gq, gv, gk = gq + ga, gv + h * ga, gk + gs * 3.0 * h * h * a * a
        a = q + h * p
        gq, gk = gq + g * h * (1.0 + 3.0 * k * a * a), gk + g * h * a * a * a
        gp += gv + g * h * h * (1.0 + 3.0 * k * a * a)
    return value, (gq, gk)


@native
def _forward(alpha: float, beta: float, gamma: float, delta: float, x: float, y: float, path: Array) -> float:
    """Fill `path` with the four points of each step at which the slope is taken; return x + y."""
    h = LV_STEP
    for k in range(len(path)):
        x1, y1 = alpha * x - beta * x * y, delta * x * y - gamma * y
        xa, ya = x + h / 2 * x1, y + h / 2 * y1
        x2, y2 = alpha * xa - beta * xa * ya, delta * xa * ya - gamma * ya
        xb, yb = x + h / 2 * x2, y + h / 2 * y2
        x3, y3 = alpha * xb - beta * xb * yb, delta * xb * yb - gamma * yb
        xc, yc = x + h * x3, y + h * y3
        x4, y4 = alpha * xc - beta * xc * yc, delta * xc * yc - gamma * yc
        path[k, 0], path[k, 1], path[k, 2], path[k, 3] = x, y, xa, ya
        path[k, 4], path[k, 5], path[k, 6], path[k, 7] = xb, yb, xc, yc
        x += h / 6 * (x1 + 2.0 * x2 + 2.0 * x3 + x4)
        y += h / 6 * (y1 + 2.0 * y2 + 2.0 * y3 + y4)
    return x + y


@native
def _backward(alpha: float, beta: float, gamma: float, delta: float, path: Array) -> Six:
    """Sweep back along `path`; return the six gradients."""
    h = LV_STEP
    ga = gb = gc = gd = 0.0
    gx = gy = 1.0
    for k in range(len(path) - 1, -1, -1):
        tx, ty, u, v = gx, gy, 0.0, 0.0
        for stage in range(3, -1, -1):
            x, y = path[k, 2 * stage], path[k, 2 * stage + 1]
            weight = h / 6 if stage in (0, 3) else h / 3
            part = 0.0 if stage == 3 else (h if stage == 2 else h / 2)
            p, q = weight * gx + part * u, weight * gy + part * v
            ga += p * x
            gb -= p * x * y
            gc -= q * y
            gd += q * x * y
            u = p * (alpha - beta * y) + q * delta * y
            v = q * (delta * x - gamma) - p * beta * x
            tx += u
            ty += v
        gx, gy = tx, ty
    return ga, gb, gc, gd, gx, gy


@native
def lotka_volterra(
    alpha: float, beta: float, gamma: float, delta: float, x: float, y: float, steps: int
) -> tuple[float, Six]:
    """Return prey plus predators after `steps` RK4 steps, and six gradients."""
    path = np.empty((steps, 8))
    value = _forward(alpha, beta, gamma, delta, x, y, path)
    return value, _backward(alpha, beta, gamma, delta, path)
