"""The table of reductions, over any axes. ``n`` is the number of elements that met (or tied) in one result."""

from __future__ import annotations

import numpy as np

from kernels.kinds.reduction import Reduction
from kernels.kinds.select import Select
from kernels.records.symbols import cut

Reduction(
    name="sum",
    doc="Sum over dims.",
    grad_fn="SumBackward0",
    dims_grad_fn="SumBackward1",
    ufunc=np.add,
    pullback=(lambda g: g,),
)
Reduction(
    name="mean",
    doc="Mean over dims.",
    grad_fn="MeanBackward0",
    dims_grad_fn="MeanBackward1",
    ufunc=np.add,
    scale=True,
    pullback=(lambda g, n: g / n,),
)


def evenly(name: str, grad_fn: str, ufunc: np.ufunc, doc: str) -> None:
    """Declare an extremum whose ties, nan included, share the gradient evenly."""
    Reduction(
        name=name,
        doc=doc,
        grad_fn=grad_fn,
        ufunc=ufunc,
        function=name.startswith("a"),
        selects=True,
        pullback=(lambda g, y, x, n: cut(np.logical_not((x == y) | ((x != x) & (y != y))), g / n),),
    )


evenly("amax", "AmaxBackward0", np.maximum, "Largest element over dims; ties share the gradient evenly.")
evenly("amin", "AminBackward0", np.minimum, "Smallest element over dims; ties share the gradient evenly.")
evenly("max_all", "MaxBackward1", np.maximum, "Largest element of all; ties share the gradient evenly.")
evenly("min_all", "MinBackward1", np.minimum, "Smallest element of all; ties share the gradient evenly.")
Select(name="max", doc="Largest element and, along a dim, its index.", grad_fn="MaxBackward0", locate=np.argmax)
Select(name="min", doc="Smallest element and, along a dim, its index.", grad_fn="MinBackward0", locate=np.argmin)
