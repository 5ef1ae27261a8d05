"""Random expressions over a few leaves, run by tensors of any library and by complex NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

Array = np.ndarray[Any, Any]
BINARY = ("+", "-", "*", "/", "where", "cat")
UNARY = ("slice", "step", "reshape", "t", "expand", "max", "sum", "square", "neg", "row", "scale")


@dataclass(frozen=True)
class Step:
    """One operation on earlier values: their places, counted modulo how many there are."""

    name: str
    first: int
    second: int


@dataclass(frozen=True)
class Expression:
    """Steps over leaves of these shapes; the loss is a weighted sum of several of the values."""

    shapes: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    seed: int

    def leaves(self, seed: int = 0) -> list[Array]:
        """Return random leaves without ties or zeros."""
        rng = np.random.default_rng([self.seed, seed])
        return [rng.uniform(0.5, 1.5, s) * rng.choice([-1.0, 1.0], s) for s in self.shapes]

    def loss(self, library: Any, *leaves: Any, notes: list[Any] | None = None) -> Any:
        """Return one number; ``notes`` receives the values on the way."""
        values = list(leaves)
        for step in self.steps:
            a, b = (values[i % len(values)] for i in (step.first, step.second))
            values.append(run(library, step.name, a, b))
        if notes is not None:
            notes += values[len(leaves) :]
        total: Any = 0.0
        for n, place in enumerate(self.kept):
            total = total + (values[place % len(values)] * (n + 1.0)).sum()
        return total + values[-1].sum()


def fit(library: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Cut two matrices to their common shape."""
    del library
    m, n = min(a.shape[0], b.shape[0]), min(a.shape[1], b.shape[1])
    return a[:m, :n], b[:m, :n]


def run(library: Any, name: str, a: Any, b: Any) -> Any:
    """Run one operation on matrices; the result is a matrix again."""
    if name in BINARY:
        return binary(library, name, *fit(library, a, b))
    rows, columns = a.shape
    if name == "max":
        return library.largest(a)
    return {
        "slice": lambda: a[: max(rows - 1, 1), columns // 2 :],
        "step": lambda: a[::2, ::2],
        "reshape": lambda: a.reshape(columns, rows),
        "t": lambda: a.T,
        "expand": lambda: library.expand(a[:1], (3, columns)),
        "sum": lambda: a.sum(0)[None],
        "square": lambda: a * a * 0.5,
        "neg": lambda: -a,
        "row": lambda: a[-1][None, :],
        "scale": lambda: 2.0 / (a * a + 1.5) - a,
    }[name]()


def binary(library: Any, name: str, a: Any, b: Any) -> Any:
    """Run one operation on two matrices of one shape."""
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b * 0.7,
        "/": lambda: a / (b * b + 1.0),
        "where": lambda: library.choose(a, b),
        "cat": lambda: library.cat([a, b]),
    }[name]()


class Tensors:
    """A library of tensors: this one, or PyTorch."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def largest(self, a: Any) -> Any:
        return a.max(1, keepdim=True)[0]

    def choose(self, a: Any, b: Any) -> Any:
        return self.library.where(a > b, a * 2.0, b)

    def cat(self, parts: list[Any]) -> Any:
        return self.library.cat(parts, 0)

    def expand(self, a: Any, shape: tuple[int, int]) -> Any:
        return a.expand(shape)


class Complex:
    """NumPy with complex steps: the real part decides."""

    def largest(self, a: Array) -> Array:
        return np.take_along_axis(a, a.real.argmax(1)[:, None], 1)

    def choose(self, a: Array, b: Array) -> Array:
        return np.where(a.real > b.real, a * 2.0, b)

    def cat(self, parts: list[Array]) -> Array:
        return np.concatenate(parts, 0)

    def expand(self, a: Array, shape: tuple[int, int]) -> Array:
        return np.broadcast_to(a, shape)


def by_complex_step(expression: Expression, leaves: list[Array]) -> tuple[float, list[Array]]:
    """Return the loss and its gradient by each leaf."""
    gradients = []
    for i, leaf in enumerate(leaves):
        gradient = np.zeros(leaf.shape)
        for at in np.ndindex(leaf.shape):
            moved = [x.astype(complex) for x in leaves]
            moved[i][at] += 1e-30j
            gradient[at] = expression.loss(Complex(), *moved).imag / 1e-30
        gradients.append(gradient)
    return float(expression.loss(Complex(), *(x.astype(complex) for x in leaves)).real), gradients


def expressions() -> st.SearchStrategy[Expression]:
    """Return a strategy: up to three leaves, up to ten steps."""
    places = st.integers(0, 12)
    shapes = st.sampled_from([(2, 3), (3, 3), (1, 4), (4, 2)])
    steps = st.builds(Step, st.sampled_from((*BINARY, *UNARY)), places, places)
    return st.builds(
        Expression,
        st.lists(shapes, min_size=1, max_size=3).map(tuple),
        st.lists(steps, min_size=1, max_size=10).map(tuple),
        st.lists(places, max_size=3).map(tuple),
        st.integers(0, 1000),
    )
