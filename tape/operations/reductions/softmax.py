"""Sums of exponentials in logarithms, and what is divided by them: logsumexp, softmax and log_softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.ops.registry import OPS
from tape.foundation import dtypes
from tape.operations import sums_and_extrema
from tape.operations.numpy_arguments import cast
from tape.recording import routine_calls, views
from tape.recording.arguments import dim_of, either
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors.operands import tensor_of
from tape.tensors.registration import public
from tape.tensors.tensor import Tensor

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
