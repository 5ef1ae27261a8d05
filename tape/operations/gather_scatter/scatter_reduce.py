"""The reductions of ``scatter_reduce``: values are grouped by their place, and each group is reduced."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.operations import gather, sums_and_extrema
from tape.recording import views
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


_REDUCED: dict[str, Any] = {
    "amax": lambda rows: sums_and_extrema.amax(rows, 1),
    "amin": lambda rows: sums_and_extrema.amin(rows, 1),
    "prod": lambda rows: np.prod(rows, axis=1),
}
