"""Loops in which it changes from iteration to iteration which variables hold the same tensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

pytestmark = pytest.mark.quick


def bisected(s: Any) -> Any:
    """Return the last middle, which is one of the ends by then."""
    lo, hi = tape.tensor(-10.0), tape.tensor(10.0)
    for _ in range(40):
        mid = 0.5 * (lo + hi)
        if mid**3 + s * mid - 1 > 0:
            hi = mid
        else:
            lo = mid
    return mid * s


def best(s: Any) -> Any:
    """Remember where something was least; nobody reads that before the end."""
    x = s * 1.0
    least, where = x * x + 10, x
    for _ in range(30):
        x = 3.7 * x * (1 - x / 10)
        distance = (x - 3) ** 2
        if distance < least:
            least, where = distance, x
    return where * least


def largest(s: Any) -> Any:
    """Compare with the largest so far, which is the latest at times: an iteration reads both."""
    y = s * 1.0
    most = y
    for _ in range(30):
        y = 3.7 * y * (1 - y / 10)
        most = max(most, y)
    return most


def of_vectors(s: Any) -> Any:
    """Keep the better of two arrays."""
    x = tape.stack([s, 2.0 * s, s * s])
    kept = x
    for _ in range(20):
        x = tape.sin(3.0 * x) + 0.3 * x
        if (x * x).sum() < (kept * kept).sum():
            kept = x
    return kept.sum()


def in_steps(s: Any) -> Any:
    """Search in each step of a loop."""
    y = s * 1.0
    for _ in range(8):
        lo, hi = y * 0.0 - 5.0, y * 0.0 + 5.0
        for _ in range(20):
            mid = 0.5 * (lo + hi)
            if mid + 0.1 * mid**3 > y:
                hi = mid
            else:
                lo = mid
        y = 0.5 * y + mid
    return y


def exchanged(s: Any) -> Any:
    """Exchange two that are one at times."""
    a, b = s * 1.0, s * 0.5
    for _ in range(25):
        if tape.sin(40.0 * a) > 0.2:
            a, b = b, 0.9 * a + 0.1
        elif tape.sin(40.0 * a) < -0.6:
            b = a
        else:
            a = 0.8 * a + 0.3 * b
    return a


LOOPS = [bisected, best, largest, of_vectors, in_steps, exchanged]
POINTS = np.linspace(0.7, 2.3, 24).tolist()


def check(function: Callable[[Any], Any], **options: Any) -> Any:
    """Compare a compiled function with dynamic mode, call by call; return it."""
    compiled = tape.compile(tape.value_and_grad(function), **options)
    dynamic = tape.value_and_grad(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tape.errors.CompileWarning)
        for s in [*POINTS, *POINTS[::-1], *POINTS]:
            np.testing.assert_allclose(compiled(s), dynamic(s), rtol=1e-9, atol=1e-12, err_msg=str(s))
    return compiled


@pytest.mark.parametrize("mode", ["default", "max"])
@pytest.mark.parametrize("function", LOOPS)
def test_one_program_serves_all_calls(function: Callable[[Any], Any], mode: str) -> None:
    compiled = check(function, mode=mode)
    assert any(program.has_loops for program in compiled.programs), compiled.explain()
    assert compiled.calls["recorded"] < 7, compiled.explain()
    assert sum(program.hits for program in compiled.programs) > 15, compiled.explain()


def by_identity(s: Any) -> Any:
    """Ask whether two are one."""
    x = kept = s * 1.0
    for _ in range(12):
        x = 3.7 * x * (1 - x / 10) if kept is x else x * 0.7
        if tape.sin(9.0 * x) > 0.0:
            kept = x
    return kept + x


def among(s: Any) -> Any:
    """Ask whether one is among others."""
    x = kept = s * 1.0
    for _ in range(12):
        x = 3.7 * x * (1 - x / 10) if any(x is each for each in [kept]) else x * 0.7
        if tape.sin(9.0 * x) > 0.0:
            kept = x
    return kept + x


def written(s: Any) -> Any:
    """Write to what two hold at times."""
    x = s * tape.ones(2)
    kept = x * 1.0
    for _ in range(12):
        x *= 0.8
        if tape.sin(9.0 * x.sum()) > 0.0:
            kept = x
            x = x * 1.1
        elif tape.sin(9.0 * x.sum()) > -0.5:
            kept = x
    return (kept * x).sum()


def both_are_read(s: Any) -> Any:
    """Read two behind the loop that are one at times."""
    x = kept = s * 1.0
    for _ in range(12):
        x = 3.7 * x * (1 - x / 10)
        if tape.sin(9.0 * x) > 0.0:
            kept = x
    return kept + 2.0 * x


def left_early(s: Any) -> Any:
    """Leave within an iteration, which reads both."""
    x = kept = s * 1.0
    for _ in range(30):
        x = 3.7 * x * (1 - x / 10)
        if x > 9.0:
            break
        kept = max(kept, x)
    return kept


def held_elsewhere(s: Any) -> Any:
    """Give a tensor away that the caller still holds."""
    x = s * 1.0

    def least(y: Any) -> Any:
        for _ in range(9):
            if tape.sin(9.0 * y) > 0.3:
                y = y * 0.8
        return y

    return least(x) + 3.0 * x


def in_a_list(s: Any) -> Any:
    """Hold what a list has, too."""
    x = s * 1.0
    held = [x]
    for _ in range(12):
        x = 3.7 * x * (1 - x / 10)
        if tape.sin(9.0 * x) > 0.0:
            held[0] = x
        else:
            x = x + 0.1 * held[0]
    return held[0]


def ends_in_two_ways(s: Any) -> Any:
    """Leave by a value or behind the last iteration, before which one more is apart from the others."""
    n, x, y, z = 3.7 * s, 0.1 * s, 0.5 * s, 1.0 * s
    for _ in range(6):
        x, m = y, n * 1.0
        while m > 0.5:
            y, z, m = tape.sin(x) + z, abs(z) + 0.5, m * 0.5
        z = x / (1.0 + y * y) + 0.1 * m
        n = n * 0.5
        if n < 0.1:
            break
    return x * y + z


OTHERS = [ends_in_two_ways, by_identity, among, written, both_are_read, left_early, held_elsewhere, in_a_list]


@pytest.mark.parametrize("mode", ["default", "max"])
@pytest.mark.parametrize("function", OTHERS)
def test_others_are_right(function: Callable[[Any], Any], mode: str) -> None:
    check(function, mode=mode, check="never")
