"""Graphs of numbers, which are swept in one pass, against sums over paths in Python; and where that pass gives way."""

from __future__ import annotations

import gc
from importlib import import_module
from random import Random
from typing import Any

import numpy as np
import pytest

import tape
from tape.recording.record import recorded
from tests.support.pytorch_outcomes import LIBRARIES

UNARY: list[tuple[Any, Any]] = [
    (lambda x: x.sin(), np.cos),
    (lambda x: -x, lambda _: -1.0),
    (lambda x: x * 0.5, lambda _: 0.5),
    (lambda x: x + 1.0, lambda _: 1.0),
    (lambda x: x.tanh(), lambda x: 1.0 - np.tanh(x) ** 2),
]
BINARY: list[tuple[Any, Any]] = [
    (lambda x, y: x * y, lambda x, y: (y, x)),
    (lambda x, y: x + y, lambda _x, _y: (1.0, 1.0)),
    (lambda x, y: x - y, lambda _x, _y: (1.0, -1.0)),
]


def graph(seed: int, shape: tuple[int, ...], dtype: Any, between: Any = None) -> tuple[list[Any], list[Any], list[Any]]:
    """Return nodes of a random graph of numbers, which of them are leaves, and how each was computed."""
    random = Random(seed)  # noqa: S311 (programs, not secrets)
    leaves = [tape.tensor(np.full(shape, random.uniform(-1, 1), dtype), requires_grad=True) for _ in range(4)]
    nodes: list[Any] = list(leaves)
    edges: list[list[tuple[int, float]]] = [[] for _ in leaves]
    for _ in range(random.choice((1, 5, 60))):
        recent = nodes[-6:] if random.random() < 0.8 else nodes
        i = len(nodes) - 1 - recent[::-1].index(random.choice(recent))
        j = random.randrange(len(nodes))
        if between is not None and random.random() < 0.2:
            made, slopes = between(nodes[i]), [(i, 1.0)]
        elif random.random() < 0.4:
            f, slope = random.choice(UNARY)
            made, slopes = f(nodes[i]), [(i, float(slope(nodes[i].item())))]
        else:
            g, pair = random.choice(BINARY)
            a, b = pair(nodes[i].item(), nodes[j].item())
            made, slopes = g(nodes[i], nodes[j]), [(i, a), (j, b)]
        nodes.append(made)
        edges.append(slopes)
    return nodes, leaves, edges


def slopes_of(edges: list[list[tuple[int, float]]], cotangent: float) -> list[float]:
    """Return the derivatives of the last node by all nodes."""
    found = [0.0] * len(edges)
    found[-1] = cotangent
    for k in range(len(edges) - 1, -1, -1):
        for i, slope in edges[k]:
            found[i] += slope * found[k]
    return found


def reached(edges: list[list[tuple[int, float]]]) -> set[int]:
    found, waiting = set(), [len(edges) - 1]
    while waiting:
        k = waiting.pop()
        if k not in found:
            found.add(k)
            waiting += [i for i, _ in edges[k]]
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_gradients_are_sums_over_paths(shape: tuple[int, ...], dtype: Any) -> None:
    for seed in range(30):
        nodes, leaves, edges = graph(seed, shape, dtype)
        expected, seen, close = slopes_of(edges, 1.0), reached(edges), 1e-4 if dtype is np.float32 else 1e-12
        nodes[-1].backward(tape.ones(shape, dtype=nodes[-1].dtype), retain_graph=True)
        for k, leaf in enumerate(leaves):
            assert (leaf.grad is not None) == (k in seen)
            if leaf.grad is not None:
                assert leaf.grad.shape == shape
                assert leaf.grad.dtype == leaf.dtype
                np.testing.assert_allclose(leaf.grad.item(), expected[k], rtol=close)
        nodes[-1].backward(tape.full(shape, 2.0, dtype=nodes[-1].dtype))
        for k, leaf in enumerate(leaves):
            if leaf.grad is not None:
                np.testing.assert_allclose(
                    leaf.grad.item(), 3 * expected[k], rtol=1e-4 if dtype is np.float32 else 1e-12
                )


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda x: x.expand(3).sum() / 3.0, id="views and sums"),
        pytest.param(lambda x: tape.stack([x, x * 0.5]).sum() - x * 0.5, id="joins"),
        pytest.param(lambda x: x.clone().mul_(2.0) * 0.5, id="writes"),
        pytest.param(lambda x: tape.special.logsumexp(x.reshape(1), 0), id="routines"),
    ],
)
def test_other_operations_between_numbers(between: Any) -> None:
    for seed in range(25):
        nodes, leaves, edges = graph(seed, (), np.float64, between)
        expected, seen = slopes_of(edges, 1.0), reached(edges)
        wanted = [leaf for k, leaf in enumerate(leaves) if k in seen]
        asked = tape.autograd.grad(nodes[-1], wanted, retain_graph=True) if len(edges) > 4 else ()
        nodes[-1].backward(retain_graph=True)
        for k, leaf in enumerate(leaves):
            if k in seen:
                np.testing.assert_allclose(leaf.grad.item(), expected[k], rtol=1e-12)
        for leaf, g in zip(wanted, asked, strict=False):
            assert g.item() == leaf.grad.item()


def test_some_leaves_in_any_order() -> None:
    a, b, c = (tape.tensor(v, requires_grad=True) for v in (2.0, 3.0, 5.0))
    y = a * b + b * c
    asked = tape.autograd.grad(y, [c, a], retain_graph=True)
    assert [g.item() for g in asked] == [3.0, 3.0]
    asked = tape.autograd.grad(y, [c, b, a], retain_graph=True)
    assert [g.item() for g in asked] == [3.0, 7.0, 3.0]
    row = [tape.tensor([v], requires_grad=True) for v in (2.0, 3.0, 5.0)]
    asked = tape.autograd.grad(row[0] * row[1] + row[2], row[::-1])
    assert [g.tolist() for g in asked] == [[1.0], [2.0], [3.0]]


def test_all_of_a_chain_is_dropped_and_nothing_else() -> None:
    before = recorded()
    x = tape.tensor(0.5, requires_grad=True)
    kept = x * 3.0
    y = x
    for _ in range(500):
        y = y.sin()
    end = y * kept
    other = kept.exp()
    end.backward()
    assert recorded() == before + 1  # other's; what saved nothing that is needed goes with the rest
    with pytest.raises(RuntimeError, match="second time"):
        end.backward()
    with pytest.raises(RuntimeError, match="second time"):
        other.backward()
    del y, end, kept, other
    assert recorded() == before


@pytest.mark.parametrize("library_name", LIBRARIES)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_sums_of_leaves_stay_and_sums_of_what_is_freed_go(shape: tuple[int, ...], library_name: str) -> None:
    library = import_module(library_name)
    x, one = library.ones(shape, requires_grad=True), library.ones(shape)
    low = x + x
    middle = low - x
    (middle * middle).backward(one)
    middle.backward(one)
    assert x.grad.tolist() == (one * 3.0).tolist()
    high = middle * middle + x
    (high - x).backward(one)
    with pytest.raises(RuntimeError, match="second time"):
        high.backward(one)
    low.backward(one)
    assert x.grad.tolist() == (one * 7.0).tolist()


def test_long_chains_with_leaves_far_away() -> None:
    x, far = tape.tensor(1.0, requires_grad=True), tape.tensor(2.0, requires_grad=True)
    early = far * 3.0
    y = x
    for k in range(80_000):
        y = y * 1.0
        if k % 10_000 == 0:  # far from the end: a bucket by key
            y = y + early
    y.backward()
    assert x.grad is not None
    assert far.grad is not None
    assert x.grad.item() == 1.0
    assert far.grad.item() == 24.0


def test_hooks_of_leaves_and_results_run() -> None:
    seen = []
    for hooked in range(3):
        x = tape.tensor(0.5, requires_grad=True)
        y = x.sin()
        z = y * y
        (x, y, z)[hooked].register_hook(lambda g: seen.append(g.item()))
        z.backward()
        np.testing.assert_allclose(x.grad.item(), np.sin(1.0))
    np.testing.assert_allclose(seen, [np.sin(1.0), 2 * np.sin(0.5), 1.0])


def test_what_a_finalizer_records_before_the_chain_is_dropped_stays() -> None:
    class Recording:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            kept.append(w * 2.0)

    kept: list[Any] = []
    w = tape.tensor(3.0, requires_grad=True)
    thresholds = gc.get_threshold()
    gc.collect()
    try:
        for k in range(60):
            leaves = [tape.tensor(1.0, requires_grad=True) for _ in range(60)]
            y = leaves[0] * 2.0
            for x in leaves:
                y = y * x
            Recording()
            gc.set_threshold(gc.get_count()[0] + k)  # the collector runs when so many more objects have been made
            y.backward()
            gc.set_threshold(*thresholds)
            assert [x.grad.item() for x in leaves if x.grad is not None] == [4.0] + [2.0] * 59
        gc.collect()
        assert len(kept) == 60
        for one in kept:
            one.backward()
    finally:
        gc.set_threshold(*thresholds)
    assert w.grad is not None
    assert w.grad.item() == 120.0
