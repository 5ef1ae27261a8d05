"""Scatters, index_add and their kin, again and again with other places: the later, native ones are as the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.operations import writes
from tape.recording.cached_calls import NATIVELY

SHAPE = (4, 5)
RNG = np.random.default_rng(7)
Index = np.ndarray[Any, Any]
Places = tuple[Any, ...]


def vectors(dim: int, index: Index) -> Places:
    """The places of rows or columns, as NumPy picks them."""
    return (index,) if dim % 2 == 0 else (slice(None), index)


def apart(dim: int, index: Index) -> Places:
    """The places of a scatter along a dim."""
    rows, columns = np.indices(index.shape)
    return (index, columns) if dim % 2 == 0 else (rows, index)


def some(dim: int, *, twice: bool = True) -> Index:
    return RNG.integers(0, SHAPE[dim], 3) if twice else RNG.permutation(SHAPE[dim])[:3]


def wide(dim: int, *, twice: bool = True) -> Index:
    if twice:
        return RNG.integers(0, SHAPE[dim], SHAPE)
    return np.argsort(RNG.random(SHAPE), axis=dim)


# By name: the places, whether it adds, and some indices.
CASES: dict[str, tuple[Callable[..., Places], bool, Callable[..., Index]]] = {
    "index_add": (vectors, True, some),
    "index_copy": (vectors, False, some),
    "scatter": (apart, False, wide),
    "scatter_add": (apart, True, wide),
}


def expected(a: Any, places: Places, given: Any, *, adds: bool) -> Any:
    found = a.copy()
    if adds:
        np.add.at(found, places, given)
    else:
        found[places] = given
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dim", [0, 1, -1, -2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int8])
@pytest.mark.parametrize("twice", [True, False])
def test_values(name: str, dim: int, dtype: Any, twice: bool) -> None:
    places, adds, index = CASES[name]
    a = (RNG.normal(size=SHAPE) * 8).astype(dtype)
    for _ in range(6):
        at = index(dim % 2, twice=twice)
        where = places(dim, at)
        given = (RNG.normal(size=a[where].shape) * 8).astype(dtype)
        truth = expected(a, where, given, adds=adds)
        x = tape.tensor(a)
        out = getattr(x, name)(dim, tape.tensor(at), tape.tensor(given))
        np.testing.assert_array_equal(out.numpy(), truth, strict=True)
        np.testing.assert_array_equal(x.numpy(), a)
        found = getattr(tape.tensor(a), f"{name}_")(dim, tape.tensor(at), tape.tensor(given))
        np.testing.assert_array_equal(found.numpy(), truth, strict=True)
        assert found._version == 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("wants", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("twice", [True, False])
def test_gradients(name: str, dim: int, wants: tuple[bool, bool], twice: bool) -> None:
    places, adds, index = CASES[name]
    a, c = RNG.normal(size=SHAPE), RNG.normal(size=SHAPE)
    for _ in range(6):
        at = index(dim, twice=twice)
        where = places(dim, at)
        given = RNG.normal(size=a[where].shape)
        x, v = tape.tensor(a, requires_grad=wants[0]), tape.tensor(given, requires_grad=wants[1])
        y = getattr(x, name)(dim, tape.tensor(at), v)
        truth = expected(a, where, given, adds=adds)
        np.testing.assert_array_equal(y.detach().numpy(), truth)
        inputs = [one for one, wanted in ((x, wants[0]), (v, wants[1])) if wanted]
        found = list(tape.autograd.grad((y * y * tape.tensor(c)).sum(), inputs))
        g = 2 * truth * c
        if wants[0]:
            own = g.copy()
            if not adds:
                own[where] = 0.0
            np.testing.assert_allclose(found.pop(0).numpy(), own, rtol=1e-13)
        if wants[1]:
            numbers = np.full(SHAPE, -1)
            numbers[where] = np.arange(given.size).reshape(given.shape)
            stays = np.isin(np.arange(given.size), numbers).reshape(given.shape) | adds
            np.testing.assert_allclose(found.pop(0).numpy(), np.where(stays, g[where], 0.0), rtol=1e-13)


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("kind", ["rows", "both", "mask", "negative", "number"])
def test_index_put(kind: str, accumulate: bool) -> None:
    a, c = RNG.normal(size=SHAPE), RNG.normal(size=SHAPE)
    for _ in range(6):
        at, columns, mask = RNG.permutation(4)[:3], RNG.permutation(5)[:3], np.zeros(SHAPE, np.bool_)
        mask.reshape(-1)[RNG.permutation(20)[:6]] = True
        places: dict[str, Places] = {"both": (at, columns), "mask": (mask,), "negative": (at - 4,)}
        where = places.get(kind, (at,))
        given = np.float64(1.5) if kind == "number" else RNG.normal(size=a[where].shape)
        x, v = tape.tensor(a, requires_grad=True), tape.tensor(given, requires_grad=True)
        y = x.clone().index_put_(tuple(map(tape.tensor, where)), 1.5 if kind == "number" else v, accumulate)
        truth = expected(a, where, given, adds=accumulate)
        np.testing.assert_array_equal(y.detach().numpy(), truth)
        (y * y * tape.tensor(c)).sum().backward()
        own = 2 * truth * c
        if kind != "number":
            assert v.grad is not None
            np.testing.assert_allclose(v.grad.numpy(), own[where], rtol=1e-13)
        if not accumulate:
            own[where] = 0.0
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), own, rtol=1e-13)


@pytest.mark.parametrize("name", ["scatter", "scatter_add"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_values_that_are_larger_than_the_index(name: str, requires_grad: bool) -> None:
    places, adds, _ = CASES[name]
    for k in range(6):
        at, given = np.argsort(RNG.random(SHAPE), axis=0)[:2, :4], RNG.normal(size=(SHAPE[0] + k % 2, SHAPE[1]))
        where, v = places(0, at), tape.tensor(given, requires_grad=requires_grad)
        y = getattr(tape.zeros(SHAPE), name)(0, tape.tensor(at), v)
        truth = expected(np.zeros(SHAPE), where, given[:2, :4], adds=adds)
        np.testing.assert_array_equal(y.detach().numpy(), truth)
        if requires_grad:
            (y * y).sum().backward()
            wanted = np.zeros(given.shape)
            wanted[:2, :4] = 2 * truth[where]
            assert v.grad is not None
            np.testing.assert_array_equal(v.grad.numpy(), wanted)


def test_second_derivatives() -> None:
    x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(4):
        y = tape.zeros(2).index_add(0, tape.tensor([1, 0, 1]), x**2)
        (g,) = tape.autograd.grad((y**2).sum(), x, create_graph=True)
        np.testing.assert_allclose(g.tolist(), [4 * 10.0, 4 * 4 * 2.0, 4 * 10.0 * 3])
        (h,) = tape.autograd.grad(g[0], x)
        np.testing.assert_allclose(h.tolist(), [4 * 10.0 + 8.0, 0.0, 8 * 3.0])  # of 4 x0 (x0^2 + x2^2)


@pytest.mark.parametrize("name", CASES)
def test_errors_leave_everything_as_it_was(name: str) -> None:
    _, _, index = CASES[name]
    a = RNG.normal(size=SHAPE)
    x, leaf = tape.tensor(a), tape.tensor(a, requires_grad=True)
    call = getattr(tape.Tensor, f"{name}_")
    for _ in range(4):
        at = index(0)
        given = tape.ones(*(SHAPE if at.ndim > 1 else (3, 5)))
        call(tape.tensor(a), 0, tape.tensor(at), given)
        version = x._version
        for shift in (-4, 4):  # no place counts from the end
            with pytest.raises((IndexError, RuntimeError)):
                call(x, 0, tape.tensor(at + shift), given)
        with pytest.raises((IndexError, RuntimeError)):
            call(x, 0, tape.tensor(at), given[:1, :1])
        with pytest.raises(RuntimeError, match=r"type|dtype"):
            call(x, 0, tape.tensor(at), given.float())
        with pytest.raises(RuntimeError, match="leaf"):
            call(leaf, 0, tape.tensor(at), given)
        with pytest.raises(IndexError):
            call(x, 2, tape.tensor(at), given)
        assert (x._version, x.tolist(), leaf.tolist()) == (version, a.tolist(), a.tolist())


def test_what_others_see_is_kept() -> None:
    at, one = tape.tensor([0, 2]), tape.ones(2)
    for _ in range(4):
        x = tape.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x.exp()
        z = y * y
        y.index_add_(0, at, one)  # what the product needs is overwritten
        (z + y).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([2.0, 4.0, 6.0]) + np.exp([1.0, 2.0, 3.0]))
        w = tape.zeros(3)
        view, seen = w[1:], w.numpy()
        w.index_add_(0, at, one)
        assert (view.tolist(), seen.tolist()) == ([0.0, 1.0], [1.0, 0.0, 1.0])
        v = tape.zeros(4)
        v[1:].index_add_(0, at, one)
        assert v.tolist() == [0.0, 1.0, 0.0, 1.0]
        w.index_add_(0, tape.tensor([0, 1, 2]), w)
        assert w.tolist() == [2.0, 0.0, 2.0]


def test_other_ways_of_calling() -> None:
    a = np.zeros(3)
    for k in range(4):
        x, at = tape.tensor(a), tape.tensor([0, 0])
        given = tape.tensor([1.0, 2.0 + k])
        assert tape.index_add(x, 0, at, given, alpha=2).tolist() == [6.0 + 2 * k, 0.0, 0.0]
        assert x.index_add(dim=0, index=at, source=given).tolist() == [3.0 + k, 0.0, 0.0]
        assert x.scatter(0, tape.tensor([1]), 7.0 + k).tolist() == [0.0, 7.0 + k, 0.0]
        assert x.scatter(0, tape.tensor([1]), value=7.0 + k).tolist() == [0.0, 7.0 + k, 0.0]
        assert x.scatter(0, at, given, reduce="add").tolist() == [3.0 + k, 0.0, 0.0]
        with tape.no_grad():
            assert x.index_add_(0, at, given).tolist() == [3.0 + k, 0.0, 0.0]


def test_programs_record_them() -> None:
    def step(x: Any) -> Any:
        y = tape.zeros(2, 3).index_add(0, tape.tensor([1, 0, 1]), x * 2.0)
        y.scatter_(1, tape.tensor([[0], [2]]), x[:2, :1])
        return (y * y).sum()

    a = RNG.normal(size=(3, 3))
    for factor in (1.0, 2.0, 3.0):
        x = tape.tensor(a * factor, requires_grad=True)
        value = step(x)
        value.backward()
        found, (gradient,) = tape.record(step, a).value_and_grad(a * factor)
        np.testing.assert_allclose(found, value.item())
        assert x.grad is not None
        np.testing.assert_allclose(gradient, x.grad.numpy())


@pytest.mark.skipif(not NATIVELY, reason="in plain mode Python does it")
def test_what_has_been_seen_runs_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    x, at = tape.zeros(3).requires_grad_(), tape.tensor([0, 2])
    given = tape.tensor([1.0, 2.0], requires_grad=True)

    def calls() -> list[Any]:
        y = x * 1.0
        y.index_put_((at,), given, accumulate=True)
        y.index_put_((at,), given)
        tape.scatter(y, 0, at, given)
        return [y.index_add_(0, at, given), y.scatter_add(0, at, given), y.index_copy(0, at, given)]

    expected = [y.tolist() for y in calls()]
    for name in ("store_at", "value_to_write"):
        monkeypatch.delattr(writes, name)
    assert [y.tolist() for y in calls()] == expected
