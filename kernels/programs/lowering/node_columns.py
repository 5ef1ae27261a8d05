"""Attributes of all nodes of a recipe as arrays; nodes that results share are looked at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernels.programs.recording.program import Node

Array = np.ndarray[Any, Any]


class Columns:
    """The nodes of a recipe; a number for each.

    ``base`` and ``family`` are the nodes whose memory and whose gradient a node's are part of: itself where it is no
    view; ``offset`` and ``buffer_offset`` its places there, in bytes. ``wants``: whether it has a gradient.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        ids = np.fromiter(map(id, nodes), np.int64, len(nodes))
        _, first, self._place = np.unique(ids, return_index=True, return_inverse=True)
        self._distinct = [nodes[i] for i in first.tolist()]
        everyone = np.arange(len(nodes))
        self.base, self.family = (
            np.where(column < 0, everyone, column)
            for column in (
                self.of(lambda node: -1 if node.base is None else node.base),
                self.of(lambda node: -1 if node.family is None else node.family),
            )
        )
        self.offset, self.buffer_offset = self.of(lambda node: node.offset), self.of(lambda node: node.buffer_offset)
        differentiable = self.of(lambda node: node.differentiable)
        self.wants = (differentiable | differentiable[self.family]) != 0

    def of(self, attribute: Callable[[Node], int]) -> Array:
        """Return an attribute of each node."""
        return np.array([attribute(node) for node in self._distinct], np.int64)[self._place]
