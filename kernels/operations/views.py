"""The table of views, indexing and loops."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from kernels.foundation.specs import Strides
from kernels.kinds.routine import Guard, LoopAgain, LoopBegin, LoopEnd
from kernels.kinds.views import Copy, Gather, Join, View, Write, strided, strided_batch


def _axes_moved(size: int, shape: Strides, order: Strides) -> tuple[Any, ...]:
    del size, shape
    return ((0, *[axis + 1 for axis in order]),)


def _extent_added(size: int, shape: Strides, to: Strides | int) -> tuple[Any, ...]:
    """Return a shape, or the one extent that it has, with the extent of a batch in front."""
    del shape
    return ((size, *(to if isinstance(to, tuple) else (to,))),)


def _as_they_are(size: int, shape: Strides, *params: Any) -> tuple[Any, ...]:
    """Return parameters that count axes from the back, which a batch in front does not change."""
    del size, shape
    return params


def _view(name: str, grad_fn: str, doc: str, apply: Any, batch: Any = None, **more: Any) -> None:
    View(name=name, doc=doc, grad_fn=grad_fn, apply=apply, batch=batch, function=False, **more)


def _turned(name: str, grad_fn: str, doc: str) -> None:
    """Declare a view by the order of its axes; PyTorch has several names for it, each with its own node."""
    _view(name, grad_fn, doc, lambda x, order: x.transpose(order), _axes_moved)


def _shaped(name: str, grad_fn: str, doc: str, **more: Any) -> None:
    _view(name, grad_fn, doc, lambda x, shape: x.reshape(shape, copy=False), _extent_added, **more)


def _indexed(name: str, grad_fn: str, doc: str, *, element: bool = False) -> None:
    """Declare a view by basic indexing; the node is named by what the index does last."""
    _view(name, grad_fn, doc, operator.getitem, indexes=True, element=element)


def _expanded(x: Any, shape: Strides) -> Any:
    """Repeat dims of length one, as NumPy's broadcast_to does; without its long way where that is simple."""
    if type(x) is np.ndarray and x.flags.c_contiguous and x.size and 0 not in shape:
        lead = len(shape) - x.ndim
        if lead >= 0 and all(n in (1, m) for n, m in zip(x.shape, shape[lead:], strict=True)):
            strides = (0,) * lead + tuple([0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)])
            return np.ndarray(shape, x.dtype, x, 0, strides)
    return np.lib.stride_tricks.as_strided(x, shape, np.broadcast_to(x, shape).strides)


def _diagonal(x: Any, at: Strides) -> Any:
    offset, i, j = at
    _check_from_the_back(i, j)
    start: list[Any] = [slice(None)] * x.ndim
    start[j if offset > 0 else i] = slice(min(abs(offset), x.shape[j if offset > 0 else i]), None)
    x = x[tuple(start)]
    n, step = min(x.shape[i], x.shape[j]), x.strides[i] + x.strides[j]
    kept = [axis for axis in range(x.ndim) if axis not in (i % x.ndim, j % x.ndim)]
    shape, strides = ([values[axis] for axis in kept] for values in (x.shape, x.strides))
    return np.lib.stride_tricks.as_strided(x, (*shape, n), (*strides, step))


def _windows(x: Any, at: Strides) -> Any:
    """Return the windows along an axis, of a size and so many steps apart, along a new last axis."""
    axis, size, step = at
    _check_from_the_back(axis)
    shape, strides = list(x.shape), list(x.strides)
    stride = strides[axis]
    shape[axis], strides[axis] = (shape[axis] - size) // step + 1, stride * step
    return np.lib.stride_tricks.as_strided(x, (*shape, size), (*strides, stride))


def _check_from_the_back(*axes: int) -> None:
    if max(axes) >= 0:
        raise ValueError(f"axes {axes} must be counted from the back: -1 is the last")


def _reversed(x: Any, axes: Strides) -> Any:
    """Reverse these axes, counted from the back: -1 is the last."""
    _check_from_the_back(-1, *axes)
    turned = tuple(axis for axis in axes if x.shape[axis] > 1)
    return np.flip(x, turned) if turned else x[...]  # of no dims NumPy makes a number, which shares no memory


_indexed("slice", "SliceBackward0", "Part of a dim.")
_indexed("select", "SelectBackward0", "One place along a dim.")
_indexed("newaxis", "UnsqueezeBackward0", "A dim of length one inserted by None.")
_indexed("alias", "AliasBackward0", "The same tensor once more.")
_indexed("select_element", "SelectBackward0", "One element, by an int for each dim.", element=True)
_indexed("alias_element", "AliasBackward0", "The element of a tensor without dims.", element=True)
_indexed("unbind", "UnbindBackward0", "One of the tensors that iteration gives.", element=True)
_turned("transpose", "TransposeBackward0", "Two dims exchanged.")
_turned("permute", "PermuteBackward0", "Dims in another order.")
_turned("t", "TBackward0", "Matrix transposed.")
_shaped("view", "ViewBackward0", "Another shape of the same memory.")
_shaped("unsafe_view", "UnsafeViewBackward0", "Another shape of a fresh copy.", hides=True)
_shaped("repeated", "RepeatBackward0", "Another shape of a copy of a tensor expanded.", hides=True, within=3)
_shaped("squeeze", "SqueezeBackward0", "Dims of length one removed.")
_shaped("squeeze_dim", "SqueezeBackward1", "One dim of length one removed.")
_shaped("squeeze_dims", "SqueezeBackward2", "Several dims of length one removed.")
_shaped("unsqueeze", "UnsqueezeBackward0", "A dim of length one inserted.")
_view(
    "expand", "ExpandBackward0", "Dims of length one repeated without a copy.", _expanded, _extent_added,
    broadcasts=True,
)  # fmt: skip
_view(
    "as_strided", "AsStridedBackward0",
    "Any pattern of the elements in order: shape, strides and offset count elements.", strided, strided_batch,
)  # fmt: skip
_view("diagonal", "DiagonalBackward0", "The diagonal of two dims, as the last dim.", _diagonal, _as_they_are)
_view(
    "unfold", "UnfoldBackward0", "Windows along a dim, which may overlap; each stands along a new last dim.", _windows,
    _as_they_are,
)  # fmt: skip
_view(
    "reversed", "AliasBackward0", "The order along dims reversed, to be copied: the memory itself is never shown so.",
    _reversed, _as_they_are,
)  # fmt: skip
CLONE = Copy(name="clone", doc="A copy in memory of its own.", function=False)
Copy(name="to_copy", doc="A copy of another dtype.", function=False)
Join(
    name="concatenate", doc="Tensors end to end along a dim.", torch=("cat", "concat"), grad_fn="CatBackward0",
    join=np.concatenate,
)  # fmt: skip
Join(name="stack", doc="Tensors side by side along a new dim.", join=np.stack)
Copy(name="flip", doc="The order of the elements reversed along dims.", function=False, within=1)
Gather(name="index", doc="Elements picked by index arrays or a mask.", function=False)
Write(name="copy_", doc="Values copied into part of a tensor.", grad_fn="CopySlices", function=False)
Write(
    name="index_put_", doc="Values added to part of a tensor, repeatedly where an index repeats.",
    grad_fn="IndexPutBackward0", adds=True, function=False,
)  # fmt: skip
LOOP_BEGIN = LoopBegin(name="loop_begin", doc="The begin of what is repeated while guards hold.", grad_fn="")
LOOP_AGAIN = LoopAgain(name="loop_again", doc="The end of a body: what the next iteration starts from.", grad_fn="")
LOOP_END = LoopEnd(name="loop_end", doc="The end of a loop.", grad_fn="")
GUARD = Guard(name="guard", doc="A value that must be what it was when the program was recorded.", grad_fn="Guard")
