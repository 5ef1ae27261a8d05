"""New shapes without end: memory stays, and a shape that comes again after 10,000 others costs what a new one does."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.bars import NEW_SHAPES, SHAPE_AGAIN, Scoreboard
from bench.rows import tape

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHERS, NEW, WARM = 10_000, 50_000, 5_000


def _shapes() -> Iterator[tuple[int, int, int]]:
    """Yield 54,872 shapes, of three axes that are short."""
    return ((a, b, c) for a in range(2, 40) for b in range(2, 40) for c in range(2, 40))


def _backward(shape: tuple[int, ...]) -> Any:
    """Differentiate what has elementwise operations, a view, a reduction and a matrix product."""
    lib = tape()
    x = lib.tensor(np.full(shape, 0.5), requires_grad=True)
    y = lib.exp(x * x)[1:] - x[:-1] * 3.0
    (y.sum((0, 2)) @ x[0, :, 0]).backward()
    return x.grad


def _seconds(shape: tuple[int, ...]) -> float:
    start = time.thread_time()
    _backward(shape)
    return time.thread_time() - start


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.long
def test_again_after_others(scoreboard: Scoreboard) -> None:
    """The time of shapes that come again, over that of new ones, in one run."""
    shapes = _shapes()
    seen = [next(shapes) for _ in range(200)]
    for shape in seen:
        _backward(shape)
    for _ in range(OTHERS):
        _backward(next(shapes))
    pairs = [(_seconds(again), _seconds(next(shapes))) for again in seen]
    figure = median(first for first, _ in pairs) / median(second for _, second in pairs)
    scoreboard.add(SHAPE_AGAIN, figure, f"{figure:.2f} times")


@pytest.mark.long
def test_memory_over_new_shapes(scoreboard: Scoreboard) -> None:
    """The growth of resident memory over 50,000 shapes, after 5,000."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not tell how much memory is resident")
    shapes = _shapes()
    for _ in range(WARM):
        _backward(next(shapes))
    before = _resident()
    for _ in range(NEW - WARM):
        _backward(next(shapes))
    figure = (_resident() - before) / 1e6
    scoreboard.add(NEW_SHAPES, figure, f"{figure:.1f} MB")
