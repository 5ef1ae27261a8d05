"""Where PyTorch takes what is empty, or of one element: joins, gathers, scatters, tensordot, masked_scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes

A = np.arange(1.0, 7.0).reshape(2, 3)
AGAIN = 3


def graded(x: Any, loss: Any) -> Any:
    (g,) = tape.autograd.grad(loss, x)
    return g.numpy()


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_nothing_joins_anything(dim: int) -> None:
    for _ in range(AGAIN):
        x, none = tape.tensor(A, requires_grad=True), tape.zeros(0).requires_grad_()
        y = tape.cat([none, x, x * 2.0, none], dim)
        np.testing.assert_array_equal(y.detach().numpy(), np.concatenate([A, 2 * A], dim))
        (y * y).sum().backward()
        assert x.grad is not None
        assert none.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), 2 * A + 8 * A)
        assert none.grad.shape == (0,)
    assert tape.cat([none, none]).shape == (0,)
    assert tape.cat([tape.zeros(0, dtype=tape.float64), tape.ones(2, 3, dtype=tape.float32)]).dtype == tape.float64
    assert tape.hstack([tape.zeros(0), x]).shape == (2, 3)


def test_what_does_not_join() -> None:
    x = tape.tensor(A)
    for _ in range(AGAIN):
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            tape.cat([tape.zeros(0, 1), x])
        with pytest.raises(RuntimeError, match="number of dimensions"):
            tape.cat([tape.zeros(1), x])
        with pytest.raises(RuntimeError, match="zero-dimensional"):
            tape.cat([tape.tensor(1.0), x])
        with pytest.raises(IndexError):
            tape.cat([tape.zeros(0), x], 2)
        with pytest.raises(ValueError, match="dims"):
            np.concatenate([tape.zeros(0), x])


@pytest.mark.parametrize("shape", [(0,), (2, 0, 5), (0, 3), (5, 0)])
def test_places_of_nothing(shape: tuple[int, ...]) -> None:
    at, src = tape.zeros(shape, dtype=tape.int64), tape.ones(3, 4).requires_grad_()
    for _ in range(AGAIN):
        x = tape.tensor(A, requires_grad=True)
        found = x.gather(0, at)
        assert (found.shape, found.requires_grad) == (shape, True)
        np.testing.assert_array_equal(graded(x, found.sum()), np.zeros((2, 3)))
        for name, more in (("scatter", ()), ("scatter_add", ()), ("scatter_reduce", ("sum",))):
            y = getattr(x, name)(0, at, src, *more)
            np.testing.assert_array_equal(y.detach().numpy(), A)
            np.testing.assert_array_equal(graded(x, (y * y).sum()), 2 * A)


@pytest.mark.parametrize("turned", [False, True])
def test_tensordot_broadcasts_one(turned: bool) -> None:
    one, many = np.array([[2.0], [3.0]]), np.arange(20.0).reshape(4, 5)
    x, y = tape.tensor(one, requires_grad=True), tape.tensor(many, requires_grad=True)
    found = tape.tensordot(y, x, ([0], [1])).T if turned else tape.tensordot(x, y, ([1], [0]))
    np.testing.assert_array_equal(found.detach().numpy(), one @ many.sum(0, keepdims=True))
    found.sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [[190.0], [190.0]])
    np.testing.assert_array_equal(y.grad.numpy(), np.full((4, 5), 5.0))
    with pytest.raises(RuntimeError, match="contracted dimensions"):
        tape.tensordot(y, y, ([0], [1]))
    with pytest.raises(ValueError, match="differ"):
        np.tensordot(x, y, ([1], [0]))


def test_masked_scatter_broadcasts_the_tensor() -> None:
    mask = np.array([[True, False, True], [False, True, True]])
    x, source = tape.tensor(A[0], requires_grad=True), tape.tensor([10.0, 20.0, 30.0, 40.0, 50.0], requires_grad=True)
    y = x.masked_scatter(tape.tensor(mask), source)
    np.testing.assert_array_equal(y.detach().numpy(), [[10.0, 2.0, 20.0], [1.0, 30.0, 40.0]])
    (y * tape.tensor(A)).sum().backward()
    assert x.grad is not None
    assert source.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.where(mask, 0.0, A).sum(0))
    np.testing.assert_array_equal(source.grad.numpy(), [1.0, 3.0, 5.0, 6.0, 0.0])
    with pytest.raises(RuntimeError, match="broadcast"):
        tape.tensor(A[0]).masked_scatter_(tape.tensor(mask), source.detach())
    with pytest.raises(RuntimeError):
        x.masked_scatter(tape.tensor(mask[:, :2]), source)


def test_gradient_without_spacing() -> None:
    x = tape.tensor(A**2)
    for one, two in zip(tape.gradient(x, spacing=None, dim=None), np.gradient(A**2), strict=True):
        np.testing.assert_array_equal(one.numpy(), two)
    np.testing.assert_array_equal(tape.gradient(x, spacing=None, dim=1)[0].numpy(), np.gradient(A**2, axis=1))


def test_weights_in_a_list() -> None:
    x, w = tape.tensor(A[0], requires_grad=True), tape.tensor(2.0, requires_grad=True)
    y = np.average(x, weights=[w, w, 4.0])
    assert y.item() == np.average(A[0], weights=[2.0, 2.0, 4.0])
    np.testing.assert_allclose(graded(w, y), (1 + 2) / 8 - (2 * 1 + 2 * 2 + 4 * 3) * 2 / 64)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tape.exp(x, alpha=2),
        lambda x: tape.multiply(x, x, alpha=2),
        lambda x: x.mul(x, alpha=2),
        lambda x: tape.exp(x, x),
        lambda x: tape.add(x, alpha=2),
    ],
)
def test_arguments_that_an_operation_has_not(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"^(Tensor\.)?(exp|multiply|add)\(\)"):
        call(tape.tensor(A))


@pytest.mark.parametrize("dim", [0, 1])
def test_joins_as_pytorch(dim: int, pytorch: Outcomes) -> None:
    for lead in ([0, 1], [1, 0, 0, 1]):

        def run(lib: Any, lead: Any = lead) -> Any:
            return lib.cat([(lib.zeros(0, dtype=lib.float64), lib.tensor(A))[k] for k in lead], dim)

        found, expected = run(tape), pytorch(run, f"cat {lead} {dim}")
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
