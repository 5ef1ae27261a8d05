"""What became of a program that was compiled: its loops, its nests, what kept two of these apart, and its workspace."""

from __future__ import annotations

from kernels.foundation.data_classes import dataclass

ROLES = {
    "w": ("values", "values"),
    "d": ("gradients", "gradients"),
    "t": ("intermediates", "values saved for the way back"),
    "z": ("checkpoints", "what a loop carries at the begin of each block of steps"),
    "u": ("intermediates", "what a guard found"),
    "q": ("intermediates", "addresses"),
    "f": ("intermediates", "sums over parts of loops, and what pieces hand on"),
}
"""What the regions of a workspace hold, by the first letters of their names: the kind of memory, and in words."""


@dataclass(slots=True, frozen=True)
class LoopAccount:
    """A loop: how often, the steps in the recipe of its own operations, and how many loops are around it.

    With ``ends`` it was recorded as one, that guards or a value end.
    """

    count: int
    steps: tuple[int, ...]
    depth: int
    ends: bool = False


@dataclass(slots=True, frozen=True)
class NestAccount:
    """A nest: how many statements, over how many elements, their steps in the recipe.

    ``apart`` are the step of a statement in an earlier nest over as many, and that of the statement here that could not
    join it; None where there is no such nest.
    """

    statements: int
    elements: int
    steps: tuple[int, ...]
    apart: tuple[int, int] | None


@dataclass(slots=True, frozen=True)
class CallAccount:
    """A call between nests: what is called, what runs it, its step in the recipe, and how often."""

    name: str
    by: str
    step: int
    times: int


@dataclass(slots=True, frozen=True)
class Account:
    """What a compiled program is made of; steps are those of the recipe."""

    lines: int
    """Of source, for value and gradient."""
    loops: tuple[LoopAccount, ...]
    nests: tuple[NestAccount, ...]
    calls: tuple[CallAccount, ...]
    straight: tuple[int, ...]
    """Steps that are in no loop."""
    memory: dict[str, tuple[int, int]]
    """By kind of what stands in the workspace, how many, and their bytes."""
