"""Which names and which memory have a gradient: what leads from an argument to the output."""

from __future__ import annotations

from collections import Counter

from kernels.programs.expanding.expansion import Expansion
from kernels.programs.expanding.scalar_program import (
    Call,
    Load,
    Operation,
    ScalarBlock,
    StepLoop,
    Store,
    Term,
    walk,
)


class Adjoint:
    """``reached`` are the names that have a gradient, ``buffered`` the homes of memory that has one.

    A home is a value, or what several values share rows of: see :meth:`home`.
    """

    def __init__(self, expansion: Expansion, output: int | None) -> None:
        self.expansion = expansion
        self.reached: set[str] = set()
        self.buffered: set[int] = set()
        self.inner: set[str] = set()
        """Names that get gradients from within loops in the block that gives them."""
        self._homes: dict[int, int] = {}
        for row in expansion.rows:
            home = self.home(row.phi)
            for value in (row.start, row.update):
                self._homes[value] = home
        if output is not None:
            self.buffered.add(output)
            self._reach(expansion.root)

    def home(self, value: int) -> int:
        """Return the value whose memory, and gradient, another is a row of: itself, or a phi."""
        while value in self._homes:
            value = self._homes[value]
        return value

    def _reach(self, root: ScalarBlock) -> None:
        items = [*walk(root)]
        before = -1
        while before != len(self.reached) + len(self.buffered):
            before = len(self.reached) + len(self.buffered)
            for block, item in reversed(items):
                self._item(block, item)

    def _item(self, block: ScalarBlock, item: object) -> None:
        if isinstance(item, Operation) and item.name in self.reached:
            pairs = zip(item.operands, item.wanted, item.operation.pullbacks, strict=True)
            self._names(block, [operand for operand, wanted, rule in pairs if wanted and rule is not None])
        elif (isinstance(item, Store) and item.wanted and self.home(item.address.value) in self.buffered) or (
            isinstance(item, Term) and item.wanted and item.total in self.reached
        ):
            self._names(block, [item.operand])
        elif isinstance(item, Load) and item.name in self.reached:
            self.buffered.add(self.home(item.address.value))
        elif isinstance(item, Call) and self.home(item.target.value) in self.buffered:
            pairs = zip(item.operands, item.wanted, strict=True)
            self.buffered |= {self.home(address.value) for address, wanted in pairs if wanted}
        elif isinstance(item, StepLoop):
            for number in item.numbers:
                if number.name in self.reached:
                    self._names(block, [number.initial])
                    self._names(item.body, [number.update])
            self._names(item.body, [inner for after, inner in (*item.exits, *item.ends) if after in self.reached])

    def _names(self, block: ScalarBlock, names: list[str]) -> None:
        for name in names:
            known = self.expansion.defined.get(name)
            if known is not None:
                self.reached.add(name)
                if known[0] is not block:
                    self.inner.add(name)


def contribution_counts(adjoint: Adjoint) -> Counter[str]:
    """Return how many contributions the gradient of each name gets."""
    counts: Counter[str] = Counter()
    for _, item in walk(adjoint.expansion.root):
        if isinstance(item, Operation) and item.name in adjoint.reached:
            triples = zip(item.operands, item.wanted, item.operation.pullbacks, strict=True)
            counts.update(operand for operand, wanted, rule in triples if wanted and rule is not None)
        elif isinstance(item, Term) or (
            isinstance(item, Store) and adjoint.home(item.address.value) in adjoint.buffered
        ):
            counts[item.operand] += 1
        elif isinstance(item, StepLoop):
            counts.update([n.update for n in item.numbers] + [n.initial for n in item.numbers])
            counts.update(inner for _, inner in item.exits)
    return counts
