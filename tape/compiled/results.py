"""Results of compiled functions: NumPy's where the arguments were, and whether two results are the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tape.tensors.pytrees import flattened
from tape.tensors.tensor import Array, Tensor, constant_tensor, scalar_or_array

DOUBLE, SINGLE = (1 << 16) * float(np.finfo(np.float64).eps), (1 << 13) * float(np.finfo(np.float32).eps)
"""How far results that rounding sets apart are from each other, of the largest: where all is float64, and where not."""
_RUNS = 1 << 10
"""How many times as far apart as results of arguments one rounding apart."""
_MOST_RUNS = 4


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


def same_results(one: Any, other: Any, *, rounding: float = 0.0) -> bool:
    """Whether two results are the same to the last bit, or up to this part of the largest; nan is as good as nan."""
    (leaves, structure), (others, other_structure) = (flattened(x, none=True) for x in (one, other))
    if structure != other_structure:
        return False
    apart = rounding * sizes(others) if rounding else 0.0
    return all(_same(x, y, apart) for x, y in zip(leaves, others, strict=True))


def within_runs(one: Any, other: Any, runs: Sequence[Any], apart: float) -> bool:
    """Whether two results are as close as rounding leaves them: nearer than ``apart``, and as near as runs come.

    These are of arguments that differ by rounding. Where a result is what is left of terms that cancel, both are of the
    size of these terms' rounding. A wrong term is farther; and so is chaos, whose runs come anywhere.
    """
    (leaves, structure), (others, other_structure) = (flattened(x, none=True) for x in (one, other))
    if not runs or structure != other_structure:
        return False
    columns = zip(leaves, others, *[flattened(x, none=True)[0] for x in runs], strict=True)
    return all(_within(*column, apart=apart) for column in columns)


def _within(x: Any, y: Any, *runs: Any, apart: float) -> bool:
    if _same(x, y, 0.0):
        return True
    one, other, *others = [np.asarray(v._value if isinstance(v, Tensor) else v) for v in (x, y, *runs)]
    if one.dtype.kind != "f" or one.dtype != other.dtype or one.shape != other.shape:
        return False
    spread = max(_size(run - other) for run in others)
    return bool(np.allclose(one, other, rtol=0.0, atol=min(apart, _RUNS * spread), equal_nan=True))


def sizes(values: Iterable[Any]) -> float:
    """Return the size of the largest finite element of values."""
    return max(map(_size, values), default=0.0)


def one_rounding_apart(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Give values several times, each floating one changed by about its rounding, zeros by that of the largest."""
    random = np.random.default_rng(0)
    for _ in range(_MOST_RUNS):
        yield [_rounded(x, random) for x in values]


def _rounded(x: Any, random: np.random.Generator) -> Any:
    array = np.asarray(x._value if isinstance(x, Tensor) else x)
    if array.dtype.kind != "f":
        return x
    scale = np.where(array == 0, _size(array) or 1.0, np.abs(array)) * np.finfo(array.dtype).eps
    moved = np.array(array + scale * random.choice([-2.0, -1.0, 1.0, 2.0], array.shape), array.dtype)
    return constant_tensor(scalar_or_array(moved)) if isinstance(x, Tensor) else moved if array.ndim else moved[()]


def _same(x: Any, y: Any, apart: float) -> bool:
    if isinstance(x, Tensor) != isinstance(y, Tensor):
        return False
    if isinstance(x, Tensor):
        return (x._slot is None) == (y._slot is None) and _same(np.asarray(x._value), np.asarray(y._value), apart)
    if isinstance(x, (np.ndarray, np.generic, float)):
        return _same_arrays(np.asarray(x), np.asarray(y), apart)
    return bool(x is y or (type(x) is type(y) and repr(x) == repr(y)))


def _same_arrays(a: Array, b: Array, apart: float) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    if apart:
        return bool(np.allclose(a, b, rtol=0.0, atol=apart, equal_nan=True))
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(_signs(a), _signs(b)))


def _size(x: Any) -> float:
    """Return the size of the largest finite element of a result; 0 for what has none."""
    values = np.asarray(x._value if isinstance(x, Tensor) else x)
    if values.dtype.kind != "f" or not values.size:
        return 0.0
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))


def _signs(values: Array) -> Array:
    return np.where(np.isnan(values), False, np.signbit(values))
