"""Operands: what the user gives, checked, as tensors, Python numbers and what NumPy computes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.tensor import Array, Tensor, carried, plain

Number = (int, float)
LARGEST = 1 << 53
"""Integers up to here are exact as doubles."""


def is_mask(condition: Any) -> bool:
    """Whether a condition is boolean."""
    return condition.spec.dtype == np.bool_ if isinstance(condition, Tensor) else isinstance(condition, bool)


def values_of(operands: tuple[Any, ...]) -> list[Any]:
    """Return what NumPy computes on: where dtypes differ, a tensor's Python float must not count as weak."""
    dtypes = {o.spec.dtype for o in operands if isinstance(o, Tensor)}
    if len(dtypes) > 1:
        return [np.asarray(o._value) if isinstance(o, Tensor) else o for o in operands]
    return [o._value if isinstance(o, Tensor) else o for o in operands]


def as_saved(value: Any) -> Any:
    """Return a value as the tape keeps it: a Python number as a float."""
    return float(value) if type(value) is int else value


def operand(value: Any) -> Any:
    """Return an operand as a tensor or a Python number; arrays are shared, not copied."""
    if isinstance(value, Tensor):
        return value
    if type(value) is float or type(value) is bool:
        return value
    if type(value) is int:
        return value if -LARGEST <= value <= LARGEST else plain(np.asarray(value))
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(carried(native(np.asarray(value))))
    if isinstance(value, Number):
        return float(value) if isinstance(value, float) else int(value)
    raise TypeError(f"an operand is a {type(value).__name__}; tensors take tensors, NumPy arrays and numbers")


def native(array: Array) -> Array:
    """Check that an array can be a tensor's value: numbers of a supported dtype, native and aligned."""
    if not array.dtype.isnative or not array.flags.aligned:
        what = "byte order" if not array.dtype.isnative else "alignment"
        raise TypeError(
            f"array of dtype {array.dtype.str!r} has a foreign {what}; "
            "convert it first: array.astype(array.dtype.newbyteorder('='))"
        )
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:  # noqa: PLR2004
        raise TypeError(f"tensors hold floats, integers and booleans, not dtype {array.dtype}; convert with astype")
    return array


def check_broadcast(name: str, operands: tuple[Any, ...]) -> None:
    """Raise PyTorch's message, and the operation's name, if shapes do not broadcast."""
    shapes = [o.spec.shape for o in operands if isinstance(o, Tensor)]
    if len(shapes) < 2 or shapes.count(shapes[0]) == len(shapes):  # noqa: PLR2004
        return
    merged: tuple[int, ...] = ()
    for shape in shapes:
        merged = _merge(name, merged, shape)


def _merge(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for dim in range(rank - 1, -1, -1):
        if left[dim] != right[dim] and 1 not in (left[dim], right[dim]):
            raise RuntimeError(
                f"{name}: The size of tensor a ({left[dim]}) must match the size of tensor b ({right[dim]}) at "
                f"non-singleton dimension {dim}; the shapes are {list(a)} and {list(b)}"
            )
    return tuple(m if n == 1 else n for m, n in zip(left, right, strict=True))
