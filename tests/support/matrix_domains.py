"""What the inputs of records of linear algebra and interpolation are made of: matrices that are far from singular."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tape
from kernels.operations.bands import band_lu
from kernels.rules.op import turned

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
    "lower": lambda rng, shape: np.tril(_near_diagonal(rng, shape)),
    "pivots": _pivots,
    "bands": _bands(1),
    "bands_below": _bands(0),
    "factors": lambda rng, shape: rng.uniform(-0.9, 0.9, shape) + (np.arange(shape[1]) == shape[1] - 2),
    "leading": _leading,
    "values": lambda rng, _: rng.uniform(-0.4, 0.4, 5) + np.array([3, 1, 2, 3, 1]),
    "within": lambda rng, shape: rng.uniform(0.2, 4.0, shape),
    "increasing": lambda rng, shape: np.cumsum(rng.uniform(0.5, 1.5, shape)),
    "grids": lambda rng, _: rng.uniform(-0.2, 0.2, 7) + np.array([0.5, 1.5, 3, 0.5, 1.2, 2, 3.5]),
}


def symmetric(x: Any) -> Any:
    """Return the symmetric part: what a record that reads one triangle is a function of."""
    return (x + turned(x)) * 0.5


def triangle(x: Any) -> Any:
    """Return the lower triangle: what a record is a function of that reads no more of a factor."""
    return np.where(np.tri(x.shape[-1], dtype=bool), x, 0.0)


def factors(x: Any) -> Any:
    """Return the factors of a banded matrix: gradients to them are those to the matrix."""
    return band_lu(x, below=1)


VIEWS = {"spd": symmetric, "lower": triangle, "factors": factors}


def differentiated(function: Callable[..., Any], *points: Array) -> None:
    """Check first and second gradients, along one direction, against central differences."""
    rng, step = np.random.default_rng(1), 1e-6
    directions = [rng.uniform(-1, 1, x.shape) for x in points]

    def gradients(at: float, *, create_graph: bool = False) -> tuple[Any, list[Any], list[Any]]:
        moved = [tape.tensor(x + at * d, requires_grad=True) for x, d in zip(points, directions, strict=True)]
        value = function(*moved)
        total = (value * tape.tensor(np.random.default_rng(2).uniform(0.5, 1.5, value.shape))).sum()
        return total.item(), moved, list(tape.autograd.grad(total, moved, create_graph=create_graph))

    def along(found: list[Any]) -> Any:
        return sum((g * tape.tensor(d)).sum() for g, d in zip(found, directions, strict=True))

    _, inputs, first = gradients(0.0, create_graph=True)
    (high, _, after), (low, _, before) = gradients(step), gradients(-step)
    np.testing.assert_allclose(along(first).item(), (high - low) / (2 * step), rtol=1e-6, atol=1e-8)
    second = tape.autograd.grad(along(first), inputs, materialize_grads=True)
    for found, a, b in zip(second, after, before, strict=True):
        expected = (a.numpy() - b.numpy()) / (2 * step)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6 * max(1.0, np.abs(expected).max()))
