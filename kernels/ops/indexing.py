"""The table of reads and writes by index arrays, and of writes to part of a tensor."""

from __future__ import annotations

from kernels.kinds.gather import Gather
from kernels.kinds.write import Write

Gather(name="index", doc="Elements picked by index arrays or a mask.", grad_fn="IndexBackward0", function=False)
Write(name="copy_", doc="Values copied into part of a tensor.", grad_fn="CopySlices", function=False)
Write(
    name="index_put_",
    doc="Values added to part of a tensor, repeatedly where an index repeats.",
    grad_fn="IndexPutBackward0",
    adds=True,
    function=False,
)
