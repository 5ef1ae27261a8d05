"""Routines called again and again: the later calls, which native code repeats, are the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

RNG = np.random.default_rng(14)
AGAIN = 4
M = RNG.normal(size=(3, 3)) + 4 * np.eye(3)
S = M @ M.T
X, Y = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 4, 2))
V = RNG.normal(size=(3, 3))
CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Any]]] = {
    "bmm": (tape.bmm, np.matmul, [X, Y]),
    "batches": (lambda a, b: a @ b, np.matmul, [X[:, None], Y]),
    "a batch and a matrix": (lambda a, b: a @ b, np.matmul, [X, Y[0]]),
    "a batch and a vector": (lambda a, b: a @ b, np.matmul, [X, Y[0, :, 0]]),
    "a vector and a batch": (lambda a, b: a @ b, np.matmul, [X[0, 0], Y]),
    "turned": (lambda a, b: tape.bmm(a.mT.contiguous().mT, b), np.matmul, [X, Y]),
    "inverse": (tape.inverse, np.linalg.inv, [M]),
    "inverses": (tape.linalg.inv, np.linalg.inv, [np.stack([M, S])]),
    "cholesky": (tape.linalg.cholesky, np.linalg.cholesky, [S]),
    "solve": (tape.linalg.solve, np.linalg.solve, [M, V]),
    "cross": (lambda a, b: tape.linalg.cross(a, b, dim=0), lambda a, b: np.cross(a, b, axis=0), [M, V]),
    "cross along rows": (lambda a, b: tape.linalg.cross(a, b, dim=-1), np.cross, [M, V]),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CALLS)
def test_later_calls_are_the_first(name: str, dtype: Any) -> None:
    function, truth, arrays = CALLS[name]
    given = [x.astype(dtype) for x in arrays]
    seen = []
    for _ in range(AGAIN):
        leaves = [tape.tensor(x, requires_grad=True) for x in given]
        y = function(*leaves)
        np.testing.assert_allclose(y.detach().numpy(), truth(*given), rtol=2e-4 if dtype == np.float32 else 1e-11)
        grads = tape.autograd.grad((y * y).sum(), leaves, create_graph=True)
        seconds = tape.autograd.grad(sum((g * g).sum() for g in grads), leaves)
        with tape.no_grad():
            seen.append([one.detach().numpy() for one in (y, *grads, *seconds, function(*leaves))])
    for one in seen[1:]:
        for a, b in zip(one, seen[0], strict=True):
            assert a.dtype == dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("single", [0, 1])
@pytest.mark.parametrize("name", [name for name, (_, _, arrays) in CALLS.items() if len(arrays) > 1])
def test_later_calls_cast_one_operand_as_the_first_does(name: str, single: int) -> None:
    """A call on operands that were cast is no call on those that were given: gradients went to memory half as large."""
    function, truth, arrays = CALLS[name]
    given = [x.astype(np.float32 if k == single else np.float64) for k, x in enumerate(arrays)]
    wide = [tape.tensor(x.astype(np.float64), requires_grad=True) for x in given]
    y = function(*wide)
    expected = tape.autograd.grad((y * y).sum() + sum(x.sum() for x in wide), wide)
    for _ in range(AGAIN):
        leaves = [tape.tensor(x, requires_grad=True) for x in given]
        y = function(*leaves)
        np.testing.assert_allclose(y.detach().numpy(), truth(*given), rtol=1e-11)
        found = tape.autograd.grad((y * y).sum() + sum(x.sum() for x in leaves), leaves)
        for one, x, other in zip(found, given, expected, strict=True):
            assert one.dtype == x.dtype
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CALLS)
def test_programs_maps_and_tangents(name: str) -> None:
    function, truth, given = CALLS[name]
    for k in range(1, AGAIN):
        several = [k * x for x in given]
        program = tape.record(function, *map(tape.tensor, given))
        np.testing.assert_allclose(np.asarray(program(*several)), truth(*several), rtol=1e-11)
        pairs = [tape.tensor(np.stack([x, x])) for x in several]
        np.testing.assert_allclose(tape.func.vmap(function)(*pairs)[1].numpy(), truth(*several), rtol=1e-11)
        tensors = tuple(map(tape.tensor, several))
        y, _ = tape.func.jvp(function, tensors, tensors)
        np.testing.assert_allclose(y.numpy(), truth(*several), rtol=1e-11)


def test_errors_each_time() -> None:
    singular = tape.zeros(3, 3, requires_grad=True)
    for _ in range(AGAIN):
        tape.inverse(tape.tensor(M, requires_grad=True))
        with pytest.raises(np.linalg.LinAlgError):
            tape.inverse(singular)
        with pytest.raises(RuntimeError):
            tape.bmm(tape.tensor(X), tape.tensor(X))
        with pytest.raises(np.linalg.LinAlgError):
            tape.linalg.cholesky(-tape.tensor(S))


def test_results_are_their_own() -> None:
    for _ in range(AGAIN):
        x = tape.tensor(X, requires_grad=True)
        y = tape.bmm(x, tape.tensor(Y))
        z = y * 1.0
        y += 1.0
        np.testing.assert_array_equal(z.detach().numpy(), X @ Y)
        z.sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(Y.sum(-1)[:, None], X.shape))
