"""Heat: a time loop you already have, and the gradient of what it computes.

`march` is plain NumPy and stays as it was: given tensors instead of arrays, the same lines are
recorded. Only the lines marked "changed" are new.
"""

from typing import Any

import numpy as np

import tape
from tape.examples import check_gradient

Array = Any  # an ndarray or a Tensor: the same code serves both
POINTS, STEPS = 31, 200
X = np.linspace(0, 1, POINTS)
RATIO = 0.36  # time step over squared distance of the points; beyond 0.5 the scheme is unstable


def march(u: Array, conductivity: Array, steps: int) -> Array:
    """Return the temperatures (POINTS,) of a rod after `steps` time steps; its ends keep theirs.

    conductivity: one number, or an array (POINTS - 1,) with one for each interval between points.
    """
    for _ in range(steps):
        flux = conductivity * (u[1:] - u[:-1])
        u = np.concatenate([u[:1], u[1:-1] + RATIO * (flux[1:] - flux[:-1]), u[-1:]])
    return u


def initial() -> Array:
    """Return the temperatures (POINTS,) at the start."""
    return X + np.sin(np.pi * X)


def main() -> None:
    """Differentiate the last temperature of the middle by the conductivity and all first ones."""
    middle = POINTS // 2
    conductivity: Array = tape.tensor(0.9, requires_grad=True)  # changed
    u: Array = tape.tensor(initial(), requires_grad=True)  # changed
    final = march(u, conductivity, STEPS)[middle]
    final.backward()  # changed

    without_tape = march(initial(), 0.9, STEPS)[middle]
    print(f"final temperature of the middle: {final.item():.6f} (without tape {without_tape:.6f})")
    print(f"derivative by the conductivity:  {conductivity.grad.item():.6f}")
    print(f"by the first temperatures:       {u.grad.min().item():.6f} to {u.grad.max().item():.6f}")
    check_gradient(
        lambda x: float(march(x[:-1], x[-1], STEPS)[middle]),
        np.append(initial(), 0.9),
        np.append(u.grad.numpy(), conductivity.grad.numpy()),
    )
