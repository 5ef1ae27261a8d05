"""The registry with every table declared: import OPS from here, not from op.py, to find all records in it."""

from __future__ import annotations

from kernels import comparisons, elementwise, linalg, reductions, views, writes
from kernels.op import OPS

__all__ = ["OPS", "comparisons", "elementwise", "linalg", "reductions", "views", "writes"]
