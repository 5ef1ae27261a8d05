"""Sparse Jacobians and Hessians equal dense ones, in whatever way a function goes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tape
from tape.sparse import derivatives

quick = pytest.mark.quick
SIZE = 12


def points(count: int, size: int = SIZE) -> Any:
    return np.random.default_rng(1).normal(size=(count, size))


def chain(x: Any) -> Any:
    return x[1:-1] * (x[2:] - 2.0 * x[1:-1] + x[:-2])


def arrow(x: Any) -> Any:
    return tape.cat([(x * x).sum().reshape(1), x[1:] * x[0] + x[1:] ** 2])


def tall(x: Any) -> Any:
    return tape.cat([x * x, x[1:] * x[:-1], x.sum().reshape(1)])


def branch(x: Any) -> Any:
    return x[1:] * x[:-1] if x[0] > 0 else x[1:] * x[0]


def loop(x: Any) -> Any:
    while (x * x).sum() > 1.0:
        x = 0.35 * x + 0.3 * tape.cat([x[1:], x[:1]])
    return x


def resized(x: Any) -> Any:
    return x[x > 0.0] ** 2


def force(x: Any) -> Any:
    return tape.func.grad(lambda q: (tape.cos(q)[1:] * q[:-1]).sum())(x)


FUNCTIONS = (chain, arrow, tall, branch, loop, resized, force)


@quick
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_jacobians_are_the_dense_ones(function: Callable[[Any], Any]) -> None:
    for by in (None, "columns", "rows", "both"):
        sparse = tape.sparse.jacobian(function, by=by)
        for x in points(8):
            found = sparse(x)
            assert isinstance(found, scipy.sparse.csr_array)
            np.testing.assert_allclose(found.toarray(), tape.func.jacrev(function)(x), atol=1e-12)


def energy(x: Any) -> Any:
    return (x[1:-1] * (x[2:] ** 2 - 2.0 * x[1:-1] + x[:-2])).sum()


def shared(x: Any) -> Any:
    return (x[0] * x[1:] ** 3).sum() + tape.exp(x[0])


def bent(x: Any) -> Any:
    return energy(x) if x[0] > 0 else shared(x)


@quick
@pytest.mark.parametrize("function", [energy, shared, bent], ids=lambda f: f.__name__)
def test_hessians_are_the_dense_ones(function: Callable[[Any], Any]) -> None:
    for by in (None, "columns", "rows"):
        sparse = tape.sparse.hessian(function, by=by)
        for x in points(8):
            np.testing.assert_allclose(sparse(x).toarray(), tape.func.hessian(function)(x), atol=1e-12)


@quick
def test_few_colours_are_swept() -> None:
    x = points(1)[0]
    counts = [tape.sparse.jacobian(f).colouring(x).count for f in (chain, arrow, tall)]
    assert counts == [3, 3, 3]
    assert [tape.sparse.hessian(f).colouring(x).count for f in (energy, shared)] == [3, 2]


@quick
def test_replays_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = tape.sparse.jacobian(chain)
    count = [0]
    recorded = derivatives._recorded_pattern

    def counted(*args: Any) -> Any:
        count[0] += 1
        return recorded(*args)

    monkeypatch.setattr(derivatives, "_recorded_pattern", counted)
    for x in points(400, 300):
        sparse(x)
    assert count[0] < 60


def test_a_pattern_that_is_too_small_is_noticed() -> None:
    """The way that a call goes decides; with a plan that is never checked, the branches give wrong numbers."""
    sparse, wrong = tape.sparse.jacobian(branch), 0
    sparse(np.full(SIZE, 1.0))
    (plan,) = sparse._plans.values()
    plan.check = lambda *_: False  # type: ignore[method-assign]
    for x in points(8):
        wrong += not np.allclose(sparse(x).toarray(), tape.func.jacrev(branch)(x))
    assert wrong > 0


@quick
def test_colours_are_swept_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derivatives, "_MOST_BYTES", 300)
    monkeypatch.setattr(derivatives, "_MOST_HELD", 20)
    for function in (chain, arrow, tall, branch, force):
        for by in ("columns", "rows", "both"):
            sparse = tape.sparse.jacobian(function, by=by)
            for x in points(5):
                np.testing.assert_allclose(sparse(x).toarray(), tape.func.jacrev(function)(x), atol=1e-12)
            (plan,) = sparse._plans.values()
            assert len(plan._parts) > 1
            found = sparse(tape.tensor(x)).to_dense().numpy()
            np.testing.assert_allclose(found, tape.func.jacrev(function)(x), atol=1e-12)


@quick
def test_indices_that_are_arguments() -> None:
    def read(x: Any, at: Any) -> Any:
        return x[at] * x[:3]

    sparse, random = tape.sparse.jacobian(read), np.random.default_rng(0)
    for x in points(25):
        at = random.integers(0, SIZE, 3)
        np.testing.assert_allclose(sparse(x, at).toarray(), tape.func.jacrev(read)(x, at))


@dataclass
class State:
    """What a step moves."""

    speed: Any
    place: Any


@quick
def test_structures_are_raveled() -> None:
    def step(state: State) -> dict[str, Any]:
        return {"place": state.place + 0.1 * state.speed, "total": (state.place**2)[:2]}

    matrix = tape.sparse.jacobian(step)(State(np.arange(3.0), np.ones(3)))
    expected = np.zeros((5, 6))
    expected[:3] = np.hstack([0.1 * np.eye(3), np.eye(3)])
    expected[3, 3] = expected[4, 4] = 2.0
    np.testing.assert_allclose(matrix.toarray(), expected)
    assert tape.sparse.jacobian(lambda x: x * x)(2.0).toarray().tolist() == [[4.0]]


@quick
def test_tensors_give_tensors_with_gradients() -> None:
    for sparse, dense in (
        (tape.sparse.jacobian(arrow), tape.func.jacrev(arrow)),
        (tape.sparse.jacobian(arrow, by="columns"), tape.func.jacrev(arrow)),
        (tape.sparse.hessian(shared), tape.func.hessian(shared)),
    ):
        x = tape.tensor(points(1)[0], requires_grad=True)
        matrix = sparse(x)
        assert isinstance(matrix, tape.sparse.CSR)
        (found,) = tape.autograd.grad((matrix.data**3).sum(), [x])
        (expected,) = tape.autograd.grad((dense(x) ** 3).sum(), [x])
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-10)


@quick
def test_what_functions_close_over_has_gradients_where_tensors_are_given() -> None:
    factor = tape.tensor(2.0, requires_grad=True)
    sparse = tape.sparse.jacobian(lambda x: factor * x[1:])
    matrix = sparse(tape.ones(4))
    matrix.data.sum().backward()
    assert factor.grad == 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sparse(np.ones(4)).data.tolist() == [2.0] * 3
        with tape.no_grad():
            factor.mul_(2.0)
        assert sparse(np.ones(4)).data.tolist() == [4.0] * 3


@quick
def test_in_programs() -> None:
    @tape.compile
    def product(x: Any) -> Any:
        return (tape.sparse.jacobian(chain)(x) @ x).sum()

    for point in points(6):
        x = tape.tensor(point, requires_grad=True)
        y = product(x)
        expected = (tape.func.jacrev(chain)(x) @ x).sum()
        assert abs(float(y.detach()) - float(expected.detach())) < 1e-12
        (found,), (wanted,) = tape.autograd.grad(y, [x]), tape.autograd.grad(expected, [x])
        np.testing.assert_allclose(found.numpy(), wanted.numpy())


@quick
def test_single_precision_and_other_shapes() -> None:
    sparse = tape.sparse.jacobian(chain)
    assert sparse(np.ones(5, np.float32)).dtype == np.float32
    assert sparse(np.ones(9)).shape == (7, 9)
    assert sparse(np.ones(5)).shape == (3, 5)
    assert tape.sparse.jacobian(lambda _: 2.0)(np.ones(3)).nnz == 0


@quick
def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="returns 3 elements"):
        tape.sparse.hessian(lambda x: x)(np.ones(3))
    with pytest.raises(ValueError, match="no number"):
        tape.sparse.jacobian(lambda x: x)(np.zeros(0))
    with pytest.raises(ValueError, match="by is one of"):
        tape.sparse.jacobian(lambda x: x, by="diagonals")(np.ones(3))


@quick
def test_hessians_replay_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All colours of a Hessian are one replay: nothing is recorded or swept any more."""
    hessian = tape.sparse.hessian(lambda x: (x[1:] * x[:-1] ** 2).sum() + tape.sin(x).sum())
    x = np.linspace(0.5, 1.5, 30)
    for _ in range(6):
        hessian(x)
    for name in ("_swept", "_recorded_pattern"):
        monkeypatch.setattr(derivatives, name, None)
    dense = tape.func.hessian(lambda x: (x[1:] * x[:-1] ** 2).sum() + tape.sin(x).sum())(2 * x)
    np.testing.assert_allclose(hessian(2 * x).toarray(), dense, atol=1e-12)


@quick
@pytest.mark.parametrize("derivative", [tape.sparse.jacobian, tape.sparse.hessian])
def test_a_closure_over_what_requires_grad_warns_given_arrays(derivative: Any) -> None:
    """SciPy's matrix has no gradient by it."""
    p = tape.tensor([1.0, 2.0], requires_grad=True)
    with pytest.warns(tape.errors.DetachWarning, match="as tensors"):
        derivative(lambda x: (x**3 * p).sum())(np.ones(2))


@quick
def test_results_are_the_users_own() -> None:
    """What SciPy does in place to a result changes no later one."""
    jacobian = tape.sparse.jacobian(lambda x: x[1:] * x[:-1])
    for k in range(6):
        jacobian(np.array([0.0, 1.0, 0.0, 2.0])).eliminate_zeros()
        x = np.arange(1.0, 5.0) + k
        np.testing.assert_array_equal(jacobian(x).toarray(), tape.func.jacrev(lambda x: x[1:] * x[:-1])(x))
