"""The gradients of the workloads written by hand: NumPy for arrays, Python floats for scalars.

They are the reference of every row, and a row of their own: what a user who derives and writes
an adjoint gets. `bench/bench_by_hand.py` checks them by complex steps.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Leaf: TypeAlias = float | Array
ValueAndGradients: TypeAlias = tuple[Leaf, tuple[Leaf, ...]]

LV_STEP = 0.01
NBODY_STEP = 0.01
IMPLICIT_STEP = 0.05
NBODY_SOFTENING = 0.1


def tiny_graph(a: Leaf, b: Leaf, c: Leaf, d: Leaf) -> ValueAndGradients:
    """Return `a*b + log(d)*c` and its gradients."""
    t = np.log(d)
    return a * b + t * c, (b, a, t, c / d)


def rosenbrock(x: Array) -> ValueAndGradients:
    """Return the Rosenbrock function and its gradient, (n,)."""
    head, tail = x[:-1], x[1:]
    bend, rest = tail - head * head, 1.0 - head
    gradient = np.zeros_like(x)
    gradient[1:] = 200.0 * bend
    gradient[:-1] -= 400.0 * bend * head + 2.0 * rest
    return (100.0 * bend * bend + rest * rest).sum(), (gradient,)


def lotka_volterra(
    alpha: float, beta: float, gamma: float, delta: float, x: float, y: float, *, steps: int
) -> ValueAndGradients:
    """Return prey plus predators and six gradients, Python floats throughout."""
    rates = (alpha, beta, gamma, delta)
    path = []
    for _ in range(steps):
        stages = _lv_stages(rates, x, y)
        path.append(stages)
        (x1, y1), (x2, y2), (x3, y3), (x4, y4) = (_lv_slope(rates, *stage) for stage in stages)
        x += LV_STEP / 6 * (x1 + 2.0 * x2 + 2.0 * x3 + x4)
        y += LV_STEP / 6 * (y1 + 2.0 * y2 + 2.0 * y3 + y4)
    adjoint = _LotkaVolterraAdjoint(rates)
    gx = gy = 1.0
    for stages in reversed(path):
        gx, gy = adjoint.step(stages, gx, gy)
    return x + y, (*adjoint.gradients, gx, gy)


def _lv_slope(rates: tuple[float, float, float, float], x: float, y: float) -> tuple[float, float]:
    alpha, beta, gamma, delta = rates
    return alpha * x - beta * x * y, delta * x * y - gamma * y


def _lv_stages(rates: tuple[float, float, float, float], x: float, y: float) -> list[tuple[float, float]]:
    """Return the four points at which one RK4 step takes the slope."""
    stages = [(x, y)]
    for part in (LV_STEP / 2, LV_STEP / 2, LV_STEP):
        dx, dy = _lv_slope(rates, *stages[-1])
        stages.append((x + part * dx, y + part * dy))
    return stages


class _LotkaVolterraAdjoint:
    """The reverse of the time loop; sums up the gradients of the four rates on its way."""

    def __init__(self, rates: tuple[float, float, float, float]) -> None:
        self._rates = rates
        self.gradients = [0.0, 0.0, 0.0, 0.0]

    def step(self, stages: list[tuple[float, float]], gx: float, gy: float) -> tuple[float, float]:
        """Return the cotangent of the state before the step, from that after it."""
        h = LV_STEP
        u = v = part = 0.0
        total_x, total_y = gx, gy
        for (x, y), weight in zip(reversed(stages), (h / 6, h / 3, h / 3, h / 6), strict=True):
            u, v = self._slope(x, y, weight * gx + part * u, weight * gy + part * v)
            total_x += u
            total_y += v
            part = h if part == 0.0 else h / 2  # the last stage was reached by a whole step
        return total_x, total_y

    def _slope(self, x: float, y: float, u: float, v: float) -> tuple[float, float]:
        alpha, beta, gamma, delta = self._rates
        gradients = self.gradients
        gradients[0] += u * x
        gradients[1] -= u * x * y
        gradients[2] -= v * y
        gradients[3] += v * x * y
        return u * (alpha - beta * y) + v * delta * y, v * (delta * x - gamma) - u * beta * x


def n_body(mass: Array, position: Array, velocity: Array, *, steps: int) -> ValueAndGradients:
    """Return the sum of squared positions and gradients (n,), (n, 3), (n, 3)."""
    h = NBODY_STEP
    pairs = [_Pairs(mass, position)]
    for _ in range(steps):
        velocity = velocity + pairs[-1].acceleration * (h / 2)
        position = position + velocity * h
        pairs.append(_Pairs(mass, position))
        velocity = velocity + pairs[-1].acceleration * (h / 2)
    g_mass = np.zeros_like(mass)
    g_position = 2.0 * position
    g_velocity = np.zeros_like(velocity)
    g_kick = np.zeros_like(velocity)
    for pair in reversed(pairs[1:]):
        g_kick += g_velocity * (h / 2)
        pair.add_gradients(g_kick, g_mass, g_position)
        g_velocity += g_position * h
        g_kick = g_velocity * (h / 2)
    pairs[0].add_gradients(g_kick, g_mass, g_position)
    return (position * position).sum(), (g_mass, g_position, g_velocity)


class _Pairs:
    """Gravity between all pairs of bodies at one time, and its adjoint."""

    def __init__(self, mass: Array, position: Array) -> None:
        self._mass = mass
        self._difference = position[None, :, :] - position[:, None, :]
        self._square = (self._difference * self._difference).sum(-1) + NBODY_SOFTENING**2
        self._inverse = self._square**-1.5
        self._weight = mass * self._inverse
        self.acceleration = (self._difference * self._weight[:, :, None]).sum(1)

    def add_gradients(self, g: Array, g_mass: Array, g_position: Array) -> None:
        """Add to the gradients of mass and position what the cotangent of acceleration gives."""
        g_weight = (g[:, None, :] * self._difference).sum(-1)
        g_mass += (g_weight * self._inverse).sum(0)
        g_square = -1.5 * g_weight * self._weight / self._square
        g_difference = g[:, None, :] * self._weight[:, :, None] + 2.0 * g_square[:, :, None] * self._difference
        g_position += g_difference.sum(0) - g_difference.sum(1)


def chain(y: Array, *, operations: int) -> ValueAndGradients:
    """Return the end of the chain and its gradient, (1,), keeping each argument of the sine."""
    arguments = []
    for _ in range(operations // 2):
        y = y * 0.999
        arguments.append(y)
        y = np.sin(y)
    g = np.ones_like(y)
    for argument in reversed(arguments):
        g = g * np.cos(argument) * 0.999
    return y, (g,)
