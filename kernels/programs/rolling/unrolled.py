"""Why operations are in no loop, though their line ran several times: how one time differs from the next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from kernels.codegen.tasks import NodeRef
from kernels.programs.recording.program import Recipe, describe, parameters

_FEWEST = 24
"""Operations of a line that are worth a loop."""
_TIMES = 3
"""Times that a line runs, at least."""


class Unrolled(NamedTuple):
    """A line of which operations are in no loop: its number, how many these are, how often it ran, and why."""

    line: int
    operations: int
    times: int
    reason: str


def unrolled(recipe: Recipe, straight: Sequence[int]) -> list[Unrolled]:
    """Return the lines of which many steps, of those in no loop, ran several times; the most first.

    Nothing where lines are not known.
    """
    if recipe.lines is None or len(straight) < _FEWEST:
        return []
    numbers = recipe.lines.of_steps(recipe.steps).tolist()
    by_line: dict[int, list[list[int]]] = {}
    for number, group in itertools.groupby(straight, key=lambda step: numbers[step]):
        by_line.setdefault(number, []).append([*group])
    lines = []
    for number, visits in by_line.items():
        count = sum(map(len, visits))
        times = visits if len(visits) > 1 else _cut(recipe, visits[0])
        if number >= 0 and count >= _FEWEST and len(times) >= _TIMES:
            lines.append(Unrolled(number, count, len(times), _difference(recipe, times)))
    return sorted(lines, key=lambda entry: -entry.operations)


def _cut(recipe: Recipe, steps: list[int]) -> list[list[int]]:
    """Cut steps where the first of them comes again: a line that is the whole body of a loop."""
    operations = [recipe.steps[step].op for step in steps]
    begins = [k for k, op in enumerate(operations) if op is operations[0]]
    return [steps[low:high] for low, high in itertools.pairwise([*begins, len(steps)])]


def _difference(recipe: Recipe, times: list[list[int]]) -> str:
    """Return how two times differ; the first one, which may begin otherwise, is not looked at."""
    for one, other in itertools.pairwise(times[1:]):
        for first, second in zip(one, other, strict=False):
            before, after = _Shown.of(recipe, first), _Shown.of(recipe, second)
            if before.text != after.text:
                return f"{before.text} is {after.text} at the next time"
            if before.operands != after.operands:
                return f"{before.text} of {before.operands} is of {after.operands} at the next time"
        if len(one) != len(other):
            return f"{len(one)} operations are {len(other)} at the next time"
    return "the same operations each time, but what they read, or where it stands, does not change regularly"


class _Shown(NamedTuple):
    """A step as text, and the shapes that it reads."""

    text: str
    operands: str

    @classmethod
    def of(cls, recipe: Recipe, at: int) -> _Shown:
        step, nodes = recipe.steps[at], recipe.nodes
        read: list[Any] = [nodes[o.node].spec if isinstance(o, NodeRef) else None for o in step.operands]
        operands = ", ".join("a number" if spec is None else describe(spec) for spec in read)
        return cls(f"{step.op.name}{parameters(step.params)} {describe(nodes[step.result].spec)}", operands)
