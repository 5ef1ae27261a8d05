"""The table of sorts, of what is picked by rank, and of what has places, counts or truths as its result.

nan counts as larger than all numbers. The gradient goes to the places picked, and the others get nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Spec, Strides
from kernels.kinds.form import scattered
from kernels.kinds.routine import Routine
from kernels.rules.loop_printer import PrintedLoop
from kernels.rules.op import narrow, picked, put, wide
from kernels.rules.rows import SHORT, RowValue, row_value

FEW = 1 << 12
"""Elements up to which a stable sort is fast enough."""


def ordered(x: Array, dim: int, descending: bool) -> Array:
    """Return the places of elements in order; equal ones keep theirs."""
    return _sort(x, dim=dim, descending=descending)[1]


def _sort(x: Array, *, dim: int, descending: bool) -> tuple[Array, Array]:
    if descending:
        y, turned = _sort(np.flip(x, dim), dim=dim, descending=False)
        return np.flip(y, dim), np.flip(x.shape[dim] - 1 - turned, dim)
    if x.dtype.kind == "f" and x.size > FEW:
        places = np.argsort(x, axis=dim)  # takes half the time, and is as good where no two are equal
        y = np.take_along_axis(x, places, dim)
        before, after = np.moveaxis(y, dim, -1)[..., :-1], np.moveaxis(y, dim, -1)[..., 1:]
        if not ((before == after) | (before != before)).any():
            return y, places
    places = np.argsort(x, axis=dim, kind="stable")
    return np.take_along_axis(x, places, dim), places


def _topk(x: Array, *, k: int, dim: int, largest: bool) -> tuple[Array, Array]:
    """Partition first: of equals at the border any may be picked."""
    n = x.shape[dim]
    if k == 0:
        some = np.zeros((*x.shape[:dim], 0, *x.shape[dim + 1 :]), np.int64)
    elif k < n:
        parts = np.argpartition(x, n - k if largest else k - 1, axis=dim)
        some = np.take(parts, range(n - k, n) if largest else range(k), axis=dim)
        some = np.sort(some, axis=dim)
    else:
        some = np.broadcast_to(np.expand_dims(np.arange(n), tuple(i for i in range(x.ndim) if i != dim)), x.shape)
    chosen = np.take_along_axis(x, some, dim)
    places = np.take_along_axis(some, ordered(chosen, dim, largest), dim)
    return np.take_along_axis(x, places, dim), places


def _absent(x: Array) -> Array:
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def _ranked(x: Array, rank: int, dim: int) -> Array:
    """Return the place of the element of this rank, with dim kept: what a stable sort has there."""
    value = np.take(np.partition(x, rank, axis=dim), [rank], axis=dim)
    absent, gone = _absent(x), _absent(value)
    less = np.sum(np.where(gone, ~absent, x < value), axis=dim, keepdims=True)
    equal = np.moveaxis((x == value) | (absent & gone), dim, -1)
    counts = np.count_nonzero(equal, axis=-1)
    first = (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)  # of each row, among all equal ones
    places = np.flatnonzero(equal)[first + rank - np.squeeze(less, dim)] % x.shape[dim]
    return np.expand_dims(places, dim)


def _pick(x: Array, place: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    value = np.take_along_axis(x, place, dim)
    return (value, place) if keepdim else (np.squeeze(value, dim), np.squeeze(place, dim))


def _median_place(x: Array, dim: int) -> Array:
    absent = _absent(x)
    middle = _ranked(x, (x.shape[dim] - 1) // 2, dim)
    gone = absent.any(axis=dim, keepdims=True)
    return np.where(gone, np.argmax(absent, axis=dim, keepdims=True), middle)


def _nanmedian_place(x: Array, dim: int) -> Array:
    absent = _absent(x)
    if not absent.any():
        return _ranked(x, (x.shape[dim] - 1) // 2, dim)
    rank = (x.shape[dim] - np.sum(absent, axis=dim, keepdims=True) - 1) // 2
    return np.take_along_axis(ordered(x, dim, descending=False), np.maximum(rank, 0), dim)


def _mode(x: Array, *, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """Count along the sorted elements; the first longest run is the smallest value, its end the last place."""
    y, places = _sort(x, dim=dim, descending=False)
    counter = np.expand_dims(np.arange(x.shape[dim]), tuple(i for i in range(x.ndim) if i != dim))
    new = np.take(y, range(1, y.shape[dim]), axis=dim) != np.take(y, range(y.shape[dim] - 1), axis=dim)
    starts = np.concatenate([np.ones_like(np.take(y, [0], axis=dim), bool), new], axis=dim)
    run = counter - np.maximum.accumulate(np.where(starts, counter, 0), axis=dim)
    end = np.argmax(run, axis=dim, keepdims=True)
    return _pick(x, np.take_along_axis(places, end, dim), dim, keepdim)


def _back_to_one(g: Any, x: Any, place: Array, dim: int) -> Any:
    return put(wide(g, x, (dim,)), place.reshape([1 if i == dim else n for i, n in enumerate(x.shape)]), dim,
               x.shape[dim])  # fmt: skip


def _one(t: Any, place: Array, dim: int) -> Any:
    shape = tuple(1 if i == dim else n for i, n in enumerate(t.shape))
    return np.reshape(picked(t, place.reshape(shape), dim), place.shape)


def _to_places(source: Spec, spec: Spec, dim: int, **_: Any) -> PrintedLoop:
    return scattered(source, spec, dim, 3)


def _few(shape: Strides, dtype: Any, name: str, dim: int, number: float, **result: Any) -> RowValue | None:
    return row_value(shape, dtype, name, (dim,), float(number), longest=SHORT, places=True, **result)


_WHOLE = ((((5,),), {"dim": 0, "descending": False}), (((3, 4),), {"dim": 0, "descending": True}))
_ALONG = ((((5,),), {"dim": 0, "keepdim": False}), (((3, 4),), {"dim": 0, "keepdim": True}))

Routine(
    name="sort",
    doc="Elements in order along a dim, and their places; equal ones keep their order.",
    grad_fn="SortBackward0",
    function=False,
    forward=_sort,
    vjp=lambda g, places, dim: put(g, places, dim, g.shape[dim]),
    jvp=lambda t, places, dim: picked(t, places, dim),
    extras=("places",),
    cuts=True,
    native=lambda source, spec, dim, **_: scattered(source, spec, dim, 2),
    rows=lambda shape, dtype, dim, descending: _few(shape, dtype, "sort", dim, descending),
    samples=_WHOLE,
)
Routine(
    name="topk",
    doc="The k largest or smallest elements along a dim, in order, and their places.",
    grad_fn="TopkBackward0",
    function=False,
    forward=_topk,
    vjp=lambda g, x, places, dim: put(g, places, dim, x.shape[dim]),
    jvp=lambda t, places, dim: picked(t, places, dim),
    extras=("places",),
    cuts=True,
    native=_to_places,
    rows=lambda shape, dtype, k, dim, largest: _few(shape, dtype, "topk", dim, largest, length=k),
    samples=((((6,),), {"k": 2, "dim": 0, "largest": True}), (((3, 4),), {"k": 2, "dim": 0, "largest": False})),
)
Routine(
    name="kthvalue",
    doc="The element of rank k along a dim, and its place.",
    grad_fn="KthvalueBackward0",
    function=False,
    forward=lambda x, *, rank, dim, keepdim: _pick(x, _ranked(x, rank, dim), dim, keepdim),
    vjp=_back_to_one,
    jvp=_one,
    extras=("place",),
    cuts=True,
    native=_to_places,
    rows=lambda shape, dtype, rank, dim, keepdim: _few(shape, dtype, "kthvalue", dim, rank, keepdim=keepdim),
    samples=tuple((shapes, {"rank": 1, **params}) for shapes, params in _ALONG),
)
Routine(
    name="mode",
    doc="The most frequent element along a dim, the smallest of several, and its last place.",
    grad_fn="ModeBackward0",
    function=False,
    forward=_mode,
    vjp=_back_to_one,
    jvp=_one,
    extras=("place",),
    cuts=True,
    native=_to_places,
    samples=_ALONG,
)


def _ties(x: Any, y: Any) -> Any:
    return (x == y) | ((x != x) & (y != y))


def _shared(g: Any, y: Any, x: Any) -> Any:
    ties = _ties(x, y)
    return np.where(ties, g / np.sum(ties), -0.0)


def _mean_of_ties(t: Any, y: Any, x: Any) -> Any:
    ties = _ties(x, y)
    return np.sum(np.where(ties, t, 0.0)) / np.sum(ties)


def _along(place: Any) -> Any:
    return lambda x, *, dim, keepdim: _pick(x, place(x, dim), dim, keepdim)


def _middle(x: Array, *, skips: bool) -> Array:
    """Return the lower median of all elements; without nan, if there is another."""
    x = x.reshape(-1)
    absent = _absent(x)
    if absent.any():
        x = x[~absent] if skips and not absent.all() else x[absent]
    return np.asarray(np.partition(x, (len(x) - 1) // 2)[(len(x) - 1) // 2])


for _name, _grad_fn, _lower, _doc in (
    ("median", "MedianBackward", _median_place, "The lower median"),
    ("nanmedian", "NanmedianBackward", _nanmedian_place, "The lower median of what is not nan"),
):
    Routine(
        name=_name,
        doc=f"{_doc} along a dim, and its place.",
        grad_fn=f"{_grad_fn}1",
        function=False,
        forward=_along(_lower),
        vjp=_back_to_one,
        jvp=_one,
        extras=("place",),
        cuts=True,
        native=_to_places,
        rows=(lambda shape, dtype, dim, keepdim: _few(shape, dtype, "median", dim, 0.0, keepdim=keepdim))
        if _name == "median"
        else None,
        samples=_ALONG,
    )
    Routine(
        name=f"{_name}_all",
        doc=f"{_doc} of all elements; ties share the gradient evenly.",
        grad_fn=f"{_grad_fn}0",
        function=False,
        forward=functools.partial(_middle, skips=_name.startswith("nan")),
        vjp=_shared,
        jvp=_mean_of_ties,
        cuts=True,
        samples=((((2, 3),), {}),),
    )


def _counted(name: str, doc: str, forward: Any, *samples: Any, parts: Any = None) -> None:
    Routine(name=name, doc=doc, grad_fn="", function=False, forward=forward, vjp=None, parts=parts, samples=samples)


def _over(name: str, doc: str, function: Any, parts: Any = None) -> None:
    def forward(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
        return np.asarray(function(x, axis=dims, keepdims=keepdim))

    _counted(name, doc, forward, (((2, 3),), {"dims": (0,), "keepdim": True}), parts=parts)


def _any_parts(x: Any, dims: tuple[int, ...], keepdim: bool, *, of: bool = True) -> Any:
    """Whether an element is nonzero, or none is not."""
    if not dims or 0 in x.shape:
        return NotImplemented
    flags = np.where(x if x.dtype == np.bool_ else x != 0.0, float(of), float(not of))
    largest = np.maximum.reduce(flags, axis=dims, keepdims=True)
    y = largest > 0.0 if of else largest <= 0.0
    return narrow(y, dims, keepdim=keepdim)


_over("any", "Whether an element over dims is nonzero or True.", np.logical_or.reduce, _any_parts)
_over(
    "all",
    "Whether all elements over dims are nonzero or True.",
    np.logical_and.reduce,
    functools.partial(_any_parts, of=False),
)
_over("count_nonzero", "How many elements over dims are nonzero or True.", np.count_nonzero)


def _place(function: Any) -> Any:
    return lambda x, *, dim, keepdim: np.asarray(function(x, axis=dim, keepdims=keepdim), np.int64)


_SEARCHED = ((((5,),), {"dim": None, "keepdim": False}), (((2, 3),), {"dim": 1, "keepdim": True}))
_counted("argmax", "The place of the largest element, the first of equals.", _place(np.ndarray.argmax), *_SEARCHED)
_counted("argmin", "The place of the smallest element, the first of equals.", _place(np.ndarray.argmin), *_SEARCHED)
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
