"""Which elements are there: in a set, one after the other, in which place. No gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.operations.numpy_arguments import array_like
from tape.operations.reductions.sorting import constant_result, escaped_values
from tape.recording import integer_indices
from tape.recording.arguments import dim_of
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor


@public(methods=False)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return which elements, of the first tensor's shape, are among those of the second; with ``invert`` are not.

    >>> tape.isin(tape.tensor([1, 2, 3]), tape.tensor([3, 1])).tolist()
    [True, False, True]
    """
    x, among = (escaped_values(array_like(e).detach(), "isin") for e in (elements, test_elements))
    return constant_result(np.isin(x, among, assume_unique=assume_unique, invert=invert))


@implements(np.isin)
def _isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Tensor:
    del kind
    return isin(element, test_elements, assume_unique=assume_unique, invert=invert)


@public()
def unique_consecutive(input: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    """Return the elements, or slices along ``dim``, that differ from the one before; no gradient.

    ``return_inverse`` adds where each element is among them, ``return_counts`` how often each one comes in a row, both
    int64. NotImplementedError for a tensor that requires grad.

    >>> [e.tolist() for e in tape.unique_consecutive(tape.tensor([1, 1, 2, 1]), return_counts=True)]
    [[1, 2, 1], [2, 1, 1]]
    """
    input = tensor_of(input)
    array = escaped_values(input, "unique_consecutive")
    rows = array.reshape(-1) if dim is None else np.moveaxis(array, dim_of(input, dim), 0)
    differs = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim)))
    first = np.flatnonzero(np.concatenate([np.ones(min(len(rows), 1), np.bool_), differs]))
    values = rows[first] if dim is None else np.moveaxis(rows[first], 0, dim_of(input, dim))
    inverse = np.searchsorted(first, np.arange(len(rows)), side="right") - 1
    inverse = inverse.reshape(input.spec.shape) if dim is None else inverse
    counts = np.diff(first, append=len(rows))
    parts = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    return constant_result(values) if len(parts) == 1 else tuple(map(constant_result, parts))


@public(methods=False)
def unravel_index(indices: Any, shape: Any) -> tuple[Tensor, ...]:
    """Return, for each dim of a shape, the places along it of elements numbered in C order.

    ValueError for a number that is none of an element.

    >>> [at.tolist() for at in tape.unravel_index(tape.tensor([3, 5]), (2, 3))]
    [[1, 1], [0, 2]]
    """
    numbers = integer_indices.integers(indices, "unravel_index", ValueError)
    extents = (shape,) if isinstance(shape, int) else tuple(map(int, shape))
    return tuple(map(constant_result, np.unravel_index(numbers, extents)))


@implements(np.unravel_index)
def _unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Tensor, ...]:
    if order != "C":
        raise TypeError("np.unravel_index of a tensor takes order='C'")
    return unravel_index(indices, shape)


def _of_sets(function: Any) -> Any:
    """Return one of NumPy's functions of sets for tensors: it runs on their values, without a gradient."""

    def run(ar1: Any, ar2: Any, *args: Any, **kwargs: Any) -> Any:
        parts = function(*(escaped_values(array_like(x), function.__name__) for x in (ar1, ar2)), *args, **kwargs)
        return tuple(map(constant_result, parts)) if isinstance(parts, tuple) else constant_result(parts)

    return run


for _function in (np.intersect1d, np.union1d, np.setdiff1d, np.setxor1d):
    implements(_function)(_of_sets(_function))
