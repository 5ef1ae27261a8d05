"""The registry with every table declared: import OPS from here, not from records/op.py, to find all records in it."""

from __future__ import annotations

from kernels.ops import (
    distances,
    guards,
    indexing,
    interpolation,
    loops,
    reductions,
    scans,
    softmax,
    sorting,
    views,
)
from kernels.ops.elementwise import (
    arithmetic,
    bessel,
    beta,
    comparisons,
    exponentials,
    piecewise,
    rounding,
    special,
    trigonometry,
)
from kernels.ops.linalg import banded, cholesky, decompositions, determinants, least_squares, lu, matmul, solves, sparse
from kernels.records.op import OPS

__all__ = [
    "OPS",
    "arithmetic",
    "banded",
    "bessel",
    "beta",
    "cholesky",
    "comparisons",
    "decompositions",
    "determinants",
    "distances",
    "exponentials",
    "guards",
    "indexing",
    "interpolation",
    "least_squares",
    "loops",
    "lu",
    "matmul",
    "piecewise",
    "reductions",
    "rounding",
    "scans",
    "softmax",
    "solves",
    "sorting",
    "sparse",
    "special",
    "trigonometry",
    "views",
]
