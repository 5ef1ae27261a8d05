"""The table of matrix products; forward and pullbacks go to NumPy's BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.codegen.matmul import LARGEST_LOOP
from kernels.kinds.contraction import Contraction
from kernels.kinds.routine import Routine
from kernels.records.op import turned

Contraction(name="mm", doc="Matrix times matrix.", grad_fn="MmBackward0", ranks=((2, 2),))
Contraction(name="mv", doc="Matrix times vector.", grad_fn="MvBackward0", ranks=((2, 1),))
Contraction(name="dot", doc="Inner product of two vectors.", grad_fn="DotBackward0", ranks=((1, 1),))
Contraction(name="vm", doc="Vector times matrix.", grad_fn="SqueezeBackward4", ranks=((1, 2),), function=False)


def plus(a: Any, b: Any) -> Any:
    """Return the sum of two tangents, of which one may be nothing."""
    return b if a is None else a if b is None else a + b


def _products_parts(a: Any, b: Any) -> Any:
    if a.shape[1] * a.shape[2] * b.shape[2] > LARGEST_LOOP:
        return NotImplemented
    return np.add.reduce(a[..., None] * b[:, None], axis=2, keepdims=True)[:, :, 0]


Routine(
    name="bmm",
    doc="Batches of matrices multiplied, of the same extents in front.",
    grad_fn="BmmBackward0",
    function=False,
    forward=lambda a, b: np.matmul(a, b),
    parts=_products_parts,
    vjp=lambda g, a, b, needs: (
        np.matmul(g, turned(b)) if needs[0] else None,
        np.matmul(turned(a), g) if needs[1] else None,
    ),
    jvp=lambda t_a, t_b, a, b: plus(
        None if t_a is None else np.matmul(t_a, b), None if t_b is None else np.matmul(a, t_b)
    ),
    samples=((((3, 2, 4), (3, 4, 2)), {}),),
)
Routine(
    name="cross",
    doc="The vector product along an axis of extent 3.",
    grad_fn="LinalgCrossBackward0",
    function=False,
    forward=lambda a, b, *, dim: np.cross(a, b, axis=dim),
    vjp=lambda g, a, b, dim: (np.cross(b, g, axis=dim), np.cross(g, a, axis=dim)),
    jvp=lambda t_a, t_b, a, b, dim: plus(
        None if t_a is None else np.cross(t_a, b, axis=dim), None if t_b is None else np.cross(a, t_b, axis=dim)
    ),
    samples=((((2, 3), (2, 3)), {"dim": -1}),),
)


def _convolve_vjp(g: Any, a: Any, b: Any) -> Any:
    m, n = a.shape[0], b.shape[0]
    return np.convolve(g, np.flip(b))[n - 1 : n - 1 + m], np.convolve(g, np.flip(a))[m - 1 : m - 1 + n]


Routine(
    name="convolve",
    doc="The full convolution of two vectors.",
    grad_fn="ConvolveBackward0",
    function=False,
    forward=lambda a, b: np.convolve(a, b),
    vjp=_convolve_vjp,
    jvp=lambda t_a, t_b, a, b: plus(
        None if t_a is None else np.convolve(t_a, b), None if t_b is None else np.convolve(a, t_b)
    ),
    samples=((((4,), (3,)), {}),),
)
