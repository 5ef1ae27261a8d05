"""Dims as users give them: negative, one or several, NumPy's ``axis`` and ``keepdims`` beside PyTorch's names."""

from __future__ import annotations

import functools
import operator
from typing import Any

from tape.tensors.tensor import Tensor


def dim_of(x: Tensor, dim: Any, *, extra: int = 0) -> int:
    """Return a dim as a non-negative int; IndexError names the range. 0-d tensors accept 0 and -1."""
    return _axis(max(len(x._form.spec.shape) + extra, 1), operator.index(dim))


def _axis(rank: int, number: int) -> int:
    if not -rank <= number < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {number})")
    return number % rank


def dims_of(x: Tensor, dim: Any) -> tuple[int, ...]:
    """Return one dim, several or None (all) as a tuple of axes of the array."""
    rank = len(x._form.spec.shape)
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(rank))
    return _axes(rank, tuple(map(operator.index, dim if isinstance(dim, (tuple, list)) else (dim,))))


@functools.lru_cache(512)
def _axes(rank: int, numbers: tuple[int, ...]) -> tuple[int, ...]:
    dims = tuple(_axis(max(rank, 1), number) for number in numbers)
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"dim {max(dims, key=dims.count)} appears multiple times in the list of dims")
    return dims if rank else ()


def ints_of(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Return ``f(2, 3)`` and ``f((2, 3))`` alike as a tuple of ints."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = tuple(args[0])
    return tuple(map(operator.index, args))


def either(name: str, value: Any, other: str, alias: Any, default: Any) -> Any:
    """Return the argument given by PyTorch's or by NumPy's keyword for the same thing; TypeError for both."""
    if alias is None:
        return default if value is None else value
    if value is not None:
        raise TypeError(f"give {name} or {other}, which mean the same, not both")
    return alias
