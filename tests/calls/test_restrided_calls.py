"""A call on shapes seen before takes a shorter way: whatever was seen first, values and gradients are the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tape.func import vmap

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "product with itself": lambda x: x @ x,
    "product with a constant": lambda x: x @ tape.ones(x.shape[-1]),
    "product of a constant": lambda x: tape.ones(x.shape[0]) @ x,
    "clone": lambda x: x.clone(),
    "sum": lambda x: x.sum(),
    "sum over a dim": lambda x: x.sum(-1),
    "mean that keeps its dim": lambda x: x.mean(0, keepdim=True),
    "maximum": lambda x: x.amax(0),
    "power": lambda x: x**3,
    "whole power of a number": lambda x: 2**x,
    "number on the left": lambda x: 3 - x,
    "whole number": lambda x: x * 2,
    "comparison": lambda x: (x > 0.5) * x,
    "function": lambda x: x.sin(),
    "slice": lambda x: x[1:],
}


def _plain(function: Any, x: Any) -> Any:
    with tape.no_grad():
        found = function(tape.tensor(x, requires_grad=True))
    assert not found.requires_grad
    return found.numpy()


def _constant(function: Any, x: Any) -> Any:
    found = function(tape.tensor(x))
    assert not found.requires_grad
    return found.numpy()


def _graded(function: Any, x: Any) -> Any:
    found = function(tape.tensor(x, requires_grad=True))
    assert found.requires_grad
    return found.detach().numpy()


def _mapped(function: Any, x: Any) -> Any:
    found = vmap(function)(tape.tensor(np.stack([x, x + 1.0]), requires_grad=True))
    assert found.requires_grad
    return found[0].detach().numpy()


def _mapped_constant(function: Any, x: Any) -> Any:
    found = vmap(function)(tape.tensor(np.stack([x, x + 1.0])))
    assert not found.requires_grad
    return found[0].numpy()


def _recorded(function: Any, x: Any) -> Any:
    return np.asarray(tape.record(function, x)(x))


def _inference(function: Any, x: Any) -> Any:
    with tape.inference_mode():
        found = function(tape.tensor(x))
    assert found.is_inference()
    return found.numpy()


WAYS = (_plain, _constant, _graded, _mapped, _mapped_constant, _recorded, _inference)
EXTENTS = itertools.count(3)


@pytest.mark.parametrize("name", OPERATIONS)
def test_in_whatever_order(name: str) -> None:
    """Every way after every other, on a shape that nothing has seen: what the first leaves serves the second."""
    function = OPERATIONS[name]
    for first, second in itertools.permutations(WAYS, 2):
        n = next(EXTENTS)
        x = np.random.default_rng(n).uniform(0.1, 1.0, (n, n) if "product" in name else (n,))
        values = [way(function, x) for way in (first, second, first)]
        for value in values:
            np.testing.assert_allclose(value, values[0], rtol=1e-13)
            np.testing.assert_allclose(np.shape(value), np.shape(values[0]))
