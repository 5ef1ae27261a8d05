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

    from bench.by_hand import Array, Leaf, ValueAndGradients


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
        functional: The same values without in-place operations, for PyTorch, where it refuses `function`.
    """

    name: str
    function: Callable[..., Any]
    leaves: tuple[Leaf, ...]
    by_hand: Callable[..., ValueAndGradients]
    functional: Callable[..., Any] | None = None

    def __str__(self) -> str:
        """Return the name, which pytest shows."""
        return self.name

    @cached_property
    def answer(self) -> ValueAndGradients:
        """The value and the gradients by hand."""
        return self.by_hand(*self.leaves)

    def function_for(self, lib: Any) -> Callable[..., Any]:
        """Return the text that `lib` runs."""
        return self.functional if self.functional and lib.__name__ == "torch" else self.function


@dataclass(frozen=True, eq=False)
class MatrixWorkload:
    """A function of a vector whose Jacobian, or Hessian, is wanted whole.

    Attributes:
        name: Names the pytest-benchmark group.
        function: `function(lib, x, *constants)` returns a vector, or one element for a Hessian.
        x: The vector, made into a tensor in each timed call.
        by_hand: `by_hand(x, *constants)` returns the matrix, without any library for differentiation.
        constants: Further arrays, made into tensors once: they receive no gradient.
        hessian: Whether the matrix is a Hessian.
    """

    name: str
    function: Callable[..., Any]
    x: Array
    by_hand: Callable[..., Array]
    constants: tuple[Array, ...] = ()
    hessian: bool = False

    def __str__(self) -> str:
        """Return the name, which pytest shows."""
        return self.name

    @cached_property
    def answer(self) -> Array:
        """The matrix by hand."""
        return self.by_hand(self.x, *self.constants)

    def function_of(self, lib: Any) -> Callable[[Any], Any]:
        """Return the function of `x` alone, its constants tensors of `lib`."""
        function, constants = self.function, [lib.tensor(constant, dtype=lib.float64) for constant in self.constants]
        return lambda x: function(lib, x, *constants)


def dynamic(lib: Any, workload: Workload) -> Callable[[], ValueAndGradients]:
    """Return the workload as a user of `lib` would run it once.

    A call makes the leaves, computes, sweeps back, and reads the value and every gradient, as a
    float or a NumPy array.
    """
    function, leaves = workload.function_for(lib), workload.leaves
    reads = [_float if isinstance(leaf, float) else _array for leaf in leaves]

    def run() -> ValueAndGradients:
        tensors = [lib.tensor(leaf, dtype=lib.float64, requires_grad=True) for leaf in leaves]
        value = function(lib, *tensors)
        value.backward()
        gradients = tuple([read(tensor.grad) for read, tensor in zip(reads, tensors, strict=True)])
        return value.item(), gradients

    return run


def of_kept_leaves(lib: Any, workload: Workload) -> Callable[[], ValueAndGradients]:
    """Return the same by ``autograd.grad``, of leaves that are made once."""
    function, leaves = workload.function_for(lib), workload.leaves
    reads = [_float if isinstance(leaf, float) else _array for leaf in leaves]
    tensors = [lib.tensor(leaf, dtype=lib.float64, requires_grad=True) for leaf in leaves]

    def run() -> ValueAndGradients:
        value = function(lib, *tensors)
        gradients = lib.autograd.grad(value, tensors)
        return value.item(), tuple([read(gradient) for read, gradient in zip(reads, gradients, strict=True)])

    return run


def of_arrays(lib: Any, workload: Workload) -> Callable[[], ValueAndGradients]:
    """Return the same as a function of arrays: by ``value_and_grad``, where a library has that."""
    if not hasattr(lib, "value_and_grad"):
        return lambda: _once(lib, workload)
    function, leaves = workload.function_for(lib), workload.leaves
    both = lib.value_and_grad(lambda *given: function(lib, *given), argnums=tuple(range(len(leaves))))
    return lambda: both(*leaves)


def _once(lib: Any, workload: Workload) -> ValueAndGradients:
    run = of_kept_leaves(lib, workload)
    return run()


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


def stencil(_lib: Any, u: Any, c: Any, *, steps: int) -> Any:
    """Return the sum of squares after `steps` explicit steps of diffusion, in place; the ends stay."""
    u = 1.0 * u
    for _ in range(steps):
        u[1:-1] += c * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    return (u * u).sum()


def stencil_by_cat(lib: Any, u: Any, c: Any, *, steps: int) -> Any:
    """Return the same by a new array a step."""
    for _ in range(steps):
        inner = u[1:-1]
        u = lib.cat([u[:1], inner + c * (u[2:] - 2.0 * inner + u[:-2]), u[-1:]])
    return (u * u).sum()


def _stencil_by_hand(u: Array, c: float, *, steps: int) -> ValueAndGradients:
    """Return the sum of squares and gradients (n,) and one number, keeping each step's curvature."""
    u, curvatures = u.copy(), []
    for _ in range(steps):
        curvatures.append(u[2:] - 2.0 * u[1:-1] + u[:-2])
        u[1:-1] += c * curvatures[-1]
    g, g_c = 2.0 * u, 0.0
    for curvature in reversed(curvatures):
        g_c += float(g[1:-1] @ curvature)
        part = c * g[1:-1]
        g[2:] += part
        g[1:-1] -= 2.0 * part
        g[:-2] += part
    return (u * u).sum(), (g, g_c)


def reaction(lib: Any, u: Any) -> Any:
    """Return the residual of convection, diffusion and a reaction at the inner points of a grid."""
    left, inner, right = u[:-2], u[1:-1], u[2:]
    convection = 3.0 * inner * (right - left)
    diffusion = 7.0 * (right - 2.0 * inner + left)
    return diffusion - convection + lib.exp(-inner * inner) * lib.sin(inner)


def _reaction_by_hand(u: Array) -> Array:
    """Return the residual's Jacobian, (n, n + 2): three diagonals."""
    left, inner, right = u[:-2], u[1:-1], u[2:]
    jacobian, row = np.zeros((len(inner), len(u))), np.arange(len(inner))
    jacobian[row, row] = 7.0 + 3.0 * inner
    jacobian[row, row + 2] = 7.0 - 3.0 * inner
    source = np.exp(-inner * inner) * (np.cos(inner) - 2.0 * inner * np.sin(inner))
    jacobian[row, row + 1] = source - 14.0 - 3.0 * (right - left)
    return jacobian


def layers(lib: Any, x: Any, first: Any, second: Any) -> Any:
    """Return two dense layers."""
    return second @ lib.tanh(first @ x)


def _layers_by_hand(x: Array, first: Array, second: Array) -> Array:
    """Return the layers' Jacobian."""
    hidden = np.tanh(first @ x)
    return second @ ((1.0 - hidden * hidden)[:, None] * first)


def _rosenbrock_hessian(x: Array) -> Array:
    """Return the Hessian of the Rosenbrock function, (n, n): three diagonals."""
    head, tail, row = x[:-1], x[1:], np.arange(len(x) - 1)
    hessian = np.zeros((len(x), len(x)))
    hessian[row, row] = 1200.0 * head * head - 400.0 * tail + 2.0
    hessian[row + 1, row + 1] += 200.0
    hessian[row, row + 1] = hessian[row + 1, row] = -400.0 * head
    return hessian


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


def stencil_of(points: int, steps: int) -> Workload:
    """Return the workload of diffusion in place, to start values and the diffusion number."""
    return Workload(
        f"stencil in place, {points} points, {steps} steps",
        partial(stencil, steps=steps),
        (1.0 + 0.5 * np.sin(np.linspace(0.0, 20.0, points)), 0.3),
        partial(_stencil_by_hand, steps=steps),
        partial(stencil_by_cat, steps=steps),
    )


def reaction_of(outputs: int) -> MatrixWorkload:
    """Return the workload of a sparse Jacobian."""
    return MatrixWorkload(
        f"Jacobian, residual of {outputs} points", reaction, np.linspace(-1.2, 1.3, outputs + 2), _reaction_by_hand
    )


def layers_of(size: int) -> MatrixWorkload:
    """Return the workload of a dense Jacobian."""
    rng = np.random.default_rng(3)
    weights = tuple(rng.normal(size=(size, size)) / size**0.5 for _ in range(2))
    return MatrixWorkload(f"Jacobian, two layers of {size}", layers, rng.normal(size=size), _layers_by_hand, weights)


def rosenbrock_hessian_of(size: int) -> MatrixWorkload:
    """Return the workload of a Hessian."""
    return MatrixWorkload(
        f"Hessian, Rosenbrock by slices, n={size}",
        rosenbrock,
        np.linspace(-1.2, 1.3, size),
        _rosenbrock_hessian,
        hessian=True,
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
STENCIL = stencil_of(1000, 200)
REACTION = reaction_of(100)
LAYERS = layers_of(100)
ROSENBROCK_HESSIAN = rosenbrock_hessian_of(100)
