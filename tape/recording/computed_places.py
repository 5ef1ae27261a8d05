"""Places that index tensors pick, computed by operations: programs that hold these pick by other indices, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.foundation.specs import Spec, dense
from tape.recording import record, views
from tape.recording.pick_calls import is_byte_mask
from tape.tensors import modes
from tape.tensors.modes import Observer
from tape.tensors.tensor import Array, Tensor

_INT64 = np.dtype(np.int64)


def is_followed(*items: Any, adds: bool = True) -> bool:
    """Whether a recorder follows the values of index tensors, and one of these is such a one.

    Without ``adds``: to write there, where of several values for one place the last stays.
    """
    if modes.active() is not None:
        return False
    indices = [k for k in items if isinstance(k, Tensor) and k.spec.dtype.kind in "iu"]
    recorder = modes.current().recorder if indices else None
    return recorder is not None and recorder.follows_indices(indices, adds=adds)


def differ(*items: Any, adds: bool = True) -> bool:
    """Whether one of these is an index tensor that differs between examples: no value of it may leave for Python."""
    return is_followed(*items, adds=adds) and _mapping() is not None


def _mapping() -> Observer | None:
    """Return the recorder if it maps, of whose values none may leave for Python."""
    recorder = modes.current().recorder
    return recorder if recorder is not None and recorder.maps else None


def places_of(spec: Spec, key: tuple[Any, ...], *, wraps: bool) -> Tensor | None:
    """Return the places that integers pick, as numbers of elements in C order, a tensor of its own.

    ``wraps``: negative indices count from the end.

    None where that is not possible, or where they are out of bounds: whoever asks then takes another way. That they
    are within bounds, and whether one is negative, is a guard.
    """
    taken = _taken(spec, key)
    if taken is None:
        return None
    lead, indices = taken
    steps = dense(spec.shape, 1)
    total: Any = None
    for axis, index in enumerate(indices, lead):
        wrapped = _wrapped(index, spec.shape[axis], wraps=wraps)
        if wrapped is None:
            return None
        total = wrapped * steps[axis] if total is None else total + wrapped * steps[axis]
    behind = lead + len(indices)
    before, after = spec.shape[:lead], spec.shape[behind:]
    if before or after:
        wide = (*(1 for _ in before), *total.shape, *(1 for _ in after))
        total = views.reshape(total, wide) + _whole_axes(before, after, len(total.shape), steps)
    return views.contiguous(total) if total.spec.dtype == _INT64 else None


def _taken(spec: Spec, key: tuple[Any, ...]) -> tuple[int, list[Any]] | None:
    """Return the first axis that is indexed, and the indices side by side, if all other axes are taken whole."""
    rest = len(spec.shape) - sum(item is not Ellipsis for item in key)
    items: list[Any] = []
    for item in key:
        items += [slice(None)] * rest if item is Ellipsis else [item]
    lead = next((k for k, item in enumerate(items) if not _is_whole(item)), len(items))
    indices = items[lead:]
    while indices and _is_whole(indices[-1]):
        indices.pop()
    indices = [np.asarray(i) if isinstance(i, (list, int, np.integer)) else i for i in indices]
    if rest < 0 or lead + len(indices) > len(spec.shape) or not all(map(_is_integer, indices)):
        return None
    try:
        np.broadcast_shapes(*[i.shape for i in indices])
    except ValueError:
        return None
    return lead, indices


def _is_whole(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


def _is_integer(index: Any) -> bool:
    return isinstance(index, (Tensor, np.ndarray)) and index.dtype.kind in "iu" and not is_byte_mask(index)


def _wrapped(index: Any, n: int, *, wraps: bool) -> Any:
    """Return an index with negative ones counted from the end; None where it is out of bounds."""
    if not isinstance(index, Tensor):
        wrapped = np.where(index < 0, index + wraps * n, index).astype(np.int64)
        return wrapped if ((wrapped >= 0) & (wrapped < n)).all() else None
    index = index if index.spec.dtype == _INT64 else record.to_dtype(index, _INT64)
    if not index.spec.size:
        return index
    if _mapping() is not None:
        wrapped = index + (index < 0) * n if wraps else index
        return wrapped if are_within(index, -n * wraps, n) else None
    within = bool(index.amin() >= 0)
    if wraps and not within:
        index = index + (index < 0) * n
        within = bool(index.amin() >= 0)
    return index if within and bool(index.amax() < n) else None


def are_within(index: Tensor, low: int, high: int) -> bool:
    """Whether ``low <= index < high`` everywhere: a guard, or what the recorder checks of all examples."""
    mapping = _mapping()
    if mapping is not None:
        return mapping.checks_indices(index, low, high)
    return bool(index.amin() >= low) and bool(index.amax() < high)


def _whole_axes(before: Sequence[int], after: Sequence[int], rank: int, steps: Sequence[int]) -> Array:
    """Return what the axes that are taken whole add to places, of so many dims between them."""
    total = np.zeros((*before, *(1,) * rank, *after), np.int64)
    for k, n in enumerate((*before, *after)):
        axis = k if k < len(before) else k + rank
        step = steps[k if k < len(before) else len(steps) - len(before) - len(after) + k]
        total += (np.arange(n) * step).reshape([-1 if d == axis else 1 for d in range(total.ndim)])
    return total
