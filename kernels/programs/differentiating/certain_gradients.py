"""Which gradients surely have a contribution, so that pullbacks need not ask whether their cotangent is nothing.

A gradient that nothing contributed to is -0.0, which is not 0.0: a pullback that multiplied it by inf would make nan.
What is nothing comes from reads of parts, from pullbacks that cut, and from last steps of loops.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from kernels.foundation.locks import cached_property
from kernels.programs.differentiating.adjoint import Adjoint
from kernels.programs.expanding.scalar_program import (
    Address,
    Call,
    Load,
    NestLoop,
    Operation,
    ScalarBlock,
    StepLoop,
    Store,
    Term,
    walk,
)

_LARGEST = 1 << 24
"""Elements of a value up to which it is looked at which of them are read."""
_Test = Callable[[], bool]


class CertainGradients:
    """``names`` and ``homes`` have gradients that are never nothing; homes are those of :class:`Adjoint`.

    With those of the ``last`` step of each outermost loop, these are of all other steps. With ``ends``, those of the
    steps with which recorded loops in others end, these are of all others of such a loop.
    """

    def __init__(
        self, adjoint: Adjoint, seed: int, last: CertainGradients | None = None, ends: CertainGradients | None = None
    ) -> None:
        self.adjoint, self.last, self.ends = adjoint, last, ends
        self.program = adjoint.expansion.program
        self.names, self.homes = set(adjoint.reached), set(adjoint.buffered)
        self._seed = seed
        self._tests: dict[str, list[_Test]] = defaultdict(list)
        self._loads: dict[int, list[tuple[ScalarBlock, Load]]] = defaultdict(list)
        self._covered: dict[int, list[int]] = defaultdict(list)
        self._around: dict[int, set[int]] = {}
        for block, item in walk(adjoint.expansion.root):
            self._item(block, item)
        self._settle()

    def _settle(self) -> None:
        """Take away what is not certain, until nothing changes."""
        before = -1
        while before != len(self.names) + len(self.homes):
            before = len(self.names) + len(self.homes)
            self.names = {name for name in self.names if any(test() for test in self._tests[name])}
            self.homes = {home for home in self.homes if home == self._seed or self._is_covered(home)}

    def _item(self, block: ScalarBlock, item: object) -> None:
        if isinstance(item, Call) and item.call.covers:
            self._operands(block, item)
        if isinstance(item, Operation):
            for operand, wanted, rule in zip(item.operands, item.wanted, item.operation.pullbacks, strict=True):
                if wanted and rule is not None and not rule.cuts and self._is_reached(operand, block):
                    self._tests[operand].append(functools.partial(self._has, item.name))
        elif isinstance(item, Store):
            home = self.adjoint.home(item.address.value)
            if item.wanted and self._is_reached(item.operand, block):
                self._tests[item.operand].append(lambda: home in self.homes)
        elif isinstance(item, Term) and item.wanted and self._is_reached(item.operand, block):
            self._tests[item.operand].append(functools.partial(self._has, item.total))
        elif isinstance(item, Load) and self._is_read(item.address, block):
            self._loads[item.address.value].append((block, item))
        elif isinstance(item, StepLoop):
            self._carried_numbers(item)

    def _operands(self, block: ScalarBlock, item: Call) -> None:
        """Note that the gradients of operands have contributions throughout where that of the result has."""
        for address, wanted, size in zip(item.operands, item.wanted, item.sizes, strict=True):
            is_whole = address == Address(address.value, 0) and self.program.values[address.value].spec.size == size
            if wanted and is_whole and self._is_read(address, block):
                self._covered[address.value].append(self.adjoint.home(item.target.value))

    def _is_reached(self, name: str, block: ScalarBlock) -> bool:
        """Whether a block that reads a name runs if the one does that gives it: a recorded loop may have no step."""
        known = self.adjoint.expansion.defined.get(name)
        return known is not None and self._recorded(block) == self._recorded(known[0])

    def _is_read(self, address: Address, block: ScalarBlock) -> bool:
        """Whether a block that reads memory runs where that is made, or, behind loops, where these have ended."""
        loops = self.program.loops_around(address.value)
        around = {loop for loop in loops[: len(loops) - len(address.at)] if self.program.loops[loop].ends is not None}
        return self._recorded(block) == around

    def _recorded(self, block: ScalarBlock) -> set[int]:
        """Return the recorded loops around what is in a block, by number."""
        known = self._around.get(id(block))
        if known is None:
            steps = block.steps()
            known = self._around[id(block)] = {step.loop.number for step in steps if step.loop.ends is not None}
        return known

    def _has(self, name: str) -> bool:
        return name in self.names

    def _carried_numbers(self, item: StepLoop) -> None:
        if item.loop.ends is not None:
            self._carried_to_the_end(item)
            return
        after = {inner: name for name, inner in item.exits}
        steady = self.last if item.loop.parent < 0 else None
        for number in item.numbers:
            if steady is not None:
                self._tests[number.update].append(lambda p=number.name, names=steady.names: p in names)
            self._tests[number.initial].append(functools.partial(self._has, number.name))
            last = after.get(number.update)
            if last is not None:
                self._tests[number.update].append(lambda p=number.name, x=last: self._has(p) and self._has(x))

    def _carried_to_the_end(self, item: StepLoop) -> None:
        """Note that any step of a recorded loop may be the last, and that there may be none."""
        ends = {name: after for after, name in item.ends}
        last = self.ends.names if self.ends is not None and item.loop.parent >= 0 else None
        for number in item.numbers:
            both = functools.partial(self._have, number.name, ends.get(number.name, ""))
            self._tests[number.initial].append(both)
            self._tests[number.update].append(
                both if last is None else functools.partial(last.__contains__, number.name)
            )

    @cached_property
    def before_ends(self) -> CertainGradients:
        """What is certain besides in all but the last steps of recorded loops in others."""
        return CertainGradients(self.adjoint, self._seed, self.last, self)

    def _have(self, one: str, other: str) -> bool:
        return one in self.names and other in self.names

    def _is_covered(self, home: int) -> bool:
        value = self.program.values[home]
        if value.written or value.spec.size > _LARGEST or value.argument >= 0:
            return False
        if any(result in self.homes for result in self._covered[home]):
            return True
        rows = [row for row in self.adjoint.expansion.rows if row.phi == home]
        if not rows:
            return self._covers(home, at_last=False)
        if self.program.loops[rows[0].loop].ends is not None:
            return False
        if self.last is not None and self.program.loops[rows[0].loop].parent < 0:
            return self._covers(home, at_last=False, names=self.last.names)
        return self._covers(home, at_last=False) and self._covers(rows[0].update, at_last=True)

    def _covers(self, value: int, *, at_last: bool, names: set[str] | None = None) -> bool:
        """Whether certain loads read each element; those of a loop's values in the same step, or behind the loop."""
        entry = self.program.values[value]
        item = entry.spec.dtype.itemsize
        size = sum((n - 1) * stride for n, stride in zip(entry.spec.shape, entry.spec.strides, strict=True)) // item + 1
        if size != entry.spec.size:
            return False
        mask = np.zeros(size, np.bool_)
        for block, load in self._loads[value]:
            if (
                load.name in (self.names if names is None else names)
                and bool(load.address.at) == at_last
                and self._is_seen(entry.loop, load)
            ):
                _enter(mask, block, load.address, item)
        return bool(mask.all())

    def _is_seen(self, loop: int, load: Load) -> bool:
        """Whether a load reads what a step of a loop gave in that step, or what the last one gave."""
        address = load.address
        if any(name[0] != "i" for name, _ in address.terms):
            return False
        if not address.at:
            return True
        count = self.program.loops[loop].count
        return len(address.at) == 1 and address.at[0] == (count - 1, ())


def _enter(mask: np.ndarray, block: ScalarBlock, address: Address, item: int) -> None:  # type: ignore[type-arg]
    """Mark the elements that a load reads in all steps of the nests around it."""
    extents = {loop.index: loop.extent for loop in block.loops() if isinstance(loop, NestLoop)}
    places = np.array([address.constant // item])
    for name, step in address.terms:
        places = np.add.outer(places, np.arange(extents[name]) * (step // item)).ravel()
    mask[places] = True
