"""The table of rearrangements that are no views: each element moves to another place."""

from __future__ import annotations

import numpy as np

from kernels.op import Routine

Routine(
    name="flip",
    doc="The order of the elements reversed along dims.",
    grad_fn="FlipBackward0",
    function=False,
    forward=lambda x, *, dims: np.flip(x, dims),
    vjp=lambda g, dims: np.flip(g, dims),
    jvp=lambda t, dims: np.flip(t, dims),
    samples=((((5,),), {"dims": (0,)}), (((2, 3),), {"dims": (0, 1)})),
)
