"""Simulations by time steps, one text for every library, and the same by JAX's `scan`, which is its best form.

Each function takes the library's names first (`tape`, `torch`, `bench.library_names`), then its leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.by_hand import IMPLICIT_STEP, LV_STEP, NBODY_SOFTENING, NBODY_STEP
from bench.by_hand.numba_grids import CONVECTION, DIFFUSION, WAVE_STEP
from bench.by_hand.numba_particles import LJ_STEP


def scanned(lib: Any, step: Callable[[Any], Any], state: Any, steps: int) -> Any:
    """Return the state after `steps` steps, compiled as a loop."""
    return lib.scan(lambda state, _: (step(state), None), state, None, length=steps)[0]


def lotka_volterra_scan(lib: Any, alpha: Any, beta: Any, gamma: Any, delta: Any, x: Any, y: Any, *, steps: int) -> Any:
    """Return what `bench.workloads.lotka_volterra` does."""
    h = LV_STEP

    def slope(x: Any, y: Any) -> tuple[Any, Any]:
        return alpha * x - beta * x * y, delta * x * y - gamma * y

    def step(state: tuple[Any, Any]) -> tuple[Any, Any]:
        x, y = state
        x1, y1 = slope(x, y)
        x2, y2 = slope(x + h / 2 * x1, y + h / 2 * y1)
        x3, y3 = slope(x + h / 2 * x2, y + h / 2 * y2)
        x4, y4 = slope(x + h * x3, y + h * y3)
        return x + h / 6 * (x1 + 2.0 * x2 + 2.0 * x3 + x4), y + h / 6 * (y1 + 2.0 * y2 + 2.0 * y3 + y4)

    x, y = scanned(lib, step, (x, y), steps)
    return x + y


def _newton(q: Any, p: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Return what is left of the equation of an implicit step, and its slope by the speed v."""
    h = IMPLICIT_STEP
    a = q + h * v
    return v - p + h * (a + k * a * a * a), 1.0 + h * (h + 3.0 * h * k * a * a)


def _implicit_step(q: Any, p: Any, k: Any) -> tuple[Any, Any]:
    """Return place and speed after a step, which Newton's method solves."""
    v = p
    rest, slope = _newton(q, p, k, v)
    while abs(rest) > 1e-12:
        v = v - rest / slope
        rest, slope = _newton(q, p, k, v)
    return q + IMPLICIT_STEP * v, v


def implicit(_lib: Any, q: Any, k: Any, *, steps: int) -> Any:
    """Return where an oscillator with a cubic spring is after implicit Euler steps, each by Newton's method."""
    p = q * 0.0
    for _ in range(steps):
        q, p = _implicit_step(q, p, k)
    return q


def kicks(steps: int) -> Any:
    """Return how much speed there is more in each step of the oscillator that is kicked."""
    return 0.05 * np.sin(0.3 * np.arange(steps))


def kicked(_lib: Any, q: Any, k: Any, *, steps: int) -> Any:
    """Return the same where each step has more speed: its number counts."""
    p, more = q * 0.0, kicks(steps)
    for i in range(steps):
        q, p = _implicit_step(q, p + more[i], k)
    return q


def implicit_scan(lib: Any, q: Any, k: Any, *, kicks: Any) -> Any:
    """Return what these do, with as many iterations in each step: `while_loop` has no reverse."""

    def step(state: Any, more: Any) -> Any:
        q, p = state
        v = p = p + more
        for _ in range(5):
            rest, slope = _newton(q, p, k, v)
            v = v - rest / slope
        return (q + IMPLICIT_STEP * v, v), None

    return lib.scan(step, (q, 0.0 * q), kicks)[0][0]


def n_body_scan(lib: Any, mass: Any, position: Any, velocity: Any, *, steps: int) -> Any:
    """Return what `bench.workloads.n_body` does."""
    h = NBODY_STEP

    def acceleration(position: Any) -> Any:
        difference = position[None, :, :] - position[:, None, :]
        square = (difference * difference).sum(-1) + NBODY_SOFTENING**2
        weight = mass * square**-1.5
        return (difference * weight[:, :, None]).sum(1)

    def step(state: Any) -> Any:
        position, velocity, kick = state
        velocity = velocity + kick * (h / 2)
        position = position + velocity * h
        kick = acceleration(position)
        return position, velocity + kick * (h / 2), kick

    position, _, _ = scanned(lib, step, (position, velocity, acceleration(position)), steps)
    return (position * position).sum()


def _burgers_inner(u: Any) -> Any:
    """Return the inner points a step later."""
    left, here, right = u[:-2], u[1:-1], u[2:]
    return here - CONVECTION * here * (right - left) + DIFFUSION * (right - 2.0 * here + left)


def burgers_by_cat(lib: Any, u: Any, *, steps: int) -> Any:
    """Return the sum of squares after `steps` explicit steps of Burgers' equation; the ends stay."""
    for _ in range(steps):
        u = lib.cat([u[:1], _burgers_inner(u), u[-1:]])
    return (u * u).sum()


def burgers_in_place(_lib: Any, u: Any, *, steps: int) -> Any:
    """Return the same, the inner points set in place."""
    u = 1.0 * u
    for _ in range(steps):
        u[1:-1] = _burgers_inner(u)
    return (u * u).sum()


def burgers_scan(lib: Any, u: Any, *, steps: int) -> Any:
    """Return the same by `scan`; of five ways to keep the ends, XLA runs this one fastest."""
    u = scanned(lib, lambda u: u + lib.pad(_burgers_inner(u) - u[1:-1], 1), u, steps)
    return (u * u).sum()


def _burgers_around(lib: Any, u: Any) -> Any:
    """Return all points of a circle a step later."""
    left, right = lib.roll(u, 1), lib.roll(u, -1)
    return u - CONVECTION * u * (right - left) + DIFFUSION * (right - 2.0 * u + left)


def burgers_by_roll(lib: Any, u: Any, *, steps: int) -> Any:
    """Return the sum of squares after `steps` steps on a circle."""
    for _ in range(steps):
        u = _burgers_around(lib, u)
    return (u * u).sum()


def burgers_by_roll_scan(lib: Any, u: Any, *, steps: int) -> Any:
    """Return the same by `scan`."""
    u = scanned(lib, lambda u: _burgers_around(lib, u), u, steps)
    return (u * u).sum()


def _laplacian(u: Any) -> Any:
    """Return the five-point sums at the inner points."""
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]


def wave(_lib: Any, field: Any, speed: Any, *, steps: int) -> Any:
    """Return the sum of squares of a membrane that starts at rest, by leapfrog of two time levels; the rim stays."""
    factor = (speed * WAVE_STEP) ** 2
    before = now = field
    for _ in range(steps):
        after = 2.0 * now - before
        after[1:-1, 1:-1] += factor * _laplacian(now)
        before, now = now, after
    return (now * now).sum()


def wave_scan(lib: Any, field: Any, speed: Any, *, steps: int) -> Any:
    """Return the same by `scan`."""
    factor = (speed * WAVE_STEP) ** 2

    def step(state: Any) -> Any:
        before, now = state
        return now, 2.0 * now - before + lib.pad(factor * _laplacian(now), 1)

    _, now = scanned(lib, step, (field, field), steps)
    return (now * now).sum()


def _lennard_jones_force(x: Any, epsilon: Any, sigma: Any, ones: Any) -> Any:
    """Return the force on each particle; `ones` on the diagonal keeps a particle off itself."""
    apart = x[:, None, :] - x[None, :, :]
    square = (apart * apart).sum(-1) + ones
    near = sigma * sigma / square
    sixth = near * near * near
    weight = 24.0 * epsilon * (2.0 * sixth * sixth - sixth) / square
    return (apart * weight[:, :, None]).sum(1)


def lennard_jones(_lib: Any, x: Any, v: Any, epsilon: Any, sigma: Any, ones: Any, *, steps: int) -> Any:
    """Return the sum of squared positions after `steps` velocity-Verlet steps of particles of mass one."""
    h, force = LJ_STEP, _lennard_jones_force(x, epsilon, sigma, ones)
    for _ in range(steps):
        x = x + h * v + 0.5 * h * h * force
        after = _lennard_jones_force(x, epsilon, sigma, ones)
        v = v + 0.5 * h * (force + after)
        force = after
    return (x * x).sum()


def lennard_jones_scan(lib: Any, x: Any, v: Any, epsilon: Any, sigma: Any, ones: Any, *, steps: int) -> Any:
    """Return the same by `scan`."""
    h = LJ_STEP

    def step(state: Any) -> Any:
        x, v, force = state
        x = x + h * v + 0.5 * h * h * force
        after = _lennard_jones_force(x, epsilon, sigma, ones)
        return x, v + 0.5 * h * (force + after), after

    x, _, _ = scanned(lib, step, (x, v, _lennard_jones_force(x, epsilon, sigma, ones)), steps)
    return (x * x).sum()


# The nine velocities of the lattice, and their weights.
LATTICE = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
_WEIGHTS = (4 / 9, *[1 / 9] * 4, *[1 / 36] * 4)


def lattice_boltzmann(lib: Any, flow: Any, rate: Any, *, steps: int) -> Any:
    """Return the energy of a fluid on a torus: nine populations (9, n, m), streamed and relaxed (D2Q9, BGK)."""
    for _ in range(steps):
        moved = [lib.roll(flow[k], LATTICE[k], (0, 1)) for k in range(9)]
        density = sum(moved[1:], moved[0])
        u = (moved[1] - moved[3] + moved[5] - moved[6] - moved[7] + moved[8]) / density
        v = (moved[2] - moved[4] + moved[5] + moved[6] - moved[7] - moved[8]) / density
        square = 1.5 * (u * u + v * v)
        after = []
        for population, weight, (a, b) in zip(moved, _WEIGHTS, LATTICE, strict=True):
            along = 3.0 * (a * u + b * v)
            equilibrium = weight * density * (1.0 + along + 0.5 * along * along - square)
            after.append(population + rate * (equilibrium - population))
        flow = lib.stack(after)
    return (flow * flow).sum()


def _around(lib: Any, u: Any) -> Any:
    """Return the five-point sums on a torus."""
    return lib.roll(u, 1, 0) + lib.roll(u, -1, 0) + lib.roll(u, 1, 1) + lib.roll(u, -1, 1) - 4.0 * u


def gray_scott(lib: Any, u: Any, v: Any, feed: Any, kill: Any, *, steps: int) -> Any:
    """Return how much is there of the second of two substances that react and diffuse on a torus."""
    for _ in range(steps):
        reaction = u * v * v
        u, v = (
            u + 0.16 * _around(lib, u) - reaction + feed * (1.0 - u),
            v + 0.08 * _around(lib, v) + reaction - (feed + kill) * v,
        )
    return (v * v).sum()


# The method of Dormand and Prince (1980): its stages, and by what its two results differ.
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERRORS = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def dormand_prince(lib: Any, x: Any, y: Any, mu: Any, end: Any, tolerance: Any) -> Any:
    """Return where Van der Pol's oscillator is at a time, by steps whose lengths are adapted."""

    def slope(x: Any, y: Any) -> tuple[Any, Any]:
        return y, mu * (1.0 - x * x) * y - x

    t, h = 0.0 * end, 0.01 + 0.0 * end
    while t < end:
        h = lib.minimum(h, end - t)
        slopes = [slope(x, y)]
        for stage in _STAGES:
            a = x + h * sum(c * k for c, (k, _) in zip(stage, slopes, strict=True))
            b = y + h * sum(c * k for c, (_, k) in zip(stage, slopes, strict=True))
            slopes.append(slope(a, b))
        errors = [h * sum(c * k[i] for c, k in zip(_ERRORS, slopes, strict=True)) for i in (0, 1)]
        scales = [tolerance * (1.0 + lib.maximum(abs(p), abs(q))) for p, q in ((x, a), (y, b))]
        error = lib.sqrt(0.5 * sum((e / s) ** 2 for e, s in zip(errors, scales, strict=True))) + 1e-12
        good = error <= 1.0
        x, y, t = lib.where(good, a, x), lib.where(good, b, y), lib.where(good, t + h, t)
        h = h * lib.minimum(5.0, lib.maximum(0.2, 0.9 * error**-0.2))
    return x + y
