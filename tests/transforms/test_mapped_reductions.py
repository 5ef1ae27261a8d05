"""Values put and reduced by indices that differ between examples: against a loop over the examples."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tape
from tape import func

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
CASES: dict[str, Any] = {
    **{
        f"scatter_reduce {reduce} {include}": functools.partial(
            lambda x, i, v, reduce, include: x.scatter_reduce(1, i, v, reduce, include_self=include),
            reduce=reduce, include=include,
        )
        for reduce in REDUCTIONS
        for include in (True, False)
    },
    **{
        f"index_reduce {reduce} {include}": functools.partial(
            lambda x, i, v, reduce, include: x.index_reduce(0, i[:, 0], v, reduce, include_self=include),
            reduce=reduce, include=include,
        )
        for reduce in REDUCTIONS[1:]
        for include in (True, False)
    },
    "scatter multiply": lambda x, i, v: x.scatter(0, i, v, reduce="multiply"),
    "scatter multiply a number": lambda x, i, v: (x * v).scatter(0, i, 3.0, reduce="multiply"),
    "scatter add": lambda x, i, v: x.scatter(0, i, v, reduce="add"),
    "scatter add a number": lambda x, i, v: (x * v).scatter(1, i, 3.0, reduce="add"),
    "put added": lambda x, i, v: x.put(i, v, accumulate=True),
    "put": lambda x, i, v: x.put(i[0], v[0]),
    "put_ added": lambda x, i, v: (x * 1.0).put_(i - 6, v, accumulate=True),
}  # fmt: skip


def _arguments(seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    x, v = rng.normal(size=(4, 2, 3)), rng.normal(size=(4, 2, 3))
    v[0, 0, 0] = 0.0  # prod
    return x, rng.integers(0, 2, (4, 2, 3)), v


@pytest.mark.quick
@pytest.mark.parametrize("name", CASES)
def test_mapped_indices_do_as_a_loop_over_examples(name: str) -> None:
    f = CASES[name]
    x, at, v = _arguments()
    if name == "put":  # the last of several values stays: here each place has one
        at[:, 0] = [[0, 1, 2], [2, 4, 0], [5, 3, 1], [-1, 1, 0]]
    x, v = (tape.tensor(a, requires_grad=True) for a in (x, v))
    at = tape.tensor(at)
    batched = func.vmap(f)(x, at, v)
    looped = tape.stack([f(x[k] * 1.0, at[k], v[k]) for k in range(4)])
    np.testing.assert_allclose(batched.detach().numpy(), looped.detach().numpy(), rtol=1e-13)
    weights = np.cos(np.arange(24.0)).reshape(4, 2, 3)
    for got, expected in zip(
        tape.autograd.grad((batched * weights).sum(), (x, v), allow_unused=True),
        tape.autograd.grad((looped * weights).sum(), (x, v), allow_unused=True),
        strict=True,
    ):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["scatter_reduce amax True", "index_reduce mean False", "put added"])
def test_gradients_within_vmap_and_indices_alone(name: str) -> None:
    f = CASES[name]
    x, at, v = (tape.tensor(a) for a in _arguments(1))

    def loss(x: Any, i: Any, v: Any) -> Any:
        return (f(x, i, v) ** 2).sum()

    got = func.vmap(func.grad(loss), in_dims=(None, 0, None))(x[0], at, v[0])
    expected = tape.stack([func.grad(loss)(x[0], at[k], v[0]) for k in range(4)])
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12)


def test_integers_and_places_out_of_bounds() -> None:
    x, at, v = tape.zeros(4, 3, dtype=tape.int64), tape.tensor([[0, 1, 1]] * 4), tape.tensor([[5, -7, 9]] * 4)
    for reduce in REDUCTIONS:
        got = func.vmap(lambda x, i, v, r=reduce: x.scatter_reduce(0, i, v, r))(x, at, v)
        expected = tape.stack([x[k].scatter_reduce(0, at[k], v[k], reduce) for k in range(4)])
        np.testing.assert_array_equal(got.numpy(), expected.numpy())
        assert got.dtype == expected.dtype
    with pytest.raises((IndexError, RuntimeError), match=r"bounds|index"):
        func.vmap(lambda x, i, v: x.scatter_reduce(0, i, v, "amax"))(x, at + 5, v)
