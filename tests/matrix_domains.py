"""What the inputs of records of linear algebra and interpolation are made of: matrices that are far from singular."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.dispatching import turned

Array = np.ndarray[Any, Any]


def _near_diagonal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(-0.6, 0.6, shape) + np.diag(2.0 + np.arange(shape[-1]) / 2)


def _positive_definite(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    x = rng.uniform(-0.6, 0.6, shape)
    return x @ turned(x) + np.diag(1.0 + np.arange(shape[-1]))


def _pivots(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    n = shape[-1]
    return rng.integers(np.arange(1, n + 1), n + 1, shape).astype(np.int32)


def _bands(main: int) -> Callable[..., Array]:
    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.uniform(-0.5, 0.5, shape) + 3.0 * (np.arange(shape[0]) == main)[:, None]

    return draw


def _leading(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.2, 0.8, shape) + 4.0 * (np.arange(shape[0]) == 0)


DOMAINS: dict[str, Callable[..., Array]] = {
    "wellconditioned": _near_diagonal,
    "spd": _positive_definite,
    "pivots": _pivots,
    "bands": _bands(1),
    "bands_below": _bands(0),
    "leading": _leading,
    "values": lambda rng, _: rng.uniform(-0.4, 0.4, 5) + np.array([3, 1, 2, 3, 1]),
    "within": lambda rng, shape: rng.uniform(0.2, 4.0, shape),
    "increasing": lambda rng, shape: np.cumsum(rng.uniform(0.5, 1.5, shape)),
    "grids": lambda rng, _: rng.uniform(-0.2, 0.2, 7) + np.array([0.5, 1.5, 3, 0.5, 1.2, 2, 3.5]),
}


def symmetric(x: Any) -> Any:
    """Return the symmetric part: what a record that reads one triangle is a function of."""
    return (x + turned(x)) * 0.5


VIEWS = {"spd": symmetric}
