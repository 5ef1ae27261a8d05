"""Memory of compiled programs: aligned, and with ``TAPE_DEBUG=1`` between canaries."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from kernels.arrays.specs import Spec
from kernels.native.memory import where

Array = np.ndarray[Any, Any]
ALIGN = 64
_CANARY = 0xA7
DEBUG = bool(os.environ.get("TAPE_DEBUG"))
"""Whether calls go through guarded memory, and what a program writes beside its results is an error."""


class Block:
    """Memory for so many bytes, aligned, between canaries."""

    def __init__(self, size: int) -> None:
        self.size, edge = size, ALIGN if DEBUG else 0
        self.memory = np.empty(size + ALIGN + 2 * edge, np.uint8)
        self.start = where(self.memory) + edge
        self.start += -self.start % ALIGN
        self._edges: list[Array] = []
        if DEBUG:
            first = self.start - where(self.memory)
            self._edges = [self.memory[:first], self.memory[first + size :]]
            for part in self._edges:
                part[:] = _CANARY

    def array(self, spec: Spec, offset: int, strides: tuple[int, ...]) -> Array:
        """Return an array in it, whose memory begins ``offset`` bytes behind its start."""
        offset += self.start - where(self.memory)
        offset -= sum((n - 1) * step for n, step in zip(spec.shape, strides, strict=True) if n and step < 0)
        return np.ndarray(spec.shape, spec.dtype, self.memory, offset, strides)

    def check(self, name: str) -> None:
        """Raise if something has been written beside it."""
        if any((part != _CANARY).any() for part in self._edges):
            raise RuntimeError(f"TAPEDEBUG: a compiled program has written beside its {name}")


def extent(spec: Spec) -> int:
    """Return how many bytes an array of a spec takes up."""
    if spec.size == 0:
        return 0
    return spec.dtype.itemsize + sum((n - 1) * abs(step) for n, step in zip(spec.shape, spec.strides, strict=True))


def size(spec: Spec) -> int:
    """Return the bytes of a spec's elements."""
    return spec.size * spec.dtype.itemsize
