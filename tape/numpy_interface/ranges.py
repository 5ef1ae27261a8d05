"""NumPy's ranges between tensors: ``np.linspace(a, b, n)`` has the gradients of its ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape.foundation.dtypes import dtype_of
from tape.operations.numpy_arguments import array_like, cast, floating
from tape.recording.arguments import dim_of
from tape.tensors.registration import implements
from tape.tensors.tensor import Tensor


@implements(np.linspace)
def _linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Space numbers evenly, along a new axis where the ends have dims."""
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    low, high = floating(start), floating(stop)
    count = num - 1 if endpoint else num
    apart = high - low
    at = np.arange(num, dtype=np.result_type(apart.spec.dtype, low.spec.dtype)).reshape(
        -1, *(1,) * len(apart.spec.shape)
    )
    points = low * (1 - at / max(count, 1)) + high * (at / max(count, 1))
    if axis:
        points = points.movedim(0, dim_of(points, axis))
    if dtype is not None:
        whole = dtype_of(dtype).kind in "iu"
        points = cast(points.floor() if whole else points, dtype)
    return (points, apart / count if count else apart * np.nan) if retstep else points


@implements(np.logspace)
def _logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Tensor:
    """Raise the base, a number, to numbers spaced evenly."""
    if isinstance(base, Tensor) or np.ndim(base):
        base = array_like(base)
        if base.spec.shape:
            raise TypeError("np.logspace of tensors takes one number, or a 0-d tensor, for base")
    points = base ** _linspace(start, stop, num, endpoint, axis=axis)
    return points if dtype is None else cast(points, dtype)
