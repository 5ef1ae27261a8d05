"""Adjoints by hand in Numba: time steps of fields on grids."""

from __future__ import annotations

import numpy as np

from bench.by_hand import Array
from bench.by_hand.native import native

# Burgers' equation by central differences: dt / (2 dx), and viscosity * dt / dx**2.
CONVECTION = 0.05
DIFFUSION = 0.2


@native
def _inner_step(a: Array, b: Array) -> None:
    """Set the inner points of `b` to those of `a` a step later."""
    for j in range(1, len(a) - 1):
        convection = CONVECTION * a[j] * (a[j + 1] - a[j - 1])
        b[j] = a[j] - convection + DIFFUSION * (a[j + 1] - 2.0 * a[j] + a[j - 1])


@native
def _pull_inner_step(a: Array, g: Array, before: Array) -> None:
    """Add to `before` what the cotangents `g` of the inner points give; a loop each vectorizes, one does not."""
    inner = len(a) - 2
    left, here, right = before[:inner], before[1 : inner + 1], before[2:]
    a_left, a_here, a_right, g_here = a[:inner], a[1 : inner + 1], a[2:], g[1 : inner + 1]
    for j in range(inner):
        here[j] += g_here[j] * (1.0 - CONVECTION * (a_right[j] - a_left[j]) - 2.0 * DIFFUSION)
    for j in range(inner):
        left[j] += g_here[j] * (DIFFUSION + CONVECTION * a_here[j])
    for j in range(inner):
        right[j] += g_here[j] * (DIFFUSION - CONVECTION * a_here[j])


@native
def _end_step(left: float, here: float, right: float) -> float:
    return here - CONVECTION * here * (right - left) + DIFFUSION * (right - 2.0 * here + left)


@native
def _pull_end_step(a: Array, g: Array, before: Array, left: int, here: int, right: int) -> None:
    slope = CONVECTION * a[here]
    before[left] += g[here] * (DIFFUSION + slope)
    before[here] += g[here] * (1.0 - CONVECTION * (a[right] - a[left]) - 2.0 * DIFFUSION)
    before[right] += g[here] * (DIFFUSION - slope)


@native
def burgers(u: Array, steps: int) -> tuple[float, tuple[Array]]:
    """Return the sum of squares after `steps` explicit steps, the ends fixed, and its gradient, (n,)."""
    n = len(u)
    path = np.empty((steps + 1, n))
    path[0] = u
    for k in range(steps):
        path[k + 1, 0], path[k + 1, n - 1] = path[k, 0], path[k, n - 1]
        _inner_step(path[k], path[k + 1])
    g, before = 2.0 * path[steps], np.empty(n)
    for k in range(steps - 1, -1, -1):
        before[:] = 0.0
        before[0], before[n - 1] = g[0], g[n - 1]
        _pull_inner_step(path[k], g, before)
        g, before = before, g
    return (path[steps] ** 2).sum(), (g,)


@native
def burgers_periodic(u: Array, steps: int) -> tuple[float, tuple[Array]]:
    """Return the same on a circle."""
    n = len(u)
    path = np.empty((steps + 1, n))
    path[0] = u
    for k in range(steps):
        a = path[k]
        path[k + 1, 0] = _end_step(a[n - 1], a[0], a[1])
        path[k + 1, n - 1] = _end_step(a[n - 2], a[n - 1], a[0])
        _inner_step(a, path[k + 1])
    g, before = 2.0 * path[steps], np.empty(n)
    for k in range(steps - 1, -1, -1):
        before[:] = 0.0
        _pull_end_step(path[k], g, before, n - 1, 0, 1)
        _pull_end_step(path[k], g, before, n - 2, n - 1, 0)
        _pull_inner_step(path[k], g, before)
        g, before = before, g
    return (path[steps] ** 2).sum(), (g,)


# The wave equation: dt / dx.
WAVE_STEP = 0.5


@native
def _add_laplacian(u: Array, factor: float, found: Array) -> None:
    """Add to the inner points of `found` the five-point sums of `u`, times a factor."""
    rows, columns = u.shape
    for i in range(1, rows - 1):
        above, here, below, row = u[i - 1], u[i], u[i + 1], found[i]
        for j in range(1, columns - 1):
            row[j] += factor * (above[j] + below[j] + here[j - 1] + here[j + 1] - 4.0 * here[j])


@native
def _pull_factor(u: Array, g: Array, sums: Array) -> None:
    """Add to `sums`, a number a column, what the cotangent `g` gives for the factor."""
    rows, columns = u.shape
    for i in range(1, rows - 1):
        above, here, below, row = u[i - 1], u[i], u[i + 1], g[i]
        for j in range(1, columns - 1):
            sums[j] += row[j] * (above[j] + below[j] + here[j - 1] + here[j + 1] - 4.0 * here[j])


@native
def _leap(now: Array, before: Array, after: Array) -> None:
    """Set `after` to `2 * now - before`."""
    rows, columns = now.shape
    for i in range(rows):
        for j in range(columns):
            after[i, j] = 2.0 * now[i, j] - before[i, j]


@native
def wave(field: Array, speed: float, steps: int) -> tuple[float, tuple[Array, float]]:
    """Return the sum of squares after `steps` steps from rest, and its gradients: to the field, and the speed."""
    rows, columns = field.shape
    factor = (speed * WAVE_STEP) ** 2
    path = np.empty((steps + 2, rows, columns))
    path[0] = path[1] = field
    for k in range(steps):
        _leap(path[k + 1], path[k], path[k + 2])
        _add_laplacian(path[k + 1], factor, path[k + 2])
    sums = np.zeros(columns)
    g_after, g_now, inner = 2.0 * path[steps + 1], np.zeros_like(field), np.zeros_like(field)
    for k in range(steps, 0, -1):  # g_after is complete, g_now holds what a later step gave
        _pull_factor(path[k], g_after, sums)
        inner[1:-1, 1:-1] = g_after[1:-1, 1:-1]
        _pull_leap(g_after, g_now)
        _spread(inner, factor, g_now)
        g_after, g_now = g_now, g_after
    return (path[steps + 1] ** 2).sum(), (g_after + g_now, sums.sum() * 2.0 * speed * WAVE_STEP**2)


@native
def _pull_leap(g_after: Array, g_now: Array) -> None:
    """Add `2 * g_after` to `g_now`; leave in `g_after` what it gives to the time before, its negative."""
    rows, columns = g_now.shape
    for i in range(rows):
        for j in range(columns):
            g_now[i, j] += 2.0 * g_after[i, j]
            g_after[i, j] = -g_after[i, j]


@native
def _spread(inner: Array, factor: float, g: Array) -> None:
    """Add the transpose of the five-point sums: those of the cotangents with zeros at the rim, there too."""
    rows, columns = g.shape
    _add_laplacian(inner, factor, g)
    for j in range(1, columns - 1):
        g[0, j] += factor * inner[1, j]
        g[rows - 1, j] += factor * inner[rows - 2, j]
    for i in range(1, rows - 1):
        g[i, 0] += factor * inner[i, 1]
        g[i, columns - 1] += factor * inner[i, columns - 2]
