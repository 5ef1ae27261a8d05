"""The table of rearrangements that are no views: each element is copied to another place."""

from __future__ import annotations

from kernels.kinds.copy import Copy

Copy(name="flip", doc="The order of the elements reversed along dims.", grad_fn="FlipBackward0", function=False)
