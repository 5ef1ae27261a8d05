"""Matrices as users give them: checked as PyTorch checks them, of one dtype and the same extents in front."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.recording import views
from tape.recording.promotion import alike
from tape.tensors.operands import _merge, tensor_of
from tape.tensors.tensor import Tensor

MATRIX = 2


def tensor_like(x: Any) -> Tensor:
    """Return an operand as a tensor, nested lists of numbers too."""
    return tensor_of(np.asarray(x) if isinstance(x, (list, tuple)) else x)


def matrix_of(name: str, value: Any, argument: str = "A") -> Tensor:
    """Return a floating tensor of two or more dims; RuntimeError otherwise, with PyTorch's words."""
    x = tensor_like(value)
    if x.spec.dtype.kind != "f":
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {x.spec.dtype.name}; "
            "convert it first: A.double()"
        )
    if len(x.spec.shape) < MATRIX:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions.")
    return x


def square_of(name: str, value: Any, argument: str = "A") -> Tensor:
    """Return a floating tensor of square matrices; RuntimeError otherwise, with PyTorch's words."""
    x = matrix_of(name, value, argument)
    m, n = x.spec.shape[-2:]
    if m != n:
        raise RuntimeError(f"{name}: {argument} must be batches of square matrices, but they are {m} by {n} matrices")
    return x


def batch_of(x: Tensor) -> tuple[int, ...]:
    """Return the extents in front of the matrices."""
    return x.spec.shape[:-2]


def spread(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Return matrices expanded to these extents in front."""
    shape = (*batch, *x.spec.shape[-2:])
    return x if x.spec.shape == shape else views.expand(x, shape)


def together(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices with the same extents in front, broadcast, and of one dtype."""
    if a.spec.dtype == b.spec.dtype and batch_of(a) == batch_of(b):
        return a, b
    a, b = alike(a, b)
    batch = _merge(name, batch_of(a), batch_of(b))
    return spread(a, batch), spread(b, batch)


def turned(x: Tensor) -> Tensor:
    """Return the view with the last two dims exchanged."""
    return views.transpose(x, -2, -1)


def identity(n: int, like: Tensor) -> Tensor:
    """Return the identity matrix of a tensor's dtype."""
    return tensor_of(np.eye(n, dtype=like.spec.dtype))
