"""The table of views: the same memory under another shape; and of copies, which are views' counterparts."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.layouts import Spec, Strides, intern_spec
from kernels.memory import address_of
from kernels.op import Copy, Join, View, strided


def _turned(name: str, grad_fn: str, doc: str, torch: tuple[str, ...] = ()) -> None:
    """Declare a view by the order of its axes; PyTorch has several names for it, each with its own node."""
    View(name=name, doc=doc, torch=torch, grad_fn=grad_fn, apply=lambda x, order: x.transpose(order), function=False)


def _shaped(name: str, grad_fn: str, doc: str) -> None:
    """Declare a view by the result's shape."""
    View(name=name, doc=doc, grad_fn=grad_fn, apply=lambda x, shape: x.reshape(shape, copy=False), function=False)


def _indexed(name: str, grad_fn: str, doc: str) -> None:
    """Declare a view by basic indexing; the node is named by what the index does last."""
    View(name=name, doc=doc, grad_fn=grad_fn, apply=lambda x, key: x[key], function=False)


def _expanded(x: Any, shape: Strides) -> Any:
    return np.lib.stride_tricks.as_strided(x, shape, np.broadcast_to(x, shape).strides)


_indexed("slice", "SliceBackward0", "Part of a dim.")
_indexed("select", "SelectBackward0", "One place along a dim.")
_indexed("newaxis", "UnsqueezeBackward0", "A dim of length one inserted by None.")
_indexed("alias", "AliasBackward0", "The same tensor once more.")
_indexed("unbind", "UnbindBackward0", "One of the tensors that iteration gives.")
_turned("transpose", "TransposeBackward0", "Two dims exchanged.")
_turned("permute", "PermuteBackward0", "Dims in another order.")
_turned("t", "TBackward0", "Matrix transposed.")
_shaped("view", "ViewBackward0", "Another shape of the same memory.")
_shaped("unsafe_view", "UnsafeViewBackward0", "Another shape of a fresh copy.")
_shaped("squeeze", "SqueezeBackward0", "Dims of length one removed.")
_shaped("squeeze_dim", "SqueezeBackward1", "One dim of length one removed.")
_shaped("squeeze_dims", "SqueezeBackward2", "Several dims of length one removed.")
_shaped("unsqueeze", "UnsqueezeBackward0", "A dim of length one inserted.")
View(
    name="expand",
    doc="Dims of length one repeated without a copy.",
    grad_fn="ExpandBackward0",
    apply=_expanded,
    function=False,
)
View(
    name="as_strided",
    doc="Any pattern of the elements in order: shape, strides and offset count elements.",
    grad_fn="AsStridedBackward0",
    apply=strided,
    function=False,
)
Copy(name="clone", doc="A copy in memory of its own.", grad_fn="CloneBackward0", function=False)
Copy(name="to_copy", doc="A copy of another dtype.", grad_fn="ToCopyBackward0", function=False)
Join(
    name="concatenate",
    doc="Tensors end to end along a dim.",
    torch=("cat", "concat"),
    grad_fn="CatBackward0",
    join=np.concatenate,
)
Join(name="stack", doc="Tensors side by side along a new dim.", grad_fn="StackBackward0", join=np.stack)


def view_pattern(op: View, source: Spec, value: np.ndarray[Any, Any], params: tuple[Any, ...]) -> tuple[Spec, int]:
    """Return the spec of a view, given its value, and its offset in the gradient of its source, in bytes.

    The view is taken once more, of a stand-in with the strides of the source's gradient. Raises ValueError where
    the gradient cannot be viewed so (a reshape of a tensor whose memory is ordered otherwise).
    """
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, source.dtype), source.shape, source.gradient)
    gradient = op.apply(stand_in, *params)
    offset = address_of(gradient) - address_of(stand_in) if gradient.size else 0
    spec = intern_spec(value.shape, value.strides, value.dtype, gradient.strides, source.shadow)
    return spec, offset
