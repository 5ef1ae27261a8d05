"""The registry with every table declared: import OPS from here, not from records/op.py, to find all records in it."""

from __future__ import annotations

from kernels.ops import distances, indexing, interpolation, loops, reductions, scans, softmax, sorting, views
from kernels.ops.elementwise import arithmetic, bessel, beta, comparisons, exponentials, piecewise, special
from kernels.ops.linalg import banded, cholesky, decompositions, determinants, lu, matmul, solves, sparse
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
