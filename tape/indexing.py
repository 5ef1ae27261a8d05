"""Indexing by ints, slices, None and Ellipsis, and iteration: views of parts of a tensor."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.op import View
from tape import recording
from tape.shaping import VIEWS
from tape.tensor import Tensor, method


@method("__getitem__")
def index(x: Tensor, key: Any) -> Tensor:
    """Return a view by ints, slices, None and Ellipsis. IndexError where out of bounds."""
    known = _hashed(key)
    if known is not None and (hit := _known.get((x._form.spec, known))) is not None:
        return recording.view(hit[0], x, hit[1], hit[2])
    return _index(x, key, known)


_known: dict[Any, tuple[View, tuple[Any, ...], Any]] = {}
"""Indices that have been checked against a spec: the view, its params and their key."""


def _hashed(key: Any) -> Any:
    """Return a basic index as something that can be hashed; None for what needs a closer look."""
    kind = type(key)
    if kind is slice:
        return (key.start, key.stop, key.step, slice)
    if kind is int:
        return key
    if kind is tuple:
        return tuple([k if type(k) is int or k is None or k is Ellipsis else _hashed_slice(k) for k in key])
    return None


def _hashed_slice(key: Any) -> Any:
    return (key.start, key.stop, key.step, slice) if type(key) is slice else (id(key), object())


def _index(x: Tensor, key: Any, known: Any) -> Tensor:
    kind = type(key)
    if kind is slice:
        hashed: Any = ("slice", key.start, key.stop, key.step)
        if type(key.start) is Tensor or type(key.stop) is Tensor:
            key = slice(*(None if e is None else operator.index(e) for e in (key.start, key.stop, key.step)))
            hashed = ("slice", key.start, key.stop, key.step)
        items: tuple[Any, ...] = (key,)
    else:
        items = tuple(map(_item, key if kind is tuple else (key,)))
        hashed = tuple(("slice", k.start, k.stop, k.step) if type(k) is slice else k for k in items)
    if any(type(k) is slice and k.step is not None and k.step <= 0 for k in items):
        raise ValueError("step must be greater than zero")
    _check_index(x, items)
    full = items if Ellipsis in items else (*items, Ellipsis)
    found = (VIEWS["slice" if kind is slice else _last(items)], (full,), ("index", hashed))
    if known is not None:
        _known[x.spec, known] = found
    return recording.view(found[0], x, *found[1:])


def _last(items: tuple[Any, ...]) -> str:
    """Name the view that PyTorch takes last for an index."""
    for k in reversed(items):
        if k is None:
            return "newaxis"
        if type(k) is int:
            return "select"
        if k is not Ellipsis and k != slice(None):
            return "slice"
    return "alias"


def _item(key: Any) -> Any:
    """Return one part of an index: an int, a slice, None or Ellipsis."""
    if key is None or key is Ellipsis or type(key) is int:
        return key
    if isinstance(key, slice):
        return slice(*(None if e is None else operator.index(e) for e in (key.start, key.stop, key.step)))
    if isinstance(key, (bool, np.bool_, list, np.ndarray)) or (isinstance(key, Tensor) and key.spec.shape != ()):
        what = "tensor" if isinstance(key, Tensor) else type(key).__name__
        raise NotImplementedError(
            f"index: indexing with a {what} of integers or booleans is not supported in this version; "
            "use slices and ints, or tape.where for masks"
        )
    try:
        return operator.index(key)
    except TypeError:
        raise IndexError(
            f"only integers, slices (`:`), ellipsis (`...`) and None are valid indices (got {type(key).__name__})"
        ) from None


def _check_index(x: Tensor, items: tuple[Any, ...]) -> None:
    """Raise PyTorch's messages for an index that does not fit."""
    shape = x.spec.shape
    used = sum(1 for k in items if k is not None and k is not Ellipsis)
    if used > len(shape):
        if not shape:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` to convert it to a number")
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    axis = 0
    for k in items:
        if k is Ellipsis:
            axis += len(shape) - used
        elif k is not None:
            if type(k) is int and not -shape[axis] <= k < shape[axis]:
                raise IndexError(f"index {k} is out of bounds for dimension {axis} with size {shape[axis]}")
            axis += 1


@method("__iter__")
def rows(x: Tensor) -> Iterator[Tensor]:
    """Iterate over the first dim."""
    if not x.spec.shape:
        raise TypeError("iteration over a 0-d tensor")
    return (recording.view(VIEWS["unbind"], x, ((i, Ellipsis),)) for i in range(x.spec.shape[0]))
