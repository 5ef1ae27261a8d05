"""What recordings are measured on: simulations and models by name, and sequences of calls whose ways vary.

Child processes read these tables, so that they import little: what holds much memory is made when it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench import fitted_models, time_steps, workloads


@dataclass(frozen=True, eq=False)
class Recorded:
    """A function ``function(lib, *leaves, *constants)`` with its arguments; leaves receive gradients."""

    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    constants: tuple[Any, ...] = ()

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Leaves and constants."""
        return (*self.leaves, *self.constants)

    def both(self) -> Callable[..., Any]:
        """Return value and gradient of tape's, new."""
        tape, function = importlib.import_module("tape"), self.function
        return tape.value_and_grad(lambda *given: function(tape, *given), argnums=tuple(range(len(self.leaves))))


def heat_of(steps: int) -> Recorded:
    """Return the heat equation on 200 points, by slices and ``cat``."""
    return Recorded(partial(workloads.stencil_by_cat, steps=steps), workloads.stencil_of(200, steps).leaves)


def heat_in_place_of(steps: int) -> Recorded:
    """Return the same in place."""
    return Recorded(partial(workloads.stencil, steps=steps), workloads.stencil_of(200, steps).leaves)


def lotka_volterra_of(steps: int) -> Recorded:
    """Return the Lotka-Volterra equations on scalars, by RK4."""
    return Recorded(workloads.lotka_volterra_of(steps).function, workloads.LOTKA_VOLTERRA.leaves)


def driven_of(steps: int) -> Recorded:
    """Return an oscillator that is given another push, a Python float, in each step."""
    pushes = (0.05 * np.sin(0.3 * np.arange(steps))).tolist()

    def driven(_lib: Any, x: Any, v: Any, k: Any) -> Any:
        for push in pushes:
            v = v - 0.01 * (k * x) + push
            x = x + 0.01 * v
        return x

    return Recorded(driven, (1.0, 0.0, 2.0))


def lattice_boltzmann_of(steps: int, size: int = 32) -> Recorded:
    """Return a fluid on a square."""
    flow = (1.0 + 0.1 * np.random.default_rng(0).uniform(size=(9, size, size))) / 9.0
    return Recorded(partial(time_steps.lattice_boltzmann, steps=steps), (flow, 1.2))


def gray_scott_of(steps: int, size: int = 100) -> Recorded:
    """Return two substances on a square."""
    u = np.random.default_rng(0).uniform(0.4, 0.6, (size, size))
    return Recorded(partial(time_steps.gray_scott, steps=steps), (u, 0.5 * u.T), (0.04, 0.06))


def dormand_prince_of(end: float) -> Recorded:
    """Return Van der Pol's oscillator."""
    return Recorded(time_steps.dormand_prince, (2.0, 0.0, 1.5, end), (1e-6,))


def _compiled(name: str, *args: Any) -> Recorded:
    """Return one of the workloads that compiled programs are measured on."""
    found = getattr(importlib.import_module("bench.compiled_workloads"), name)(*args)
    return Recorded(found.function, found.leaves, found.constants)


RECORDED: dict[str, Callable[[], Recorded]] = {
    "heat by slices and cat, 3000 steps": partial(heat_of, 3000),
    "heat in place, 3000 steps": partial(heat_in_place_of, 3000),
    "wave in place, 100 x 100, 300 steps": partial(_compiled, "wave_of", 100, 300),
    "Lotka-Volterra on scalars, 10,000 steps": partial(lotka_volterra_of, 10_000),
    "five bodies, 500 steps": partial(_compiled, "n_body_of", 500),
    "LSTM": partial(_compiled, "lstm_of", 2, 1024, 14),
    "lattice Boltzmann, 100 steps": partial(lattice_boltzmann_of, 100),
    "Kalman filter, 1000 steps": partial(_compiled, "kalman_of", 1000),
}
# By the number of steps, in processes of their own.
STEPPED: dict[str, Callable[[int], Recorded]] = {
    "heat": heat_of,
    "Lotka-Volterra": lotka_volterra_of,
    "driven oscillator": driven_of,
    "Gray-Scott": gray_scott_of,
    "Dormand-Prince": dormand_prince_of,
}


def _scaled(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(size=shape) / shape[0] ** 0.5


def _polynomial() -> Recorded:
    x = np.linspace(-3.0, 3.0, 2000)
    return Recorded(fitted_models.polynomial, (0.1, 0.8, -0.1, -0.1), (x, np.sin(x)))


def _characters() -> Recorded:
    rng, batch, letters = np.random.default_rng(1), 32, 27
    leaves = rng.normal(size=(letters, 10)), _scaled(rng, 30, 64), np.ones(64), np.zeros(64)
    leaves += _scaled(rng, 64, letters), np.zeros(letters)
    before, after = rng.integers(letters, size=(batch, 3)), np.eye(letters)[rng.integers(letters, size=batch)]
    return Recorded(fitted_models.character_network, leaves, (before, after))


def _factorisation() -> Recorded:
    rng = np.random.default_rng(2)
    constants = rng.integers(200, size=2000), rng.integers(300, size=2000), rng.uniform(1.0, 5.0, 2000)
    return Recorded(fitted_models.factorisation, (_scaled(rng, 200, 16), _scaled(rng, 300, 16)), constants)


def _gaussian_process() -> Recorded:
    x = np.sort(np.random.default_rng(3).uniform(-3.0, 3.0, 60))
    return Recorded(fitted_models.gaussian_process, (0.1, 0.2, -1.0), (x, np.sin(x)))


def _transformer() -> Recorded:
    rng, steps, width = np.random.default_rng(4), 32, 64
    leaves = *[_scaled(rng, width, width) for _ in range(4)], _scaled(rng, width, 256), _scaled(rng, 256, width)
    return Recorded(
        fitted_models.transformer_block,
        leaves,
        (rng.normal(size=(steps, width)), np.triu(np.full((steps, steps), -1e9), 1)),
    )


MODELS: dict[str, Callable[[], Recorded]] = {
    "polynomial": _polynomial,
    "character MLP": _characters,
    "MLP 784-256-10": partial(_compiled, "mlp_of", "mlp", 64, 784, 256, 10),
    "matrix factorisation": _factorisation,
    "Gaussian process": _gaussian_process,
    "GPT block": _transformer,
}
SHORT: dict[str, Callable[[], Recorded]] = {
    "heat": partial(heat_of, 10),
    "heat in place": partial(heat_in_place_of, 10),
    "driven oscillator": partial(driven_of, 10),
    "lattice Boltzmann": partial(lattice_boltzmann_of, 5, 6),
    "Gray-Scott": partial(gray_scott_of, 5, 6),
    "Dormand-Prince": partial(dormand_prince_of, 3.0),
    **MODELS,
}


# Sequences of calls whose ways vary: a function of the library, and the arguments of its calls, one tuple each.


@dataclass(frozen=True, eq=False)
class Sequence:
    """A function ``function(lib, *arguments)``, whose first argument receives a gradient, and its calls' arguments."""

    function: Callable[..., Any]
    calls: Callable[[], Iterator[tuple[Any, ...]]]


_CALLS = 60
_DATA = np.random.default_rng(11).normal(size=200)
_TABLE = np.linspace(0.5, 1.5, 16)
_NAMES = [f"part {k}" for k in range(8)]


def _branching(_lib: Any, w: Any, x: Any) -> Any:
    """Spike where a state is above a threshold: a loop over data with a branch on the state."""
    state, total = 0.0 * w, 0.0 * w
    for t in range(len(x)):
        state = 0.9 * state + w * x[t]
        if state > 1.0:
            state, total = state - 1.0, total + state
    return total + state * state


def _formatted(lib: Any, w: Any, x: Any) -> Any:
    """Format the energy for a line that says how far the fit is."""
    energy = (lib.sin(w[:, None] * x) ** 2).sum()
    line = "energy %g, " % energy.detach() + f"per point {energy.detach() / len(x):.3f}"  # noqa: UP031 (as users write)
    return energy + 0.0 * len(line[:1])


def _largest(lib: Any, w: Any, x: Any) -> Any:
    """Ask which part is the largest, for a name in a diagnosis."""
    parts = (lib.tanh(w[:, None] * x) ** 2).mean(1)
    name = _NAMES[int(parts.argmax())]
    return parts.sum() + 0.0 * len(name[:1])


def _tabled(_lib: Any, w: Any, x: Any) -> Any:
    """Read a table of NumPy's at the bins in which values lie."""
    z = w.sum() * x
    bins = ((z - z.min()) / (z.max() - z.min()) * 15.0).long()
    return (_TABLE[bins.numpy()] * z * z).sum()


def _summed(lib: Any, w: Any, x: Any) -> Any:
    """Fit data of any length."""
    return (lib.sin(w[:, None] * x) ** 2).mean()


def _collected(lib: Any, w: Any, count: int) -> Any:
    """Collect results in an array that grows, as often as the call says."""
    found = w[:1]
    for k in range(count):
        found = lib.cat([found, w[:1] * (1.0 + 0.1 * k) + found[-1:]])
    return (found * found).sum()


def _dropped(lib: Any, w: Any, x: Any) -> Any:
    """Skip layers at random."""
    for k in range(8):
        if lib.rand(()) < 0.8:
            x = lib.tanh(w[k] * x + 0.1)
    return (x * x).sum()


def _moving(start: float, width: int, x: Any = _DATA) -> Iterator[tuple[Any, ...]]:
    """Yield weights that a fit moves."""
    rng = np.random.default_rng(12)
    w = np.float64(start) if width == 0 else np.full(width, start) + 0.3 * rng.normal(size=width)
    for _ in range(_CALLS):
        w = w * (1.0 + 0.02 * rng.normal(size=np.shape(w)))
        yield (float(w) if width == 0 else w), x


def _lengths(lengths: list[int]) -> Iterator[tuple[Any, ...]]:
    data = np.random.default_rng(13).normal(size=max(lengths))
    for (w, _), n in zip(_moving(0.7, 8), lengths, strict=True):
        yield w, data[:n]


_GROWING = [100 + 10 * k for k in range(_CALLS)]
_NEW_SHAPES = np.random.default_rng(14).permutation(np.arange(100, 100 + 7 * _CALLS, 7)).tolist()
SEQUENCES: dict[str, Sequence] = {
    "branching states in a loop over data": Sequence(_branching, partial(_moving, 0.4, 0)),
    "formatted output": Sequence(_formatted, partial(_moving, 0.7, 8)),
    "argmax for a diagnosis": Sequence(_largest, partial(_moving, 0.7, 8)),
    "a NumPy table indexed by a tensor": Sequence(_tabled, partial(_moving, 0.7, 8)),
    "growing data": Sequence(_summed, partial(_lengths, _GROWING)),
    "a new shape at each call": Sequence(_summed, partial(_lengths, _NEW_SHAPES)),
    "arrays that grow in a loop": Sequence(
        _collected, lambda: ((w, 20 + k % 30) for k, (w, _) in enumerate(_moving(0.7, 8)))
    ),
    "random branches": Sequence(_dropped, partial(_moving, 0.7, 8)),
}
