"""The shape of a tensor: a tuple that prints and counts as PyTorch's ``Size`` does."""

from __future__ import annotations

import math


class Size(tuple[int, ...]):
    """The extents of a tensor's dims."""

    __slots__ = ()

    def numel(self) -> int:
        """Return the number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"tape.Size([{', '.join(map(str, self))}])"
