"""What a view shows, copied: the functions that PyTorch names for views with ``_copy`` behind."""

from __future__ import annotations

from typing import Any

from tape.operations import indexing
from tape.operations.shapes import diagonals, splitting
from tape.recording import views
from tape.recording.arguments import dim_of
from tape.tensors.operands import tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor


@public(methods=False)
def alias_copy(input: Any) -> Tensor:
    """Return a copy of a tensor.

    >>> tape.alias_copy(tape.ones(2)).tolist()
    [1.0, 1.0]
    """
    return views.clone(tensor_of(input))


@public(methods=False)
def detach_copy(input: Any) -> Tensor:
    """Return a copy of a tensor. As in PyTorch it has a gradient, unlike what ``detach`` gives.

    >>> tape.detach_copy(tape.ones(2)).tolist()
    [1.0, 1.0]
    """
    return views.clone(tensor_of(input))


@public(methods=False)
def view_copy(input: Any, size: Any) -> Tensor:
    """Return a copy of :meth:`Tensor.view`.

    >>> tape.view_copy(tape.ones(2, 3), (3, 2)).shape
    tape.Size([3, 2])
    """
    return views.clone(views.view(tensor_of(input), size))


@public(methods=False)
def expand_copy(input: Any, size: Any) -> Tensor:
    """Return a copy of :meth:`Tensor.expand`.

    >>> tape.expand_copy(tape.ones(3), (2, 3)).shape
    tape.Size([2, 3])
    """
    return views.clone(views.expand(tensor_of(input), size))


@public(methods=False)
def permute_copy(input: Any, dims: Any) -> Tensor:
    """Return a copy of :func:`permute`.

    >>> tape.permute_copy(tape.ones(2, 3), (1, 0)).shape
    tape.Size([3, 2])
    """
    return views.clone(views.permute(tensor_of(input), dims))


@public(methods=False)
def transpose_copy(input: Any, dim0: int, dim1: int) -> Tensor:
    """Return a copy of :func:`transpose`.

    >>> tape.transpose_copy(tape.ones(2, 3), 0, 1).shape
    tape.Size([3, 2])
    """
    return views.clone(views.transpose(tensor_of(input), dim0, dim1))


@public(methods=False)
def t_copy(input: Any) -> Tensor:
    """Return a copy of :func:`t`.

    >>> tape.t_copy(tape.ones(2, 3)).shape
    tape.Size([3, 2])
    """
    return views.clone(views.t(tensor_of(input)))


@public(methods=False)
def squeeze_copy(input: Any, dim: Any = None) -> Tensor:
    """Return a copy of :func:`squeeze`.

    >>> tape.squeeze_copy(tape.ones(1, 3)).shape
    tape.Size([3])
    """
    return views.clone(views.squeeze(tensor_of(input), dim))


@public(methods=False)
def unsqueeze_copy(input: Any, dim: int) -> Tensor:
    """Return a copy of :func:`unsqueeze`.

    >>> tape.unsqueeze_copy(tape.ones(3), 0).shape
    tape.Size([1, 3])
    """
    return views.clone(views.unsqueeze(tensor_of(input), dim))


@public(methods=False)
def diagonal_copy(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy of :func:`diagonal`.

    >>> tape.diagonal_copy(tape.eye(2)).tolist()
    [1.0, 1.0]
    """
    return views.clone(diagonals.diagonal(input, offset, dim1, dim2))


@public(methods=False)
def select_copy(input: Any, dim: int, index: int) -> Tensor:
    """Return a copy of :func:`select`.

    >>> tape.select_copy(tape.eye(2), 0, 1).tolist()
    [0.0, 1.0]
    """
    return views.clone(splitting.select(input, dim, index))


@public()
def narrow_copy(input: Any, dim: int, start: Any, length: int) -> Tensor:
    """Return a copy of :func:`narrow`.

    >>> tape.narrow_copy(tape.arange(4), 0, 1, 2).tolist()
    [1, 2]
    """
    return views.clone(splitting.narrow(input, dim, start, length))


@public(methods=False)
def as_strided_copy(input: Any, size: Any, stride: Any, storage_offset: int = 0) -> Tensor:
    """Return a copy of :func:`as_strided`.

    >>> tape.as_strided_copy(tape.arange(4), (2,), (2,)).tolist()
    [0, 2]
    """
    return views.clone(views.as_strided(tensor_of(input), size, stride, storage_offset))


@public(methods=False)
def unfold_copy(input: Any, dimension: int, size: int, step: int) -> Tensor:
    """Return a copy of :meth:`Tensor.unfold`.

    >>> tape.unfold_copy(tape.arange(3), 0, 2, 1).tolist()
    [[0, 1], [1, 2]]
    """
    return views.clone(splitting.unfold(tensor_of(input), dimension, size, step))


@public(methods=False)
def slice_copy(input: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """Return a copy of a slice along ``dim``.

    >>> tape.slice_copy(tape.arange(5), 0, 1, None, 2).tolist()
    [1, 3]
    """
    x = tensor_of(input)
    return views.clone(indexing.index(x, (slice(None),) * dim_of(x, dim) + (slice(start, end, step),)))


@public(methods=False)
def unbind_copy(input: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return copies of what :func:`unbind` gives.

    >>> [row.tolist() for row in tape.unbind_copy(tape.eye(2))]
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return tuple(map(views.clone, splitting.unbind(input, dim)))


@public(methods=False)
def split_copy(input: Any, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return copies of what :func:`split` gives.

    >>> [part.tolist() for part in tape.split_copy(tape.arange(3), 2)]
    [[0, 1], [2]]
    """
    return tuple(map(views.clone, splitting.split(input, split_size, dim)))


@public(methods=False)
def split_with_sizes_copy(input: Any, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return copies of what :func:`split_with_sizes` gives.

    >>> [part.tolist() for part in tape.split_with_sizes_copy(tape.arange(3), [1, 2])]
    [[0], [1, 2]]
    """
    return tuple(map(views.clone, splitting.split_with_sizes(input, split_sizes, dim)))
