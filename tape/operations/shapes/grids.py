"""Grids of coordinates, and all tuples of elements; NumPy's meshgrid too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tape.operations import gather
from tape.recording import views
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor


@public(methods=False)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Return a view of each vector along a dim of its own, all of one shape.

    ``indexing``: with "ij", the default, the first vector goes along the first dim, with "xy" along the second.

    >>> rows, columns = tape.meshgrid(tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0]))
    >>> rows.tolist(), columns.tolist()
    ([[1.0, 1.0], [2.0, 2.0]], [[3.0, 4.0], [3.0, 4.0]])
    """
    listed = len(tensors) == 1 and isinstance(tensors[0], (tuple, list))
    vectors = [tensor_of(x) for x in (tensors[0] if listed else tensors)]
    if not vectors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in vectors:
        if len(x.spec.shape) > 1:
            raise RuntimeError(
                f"meshgrid: Expected 0D or 1D tensor in the tensor list but got shape {list(x.spec.shape)}"
            )
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    return _full(_open(vectors, swapped=indexing == "xy"))


def _open(vectors: list[Tensor], *, swapped: bool) -> list[Tensor]:
    """Return each vector along its own dim, the first two exchanged on demand."""
    order = list(range(len(vectors)))
    if swapped and len(order) > 1:
        order[:2] = 1, 0
    return [
        views.reshape(x, tuple([x.spec.size if k == at else 1 for k in range(len(vectors))]))
        for at, x in zip(order, vectors, strict=True)
    ]


def _full(grids: list[Tensor]) -> tuple[Tensor, ...]:
    shape = np.broadcast_shapes(*(x.spec.shape for x in grids))
    return tuple(views.expand(x, shape) for x in grids)


@public(methods=False)
def cartesian_prod(*tensors: Any) -> Tensor:
    """Return all tuples with an element of each vector, a row each; of one vector, itself.

    >>> tape.cartesian_prod(tape.tensor([1.0, 2.0]), tape.tensor([3.0, 4.0])).tolist()
    [[1.0, 3.0], [1.0, 4.0], [2.0, 3.0], [2.0, 4.0]]
    """
    vectors = [_vector(x) for x in tensors]
    if len(vectors) == 1:
        return vectors[0]
    return views.stack([views.reshape(x, -1) for x in meshgrid(*vectors)], 1)


@public(methods=False)
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all choices of ``r`` elements of a vector, in order, a row each.

    Of n elements: (C, r), C being the number of choices; ``with_replacement`` an element may come again.

    >>> tape.combinations(tape.tensor([1.0, 2.0, 3.0])).tolist()
    [[1.0, 2.0], [1.0, 3.0], [2.0, 3.0]]
    """
    input = _vector(input)
    if r < 0:
        raise RuntimeError(f"combinations: Expect a non-negative number, but got {r}")
    if r == 0:
        return tensor_of(np.zeros(0, input.spec.dtype))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(input.spec.size), r)), np.int64).reshape(-1, r)
    return gather.picked_flat(input, rows)


def _vector(value: Any) -> Tensor:
    x = tensor_of(value)
    if len(x.spec.shape) != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.spec.shape)}")
    return x


@implements(np.meshgrid)
def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Of vectors along dims of their own; as NumPy has it, the first two are exchanged by default."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    grids = _open([tensor_of(x) for x in xi], swapped=indexing == "xy")
    result = tuple(grids) if sparse or not grids else _full(grids)
    return tuple(map(views.clone, result)) if copy else result
