"""The gradients by hand are right: every other row is compared with them.

A complex step needs no differentiation: the imaginary part of f(x + ih) is h f'(x), exact to
rounding when h is tiny. The workloads run on NumPy's complex numbers as they stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.workloads import (
    CHAINS,
    N_BODY,
    ROSENBROCK,
    TINY,
    TINY_0D,
    Workload,
    lotka_volterra_of,
)

if TYPE_CHECKING:
    from bench.by_hand import Array

_STEP = 1e-30


def _derivative(workload: Workload, index: int, place: tuple[int, ...]) -> float:
    """Return the derivative to one element of one leaf."""
    leaves: list[Any] = [np.array(leaf, dtype=complex) for leaf in workload.leaves]
    leaves[index][place] += 1j * _STEP
    return float(np.imag(workload.function(np, *leaves)).item() / _STEP)


def _gradient(workload: Workload, index: int) -> Array:
    leaf = np.asarray(workload.leaves[index])
    gradient = np.empty(leaf.shape)
    for place in np.ndindex(leaf.shape):
        gradient[place] = _derivative(workload, index, place)
    return gradient


@pytest.mark.quick
@pytest.mark.parametrize(
    "workload",
    [TINY, TINY_0D, ROSENBROCK, lotka_volterra_of(200), N_BODY, CHAINS[1_000]],
    ids=str,
)
def test_by_hand(workload: Workload) -> None:
    """Value and gradients agree with the workload's own text on complex numbers."""
    value, gradients = workload.answer
    recomputed = workload.function(np, *(np.asarray(leaf) for leaf in workload.leaves))
    np.testing.assert_allclose(np.ravel(value), np.ravel(recomputed), rtol=1e-12)
    for index, gradient in enumerate(gradients):
        np.testing.assert_allclose(gradient, _gradient(workload, index), rtol=1e-12)
