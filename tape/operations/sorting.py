"""Sorts, and what is picked by rank, under PyTorch's names; NumPy's functions of these names too.

nan counts as larger than all numbers. The gradient goes to the elements picked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.operations.registry import OPS
from kernels.rules import op
from tape import return_types
from tape.operations.indexing import index
from tape.recording import creation, foreign_calls, record, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import dim_of, either
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Array, Tensor, as_array, leaf, scalar_or_array

_SORT, _ARGSORT = OPS["sort"], OPS["argsort"]
_TOPK: Any = OPS["topk"]
_KTHVALUE: Any = OPS["kthvalue"]


@implements(op.picked)
def _picked(x: Tensor, places: Array, dim: int) -> Tensor:
    return index(x, op.keys(places, dim))


@implements(op.placed, op.put)
def _placed(g: Tensor, places: Array, dim: int, length: int) -> Tensor:
    shape = (*g.spec.shape[:dim], length, *g.spec.shape[dim + 1 :])
    target: Any = creation.full(shape, -0.0, dtype=g.spec.dtype)
    return target.index_put_(op.keys(places, dim), g, accumulate=True)  # type: ignore[no-any-return]


def along(op: Any, x: Tensor, dim: int, **params: Any) -> tuple[Tensor, ...]:
    """Call a routine along a dim; a 0-d tensor counts as one of length one."""
    if x.spec.shape:
        return foreign_calls.call(op, x, dim=dim, **params)  # type: ignore[no-any-return]
    result = foreign_calls.call(op, views.reshape(x, 1), dim=0, **params)
    return tuple(views.reshape(y, ()) if y.spec.size == 1 else y for y in result)


def filled(name: str, x: Tensor, dim: Any) -> int:
    """Return the axis of a dim, checked not to be empty."""
    at = dim_of(x, dim)
    if x.spec.shape and x.spec.shape[at] == 0:
        raise IndexError(
            f"{name}(): Expected reduction dim {at} to have non-zero size; the shape is {list(x.spec.shape)}"
        )
    return at


@public()
@cached_call()
def sort(
    input: Any, dim: Any = None, descending: bool = False, stable: bool = False, *, axis: Any = None
) -> Any:  # fmt: skip
    """Return the elements in order along ``dim`` (the last) and their int64 places; equal ones keep their order always.

    >>> tape.sort(tape.tensor([3.0, 1.0, 2.0])).indices
    tensor([1, 2, 0])
    """
    del stable
    input = tensor_of(input)
    at = dim_of(input, either("dim", dim, "axis", axis, -1))
    return return_types.sort(*along(_SORT, input, at, descending=bool(descending)))


@public()
@cached_call()
def argsort(
    input: Any, dim: Any = None, descending: bool = False, stable: bool = False, *, axis: Any = None
) -> Tensor:  # fmt: skip
    """Return the int64 places of the elements in order along ``dim``, the last by default.

    >>> tape.argsort(tape.tensor([3.0, 1.0, 2.0]), descending=True).tolist()
    [0, 2, 1]
    """
    del stable
    input = tensor_of(input)
    return _argsort(input, dim_of(input, either("dim", dim, "axis", axis, -1)), descending=bool(descending))


def _argsort(x: Tensor, dim: int, *, descending: bool = False) -> Tensor:
    if not x.spec.shape:
        return leaf(np.zeros((), np.int64), requires_grad=False)
    return foreign_calls.call(_ARGSORT, x, dim=dim, descending=descending)  # type: ignore[no-any-return, arg-type]


@public()
def msort(input: Any) -> Tensor:
    """Return the elements in order along the first dim.

    >>> tape.msort(tape.tensor([[3.0, 1.0], [2.0, 4.0]])).tolist()
    [[2.0, 1.0], [3.0, 4.0]]
    """
    return sort(input, 0).values  # type: ignore[no-any-return]


@public()
@cached_call()
def topk(
    input: Any, k: int, dim: Any = None, largest: bool = True, sorted: bool = True, *, axis: Any = None  # noqa: A002
) -> Any:  # fmt: skip
    """Return the ``k`` largest (or smallest) elements along ``dim``, the last by default, in order, and their places.

    Places are int64. RuntimeError if there are less than k. Of equal ones at the border any may be picked.

    >>> tape.topk(tape.tensor([3.0, 1.0, 5.0, 2.0]), 2).values.tolist()
    [5.0, 3.0]
    """
    del sorted
    input = tensor_of(input)
    at = dim_of(input, either("dim", dim, "axis", axis, -1))
    length = input.spec.shape[at] if input.spec.shape else 1
    if not 0 <= k <= length:
        raise RuntimeError(f"topk(): selected index k out of range: k is {k}, dim {at} has {length} elements")
    return return_types.topk(*along(_TOPK, input, at, k=int(k), largest=bool(largest)))


@public()
@cached_call()
def kthvalue(
    input: Any, k: int, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None
) -> Any:
    """Return the ``k``-th smallest element along ``dim``, counted from 1, and its int64 place.

    >>> tape.kthvalue(tape.tensor([3.0, 1.0, 2.0]), 2).values.item()
    2.0
    """
    input = tensor_of(input)
    at = filled("kthvalue", input, either("dim", dim, "axis", axis, -1))
    if not 1 <= k <= (input.spec.shape[at] if input.spec.shape else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {at}: k is {k}")
    keep = bool(either("keepdim", keepdim, "keepdims", keepdims, default=False))
    return return_types.kthvalue(*along(_KTHVALUE, input, at, rank=int(k) - 1, keepdim=keep))


def escaped_values(x: Tensor, name: str) -> Array:
    """Return the values of a tensor that decide the shape of a result without a gradient; recorders note an escape."""
    if x._slot is not None:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented; use it on x.detach()")
    record.note_escape(x)
    return as_array(x)


def constant_result(value: Any) -> Tensor:
    """Return an array, or a number, as a tensor without a gradient."""
    array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
    return leaf(scalar_or_array(array), requires_grad=False)


@public()
def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None  # noqa: A002
) -> Any:  # fmt: skip
    """Return the different elements, or slices along ``dim``, in order; no gradient.

    ``return_inverse`` adds where each element is among them, ``return_counts`` how often each one comes, both int64.
    Each nan is one of its own. NotImplementedError for a tensor that requires grad.

    >>> tuple(e.tolist() for e in tape.unique(tape.tensor([3, 1, 3]), return_counts=True))
    ([1, 3], [1, 2])
    """
    del sorted
    input = tensor_of(input)
    axis = None if dim is None else dim_of(input, dim)
    values, inverse, counts = np.unique(
        escaped_values(input, "unique"), return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    inverse = inverse.reshape(input.spec.shape if axis is None else -1)
    parts = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    return constant_result(values) if len(parts) == 1 else tuple(map(constant_result, parts))


@implements(np.unique)
def _unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,  # noqa: A002
) -> Any:
    del sorted
    array = escaped_values(tensor_of(ar), "unique")
    parts = np.unique(array, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)  # type: ignore[call-overload]
    return tuple(map(constant_result, parts)) if isinstance(parts, tuple) else constant_result(parts)


def _standard(function: Any) -> Any:
    def run(x: Any) -> Any:
        parts = function(escaped_values(tensor_of(x), "unique"))
        return type(parts)(*map(constant_result, parts)) if isinstance(parts, tuple) else constant_result(parts)

    return run


for _function in (np.unique_values, np.unique_counts, np.unique_inverse, np.unique_all):
    implements(_function)(_standard(_function))


def _flat(a: Any, axis: Any) -> tuple[Tensor, int]:
    x = tensor_of(a)
    if axis is None:
        return views.reshape(x, -1), 0
    return x, dim_of(x, axis)


@implements(np.sort, records="sort")
def _sort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Tensor:
    del kind, stable
    return sort(*_flat(a, axis)).values  # type: ignore[no-any-return]


@implements(np.argsort, records="argsort")
def _numpy_argsort(a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Tensor:
    del kind, stable
    return _argsort(*_flat(a, axis))


@implements(np.partition)
def _partition(a: Any, kth: Any, axis: Any = -1, kind: Any = None) -> Tensor:
    """Sort, which is a valid partition for any ``kth``."""
    _check_places(a, kth, axis)
    return _sort(a, axis, kind)


@implements(np.argpartition)
def _argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = None) -> Tensor:
    _check_places(a, kth, axis)
    return _numpy_argsort(a, axis, kind)


def _check_places(a: Any, kth: Any, axis: Any) -> None:
    x, dim = _flat(a, axis)
    n = x.spec.shape[dim] if x.spec.shape else 1
    for k in np.ravel(kth):
        if not -n <= k < n:
            raise ValueError(f"kth(={k}) out of bounds ({n})")
