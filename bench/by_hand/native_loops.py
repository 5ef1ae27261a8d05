"""Loops of native code around the tiny graph's value and gradients: by hand, and by a compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.by_hand import Array
from bench.by_hand.native import native
from bench.by_hand.numba_scalars import tiny_graph


@native
def hand_loop(calls: int, a: float, b: float, c: float, d: float, gradients: Array) -> float:
    """Return the sum of the values of calls that differ a little; leave the last gradients."""
    total = 0.0
    for i in range(calls):
        value, (gradients[0], gradients[1], gradients[2], gradients[3]) = tiny_graph(a + 1e-9 * i, b, c, d)
        total += value + gradients[3]
    return total


def native_loop(function: Any) -> Callable[..., float]:
    """Return the same loop around the `native` of a compiled function."""

    @native
    def loop(calls: int, a: float, b: float, c: float, d: float, gradients: Array) -> float:
        total = 0.0
        ga, gb, gc, gd = gradients[0:1], gradients[1:2], gradients[2:3], gradients[3:4]
        for i in range(calls):
            status, value = function(a + 1e-9 * i, b, c, d, ga, gb, gc, gd)
            total += value + gradients[3] + status
        return total

    return loop
