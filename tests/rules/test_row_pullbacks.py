"""Softmax of large rows: its pullback is a native kernel, in every way that a record is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from kernels.rules.loop_printer import RowPull
from tape.autograd import grad
from tests.engine.test_hooks import sweep  # noqa: F401 (a fixture)

SHAPE = (200, 130)  # 104 kB of floats
RNG = np.random.default_rng(0)
X, W, T = RNG.normal(size=(3, *SHAPE))


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def product(y: Any, v: Any) -> Any:
    """Return the Jacobian, which is symmetric, times a matrix of rows."""
    return y * (v - (y * v).sum(1, keepdims=True))


def close(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradient(dtype: type) -> None:
    x = tape.tensor(X.astype(dtype), requires_grad=True)
    y = tape.softmax(x, 1)
    assert isinstance(y._form.pulls[0], RowPull)
    (y * tape.tensor(W.astype(dtype))).sum().backward()
    close(x.grad, product(softmax(X), W), 1e-12 if dtype is np.float64 else 1e-5)


@pytest.mark.usefixtures("sweep")
def test_contributions_add_up_in_views() -> None:
    base = tape.tensor(np.vstack([X, T]), requires_grad=True)
    part = base[100:300]
    rows = np.vstack([X, T])[100:300]
    ((tape.softmax(part, 1) * tape.tensor(W)).sum() + (part * part).sum()).backward()
    expected = np.zeros((400, 130))
    expected[100:300] = product(softmax(rows), W) + 2 * rows
    close(base.grad, expected)
    turned = tape.tensor(np.ascontiguousarray(X.T), requires_grad=True)
    y = tape.softmax(turned.T, 1)
    y.backward(tape.tensor(W))
    close(turned.grad, product(softmax(X), W).T)


@pytest.mark.usefixtures("sweep")
def test_batches_tangents_and_higher_orders() -> None:
    x, y = tape.tensor(X, requires_grad=True), softmax(X)
    (rows,) = grad(tape.softmax(x, 1), x, tape.tensor(np.stack([W, T])), is_grads_batched=True)
    close(rows[0], product(y, W))
    close(rows[1], product(y, T))
    value, tangent = tape.func.jvp(lambda x: tape.softmax(x, 1), (x.detach(),), (tape.tensor(T),))
    close(value, y)
    close(tangent, product(y, T))
    (first,) = grad((tape.softmax(x, 1) * tape.tensor(W)).sum(), x, create_graph=True)
    (second,) = grad((first * tape.tensor(T)).sum(), x)
    step = 1e-6
    along = (product(softmax(X + step * T), W) - product(softmax(X - step * T), W)) / (2 * step)
    np.testing.assert_allclose(second.numpy(), along, atol=1e-8)


def test_programs_and_packed_values() -> None:
    def loss(x: Any) -> Any:
        return (tape.softmax(x * 1.5, 1) ** 2).sum()

    program = tape.record(loss, X)
    value, (gradient,) = program.value_and_grad(T)
    x = tape.tensor(T, requires_grad=True)
    fresh = loss(x)
    fresh.backward()
    assert value == fresh.item()
    np.testing.assert_array_equal(gradient, x.grad.numpy())
    with tape.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), tape.tensor):
        again = tape.tensor(T, requires_grad=True)
        loss(again).backward()
    np.testing.assert_allclose(again.grad.numpy(), gradient, rtol=1e-13, atol=1e-15)
