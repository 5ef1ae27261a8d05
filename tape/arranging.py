"""Elements in another order: flips, rolls and turns, under PyTorch's names; NumPy's functions of these names too."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.tables import OPS
from tape import routine_calls
from tape.dims import dims_of, ints_of
from tape.public import implements, public
from tape.reducing import tensor_of
from tape.tensor import Tensor

_FLIP: Any = OPS["flip"]


@public()
def flip(x: Any, *dims: Any) -> Tensor:
    """Return a copy with the order of elements reversed along ``dims``."""
    x = tensor_of(x)
    wanted = ints_of(dims)
    return routine_calls.call(_FLIP, x, dims=dims_of(x, wanted) if wanted else ())  # type: ignore[no-any-return]


@implements(np.flip)
def _flip(m: Any, axis: Any = None) -> Tensor:
    x = tensor_of(m)
    return routine_calls.call(_FLIP, x, dims=dims_of(x, axis))  # type: ignore[no-any-return]
