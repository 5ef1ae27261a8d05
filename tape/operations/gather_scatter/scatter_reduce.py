"""The reductions of ``scatter_reduce``: values are grouped by their place, and each group is reduced."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.operations import gather, sums_and_extrema
from tape.recording import computed_places, views
from tape.tensors.tensor import Array, Tensor


def reduced(
    x: Tensor, numbers: Array, values: Tensor, reduce: str, *, include_self: bool
) -> list[tuple[Array, Tensor]]:
    """Return places of x, numbered in C order, and for each the reduced value of its group.

    ``numbers`` says which place each value is for. Groups of one length are the rows of a matrix that is reduced
    along its columns, so that the gradient is that of the reduction, also where elements are equal.
    """
    pool = views.cat([views.reshape(x, -1), values]) if include_self else values
    order = np.argsort(numbers, kind="stable")
    in_order = numbers[order]
    starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
    targets, counts = in_order[starts], np.diff(starts, append=len(order))
    if include_self:
        order = order + x.spec.size
    reductions = []
    for count in np.unique(counts):
        group = counts == count
        rows = order[starts[group][:, None] + np.arange(count)]
        if include_self:
            rows = np.concatenate([targets[group][:, None], rows], 1)
        reductions.append((targets[group], _REDUCED[reduce](gather.picked_flat(pool, rows))))
    return reductions


def reduced_by_mapped(
    x: Tensor, key: tuple[Any, ...], source: Any, reduce: str, *, include_self: bool
) -> Tensor | None:  # fmt: skip
    """Return what x becomes where index tensors differ between examples, as values and places compared, all with all.

    None where they do not, or do not fit.
    """
    if not (key and isinstance(source, Tensor) and computed_places.differ(*key)):
        return None
    places = computed_places.places_of(x.spec, key, wraps=False)
    if places is None or places.spec.shape != source.spec.shape or source.spec.dtype != x.spec.dtype:
        return None
    flat = views.reshape(x, -1, 1)
    there = views.reshape(places, 1, -1) == np.arange(x.spec.size)[:, None]
    rows = _where(there, views.reshape(source, 1, -1), _neutral(reduce, x.spec.dtype))
    counts = there.sum(1)
    if include_self:
        rows, counts = views.cat([flat, rows], 1), counts + 1
    if reduce == "mean":
        total, divisor = rows.sum(1), counts.clamp(min=1).to(x.spec.dtype)
        values = total / divisor if x.spec.dtype.kind == "f" else np.floor_divide(total, divisor)
    else:
        values = rows.sum(1) if reduce == "sum" else _REDUCED[reduce](rows)
    if not include_self:
        values = _where(counts > 0, values, views.reshape(x, -1))
    return views.reshape(values, x.spec.shape)


def _neutral(reduce: str, dtype: np.dtype[Any]) -> Any:
    """Return what changes no reduction."""
    if reduce not in ("amax", "amin"):
        return dtype.type(reduce == "prod")
    if dtype.kind == "f":
        return dtype.type(-np.inf if reduce == "amax" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if reduce == "amax" else limits.max)


_where: Any = np.where  # of tensors: recorded
_REDUCED: dict[str, Any] = {
    "amax": lambda rows: sums_and_extrema.amax(rows, 1),
    "amin": lambda rows: sums_and_extrema.amin(rows, 1),
    "prod": lambda rows: np.prod(rows, axis=1),
}
