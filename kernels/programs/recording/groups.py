"""What steps of a program are grouped by in tables: the operation, what repeats, the user's line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernels.programs.recording.flow import flow_of
from kernels.programs.recording.program import Recipe
from kernels.programs.recording.repeats import Repeat


class Groups(NamedTuple):
    """For each step its operation, the titles of the repeats that it is in, outermost first, and its line.

    ``lines`` has nothing where none are kept.
    """

    operations: list[str]
    blocks: list[tuple[str, ...]]
    lines: list[str]

    def named(self) -> dict[str, list[str]]:
        """Return the names of each step's groups, by what they are groups of."""
        blocks = [" / ".join(path) or "once" for path in self.blocks]
        named = {"operation": self.operations, "block": blocks}
        return named | ({"line": self.lines} if self.lines else {})


def groups_of(recipe: Recipe) -> Groups:
    """Return the groups of a program's steps."""
    names = [kind.op.name for kind in recipe.steps.kinds]
    operations = [names[recipe.steps.words[start]] for start in recipe.steps.starts]
    numbers = None if recipe.lines is None else recipe.lines.of_steps(recipe.steps)
    blocks: list[tuple[str, ...]] = [()] * len(operations)
    _enter(flow_of(recipe, numbers).repeats, operations, (), blocks)
    lines = [] if recipe.lines is None or numbers is None else [recipe.lines.text(n) for n in numbers.tolist()]
    return Groups(operations, blocks, lines)


def _enter(
    repeats: Iterable[Repeat], operations: list[str], path: tuple[str, ...], blocks: list[tuple[str, ...]]
) -> None:
    """Write the titles of repeats, below those of ``path``, to their steps."""
    for start, length, count, inner in repeats:
        first, last = operations[start], operations[start + length - 1]
        within = (*path, f"{count} times {first} .. {last} ({length}) from {start}")
        blocks[start : start + length] = [within] * length
        _enter(inner, operations, within, blocks)
        blocks[start : start + length * count] = blocks[start : start + length] * count
