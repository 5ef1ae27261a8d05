"""Grids of coordinates, and all tuples of elements; NumPy's meshgrid too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tape.operations import gather
from tape.recording import promotion, views
from tape.tensors import pytrees
from tape.tensors.operands import operand, tensor_of
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


# A nested structure as one vector, and back, for SciPy's solvers.

_FLOAT64 = np.dtype(np.float64)


@public()
def ravel(input: Any) -> Any:
    """Return a tensor's elements in one dim, a view where strides allow one; of a structure a vector and its inverse.

    Dicts, lists, tuples and dataclasses of numbers, arrays and tensors, in the order of their leaves, become an array,
    or with a tensor among them a tensor, through which gradients go. The inverse takes such a vector, array or tensor,
    and returns the structure with parts of it: arrays, and floats for numbers, or tensors, views of the vector. Ints
    count as floats. TypeError, naming the path, for what is no number; ValueError for a vector of another length.

    >>> tape.ravel(tape.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 2., 3., 4.])
    >>> vector, back = tape.ravel({"a": np.ones(2), "b": 3.0})
    >>> vector, back(2 * vector)
    (array([1., 1., 3.]), {'a': array([2., 2.]), 'b': 6.0})
    """
    if pytrees.is_structure(input):
        return raveled(input)
    input = tensor_of(input)
    return input if len(input.spec.shape) == 1 and views.contiguous(input) is input else views.reshape(input, -1)


def raveled(tree: Any) -> tuple[Any, Inverse]:
    """Return a structure, which may be a single leaf, as a vector, and the inverse; see :func:`ravel`."""
    leaves, structure = pytrees.flattened(tree)
    operands = [_leaf(x, path) for x, path in zip(leaves, structure.paths(), strict=True)]
    dtypes = [x.dtype if x.dtype.kind == "f" else _FLOAT64 for x in operands]
    dtype = np.result_type(*dtypes) if dtypes else _FLOAT64
    numbers = [not isinstance(x, (Tensor, np.ndarray)) for x in leaves]
    back = Inverse(structure, [tuple(x.shape) for x in operands], dtypes, numbers)
    if any(isinstance(x, Tensor) for x in operands):
        return views.cat([_cast(views.reshape(tensor_of(x), -1), dtype) for x in operands]), back
    parts = [np.reshape(x, -1) for x in operands]
    return np.concatenate(parts, dtype=dtype) if parts else np.zeros(0), back


def _leaf(x: Any, path: str) -> Any:
    """Return a leaf as an array or tensor."""
    if isinstance(x, Tensor) and x.spec.dtype.kind in "fiu":
        return x
    try:
        value = x if isinstance(x, bool | str | Tensor) else operand(x)
    except TypeError:
        value = None
    array = np.asarray(value._value if isinstance(value, Tensor) else value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"ravel: {path or 'the argument'} is a {type(x).__name__}, no number, array or tensor of them")
    return array


def _cast(x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    return x if x.spec.dtype == dtype else promotion.cast(x, dtype)


class Inverse:
    """Puts a vector's elements into a structure."""

    def __init__(
        self, structure: pytrees.Structure, shapes: list[tuple[int, ...]], dtypes: list[Any], numbers: list[bool]
    ) -> None:
        self.structure, self.shapes, self.dtypes, self.numbers = structure, shapes, dtypes, numbers
        ends = list(itertools.accumulate((int(np.prod(shape)) for shape in shapes), initial=0))
        self.size, self.places = ends[-1], list(itertools.pairwise(ends))

    def __call__(self, vector: Any) -> Any:
        """Return the structure with parts of a vector."""
        if not isinstance(vector, Tensor):
            vector = np.asarray(vector)
        if tuple(vector.shape) != (self.size,):
            raise ValueError(f"ravel: the structure takes a vector of {self.size}, not of shape {tuple(vector.shape)}")
        part = self._tensor if isinstance(vector, Tensor) else self._array
        descriptions = zip(self.places, self.shapes, self.dtypes, self.numbers, strict=True)
        return self.structure.filled(part(vector, *description) for description in descriptions)

    def _tensor(self, vector: Tensor, place: tuple[int, int], shape: Any, dtype: Any, number: bool) -> Tensor:
        del number
        whole = place == (0, self.size)
        return _cast(views.reshape(vector if whole else vector[place[0] : place[1]], shape), dtype)

    def _array(self, vector: Any, place: tuple[int, int], shape: Any, dtype: Any, number: bool) -> Any:
        if number:
            return float(vector[place[0]])
        return np.array(vector[place[0] : place[1]], dtype).reshape(shape)
