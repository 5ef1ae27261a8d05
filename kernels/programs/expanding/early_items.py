"""Scalar operations that need not wait for the nests before them go in front: their gradients are then added last.

What a nest contributes to the gradient of a whole value can so be stored, where, say, the ends of a grid are read
apart.
"""

from __future__ import annotations

from kernels.programs.expanding.scalar_program import (
    Load,
    NestLoop,
    Operation,
    ScalarBlock,
    ScalarItem,
    StepLoop,
    Store,
    walk,
)


def move_early(block: ScalarBlock) -> None:
    """Reorder the items of a block, and of those in it."""
    moved: list[ScalarItem] = []
    late = _Late()
    for item in block.items:
        if isinstance(item, Load | Operation | Store) and late.items and not late.holds(item):
            moved.append(item)
        else:
            if late.items or isinstance(item, NestLoop):
                late.add(item)
                continue
            moved.append(item)
    block.items[:] = [*moved, *late.items]
    for item in block.items:
        if isinstance(item, NestLoop | StepLoop):
            move_early(item.body)


class _Late:
    """The first nest of a block and what has to stay behind it: the names that it gives, the values that it stores."""

    def __init__(self) -> None:
        self.items: list[ScalarItem] = []
        self.names: set[str] = set()
        self.values: set[int] = set()
        self.is_closed = False

    def add(self, item: ScalarItem) -> None:
        self.items.append(item)
        if isinstance(item, NestLoop):
            self.names |= item.totals.keys()
            self.values |= {part.address.value for _, part in walk(item.body) if isinstance(part, Store)}
        elif isinstance(item, Load | Operation):
            self.names.add(item.name)
        elif isinstance(item, Store):
            self.values.add(item.address.value)
        else:
            self.is_closed = True  # loops of the program, products, guards: nothing moves past them

    def holds(self, item: Load | Operation | Store) -> bool:
        """Whether an item has to stay behind."""
        if self.is_closed:
            return True
        if isinstance(item, Load):
            return item.address.value in self.values or bool(item.address.names() & self.names)
        if isinstance(item, Operation):
            return not self.names.isdisjoint(item.operands)
        return (
            item.overwrites
            or item.reduces is not None
            or item.operand in self.names
            or bool(item.address.names() & self.names)
        )
