"""A tensor brought to a shape: broadcast, summed back, with dims added or split; NumPy's functions too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tape.operations import sums_and_extrema
from tape.recording import views
from tape.recording.arguments import dim_of, ints_of
from tape.tensors.operands import check_broadcast, tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor, method

_MATRIX, _BOX = 2, 3


@public()
def broadcast_to(input: Any, size: Any) -> Tensor:
    """Return a view of a larger shape, in which dims of length one are repeated.

    >>> tape.broadcast_to(tape.tensor([1.0, 2.0]), (2, 2)).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    return views.expand(tensor_of(input), ints_of((size,)))


@public(methods=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Return views of the shape that the tensors have together. RuntimeError where their shapes do not fit.

    >>> [x.shape for x in tape.broadcast_tensors(tape.ones(3, 1), tape.ones(4))]
    [tape.Size([3, 4]), tape.Size([3, 4])]
    """
    operands = tuple(map(tensor_of, tensors[0] if len(tensors) == 1 and _several(tensors[0]) else tensors))
    check_broadcast("broadcast_tensors", operands)
    shape = np.broadcast_shapes(*(x.spec.shape for x in operands))
    return tuple(x if x.spec.shape == shape else views.expand(x, shape) for x in operands)


def _several(x: Any) -> bool:
    return isinstance(x, (tuple, list))


@method()
def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """Return a view of the shape of another tensor, in which dims of length one are repeated.

    >>> tape.ones(1, 2).expand_as(tape.zeros(3, 2)).shape
    tape.Size([3, 2])
    """
    return views.expand(x, other.spec.shape)


@method()
def view_as(x: Tensor, other: Tensor) -> Tensor:
    """Return a view of the shape of another tensor, which has as many elements.

    >>> tape.arange(4).view_as(tape.ones(2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    return views.view(x, other.spec.shape)


@method()
def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """Return the tensor in the shape of another: a view where strides allow one, else a copy.

    >>> tape.arange(4).reshape_as(tape.ones(2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    return views.reshape(x, other.spec.shape)


@method()
def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    """Return the sum over the dims in which a tensor of this size would be broadcast to the shape of x.

    >>> tape.ones(3, 2).sum_to_size(1, 2)
    tensor([[3., 3.]])
    """
    shape, wanted = x.spec.shape, ints_of(size)
    lead = len(shape) - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, shape[lead:], strict=True)):
        raise RuntimeError(f"sum_to_size: size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    dims = tuple(range(lead)) + tuple(lead + k for k, n in enumerate(wanted) if n != shape[lead + k])
    return views.reshape(sums_and_extrema.sum(x, dims, keepdim=True), wanted) if dims else x


@public()
def unflatten(input: Any, dim: int, sizes: Any) -> Tensor:
    """Return a view with one dim taken apart into dims of these sizes; one of them may be -1.

    >>> tape.unflatten(tape.ones(6, 2), 0, (3, -1)).shape
    tape.Size([3, 2, 2])
    """
    input = tensor_of(input)
    at, parts = dim_of(input, dim), list(ints_of((sizes,)))
    n = input.spec.shape[at] if input.spec.shape else 1
    if not parts:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if parts.count(-1) > 1:
        raise RuntimeError(f"unflatten: only one dimension can be inferred, got sizes {parts}")
    rest = math.prod(p for p in parts if p != -1)
    if -1 in parts and rest > 0 and n % rest == 0:
        parts[parts.index(-1)] = n // rest
    if -1 in parts or math.prod(parts) != n:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(ints_of((sizes,)))} don't multiply up to the size of dim {at} ({n}) in "
            "the input tensor"
        )
    return views.reshape(input, *input.spec.shape[:at], *parts, *input.spec.shape[at + 1 :])


def _at_least(rank: int) -> Any:
    def atleast(*tensors: Any) -> Any:
        listed = len(tensors) == 1 and _several(tensors[0])
        results = tuple(of_rank(tensor_of(x), rank) for x in (tensors[0] if listed else tensors))
        return results if listed or len(results) != 1 else results[0]

    atleast.__name__ = atleast.__qualname__ = f"atleast_{rank}d"
    atleast.__doc__ = f"""Return a tensor, or each of several, as a view with at least {rank} dims.

    >>> tape.{atleast.__name__}(tape.tensor(5.0)).shape
    tape.Size({[1] * rank})
    """
    implements(getattr(np, atleast.__name__))(atleast)
    return public(methods=False)(atleast)


def of_rank(x: Tensor, rank: int) -> Tensor:
    """Return a tensor with at least 1, 2 or 3 dims: a vector becomes a row, and a matrix gets a last dim."""
    shape = x.spec.shape
    if len(shape) >= rank:
        return x
    if rank == _BOX and len(shape) == _MATRIX:
        return views.reshape(x, (*shape, 1))
    wide = {1: (1,), _MATRIX: (1, *shape), _BOX: (1, *shape, 1)}[rank]
    return views.reshape(x, wide if shape else (1,) * rank)


atleast_1d, atleast_2d, atleast_3d = map(_at_least, (1, _MATRIX, _BOX))


@implements(np.broadcast_arrays)
def _broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """Broadcast arguments, the tensors among them as tensors, the others as NumPy arrays."""
    del subok
    shape = np.broadcast_shapes(*(x.spec.shape if isinstance(x, Tensor) else np.shape(x) for x in args))
    return tuple([views.expand(x, shape) if isinstance(x, Tensor) else np.broadcast_to(x, shape) for x in args])
