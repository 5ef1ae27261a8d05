"""The memory that a program needs, before it runs: bytes of values and gradients, and of the block they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kernels.compiler.compiled_code import CompiledCode
from kernels.kinds.views import Write
from kernels.programs.assembly import MemoryLayout
from kernels.programs.machine import plan
from kernels.programs.program import Recipe
from kernels.programs.steps import groups_of

KINDS = ("arguments", "results", "numbers", "values", "intermediates", "gradients")
"""What stands in the block: numbers are constants of one element, intermediates what operations need besides."""


@dataclass(slots=True)
class Share:
    """What stands there for one kind, or what operations of one group made: how many, and their bytes."""

    name: str
    count: int = 0
    bytes: int = 0


@dataclass(slots=True)
class MemoryUse:
    """The bytes of a program; ``print`` it for a table.

    ``kinds`` are what stands in the program's block of memory, as if each had bytes of its own; ``block`` is how large
    that block is: values and gradients that are not needed at the same time share bytes of it. Each call that runs at
    the same time as others needs a block. ``constants`` are bytes of arrays outside of it. ``groups`` has what the
    operations made, values and gradient buffers, by operation, by what repeats, and by line, if lines are kept.

    The block of machine code is its workspace: most values stand in registers, arguments and results in memory of their
    own, and there are no ``groups``.
    """

    reverse: bool
    kinds: dict[str, Share]
    block: int
    constants: int
    groups: dict[str, list[Share]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes of the block and of the constants outside of it."""
        return self.block + self.constants

    def __str__(self) -> str:
        apart = sum(share.bytes for share in self.kinds.values())
        shared = [("shared, aligned", "", f"{self.block - apart:,}"), ("block", "", f"{self.block:,}")]
        rows = [*_rows(self.kinds.values()), *shared, ("constants", "", f"{self.constants:,}")]
        text = [_table("forward and reverse" if self.reverse else "forward", rows)]
        text += [_table(f"by {name}", _rows(shares)) for name, shares in self.groups.items()]
        return "\n\n".join(text)


def _rows(shares: Iterable[Share]) -> list[tuple[str, str, str]]:
    return [(share.name, f"{share.count:,}", f"{share.bytes:,}") for share in shares]


def _table(title: str, rows: list[tuple[str, str, str]]) -> str:
    width = max(len(name) for name, *_ in [(title,), *rows])
    lines = [f"{name:<{width}} {count:>10} {size:>16}" for name, count, size in [(title, "number", "bytes"), *rows]]
    return "\n".join(lines)


def memory_use(recipe: Recipe, *, reverse: bool) -> MemoryUse:
    """Return the memory that a program needs; with ``reverse`` for its value and gradient. Nothing is allocated."""
    layout = MemoryLayout(plan(recipe, reverse=reverse))
    nodes, count = layout.recipe.nodes, len(layout.recipe.nodes)
    bytes_of = np.where(layout.offsets >= 0, layout.rooms, 0).tolist()
    kinds = {kind: Share(kind) for kind in KINDS}
    arguments, results = (set(map(recipe.base_of, group)) for group in (recipe.arguments, recipe.outputs))
    for i, size in enumerate(bytes_of):
        if not size:
            continue
        if i >= count:
            kind = "gradients"
        elif i in arguments:
            kind = "arguments"
        elif nodes[i].constant is not None:
            kind = "numbers"
        elif i in results:
            kind = "results"
        else:
            kind = "values" if i < len(recipe.nodes) else "intermediates"
        kinds[kind].count += 1
        kinds[kind].bytes += size
    constants = {id(node.constant): node.constant for node in nodes if node.constant is not None and node.constant.ndim}
    outside = sum(constant.nbytes for constant in constants.values())
    return MemoryUse(reverse, kinds, layout.size, outside, _grouped(recipe, bytes_of, count))


def compiled_memory_use(code: CompiledCode, *, reverse: bool) -> MemoryUse:
    """Return the memory that machine code needs."""
    kinds = {kind: Share(kind) for kind in KINDS}
    for kind, (count, size) in (code.account.memory if code.account is not None else {}).items():
        kinds[kind] = Share(kind, count, size)
    constants = {id(constant): constant.nbytes for constant in code.constants}
    return MemoryUse(reverse, kinds, code.work, sum(constants.values()))


def _grouped(recipe: Recipe, bytes_of: list[int], count: int) -> dict[str, list[Share]]:
    """Return what steps made, their results and the gradients of these, by group; the largest first."""
    tables: dict[str, dict[str, Share]] = {}
    names, seen = groups_of(recipe).named(), set(recipe.arguments)
    for at, start in enumerate(recipe.steps.starts):
        node = recipe.steps.words[start + 1]
        is_new = recipe.nodes[node].base is None and node not in seen  # what a guard looks at is not
        if not is_new or isinstance(recipe.steps.kinds[recipe.steps.words[start]].op, Write):
            continue
        seen.add(node)
        for by, of_steps in names.items():
            share = tables.setdefault(by, {}).setdefault(of_steps[at], Share(of_steps[at]))
            for size in (bytes_of[node], bytes_of[count + node]):
                share.count += size > 0
                share.bytes += size
    return {by: sorted(table.values(), key=lambda share: -share.bytes) for by, table in tables.items()}
