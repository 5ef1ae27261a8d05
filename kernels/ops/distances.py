"""The table of norms and distances: of vectors along dims, and between all points of two sets.

``order`` is the exponent p of the norm, 0 (how many are not zero) and both infinities included. Where a norm is 0 its
gradient is 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides
from kernels.codegen.loop_printer import Loop, Operand
from kernels.codegen.rows.row_values import RowValue, row_value
from kernels.kinds.routine import Routine
from kernels.records.take_put_along import Array, wide


def _vector_norm(x: Array, *, order: float, dims: tuple[int, ...], keepdim: bool) -> Array:
    def norm(x: Array) -> Array:
        if order == 2 and len(dims) == 1 and not keepdim and x.shape[dims[0]] < SHORT:  # noqa: PLR2004
            return np.sqrt(np.vecdot(x, x, axis=dims[0]))  # no squares in new memory
        return np.asarray(np.linalg.vector_norm(x, axis=dims, keepdims=keepdim, ord=order))

    with np.errstate(all="ignore"):
        y = norm(x)
        if not (0 < order < math.inf) or order == 1 or not x.size:
            return y
        lost = (y == np.inf) | (y < (np.finfo(x.dtype).tiny / np.finfo(x.dtype).eps) ** (1 / order))
        if not lost.any():
            return y
        top = np.max(np.abs(x), axis=dims, keepdims=True)
        top = np.where((top > 0) & (top < np.inf), top, 1)  # powers of the elements leave the range: scale them
        return np.where(lost, norm(x / top) * top.reshape(y.shape), y)


def _slope(x: Any, y: Any, order: float, dims: tuple[int, ...]) -> Any:
    """Return the derivative of a norm by each element; y is its value, beside x."""
    if math.isinf(order):
        ties = (np.abs(x) == y) & (x != 0)
        return np.where(ties, np.sign(x) / np.sum(ties, axis=dims, keepdims=True), -0.0)
    if order == 0:
        return np.zeros_like(x)
    if order == 1:
        return np.sign(x)
    if order == 2:  # noqa: PLR2004
        return x / np.where(y == 0, np.inf, y)
    length = np.where(y == 0, 1.0, y)
    some = x != 0
    powers = (np.where(some, np.abs(x), 1.0) / length) ** (order - 1)
    return np.where(some, np.sign(x) * powers, 0.0)


def _vector_norm_vjp(g: Any, y: Any, x: Any, order: float, dims: tuple[int, ...]) -> Any:
    g, y = wide(g, x, dims), wide(y, x, dims)
    slope = _slope(x, y, order, dims)
    return np.where(np.abs(x) == y, g * slope, -0.0) if math.isinf(order) else g * slope


def _vector_norm_native(source: Spec, spec: Spec, order: float, dims: tuple[int, ...], keepdim: bool) -> Loop | None:
    """Return the pullback of lengths, and of sums of absolute values, which are read element by element."""
    if order not in _RULES:
        return None
    remaining = iter(zip(spec.strides, spec.gradient, strict=True))
    pairs = [next(remaining) if keepdim or i not in dims else (0, 0) for i in range(len(source.shape))]
    strides, gradient = (tuple([0 if i in dims else p[k] for i, p in enumerate(pairs)]) for k in range(2))
    operands = [
        Operand("target", source.dtype, 0, source.gradient),
        Operand("g", spec.dtype, 1, gradient),
        Operand("x", source.dtype, 2, source.strides),
        Operand("y", spec.dtype, 3, strides),
    ]
    return Loop(_RULES[order], source.shape, tuple(operands if order != 1 else operands[:3]))


def _vector_norm_rows(shape: Strides, dtype: Any, order: float, dims: Strides, keepdim: bool) -> RowValue | None:
    name = {1.0: "norm1", 2.0: "norm2"}.get(order)
    return None if name is None else row_value(shape, dtype, name, dims, keepdim=keepdim)


_RULES = {
    1.0: lambda g, x: g * np.sign(x),
    2.0: lambda g, x, y: g * (x / np.where(y == 0, np.inf, y)),
}

Routine(
    name="vector_norm",
    doc="Norm of vectors along dims; its gradient at 0 is 0.",
    grad_fn="LinalgVectorNormBackward0",
    function=False,
    forward=_vector_norm,
    vjp=_vector_norm_vjp,
    cuts=True,
    native=_vector_norm_native,
    rows=_vector_norm_rows,
    jvp=lambda t, y, x, order, dims, keepdim: np.sum(
        t * _slope(x, wide(y, x, dims), order, dims), axis=dims, keepdims=keepdim
    ),
    samples=(
        (((5,),), {"order": 2.0, "dims": (0,), "keepdim": False}),
        (((2, 3),), {"order": 3.0, "dims": (1,), "keepdim": True}),
        (((2, 3),), {"order": math.inf, "dims": (0, 1), "keepdim": False}),
    ),
)

BLOCK = 1 << 16
"""Coordinates of pairs of points that are looked at together."""
SHORT = 1 << 13
"""Elements up to which BLAS does not share one product out to threads."""
_METRICS = {1.0: "cityblock", 2.0: "euclidean", math.inf: "chebyshev"}


def _cdist(a: Array, b: Array, *, order: float) -> Array:
    from scipy.spatial import distance

    result = np.empty((*a.shape[:-1], b.shape[-2]), a.dtype)
    for at in np.ndindex(a.shape[:-2]):
        if order == 0:
            result[at] = (a[at][:, None] != b[at][None]).sum(-1)
        elif order in _METRICS:
            result[at] = distance.cdist(a[at], b[at], _METRICS[order])
        else:
            result[at] = distance.cdist(a[at], b[at], "minkowski", p=order)
    return result


def _apart(a: Any, b: Any, y: Any, order: float) -> Any:
    """Return the derivative of each distance by the coordinates of its first point."""
    apart = np.expand_dims(a, -2) - np.expand_dims(b, -3)
    return _slope(apart, np.expand_dims(y, -1), order, (len(apart.shape) - 1,))


def _cdist_vjp(g: Any, y: Any, a: Any, b: Any, order: float) -> tuple[Any, Any]:
    if not isinstance(g, np.ndarray):
        parts = np.expand_dims(g, -1) * _apart(a, b, y, order)
        return np.sum(parts, -2), -np.sum(parts, -3)
    da, db = np.zeros_like(a), np.zeros_like(b)
    some = max(BLOCK // max(b.size, 1), 1)
    for i in range(0, a.shape[-2], some):  # a few points at a time: all pairs at once would need much memory
        row = (..., slice(i, i + some), slice(None))
        part = np.expand_dims(g[row], -1) * _apart(a[row], b, y[row], order)
        da[row] += part.sum(-2)
        db -= part.sum(-3)
    return da, db


def _cdist_jvp(t_a: Any, t_b: Any, y: Any, a: Any, b: Any, order: float) -> Any:
    apart = (0.0 if t_a is None else np.expand_dims(t_a, -2)) - (0.0 if t_b is None else np.expand_dims(t_b, -3))
    return np.sum(_apart(a, b, y, order) * apart, -1)


Routine(
    name="cdist",
    doc="Distances between all points of two sets, which are rows.",
    grad_fn="CdistBackward0",
    function=False,
    forward=_cdist,
    vjp=_cdist_vjp,
    jvp=_cdist_jvp,
    samples=((((3, 2), (2, 2)), {"order": 2.0}), (((2, 3, 2), (2, 2, 2)), {"order": 3.0})),
)
