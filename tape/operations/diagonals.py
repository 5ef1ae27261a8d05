"""Diagonals, triangles and grids; a nested structure as one vector. NumPy's functions too."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from kernels.foundation.specs import FLOAT64
from tape.operations import gather
from tape.operations.elementwise import FUNCTIONS, cast
from tape.recording import creation, record, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import dim_of, with_name
from tape.tensors import pytrees
from tape.tensors.hooks import implements, public
from tape.tensors.operands import operand, tensor_of
from tape.tensors.tensor import Array, Tensor, constant_tensor, method

_MATRIX = 2


@public()
@cached_call()
def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a view of the diagonal of two dims, as the last dim; ``offset`` counts from it towards ``dim2``.

    >>> tape.diagonal(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), offset=1).tolist()
    [2.0]
    """
    input = tensor_of(input)
    a, b = _pair(input, dim1, dim2)
    rank = len(input.spec.shape)
    return record.view(views.VIEWS["diagonal"], input, ((offset, a - rank, b - rank),))


def _pair(x: Tensor, dim1: int, dim2: int, extra: int = 0) -> tuple[int, int]:
    a, b = dim_of(x, dim1, extra=extra), dim_of(x, dim2, extra=extra)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return a, b


@public()
def diag(input: Any, diagonal: int = 0) -> Tensor:
    """Return a copy of a diagonal of a matrix, or the matrix with a vector on that diagonal and zeros elsewhere.

    >>> tape.diag(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    input = tensor_of(input)
    rank = len(input.spec.shape)
    if rank not in (1, _MATRIX):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {rank}D")
    return diag_embed(input, diagonal) if rank == 1 else views.clone(_diagonal_of(input, diagonal))


_diagonal_of = diagonal


@public()
def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return matrices in two new dims, with the last dim of x on a diagonal and zeros elsewhere.

    >>> tape.diag_embed(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, 4.0]]]
    """
    input = tensor_of(input)
    a, b = _pair(input, dim1, dim2, extra=1)
    *lead, n = input.spec.shape or (1,)
    shape: list[int] = lead
    for at in sorted((a, b)):
        shape.insert(at, n + abs(offset))
    result = creation.zeros(shape, dtype=input.spec.dtype)
    _diagonal_of(result, offset, a, b).copy_(input)
    return result


@public()
def diagflat(input: Any, offset: int = 0) -> Tensor:
    """Return the matrix with all elements on a diagonal, and zeros elsewhere.

    >>> tape.diagflat(tape.tensor([[1.0], [2.0]])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    return diag_embed(views.reshape(tensor_of(input), -1), offset)


@method()
def fill_diagonal_(x: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Fill the main diagonal in place; with ``wrap`` it begins again below the first square of a tall matrix.

    >>> tape.zeros(2, 2).fill_diagonal_(1.0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    shape = x.spec.shape
    if len(shape) < _MATRIX:
        raise RuntimeError(f"fill_diagonal_: dimensions must larger than 1, got shape {list(shape)}")
    if len(shape) > _MATRIX and len(set(shape)) > 1:
        raise RuntimeError(f"fill_diagonal_: all dimensions of input must be of equal length, got shape {list(shape)}")
    n = min(shape)
    at = np.arange(0, shape[0] if wrap and len(shape) == _MATRIX else n)
    key = (at[at % (shape[1] + 1) < shape[1]],) * len(shape)
    if len(shape) == _MATRIX:
        key = (key[0], key[0] % (shape[1] + 1))
    x[key] = fill_value
    return x


def _triangle(name: str, *, lower: bool) -> Any:
    part = "lower" if lower else "upper"
    doc = f"""Return a copy with zeros outside of the {part} triangle, ``diagonal`` above the main one.

    >>> tape.{name}(tape.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    {[[1.0, 0.0], [3.0, 4.0]] if lower else [[1.0, 2.0], [0.0, 4.0]]}
    """

    @public()
    @with_name(name, doc)
    def triangle(input: Any, diagonal: int = 0) -> Tensor:
        input = tensor_of(input)
        if len(input.spec.shape) < _MATRIX:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions, got {list(input.spec.shape)}")
        return _masked(input, diagonal, lower)

    @method(f"{name}_")
    @with_name(f"{name}_", f"Set what is outside of the {part} triangle to zero, in place.")
    def in_place(x: Tensor, diagonal: int = 0) -> Tensor:
        return x.copy_(triangle(x, diagonal))

    return triangle


def _masked(x: Tensor, k: int, lower: bool) -> Tensor:
    """Cut what is outside of a triangle; a vector is every row of a square, as NumPy has it."""
    n, m = (x.spec.shape * 2)[-2:]
    mask = constant_tensor(_mask(n, m, k if lower else k - 1))
    return FUNCTIONS["where"](mask, x, 0) if lower else FUNCTIONS["where"](mask, 0, x)  # type: ignore[no-any-return]


@functools.lru_cache(16)
def _mask(n: int, m: int, k: int) -> Array:
    mask = np.tri(n, m, k, bool)
    mask.flags.writeable = False
    return mask


tril, triu = _triangle("tril", lower=True), _triangle("triu", lower=False)


@public(methods=False)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Return the rows and columns of the lower triangle of a matrix, as a tensor of two rows; int64 by default.

    >>> tape.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _indices(np.tril_indices, row, col, offset, dtype)


@public(methods=False)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Return the rows and columns of the upper triangle of a matrix, as a tensor of two rows; int64 by default.

    >>> tape.triu_indices(2, 2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return _indices(np.triu_indices, row, col, offset, dtype)


def _indices_from(function: Any) -> Any:
    """Let one of NumPy's functions number the elements of a matrix's triangle."""

    def of(arr: Tensor, k: int = 0) -> tuple[Tensor, ...]:
        if len(arr.spec.shape) != 2:  # noqa: PLR2004
            raise ValueError(f"input array must be 2-d; the shape is {list(arr.spec.shape)}")
        return tuple(map(tensor_of, function(arr.spec.shape[0], k, arr.spec.shape[1])))

    return of


implements(np.tril_indices_from)(_indices_from(np.tril_indices))
implements(np.triu_indices_from)(_indices_from(np.triu_indices))


@implements(np.diag_indices_from)
def _diag_indices_from(arr: Tensor) -> tuple[Tensor, ...]:
    shape = arr.spec.shape
    if len(shape) < 2 or len(set(shape)) > 1:  # noqa: PLR2004
        raise ValueError(f"All dimensions of input must be of equal length, two at least; the shape is {list(shape)}")
    return tuple(map(tensor_of, np.diag_indices(shape[0], len(shape))))


def _indices(function: Any, row: int, col: int, offset: int, dtype: Any) -> Tensor:
    for name, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{name} must be non-negative, got {n}")
    numbers = np.stack(function(row, offset, col))
    return constant_tensor(numbers.astype(np.int64 if dtype is None else dtype, copy=False))


@implements(np.diagonal, records="diagonal")
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    x = tensor_of(a)
    if len(x.spec.shape) < _MATRIX:
        raise ValueError("diag requires an array of at least two dimensions")
    return diagonal(x, offset, axis1, axis2)


@implements(np.diag)
def _diag(v: Any, k: int = 0) -> Tensor:
    x = tensor_of(v)
    if len(x.spec.shape) not in (1, _MATRIX):
        raise ValueError("Input must be 1- or 2-d.")
    return diagonal(x, k) if len(x.spec.shape) == _MATRIX else diag(x, k)  # NumPy gives a view of a matrix


implements(np.diagflat)(lambda v, k=0: diagflat(v, k))
implements(np.tril)(lambda m, k=0: _of_numpy(m, k, lower=True))
implements(np.triu)(lambda m, k=0: _of_numpy(m, k, lower=False))


def _of_numpy(m: Any, k: int, *, lower: bool) -> Tensor:
    x = tensor_of(m)
    if not x.spec.shape:
        raise ValueError("np.tril and np.triu take arrays of at least one dimension")
    return _masked(x, k, lower)


@implements(np.fill_diagonal)
def _fill_diagonal(a: Tensor, val: Any, wrap: bool = False) -> None:
    if len(a.spec.shape) < _MATRIX:
        raise ValueError("array must be at least 2-d")
    a.fill_diagonal_(val, wrap)


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
    dtypes = [x.dtype if x.dtype.kind == "f" else FLOAT64 for x in operands]
    dtype = np.result_type(*dtypes) if dtypes else FLOAT64
    numbers = [not isinstance(x, (Tensor, np.ndarray)) for x in leaves]
    back = Inverse(structure, [tuple(x.shape) for x in operands], dtypes, numbers)
    if any(isinstance(x, Tensor) for x in operands):
        return views.cat([cast(views.reshape(tensor_of(x), -1), dtype) for x in operands]), back
    parts = [np.reshape(x, -1) for x in operands]
    return np.concatenate(parts, dtype=dtype) if parts else np.zeros(0), back


def _leaf(x: Any, path: str) -> Any:
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
        descriptions = zip(self.places, self.shapes, self.dtypes, self.numbers, strict=True)
        return self.structure.filled(self._part(vector, *description) for description in descriptions)

    def _part(self, vector: Any, place: tuple[int, int], shape: Any, dtype: Any, number: bool) -> Any:
        part = vector if place == (0, self.size) else vector[place[0] : place[1]]
        if isinstance(vector, Tensor):
            return cast(views.reshape(part, shape), dtype)
        return float(part[0]) if number else np.array(part, dtype).reshape(shape)
