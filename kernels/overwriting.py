"""Which saved values of a program a later write replaces, and so must be copied before."""

from __future__ import annotations

from kernels.intervals import Intervals
from kernels.op import Contraction, Elementwise, Routine
from kernels.program import NodeRef, Recipe, Step

Waiting = tuple[int, str]
"""A step's place, and what its pullback calls the value that it waits for."""


class Overwriting:
    """Follows the steps of a program: what their pullbacks mention, by the memory that it stands in."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._mentions: dict[int, Intervals] = {}

    def mentioned(self, step: Step) -> None:
        """Note the values that the pullbacks of a step will need."""
        if step.form is None:
            return
        for name in step.form.saved:
            node = operand_named(step, name)
            if node is not None:
                self._of(node).add(*self._bytes(node), (step.at, name, node))

    def by(self, step: Step) -> list[tuple[int, list[Waiting]]]:
        """Return the nodes that a write replaces, with the steps that wait for their values; once each."""
        places, low, high = self._of(step.result), *self._bytes(step.result)
        found: dict[int, list[Waiting]] = {}
        for item in places.meeting(low, high):
            other, name, node = item
            found.setdefault(node, []).append((other, name))
            places.discard(*self._bytes(node), item)
        return list(found.items())

    def _of(self, node: int) -> Intervals:
        return self._mentions.setdefault(self.recipe.base_of(node), Intervals())

    def _bytes(self, node: int) -> tuple[int, int]:
        """Return the range of its base's memory that a node stands in."""
        own = self.recipe.nodes[node]
        if own.spec.size == 0:
            return 0, 0
        ends = [(n - 1) * s for n, s in zip(own.spec.shape, own.spec.strides, strict=True)]
        first, last = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        return own.offset + first, own.offset + last + own.spec.dtype.itemsize


def operand_named(step: Step, name: str) -> int | None:
    """Return the node that a pullback of a step calls by this name; None for what no write can reach."""
    if name == "y":
        return step.result
    op = step.op
    names = (
        op.inputs if isinstance(op, (Elementwise, Routine)) else ("a", "b") if isinstance(op, Contraction) else ("x",)
    )
    if name not in names:
        return None
    given = step.operands[names.index(name)]
    return given.node if isinstance(given, NodeRef) else None
