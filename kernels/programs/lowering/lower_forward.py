"""From steps to tasks: each kind of operation lowers its own, with the nodes that it needs between.

Correctly rounded elementwise operations, copies and joins run as printed kernels; everything else runs through
NumPy's own inner loops, so that a replay agrees with dynamic mode in every bit.
"""

from __future__ import annotations

from kernels.codegen.tasks import Tasks, node_of
from kernels.kinds.program_interface import Step as LoweredStep
from kernels.programs.lowering.intermediates import Intermediates
from kernels.programs.lowering.loop_tasks import Loops
from kernels.programs.lowering.overwrites import Overwriting
from kernels.programs.lowering.repeated_steps import Repeating
from kernels.programs.recording.program import Recipe
from kernels.programs.recording.program_words import Step


class Lowering(Intermediates):
    """Turns the steps of a recipe into forward tasks."""

    def __init__(self, recipe: Recipe, *, reverse: bool = True) -> None:
        super().__init__(recipe)
        self.overwriting = Overwriting(recipe) if reverse else None
        self.extra: dict[int, int] = {}
        """Nodes made for the pullback of a step."""
        self.extras: dict[int, tuple[int, ...]] = {}
        """The further results of a routine."""
        self.copies: dict[int, dict[str, int]] = {}
        """Those of saved values of a step that a later write replaces."""
        self.loops = Loops(recipe, self.tasks)
        self.apart: list[tuple[int, int, int]] = []
        """Steps that were lowered by themselves: the first of their tasks, the one behind the last, the step."""

    def run(self) -> Tasks:
        """Lower each step; return the tasks in order."""
        steps, repeating = self.recipe.steps, Repeating(self, self.extra)
        self.owners = repeating.blocks.owners
        for at, start in enumerate(steps.starts):
            if not repeating.repeat(at, start):
                self._lower(steps[at])
                repeating.remember(at, start)
            if self.overwriting is not None and self.overwriting.written:
                self.overwriting.read_at(at)
        repeating.blocks.finish()
        return self.tasks

    def _lower(self, step: Step) -> None:
        """Lower a step as its kind says."""
        first = len(self.tasks)
        if step.op.extras and not step.params[1:]:
            after = self.recipe.steps[step.at + 1 : step.at + 1 + len(step.op.extras)]
            self.extras[step.at] = tuple(s.result for s in after)
        step.op.lower(step, self)
        self.apart.append((first, len(self.tasks), step.at))

    def wants_pullback(self, step: LoweredStep, name: str) -> bool:
        """Whether the pullback of a step, which is part of the program, reads a value of this name."""
        return self.overwriting is not None and step.form is not None and name in step.form.saved

    def same_operands(self, step: LoweredStep) -> list[Step]:
        """Return the later steps of the same operation on the same operands."""
        steps = [s for s in self.recipe.steps if s.op is step.op and s.operands == step.operands]
        return [s for s in steps if s.result > step.result]

    def places(self, step: LoweredStep) -> int:
        """Return the node of a step's places in memory; its pullback reads those in the gradient.

        They are parameters, or the same for both, and the step's last operand.
        """
        if not step.params:
            self.extra[step.at] = node_of(step.operands[-1])
            return self.extra[step.at]
        memory, gradient = step.params
        node = self.constant(memory)
        self.extra[step.at] = node if gradient is memory else self.constant(gradient)
        return node

    def keep_overwritten(self, step: LoweredStep) -> None:
        """Copy what pullbacks still read of the memory that a step is about to write."""
        for node, waiting in self.overwriting.by(step) if self.overwriting is not None else ():
            spec = self.spec(node)
            kept = self.temporary(spec.shape, spec.dtype)
            self.copy_between(node, kept)
            for at, name in waiting:
                self.copies.setdefault(at, {})[name] = kept
