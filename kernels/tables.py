"""The registry with every table declared: import OPS from here, not from op.py, to find all records in it."""

from __future__ import annotations

from kernels import arrangements, comparisons, elementwise, linalg, reductions, scans, views, writes
from kernels.op import OPS

__all__ = ["OPS", "arrangements", "comparisons", "elementwise", "linalg", "reductions", "scans", "views", "writes"]
