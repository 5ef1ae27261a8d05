"""Which saved values of a program a later write replaces, and so must be copied before."""

from __future__ import annotations

from kernels.codegen.tasks import NodeRef
from kernels.foundation.intervals import Intervals
from kernels.kinds.write import Write
from kernels.programs.recording.program import Recipe
from kernels.programs.recording.program_words import Step

Waiting = tuple[int, str]
"""A step's position, and the name by which its pullback reads the value that it waits for."""


def written(recipe: Recipe) -> set[int]:
    """Return the nodes whose memory the program writes to once it is there."""
    steps = recipe.steps
    writes = {number for number, kind in enumerate(steps.kinds) if type(kind.op) is Write}
    words = steps.words.tolist() if writes else []
    return {recipe.base_of(words[k + 1]) for k in steps.starts if words[k] in writes} if writes else set()


class Overwriting:
    """Follows the steps of a program: which values their pullbacks read, by the memory of these values."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._read_places: dict[int, Intervals] = {}
        self.written = written(recipe)
        self._saves = [kind.form is not None and bool(kind.form.saved) for kind in recipe.steps.kinds]
        self._words = recipe.steps.words if self.written else None

    def read_at(self, at: int) -> None:
        """Remember the values that the pullbacks of a step will read, where a write may replace them."""
        steps = self.recipe.steps
        if self._words is None or not self._saves[self._words[steps.starts[at]]]:
            return
        step = steps[at]
        for name in step.form.saved if step.form is not None else ():
            node = operand_named(step, name)
            if node is not None and self.recipe.base_of(node) in self.written:
                self._of(node).add(*self._bytes(node), (at, name, node))

    def by(self, step: Step) -> list[tuple[int, list[Waiting]]]:
        """Return the nodes that a write replaces, with the steps that wait for their values; once each."""
        places, low, high = self._of(step.result), *self._bytes(step.result)
        waiting: dict[int, list[Waiting]] = {}
        for item in places.meeting(low, high):
            other, name, node = item
            waiting.setdefault(node, []).append((other, name))
            places.discard(*self._bytes(node), item)
        return list(waiting.items())

    def _of(self, node: int) -> Intervals:
        return self._read_places.setdefault(self.recipe.base_of(node), Intervals())

    def _bytes(self, node: int) -> tuple[int, int]:
        """Return the range of its base's memory that a node stands in."""
        written = self.recipe.nodes[node]
        if written.spec.size == 0:
            return 0, 0
        ends = [(n - 1) * s for n, s in zip(written.spec.shape, written.spec.strides, strict=True)]
        first, last = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
        return written.offset + first, written.offset + last + written.spec.dtype.itemsize


def operand_named(step: Step, name: str) -> int | None:
    """Return the node that a pullback of a step calls by this name; None for what no write can reach."""
    if name == "y":
        return step.result
    names = step.op.inputs
    if name not in names:
        return None
    operand = step.operands[names.index(name)]
    return operand.node if isinstance(operand, NodeRef) else None
