"""Derivatives by differences, each with an estimate of its error, and the tolerance that follows from it.

Central differences at a step and at its half give a value extrapolated to step 0 (Richardson); what the two differ
by bounds the truncation. Rounding is measured: eighth differences of values on a fine grid hold nothing else
(Hamming's table). Where either hides a derivative, larger and smaller steps are tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tape.tensors.tensor import Array, Tensor, as_array

ATOL, RTOL = 1e-5, 1e-3
"""PyTorch's tolerances, which ours never pass unless the caller gives others."""
SLACK = 1e-6
"""The relative error allowed besides the estimated error of the differences."""
ROUNDED = 1e-12
"""Likewise, relative to the largest element."""
OTHER_STEPS = (10.0, 0.1, 100.0, 0.01, 1000.0)
"""Steps tried, in units of the caller's, where that one does not resolve the derivative."""
RESOLVED = 1e-4
"""Relative error below which a larger step is not worth its evaluations."""
_GRID = range(-6, 7)
_ROUNDING = 4.0
"""Bound of the rounding of a difference quotient, in units of noise / step."""

Evaluate = Callable[[], Array]
Curve = Callable[[float], tuple[float, Array]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Derivatives and bounds of their errors, of one shape; an error may be inf."""

    value: Array
    error: Array


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a derivative may be from a difference quotient: a part that the caller gives is kept as it is.

    A part that is None follows from the estimated error of the differences, within PyTorch's default.
    """

    atol: float | None
    rtol: float | None

    def around(self, estimate: Estimate, weight: float = 1.0) -> Array:
        """Return the tolerance of each element; ``weight`` multiplies the absolute part."""
        size = np.abs(estimate.value)
        known = estimate.error + ROUNDED * size.max(initial=0.0)
        absolute = np.minimum(ATOL * weight, known) if self.atol is None else self.atol * weight
        relative = np.minimum(RTOL * size, SLACK * size + known) if self.rtol is None else self.rtol * size
        return np.asarray(absolute + relative)

    def accepts(self, computed: Array, estimate: Estimate, weight: float = 1.0) -> Array:
        """Return where a derivative agrees; nan never does."""
        with np.errstate(invalid="ignore"):
            off = np.abs(computed - estimate.value)
        return np.asarray((computed == estimate.value) | (off <= self.around(estimate, weight)))

    def close(self, computed: Array, expected: Array, error: float) -> bool:
        """Whether two computed arrays agree, up to an error of either."""
        value = expected.astype(np.float64)
        return bool(np.all(self.accepts(computed, Estimate(value, np.full(value.shape, error)))))


def as_tuple(x: Any) -> tuple[Any, ...]:
    """Return what a function takes or returns as a tuple: lists too, as PyTorch does."""
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def memory_of(x: Tensor) -> Array:
    """Return the array that a tensor computes with; writing to it changes the tensor."""
    return as_array(x)


def scale_of(array: Array) -> Array:
    """Return the unit of each element's step: its size, or 1 for a smaller one."""
    return np.asarray(np.maximum(np.abs(array.astype(np.float64)), 1.0))


@contextmanager
def _moved(memory: Sequence[Array], directions: Sequence[Array], step: float) -> Iterator[float]:
    """Move arrays along directions within the block; yield the step as it was after rounding."""
    before = [m.copy() for m in memory]
    try:
        done = length = 0.0
        for m, b, d in zip(memory, before, directions, strict=True):
            m[...] = b + step * d
            done += float(np.sum((m.astype(np.float64) - b) * d))
            length += float(np.sum(d * d))
        yield done / length if length else step
    finally:
        for m, b in zip(memory, before, strict=True):
            m[...] = b


def along(evaluate: Evaluate, memory: Sequence[Array], directions: Sequence[Array]) -> Curve:
    """Return a curve: ``evaluate()``'s values as a function of the distance that arrays are moved along directions."""

    def at(step: float) -> tuple[float, Array]:
        with _moved(memory, directions, step) as done:
            return done, evaluate()

    return at


def noise_of(at: Curve, step: float) -> Array:
    """Return the size of the rounding errors in each value of a curve, near 0."""
    values = np.stack([at(step / 6 * k)[1] for k in _GRID])
    with np.errstate(all="ignore"):
        eighth = np.abs(np.diff(values, 8, axis=0)).max(axis=0)
    # Errors of up to e appear in an eighth difference as at most 256 e, and hardly ever as less than 32 e in all five.
    rounding = np.finfo(np.float64).eps * np.abs(values).max(axis=0)
    return np.asarray(np.maximum(eighth / 32, rounding))


def _extrapolated(at: Curve, step: float, noise: Array) -> Estimate:
    """Return the derivative at 0 by central differences over a step and its half."""
    (far, f_far), (near, f_near) = at(step), at(step / 2)
    (near_below, f_near_below), (far_below, f_far_below) = at(-step / 2), at(-step)
    if far == far_below or near == near_below:  # the step is below the resolution of the inputs
        return Estimate(np.zeros_like(f_far), np.full_like(f_far, math.inf))
    with np.errstate(all="ignore"):
        outer = (f_far - f_far_below) / (far - far_below)
        inner = (f_near - f_near_below) / (near - near_below)
        error = np.abs(inner - outer) + _ROUNDING * noise / (step / 2)
        return Estimate(inner + (inner - outer) / 3, np.where(np.isfinite(error), error, math.inf))


def derivative(at: Curve, step: float, noise: Array, resolved: Callable[[Estimate], bool]) -> Estimate:
    """Return the derivative at 0 of each value of a curve, from the step that resolves it best.

    The first step is the caller's; what it raises passes through. Larger ones may leave the function's domain, and
    are left out if it raises.
    """
    best = _extrapolated(at, step, noise)
    for growth in OTHER_STEPS:
        if resolved(best):
            break
        try:
            with np.errstate(all="ignore"):
                other = _extrapolated(at, step * growth, noise)
        except Exception:  # noqa: BLE001, S112 (outside of its domain a function may raise anything)
            continue
        better = other.error < best.error
        best = Estimate(np.where(better, other.value, best.value), np.where(better, other.error, best.error))
    return best


def precise(estimate: Estimate, expected: Array) -> bool:
    """Whether each derivative is known to a small part of itself, or is 0 where 0 is expected."""
    size = np.maximum(np.abs(estimate.value), np.abs(expected))
    return bool(np.all((estimate.error <= RESOLVED * size) | (size == 0)))


def jacobians(
    evaluate: Evaluate, memory: Sequence[Array], step: float, noise: Array, expected: Sequence[Array]
) -> list[Estimate]:
    """Return, for each array, the derivatives by each of its elements: (elements, values) each.

    ``expected`` are the Jacobians to be checked, of the same shapes: differences are refined where these ask for it.
    """
    estimates = []
    for array, wanted in zip(memory, expected, strict=True):
        units = scale_of(array)
        rows = []
        for place, target in zip(np.ndindex(array.shape), wanted, strict=True):
            direction = np.zeros(array.shape)
            direction[place] = unit = float(units[place])
            at = along(evaluate, [array], [direction])
            row = derivative(at, step, noise, lambda e, t=target * unit: precise(e, t))  # type: ignore[misc]
            rows.append(Estimate(row.value / unit, row.error / unit))
        estimates.append(_stacked(rows, (array.size, noise.size)))
    return estimates


def _stacked(rows: list[Estimate], shape: tuple[int, int]) -> Estimate:
    return Estimate(np.array([r.value for r in rows]).reshape(shape), np.array([r.error for r in rows]).reshape(shape))


def projected(
    at: Curve, step: float, noise: Array, weights: Sequence[Array], expected: Sequence[float]
) -> list[Estimate]:
    """Return the derivative at 0 of weighted sums of a curve's values, of shape (1, 1) each.

    The first weights are those of the first values, the next ones of the next.
    """
    ends = np.cumsum([w.size for w in weights])[:-1]

    def sums(estimate: Estimate) -> list[Estimate]:
        parts = zip(weights, np.split(estimate.value, ends), np.split(estimate.error, ends), strict=True)
        return [Estimate(np.vdot(w, v).reshape(1, 1), np.vdot(np.abs(w), e).reshape(1, 1)) for w, v, e in parts]

    def resolved(estimate: Estimate) -> bool:
        return all(precise(e, np.asarray(x)) for e, x in zip(sums(estimate), expected, strict=True))

    return sums(derivative(at, step, noise, resolved))
