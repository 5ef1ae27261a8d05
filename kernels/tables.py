"""The registry with every table declared: import OPS from here, not from op.py, to find all records in it."""

from __future__ import annotations

from kernels import (
    arrangements,
    banded,
    comparisons,
    contractions,
    contractions,
    elementwise,
    exponentials,
    factorizations,
    interpolations,
    piecewise,
    reductions,
    rounding,
    scans,
    solves,
    sparsity,
    special_functions,
    trigonometry,
    views,
    writes,
)
from kernels.op import OPS

__all__ = [
    "OPS",
    "arrangements",
    "banded",
    "comparisons",
    "contractions",
    "contractions",
    "elementwise",
    "exponentials",
    "factorizations",
    "interpolations",
    "piecewise",
    "reductions",
    "rounding",
    "scans",
    "solves",
    "sparsity",
    "special_functions",
    "trigonometry",
    "views",
    "writes",
]
