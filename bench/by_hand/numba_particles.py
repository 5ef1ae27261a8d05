"""Adjoints by hand in Numba: bodies and particles that act on each other in pairs."""

from __future__ import annotations

import math

import numpy as np

from bench.by_hand import NBODY_SOFTENING, NBODY_STEP, Array
from bench.by_hand.native import native


@native
def _accelerate(mass: Array, position: Array, found: Array) -> None:
    """Set `found` to the acceleration of each body."""
    found[:] = 0.0
    for i in range(len(mass)):
        for j in range(i):
            dx, dy, dz = (
                position[j, 0] - position[i, 0],
                position[j, 1] - position[i, 1],
                position[j, 2] - position[i, 2],
            )
            square = dx * dx + dy * dy + dz * dz + NBODY_SOFTENING * NBODY_SOFTENING
            inverse = 1.0 / (square * math.sqrt(square))
            a, b = mass[j] * inverse, mass[i] * inverse
            found[i, 0] += a * dx
            found[i, 1] += a * dy
            found[i, 2] += a * dz
            found[j, 0] -= b * dx
            found[j, 1] -= b * dy
            found[j, 2] -= b * dz


@native
def _pull_accelerate(mass: Array, position: Array, g: Array, g_mass: Array, g_position: Array) -> None:
    """Add to the gradients what the cotangent `g` of the accelerations gives."""
    for i in range(len(mass)):
        for j in range(i):
            dx, dy, dz = (
                position[j, 0] - position[i, 0],
                position[j, 1] - position[i, 1],
                position[j, 2] - position[i, 2],
            )
            square = dx * dx + dy * dy + dz * dz + NBODY_SOFTENING * NBODY_SOFTENING
            inverse = 1.0 / (square * math.sqrt(square))
            along_i = g[i, 0] * dx + g[i, 1] * dy + g[i, 2] * dz
            along_j = g[j, 0] * dx + g[j, 1] * dy + g[j, 2] * dz
            g_mass[j] += along_i * inverse
            g_mass[i] -= along_j * inverse
            bend = -3.0 * (mass[j] * along_i - mass[i] * along_j) * inverse / square
            a, b = mass[j] * inverse, mass[i] * inverse
            ux = a * g[i, 0] - b * g[j, 0] + bend * dx
            uy = a * g[i, 1] - b * g[j, 1] + bend * dy
            uz = a * g[i, 2] - b * g[j, 2] + bend * dz
            g_position[j, 0] += ux
            g_position[j, 1] += uy
            g_position[j, 2] += uz
            g_position[i, 0] -= ux
            g_position[i, 1] -= uy
            g_position[i, 2] -= uz


@native
def _move(x: Array, by: Array, factor: float) -> None:
    """Add `factor * by` to `x`, both (n, 3)."""
    for i in range(len(x)):
        for k in range(3):
            x[i, k] += factor * by[i, k]


@native
def n_body(mass: Array, position: Array, velocity: Array, steps: int) -> tuple[float, tuple[Array, Array, Array]]:
    """Return the sum of squared positions after `steps` leapfrog steps and gradients (n,), (n, 3), (n, 3)."""
    h = NBODY_STEP
    path = np.empty((steps + 1, len(mass), 3))
    path[0] = position
    now, moving, kick = position.copy(), velocity.copy(), np.empty_like(position)
    _accelerate(mass, now, kick)
    for k in range(steps):
        _move(moving, kick, h / 2)
        _move(now, moving, h)
        path[k + 1] = now
        _accelerate(mass, now, kick)
        _move(moving, kick, h / 2)
    g_mass, g_velocity, g_kick = np.zeros_like(mass), np.zeros_like(velocity), np.zeros_like(velocity)
    g_position = 2.0 * now
    for k in range(steps, 0, -1):
        _move(g_kick, g_velocity, h / 2)
        _pull_accelerate(mass, path[k], g_kick, g_mass, g_position)
        _move(g_velocity, g_position, h)
        g_kick[:] = 0.0
        _move(g_kick, g_velocity, h / 2)
    _pull_accelerate(mass, path[0], g_kick, g_mass, g_position)
    return (now * now).sum(), (g_mass, g_position, g_velocity)


LJ_STEP = 0.002


@native
def _lennard_jones(x: Array, epsilon: float, sigma: float, force: Array) -> None:
    """Set `force` to the force on each particle."""
    force[:] = 0.0
    for i in range(len(x)):
        for j in range(i):
            dx, dy, dz = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
            square = dx * dx + dy * dy + dz * dz
            near = sigma * sigma / square
            sixth = near * near * near
            weight = 24.0 * epsilon * (2.0 * sixth * sixth - sixth) / square
            force[i, 0] += weight * dx
            force[i, 1] += weight * dy
            force[i, 2] += weight * dz
            force[j, 0] -= weight * dx
            force[j, 1] -= weight * dy
            force[j, 2] -= weight * dz


@native
def _pull_lennard_jones(x: Array, epsilon: float, sigma: float, g: Array, g_x: Array) -> tuple[float, float]:
    """Add to `g_x` what the cotangent `g` of the forces gives; return what it gives for epsilon and sigma."""
    g_epsilon = g_sigma = 0.0
    for i in range(len(x)):
        for j in range(i):
            dx, dy, dz = x[i, 0] - x[j, 0], x[i, 1] - x[j, 1], x[i, 2] - x[j, 2]
            square = dx * dx + dy * dy + dz * dz
            near = sigma * sigma / square
            sixth = near * near * near
            ux, uy, uz = g[i, 0] - g[j, 0], g[i, 1] - g[j, 1], g[i, 2] - g[j, 2]
            along = 24.0 * (ux * dx + uy * dy + uz * dz) / square
            weight = epsilon * (2.0 * sixth * sixth - sixth)
            steep = epsilon * (12.0 * sixth * sixth - 3.0 * sixth)  # near * d weight / d near
            g_epsilon += along * (2.0 * sixth * sixth - sixth)
            g_sigma += along * steep * 2.0 / sigma
            bend = -2.0 * along * (steep + weight) / square
            factor = 24.0 * weight / square
            px, py, pz = factor * ux + bend * dx, factor * uy + bend * dy, factor * uz + bend * dz
            g_x[i, 0] += px
            g_x[i, 1] += py
            g_x[i, 2] += pz
            g_x[j, 0] -= px
            g_x[j, 1] -= py
            g_x[j, 2] -= pz
    return g_epsilon, g_sigma


@native
def lennard_jones(
    x: Array, v: Array, epsilon: float, sigma: float, _ones: Array, steps: int
) -> tuple[float, tuple[Array, Array, float, float]]:
    """Return the sum of squared positions after `steps` velocity-Verlet steps, and its gradients."""
    h = LJ_STEP
    path = np.empty((steps + 1, len(x), 3))
    path[0] = x
    now, moving, force, after = x.copy(), v.copy(), np.empty_like(x), np.empty_like(x)
    _lennard_jones(now, epsilon, sigma, force)
    for k in range(steps):
        _move(now, moving, h)
        _move(now, force, 0.5 * h * h)
        path[k + 1] = now
        _lennard_jones(now, epsilon, sigma, after)
        _move(moving, force, 0.5 * h)
        _move(moving, after, 0.5 * h)
        force, after = after, force
    g_x, g_v, g_force = 2.0 * now, np.zeros_like(v), np.zeros_like(v)
    g_epsilon = g_sigma = 0.0
    for k in range(steps, 0, -1):
        _move(g_force, g_v, 0.5 * h)
        a, b = _pull_lennard_jones(path[k], epsilon, sigma, g_force, g_x)
        g_epsilon += a
        g_sigma += b
        g_force[:] = 0.0
        _move(g_force, g_v, 0.5 * h)
        _move(g_force, g_x, 0.5 * h * h)
        _move(g_v, g_x, h)
    a, b = _pull_lennard_jones(path[0], epsilon, sigma, g_force, g_x)
    return (now * now).sum(), (g_x, g_v, g_epsilon + a, g_sigma + b)
