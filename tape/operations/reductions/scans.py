"""Running sums, products and extrema along a dim, and softmax, under PyTorch's names; NumPy's of these names too."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from tape import return_types
from tape.foundation import dtypes
from tape.foundation.dtypes import dtype_of
from tape.operations import sums_and_extrema
from tape.operations.numpy_arguments import array_like, cast, chosen, not_nan, written
from tape.operations.reductions.norms import accumulated
from tape.recording import routine_calls, views
from tape.recording.arguments import dim_of, either
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.operands import tensor_of
from tape.tensors.registration import implements, public
from tape.tensors.tensor import Tensor

_CUMSUM: Any = OPS["cumsum"]
_CUMPROD: Any = OPS["cumprod"]
_CUMMAX: Any = OPS["cummax"]
_CUMMIN: Any = OPS["cummin"]
_LOGCUMSUMEXP: Any = OPS["logcumsumexp"]


def _scan(op: Any, x: Tensor, dim: Any, axis: Any) -> Any:
    dim = either("dim", dim, "axis", axis, None)
    if dim is None:
        raise TypeError(f"{op.name}() missing 1 required positional argument: 'dim'")
    at = dim_of(x, dim)
    if x.spec.shape:
        return routine_calls.call(op, x, dim=at)
    scanned = routine_calls.call(op, views.reshape(x, 1), dim=0)
    return tuple(views.reshape(y, ()) for y in scanned) if isinstance(scanned, tuple) else views.reshape(scanned, ())


@public()
@argued
def cumsum(input: Any, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """Return the running sum along ``dim``, of the shape of x; ints and bools sum to int64.

    >>> tape.cumsum(tape.tensor([[1.0, 2.0], [3.0, 4.0]]), 1).tolist()
    [[1.0, 3.0], [3.0, 7.0]]
    """
    return _scan(_CUMSUM, accumulated(input, dtype), dim, axis)  # type: ignore[no-any-return]


@public()
@argued
def cumprod(input: Any, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """Return the running product along ``dim``, of the shape of x; ints and bools multiply to int64.

    The gradient is exact where elements are zero. That of the gradient then needs memory for the square of the length.

    >>> tape.cumprod(tape.tensor([1.0, 2.0, 3.0, 4.0]), 0).tolist()
    [1.0, 2.0, 6.0, 24.0]
    """
    return _scan(_CUMPROD, accumulated(input, dtype), dim, axis)  # type: ignore[no-any-return]


@public()
@argued
def cummax(input: Any, dim: Any = None, *, axis: Any = None) -> Any:
    """Return the running maximum along ``dim`` and its int64 places: the last of equals, to which the gradient goes.

    >>> tape.cummax(tape.tensor([1.0, 3.0, 2.0, 3.0]), 0).indices.tolist()
    [0, 1, 1, 3]
    """
    return return_types.cummax(*_scan(_CUMMAX, tensor_of(input), dim, axis))


@public()
@argued
def cummin(input: Any, dim: Any = None, *, axis: Any = None) -> Any:
    """Return the running minimum along ``dim`` and its int64 places: the last of equals, to which the gradient goes.

    >>> tape.cummin(tape.tensor([3.0, 1.0, 2.0, 0.0]), 0).values.tolist()
    [3.0, 1.0, 1.0, 0.0]
    """
    return return_types.cummin(*_scan(_CUMMIN, tensor_of(input), dim, axis))


@public()
@argued
def logcumsumexp(input: Any, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Return ``log(cumsum(exp(input)))`` along ``dim`` without overflow on the way; floating tensors only.

    The gradient of the gradient needs memory for the square of the length.

    >>> tape.logcumsumexp(tape.tensor([1000.0, 1000.0]), 0)
    tensor([1000.0000, 1000.6931])
    """
    input = tensor_of(input)
    if input.spec.dtype.kind != "f":
        raise NotImplementedError(f'"logcumsumexp" not implemented for {input.spec.dtype.name}; convert it: x.double()')
    return _scan(_LOGCUMSUMEXP, input, dim, axis)  # type: ignore[no-any-return]


def _flat(function: Any, scan: Any, *, records: str = "", instead: float | None = None) -> None:
    """Let a scan serve NumPy's: over all elements in order if no axis is given, with ``instead`` in place of nan."""

    def run(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = array_like(a)
        if isinstance(axis, (tuple, list)):
            raise TypeError(f"np.{function.__name__}: axis is an int, not {axis}")
        if instead is not None:
            x = chosen(x, not_nan(x), instead)
        flat = axis is None or not x.spec.shape
        x, at = (views.reshape(x, -1) if flat else x), 0 if axis is None else axis
        wide = None if dtype is None or dtype_of(dtype) != np.bool_ else np.int64
        return written(
            function.__name__, out, cast(scan(x if wide is None else cast(x, dtype), at, dtype=wide or dtype), dtype)
        )

    implements(function, records=records)(run)


def _standard(scan: Any, first: float) -> Any:
    """Return a scan as the Array API has it: ``include_initial`` puts the neutral element first."""

    def run(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
        x = tensor_of(x)
        if axis is None and len(x.spec.shape) != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = axis or 0
        scanned = scan(x, axis, dtype=dtype)
        if not include_initial:
            return scanned  # type: ignore[no-any-return]
        at, shape = dim_of(x, axis), scanned.spec.shape
        start = tensor_of(np.full((*shape[:at], 1, *shape[at + 1 :]), first, scanned.spec.dtype))
        return views.cat([start, scanned], at)

    return run


_flat(np.cumsum, cumsum, records="cumsum")
_flat(np.cumprod, cumprod, records="cumprod")
_flat(np.nancumsum, cumsum, instead=0)
_flat(np.nancumprod, cumprod, instead=1)
implements(np.cumulative_sum)(_standard(cumsum, 0))
implements(np.cumulative_prod)(_standard(cumprod, 1))


# Sums of exponentials in logarithms, and what is divided by them: logsumexp, softmax and log_softmax.

_LOGSUMEXP: Any = OPS["logsumexp"]
_SOFTMAX: Any = OPS["softmax"]
_LOG_SOFTMAX: Any = OPS["log_softmax"]


@public()
@argued
def logsumexp(input: Any, dim: Any = None, keepdim: Any = None, *, axis: Any = None, keepdims: Any = None) -> Tensor:
    """Return ``log(sum(exp(input)))`` over ``dim`` (an int or a tuple), without overflow on the way.

    Rows of -inf give -inf. Integers are computed in the default dtype.

    >>> tape.logsumexp(tape.tensor([1000.0, 1000.0]), 0)
    tensor(1000.6931)
    """
    input = tensor_of(input)
    input = cast(input, None if input.spec.dtype.kind == "f" else dtypes.get_default_dtype())
    if dim is None and axis is None:
        raise TypeError("logsumexp() missing 1 required positional argument: 'dim'")
    return sums_and_extrema.along(_LOGSUMEXP, input, dim, axis, keepdim, keepdims, None)


def _along(op: Any, x: Any, dim: Any, dtype: Any, axis: Any) -> Tensor:
    x = cast(tensor_of(x), dtype)
    dim = either("dim", dim, "axis", axis, None)
    if dim is None:
        raise TypeError(f"{op.name}() missing 1 required positional argument: 'dim'")
    if x.spec.dtype.kind != "f":
        raise NotImplementedError(
            f'"{op.name}" not implemented for {np.dtype(x.spec.dtype).name}; give dtype=tape.float64'
        )
    at = dim_of(x, dim)
    if not x.spec.shape:
        return views.reshape(routine_calls.call(op, views.reshape(x, 1), dim=0), ())
    return routine_calls.call(op, x, dim=at)  # type: ignore[no-any-return]


@public()
@argued
def softmax(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """Return the exponentials divided by their sum along ``dim``, of the shape of x.

    The largest of each row is taken away first, so that nothing overflows. NotImplementedError for integers without
    ``dtype``.

    >>> tape.softmax(tape.tensor([[0.0, 0.0], [1000.0, 0.0]]), 1).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    return _along(_SOFTMAX, input, dim, dtype, axis)


@public()
@argued
def log_softmax(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """Return the logarithm of :func:`softmax`, exact where it is small; arguments as there.

    >>> tape.log_softmax(tape.tensor([0.0, 1000.0]), 0).tolist()
    [-1000.0, 0.0]
    """
    return _along(_LOG_SOFTMAX, input, dim, dtype, axis)


@public(methods=False)
def softmin(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """Return :func:`softmax` of -x; arguments as there.

    >>> tape.softmin(tape.tensor([0.0, 1000.0]), 0).tolist()
    [1.0, 0.0]
    """
    return _along(_SOFTMAX, -tensor_of(input), dim, dtype, axis)
