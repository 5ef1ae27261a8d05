"""Steps of methods whose lengths are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape.recording import views

Slope = Callable[[Any, Any], Any]


def euler(f: Slope, t: Any, y: Any, h: Any) -> Any:
    """Return the state after a step of Euler's method, of order 1."""
    return y + h * f(t, y)


def rk4(f: Slope, t: Any, y: Any, h: Any) -> Any:
    """Return the state after a step of Kutta's method of order 4."""
    half, middle = 0.5 * h, t + 0.5 * h
    a = f(t, y)
    b = f(middle, y + half * a)
    c = f(middle, y + half * b)
    return y + h / 6.0 * (a + 2.0 * (b + c) + f(t + h, y + h * c))


def velocity_verlet(f: Slope, t: Any, y: Any, h: Any) -> Any:
    """Return the state after a step of the leapfrog: half a kick, a drift, half a kick; of order 2, symplectic.

    ``y`` is a vector of positions and, as many, velocities or momenta. The slopes of positions depend on these alone,
    theirs on positions alone.
    """
    n = y.shape[0] // 2
    q, p = y[:n], y[n:]
    p = p + 0.5 * h * f(t, y)[n:]
    q = q + h * f(t + 0.5 * h, views.cat((q, p)))[:n]
    p = p + 0.5 * h * f(t + h, views.cat((q, p)))[n:]
    return views.cat((q, p))
