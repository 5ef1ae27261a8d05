"""A nested structure as one vector, and back, for SciPy's solvers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tape.recording import casts, views
from tape.tensors import pytrees
from tape.tensors.operands import operand, tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor

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
    return x if x.spec.dtype == dtype else casts.cast(x, dtype)


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
