"""The table of what has places, counts or truths as its result: no gradient passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.kinds.routine import Routine
from kernels.ops.sorting import ordered
from kernels.records.take_put_along import Array


def _counted(name: str, doc: str, forward: Any, *samples: Any) -> None:
    """Declare an operation without a gradient."""
    Routine(name=name, doc=doc, grad_fn="", function=False, forward=forward, vjp=None, samples=samples)


def _over(name: str, doc: str, function: Any) -> None:
    def forward(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
        return np.asarray(function(x, axis=dims, keepdims=keepdim))

    _counted(name, doc, forward, (((2, 3),), {"dims": (0,), "keepdim": True}))


_over("any", "Whether an element over dims is nonzero or True.", np.logical_or.reduce)
_over("all", "Whether all elements over dims are nonzero or True.", np.logical_and.reduce)
_over("count_nonzero", "How many elements over dims are nonzero or True.", np.count_nonzero)


def _place(function: Any) -> Any:
    return lambda x, *, dim, keepdim: np.asarray(function(x, axis=dim, keepdims=keepdim), np.int64)


_ALONG = ((((5,),), {"dim": None, "keepdim": False}), (((2, 3),), {"dim": 1, "keepdim": True}))
_counted("argmax", "The place of the largest element, the first of equals.", _place(np.ndarray.argmax), *_ALONG)
_counted("argmin", "The place of the smallest element, the first of equals.", _place(np.ndarray.argmin), *_ALONG)
_counted(
    "argsort",
    "The places of elements in order along a dim; equal ones keep theirs.",
    lambda x, *, dim, descending: ordered(x, dim, descending),
    (((2, 3),), {"dim": 1, "descending": True}),
)


def _searchsorted(edges: Array, x: Array, *, side: str) -> Array:
    if edges.ndim == 1:
        return np.asarray(np.searchsorted(edges, x, side), np.int64)
    places = np.empty(x.shape, np.int64)
    for at in np.ndindex(x.shape[:-1]):
        places[at] = np.searchsorted(edges[at], x[at], side)
    return places


_counted(
    "searchsorted",
    "Where each value would be inserted to keep rows of edges in order.",
    _searchsorted,
    (((0,), (3,)), {"side": "left"}),
)
