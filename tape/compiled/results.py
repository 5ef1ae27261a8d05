"""Results of compiled functions: NumPy's where the arguments were, and whether two results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.tensors.pytrees import flattened
from tape.tensors.tensor import Array, Tensor


def as_given(result: Any, *, tensors: bool) -> Any:
    """Return a result with NumPy's values for tensors that do not require grad, unless tensors were given."""
    if tensors:
        return result
    if isinstance(result, Tensor):
        return _plain(result)
    leaves, structure = flattened(result, none=True)
    return structure.filled([_plain(x) if isinstance(x, Tensor) else x for x in leaves])


def _plain(x: Tensor) -> Any:
    if x._slot is not None:
        return x
    value = x._value
    if type(value) is float:
        return value
    array = np.array(value, order="K")
    return float(array) if array.ndim == 0 and array.dtype.kind == "f" else array


def same_results(one: Any, other: Any) -> bool:
    """Whether two results are the same to the last bit; one nan is as good as another."""
    leaves, structure = flattened(one, none=True)
    others, other_structure = flattened(other, none=True)
    return structure == other_structure and all(map(_same, leaves, others))


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, Tensor) != isinstance(y, Tensor):
        return False
    if isinstance(x, Tensor):
        return (x._slot is None) == (y._slot is None) and _same(np.asarray(x._value), np.asarray(y._value))
    if isinstance(x, (np.ndarray, np.generic, float)):
        a, b = np.asarray(x), np.asarray(y)
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype.kind != "f":
            return bool(np.array_equal(a, b))
        return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(_signs(a), _signs(b)))
    return bool(x is y or (type(x) is type(y) and repr(x) == repr(y)))


def _signs(values: Array) -> Array:
    return np.where(np.isnan(values), False, np.signbit(values))
