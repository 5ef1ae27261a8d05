"""Running sums, products and extrema along a dim, under PyTorch's names; NumPy's functions of these names too."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.tables import OPS
from tape import recording, routine_calls, shaping
from tape.dims import dim_of, either
from tape.public import implements, public
from tape.reducing import tensor_of
from tape.tensor import Tensor

_CUMSUM: Any = OPS["cumsum"]


@public()
def cumsum(x: Any, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    """Return the running sum along ``dim``, of the shape of x; ints and bools sum to int64."""
    x = tensor_of(x)
    if dtype is not None:
        x = recording.to_dtype(x, np.dtype(dtype))
    at = dim_of(x, either("dim", dim, "axis", axis, default=None))
    return routine_calls.call(_CUMSUM, x, dim=at) if x.spec.shape else shaping.clone(x)


@implements(np.cumsum)
def _cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Tensor:
    return cumsum(a, axis, dtype=dtype) if axis is not None else cumsum(shaping.reshape(a, -1), 0, dtype=dtype)
