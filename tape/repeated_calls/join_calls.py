"""Lists of tensors joined, which native code repeats for forms that it has seen in this order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kernels.arrays.specs import dense
from kernels.call_cache import entries
from kernels.call_cache.entries import Notification
from kernels.instructions.form import Form
from kernels.native.call_structs import JOINS, MOST_JOINED
from kernels.native.tape_structs import RegistryTable
from tape.repeated_calls.call_table import number_of, provide, repeating
from tape.tensors import modes
from tape.tensors.tensor import Tensor

Method = TypeVar("Method", bound=Callable[..., Any])


def joining(op: Any, *, new: bool) -> Callable[[Method], Method]:
    """Let native code repeat a function that joins the tensors of a list, along a ``new`` dim or one that they have."""
    number = number_of(op.name)

    def enter(result: Any, tensors: Any, dim: Any = None, *, axis: Any = None) -> None:
        along = (0 if axis is None else axis) if dim is None else dim
        all_tensors = type(tensors) in (list, tuple) and all(type(x) is Tensor for x in tensors)
        if all_tensors and type(along) is int and len(tensors) <= MOST_JOINED and _is_plain(result, tensors):
            _enter(number, op, along, tensors, result, new=new)

    return repeating(number | JOINS, enter)


def _is_plain(result: Tensor, tensors: Any) -> bool:
    """Whether all tensors have one dtype and rank, and the result is C-contiguous and not empty."""
    spec = result.spec
    same = all(x.spec.dtype == spec.dtype for x in tensors)
    fresh = spec.shape and spec.size and spec.strides == dense(spec.shape, spec.dtype.itemsize)
    alike = len({len(x.spec.shape) for x in tensors}) == 1
    return bool(same and alike and fresh and spec.dtype.kind in "fiu" and spec.dtype != np.float16)


def _enter(number: int, op: Any, along: int, tensors: Any, result: Tensor, *, new: bool) -> None:
    tape, form, spec = modes.tape_beside_recorder(), result._form, result.spec
    if tape is None:
        return
    wanted = [bool(tape) and x._slot is not None for x in tensors]
    if any(wanted) is not (type(form) is Form and type(result._slot) is int):
        return
    axis, joined, at = along % len(spec.shape), [], 0
    strides = spec.strides[:axis] + spec.strides[axis + 1 :] if new else spec.strides
    for x, is_wanted in zip(tensors, wanted, strict=True):
        joined.append(entries.Joined(x._form, is_wanted, at * spec.strides[axis], strides))
        at += 1 if new else x.spec.shape[axis]
    provide(RegistryTable.hit_joined, "native.calls.joining_native", "hit_joined")
    entries.enter_join(number, along, joined, form, Notification(op, len(tensors), (axis, new)))
