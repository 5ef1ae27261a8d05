"""The registry with every table declared: import OPS from here, not from records/op.py, to find all records in it."""

from __future__ import annotations

from kernels.operations import (
    arithmetic,
    decompositions,
    determinants,
    exponentials,
    interpolation,
    piecewise,
    reductions,
    softmax,
    solves,
    sorting,
    special,
    views,
)
from kernels.rules.op import OPS

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
    "indexing",
    "interpolation",
    "loops",
    "lu",
    "matmul",
    "piecewise",
    "reductions",
    "scans",
    "softmax",
    "solves",
    "sorting",
    "sparse",
    "special",
    "views",
]
