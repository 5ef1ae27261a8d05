"""The shape of a tensor: a tuple that prints and counts as PyTorch's ``Size`` does."""

from __future__ import annotations

import math
from typing import Any


class Size(tuple[int, ...]):
    """The extents of a tensor's dims."""

    __slots__ = ()
    __module__ = "tape"  # what pickles name

    def __getitem__(self, key: Any) -> Any:
        extents = tuple.__getitem__(self, key)
        return Size(extents) if isinstance(key, slice) else extents

    def numel(self) -> int:
        """Return the number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"tape.Size([{', '.join(map(str, self))}])"
