"""The table of scans: running sums, products and extrema along a dim."""

from __future__ import annotations

import numpy as np

from kernels.op import Routine

Routine(
    name="cumsum",
    doc="Running sum along a dim.",
    grad_fn="CumsumBackward0",
    function=False,
    forward=lambda x, *, dim: np.cumsum(x, dim),
    vjp=lambda g, dim: np.flip(np.cumsum(np.flip(g, dim), dim), dim),
    jvp=lambda t, dim: np.cumsum(t, dim),
    samples=((((5,),), {"dim": 0}), (((2, 3),), {"dim": 1})),
)
