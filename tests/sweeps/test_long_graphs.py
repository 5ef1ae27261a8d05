"""Sweeps of long and sparse graphs, whose gradient buffers are found by distance or by key."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import numpy as np
import pytest

import tape


def numbers(count: int) -> list[Any]:
    return [tape.tensor(1.0 + k / count / 100, requires_grad=True) for k in range(count)]


def chain(leaves: list[Any], length: int) -> Any:
    """A sum that goes round the leaves: each is there so often."""
    y = leaves[0] * 1.0
    for k in range(length):
        y = y + leaves[k % len(leaves)] * 2.0
    return y


@pytest.mark.parametrize(("length", "count"), [(50, 3), (2_000, 700), (40_000, 1), (40_000, 2_500)])
@pytest.mark.parametrize("twice", [False, True])
def test_a_chain_over_leaves(length: int, count: int, twice: bool) -> None:
    leaves = numbers(count)
    end = chain(leaves, length)
    expected = 2.0 * np.bincount(np.arange(length) % count, minlength=count)
    expected[0] += 1.0
    if twice:
        assert [g.item() for g in tape.autograd.grad(end, leaves, retain_graph=True)] == expected.tolist()
    end.backward()
    assert [x.grad.item() for x in leaves] == expected.tolist()


@pytest.mark.parametrize("apart", [0, 300, 70_000])
@pytest.mark.parametrize("count", [3, 400])
def test_operands_from_far_back(apart: int, count: int) -> None:
    """Between them and the root stands what the root does not lead to, and what it leads to is dense at both ends."""
    (x,) = numbers(1)
    early = [x * float(k) for k in range(count)]
    other = tape.tensor(1.0, requires_grad=True)
    between, kept = other * 1.0, []
    for _ in range(apart):
        between = between * 1.0
        kept.append(between)
    end = chain([x], 50)
    for one in early:
        end = end + one * one
    end.backward()
    assert x.grad.item() == pytest.approx(101.0 + 2 * x.item() * sum(k * k for k in range(count)), rel=1e-12)
    assert other.grad is None
    between.backward()
    assert other.grad.item() == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs(seed: int) -> None:
    """Against a sweep over lists: operands from anywhere, several roots, some gradients of intermediate results."""
    random = Random(seed)  # noqa: S311 (no secret)
    length = (60, 800, 6_000, 20_000)[seed]
    leaves = numbers(length // 10)
    made, recipe = list(leaves), []
    for _ in range(length):
        reach = random.choice((5, 50, len(made)))
        i, j = (random.randrange(max(len(made) - reach, 0), len(made)) for _ in range(2))
        c = random.choice((-0.5, 0.25, 0.5))
        recipe.append((i, j, c))
        made.append(made[i] * c + made[j])
    roots = random.sample(range(len(leaves), len(made)), 3)
    cotangents = np.zeros(len(made))
    cotangents[roots] = 1.0
    for at in range(len(made) - 1, len(leaves) - 1, -1):
        i, j, c = recipe[at - len(leaves)]
        cotangents[i] += c * cotangents[at]
        cotangents[j] += cotangents[at]
    asked = [*range(len(leaves)), *random.sample(range(len(leaves), len(made)), 5)]
    found = tape.autograd.grad(
        [made[k] for k in roots], [made[k] for k in asked], retain_graph=True, materialize_grads=True
    )
    np.testing.assert_allclose([g.item() for g in found], cotangents[asked], rtol=1e-9)
    tape.autograd.backward([made[k] for k in roots])
    reached = [0.0 if x.grad is None else x.grad.item() for x in leaves]
    np.testing.assert_allclose(reached, cotangents[: len(leaves)], rtol=1e-9)


def test_many_leaves_take_no_more_time() -> None:
    """Their gradient buffers stand among those of slots: they must not be in each other's way."""

    def seconds(count: int) -> float:
        best = float("inf")
        for _ in range(4):
            leaves = numbers(count)
            end = leaves[0] * 1.0
            for k in range(30_000):
                end = end * leaves[k % count]
            start = time.process_time()
            end.backward()
            best = min(best, time.process_time() - start)
        return best

    assert seconds(1_000) < 5 * seconds(2)
