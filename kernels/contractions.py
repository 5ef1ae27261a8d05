"""The table of matrix products; forward and pullbacks go to NumPy's BLAS."""

from __future__ import annotations

from kernels.op import Contraction

Contraction(name="mm", doc="Matrix times matrix.", grad_fn="MmBackward0", ranks=((2, 2),))
Contraction(name="mv", doc="Matrix times vector.", grad_fn="MvBackward0", ranks=((2, 1),))
Contraction(name="dot", doc="Inner product of two vectors.", grad_fn="DotBackward0", ranks=((1, 1),))
Contraction(name="vm", doc="Vector times matrix.", grad_fn="SqueezeBackward4", ranks=((1, 2),), function=False)
