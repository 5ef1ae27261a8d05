"""The gradient of a root beside one factorisation and solve, sparse, with about 1000 unknowns.

`python -m pytest bench/bench_implicit.py -s` prints each row as it is measured, and the table at the end. The rival is
the adjoint by hand: the Jacobian's matrix, SuperLU's factors of it, one solve with them transposed. Of the gradient by
`tape.implicit.root` the time of f and its vjp is taken off, which any way needs: pairs of all three, interleaved, by
processor time, medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import splu

from bench.bars import IMPLICIT_ROOTS, Scoreboard
from bench.rows import tape

PAIRS = 200
SIDE = 32


def tridiagonal(n: int = 1000) -> Any:
    """Return the second difference of n points."""
    return scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()


def laplacian(side: int = SIDE) -> Any:
    """Return the five-point Laplacian of a square."""
    line, one = tridiagonal(side), scipy.sparse.eye_array(side)
    return (scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line)).tocsr()


class Problem:
    """A x + x^3 = a: the root by Newton's method, its gradient by tape, and the adjoint by hand."""

    def __init__(self, matrix: Any, *, by_tape: bool = False) -> None:
        self.given = None if by_tape else self.jac
        matrix.sort_indices()
        n = matrix.shape[0]
        self.matrix = matrix
        self.diagonal = np.flatnonzero(matrix.indices == np.repeat(np.arange(n), np.diff(matrix.indptr)))
        self.ours = tape().sparse.csr(matrix)
        self.a = tape().tensor(np.linspace(0.5, 2.0, n), requires_grad=True)
        self.g = np.cos(np.arange(n))
        self.weights = tape().tensor(self.g)
        self.x = tape().implicit.root(self.f, np.ones(n), self.a, jac=self.given).detach().numpy().copy()
        self.at = tape().tensor(self.x)
        self.solved()

    def f(self, x: Any, a: Any) -> Any:
        """Return the residual."""
        return self.ours @ x + x**3 - a

    def jac(self, x: Any, *_: Any) -> Any:
        """Return the Jacobian, of the matrix's pattern."""
        data = self.matrix.data.copy()
        data[self.diagonal] += 3.0 * np.asarray(x) ** 2
        return scipy.sparse.csr_array((data, self.matrix.indices, self.matrix.indptr), self.matrix.shape)

    def solved(self) -> None:
        """Make the root anew, whose Jacobian nobody has factored yet."""
        self.root = tape().implicit.root(self.f, self.x, self.a, jac=self.given, solver=lambda _, x: x)

    def gradient(self) -> Any:
        """Return the gradient by tape."""
        return tape().autograd.grad(self.root, self.a, self.weights)[0]

    def vjp(self) -> Any:
        """Return the gradient of f by its parameters alone."""
        a = self.a.detach().requires_grad_()
        return tape().autograd.grad(self.f(self.at, a), a, self.weights)[0]

    def by_hand(self) -> Any:
        """Return the solution of the adjoint system."""
        return splu(self.jac(self.x).tocsc()).solve(self.g, "T")


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "tridiagonal, n = 1000": lambda: Problem(tridiagonal()),
    "Laplacian, n = 1024": lambda: Problem(laplacian()),
    "tridiagonal, n = 1000, no jac": lambda: Problem(tridiagonal(), by_tape=True),
    "Laplacian, n = 1024, no jac": lambda: Problem(laplacian(), by_tape=True),
}


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradient(name: str, scoreboard: Scoreboard) -> None:
    """The gradient equals the adjoint by hand, and costs little more."""
    problem = PROBLEMS[name]()
    np.testing.assert_allclose(problem.gradient().numpy(), problem.by_hand(), atol=1e-10)
    runs = (problem.gradient, problem.vjp, problem.by_hand)
    rows = []
    for _ in range(PAIRS):
        problem.solved()
        rows.append([_seconds(run) for run in runs])
    ratio = statistics.median((ours - vjp) / hand for ours, vjp, hand in rows)
    ours, vjp, hand = (statistics.median(column) * 1e6 for column in zip(*rows, strict=True))
    bar = IMPLICIT_ROOTS[name]
    text = f"{ratio:.2f} ({ours:.0f} us, of which the vjp {vjp:.0f} us; by hand {hand:.0f} us)"
    scoreboard.add(bar, ratio, text)
    sys.stdout.write(f"{scoreboard.results[-1].verdict}  {bar.name}  {bar.wanted}  {text}\n")


@pytest.mark.quick
def test_values() -> None:
    """A small one equals the adjoint by hand to 1e-10."""
    for by_tape in (False, True):
        problem = Problem(laplacian(8), by_tape=by_tape)
        np.testing.assert_allclose(problem.gradient().numpy(), problem.by_hand(), atol=1e-10)
