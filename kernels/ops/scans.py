"""The table of scans: running sums, products and extrema along a dim.

Running products are exact where there are zeros, in gradients of gradients too.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec, Strides
from kernels.codegen.rows.row_pulls import RowPull, row_pull
from kernels.codegen.rows.row_values import RowValue, row_value
from kernels.instructions.scatter_pullback import scattered
from kernels.kinds.routine import Routine
from kernels.records.take_put_along import Array, picked, placed


def tail(g: Any, dim: int) -> Any:
    """Return the sums from each element to the last."""
    return np.flip(np.cumsum(np.flip(g, dim), dim), dim)


def _cumsum_native(source: Spec, spec: Spec, dim: int) -> RowPull | None:
    vjp, jvp = functools.partial(tail, dim=dim), functools.partial(np.cumsum, axis=dim)
    return row_pull(source, spec, (dim,), "cumsum_vjp", vjp, "cumsum_jvp", jvp)


Routine(
    name="cumsum",
    doc="Running sum along a dim.",
    grad_fn="CumsumBackward0",
    function=False,
    forward=lambda x, *, dim: np.add.accumulate(x, dim),
    vjp=tail,
    jvp=lambda t, dim: np.cumsum(t, dim),
    native=_cumsum_native,
    rows=lambda shape, dtype, dim: row_value(shape, dtype, "cumsum", (dim,)),
    samples=((((5,),), {"dim": 0}), (((2, 3),), {"dim": 1})),
)


def _without_first_zero(x: Any, dim: int) -> tuple[Any, Any, Any]:
    """Return where the first zero of each row is, the products with a one in its place, and x with ones for zeros."""
    zero = x == 0
    first = zero & (np.cumsum(zero, dim) == 1)
    return first, np.cumprod(np.where(first, 1.0, x), dim), np.where(zero, 1.0, x)


def _cumprod_vjp(g: Any, y: Any, x: Any, dim: int) -> Any:
    if (x != 0).all():
        return tail(g * y, dim) / x
    if not isinstance(g, np.ndarray):
        return _cumprod_vjp_of_squares(g, x, dim)
    first, others, nonzero = _without_first_zero(x, dim)
    return np.where(first, tail(g * others, dim), tail(g * y, dim) / nonzero)


def _cumprod_vjp_of_squares(g: Any, x: Any, dim: int) -> Any:
    """Multiply, for each element, all others: memory for the square of the length, but derivatives of all orders."""
    last = len(x.shape) - 1
    order = (*(i for i in range(last + 1) if i != dim), dim)
    n = x.shape[dim]
    rows, g = np.reshape(np.transpose(x, order), (-1, 1, n)), np.reshape(np.transpose(g, order), (-1, 1, n))
    others = np.cumprod(np.where(np.eye(n, dtype=bool), 1.0, np.broadcast_to(rows, (rows.shape[0], n, n))), 2)
    gradient = np.sum(np.where(np.tri(n, dtype=bool).T, g * others, 0.0), 2)
    shape = tuple(x.shape[i] for i in order)
    return np.transpose(np.reshape(gradient, shape), tuple(np.argsort(order).tolist()))


def _cumprod_jvp(t: Any, y: Any, x: Any, dim: int) -> Any:
    first, others, nonzero = _without_first_zero(x, dim)
    after = np.cumsum(first, dim) > 0
    return np.where(after, np.cumsum(np.where(first, t, 0.0), dim) * others, y * np.cumsum(t / nonzero, dim))


Routine(
    name="cumprod",
    doc="Running product along a dim.",
    grad_fn="CumprodBackward0",
    function=False,
    forward=lambda x, *, dim: np.multiply.accumulate(x, dim),
    vjp=_cumprod_vjp,
    jvp=_cumprod_jvp,
    rows=lambda shape, dtype, dim: row_value(shape, dtype, "cumprod", (dim,)),
    samples=((((5,),), {"dim": 0}), (((2, 3),), {"dim": 0})),
)


def running(largest: bool) -> Any:
    """Return the forward of a running extremum, with the place of the last of equals; nan stays."""
    ufunc = np.maximum if largest else np.minimum

    def forward(x: Array, *, dim: int) -> tuple[Array, Array]:
        y = ufunc.accumulate(x, dim)
        shape = [1] * x.ndim
        shape[dim] = x.shape[dim]
        here = (x == y) | np.isnan(x) if x.dtype.kind == "f" else x == y
        at = np.where(here, np.arange(x.shape[dim]).reshape(shape), 0)
        return y, np.maximum.accumulate(at, dim)

    return forward


def _running_rows(shape: Strides, dtype: Any, dim: int, *, largest: bool) -> RowValue | None:
    return row_value(shape, dtype, "running", (dim,), largest, places=True)


for _name, _grad_fn, _largest, _doc in (
    ("cummax", "CummaxBackward0", True, "Running maximum along a dim, with the place of the last of equals."),
    ("cummin", "CumminBackward0", False, "Running minimum along a dim, with the place of the last of equals."),
):
    Routine(
        name=_name,
        doc=_doc,
        grad_fn=_grad_fn,
        function=False,
        forward=running(_largest),
        vjp=lambda g, x, places, dim: placed(g, places, dim, x.shape[dim]),
        jvp=lambda t, places, dim: picked(t, places, dim),
        extras=("places",),
        cuts=True,
        native=lambda source, spec, dim: scattered(source, spec, dim, 3),
        rows=functools.partial(_running_rows, largest=_largest),
        samples=((((6,),), {"dim": 0}), (((3, 4),), {"dim": 1})),
    )


def _weighed(t: Any, inner: Any, outer: Any, dim: int) -> Any:
    """Return ``sum_i t_i exp(inner_i - outer_k)`` over i up to each k, for arrays without overflow on the way."""
    if not isinstance(t, np.ndarray):
        return _weighed_squares(t, inner, outer, dim)
    logs = np.log(np.abs(t))
    parts = [
        np.exp(np.logaddexp.accumulate(np.where(chosen, logs + inner, -np.inf), dim) - outer)
        for chosen in (np.logical_not(t < 0), t < 0)
    ]
    return parts[0] - parts[1]


def _weighed_squares(t: Any, inner: Any, outer: Any, dim: int) -> Any:
    """Take all pairs: memory for the square of the length, but linear in t everywhere."""
    n = t.shape[dim]
    before, after = (*t.shape[: dim + 1], 1, *t.shape[dim + 1 :]), (*t.shape[:dim], 1, *t.shape[dim:])
    below = np.reshape(np.tri(n, dtype=bool).T, (n, n, *(1,) * (len(t.shape) - dim - 1)))
    apart = np.where(below, np.reshape(inner, before) - np.reshape(outer, after), -np.inf)
    return np.sum(np.reshape(t, before) * np.exp(apart), dim)


def _logcumsumexp(x: Array, *, dim: int) -> Array:
    with np.errstate(all="ignore"):
        return np.logaddexp.accumulate(x, dim)


def _logcumsumexp_vjp(g: Any, y: Any, x: Any, dim: int) -> Any:
    back, inner, outer = np.flip(g, dim), np.flip(-y, dim), np.flip(-x, dim)
    return np.flip(_weighed(back, inner, outer, dim), dim)


Routine(
    name="logcumsumexp",
    doc="Logarithm of the running sum of exponentials along a dim, without overflow on the way.",
    grad_fn="LogcumsumexpBackward0",
    function=False,
    forward=_logcumsumexp,
    vjp=_logcumsumexp_vjp,
    jvp=lambda t, y, x, dim: _weighed(t, x, y, dim),
    samples=((((5,),), {"dim": 0}), (((2, 3),), {"dim": 0})),
)
