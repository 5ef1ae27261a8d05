"""Shadows as tensors: the gradient of a family while a backward is recorded."""

from __future__ import annotations

import numpy as np

from kernels.layouts import Spec
from kernels.views import meets_itself
from tape import indexing, shaping
from tape.adding import add_again
from tape.tensor import Tensor, plain


class Shadow:
    """The gradient of a family: as long as nothing else is asked, a tensor of the base's shape; then flat memory."""

    def __init__(self, spec: Spec) -> None:
        self.size, self.dtype = spec.shadow, spec.dtype
        self.whole: Tensor | None = None
        self.flat: Tensor | None = None

    def __bool__(self) -> bool:
        return self.whole is not None or self.flat is not None

    def add(self, value: Tensor) -> None:
        """Add to all of it."""
        if self.flat is None:
            self.whole = value if self.whole is None else self.whole + shaping.reshape(value, self.whole.spec.shape)
        else:
            self.flat += shaping.reshape(value, -1)

    def part(self, spec: Spec, offset: int) -> Tensor:
        """Return the part that belongs to a tensor of this spec: a view, to be read or written."""
        flat = self.flattened()
        item = self.dtype.itemsize
        return shaping.strided(flat, spec.shape, tuple([s // item for s in spec.gradient]), offset // item)

    def add_part(self, spec: Spec, offset: int, value: Tensor) -> None:
        """Add to the part that belongs to a tensor of this spec."""
        apart = (len(spec.shape) == 1 and spec.gradient[0]) or not meets_itself(
            spec.shape, spec.gradient, spec.dtype.itemsize
        )
        if apart:
            part = self.part(spec, offset)
            if not add_again(part, value):
                part += value
            return
        item = spec.dtype.itemsize
        places = np.zeros(spec.shape, np.int64)
        for axis, (n, stride) in enumerate(zip(spec.shape, spec.gradient, strict=True)):
            extents = [n if k == axis else 1 for k in range(len(spec.shape))]
            places += (np.arange(n) * (stride // item)).reshape(extents)
        indexing.assign_at(self.flattened(), (places + offset // item,), value, "gradient", adds=True)

    def add_flat(self, value: Tensor) -> None:
        """Add flat memory to all of it."""
        flat = self.flattened()
        flat += value

    def flattened(self) -> Tensor:
        """Return all of it as flat memory."""
        if self.flat is None:
            self.flat = plain(np.full(self.size, -0.0, self.dtype))
            if self.whole is not None:
                self.flat += shaping.reshape(self.whole, -1)
                self.whole = None
        return self.flat


def owned(spec: Spec) -> bool:
    """Whether a spec is that of a base whose shadow lies in order."""
    return spec.in_order and spec.covers
