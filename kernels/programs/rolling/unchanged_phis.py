"""What recorded loops hand on as it is: it is read from where it was before the loop, and not carried."""

from __future__ import annotations

from dataclasses import replace

from kernels.kinds.loop import LoopBegin
from kernels.kinds.write import Write
from kernels.ops.views import CLONE
from kernels.programs.recording.lines import Lines
from kernels.programs.recording.loop_marks import bodies_of
from kernels.programs.recording.notifying_structs import StepWords
from kernels.programs.recording.program import Recipe
from kernels.programs.recording.program_words import StepKind
from kernels.programs.rolling.remade_recipe import Remade, Step


def without_unchanged(recipe: Recipe) -> Recipe:
    """Return a recipe with the same nodes, whose loops carry only what they change."""
    begins = recipe.steps.of_kind(LoopBegin)
    if not begins:
        return recipe
    unchanged = _Unchanged(Remade(recipe), begins)
    if unchanged.places:
        unchanged.put()
        return unchanged.made.recipe
    return recipe


class _Unchanged:
    """Finds what loops do not change, that of inner loops first: outer ones may hand on what these do.

    ``places`` are those among the operands of a loop's marks, by these; ``nodes`` are read in place of the phis, whose
    ``copies`` nobody needs then.
    """

    def __init__(self, made: Remade, begins: list[int]) -> None:
        self.made, self.recipe = made, made.recorded
        self.places: dict[int, set[int]] = {}
        self.nodes: dict[int, int] = {}
        self.copies: set[int] = set()
        writes = map(made.step, self.recipe.steps.of_kind(Write))
        self.written = {self.recipe.base_of(step.result) for step in writes}
        for begin in reversed(begins):
            self._find(begin, [again for _, again in bodies_of(self.recipe.steps, begin)])

    def _find(self, begin: int, agains: list[int]) -> None:
        """Take in what no body of one loop changes."""
        updates = list(zip(*[self.made.step(again).operands for again in agains], strict=True))
        phis = self.made.step(begin).operands[: len(updates)]
        pairs = zip(phis, updates, strict=True)
        places = {k for k, (phi, nodes) in enumerate(pairs) if all(self.node(node) == phi for node in nodes)}
        if places:
            self.places |= dict.fromkeys((begin, *agains), places)
        for k in places:
            at = begin - len(phis) + k
            source = self._source(self.made.step(at))
            if source is not None:
                self.nodes[phis[k]] = source
                self.copies.add(at)

    def _source(self, copy: Step) -> int | None:
        """Return the node that a phi is a copy of at first, if that is all of its memory, and nobody writes to them."""
        node, nodes = self.node(copy.operands[0]), self.recipe.nodes
        base, form = self.node(self.recipe.base_of(node)), self.made.steps.kinds[copy.kind].form
        is_whole = nodes[copy.result].spec is nodes[node].spec is nodes[base].spec and nodes[node].offset == 0
        wanted = form is not None and form.wanted[0] and self.node(self.recipe.family_of(node)) == base
        is_same = wanted or not self.recipe.wants(base)
        is_plain = self.made.op(copy) is CLONE and is_whole and is_same
        return base if is_plain and not {base, copy.result} & self.written else None

    def node(self, node: int) -> int:
        """Return the node that is read in place of one; numbers stand for themselves."""
        while node in self.nodes:
            node = self.nodes[node]
        return node

    def put(self) -> None:
        """Put all steps that are left, with their lines."""
        made, lines = self.made, self.recipe.lines
        numbers = [] if lines is None else lines.of_steps(self.recipe.steps).tolist()
        marks = made.recipe.lines = None if lines is None else Lines([*lines.table])
        for at in range(len(self.recipe.steps)):
            if at in self.copies:
                continue
            if marks is not None:
                marks.mark(made.steps.head[StepWords.used], numbers[at])
            step, places = made.step(at), self.places.get(at, ())
            operands = tuple([self.node(o) for k, o in enumerate(step.operands) if k not in places])
            kind = made.steps.kinds[step.kind]
            number = made.number(StepKind(kind.op, None, kind.params, len(operands))) if places else step.kind
            made.put(Step(number, self.node(step.result), operands, at))
        for k, entry in enumerate(made.nodes):
            base, family = (None if n is None else self.node(n) for n in (entry.base, entry.family))
            if (base, family) != (entry.base, entry.family):
                made.nodes[k] = replace(entry, base=base, family=family)
        made.steps.fit()
        made.recipe.outputs = [self.node(node) for node in self.recipe.outputs]
