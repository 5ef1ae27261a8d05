"""Records of reductions over dims, of sorts and of selections along one."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kernels.foundation.specs import Array, Spec, Strides
from kernels.kinds.elementwise import Reduction, Select
from kernels.kinds.form import scattered
from kernels.kinds.routine import Routine
from kernels.native.structs import LARGE
from kernels.rules.loop_printer import SHORT, PrintedLoop, RowPull, RowValue, row_pull, row_value
from kernels.rules.op import cut, narrow, picked, placed, put, wide

# The table of reductions and scans.

# Of reductions ``n`` is the number of elements that met (or tied) in one result. Of routines ``dims`` is a tuple of
# axes, and ``wide`` puts a reduced value back beside what it came from.

Reduction(name="sum", doc="Sum over dims.", dims_grad_fn="SumBackward1", ufunc=np.add, pullback=(lambda g: g,))
Reduction(
    name="mean", doc="Mean over dims.", dims_grad_fn="MeanBackward1", scale=True,
    ufunc=np.add, pullback=(lambda g, n: g / n,),
)  # fmt: skip


def evenly(name: str, grad_fn: str, ufunc: np.ufunc, doc: str) -> None:
    """Declare an extremum whose ties, nan included, share the gradient evenly."""
    Reduction(
        name=name, doc=doc, grad_fn=grad_fn, selects=True,
        ufunc=ufunc, pullback=(lambda g, y, x, n: cut(np.logical_not((x == y) | ((x != x) & (y != y))), g / n),),
        function=name.startswith("a"),
    )  # fmt: skip


evenly("amax", "AmaxBackward0", np.maximum, "Largest element over dims; ties share the gradient evenly.")
evenly("amin", "AminBackward0", np.minimum, "Smallest element over dims; ties share the gradient evenly.")
evenly("max_all", "MaxBackward1", np.maximum, "Largest element of all; ties share the gradient evenly.")
evenly("min_all", "MinBackward1", np.minimum, "Smallest element of all; ties share the gradient evenly.")
Select(name="max", doc="Largest element and, along a dim, its index.", locate=np.argmax)
Select(name="min", doc="Smallest element and, along a dim, its index.", locate=np.argmin)


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


def _prod_jvp(t: Any, x: Any, dims: Dims, keepdim: bool) -> Any:
    return np.sum(_others(x, dims) * t, axis=dims, keepdims=keepdim)


def _prod_native(source: Spec, spec: Spec, dims: Dims, keepdim: bool) -> RowPull | None:
    vjp, jvp = lambda g, x, y: _prod_vjp(g, y, x, dims), lambda t, x, y: _prod_jvp(t, x, dims, keepdim)  # noqa: ARG005
    return row_pull(source, spec, dims, "prod_vjp", vjp, "prod_jvp", jvp, any_size=True)


for _name, _grad_fn, _sample in (
    ("prod", "ProdBackward0", ((2, 3), (0, 1), False)),
    ("prod_dim", "ProdBackward1", ((2, 3, 2), (1,), True)),
):
    Routine(
        name=_name, doc="Product over dims." if _name == "prod" else "Product along a dim.", grad_fn=_grad_fn,
        forward=lambda x, *, dims, keepdim: np.multiply.reduce(x, dims, None, None, keepdim), vjp=_prod_vjp,
        jvp=_prod_jvp, native=_prod_native,
        rows=lambda shape, dtype, dims, keepdim: row_value(shape, dtype, "prod", dims, keepdim=keepdim),
        samples=(((_sample[0],), {"dims": _sample[1], "keepdim": _sample[2]}),),
    )  # fmt: skip


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
    vjp, jvp = (
        lambda g, x, *y: back(g, *y, x, dims, correction),
        lambda t, x, *y: forth(t, *y, x, dims, correction, keepdim),
    )
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
    name="var", doc="Variance over dims; the squares are divided by the number of elements less the correction.",
    forward=_var, vjp=_var_vjp, jvp=_var_jvp, native=functools.partial(_spread_native, name="var"),
    rows=functools.partial(_spread_rows, name="var"), parts=_var_parts, samples=_SPREADS,
)  # fmt: skip
Routine(
    name="std", doc="Standard deviation over dims; its gradient at 0 is 0.",
    forward=lambda x, *, dims, correction, keepdim: np.sqrt(_var(x, dims=dims, correction=correction, keepdim=keepdim)),
    vjp=_std_vjp, jvp=_std_jvp, native=functools.partial(_spread_native, name="std"),
    rows=functools.partial(_spread_rows, name="std"), parts=_std_parts, samples=_SPREADS,
)  # fmt: skip


def _standardize(x: Any, *, dims: Dims, eps: float) -> Any:
    """Return the operand less its mean, over the root of its mean square then."""
    apart = x - np.mean(x, axis=dims, keepdims=True)
    return apart / np.sqrt(np.mean(apart * apart, axis=dims, keepdims=True) + eps)


def _standardize_vjp(g: Any, x: Any, y: Any, dims: Dims, eps: float) -> Any:
    """Return the derivative, a symmetric matrix of rank two less than the rows are long, times g."""
    apart = x - np.mean(x, axis=dims, keepdims=True)
    root = np.sqrt(np.mean(apart * apart, axis=dims, keepdims=True) + eps)
    return (g - np.mean(g, axis=dims, keepdims=True) - y * np.mean(g * y, axis=dims, keepdims=True)) / root


def _standardize_parts(x: Any, dims: Dims, eps: float) -> Any:
    count = math.prod([x.shape[i] for i in dims])
    apart = x - np.add.reduce(x, axis=dims, keepdims=True) / count
    return apart * (1.0 / np.sqrt(np.add.reduce(apart * apart, axis=dims, keepdims=True) / count + eps))


def _standardize_native(source: Spec, spec: Spec, dims: Dims, eps: float) -> RowPull | None:
    rule, name = functools.partial(_standardize_vjp, dims=dims, eps=eps), "standardize_vjp"
    return row_pull(source, spec, dims, name, rule, name, rule, number=eps, any_size=_last(dims, spec.shape))


def _standardize_rows(shape: Dims, dtype: Any, dims: Dims, eps: float) -> RowValue | None:
    # Of longer rows NumPy's sums, by pairs, are nearer.
    return row_value(shape, dtype, "standardize", dims, eps, any_size=_last(dims, shape), longest=LARGE)


def _last(dims: Dims, shape: Dims) -> bool:
    return dims[-1] == len(shape) - 1


Routine(
    name="standardize", doc="Tensor of mean 0 and variance 1 over dims; the variance counts for eps more.",
    forward=_standardize, vjp=_standardize_vjp, jvp=lambda t, x, y, dims, eps: _standardize_vjp(t, x, y, dims, eps),
    native=_standardize_native, rows=_standardize_rows, parts=_standardize_parts,
    samples=((((5,),), {"dims": (0,), "eps": 0.1}), (((2, 3, 2),), {"dims": (1, 2), "eps": 0.0})),
)  # fmt: skip


# Running products are exact where there are zeros, in gradients of gradients too.


def tail(g: Any, dim: int) -> Any:
    """Return the sums from each element to the last."""
    return np.flip(np.cumsum(np.flip(g, dim), dim), dim)


def _cumsum_native(source: Spec, spec: Spec, dim: int) -> RowPull | None:
    vjp, jvp = functools.partial(tail, dim=dim), functools.partial(np.cumsum, axis=dim)
    return row_pull(source, spec, (dim,), "cumsum_vjp", vjp, "cumsum_jvp", jvp, any_size=True)


Routine(
    name="cumsum", doc="Running sum along a dim.",
    forward=lambda x, *, dim: np.add.accumulate(x, dim), vjp=tail, jvp=lambda t, dim: np.cumsum(t, dim),
    native=_cumsum_native, rows=lambda shape, dtype, dim: row_value(shape, dtype, "cumsum", (dim,), any_size=True),
    samples=((((5,),), {"dim": 0}), (((2, 3),), {"dim": 1})),
)  # fmt: skip


def _without_first_zero(x: Any, dim: int) -> tuple[Any, Any, Any]:
    """Return where the first zero of each row is, the products with a one in its place, and x with ones for zeros."""
    zero = x == 0
    first = zero & (np.cumsum(zero, dim) == 1)
    return first, np.cumprod(np.where(first, 1.0, x), dim), np.where(zero, 1.0, x)


def _cumprod_vjp(g: Any, y: Any, x: Any, dim: int) -> Any:
    if (x != 0).all():
        return tail(g * y, dim) / x
    if not isinstance(g, np.ndarray):
        # all others of each element multiplied: memory for the square of the length, derivatives of all orders
        last = len(x.shape) - 1
        order = (*(i for i in range(last + 1) if i != dim), dim)
        n = x.shape[dim]
        rows, g = np.reshape(np.transpose(x, order), (-1, 1, n)), np.reshape(np.transpose(g, order), (-1, 1, n))
        others = np.cumprod(np.where(np.eye(n, dtype=bool), 1.0, np.broadcast_to(rows, (rows.shape[0], n, n))), 2)
        gradient = np.sum(np.where(np.tri(n, dtype=bool).T, g * others, 0.0), 2)
        shape = tuple(x.shape[i] for i in order)
        return np.transpose(np.reshape(gradient, shape), tuple(np.argsort(order).tolist()))
    first, others, nonzero = _without_first_zero(x, dim)
    return np.where(first, tail(g * others, dim), tail(g * y, dim) / nonzero)


def _cumprod_jvp(t: Any, y: Any, x: Any, dim: int) -> Any:
    first, others, nonzero = _without_first_zero(x, dim)
    after = np.cumsum(first, dim) > 0
    return np.where(after, np.cumsum(np.where(first, t, 0.0), dim) * others, y * np.cumsum(t / nonzero, dim))


def _cumprod_native(source: Spec, spec: Spec, dim: int) -> RowPull | None:
    vjp, jvp = lambda g, x, y: _cumprod_vjp(g, y, x, dim), lambda t, x, y: _cumprod_jvp(t, y, x, dim)
    in_order = _last((dim,), spec.shape)  # elements of four arrays, far apart, leave the caches
    return row_pull(source, spec, (dim,), "cumprod_vjp", vjp, "cumprod_jvp", jvp, any_size=in_order)


Routine(
    name="cumprod", doc="Running product along a dim.", forward=lambda x, *, dim: np.multiply.accumulate(x, dim),
    vjp=_cumprod_vjp, jvp=_cumprod_jvp, native=_cumprod_native,
    rows=lambda shape, dtype, dim: row_value(shape, dtype, "cumprod", (dim,), any_size=True),
    samples=((((5,),), {"dim": 0}), (((2, 3),), {"dim": 0})),
)  # fmt: skip


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


for _name, _grad_fn, _largest, _doc in (
    ("cummax", "CummaxBackward0", True, "Running maximum along a dim, with the place of the last of equals."),
    ("cummin", "CumminBackward0", False, "Running minimum along a dim, with the place of the last of equals."),
):
    Routine(
        name=_name, doc=_doc, grad_fn=_grad_fn, extras=("places",), cuts=True,
        forward=running(_largest), vjp=lambda g, x, places, dim: placed(g, places, dim, x.shape[dim]),
        jvp=lambda t, places, dim: picked(t, places, dim),
        native=lambda source, spec, dim: scattered(source, spec, dim, 3),
        rows=lambda shape, dtype, dim, number=_largest: row_value(
            shape, dtype, "running", (dim,), number, places=True, any_size=True
        ),
        samples=((((6,),), {"dim": 0}), (((3, 4),), {"dim": 1})),
    )  # fmt: skip


def _weighed(t: Any, inner: Any, outer: Any, dim: int) -> Any:
    """Return ``sum_i t_i exp(inner_i - outer_k)`` over i up to each k, for arrays without overflow on the way."""
    if not isinstance(t, np.ndarray):
        # all pairs: memory for the square of the length, but linear in t everywhere
        n = t.shape[dim]
        before, after = (*t.shape[: dim + 1], 1, *t.shape[dim + 1 :]), (*t.shape[:dim], 1, *t.shape[dim:])
        below = np.reshape(np.tri(n, dtype=bool).T, (n, n, *(1,) * (len(t.shape) - dim - 1)))
        apart = np.where(below, np.reshape(inner, before) - np.reshape(outer, after), -np.inf)
        return np.sum(np.reshape(t, before) * np.exp(apart), dim)
    logs = np.log(np.abs(t))
    parts = [
        np.exp(np.logaddexp.accumulate(np.where(chosen, logs + inner, -np.inf), dim) - outer)
        for chosen in (np.logical_not(t < 0), t < 0)
    ]
    return parts[0] - parts[1]


def _logcumsumexp(x: Array, *, dim: int) -> Array:
    with np.errstate(all="ignore"):
        return np.logaddexp.accumulate(x, dim)


def _logcumsumexp_vjp(g: Any, y: Any, x: Any, dim: int) -> Any:
    back, inner, outer = np.flip(g, dim), np.flip(-y, dim), np.flip(-x, dim)
    return np.flip(_weighed(back, inner, outer, dim), dim)


Routine(
    name="logcumsumexp", doc="Logarithm of the running sum of exponentials along a dim, without overflow on the way.",
    forward=_logcumsumexp, vjp=_logcumsumexp_vjp, jvp=lambda t, y, x, dim: _weighed(t, x, y, dim),
    samples=((((5,),), {"dim": 0}), (((2, 3),), {"dim": 0})),
)  # fmt: skip


# The table of sorts, of what is picked by rank, and of what has places, counts or truths as its result.
#
# nan counts as larger than all numbers. The gradient goes to the places picked, and the others get nothing.

FEW = 1 << 12  # elements up to which a stable sort is fast enough


def ordered(x: Array, dim: int, descending: bool) -> Array:
    """Return the places of elements in order; equal ones keep theirs."""
    return _sort(x, dim=dim, descending=descending)[1]


def _sort(x: Array, *, dim: int, descending: bool) -> tuple[Array, Array]:
    if descending:
        y, turned = _sort(np.flip(x, dim), dim=dim, descending=False)
        return np.flip(y, dim), np.flip(x.shape[dim] - 1 - turned, dim)
    if x.dtype.kind == "f" and x.size > FEW:
        places = np.argsort(x, axis=dim)  # takes half the time, and is as good where no two are equal
        y = np.take_along_axis(x, places, dim)
        before, after = np.moveaxis(y, dim, -1)[..., :-1], np.moveaxis(y, dim, -1)[..., 1:]
        if not ((before == after) | (before != before)).any():
            return y, places
    places = np.argsort(x, axis=dim, kind="stable")
    return np.take_along_axis(x, places, dim), places


def _topk(x: Array, *, k: int, dim: int, largest: bool) -> tuple[Array, Array]:
    """Partition first: of equals at the border any may be picked."""
    n = x.shape[dim]
    if k == 0:
        some = np.zeros((*x.shape[:dim], 0, *x.shape[dim + 1 :]), np.int64)
    elif k < n:
        parts = np.argpartition(x, n - k if largest else k - 1, axis=dim)
        some = np.take(parts, range(n - k, n) if largest else range(k), axis=dim)
        some = np.sort(some, axis=dim)
    else:
        some = np.broadcast_to(np.expand_dims(np.arange(n), tuple(i for i in range(x.ndim) if i != dim)), x.shape)
    chosen = np.take_along_axis(x, some, dim)
    places = np.take_along_axis(some, ordered(chosen, dim, largest), dim)
    return np.take_along_axis(x, places, dim), places


def _absent(x: Array) -> Array:
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def _ranked(x: Array, rank: int, dim: int) -> Array:
    """Return the place of the element of this rank, with dim kept: what a stable sort has there."""
    value = np.take(np.partition(x, rank, axis=dim), [rank], axis=dim)
    absent, gone = _absent(x), _absent(value)
    less = np.sum(np.where(gone, ~absent, x < value), axis=dim, keepdims=True)
    equal = np.moveaxis((x == value) | (absent & gone), dim, -1)
    counts = np.count_nonzero(equal, axis=-1)
    first = (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)  # of each row, among all equal ones
    places = np.flatnonzero(equal)[first + rank - np.squeeze(less, dim)] % x.shape[dim]
    return np.expand_dims(places, dim)


def _pick(x: Array, place: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    value = np.take_along_axis(x, place, dim)
    return (value, place) if keepdim else (np.squeeze(value, dim), np.squeeze(place, dim))


def _median_place(x: Array, dim: int) -> Array:
    absent = _absent(x)
    middle = _ranked(x, (x.shape[dim] - 1) // 2, dim)
    gone = absent.any(axis=dim, keepdims=True)
    return np.where(gone, np.argmax(absent, axis=dim, keepdims=True), middle)


def _nanmedian_place(x: Array, dim: int) -> Array:
    absent = _absent(x)
    if not absent.any():
        return _ranked(x, (x.shape[dim] - 1) // 2, dim)
    rank = (x.shape[dim] - np.sum(absent, axis=dim, keepdims=True) - 1) // 2
    return np.take_along_axis(ordered(x, dim, descending=False), np.maximum(rank, 0), dim)


def _mode(x: Array, *, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """Count along the sorted elements; the first longest run is the smallest value, its end the last place."""
    y, places = _sort(x, dim=dim, descending=False)
    counter = np.expand_dims(np.arange(x.shape[dim]), tuple(i for i in range(x.ndim) if i != dim))
    new = np.take(y, range(1, y.shape[dim]), axis=dim) != np.take(y, range(y.shape[dim] - 1), axis=dim)
    starts = np.concatenate([np.ones_like(np.take(y, [0], axis=dim), bool), new], axis=dim)
    run = counter - np.maximum.accumulate(np.where(starts, counter, 0), axis=dim)
    end = np.argmax(run, axis=dim, keepdims=True)
    return _pick(x, np.take_along_axis(places, end, dim), dim, keepdim)


def _back_to_one(g: Any, x: Any, place: Array, dim: int) -> Any:
    return put(wide(g, x, (dim,)), place.reshape([1 if i == dim else n for i, n in enumerate(x.shape)]), dim,
               x.shape[dim])  # fmt: skip


def _one(t: Any, place: Array, dim: int) -> Any:
    shape = tuple(1 if i == dim else n for i, n in enumerate(t.shape))
    return np.reshape(picked(t, place.reshape(shape), dim), place.shape)


def _to_places(source: Spec, spec: Spec, dim: int, **_: Any) -> PrintedLoop:
    return scattered(source, spec, dim, 3)


_LEAST = 8  # elements that come first up to which a pass over each row, of any length, finds them


def _few(shape: Strides, dtype: Any, name: str, dim: int, number: float, longest: Any = SHORT, **more: Any) -> Any:
    more |= {"longest": longest, "any_size": longest is None}
    return row_value(shape, dtype, name, (dim,), float(number), places=True, **more)


_WHOLE = ((((5,),), {"dim": 0, "descending": False}), (((3, 4),), {"dim": 0, "descending": True}))
_ALONG = ((((5,),), {"dim": 0, "keepdim": False}), (((3, 4),), {"dim": 0, "keepdim": True}))

Routine(
    name="sort", doc="Elements in order along a dim, and their places; equal ones keep their order.",
    extras=("places",), cuts=True, forward=_sort, vjp=lambda g, places, dim: put(g, places, dim, g.shape[dim]),
    jvp=lambda t, places, dim: picked(t, places, dim),
    native=lambda source, spec, dim, **_: scattered(source, spec, dim, 2),
    rows=lambda shape, dtype, dim, descending: _few(shape, dtype, "sort", dim, descending), samples=_WHOLE,
)  # fmt: skip
Routine(
    name="topk", doc="The k largest or smallest elements along a dim, in order, and their places.", extras=("places",),
    cuts=True, forward=_topk, vjp=lambda g, x, places, dim: put(g, places, dim, x.shape[dim]),
    jvp=lambda t, places, dim: picked(t, places, dim), native=_to_places,
    rows=lambda shape, dtype, k, dim, largest: _few(
        shape, dtype, "topk", dim, largest, None if k <= _LEAST else SHORT, length=k
    ),
    samples=((((6,),), {"k": 2, "dim": 0, "largest": True}), (((3, 4),), {"k": 2, "dim": 0, "largest": False})),
)  # fmt: skip
Routine(
    name="kthvalue", doc="The element of rank k along a dim, and its place.", extras=("place",), cuts=True,
    forward=lambda x, *, rank, dim, keepdim: _pick(x, _ranked(x, rank, dim), dim, keepdim), vjp=_back_to_one, jvp=_one,
    native=_to_places,
    rows=lambda shape, dtype, rank, dim, keepdim: _few(shape, dtype, "kthvalue", dim, rank, keepdim=keepdim),
    samples=tuple((shapes, {"rank": 1, **params}) for shapes, params in _ALONG),
)  # fmt: skip
Routine(
    name="mode", doc="The most frequent element along a dim, the smallest of several, and its last place.",
    extras=("place",), cuts=True, forward=_mode, vjp=_back_to_one, jvp=_one, native=_to_places, samples=_ALONG,
)  # fmt: skip


def _ties(x: Any, y: Any) -> Any:
    return (x == y) | ((x != x) & (y != y))


def _shared(g: Any, y: Any, x: Any) -> Any:
    ties = _ties(x, y)
    return np.where(ties, g / np.sum(ties), -0.0)


def _mean_of_ties(t: Any, y: Any, x: Any) -> Any:
    ties = _ties(x, y)
    return np.sum(np.where(ties, t, 0.0)) / np.sum(ties)


def _along(place: Any) -> Any:
    return lambda x, *, dim, keepdim: _pick(x, place(x, dim), dim, keepdim)


def _middle(x: Array, *, skips: bool) -> Array:
    """Return the lower median of all elements; without nan, if there is another."""
    x = x.reshape(-1)
    absent = _absent(x)
    if absent.any():
        x = x[~absent] if skips and not absent.all() else x[absent]
    return np.asarray(np.partition(x, (len(x) - 1) // 2)[(len(x) - 1) // 2])


for _name, _grad_fn, _lower, _doc in (
    ("median", "MedianBackward", _median_place, "The lower median"),
    ("nanmedian", "NanmedianBackward", _nanmedian_place, "The lower median of what is not nan"),
):
    Routine(
        name=_name, doc=f"{_doc} along a dim, and its place.", grad_fn=f"{_grad_fn}1",
        extras=("place",), cuts=True, forward=_along(_lower), vjp=_back_to_one, jvp=_one, native=_to_places,
        rows=(lambda shape, dtype, dim, keepdim: _few(shape, dtype, "median", dim, 0.0, keepdim=keepdim))
        if _name == "median"
        else None,
        samples=_ALONG,
    )  # fmt: skip
    Routine(
        name=f"{_name}_all", doc=f"{_doc} of all elements; ties share the gradient evenly.", grad_fn=f"{_grad_fn}0",
        cuts=True,
        forward=functools.partial(_middle, skips=_name.startswith("nan")), vjp=_shared, jvp=_mean_of_ties,
        samples=((((2, 3),), {}),),
    )  # fmt: skip


def _counted(name: str, doc: str, forward: Any, *samples: Any, parts: Any = None) -> None:
    Routine(name=name, doc=doc, forward=forward, parts=parts, samples=samples)


def _over(name: str, doc: str, function: Any, parts: Any = None) -> None:
    def forward(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
        return np.asarray(function(x, axis=dims, keepdims=keepdim))

    _counted(name, doc, forward, (((2, 3),), {"dims": (0,), "keepdim": True}), parts=parts)


def _any_parts(x: Any, dims: tuple[int, ...], keepdim: bool, *, of: bool = True) -> Any:
    """Whether an element is nonzero, or none is not."""
    if 0 in x.shape:
        return NotImplemented
    flags = np.where(x if x.dtype == np.bool_ else x != 0.0, float(of), float(not of))
    largest = np.maximum.reduce(flags, axis=dims, keepdims=True) if dims else flags
    y = largest > 0.0 if of else largest <= 0.0
    return narrow(y, dims, keepdim=keepdim)


def _count_parts(x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """How many elements are nonzero."""
    if not dims or 0 in x.shape:
        return NotImplemented
    return narrow(np.add.reduce(np.where(x != 0.0, 1.0, 0.0), axis=dims, keepdims=True), dims, keepdim=keepdim)


_over("any", "Whether an element over dims is nonzero or True.", np.logical_or.reduce, _any_parts)
_over(
    "all", "Whether all elements over dims are nonzero or True.", np.logical_and.reduce,
    functools.partial(_any_parts, of=False),
)  # fmt: skip
_over("count_nonzero", "How many elements over dims are nonzero or True.", np.count_nonzero, _count_parts)


def _place(function: Any) -> Any:
    return lambda x, *, dim, keepdim: np.asarray(function(x, axis=dim, keepdims=keepdim), np.int64)


_MOST_IN_PARTS = 2048  # elements of which a call of NumPy takes longer than six passes


def _place_parts(x: Any, dim: int | None, keepdim: bool, *, sign: float) -> Any:
    """The first nan, or the first of the largest, or of the least with a sign of -1."""
    rank = len(x.shape)
    dims = tuple(range(rank)) if dim is None else (dim % max(rank, 1),)
    if not rank or not 0 < math.prod(x.shape) <= _MOST_IN_PARTS:
        return NotImplemented
    unknown = np.maximum.reduce(np.where(x == x, 0.0, 1.0), axis=dims, keepdims=True)
    top = np.maximum.reduce(np.where(x == x, x * sign, -math.inf), axis=dims, keepdims=True)
    shape = tuple(n if k in dims else 1 for k, n in enumerate(x.shape))
    places = np.arange(float(math.prod(shape))).reshape(shape)
    chosen = np.logical_or(np.logical_and(unknown > 0.0, x != x), np.logical_and(unknown <= 0.0, x * sign == top))
    first = -np.maximum.reduce(np.where(chosen, -places, -math.inf), axis=dims, keepdims=True)
    return narrow(first, dims, keepdim=keepdim)


_SEARCHED = ((((5,),), {"dim": None, "keepdim": False}), (((2, 3),), {"dim": 1, "keepdim": True}))
for _name, _which, _sign in (("argmax", "largest", 1.0), ("argmin", "smallest", -1.0)):
    _counted(
        _name, f"The place of the {_which} element, the first of equals.", _place(getattr(np.ndarray, _name)),
        *_SEARCHED, parts=functools.partial(_place_parts, sign=_sign),
    )  # fmt: skip
_counted(
    "argsort", "The places of elements in order along a dim; equal ones keep theirs.",
    lambda x, *, dim, descending: ordered(x, dim, descending), (((2, 3),), {"dim": 1, "descending": True}),
)  # fmt: skip


def _searchsorted(edges: Array, x: Array, *, side: str) -> Array:
    if edges.ndim == 1:
        return np.asarray(np.searchsorted(edges, x, side), np.int64)
    places = np.empty(x.shape, np.int64)
    for at in np.ndindex(x.shape[:-1]):
        places[at] = np.searchsorted(edges[at], x[at], side)
    return places


_counted(
    "searchsorted", "Where each value would be inserted to keep rows of edges in order.", _searchsorted,
    (((0,), (3,)), {"side": "left"}),
)  # fmt: skip
