"""The tables of operations, one record each, by topic: import OPS from here to find all records in it."""

from __future__ import annotations

from kernels.operations import (
    bands,
    convolutions,
    decompositions,
    factorizations,
    interpolation,
    pointwise,
    reductions,
    solves,
    special,
    views,
)
from kernels.rules.op import OPS

__all__ = [
    "OPS", "arithmetic", "bands", "convolutions", "decompositions", "factorizations", "interpolation", "pointwise",
    "reductions", "softmax", "solves", "special", "views",
]  # fmt: skip
