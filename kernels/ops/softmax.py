"""The table of sums of exponentials: logsumexp, softmax, log_softmax.

Large arrays go through our own kernels, row by row or some columns at a time, while they are in the cache; small ones
go through NumPy.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, dense
from kernels.codegen.rows.row_pulls import RowPull, address, have_text, row_pull
from kernels.codegen.rows.row_values import row_value
from kernels.compiler.jit import callable_at
from kernels.kinds.reduction import Reduction
from kernels.kinds.routine import Routine
from kernels.native.memory import where
from kernels.native.pool import reused_arrays
from kernels.native.pool.pool_structs import LARGE
from kernels.records.take_put_along import Array

BLOCK = 1 << 14
"""Elements of a block: three arrays of doubles in half a megabyte."""
PART = 1 << 10
"""Elements that a kernel goes through at a time (logsums_native.PART)."""
COLUMNS = 64
"""The least number of columns that a kernel goes through at a time, if there are as many."""


def by_kernel(x: Array) -> bool:
    """Whether our own kernels do this."""
    return (
        x.nbytes >= LARGE
        and x.dtype in (np.float64, np.float32)
        and have_text("codegen.rows.logsums_native", "codegen.rows.logsum_columns_native")
    )


def run(name: str, shape: tuple[int, ...], dim: int, result: Array, *operands: Array) -> Array:
    """Run a kernel along a dim of arrays of this shape; the operands are made contiguous."""
    outer, length, inner = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    columns = min(inner, max(BLOCK // max(length, 1), COLUMNS))
    scratch = np.empty(max(PART, 2 * columns), result.dtype)
    inputs = [np.ascontiguousarray(x, result.dtype) for x in operands]
    layout = np.array([outer, length, inner, columns], np.int64)
    pointers = np.array([where(x) for x in (result, *inputs, scratch)], np.int64)
    file = "codegen.rows.logsums_native" if inner == 1 else "codegen.rows.logsum_columns_native"
    _compiled(file, name, result.dtype)(where(layout), where(pointers), 0)
    return result


@functools.cache
def _compiled(file: str, name: str, dtype: np.dtype[Any]) -> Any:
    """Return one kernel of a file."""
    return callable_at(address(file, name, dtype))


def _largest(x: Array, dim: int) -> Array:
    return np.asarray(np.maximum.reduce(x, dim, None, None, True, -np.inf))


class LogSumExp:
    """What reduces arrays as a ufunc does."""

    __name__ = "logsumexp"

    def reduce(self, array: Array, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Return the logarithm of the sum of exponentials over axes; large arrays along one axis by rows."""
        del dtype, out
        axes = tuple(range(array.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        if len(axes) == 1 and array.size > BLOCK and by_kernel(array):
            shape = tuple(1 if i in axes else n for i, n in enumerate(array.shape) if keepdims or i not in axes)
            return run("logsumexp", array.shape, axes[0], reused_arrays.call(np.empty, shape, array.dtype), array)
        with np.errstate(all="ignore"):
            top = array.real.max(axis=axes, keepdims=True, initial=-np.inf)
            if not np.isfinite(top).all():
                top = np.where(np.isfinite(top), top, array.dtype.type(0))
            y = np.log(np.exp(array - top).sum(axis=axes, keepdims=True)) + top
        return y if keepdims else y.squeeze(axes)


def _softmax(x: Array, *, dim: int) -> Array:
    if by_kernel(x):
        return run("softmax", x.shape, dim, reused_arrays.call(np.empty, x.shape, x.dtype), x)
    with np.errstate(all="ignore"):
        y = np.exp(x - _largest(x, dim))
        return np.divide(y, np.add.reduce(y, dim, None, None, True), out=y)


def _softmax_vjp(g: Any, y: Any, dim: int) -> Any:
    """Return the product with the Jacobian, which is symmetric."""
    if isinstance(g, np.ndarray) and by_kernel(y):
        return run("softmax_vjp", y.shape, dim, reused_arrays.call(np.empty, y.shape, y.dtype), g, y)
    return y * (g - np.sum(g * y, axis=dim, keepdims=True))


def _softmax_native(source: Spec, spec: Spec, dim: int) -> RowPull | None:
    """Return the pullback in native code: of large rows that stand in order, and of small ones."""
    if spec.bytes < LARGE:
        return row_pull(source, spec, (dim,), "softmax_vjp", functools.partial(_softmax_vjp, dim=dim))
    item = source.dtype.itemsize
    rows = dim == len(source.shape) - 1 and source.gradient == spec.gradient == dense(source.shape, item)
    if not rows or source.dtype.kind != "f" or not have_text("codegen.rows.logsums_native"):
        return None
    where = functools.partial(address, "codegen.rows.logsums_native", "softmax_vjp")
    layout = (math.prod(source.shape[:-1]), source.shape[-1])
    return RowPull(source.shape, spec.shape, source.dtype, layout, where, functools.partial(_softmax_vjp, dim=dim))


def _log_softmax_native(source: Spec, spec: Spec, dim: int) -> RowPull | None:
    vjp, jvp = (functools.partial(rule, dim=dim) for rule in (_log_softmax_vjp, _log_softmax_jvp))
    return row_pull(source, spec, (dim,), "log_softmax_vjp", vjp, "log_softmax_jvp", jvp)


def _log_softmax(x: Array, *, dim: int) -> Array:
    if by_kernel(x):
        return run("log_softmax", x.shape, dim, reused_arrays.call(np.empty, x.shape, x.dtype), x)
    with np.errstate(all="ignore"):
        y = x - _largest(x, dim)
        return np.subtract(y, np.log(np.add.reduce(np.exp(y), dim, None, None, True)), out=y)


def _log_softmax_vjp(g: Any, y: Any, dim: int) -> Any:
    if isinstance(g, np.ndarray) and by_kernel(y):
        return run("log_softmax_vjp", y.shape, dim, reused_arrays.call(np.empty, y.shape, y.dtype), g, y)
    return g - np.exp(y) * np.sum(g, axis=dim, keepdims=True)


def _log_softmax_jvp(t: Any, y: Any, dim: int) -> Any:
    return t - np.sum(np.exp(y) * t, axis=dim, keepdims=True)


def _exponentials(x: Any, top: Any, axes: Any) -> tuple[Any, Any]:
    """Return the exponentials of what is left without the largest, and their sum."""
    powers = np.exp(x - top)
    return powers, np.add.reduce(powers, axis=axes, keepdims=True)


def _logsumexp_parts(x: Any, axes: Any) -> Any:
    top = np.maximum.reduce(x, axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, np.where(top > 0.0, np.finfo(x.dtype).max, 0.0))
    _, total = _exponentials(x, top, axes)
    return np.log(total) + top


def _softmax_parts(x: Any, dim: int) -> Any:
    powers, total = _exponentials(x, np.maximum.reduce(x, axis=(dim,), keepdims=True), (dim,))
    return powers * (1.0 / total)


def _log_softmax_parts(x: Any, dim: int) -> Any:
    top = np.maximum.reduce(x, axis=(dim,), keepdims=True)
    _, total = _exponentials(x, top, (dim,))
    return x - top - np.log(total)


Reduction(
    name="logsumexp",
    doc="Logarithm of the sum of exponentials over dims, without overflow on the way.",
    grad_fn="LogsumexpBackward0",
    ufunc=LogSumExp(),
    parts=_logsumexp_parts,
    pullback=(lambda g, y, x: g * np.exp(x - y),),
)
Routine(
    name="softmax",
    doc="Exponentials divided by their sum along a dim.",
    grad_fn="SoftmaxBackward0",
    function=False,
    forward=_softmax,
    parts=_softmax_parts,
    vjp=_softmax_vjp,
    jvp=lambda t, y, dim: _softmax_vjp(t, y, dim),
    native=_softmax_native,
    rows=lambda shape, dtype, dim: row_value(shape, dtype, "softmax", (dim,)),
    samples=((((5,),), {"dim": 0}), (((2, 3, 2),), {"dim": 1})),
)
Routine(
    name="log_softmax",
    doc="Logarithm of softmax along a dim, without loss where it is small.",
    grad_fn="LogSoftmaxBackward0",
    function=False,
    forward=_log_softmax,
    parts=_log_softmax_parts,
    vjp=_log_softmax_vjp,
    jvp=_log_softmax_jvp,
    native=_log_softmax_native,
    rows=lambda shape, dtype, dim: row_value(shape, dtype, "log_softmax", (dim,)),
    samples=((((5,),), {"dim": 0}), (((2, 3, 2),), {"dim": 1})),
)
