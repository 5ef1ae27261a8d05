"""NumPy's sums, means, products, extrema, truths and counts of tensors: with its arguments, dtypes and defaults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from tape.conversions import creation_like
from tape.foundation.dtypes import dtype_of
from tape.operations import sums_and_extrema
from tape.operations.numpy_arguments import also, array_like, cast, chosen, not_nan, reduces
from tape.operations.operators import FUNCTIONS
from tape.operations.reductions import norms
from tape.recording import views
from tape.recording.arguments import dims_of
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor

_where: Any = FUNCTIONS["where"]


def _begun(result: Tensor, combine: Any, initial: Any) -> Tensor:
    """Return a result combined with ``initial=``, in the result's dtype."""
    if initial is None:
        return result
    begin = initial if isinstance(initial, Tensor) else np.asarray(initial).astype(result.spec.dtype)
    return combine(result, begin)  # type: ignore[no-any-return]


@reduces(np.sum, records="sum")
def _sum(
    x: Tensor, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    x = chosen(x, where, 0)
    if dtype is not None and dtype_of(dtype) == np.bool_:
        return _begun(norms.any(cast(x, dtype), axis, keepdims), FUNCTIONS["logical_or"], initial)
    total = (
        sums_and_extrema.sum(x, axis, keepdims)
        if dtype is None
        else sums_and_extrema.sum(x, axis, keepdims, dtype=dtype)
    )
    return _begun(cast(total, dtype), FUNCTIONS["add"], initial)


@reduces(np.prod, records="prod prod_dim")
def _prod(
    x: Tensor, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    x = chosen(x, where, 1)
    if dtype is not None and dtype_of(dtype) == np.bool_:
        return _begun(norms.all(cast(x, dtype), axis, keepdims), FUNCTIONS["logical_and"], initial)
    return _begun(cast(norms.prod(x, axis, keepdims, dtype=dtype), dtype), FUNCTIONS["multiply"], initial)


@reduces(np.nansum)
def _nansum(x: Tensor, where: Any = True, **arguments: Any) -> Tensor:
    return _sum(x, where=also(where, not_nan(x)), **arguments)


@reduces(np.nanprod)
def _nanprod(x: Tensor, where: Any = True, **arguments: Any) -> Tensor:
    return _prod(x, where=also(where, not_nan(x)), **arguments)


@reduces(np.mean, records="mean")
def _mean(x: Tensor, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Tensor:
    wide = np.float64 if dtype is None and x.spec.dtype.kind != "f" else dtype
    if where is True and (wide is None or dtype_of(wide).kind == "f"):
        return sums_and_extrema.mean(x, axis, keepdims, dtype=wide)
    return _averaged(x, where, axis, wide, keepdims)


@reduces(np.nanmean)
def _nanmean(x: Tensor, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Tensor:
    if x.spec.dtype.kind != "f":
        return _mean(x, axis, dtype, keepdims, where)
    if dtype is not None and dtype_of(dtype).kind != "f":
        raise TypeError("If a is inexact, then dtype must be inexact")
    return _averaged(x, also(where, not_nan(x)), axis, dtype, keepdims)


def _averaged(x: Tensor, where: Any, axis: Any, dtype: Any, keepdims: bool) -> Tensor:
    """Return a sum divided by how many were summed: nan where there were none."""
    total = _sum(x, axis, dtype, keepdims, where=where)
    count = counted(where, x, axis, keepdims)
    with np.errstate(invalid="ignore", divide="ignore"):
        return cast(total / cast(count, total.spec.dtype if total.spec.dtype.kind == "f" else np.float64), dtype)


def counted(where: Any, x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    """Return how many elements of x a reduction with ``where=`` goes over."""
    there = tensor_of(np.True_) if where is True else where
    return sums_and_extrema.sum(views.expand(there, x.spec.shape), axis, keepdims)


def _extremum(name: str, worst: float) -> Any:
    over_all, over = getattr(sums_and_extrema, name), getattr(sums_and_extrema, f"a{name}")
    pairwise, nan = FUNCTIONS[f"{name}imum"], np.nan

    def extremum(x: Tensor, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
        if where is True and initial is None:
            _not_empty(name, x, axis)
            return over_all(x, keepdim=keepdims) if axis is None else over(x, axis, keepdims)  # type: ignore[no-any-return]
        if initial is None:
            raise ValueError(
                f"reduction operation '{name}imum' does not have an identity, so to use a where mask one has to "
                "specify 'initial'"
            )
        x = chosen(x, where, _lowest(x, worst))
        if 0 in (x.spec.shape[i] for i in dims_of(x, axis)):
            result = _sum(x, axis, None, keepdims)
            return creation_like.full_like(result, initial, dtype=x.spec.dtype)
        return _begun(over(x, axis, keepdims), pairwise, initial)

    def without_nan(
        x: Tensor, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
    ) -> Tensor:
        if x.spec.dtype.kind != "f" or x.spec.size == 0:
            return extremum(x, axis, keepdims, initial, where)
        there = not_nan(x)
        result = extremum(_where(there, x, worst), axis, keepdims, initial, where)
        if initial is not None and initial == initial:  # noqa: PLR0124 (nan)
            return result
        return _where(norms.any(there, axis, keepdims), result, nan)  # type: ignore[no-any-return]

    reduces(getattr(np, name), getattr(np, f"a{name}"), records=f"a{name} {name}_all")(extremum)
    reduces(getattr(np, f"nan{name}"))(without_nan)
    return extremum


def _lowest(x: Tensor, worst: float) -> Any:
    """Return the number that any other beats in an extremum: where ``where=`` excludes an element it stands in."""
    kind = x.spec.dtype.kind
    if kind == "f":
        return worst
    if kind == "b":
        return worst > 0
    limits = np.iinfo(x.spec.dtype)
    return limits.max if worst > 0 else limits.min


def _not_empty(name: str, x: Tensor, axis: Any) -> None:
    if 0 in (x.spec.shape[i] for i in dims_of(x, axis)):
        raise ValueError(f"zero-size array to reduction operation {name}imum which has no identity")


_max, _min = _extremum("max", -math.inf), _extremum("min", math.inf)


@reduces(np.ptp)
def _ptp(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    return FUNCTIONS["subtract"](_max(x, axis, keepdims), _min(x, axis, keepdims))  # type: ignore[no-any-return]


@reduces(np.any, records="any")
def _any(x: Tensor, axis: Any = None, keepdims: bool = False, where: Any = True) -> Tensor:
    return cast(norms.any(chosen(x, where, 0), axis, keepdims), np.bool_)


@reduces(np.all, records="all")
def _all(x: Tensor, axis: Any = None, keepdims: bool = False, where: Any = True) -> Tensor:
    return cast(norms.all(chosen(x, where, 1), axis, keepdims), np.bool_)


@reduces(np.count_nonzero, records="count_nonzero")
def _count_nonzero(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    return norms.counted(x, axis, keepdim=keepdims)


def _place(name: str) -> Any:
    op = OPS[name]

    def place(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        if 0 in (x.spec.shape[i] for i in dims_of(x, axis)):
            raise ValueError(f"attempt to get {name} of an empty sequence")
        return norms.extremum_place(op, x, axis, keepdims)

    return reduces(getattr(np, name), records=name, one_axis=True)(place)


_argmax, _argmin = _place("argmax"), _place("argmin")


@reduces(np.average)
def _average(x: Tensor, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    x = x if x.spec.dtype.kind == "f" else cast(x, np.float64)
    if weights is None:
        average = sums_and_extrema.mean(x, axis, keepdims)
        total = average * 0 + x.spec.size / max(average.spec.size, 1)
    else:
        w = array_like(weights)
        if w.spec.shape != x.spec.shape:
            dims = dims_of(x, axis)
            if axis is None or w.spec.shape != tuple(x.spec.shape[i] for i in dims):
                raise TypeError(f"np.average: weights of shape {w.spec.shape} do not fit {x.spec.shape} over {axis}")
            w = views.reshape(w, [n if i in dims else 1 for i, n in enumerate(x.spec.shape)])
            w = views.expand(w, x.spec.shape)
        total = sums_and_extrema.sum(w, axis, keepdims)
        if not np.all(np.asarray(total.detach()._value)):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        average = sums_and_extrema.sum(x * w, axis, keepdims) / total
    return (average, total) if returned else average
