"""The guard: in programs only, where a value left for Python."""

from __future__ import annotations

from kernels.kinds.guard import Guard

GUARD = Guard(name="guard", doc="A value that must be what it was when the program was recorded.", grad_fn="Guard")
