"""Variances and standard deviations, under PyTorch's names and NumPy's."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from tape.foundation import run_log
from tape.foundation.dtypes import dtype_of
from tape.operations import sums_and_extrema
from tape.operations.numpy_arguments import also, array_like, cast, chosen, not_nan, reduces
from tape.operations.operators import FUNCTIONS
from tape.operations.reductions.numpy_reductions import counted
from tape.operations.reductions.products_and_counts import where_and_how
from tape.recording import routine_calls
from tape.recording.arguments import dims_of
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.operands import tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor

_VAR, _STD = OPS["var"], OPS["std"]
_FREEDOM = "(): degrees of freedom is <= 0. Correction should be strictly less than "
_FACTOR = "the reduction factor (input numel divided by output numel)."


def _spread(op: Any, x: Any, dims: tuple[int, ...], keep: bool, correction: float) -> Tensor:
    if math.prod(x.spec.shape[i] for i in dims) <= correction:
        warnings.warn(f"{op.name}{_FREEDOM}{_FACTOR}", UserWarning, stacklevel=4)
        run_log.log_incomplete()  # it is to warn each time
    return routine_calls.call(op, x, dims=dims, correction=float(correction), keepdim=keep)  # type: ignore[no-any-return]


def _floating(x: Any) -> Tensor:
    x = tensor_of(x)
    if x.spec.dtype.kind != "f":
        raise RuntimeError(
            f"std and var only support floating point dtypes, not {x.spec.dtype.name}; convert first: x.double()"
        )
    return x  # type: ignore[no-any-return]


def _function(op: Any, example: str) -> Any:
    def spread(
        input: Any,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: Any = None,
        *,
        correction: Any = None,
        axis: Any = None,
        keepdims: Any = None,
        ddof: Any = None,
    ) -> Tensor:
        input = _floating(input)
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if sum(option is not None for option in (unbiased, correction, ddof)) > 1:
            raise TypeError(f"{op.name}(): give one of correction, unbiased and ddof, which mean the same")
        dims, keep = where_and_how(input, dim, axis, keepdim, keepdims)
        correction = ddof if correction is None else correction
        less = correction if correction is not None else 1 if unbiased is None else int(unbiased)
        return _spread(op, input, dims, keep, less)

    spread.__name__ = spread.__qualname__ = op.name
    spread.__doc__ = f"""Return the {op.doc.partition(" over")[0].lower()} over ``dim`` (an int, a tuple, None for all).

    The squares are divided by the number of elements less ``correction`` (1; ``unbiased=False`` is 0; ``ddof`` is
    NumPy's name). RuntimeError for integers; a UserWarning where nothing is left to divide by.

    >>> tape.{op.name}(tape.tensor([[1.0, 5.0, 3.0], [2.0, 2.0, 2.0]]), 1).tolist()
    {example}
    """
    return public()(argued(spread))


var = _function(_VAR, "[4.0, 0.0]")
std = _function(_STD, "[2.0, 0.0]")


@public(methods=False)
def var_mean(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = None, *, correction: Any = None,
    axis: Any = None, keepdims: Any = None, ddof: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return variance and mean; arguments as :func:`var`.

    >>> tape.var_mean(tape.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    variance = var(input, dim, unbiased, keepdim, correction=correction, axis=axis, keepdims=keepdims, ddof=ddof)
    return variance, _mean_like(input, dim, keepdim, axis, keepdims)


@public(methods=False)
def std_mean(
    input: Any, dim: Any = None, unbiased: Any = None, keepdim: Any = None, *, correction: Any = None,
    axis: Any = None, keepdims: Any = None, ddof: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return standard deviation and mean; arguments as :func:`std`.

    >>> tape.std_mean(tape.tensor([[1.0, 2.0, 3.0], [0.0, 2.0, 4.0]]), 1)
    (tensor([1., 2.]), tensor([2., 2.]))
    """
    deviation = std(input, dim, unbiased, keepdim, correction=correction, axis=axis, keepdims=keepdims, ddof=ddof)
    return deviation, _mean_like(input, dim, keepdim, axis, keepdims)


def _mean_like(x: Any, dim: Any, keepdim: Any, axis: Any, keepdims: Any) -> Tensor:
    dim = None if isinstance(dim, bool) else dim
    return sums_and_extrema.mean(x, dim, keepdim, axis=axis, keepdims=keepdims)


def _variance(
    x: Tensor,
    axis: Any = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
    correction: Any = None,
    *,
    op: Any = _VAR,
) -> Tensor:
    """Return NumPy's var, or std: no correction unless one is asked for."""
    if correction is not None and ddof:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    less = ddof if correction is None else correction
    x = _promoted(x, dtype)
    if x.spec.dtype.kind != "f":
        raise TypeError(f"np.{op.name} of a tensor computes in a floating dtype, not {x.spec.dtype}")
    if where is True and mean is None:
        return _spread(op, x, dims_of(x, axis), keepdims, less)
    variance = _squares(x, axis, less, keepdims, where, mean)
    return variance if op is _VAR else _root(variance)


def _squares(x: Tensor, axis: Any, less: float, keepdims: bool, where: Any, mean: Any) -> Tensor:
    """Return the mean square of the chosen elements less their mean; nan without degrees of freedom."""
    count = cast(counted(where, x, axis, keepdims=True), x.spec.dtype)
    with np.errstate(all="ignore"):
        middle = sums_and_extrema.sum(chosen(x, where, 0), axis, True) / count if mean is None else array_like(mean)
        apart = chosen(x - middle, where, 0)
        left = FUNCTIONS["maximum"](cast(counted(where, x, axis, keepdims), x.spec.dtype) - less, 0.0)
        return sums_and_extrema.sum(apart * apart, axis, keepdims) / left  # type: ignore[no-any-return]


def _root(squared: Tensor) -> Tensor:
    """Return the square root; its gradient at 0 is 0."""
    zero = squared == 0
    return FUNCTIONS["where"](zero, 0.0, FUNCTIONS["sqrt"](FUNCTIONS["where"](zero, 1.0, squared)))  # type: ignore[no-any-return]


def _deviation(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return _variance(x, *args, op=_STD, **kwargs)


reduces(np.var, records="var")(_variance)
reduces(np.std, records="std")(_deviation)


@reduces(np.nanvar)
def _nan_variance(
    x: Tensor,
    axis: Any = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = True,
    mean: Any = None,
    correction: Any = None,
) -> Tensor:
    if x.spec.dtype.kind != "f":
        return _variance(x, axis, dtype, ddof, keepdims, where, mean, correction)
    if dtype is not None and dtype_of(dtype).kind != "f":
        raise TypeError("If a is inexact, then dtype must be inexact")
    if correction is not None and ddof:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    x = _promoted(x, dtype)
    less, there = ddof if correction is None else correction, also(where, not_nan(x))
    variance = _squares(x, axis, less, keepdims, there, mean)
    return FUNCTIONS["where"](counted(there, x, axis, keepdims) > less, variance, np.nan)  # type: ignore[no-any-return]


@reduces(np.nanstd)
def _nan_deviation(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return _root(_nan_variance(x, *args, **kwargs))


def _promoted(a: Any, dtype: Any) -> Tensor:
    x = array_like(a)
    return cast(x, dtype if dtype is not None or x.spec.dtype.kind == "f" else np.float64)
