"""The table of reductions: sums and extrema over any axes; products, variances and norms over dims.

In the first ``n`` is the number of elements that met (or tied) in one result. In the second ``dims`` is a tuple of
axes, and ``wide`` puts a reduced value back beside what it came from.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.codegen.rows.row_pulls import RowPull, row_pull
from kernels.codegen.rows.row_values import RowValue, row_value
from kernels.kinds.reduction import Reduction
from kernels.kinds.routine import Routine
from kernels.kinds.select import Select
from kernels.records.symbols import cut
from kernels.records.take_put_along import Array, narrow, wide

Reduction(
    name="sum",
    doc="Sum over dims.",
    grad_fn="SumBackward0",
    dims_grad_fn="SumBackward1",
    ufunc=np.add,
    pullback=(lambda g: g,),
)
Reduction(
    name="mean",
    doc="Mean over dims.",
    grad_fn="MeanBackward0",
    dims_grad_fn="MeanBackward1",
    ufunc=np.add,
    scale=True,
    pullback=(lambda g, n: g / n,),
)


def evenly(name: str, grad_fn: str, ufunc: np.ufunc, doc: str) -> None:
    """Declare an extremum whose ties, nan included, share the gradient evenly."""
    Reduction(
        name=name,
        doc=doc,
        grad_fn=grad_fn,
        ufunc=ufunc,
        function=name.startswith("a"),
        selects=True,
        pullback=(lambda g, y, x, n: cut(np.logical_not((x == y) | ((x != x) & (y != y))), g / n),),
    )


evenly("amax", "AmaxBackward0", np.maximum, "Largest element over dims; ties share the gradient evenly.")
evenly("amin", "AminBackward0", np.minimum, "Smallest element over dims; ties share the gradient evenly.")
evenly("max_all", "MaxBackward1", np.maximum, "Largest element of all; ties share the gradient evenly.")
evenly("min_all", "MinBackward1", np.minimum, "Smallest element of all; ties share the gradient evenly.")
Select(name="max", doc="Largest element and, along a dim, its index.", grad_fn="MaxBackward0", locate=np.argmax)
Select(name="min", doc="Smallest element and, along a dim, its index.", grad_fn="MinBackward0", locate=np.argmin)


Dims = tuple[int, ...]


def _others(x: Any, dims: Dims) -> Any:
    """Return for each element the product of all the others that it meets."""
    kept = tuple(i for i in range(len(x.shape)) if i not in dims)
    order = (*kept, *dims)
    shape = tuple(x.shape[i] for i in order)
    rows = np.reshape(np.transpose(x, order), (math.prod(shape[: len(kept)]), math.prod(shape[len(kept) :])))
    ones = np.ones_like(rows[:, :1])
    before = np.cumprod(np.concatenate([ones, rows[:, :-1]], 1), 1)
    after = np.flip(np.cumprod(np.concatenate([ones, np.flip(rows[:, 1:], 1)], 1), 1), 1)
    return np.transpose(np.reshape(before * after, shape), tuple(np.argsort(order).tolist()))


def _prod_vjp(g: Any, y: Any, x: Any, dims: Dims) -> Any:
    g = wide(g, x, dims)
    return g * (wide(y, x, dims) / x) if (x != 0).all() else g * _others(x, dims)


def _prod_native(source: Spec, spec: Spec, dims: Dims, keepdim: bool) -> RowPull | None:
    def vjp(g: Array, x: Array, y: Array) -> Array:
        return _prod_vjp(g, y, x, dims)  # type: ignore[no-any-return]

    def jvp(t: Array, x: Array, y: Array) -> Array:
        del y
        return np.sum(_others(x, dims) * t, axis=dims, keepdims=keepdim)  # type: ignore[no-any-return]

    return row_pull(source, spec, dims, "prod_vjp", vjp, "prod_jvp", jvp)


for _name, _grad_fn, _sample in (
    ("prod", "ProdBackward0", ((2, 3), (0, 1), False)),
    ("prod_dim", "ProdBackward1", ((2, 3, 2), (1,), True)),
):
    Routine(
        name=_name,
        doc="Product over dims." if _name == "prod" else "Product along a dim.",
        grad_fn=_grad_fn,
        function=False,
        forward=lambda x, *, dims, keepdim: np.multiply.reduce(x, dims, None, None, keepdim),
        vjp=_prod_vjp,
        jvp=lambda t, x, dims, keepdim: np.sum(_others(x, dims) * t, axis=dims, keepdims=keepdim),
        native=_prod_native,
        rows=lambda shape, dtype, dims, keepdim: row_value(shape, dtype, "prod", dims, keepdim=keepdim),
        samples=(((_sample[0],), {"dims": _sample[1], "keepdim": _sample[2]}),),
    )


def _freedom(x: Any, dims: Dims, correction: float) -> float:
    return max(math.prod(x.shape[i] for i in dims) - correction, 0.0)


def _var(x: Array, *, dims: Dims, correction: float, keepdim: bool) -> Array:
    apart = np.asarray(x - np.mean(x, axis=dims, keepdims=True))
    total = np.sum(np.multiply(apart, apart, out=apart), axis=dims, keepdims=keepdim)
    return np.asarray(total / x.dtype.type(_freedom(x, dims, correction)))


def _var_parts(x: Any, dims: Dims, correction: float, keepdim: bool) -> Any:
    freedom, count = _freedom(x, dims, correction), math.prod([x.shape[i] for i in dims])
    if not freedom:
        return NotImplemented
    apart = x - np.add.reduce(x, axis=dims, keepdims=True) / count
    y = np.add.reduce(apart * apart, axis=dims, keepdims=True) / freedom
    return narrow(y, dims, keepdim=keepdim)


def _std_parts(x: Any, dims: Dims, correction: float, keepdim: bool) -> Any:
    y = _var_parts(x, dims, correction, keepdim)
    return y if y is NotImplemented else np.where(y > 0.0, np.sqrt(np.where(y > 0.0, y, 1.0)), y)


def _var_vjp(g: Any, x: Any, dims: Dims, correction: float) -> Any:
    apart, freedom = x - np.mean(x, axis=dims, keepdims=True), _freedom(x, dims, correction)
    if freedom == 0:  # PyTorch's choice: as if divided by what comes down to zero
        return wide(g, x, dims) * np.where(apart == 0, np.nan, np.inf)
    return (wide(g, x, dims) * (2.0 / freedom)) * apart


def _var_jvp(t: Any, x: Any, dims: Dims, correction: float, keepdim: bool) -> Any:
    apart, freedom = x - np.mean(x, axis=dims, keepdims=True), _freedom(x, dims, correction)
    return np.sum(t * apart, axis=dims, keepdims=keepdim) * (2.0 / freedom if freedom else np.nan)


def _std_vjp(g: Any, y: Any, x: Any, dims: Dims, correction: float) -> Any:
    return _var_vjp(np.where(y == 0, 0.0, g / (2.0 * np.where(y == 0, 1.0, y))), x, dims, correction)


def _std_jvp(t: Any, y: Any, x: Any, dims: Dims, correction: float, keepdim: bool) -> Any:
    return np.where(y == 0, 0.0, _var_jvp(t, x, dims, correction, keepdim) / (2.0 * np.where(y == 0, 1.0, y)))


def _spread_native(
    source: Spec, spec: Spec, dims: Dims, correction: float, keepdim: bool, *, name: str
) -> RowPull | None:
    freedom = _freedom(source, dims, correction)
    if not freedom:
        return None
    back, forth = (_var_vjp, _var_jvp) if name == "var" else (_std_vjp, _std_jvp)
    static = {"dims": dims, "correction": correction}

    def vjp(g: Array, x: Array, *y: Array) -> Array:
        return back(g, *y, x, **static)  # type: ignore[no-any-return]

    def jvp(t: Array, x: Array, *y: Array) -> Array:
        return forth(t, *y, x, **static, keepdim=keepdim)  # type: ignore[no-any-return]

    return row_pull(source, spec, dims, f"{name}_vjp", vjp, f"{name}_jvp", jvp, number=freedom)


def _spread_rows(
    shape: Dims, dtype: Any, dims: Dims, correction: float, keepdim: bool, *, name: str
) -> RowValue | None:
    freedom = max(math.prod([shape[i] for i in dims]) - correction, 0.0)
    return row_value(shape, dtype, name, dims, freedom, keepdim=keepdim) if freedom else None


_SPREADS = (
    (((5,),), {"dims": (0,), "correction": 1.0, "keepdim": False}),
    (((2, 3, 2),), {"dims": (0, 2), "correction": 0.5, "keepdim": True}),
)

Routine(
    name="var",
    doc="Variance over dims; the squares are divided by the number of elements less the correction.",
    grad_fn="VarBackward0",
    function=False,
    forward=_var,
    parts=_var_parts,
    vjp=_var_vjp,
    jvp=_var_jvp,
    native=functools.partial(_spread_native, name="var"),
    rows=functools.partial(_spread_rows, name="var"),
    samples=_SPREADS,
)
Routine(
    name="std",
    doc="Standard deviation over dims; its gradient at 0 is 0.",
    grad_fn="StdBackward0",
    function=False,
    forward=lambda x, *, dims, correction, keepdim: np.sqrt(_var(x, dims=dims, correction=correction, keepdim=keepdim)),
    parts=_std_parts,
    vjp=_std_vjp,
    jvp=_std_jvp,
    native=functools.partial(_spread_native, name="std"),
    rows=functools.partial(_spread_rows, name="std"),
    samples=_SPREADS,
)
