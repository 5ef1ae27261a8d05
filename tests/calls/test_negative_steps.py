"""Slices with negative steps: views, as NumPy's, to be read and written, in every mode; PyTorch refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from tape.func import jvp, vmap

RNG = np.random.default_rng(2)
A, V, W = (RNG.normal(size=(6, 5)) for _ in range(3))

READS: dict[str, Any] = {
    "sin": lambda x, v: np.sin(x[::-1]) * v,
    "steps": lambda x, v: x[5:0:-2] * v[:3],
    "both": lambda x, v: x[::-1, ::-1] * x * v,
    "new": lambda x, v: x[::-1, None, 2] * v[:, :1],
    "sum": lambda x, v: np.sum(x[::-1], 0) * v,
    "prod": lambda x, v: np.prod(x[:, ::-1], -1) * v[:, 0],
    "cumsum": lambda x, v: np.cumsum(x[::-1], 0) * v,
    "sort": lambda x, v: np.sort(x[::-1, ::-1], 0) * v,
    "matmul": lambda x, v: x[::-1].T @ v,
    "reshape": lambda x, v: x[::-1].reshape(-1) * v.reshape(-1),
    "pick": lambda x, v: x[::-1][[0, 1, 1]] * v[:3],
    "empty": lambda x, v: x[0:3:-1] * v[:0],
}


def _into(x: Any, v: Any) -> Any:
    x[::-1] = v
    return x * x


def _added(x: Any, v: Any) -> Any:
    x[::-1] += v
    return x * x


def _part(x: Any, v: Any) -> Any:
    x[5:0:-2] *= v[:3]
    return x * x


def _view(x: Any, v: Any) -> Any:
    u = x[::-1]
    u *= v
    return x * u


def _neighbours(x: Any, v: Any) -> Any:
    u = x[::-1, ::-1]
    u[1:] *= u[:-1]
    return x * 2 + v


def _saved(x: Any, v: Any) -> Any:
    y, u = x * x, x[:, ::-1]
    u[...] = v
    return x * y * u


def _turned(x: Any, v: Any) -> Any:
    x[1:] = x[:0:-1] * v[1:]
    x[:] = x[::-1]
    return x**2


def _stale(x: Any, v: Any) -> Any:
    u = x[::-1]
    w = u[::-1]
    w += v
    u[0] = 1.0
    x *= v
    return u * w * u


def _loop(x: Any, v: Any) -> Any:
    for i in range(4):
        x[i::-1] += x[i + 1] * v[i]
    return x


def _transposed(x: Any, v: Any) -> Any:
    u = x.T[::-1]
    u[1] += v[:, 0]
    u[:, ::-1][2] = v[:, 1]
    return x * x


WRITES = [_into, _added, _part, _view, _neighbours, _saved, _turned, _stale, _loop, _transposed]


def differences(f: Any, x: Any, w: Any) -> Any:
    steps = np.eye(x.size).reshape(-1, *x.shape) * 1e-6
    return np.array([np.sum((f(x + d) - f(x - d)) * w) / 2e-6 for d in steps]).reshape(x.shape)


@pytest.mark.parametrize("program", [*READS.values(), *WRITES], ids=[*READS, *(f.__name__ for f in WRITES)])
def test_as_numpy(program: Any) -> None:
    def run(x: Any, v: Any) -> Any:
        return program(x * 1.0, v)

    expected = run(A, V)
    w = RNG.normal(size=expected.shape)
    x, v = tape.tensor(A, requires_grad=True), tape.tensor(V, requires_grad=True)
    y = run(x, v)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12)
    gx, gv = tape.autograd.grad((y * w).sum(), (x, v), create_graph=True)
    np.testing.assert_allclose(gx.detach().numpy(), differences(lambda a: run(a, V), A, w), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gv.detach().numpy(), differences(lambda b: run(A, b), V, w), rtol=1e-5, atol=1e-7)
    if gx.requires_grad:
        (second,) = tape.autograd.grad((gx * W).sum(), x, allow_unused=True)

        def slope(a: Any) -> Any:
            leaf = tape.tensor(a, requires_grad=True)
            return tape.autograd.grad((run(leaf, tape.tensor(V)) * w).sum(), leaf)[0].numpy()

        found = np.zeros(A.shape) if second is None else second.numpy()
        np.testing.assert_allclose(found, (slope(A + 1e-6 * W) - slope(A - 1e-6 * W)) / 2e-6, rtol=1e-4, atol=1e-6)
    if program not in WRITES:
        return
    _, t = jvp(lambda x: run(x, tape.tensor(V)), (tape.tensor(A),), (tape.tensor(W),))
    np.testing.assert_allclose((t.numpy() * w).sum(), (gx.detach().numpy() * W).sum(), rtol=1e-10, atol=1e-10)
    batch = vmap(lambda x: run(x, tape.tensor(V)))(tape.tensor(np.stack([A, 2 * A])))
    np.testing.assert_allclose(batch.numpy(), np.stack([run(A, V), run(2 * A, V)]), rtol=1e-12)
    recorded = tape.record(lambda x, v: (run(x, v) * w).sum(), A, V)
    value, gradients = recorded.value_and_grad(A * 1.1, V * 0.9)
    leaves = [tape.tensor(a, requires_grad=True) for a in (A * 1.1, V * 0.9)]
    dynamic = (run(*leaves) * w).sum()
    assert value == pytest.approx(dynamic.item(), rel=1e-12)
    for a, b in zip(gradients, tape.autograd.grad(dynamic, leaves), strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-12, atol=1e-12)


def test_it_is_a_view() -> None:
    x = tape.zeros(4)
    x[::-1][0] = 5.0
    assert x.tolist() == [0.0, 0.0, 0.0, 5.0]
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        x[::0]
