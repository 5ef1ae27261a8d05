"""Calls by what is given behind their tensors: native code repeats them, and nobody can tell."""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import tape
from kernels.operations import OPS
from tape.recording import promotion
from tape.recording.cached_calls import NATIVELY, cached_call
from tape.recording.record import recorded

RNG = np.random.default_rng(7)
CALLS: dict[str, tuple[Any, Any]] = {
    "sum": (lambda x: x.sum((0, 1)), lambda a: a.sum((0, 1))),
    "sum of a list": (lambda x: x.sum(dim=[0, -1], keepdim=True), lambda a: a.sum((0, 2), keepdims=True)),
    "mean": (lambda x: x.mean((1, 2)), lambda a: a.mean((1, 2))),
    "amax": (lambda x: x.amax((0, 2)), lambda a: a.max((0, 2))),
    "max": (lambda x: x.max(1).values, lambda a: a.max(1)),
    "places": (lambda x: x.min(dim=-1, keepdim=True)[1], lambda a: a.argmin(2)[..., None]),
    "argmax": (lambda x: x.argmax(), np.argmax),
    "argmin": (lambda x: tape.argmin(x, dim=0), lambda a: a.argmin(0)),
    "cumsum": (lambda x: x.cumsum(-2), lambda a: a.cumsum(1)),
    "cumprod": (lambda x: tape.cumprod(x, dim=0), lambda a: a.cumprod(0)),
    "cummax": (lambda x: x.cummax(2).values, lambda a: np.maximum.accumulate(a, 2)),
    "prod": (lambda x: x.prod(), np.prod),
    "prod of dims": (lambda x: x.prod((0, 1), keepdim=True), lambda a: a.prod((0, 1), keepdims=True)),
    "softmax": (lambda x: x.softmax(-1), lambda a: np.exp(a) / np.exp(a).sum(-1, keepdims=True)),
    "log_softmax": (lambda x: x.log_softmax(0), lambda a: a - np.log(np.exp(a).sum(0))),
    "logsumexp": (lambda x: x.logsumexp((0, 1)), lambda a: np.log(np.exp(a).sum((0, 1)))),
    "norm": (lambda x: x.norm(), lambda a: np.sqrt((a * a).sum())),
    "norm of order 1": (lambda x: x.norm(1, dim=1), lambda a: np.abs(a).sum(1)),
    "vector_norm": (lambda x: tape.linalg.vector_norm(x, 3.0, dim=0), lambda a: (np.abs(a) ** 3).sum(0) ** (1 / 3)),
    "var": (lambda x: x.var(), lambda a: a.var(ddof=1)),
    "std": (lambda x: x.std(1, unbiased=False), lambda a: a.std(1)),
    "sort": (lambda x: x.sort(1, descending=True).values, lambda a: -np.sort(-a, 1)),
    "argsort": (lambda x: x.argsort(0), lambda a: a.argsort(0, kind="stable")),
    "topk": (lambda x: x.topk(2, dim=1).values, lambda a: -np.sort(-a, 1)[:, :2]),
    "median": (lambda x: x.median(dim=1).values, lambda a: np.sort(a, 1)[:, 1]),
    "median of all": (lambda x: x.median(), lambda a: np.sort(a.ravel())[a.size // 2 - 1]),
    "any": (lambda x: (x > 0.5).any(1), lambda a: (a > 0.5).any(1)),
    "all": (lambda x: (x > 0.5).all(), lambda a: (a > 0.5).all()),
    "nansum": (lambda x: x.nansum(0), lambda a: a.sum(0)),
}  # fmt: skip
INTS = ("sum", "amax", "max", "places", "argmax", "argmin", "cumsum", "prod", "sort", "topk", "median", "any")


def seen(function: Any, given: Any) -> list[Any]:
    """The value, and the gradient if there is one."""
    x = tape.tensor(given, requires_grad=given.dtype.kind == "f")
    y = function(x)
    if y.requires_grad:
        (y * y).sum().backward()
    return [y.detach().numpy(), x.grad.numpy() if y.requires_grad else None]


@pytest.mark.parametrize("turned", [False, True], ids=["in order", "turned"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CALLS)
def test_later_calls_are_the_first(name: str, dtype: Any, turned: bool) -> None:
    function, truth = CALLS[name]
    given = np.asarray(RNG.uniform(0.1, 1.0, (2, 4, 3)), dtype)
    call = (lambda x: function(x.transpose(0, 2).clone().transpose(0, 2))) if turned else function
    first, *later = [seen(call, given) for _ in range(4)]
    np.testing.assert_allclose(first[0], truth(given), rtol=2e-5 if dtype == np.float32 else 1e-12, atol=1e-12)
    for one in later:
        for a, b in zip(one, first, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a is None or a.dtype == b.dtype


@pytest.mark.parametrize("name", INTS)
def test_ints(name: str) -> None:
    function, truth = CALLS[name]
    for _ in range(3):
        given = RNG.integers(0, 9, (2, 4, 3))
        if name in ("places", "argmax", "argmin"):
            given = RNG.permutation(24).reshape(2, 4, 3)
        found = seen(function, given)[0]
        np.testing.assert_array_equal(found, truth(given))


@pytest.mark.parametrize("name", CALLS)
def test_nobody_wants_gradients(name: str) -> None:
    function, truth = CALLS[name]
    for _ in range(3):
        given = RNG.uniform(0.1, 1.0, (2, 4, 3))
        with tape.no_grad():
            y = function(tape.tensor(given, requires_grad=True))
        z = function(tape.tensor(given))
        assert y.is_leaf
        assert not z.requires_grad
        np.testing.assert_array_equal(y.numpy(), z.numpy())
        np.testing.assert_allclose(y.numpy(), truth(given), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("any", "all", "places") and "arg" not in name])
def test_a_recorder_hears_of_them(name: str) -> None:
    function, truth = CALLS[name]
    given, other = RNG.uniform(0.1, 1.0, (2, 2, 4, 3))
    for _ in range(3):
        seen(function, given)
    programs = [tape.record(lambda x: (function(x) ** 2).sum(), given) for _ in range(2)]
    assert str(programs[0]) == str(programs[1])
    np.testing.assert_allclose(programs[1](other), (truth(other) ** 2).sum(), rtol=1e-12)


def test_arguments_are_told_apart() -> None:
    x = tape.tensor(RNG.uniform(size=(3, 3)))
    for _ in range(3):
        assert x.sum(1).shape == (3,)
        assert x.sum((1,)).shape == (3,)
        assert x.sum(1, True).shape == (3, 1)
        assert x.sum([0, 1]).shape == ()
        assert x.std(True).shape == ()
        assert x.std(1).shape == (3,)
        np.testing.assert_allclose(x.norm(1).item(), np.abs(x.numpy()).sum())
        np.testing.assert_allclose(x.norm(1.5).item(), (x.numpy() ** 1.5).sum() ** (1 / 1.5))
        assert x.sum(dtype=tape.float32).dtype == tape.float32
        assert x.argmax(dim=0).shape == (3,)
        assert x.argmax(0, keepdim=True).shape == (1, 3)
    dims = [0]
    assert x.sum(dims).shape == (3,)
    dims.append(1)
    assert x.sum(dims).shape == ()


@pytest.mark.parametrize("shape", [(), (5,), (1,), (0, 3)])
def test_shapes_at_the_edge(shape: tuple[int, ...]) -> None:
    given = RNG.uniform(0.1, 1.0, shape)
    calls = [
        lambda x: x.prod(), lambda x: x.sum((0,)) if shape else x.sum(), lambda x: x.cumsum(0), lambda x: x.softmax(-1),
        lambda x: x.sort().values, lambda x: x.logsumexp(-1), lambda x: x.norm(),
        *([lambda x: x.max(0).values, lambda x: x.argmax(), lambda x: x.topk(1).indices] if 0 not in shape else []),
    ]  # fmt: skip
    for call in calls:
        first, *later = [seen(call, given) for _ in range(4)]
        for one in later:
            assert one[0].shape == first[0].shape
            for a, b in zip(one, first, strict=True):
                np.testing.assert_array_equal(a, b)


def test_nan_ties_and_signs_of_zero() -> None:
    given = np.array([[0.0, -0.0, np.nan], [2.0, 2.0, 1.0], [-0.0, 0.0, -1.0]])
    for call in (
        lambda x: x.max(1).values,
        lambda x: x.min(1).values,
        lambda x: x.cummax(1).values,
        lambda x: x.prod(1),
    ):
        first, *later = [seen(call, given) for _ in range(3)]
        for one in later:
            for a, b in zip(one, first, strict=True):
                np.testing.assert_array_equal(a, b)
                np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
    for _ in range(3):
        values, places = tape.tensor(given).max(1)
        assert places.tolist() == [2, 0, 0]
        assert np.isnan(values.numpy()[0])


def test_a_pair_is_what_it_was() -> None:
    x = tape.tensor([[1.0, 3.0], [4.0, 2.0]], requires_grad=True)
    for _ in range(3):
        found = x.max(1)
        assert type(found) is tape.return_types.max
        assert found.indices.dtype == tape.int64
        assert not found.indices.requires_grad
        assert found.values.grad_fn.name() == "MaxBackward0"
    values, places = found
    x.grad = None
    values.sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert places.tolist() == [1, 0]


def test_what_warns_warns_each_time() -> None:
    x = tape.tensor([1.0])
    for _ in range(3):
        with pytest.warns(UserWarning, match="degrees of freedom"):
            x.var()


def test_errors_come_each_time() -> None:
    x = tape.tensor([[1.0, 2.0]], requires_grad=True)
    for _ in range(3):
        x.cumsum(1)
        with pytest.raises(IndexError):
            x.cumsum(2)
        with pytest.raises(IndexError):
            x.max(dim=-3)


@pytest.mark.skipif(not NATIVELY, reason="native code repeats nothing here")
def test_python_does_not_run_again() -> None:
    x, ran = tape.tensor(RNG.uniform(size=(3, 3)), requires_grad=True), []

    @cached_call()
    def total(x: Any, dim: Any = None) -> Any:
        ran.append(dim)
        return tape.prod.__wrapped__(x, dim)

    for _ in range(4):
        total(x, 0)
        total(x, dim=0)
        total(x)
    assert ran == [0, 0, None]
    assert total.__name__ == "total"


@pytest.mark.skipif(not NATIVELY, reason="native code repeats nothing here")
@pytest.mark.parametrize(
    "call", [lambda x: x.unsqueeze(dim=1), lambda x: x.permute(dims=(1, 0)), lambda x: x.squeeze()]
)
def test_python_does_not_run_again_for_views(call: Any) -> None:
    x = tape.tensor(RNG.uniform(size=(2, 3)), requires_grad=True)
    first, *_ = [call(x) for _ in range(3)]
    events: list[str] = []
    sys.setprofile(lambda frame, event, _: events.append(f"{event} {frame.f_code.co_name}"))
    try:
        later = call(x)
    finally:
        sys.setprofile(None)
    assert [event for event in events if event.startswith("call ") and "<lambda>" not in event] == []
    np.testing.assert_array_equal(later.detach(), first.detach())


def summed(x: tape.Tensor, axis: int) -> tape.Tensor:
    return promotion.reduction(OPS["sum"], x, (axis,), False)  # type: ignore[arg-type]


@cached_call()
def by_place(x: tape.Tensor, first: Any = None, second: Any = None) -> tape.Tensor:
    del first
    return summed(x, 0 if second is None else 1)


@cached_call()
def by_type(x: tape.Tensor, items: Any) -> tape.Tensor:
    return summed(x, {bool: 0, int: 1, float: 2, type(None): 0}[type(items[-1])])


def test_names_and_types_are_told_apart() -> None:
    """What a key has for them is not what it has for other arguments: of equal items, of a tuple of names."""
    given = RNG.uniform(size=(2, 3, 4))
    x = tape.tensor(given)
    for _ in range(3):
        np.testing.assert_array_equal(by_place(x, ("first",), 0), given.sum(1))
        np.testing.assert_array_equal(by_place(x, first=0), given.sum(0))
        np.testing.assert_array_equal(by_place(x, ("second",), None), given.sum(0))
        np.testing.assert_array_equal(by_place(x, second=()), given.sum(1))
        for axis, items in enumerate(((True,), (1,), (1.0,))):
            np.testing.assert_array_equal(by_type(x, items), given.sum(axis))
            np.testing.assert_array_equal(by_type(x, list(items)), given.sum(axis))
        np.testing.assert_array_equal(by_type(x, [1, None]), given.sum(0))


def test_a_list_that_has_changed_is_another_argument() -> None:
    given = RNG.uniform(size=(2, 3, 4))
    x, items = tape.tensor(given), ["what nobody else refers to"[:3], 1]
    for k in (1, True, 1.0, 1, 1.0):
        items[-1] = k
        axis = {bool: 0, int: 1, float: 2}[type(k)]
        for _ in range(2):
            np.testing.assert_array_equal(by_type(x, items), given.sum(axis))


@pytest.mark.skipif(not NATIVELY, reason="native code repeats nothing here")
def test_a_function_of_several_operations_is_run() -> None:
    ran = []

    @cached_call()
    def twice(x: Any, dim: Any) -> Any:
        ran.append(dim)
        return tape.prod.__wrapped__(x, dim) + tape.prod.__wrapped__(x, dim)

    x = tape.tensor(RNG.uniform(size=(3, 3)), requires_grad=True)
    for _ in range(3):
        np.testing.assert_allclose(twice(x, 0).detach().numpy(), 2 * x.detach().numpy().prod(0))
    assert len(ran) == 3


def test_nothing_stays() -> None:
    x = tape.tensor(RNG.uniform(size=(8, 8)), requires_grad=True)

    def step() -> None:
        x.grad = None
        for y in (x.max(1).values, x.softmax(-1), x.sort(1).values, x.norm(), x.prod(), x.cumsum(0), x.var(1)):
            y.sum().backward()
        x.topk(2).values.sum().backward()

    def blocks() -> int:
        recorded()  # drops what is dead
        gc.collect()
        return sys.getallocatedblocks()

    steps = 600
    for _ in range(steps // 2):
        step()
    before = blocks()
    for _ in range(steps):
        step()
    assert blocks() - before < steps


def test_no_warnings_of_floating_point() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (np.array([1e300, 1e300, -np.inf, np.inf]), np.full(20_000, 1e300)):
            x = tape.tensor(given, requires_grad=True)
            for _ in range(3):
                for name in ("cumsum", "cumprod", "softmax", "log_softmax", "logsumexp", "logcumsumexp", "sort"):
                    getattr(x, name)(0)
                for name in ("sum", "mean", "prod", "var", "std", "norm", "median", "amax", "argmax"):
                    getattr(x, name)()
