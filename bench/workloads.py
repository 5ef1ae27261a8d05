"""The functions everything is measured on, one text for every library.

Each function takes the library's module first (`tape` or `torch`) and then its leaves. A
`Workload` is such a function with the values of its leaves and its gradient by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import by_hand

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.by_hand import Leaf, ValueAndGradients


@dataclass(frozen=True, eq=False)
class Workload:
    """A function, where it is evaluated, and what the answer is.

    Attributes:
        name: Names the pytest-benchmark group.
        function: `function(lib, *leaves)` returns one element.
        leaves: What the leaves are made from, in each timed call: Python floats become 0-d
            tensors. All of them receive gradients.
        by_hand: `by_hand(*leaves)` returns the value and the gradients, without any library
            for differentiation.
    """

    name: str
    function: Callable[..., Any]
    leaves: tuple[Leaf, ...]
    by_hand: Callable[..., ValueAndGradients]

    def __str__(self) -> str:
        """Return the name, which pytest shows."""
        return self.name

    @cached_property
    def answer(self) -> ValueAndGradients:
        """The value and the gradients by hand."""
        return self.by_hand(*self.leaves)


def dynamic(lib: Any, workload: Workload) -> Callable[[], ValueAndGradients]:
    """Return the workload as a user of `lib` would run it once.

    A call makes the leaves, computes, sweeps back, and reads the value and every gradient, as a
    float or a NumPy array.
    """
    function, leaves = workload.function, workload.leaves
    reads = [_float if isinstance(leaf, float) else _array for leaf in leaves]

    def run() -> ValueAndGradients:
        tensors = [lib.tensor(leaf, dtype=lib.float64, requires_grad=True) for leaf in leaves]
        value = function(lib, *tensors)
        value.backward()
        gradients = tuple([read(tensor.grad) for read, tensor in zip(reads, tensors, strict=True)])
        return value.item(), gradients

    return run


def _float(gradient: Any) -> Any:
    return gradient.item()


def _array(gradient: Any) -> Any:
    return gradient.numpy()


def tiny_graph(lib: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return `a*b + log(d)*c`: four operations, all overhead."""
    return a * b + lib.log(d) * c


def rosenbrock(_lib: Any, x: Any) -> Any:
    """Return the Rosenbrock function of a vector, by slices."""
    head, tail = x[:-1], x[1:]
    return (100.0 * (tail - head**2) ** 2 + (1.0 - head) ** 2).sum()


def lotka_volterra(_lib: Any, alpha: Any, beta: Any, gamma: Any, delta: Any, x: Any, y: Any, *, steps: int) -> Any:
    """Return prey plus predators after `steps` RK4 steps of scalars, 58 operations a step."""
    h = by_hand.LV_STEP

    def slope(x: Any, y: Any) -> tuple[Any, Any]:
        return alpha * x - beta * x * y, delta * x * y - gamma * y

    for _ in range(steps):
        x1, y1 = slope(x, y)
        x2, y2 = slope(x + h / 2 * x1, y + h / 2 * y1)
        x3, y3 = slope(x + h / 2 * x2, y + h / 2 * y2)
        x4, y4 = slope(x + h * x3, y + h * y3)
        x = x + h / 6 * (x1 + 2.0 * x2 + 2.0 * x3 + x4)
        y = y + h / 6 * (y1 + 2.0 * y2 + 2.0 * y3 + y4)
    return x + y


def n_body(_lib: Any, mass: Any, position: Any, velocity: Any, *, steps: int) -> Any:
    """Return the sum of squared positions after `steps` leapfrog steps (kick, drift, kick).

    All pairs of bodies at once, by broadcasting: arrays of (bodies, bodies, 3).
    """
    h, softening = by_hand.NBODY_STEP, by_hand.NBODY_SOFTENING

    def acceleration(position: Any) -> Any:
        difference = position[None, :, :] - position[:, None, :]
        square = (difference * difference).sum(-1) + softening**2
        weight = mass * square**-1.5
        return (difference * weight[:, :, None]).sum(1)

    kick = acceleration(position)
    for _ in range(steps):
        velocity = velocity + kick * (h / 2)
        position = position + velocity * h
        kick = acceleration(position)
        velocity = velocity + kick * (h / 2)
    return (position * position).sum()


def chain(lib: Any, y: Any, *, operations: int) -> Any:
    """Return `y` after `y = y * 0.999; y = sin(y)`, `operations` operations in a row."""
    for _ in range(operations // 2):
        y = y * 0.999
        y = lib.sin(y)
    return y


def _one_element(*values: float) -> tuple[Leaf, ...]:
    return tuple(np.array([value]) for value in values)


def _bodies(count: int) -> tuple[Leaf, ...]:
    """Return masses, positions and velocities that stay apart for a while."""
    rng = np.random.default_rng(5)
    return (
        rng.uniform(0.5, 1.5, count),
        rng.normal(size=(count, 3)),
        0.3 * rng.normal(size=(count, 3)),
    )


def lotka_volterra_of(steps: int) -> Workload:
    """Return the workload of `steps` steps, from alpha, beta, gamma, delta, x and y as floats."""
    return Workload(
        f"Lotka-Volterra RK4, {steps} steps",
        partial(lotka_volterra, steps=steps),
        (1.5, 1.0, 3.0, 1.0, 1.0, 1.0),
        partial(by_hand.lotka_volterra, steps=steps),
    )


def n_body_of(steps: int) -> Workload:
    """Return the workload of five bodies and `steps` steps."""
    return Workload(
        f"N-body, 5 bodies, {steps} steps",
        partial(n_body, steps=steps),
        _bodies(5),
        partial(by_hand.n_body, steps=steps),
    )


def chain_of(operations: int) -> Workload:
    """Return the workload of a chain over one element of shape (1,)."""
    return Workload(
        f"chain of {operations} operations",
        partial(chain, operations=operations),
        _one_element(0.5),
        partial(by_hand.chain, operations=operations),
    )


TINY = Workload("tiny graph, shape (1,)", tiny_graph, _one_element(2.0, 3.0, 5.0, 10.0), by_hand.tiny_graph)
TINY_0D = Workload("tiny graph, 0-d", tiny_graph, (2.0, 3.0, 5.0, 10.0), by_hand.tiny_graph)
ROSENBROCK = Workload("Rosenbrock by slices, n=10", rosenbrock, (np.linspace(-1.2, 1.3, 10),), by_hand.rosenbrock)
LOTKA_VOLTERRA = lotka_volterra_of(1000)
N_BODY = n_body_of(100)
CHAINS = {n: chain_of(n) for n in (100, 1_000, 10_000, 100_000, 1_000_000)}
