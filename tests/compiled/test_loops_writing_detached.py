"""Loops that write to memory which tensors share that were detached before: each of them has a history of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

pytestmark = pytest.mark.quick


def by_the_detached(x: Any, s: Any, n: Any) -> Any:
    v = x * 1.0
    u = v.detach()
    while n > 0.5:
        n = n * 0.5
        u *= s
    return (v * x).sum() + (u * u).sum()


def by_a_part(x: Any, s: Any, n: Any) -> Any:
    v = (x * 1.0).detach()
    u = v.detach()[1:]
    while n > 0.5:
        n = n * 0.5
        u += s * s
    return (u * u).sum() + v.sum()


def of_a_constant(x: Any, s: Any, n: Any) -> Any:
    v = tape.ones(3)
    u = v.detach()
    while n > 0.5:
        n = n * 0.5
        u[1:] *= s
    return (v * x).sum() + (u * x).sum()


def written_before_too(x: Any, s: Any, n: Any) -> Any:
    """The detached has the gradients of the write before the loop, the other those of the writes in it."""
    v = x * 1.0
    u = v.detach()
    u *= s
    while n > 0.5:
        n = n * 0.5
        v += 0.0 * s
    return (v * v).sum() + u.sum()


def in_a_loop_within(x: Any, s: Any, n: Any) -> Any:
    v = x * 1.0
    u = v.detach()
    while n > 0.5:
        n, m = n * 0.5, s * 1.0
        while m > 0.5:
            m = m * 0.5
            u *= s
    return v.sum() + (u * u).sum()


def in_a_loop_within_made_there(x: Any, s: Any, n: Any) -> Any:
    total = 0.0 * s
    while n > 0.5:
        n, m = n * 0.5, s * 1.0
        v = x * 1.0
        u = v.detach()
        while m > 0.5:
            m = m * 0.5
            u *= s
        total = total + v.sum() + (u * u).sum()
    return total


grown = tape.compile(lambda a: a.mul_(1.5) + 0.0 * a)


def in_a_call(x: Any, s: Any, n: Any) -> Any:
    v = x * s
    u = v[1:]
    while n > 0.5:
        n = n * 0.5
        grown(u)
    return (v * x).sum() + u.sum()


LOOPS = [
    by_the_detached, by_a_part, of_a_constant, written_before_too, in_a_loop_within, in_a_loop_within_made_there,
    in_a_call,
]  # fmt: skip


@pytest.mark.parametrize("mode", ["eager", "default", "max"])
@pytest.mark.parametrize("function", LOOPS)
def test_each_has_its_own_gradient(function: Callable[..., Any], mode: str) -> None:
    dynamic = tape.value_and_grad(function, (0, 1))
    compiled = tape.compile(dynamic, mode=mode, check="never")
    for n in (4.0, 2.0, 4.0, 2.0, 1.0, 2.0, 8.0, 1.0):
        given = np.array([0.5, -0.25, 2.0]), 0.8 + 0.1 * n, n
        value, slopes = compiled(*given)
        expected, expected_slopes = dynamic(*given)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        for got, right in zip(slopes, expected_slopes, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-12, atol=1e-13)
