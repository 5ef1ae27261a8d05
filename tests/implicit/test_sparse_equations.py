"""Equations of many unknowns without a user's Jacobian: by colours where its pattern is sparse, and right anyhow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.implicit import systems
from tape.sparse.derivatives import row_sums

N = 60
P = np.linspace(0.5, 2.0, N)
pytestmark = pytest.mark.quick


def _spread(x: Any) -> Any:
    end = tape.zeros(1, dtype=x.dtype)
    return 2.0 * x - tape.cat([x[1:], end]) - tape.cat([end, x[:-1]])


def _root(x: Any, p: Any) -> Any:
    return _spread(x) + x**3 - p


def _least(x: Any, p: Any) -> Any:
    return ((_spread(x) + 2.0 * x - p) ** 2).sum() + (x**4).sum()


SOLUTIONS: dict[str, Callable[[Any], Any]] = {
    "root": lambda p: tape.implicit.root(_root, np.ones(N), p),
    "root, closure": lambda p: tape.implicit.root(lambda x: _root(x, p), np.ones(N)),
    "fixed point": lambda p: tape.implicit.fixed_point(lambda x, p: 0.2 * tape.sin(_spread(x)) + p, np.ones(N), p),
    "minimum": lambda p: tape.implicit.minimize(_least, np.ones(N), p),
}


def _dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "_by_colours", lambda *_: None)


def _derivatives(solution: Callable[[Any], Any]) -> tuple[Any, Any]:
    p = tape.tensor(P, requires_grad=True)
    (first,) = tape.autograd.grad((tape.cos(tape.arange(N)) * solution(p)).sum(), p, create_graph=True)
    (second,) = tape.autograd.grad((first**2).sum(), p)
    return first.detach().numpy(), second.numpy()


@pytest.mark.parametrize("name", SOLUTIONS)
def test_derivatives_equal_those_of_dense_matrices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roots, fixed points and minima: first and second derivatives; few sums were swept."""
    systems._kept.clear()
    found = _derivatives(SOLUTIONS[name])
    (sums,) = systems._kept.values()
    assert sums is not None
    assert len(sums.seeds) < 8
    _dense(monkeypatch)
    for mine, dense in zip(found, _derivatives(SOLUTIONS[name]), strict=True):
        np.testing.assert_allclose(mine, dense, rtol=1e-7, atol=1e-12)


def test_compiled_gradients() -> None:
    """In a compiled program, called often."""

    def loss(p: Any) -> Any:
        return (tape.cos(tape.arange(N)) * SOLUTIONS["root"](p)).sum()

    step = tape.compile(tape.value_and_grad(loss))
    for k in range(4):
        value, gradient = step(P + k)
        other, wanted = tape.value_and_grad(loss)(P + k)
        np.testing.assert_allclose(value, other, rtol=1e-12)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-9)
    assert "dynamic" not in str(step.explain())


def test_equal_code_with_another_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a function closes over, or reads, may change what it depends on: the sums then do not agree."""
    reads = {"weight": 0.0}

    def rolled(k: int) -> Callable[[Any, Any], Any]:
        return lambda x, p: 3.0 * x + x**3 - p + tape.roll(x, k) + reads["weight"] * tape.roll(x, 2 * k)

    def gradients() -> list[Any]:
        found = []
        for k, reads["weight"] in ((1, 0.0), (5, 0.0), (5, 0.5), (9, 0.5), (1, 1e-3)):
            p = tape.tensor(P, requires_grad=True)
            x = tape.implicit.root(rolled(k), np.ones(N), p)
            found.append(tape.autograd.grad((x * x).sum(), p)[0].numpy())
        return found

    mine = gradients()
    _dense(monkeypatch)
    np.testing.assert_allclose(mine, gradients(), rtol=1e-10)


def test_a_function_that_branches() -> None:
    """Where values are read in Python the matrix is dense."""

    def f(x: Any, p: Any) -> Any:
        return _root(x, p) if x[0].item() > 0.0 else x[::-1] - p

    assert row_sums(lambda x: f(x, tape.tensor(P)), P) is None
    x = tape.implicit.root(f, np.ones(N), P)
    np.testing.assert_allclose(_root(x, tape.tensor(P)).numpy(), 0.0, atol=1e-10)


def test_dense_and_small_ones() -> None:
    """Few unknowns, and those of which each equation has all, are not for colours."""
    assert row_sums(lambda x: x * x, np.ones(40)) is None
    assert row_sums(lambda x: x * x.sum(), np.ones(60)) is None
    assert row_sums(lambda x: x * x[0], np.ones(60)) is None


def test_missing_elements_are_seen() -> None:
    """The last sum shows what the pattern has not; a value that is not finite shows, too."""
    sums = row_sums(lambda x: x * x, np.ones(50))
    assert sums is not None
    matrix = np.diag(np.linspace(1.0, 2.0, 50))
    assert sums.holds(sums.seeds @ matrix)
    np.testing.assert_array_equal(sums.matrix(sums.seeds @ matrix).toarray(), matrix)
    matrix[3, 7] = 1e-9
    assert not sums.holds(sums.seeds @ matrix)
    matrix[3, 7] = np.nan
    assert not sums.holds(sums.seeds @ matrix)


@pytest.mark.parametrize("last", [0.0, 1e-17])
def test_singular(last: float) -> None:
    """A singular Jacobian, and one that is but for rounding, raise as a dense one does."""
    scale = np.ones(N)
    scale[-1] = last
    p = tape.tensor(np.zeros(N), requires_grad=True)
    x = tape.implicit.root(lambda x, p: tape.roll(tape.tensor(scale) * x, 30) - p, np.zeros(N), p)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        x.sum().backward()
