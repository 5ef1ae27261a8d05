"""The workloads that compiled programs are measured on: text, adjoint by hand in Numba, bars.

A `CompiledWorkload` names one function `function(lib, *leaves, *constants)` for every library, and
what a user of each library would write where that is another form: `jax_form` with `scan` for time
loops, `torch_form` where PyTorch refuses writes in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench import array_workloads, fitted_models, time_steps, workloads
from bench.by_hand import (
    Leaf,
    ValueAndGradients,
    numba_arrays,
    numba_filters,
    numba_grids,
    numba_models,
    numba_networks,
    numba_particles,
    numba_scalars,
)
from bench.by_hand_arrays import data_of

HAND, JAX, PYTORCH = "hand", "JAX", "PyTorch"


@dataclass(frozen=True)
class Limit:
    """What the time of the compiled program is held to.

    Attributes:
        at_most: The largest time, as a part of the other's, or in microseconds.
        against: Whose time: by hand, or a rival's; None for microseconds.
    """

    at_most: float
    against: str | None = HAND

    def __str__(self) -> str:
        """Return for example `0.3 of hand`, `0.4 us`."""
        return f"{self.at_most:.3g} us" if self.against is None else f"{self.at_most:.3g} of {self.against}"


FASTER_THAN_BOTH = (Limit(1.0), Limit(1.0, JAX))


@dataclass(frozen=True, eq=False)
class CompiledWorkload:
    """A function with the values of its leaves, which all receive gradients.

    Attributes:
        name: Selects it: `-k name`.
        function: `function(lib, *leaves, *constants)` returns one element.
        leaves: Floats and arrays.
        hand: `hand(*leaves, *constants)` returns the value and all gradients, native.
        limits: What is wanted of the compiled program.
        constants: Arrays that receive no gradient, and are arguments nevertheless.
        jax_form: The same for JAX, where it has a better form.
        torch_form: The same for PyTorch, where it refuses `function`.
        casadi: Whether CasADi is a rival: scalars.
        complex_steps: Whether NumPy runs `function` on complex numbers.
    """

    name: str
    function: Callable[..., Any]
    leaves: tuple[Leaf, ...]
    hand: Callable[..., ValueAndGradients]
    limits: tuple[Limit, ...]
    constants: tuple[Any, ...] = ()
    jax_form: Callable[..., Any] | None = None
    torch_form: Callable[..., Any] | None = None
    casadi: bool = False
    complex_steps: bool = True

    def __str__(self) -> str:
        """Return the name, which pytest shows."""
        return self.name

    @property
    def argnums(self) -> tuple[int, ...]:
        """The positions of the leaves among the arguments."""
        return tuple(range(len(self.leaves)))

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Leaves and constants."""
        return (*self.leaves, *self.constants)


def rosenbrock_of(n: int, at_most: float) -> CompiledWorkload:
    """Return Rosenbrock's function of n numbers."""
    return CompiledWorkload(
        f"rosenbrock_{n}",
        workloads.rosenbrock,
        (np.linspace(-1.2, 1.3, n),),
        numba_arrays.rosenbrock,
        (Limit(at_most),),
        casadi=n <= 1000,
    )


def black_scholes_of(n: int) -> CompiledWorkload:
    """Return the sum of n call prices."""
    return CompiledWorkload(
        "black_scholes",
        array_workloads.black_scholes,
        array_workloads.black_scholes_of(n).leaves,
        numba_arrays.black_scholes,
        (Limit(0.15), Limit(1 / 5, PYTORCH)),
        complex_steps=False,  # NumPy has no erf
    )


def lotka_volterra_of(steps: int, at_most: float) -> CompiledWorkload:
    """Return the Lotka-Volterra equations by RK4."""
    return CompiledWorkload(
        f"lotka_volterra_{steps}",
        partial(workloads.lotka_volterra, steps=steps),
        workloads.LOTKA_VOLTERRA.leaves,
        partial(_hand_last, numba_scalars.lotka_volterra, steps),
        (Limit(at_most),),
        jax_form=partial(time_steps.lotka_volterra_scan, steps=steps),
        casadi=True,
    )


def implicit_of(steps: int, *, kicked: bool = False) -> CompiledWorkload:
    """Return implicit steps: a loop that a value ends in each. Where these are `kicked`, their number counts."""
    form = time_steps.kicked if kicked else time_steps.implicit
    kicks = time_steps.kicks(steps) if kicked else np.zeros(steps)
    return CompiledWorkload(
        form.__name__,
        partial(form, steps=steps),
        (1.7, 0.8),
        partial(_hand_last, numba_scalars.implicit, kicks),
        FASTER_THAN_BOTH,
        jax_form=partial(time_steps.implicit_scan, kicks=kicks),
    )


def n_body_of(steps: int) -> CompiledWorkload:
    """Return five bodies."""
    return CompiledWorkload(
        f"n_body_{steps}",
        partial(workloads.n_body, steps=steps),
        workloads.N_BODY.leaves,
        partial(_hand_last, numba_particles.n_body, steps),
        (Limit(0.8),),
        jax_form=partial(time_steps.n_body_scan, steps=steps),
        casadi=True,
    )


def burgers_of(form: str, points: int, steps: int) -> CompiledWorkload:
    """Return Burgers' equation `by_cat`, `in_place` or `by_roll`."""
    round_ = form == "by_roll"
    scan = time_steps.burgers_by_roll_scan if round_ else time_steps.burgers_scan
    hand = numba_grids.burgers_periodic if round_ else numba_grids.burgers
    return CompiledWorkload(
        f"burgers_{form}",
        partial(getattr(time_steps, f"burgers_{form}"), steps=steps),
        (1.0 + 0.5 * np.sin(np.linspace(0.0, 20.0, points)),),
        partial(_hand_last, hand, steps),
        (Limit(0.35),),
        jax_form=partial(scan, steps=steps),
        torch_form=partial(time_steps.burgers_by_cat, steps=steps) if form == "in_place" else None,
    )


def wave_of(points: int, steps: int) -> CompiledWorkload:
    """Return the wave equation on a square."""
    line = np.linspace(-3.0, 3.0, points)
    return CompiledWorkload(
        "wave",
        partial(time_steps.wave, steps=steps),
        (np.exp(-(line[:, None] ** 2) - line**2), 0.9),
        partial(_hand_last, numba_grids.wave, steps),
        FASTER_THAN_BOTH,
        jax_form=partial(time_steps.wave_scan, steps=steps),
    )


def lennard_jones_of(side: int, steps: int) -> CompiledWorkload:
    """Return side**3 particles that start near a lattice."""
    rng = np.random.default_rng(3)
    lattice = np.stack(np.meshgrid(*[np.arange(side, dtype=float)] * 3), -1).reshape(-1, 3)
    x = 1.2 * lattice + 0.05 * rng.normal(size=lattice.shape)
    return CompiledWorkload(
        "lennard_jones",
        partial(time_steps.lennard_jones, steps=steps),
        (x, 0.5 * rng.normal(size=x.shape), 1.0, 1.0),
        partial(_hand_last, numba_particles.lennard_jones, steps),
        FASTER_THAN_BOTH,
        constants=(np.eye(len(x)),),
        jax_form=partial(time_steps.lennard_jones_scan, steps=steps),
    )


def lstm_of(layers: int, count: int, width: int) -> CompiledWorkload:
    """Return ADBench's LSTM over a sequence of `count` elements."""
    rng = np.random.default_rng(4)
    return CompiledWorkload(
        "lstm",
        fitted_models.lstm,
        (rng.normal(size=(2 * layers, 4, width)), rng.normal(size=(3, width))),
        numba_networks.lstm,
        (Limit(0.3), Limit(1 / 12, JAX)),
        constants=(rng.normal(size=(2 * layers, width)), (rng.uniform(size=(count, width)) < 0.3) * 1.0),
        jax_form=fitted_models.lstm_scan,
        complex_steps=False,  # NumPy has no sigmoid
    )


def mixture_of(d: int, k: int, n: int) -> CompiledWorkload:
    """Return ADBench's Gaussian mixture: n points of d coordinates, k components."""
    rng = np.random.default_rng(5)
    leaves = rng.normal(size=k), rng.normal(size=(k, d)), 0.3 * rng.normal(size=(k, d * (d + 1) // 2))
    constant = fitted_models.mixture_constant(n, d, k)
    return CompiledWorkload(
        "gmm",
        fitted_models.mixture,
        leaves,
        partial(_hand_last, numba_models.mixture, constant),
        (Limit(1.0, JAX),),
        constants=(rng.normal(size=(n, d)),),
        complex_steps=False,  # NumPy has no logsumexp
    )


def mlp_of(name: str, batch: int, *widths: int) -> CompiledWorkload:
    """Return a tanh network with cross-entropy."""
    return CompiledWorkload(
        name,
        fitted_models.mlp,
        array_workloads.mlp_of(batch, *widths).leaves,
        numba_networks.mlp,
        (Limit(1.0, JAX),),
        constants=data_of(batch, widths[0], widths[-1]),
        complex_steps=False,
    )


def rows_of(name: str, rows: int) -> CompiledWorkload:
    """Return `logsumexp` or `softmax` of the rows of a square."""
    rng = np.random.default_rng(2)
    shape = (rows,) if name == "logsumexp" else (rows, rows)
    return CompiledWorkload(
        name,
        getattr(fitted_models, name),
        (rng.normal(size=(rows, rows)),),
        getattr(numba_arrays, name),
        (Limit(0.8, JAX),),
        constants=(rng.uniform(0.5, 1.5, shape),),
        complex_steps=False,
    )


def kalman_of(steps: int) -> CompiledWorkload:
    """Return the filter of two coordinates and their speeds, of which the coordinates are seen."""
    f, h = np.eye(4) + 0.1 * np.eye(4, k=2), np.eye(2, 4)
    seen = np.cumsum(0.1 * np.random.default_rng(6).normal(size=(steps, 2)), 0)
    return CompiledWorkload(
        "kalman",
        fitted_models.kalman,
        (f, h, 0.01 * np.eye(4), 0.1 * np.eye(2)),
        numba_filters.kalman,
        FASTER_THAN_BOTH,
        constants=(np.zeros(4), np.eye(4), seen),
        jax_form=fitted_models.kalman_scan,
    )


def bundle_of(cameras: int, points: int, observations: int) -> CompiledWorkload:
    """Return ADBench's bundle adjustment."""
    rng = np.random.default_rng(7)
    rotation, centre = 0.3 * rng.normal(size=(cameras, 3)), rng.normal(size=(cameras, 3)) - [0.0, 0.0, 8.0]
    lens = np.tile([1.5, 0.1, -0.2, 0.01, 0.002], (cameras, 1))
    return CompiledWorkload(
        "bundle",
        fitted_models.bundle,
        (
            np.concatenate([rotation, centre, lens], 1),
            rng.normal(size=(points, 3)),
            rng.uniform(0.5, 1.0, observations),
        ),
        numba_models.bundle,
        FASTER_THAN_BOTH,
        constants=(
            rng.normal(size=(observations, 2)),
            rng.integers(cameras, size=observations),
            rng.integers(points, size=observations),
        ),
    )


def _hand_last(adjoint: Callable[..., ValueAndGradients], last: Any, *arguments: Any) -> ValueAndGradients:
    """Call an adjoint whose last argument is fixed: the number of steps, as a rule."""
    return adjoint(*arguments, last)


TINY = CompiledWorkload(
    "tiny_floats",
    workloads.tiny_graph,
    workloads.TINY_0D.leaves,
    numba_scalars.tiny_graph,
    (Limit(0.15, None),),
    casadi=True,
)
TINY_ARRAYS = CompiledWorkload(
    "tiny_arrays",
    workloads.tiny_graph,
    workloads.TINY.leaves,
    numba_scalars.tiny_arrays,
    (Limit(0.4, None),),
    casadi=True,
)
WORKLOADS = (
    TINY,
    TINY_ARRAYS,
    rosenbrock_of(10, 0.3),
    rosenbrock_of(1000, 0.25),
    rosenbrock_of(1_000_000, 0.4),
    black_scholes_of(1_000_000),
    lotka_volterra_of(100, 0.8),
    lotka_volterra_of(1000, 0.95),
    burgers_of("by_cat", 1024, 200),
    burgers_of("in_place", 1024, 200),
    burgers_of("by_roll", 1024, 200),
    n_body_of(500),
    lstm_of(2, 1024, 14),
    mixture_of(10, 25, 1000),
    mlp_of("mlp_small", 32, 64, 64, 64, 10),
    mlp_of("mlp_large", 1024, 784, 512, 512, 10),
    rows_of("logsumexp", 1000),
    rows_of("softmax", 1000),
    wave_of(128, 500),
    bundle_of(10, 100, 400),
    kalman_of(1000),
    implicit_of(100),
    implicit_of(100, kicked=True),
    lennard_jones_of(4, 100),
)
# The same programs, shorter: only what they answer is asked.
SHORT = (
    TINY,
    TINY_ARRAYS,
    rosenbrock_of(10, 0.3),
    black_scholes_of(100),
    lotka_volterra_of(20, 0.8),
    burgers_of("by_cat", 20, 10),
    burgers_of("in_place", 20, 10),
    burgers_of("by_roll", 20, 10),
    n_body_of(10),
    lstm_of(2, 12, 5),
    mixture_of(3, 4, 20),
    mlp_of("mlp_small", 5, 4, 3, 3, 2),
    rows_of("logsumexp", 12),
    rows_of("softmax", 12),
    wave_of(12, 10),
    bundle_of(3, 6, 20),
    kalman_of(8),
    implicit_of(8),
    implicit_of(8, kicked=True),
    lennard_jones_of(2, 5),
)
