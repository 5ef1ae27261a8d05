"""Covariances and correlations of variables, with weights, under PyTorch's names and NumPy's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tape.operations import sums_and_extrema
from tape.operations.elementwise import clamp
from tape.operations.indexing import index
from tape.operations.matmul import matmul
from tape.operations.numpy_arguments import array_like, cast
from tape.operations.operators import FUNCTIONS
from tape.operations.reductions.variance import _FREEDOM, _promoted
from tape.recording import views
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor, as_array


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
        return _covariances(rows - sums_and_extrema.mean(rows, 1, True), None, left)
    weights: Any = weighed
    if counts is not None:
        counts = cast(counts, rows.spec.dtype if weighed is None else weighed.spec.dtype)
        weights = counts if weighed is None else counts * weighed
    total = sums_and_extrema.sum(weights)
    if (as_array(total) == 0).any():
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    if weighed is None or not correction:
        left = total - correction
    else:
        left = total - correction * (sums_and_extrema.sum(weights * weighed) / total)
    return _covariances(rows - sums_and_extrema.sum(rows * weights, 1, True) / total, weights, left)


def _covariances(apart: Tensor, weights: Tensor | None, degrees: Any) -> Tensor:
    """Return the weighted products of rows, divided by the degrees of freedom, or by 0 if these are negative."""
    if np.any((as_array(degrees) if isinstance(degrees, Tensor) else degrees) <= 0):
        warnings.warn(f"cov{_FREEDOM}the number of observations.", UserWarning, stacklevel=3)
    with np.errstate(all="ignore"):
        degrees = FUNCTIONS["where"](degrees > 0, degrees, 0.0) if isinstance(degrees, Tensor) else max(degrees, 0.0)
        products = matmul(apart, (apart if weights is None else apart * weights).T) / degrees
    return views.reshape(products, ()) if products.spec.size == 1 else products


def _weights(name: str, weights: Any, rows: Tensor) -> Tensor | None:
    """Return weights of one kind, checked; None if there are none."""
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
    return _correlated(cov(input))


def _correlated(c: Any) -> Tensor:
    if not c.spec.shape:
        return c / c  # type: ignore[no-any-return]
    spread = FUNCTIONS["sqrt"](index(c, (np.arange(c.spec.shape[0]),) * 2))
    return clamp(c / spread[:, None] / spread[None, :], -1.0, 1.0)


@implements(np.cov)
def _cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Tensor:
    correction = ddof if ddof is not None else int(not bias)
    counts, weights = (None if w is None else array_like(w) for w in (fweights, aweights))
    return cov(_variables(m, y, rowvar, dtype), correction=correction, fweights=counts, aweights=weights)


@implements(np.corrcoef)
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Tensor:
    return corrcoef(_variables(x, y, rowvar, dtype))


def _variables(m: Any, y: Any, rowvar: bool, dtype: Any) -> Tensor:
    def rows(x: Any) -> Tensor:
        x = _promoted(x, dtype)
        return x if len(x.spec.shape) < 2 or rowvar else x.T  # type: ignore[no-any-return]  # noqa: PLR2004

    if y is None:
        return rows(m)
    return views.cat([r if len(r.spec.shape) == 2 else views.reshape(r, 1, -1) for r in (rows(m), rows(y))])  # noqa: PLR2004
