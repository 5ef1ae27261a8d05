"""Pullbacks of large arrays that leave their results in the cotangent's memory: gradients stay as they are."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.kinds import form
from kernels.native import pool
from kernels.native.memory import REGISTRY
from kernels.native.pool import PoolWords
from kernels.native.structs import NONE, FormBlock, InputBlock
from kernels.sweeps import reverse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N = 20_000
assert form.LEAST < N


def squared(y: Any) -> Any:
    return y * y + y


def again(y: Any, a: Any) -> Any:
    return tape.tanh(y) * (y - a) / (y + 2.0) ** 2


def apart(y: Any, z: Any) -> Any:
    return (y - z) * (z - y)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "chain": lambda a, b: tape.exp(-1.0 * tape.sin(2.0 * a + 1.0)) * b,
    "itself": lambda a, b: (1.0 + (a * b)) + 2.0,
    "both": lambda a, b: tape.exp(a) * tape.sin(b),
    "both the same": lambda a, b: squared(tape.exp(a) + b),
    "first alone": lambda a, b: tape.exp(a) / b.detach() - 3.0,
    "second alone": lambda a, b: a.detach() / tape.exp(b),
    "used again": lambda a, b: again(tape.log(a + b), a),
    "differences": lambda a, b: apart(a * 1.0, b * 1.0),
    "signs": lambda a, b: -(abs(a - b)) * tape.sign(a) + tape.maximum(a, b),
    "cut": lambda a, b: tape.where(a > b, tape.sqrt(abs(a - b) + 0.01), a * 0.0) * tape.clamp(b, 0.2, 0.8),
    "powers": lambda a, b: ((a + 1.0) ** 2) ** 1.5 * (b + 0.5) ** -1.0,
    "a view": lambda a, b: (a * b).reshape(2, -1)[1].exp() * (a * 2.0).view(2, -1)[0],
    "an order": lambda a, b: ((a * b).reshape(-1, 10).T * 2.0).T.reshape(-1) + a,
    "broadcast": lambda a, b: (tape.exp(a).reshape(-1, 10) * (b.reshape(-1, 10) * 1.0)[:, :1]).reshape(-1),
}


def gradients(f: Callable[[Any, Any], Any], a: Any, b: Any, w: Any, times: int = 1) -> list[Any]:
    x, y = (tape.tensor(v, requires_grad=True) for v in (a, b))
    found = f(x, y)
    weights = tape.tensor(w if found.shape[0] == len(w) else w[: found.shape[0]])
    loss = (found * weights).sum()
    for k in range(times):
        x.grad = y.grad = None
        loss.backward(retain_graph=k < times - 1)
    return [None if v.grad is None else v.grad.numpy() for v in (x, y)]


def values(dtype: Any) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(7)
    a, b, w = rng.uniform(0.1, 1.0, (3, N))
    w[::7] = 0.0
    w[3::14] = -0.0
    a[5::50] = b[5::50]
    return a.astype(dtype), b.astype(dtype), w.astype(dtype)


@contextmanager
def without_reuse() -> Iterator[None]:
    """Let all forms that there are do without kernels in place."""
    forms = [form for reference in list(REGISTRY.living.values()) if (form := reference()) is not None]
    places = [
        (form.block, FormBlock.SIZE + i * InputBlock.SIZE + InputBlock.reused)
        for form in forms
        for i in range(len(form.specs))
    ]
    before = [block[at] for block, at in places]
    for block, at in places:
        block[at] = NONE
    yield
    for (block, at), word in zip(places, before, strict=True):
        block[at] = word


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_those_of_kernels_that_write_elsewhere(name: str, dtype: Any) -> None:
    f, given = FUNCTIONS[name], values(dtype)
    found = [gradients(f, *given, times) for times in (1, 2, 3)]  # kernels are there from the second sweep on
    with without_reuse():
        want = gradients(f, *given)
    for got in found:
        for one, other in zip(got, want, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_differences(name: str) -> None:
    """Along one direction; the functions are smooth there."""
    f, (a, b, w) = FUNCTIONS[name], values(np.float64)
    a = a + np.where(a == b, 1e-3, 0.0)
    p, q = np.random.default_rng(3).normal(size=(2, N))
    p, q = p * (name != "second alone"), q * (name != "first alone")
    h = 1e-7

    def value(t: float) -> float:
        found = f(tape.tensor(a + t * p), tape.tensor(b + t * q)).numpy()
        return float(found @ w[: len(found)])

    for times in (1, 3):
        pairs = zip(gradients(f, a, b, w, times), (p, q), strict=True)
        slope = sum(g @ d for g, d in pairs if g is not None)
        np.testing.assert_allclose(slope, (value(h) - value(-h)) / (2 * h), rtol=2e-3, atol=1e-2)


def test_who_looks_on_sees_gradients_that_stay() -> None:
    """Hooks, retained gradients and `inputs` keep theirs, whatever is written where they stood."""
    a, b, _ = values(np.float64)
    for _ in range(3):
        x = tape.tensor(a, requires_grad=True)
        y = x * tape.tensor(b)
        z = 2.0 * y
        u = tape.exp(z)
        seen: list[Any] = []
        z.register_hook(seen.append)
        y.retain_grad()
        (inner,) = tape.autograd.grad(u.sum(), z, retain_graph=True)
        u.sum().backward()
        e = np.exp(2.0 * (a * b))
        np.testing.assert_allclose(inner.numpy(), e, rtol=1e-14)
        np.testing.assert_allclose(seen[-1].numpy(), e, rtol=1e-14)
        np.testing.assert_allclose(y.grad.numpy(), 2.0 * e, rtol=1e-14)
        np.testing.assert_allclose(x.grad.numpy(), 2.0 * e * b, rtol=1e-14)


def test_writes_in_place() -> None:
    a, b, w = values(np.float64)
    for _ in range(3):
        x = tape.tensor(a, requires_grad=True)
        y = 2.0 * x
        y[10:] *= tape.tensor(b)[10:]
        y.mul_(3.0)
        z = tape.sin(y)
        y[:5] = z[:5] * 2.0
        ((y + z) * tape.tensor(w)).sum().backward()
        scale = np.where(np.arange(N) < 10, 6.0, 6.0 * b)
        slope = np.cos(scale * a) * scale
        want = np.where(np.arange(N) < 5, 3.0 * slope, slope + scale) * w
        np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-12, atol=1e-14)


def test_second_derivatives_and_forward_mode() -> None:
    a, _, _ = values(np.float64)
    for _ in range(3):
        x = tape.tensor(a, requires_grad=True)
        (first,) = tape.autograd.grad((tape.sin(2.0 * x) * x).sum(), x, create_graph=True)
        (second,) = tape.autograd.grad(first.sum(), x)
        want = 4.0 * np.cos(2.0 * a) - 4.0 * np.sin(2.0 * a) * a
        np.testing.assert_allclose(second.numpy(), want, rtol=1e-11, atol=1e-12)


def test_in_place_kernels_are_used() -> None:
    """The second sweep over a chain takes no memory for its gradient buffers but the first."""
    if not reverse.NATIVE:
        pytest.skip("without native code NumPy makes its own")
    x = tape.tensor(np.ones(N), requires_grad=True)
    w = tape.tensor(np.linspace(0.0, 1.0, N))

    def run() -> int:
        y = x
        for _ in range(12):
            y = 1.5 * y
        loss = (y * w).sum()
        words = pool._words(pool.linked())
        before = words[PoolWords.fresh] + words[PoolWords.reused]
        loss.backward()
        return words[PoolWords.fresh] + words[PoolWords.reused] - before

    assert [run() for _ in range(3)][2] <= 3  # of twelve


VIEWS: dict[str, Callable[[Any], Any]] = {
    "inner": lambda x: x[2:-3],
    "first": lambda x: x[:1],
    "last": lambda x: x[-1:],
    "all": lambda x: x[:],
    "none": lambda x: x[4:4],
    "every other": lambda x: x[::2],
    "backwards": lambda x: x.flip(0),
    "rows": lambda x: x.reshape(4, -1)[1:3],
    "columns": lambda x: x.reshape(4, -1)[:, 1:3],
    "a row": lambda x: x.reshape(4, -1)[2],
    "an element": lambda x: x.reshape(4, -1)[3, 2],
    "a column": lambda x: x.reshape(4, -1)[:, -1],
    "turned": lambda x: x.reshape(4, -1).T[1:],
    "of a view": lambda x: x[3:][2:-1],
    "spread": lambda x: x[5:6].expand(7),
}


@pytest.mark.parametrize("n", [16, 12_000])
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("cotangent", [-0.0, 1.5])
def test_first_contributions_to_parts(name: str, cotangent: float, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a view does not show has no gradient, whichever contribution comes first, of a leaf and of a result."""
    view, values = VIEWS[name], np.random.default_rng(1).normal(size=n)
    found = []
    for is_native in (reverse.NATIVE, False):
        monkeypatch.setattr(reverse, "NATIVE", is_native)
        for f in (
            lambda x: view(x) * 2.0,
            lambda x: view(x * 3.0) * 2.0,
            lambda x: view(x) * view(x * 1.0) + view(x),
            lambda x: (view(x * 3.0) * 2.0).exp() - view(x),
        ):
            x = tape.tensor(values, requires_grad=True)
            y = f(x)
            y.backward(tape.tensor(np.full(y.shape, cotangent)))
            found.append(x.grad.numpy())
    for one, other in zip(found[:4], found[4:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15, atol=0.0)
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))
