"""A tensor gets another slot: by writes, additions, and changes of requires_grad. Its tape goes on watching it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.recording.record import recorded

ROWS, LONG = 64, 1 << 11
"""A vector of 64 whose instruction alone reaches a matrix of 1 MB, which is watched."""


def added(u: Any, rate: Any) -> Any:
    u[1:-1] += rate
    return u


def added_twice(u: Any, rate: Any) -> Any:
    part = u[1:-1]
    part += rate
    part += rate
    return u


def written(u: Any, rate: Any) -> Any:
    u[1:-1] = rate
    return u


def written_at(u: Any, rate: Any) -> Any:
    u[[1, 5, 3]] = rate[:3]
    return u


def multiplied(u: Any, rate: Any) -> Any:
    u *= rate.sum()
    return u


def through_a_view(u: Any, rate: Any) -> Any:
    u.reshape(8, 8)[2:].mul_(rate.mean())
    return u


def copied(u: Any, rate: Any) -> Any:
    kept = u[:2]
    u.copy_(u * 2.0)
    u[1:-1].copy_(rate)
    return u + kept.sum()


def retained(u: Any, rate: Any) -> Any:
    u.retain_grad()
    u[1:-1] += rate
    u[2:5] = 0.0
    return u


def expanded(u: Any, rate: Any) -> Any:
    u[1:-1] += rate
    wide = u.expand(3, ROWS)
    wide.retain_grad()
    return (wide * 2.0).sum(0)


def put(u: Any, rate: Any) -> Any:
    u.index_put_((tape.tensor([3, 3, 4]),), rate[:3], accumulate=True)
    return u


CHANGES = [
    added, added_twice, written, written_at, multiplied, through_a_view, copied, retained, expanded, put
]  # fmt: skip


def gradient(change: Callable[..., Any], big: Any, rate: Any, *, means: bool) -> Any:
    big.grad = rate.grad = None
    u = big.mean(1) if means else big[:, 0] * 1.0
    u = change(u, rate)
    loss = (u * u).sum()
    del u
    loss.backward()
    return big.grad.numpy().copy(), rate.grad.numpy().copy()


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_loop_over_a_large_tensor(change: Callable[..., Any]) -> None:
    values, rates = np.random.default_rng(0).random((ROWS, LONG)), np.random.default_rng(1).random(ROWS - 2)
    small = [tape.tensor(a, requires_grad=True) for a in (values[:, :8].copy(), rates)]
    big = [tape.tensor(a, requires_grad=True) for a in (np.tile(values[:, :8], LONG // 8), rates)]
    expected = gradient(change, *small, means=True)
    for _ in range(4):
        found = gradient(change, *big, means=True)
        np.testing.assert_allclose(found[0][:, :8] * (LONG // 8), expected[0], rtol=1e-10)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-10)


@pytest.mark.usefixtures("own_tape")
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_nothing_is_left_of_a_tensor_that_had_several_slots(change: Callable[..., Any]) -> None:
    big, rate = tape.ones(ROWS, LONG, requires_grad=True), tape.ones(ROWS - 2, requires_grad=True)
    for _ in range(3):
        change(big.mean(1), rate)
    gc.collect()
    own = tape.tensors.modes.own_tape()
    own.collect()
    assert recorded() == 0
    assert not own.retained


@pytest.mark.usefixtures("own_tape")
def test_what_a_tensor_of_several_slots_held_is_dropped_when_it_dies() -> None:
    big = tape.ones(ROWS, LONG, requires_grad=True)
    u = (big * 2.0).square().mean(1)
    u[1:-1] += 1.0
    u[3] = 2.0
    assert len(tape.tensors.modes.own_tape().entries) > 0
    del u
    assert len(tape.tensors.modes.own_tape().entries) == 0


def test_gradients_are_asked_for_again_and_again() -> None:
    x = tape.ones(ROWS * LONG)
    for turn in range(4):
        x.requires_grad_()
        (x.square().sum() * (turn + 1.0)).backward()
        np.testing.assert_array_equal(x.grad[:3], np.full(3, 2.0 * sum(range(1, turn + 2))))
        x.requires_grad_(False)
