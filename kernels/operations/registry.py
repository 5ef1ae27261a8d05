"""The registry with every table declared: import OPS from here, not from rules/op.py, to find all records in it."""

from __future__ import annotations

from kernels.operations import (
    arithmetic,
    decompositions,
    factorizations,
    interpolation,
    pointwise,
    reductions,
    softmax,
    solves,
    special,
    views,
)
from kernels.rules.op import OPS

__all__ = [
    "OPS", "arithmetic", "decompositions", "factorizations", "interpolation", "pointwise", "reductions", "softmax",
    "solves", "special", "views",
]  # fmt: skip
