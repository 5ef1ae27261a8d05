"""Elements picked along a dim by an array of places, and put back: what the rules of sorts and selections are made of.

Tensors run both their own way, so that gradients of gradients are recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.records.op import dispatched

Array = np.ndarray[Any, Any]


@dispatched
def picked(x: Any, places: Array, dim: int) -> Any:
    """Return the elements of x at places along a dim; both have the same rank."""
    return np.take_along_axis(x, places, dim)


@dispatched
def placed(g: Any, places: Array, dim: int, length: int) -> Any:
    """Return ``length`` elements along a dim: g, added, at its places, and nothing (-0.0) elsewhere."""
    target = _nothing(g, dim, length)
    np.add.at(target, keys(places, dim), g)
    return target


@dispatched
def put(g: Any, places: Array, dim: int, length: int) -> Any:
    """Return the same as :func:`placed` where no place comes twice, which is faster."""
    target = _nothing(g, dim, length)
    np.put_along_axis(target, places, g, dim)
    return target


def _nothing(g: Array, dim: int, length: int) -> Array:
    return np.full((*g.shape[:dim], length, *g.shape[dim + 1 :]), -0.0, g.dtype)


def keys(places: Array, dim: int) -> tuple[Array, ...]:
    """Return the index by arrays that picks places along a dim."""
    grid = np.ogrid[tuple(slice(n) for n in places.shape)]
    return (*grid[:dim], places, *grid[dim + 1 :])


def narrow(y: Any, dims: tuple[int, ...], *, keepdim: bool) -> Any:
    """Return what a reduction over dims gave, with a dim of length one for each of them, without these unless kept."""
    return y if keepdim else y[tuple(0 if i in dims else slice(None) for i in range(len(y.shape)))]


def wide(y: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """Return what a reduction of x over dims gave, with a dim of length one for each of them."""
    return np.reshape(y, tuple(1 if i in dims else n for i, n in enumerate(x.shape)))
