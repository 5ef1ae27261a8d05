"""NumPy's reductions; variances and covariances, under PyTorch's and NumPy's names."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import numpy as np

from kernels.operations import OPS
from tape.operations import reductions
from tape.operations.elementwise import FUNCTIONS, also, array_like, cast, chosen, clamp, not_nan, reduces
from tape.operations.indexing import index
from tape.operations.matmul import matmul
from tape.recording import creation, foreign_calls, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import dims_of, with_axis, with_name
from tape.tensors import bytecode
from tape.tensors.dtypes import dtype_of
from tape.tensors.hooks import implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, as_array

_where: Any = FUNCTIONS["where"]


def _begun(result: Tensor, combine: Any, initial: Any) -> Tensor:
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
        return _begun(reductions.any(cast(x, dtype), axis, keepdims), FUNCTIONS["logical_or"], initial)
    total = reductions.sum(x, axis, keepdims) if dtype is None else reductions.sum(x, axis, keepdims, dtype=dtype)
    return _begun(cast(total, dtype), FUNCTIONS["add"], initial)


@reduces(np.prod, records="prod prod_dim")
def _prod(
    x: Tensor, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    x = chosen(x, where, 1)
    if dtype is not None and dtype_of(dtype) == np.bool_:
        return _begun(reductions.all(cast(x, dtype), axis, keepdims), FUNCTIONS["logical_and"], initial)
    return _begun(cast(reductions.prod(x, axis, keepdims, dtype=dtype), dtype), FUNCTIONS["multiply"], initial)


reduces(np.nansum)(lambda x, where=True, **arguments: _sum(x, where=also(where, not_nan(x)), **arguments))
reduces(np.nanprod)(lambda x, where=True, **arguments: _prod(x, where=also(where, not_nan(x)), **arguments))


@reduces(np.mean, records="mean")
def _mean(x: Tensor, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Tensor:
    wide = np.float64 if dtype is None and x.spec.dtype.kind != "f" else dtype
    if where is True and (wide is None or dtype_of(wide).kind == "f"):
        return reductions.mean(x, axis, keepdims, dtype=wide)
    return _averaged(x, where, axis, wide, keepdims)


@reduces(np.nanmean)
def _nanmean(x: Tensor, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Tensor:
    if x.spec.dtype.kind != "f":
        return _mean(x, axis, dtype, keepdims, where)
    if dtype is not None and dtype_of(dtype).kind != "f":
        raise TypeError("If a is inexact, then dtype must be inexact")
    return _averaged(x, also(where, not_nan(x)), axis, dtype, keepdims)


def _averaged(x: Tensor, where: Any, axis: Any, dtype: Any, keepdims: bool) -> Tensor:
    total = _sum(x, axis, dtype, keepdims, where=where)
    count = counted(where, x, axis, keepdims)
    with np.errstate(invalid="ignore", divide="ignore"):
        return cast(total / cast(count, total.spec.dtype if total.spec.dtype.kind == "f" else np.float64), dtype)


def counted(where: Any, x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    """Return how many elements of x a reduction with ``where=`` goes over."""
    there = tensor_of(np.True_) if where is True else where
    return reductions.sum(views.expand(there, x.spec.shape), axis, keepdims)


def _extremum(name: str, worst: float) -> Any:
    over_all, over = getattr(reductions, name), getattr(reductions, f"a{name}")
    pairwise, nan = FUNCTIONS[f"{name}imum"], np.nan

    def extremum(x: Tensor, axis: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
        if where is True and initial is None:
            if 0 in (x.spec.shape[i] for i in dims_of(x, axis)):
                raise ValueError(f"zero-size array to reduction operation {name}imum which has no identity")
            return over_all(x, keepdim=keepdims) if axis is None else over(x, axis, keepdims)  # type: ignore[no-any-return]
        if initial is None:
            raise ValueError(
                f"reduction operation '{name}imum' does not have an identity, so to use a where mask one has to "
                "specify 'initial'"
            )
        x = chosen(x, where, _lowest(x, worst))
        if 0 in (x.spec.shape[i] for i in dims_of(x, axis)):
            result = _sum(x, axis, None, keepdims)
            return creation.full_like(result, initial, dtype=x.spec.dtype)
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
        return _where(reductions.any(there, axis, keepdims), result, nan)  # type: ignore[no-any-return]

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


_max, _min = _extremum("max", -math.inf), _extremum("min", math.inf)


reduces(np.ptp)(
    lambda x, axis=None, keepdims=False: FUNCTIONS["subtract"](_max(x, axis, keepdims), _min(x, axis, keepdims))
)
reduces(np.any, records="any")(
    lambda x, axis=None, keepdims=False, where=True: cast(reductions.any(chosen(x, where, 0), axis, keepdims), np.bool_)
)


@reduces(np.all, records="all")
def _all(x: Tensor, axis: Any = None, keepdims: bool = False, where: Any = True) -> Tensor:
    return cast(reductions.all(chosen(x, where, 1), axis, keepdims), np.bool_)


reduces(np.count_nonzero, records="count_nonzero")(
    lambda x, axis=None, keepdims=False: reductions.counted(x, axis, keepdim=keepdims)
)


def _place(name: str) -> Any:
    op = OPS[name]

    def place(x: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        if 0 in (x.spec.shape[i] for i in dims_of(x, axis)):
            raise ValueError(f"attempt to get {name} of an empty sequence")
        return reductions.extremum_place(op, x, axis, keepdims)

    return reduces(getattr(np, name), records=name, one_axis=True)(place)


_argmax, _argmin = _place("argmax"), _place("argmin")


@reduces(np.average)
def _average(x: Tensor, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    x = x if x.spec.dtype.kind == "f" else cast(x, np.float64)
    if weights is None:
        average = reductions.mean(x, axis, keepdims)
        total = average * 0 + x.spec.size / max(average.spec.size, 1)
    else:
        w = array_like(weights)
        if w.spec.shape != x.spec.shape:
            dims = dims_of(x, axis)
            if axis is None or w.spec.shape != tuple(x.spec.shape[i] for i in dims):
                raise TypeError(f"np.average: weights of shape {w.spec.shape} do not fit {x.spec.shape} over {axis}")
            w = views.reshape(w, [n if i in dims else 1 for i, n in enumerate(x.spec.shape)])
            w = views.expand(w, x.spec.shape)
        total = reductions.sum(w, axis, keepdims)
        if not np.all(np.asarray(total.detach()._value)):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        average = reductions.sum(x * w, axis, keepdims) / total
    return (average, total) if returned else average


_VAR, _STD = OPS["var"], OPS["std"]
_FREEDOM = "(): degrees of freedom is <= 0. Correction should be strictly less than "
_FACTOR = "the reduction factor (input numel divided by output numel)."


def _spread(op: Any, x: Any, dims: tuple[int, ...], keep: bool, correction: float) -> Tensor:
    if math.prod(x.spec.shape[i] for i in dims) <= correction:
        warnings.warn(f"{op.name}{_FREEDOM}{_FACTOR}", UserWarning, stacklevel=4)
        bytecode.log_incomplete()  # it is to warn each time
    return foreign_calls.call(op, x, dims=dims, correction=float(correction), keepdim=keep)  # type: ignore[no-any-return]


def _function(op: Any, example: str) -> Any:
    doc = f"""Return the {op.doc.partition(" over")[0].lower()} over ``dim`` (an int, a tuple, None for all).

    The squares are divided by the number of elements less ``correction`` (1; ``unbiased=False`` is 0; ``ddof`` is
    NumPy's name). RuntimeError for integers; a UserWarning where nothing is left to divide by.

    >>> tape.{op.name}(tape.tensor([[1.0, 5.0, 3.0], [2.0, 2.0, 2.0]]), 1).tolist()
    {example}
    """

    @public()
    @cached_call()
    @with_axis
    @with_name(op.name, doc)
    def spread(
        input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = False, *, correction: Any = None,
        ddof: Any = None,
    ) -> Tensor:  # fmt: skip
        input = tensor_of(input)
        if input.spec.dtype.kind != "f":
            kind = input.spec.dtype.name
            raise RuntimeError(f"std and var only support floating point dtypes, not {kind}; convert first: x.double()")
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if sum(option is not None for option in (unbiased, correction, ddof)) > 1:
            raise TypeError(f"{op.name}(): give one of correction, unbiased and ddof, which mean the same")
        correction = ddof if correction is None else correction
        less = correction if correction is not None else 1 if unbiased is None else int(unbiased)
        return _spread(op, input, dims_of(input, dim), bool(keepdim), less)

    return spread


var = _function(_VAR, "[4.0, 0.0]")
std = _function(_STD, "[2.0, 0.0]")


def _with_mean(name: str, function: Any, what: str) -> Any:
    doc = f"""Return {what} and mean; arguments as :func:`{function.__name__}`.

    >>> tape.{name}(tape.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """

    @public(methods=False)
    @with_axis
    @with_name(name, doc)
    def both(
        input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = False, *, correction: Any = None,
        ddof: Any = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        spread = function(input, dim, unbiased, keepdim, correction=correction, ddof=ddof)
        return spread, reductions.mean(input, None if isinstance(dim, bool) else dim, keepdim)

    return both


var_mean = _with_mean("var_mean", var, "variance")
std_mean = _with_mean("std_mean", std, "standard deviation")


def _variance(
    x: Tensor, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False, where: Any = True,
    mean: Any = None, correction: Any = None, *, op: Any = _VAR, without_nan: bool = False,
) -> Tensor:  # fmt: skip
    """Return NumPy's var, or std: no correction unless one is asked for. ``without_nan``: its nanvar, or nanstd."""
    if correction is not None and ddof:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    without_nan = without_nan and x.spec.dtype.kind == "f"
    if without_nan and dtype is not None and dtype_of(dtype).kind != "f":
        raise TypeError("If a is inexact, then dtype must be inexact")
    less, where = ddof if correction is None else correction, also(where, not_nan(x)) if without_nan else where
    x = _promoted(x, dtype)
    if x.spec.dtype.kind != "f":
        raise TypeError(f"np.{op.name} of a tensor computes in a floating dtype, not {x.spec.dtype}")
    if where is True and mean is None:
        return _spread(op, x, dims_of(x, axis), keepdims, less)
    variance = _squares(x, axis, less, keepdims, where, mean)
    if without_nan:
        variance = _where(counted(where, x, axis, keepdims) > less, variance, np.nan)
    if op is _VAR:
        return variance
    zero = variance == 0
    return _where(zero, 0.0, FUNCTIONS["sqrt"](_where(zero, 1.0, variance)))  # type: ignore[no-any-return]


def _squares(x: Tensor, axis: Any, less: float, keepdims: bool, where: Any, mean: Any) -> Tensor:
    count = cast(counted(where, x, axis, keepdims=True), x.spec.dtype)
    with np.errstate(all="ignore"):
        middle = reductions.sum(chosen(x, where, 0), axis, True) / count if mean is None else array_like(mean)
        apart = chosen(x - middle, where, 0)
        left = FUNCTIONS["maximum"](cast(counted(where, x, axis, keepdims), x.spec.dtype) - less, 0.0)
        return reductions.sum(apart * apart, axis, keepdims) / left  # type: ignore[no-any-return]


reduces(np.var, records="var")(_variance)
reduces(np.std, records="std")(partial(_variance, op=_STD))
reduces(np.nanvar)(partial(_variance, without_nan=True))
reduces(np.nanstd)(partial(_variance, op=_STD, without_nan=True))


def _promoted(a: Any, dtype: Any) -> Tensor:
    x = array_like(a)
    return cast(x, dtype if dtype is not None or x.spec.dtype.kind == "f" else np.float64)


@public()
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """Return the covariances (N, N) of the rows of x (N, M), which are variables; a 0-d tensor for one row.

    ``fweights`` (integers) count how often each observation was made, ``aweights`` weigh them, and have gradients.
    RuntimeError for more than two dims, bools, and weights that do not fit, are negative, or sum to zero.

    >>> tape.cov(tape.tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]])).tolist()
    [[1.0, -2.0], [-2.0, 4.0]]
    """
    input = tensor_of(input)
    if len(input.spec.shape) > 2:  # noqa: PLR2004
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got {len(input.spec.shape)} dimensions"
        )
    if input.spec.dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input; convert it first: x.double()")
    rows = input if len(input.spec.shape) == 2 else views.reshape(input, 1, -1)  # noqa: PLR2004
    rows = rows if rows.spec.dtype.kind == "f" else cast(rows, np.float64)
    counts, weighed = _weights("fweights", fweights, rows), _weights("aweights", aweights, rows)
    if counts is None and weighed is None:
        left: Any = float(rows.spec.shape[1] - correction)
        return _covariances(rows - reductions.mean(rows, 1, True), None, left)
    weights: Any = weighed
    if counts is not None:
        counts = cast(counts, rows.spec.dtype if weighed is None else weighed.spec.dtype)
        weights = counts if weighed is None else counts * weighed
    total = reductions.sum(weights)
    if (as_array(total) == 0).any():
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    if weighed is None or not correction:
        left = total - correction
    else:
        left = total - correction * (reductions.sum(weights * weighed) / total)
    return _covariances(rows - reductions.sum(rows * weights, 1, True) / total, weights, left)


def _covariances(apart: Tensor, weights: Tensor | None, degrees: Any) -> Tensor:
    if np.any((as_array(degrees) if isinstance(degrees, Tensor) else degrees) <= 0):
        warnings.warn(f"cov{_FREEDOM}the number of observations.", UserWarning, stacklevel=3)
    with np.errstate(all="ignore"):
        degrees = FUNCTIONS["where"](degrees > 0, degrees, 0.0) if isinstance(degrees, Tensor) else max(degrees, 0.0)
        products = matmul(apart, (apart if weights is None else apart * weights).T) / degrees
    return views.reshape(products, ()) if products.spec.size == 1 else products


def _weights(name: str, weights: Any, rows: Tensor) -> Tensor | None:
    if weights is None:
        return None
    w = tensor_of(weights)
    kinds, kind = ("iu", "integral") if name == "fweights" else ("f", "floating point")
    if len(w.spec.shape) > 1 or w.spec.size != rows.spec.shape[1]:
        raise RuntimeError(
            f"cov(): expected {name} to have one value for each of {rows.spec.shape[1]} observations, "
            f"got shape {list(w.spec.shape)}"
        )
    if w.spec.dtype.kind not in kinds:
        raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with {w.spec.dtype.name} dtype")
    if (as_array(w) < 0).any():
        raise RuntimeError(f"cov(): {name} cannot be negative")
    return w


@public()
def corrcoef(input: Any) -> Tensor:
    """Return the correlations (N, N) of the rows of x (N, M), which are variables; a 0-d tensor for one row.

    >>> tape.corrcoef(tape.tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    c = cov(input)
    if not c.spec.shape:
        return c / c
    spread = FUNCTIONS["sqrt"](index(c, (np.arange(c.spec.shape[0]),) * 2))
    return clamp(c / spread[:, None] / spread[None, :], -1.0, 1.0)


@implements(np.cov)
def _cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
    aweights: Any = None, *, dtype: Any = None,
) -> Tensor:  # fmt: skip
    correction = ddof if ddof is not None else int(not bias)
    counts, weights = (None if w is None else array_like(w) for w in (fweights, aweights))
    return cov(_variables(m, y, rowvar, dtype), correction=correction, fweights=counts, aweights=weights)


implements(np.corrcoef)(lambda x, y=None, rowvar=True, *, dtype=None: corrcoef(_variables(x, y, rowvar, dtype)))


def _variables(m: Any, y: Any, rowvar: bool, dtype: Any) -> Tensor:
    def rows(x: Any) -> Tensor:
        x = _promoted(x, dtype)
        return x if len(x.spec.shape) < 2 or rowvar else x.T  # type: ignore[no-any-return]  # noqa: PLR2004

    if y is None:
        return rows(m)
    return views.cat([r if len(r.spec.shape) == 2 else views.reshape(r, 1, -1) for r in (rows(m), rows(y))])  # noqa: PLR2004
