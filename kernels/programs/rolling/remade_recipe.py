"""A recipe that is made of a recorded one: of its steps, and new ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernels.arrays.specs import spec_of
from kernels.ops.registry import OPS
from kernels.programs.recording.notifying_structs import HEAD
from kernels.programs.recording.program import Node, Recipe
from kernels.programs.recording.program_words import StepKind, Steps


class Step(NamedTuple):
    """A step by the number of its kind; ``origin`` is the recorded one."""

    kind: int
    result: int
    operands: tuple[int, ...]
    origin: int


class Remade:
    """The recipe that is made: of steps of the recorded one, and new ones."""

    def __init__(self, recorded: Recipe) -> None:
        self.recorded, self.recipe = recorded, recorded.copy()
        self.nodes = self.recipe.nodes
        self.steps = self.recipe.steps = Steps()
        self.steps.kinds, self.steps.numbers = [*recorded.steps.kinds], [*recorded.steps.numbers]
        self.origins: list[int] = []
        self._words, self._starts = recorded.steps.words.tolist(), recorded.steps.starts
        self._constants: dict[Any, int] = {}
        self._kinds: dict[Any, int] = {}

    def step(self, at: int) -> Step:
        """Return a recorded step."""
        start = self._starts[at]
        number, result = self._words[start : start + HEAD]
        operands = self._words[start + HEAD : start + HEAD + self.steps.kinds[number].count]
        return Step(number, result, tuple(operands), at)

    def op(self, step: Step) -> Any:
        """Return what a step does."""
        return self.steps.kinds[step.kind].op

    def put(self, step: Step) -> None:
        """Append a step."""
        self.steps.add(step.kind, step.result, step.operands)
        self.origins.append(step.origin)

    def copy(self, low: int, high: int) -> None:
        """Append recorded steps as they are."""
        for at in range(low, high):
            self.put(self.step(at))

    def number(self, kind: StepKind, specs: tuple[Any, ...] = ()) -> int:
        """Return the number of a new kind of steps, whose operands have these specs."""
        key = kind.op, kind.params, kind.count, specs
        if key not in self._kinds:
            self._kinds[key] = len(self.steps.kinds)
            self.steps.kinds.append(kind)
        return self._kinds[key]

    def constant(self, node: int) -> int:
        """Return the constant that stands for all that are the same as this one, bit for bit."""
        entry = self.nodes[node]
        assert entry.constant is not None
        return self._constants.setdefault((entry.spec, entry.constant.tobytes()), node)

    def computed(self, name: str, operands: tuple[int, ...], origin: int) -> int:
        """Return the node of a new step: an operation on nodes of one shape, a condition apart."""
        op, entries = OPS[name], [self.nodes[node] for node in operands]
        last = entries[-1].spec
        spec = spec_of(np.empty(last.shape, last.dtype))
        wanted = tuple(
            [rule is not None and self.recipe.wants(n) for rule, n in zip(op.pullback, operands, strict=True)]
        )
        specs = tuple([entry.spec for entry in entries])
        form = op.form(specs, spec, wanted) if any(wanted) else None
        self.nodes.append(Node(spec, differentiable=any(wanted)))
        result = len(self.nodes) - 1
        kind = StepKind(op, form, (), len(operands))
        self.put(Step(self.number(kind, (*specs, wanted)), result, operands, origin))
        return result
