"""Which names and which memory have a gradient: what leads from an argument to the output."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from kernels.compiler import scalar_program as scalar
from kernels.compiler.expansion import Expansion
from kernels.compiler.scalar_program import walk
from kernels.foundation.tables import cached_property


class Adjoint:
    """``reached`` are the names that have a gradient, ``buffered`` the homes of memory that has one.

    A home is a value, or what several values share rows of: see :meth:`home`. ``seeds`` are the outputs that it starts
    from, each with the argument that is its cotangent, -1 for 1.
    """

    def __init__(self, expansion: Expansion, seeds: dict[int, int]) -> None:
        self.expansion, self.seeds = expansion, seeds
        self.reached, self.buffered = set[str](), set[int]()
        self.inner: set[str] = set()  # names that get gradients from within loops in the block that gives them
        self.counts: Counter[str] = Counter()
        """How many contributions the gradient of each name gets."""
        self._homes: dict[int, int] = {}
        for row in expansion.rows:
            home = self.home(row.phi)
            for value in (row.start, row.update):
                self._homes[value] = home
        if seeds:
            self.buffered.update(seeds)
            items = [*walk(expansion.root)]
            before = -1
            while before != (before := len(self.reached) + len(self.buffered)):
                self.counts.clear()
                for block, item in reversed(items):
                    self._item(block, item)

    def home(self, value: int) -> int:
        """Return the value whose memory, and gradient, another is a row of: itself, or a phi."""
        while value in self._homes:
            value = self._homes[value]
        return value

    def pulls_back(self, call: scalar.CallKernel) -> bool:
        """Whether the result of a kernel's call has a gradient."""
        return self.home(call.target.value) in self.buffered

    def _item(self, block: scalar.ScalarBlock, item: object) -> None:
        if isinstance(item, scalar.Compute) and item.name in self.reached:
            self._names(block, [operand for operand, _ in item.pullbacks()])
        elif (isinstance(item, scalar.Store) and item.wanted and self.home(item.address.value) in self.buffered) or (
            isinstance(item, scalar.Accumulate) and item.wanted and item.total in self.reached
        ):
            self._names(block, [item.operand])
        elif isinstance(item, scalar.Load) and item.name in self.reached:
            self.buffered.add(self.home(item.address.value))
        elif isinstance(item, scalar.CallKernel) and self.pulls_back(item):
            pairs = zip(item.operands, item.wanted, strict=True)
            self.buffered |= {self.home(address.value) for address, wanted in pairs if wanted}
        elif isinstance(item, scalar.StepLoop):
            for number in item.numbers:
                if number.name in self.reached:
                    self._names(block, [number.initial])
                    self._names(item.body, [number.update])
            self._names(item.body, [inner for after, inner in (*item.exits, *item.ends) if after in self.reached])

    def _names(self, block: scalar.ScalarBlock, names: list[str]) -> None:
        for name in names:
            known = self.expansion.defined.get(name)
            if known is not None:
                self.reached.add(name)
                self.counts[name] += 1
                if known[0] is not block:
                    self.inner.add(name)


# What pullbacks read of the forward pass: loaded again, computed again or saved, whichever moves less memory.

IN_REGISTERS, IN_MEMORY = 2, 4
"""What computing anew may cost, in additions, where saving is a store a step of a loop, or one a step of a nest."""
_NEVER = 1_000


class KeptValues:
    """``saved`` are the names whose values are stored; ``provided`` has, by block, what its reverse begins with.

    ``histories`` are homes whose memory has a row for each step of the loops around them. ``joint`` are the bodies of
    the last nest of the program, if one loop can run it forward and backward.
    """

    def __init__(self, expansion: Expansion, adjoint: Adjoint) -> None:
        self.expansion, self.adjoint = expansion, adjoint
        self.saved: dict[str, None] = {}
        self.reloaded: dict[str, scalar.Address] = {}  # names that stand in the memory of values, too
        self.provided: dict[int, list[str]] = {}
        self.histories: set[int] = set()
        self.last = self._last_nest()
        """Where the joint nest stands among the items of the program; -1 if there is none."""
        self._nest: Any = expansion.root.items[self.last] if self.last >= 0 else None
        bodies = [] if self._nest is None else _chain(self._nest) or [self._nest.body]
        self.joint = {id(body): body for body in bodies}
        self.chained = len(bodies) > 1
        self._known: set[str] = set()
        self._order = {name: k for k, name in enumerate(expansion.defined)}
        self._stored = self._stores()
        reached = [item for _, item in walk(expansion.root) if getattr(item, "name", "") in adjoint.reached]
        read = {name for item in reached if isinstance(item, scalar.Compute) for name in names_read(item)}
        for name in sorted(read & expansion.defined.keys(), key=self._order.__getitem__):
            self._need(name)
        for _, item in walk(expansion.root):
            if (isinstance(item, scalar.Load) and item.name in adjoint.reached) or (
                isinstance(item, scalar.Store) and adjoint.home(item.address.value) in adjoint.buffered
            ):
                for name in item.address.names():  # where the gradient stands
                    self._need(name)
            if isinstance(item, scalar.StepLoop) and item.loop.parent >= 0 and adjoint.reached:
                for name in item.behind:  # its steps are counted down
                    self._need(name)
            if isinstance(item, scalar.CallKernel) and adjoint.pulls_back(item):
                for operand in item.call.read_back():
                    self._lasts(item.addresses[operand])
        for names in self.provided.values():
            names.sort(key=self._order.__getitem__)

    def _stores(self) -> dict[str, scalar.Address]:
        """Return where names are stored in values that stand in memory, in the block that gives the name."""
        items = [*walk(self.expansion.root)]
        read = {item.address.value for _, item in items if isinstance(item, scalar.Load)}
        read |= {
            address.value for _, item in items if isinstance(item, scalar.CallKernel) for address in item.addresses
        }
        return {
            item.operand: item.address
            for block, item in items
            if isinstance(item, scalar.Store)
            and not (item.reduces is not None or item.overwrites)
            and item.address.value in read
            and item.operand in self.expansion.defined
            and self.expansion.defined[item.operand][0] is block
        }

    def _need(self, name: str) -> None:
        """Decide how a name is provided to the reverse of the block that gives it."""
        if name in self._known or name not in self.expansion.defined:
            return
        self._known.add(name)
        block, item = self.expansion.defined[name]
        if block is self.expansion.root or id(block) in self.joint:
            return
        if isinstance(item, scalar.Load) and self._lasts(item.address):
            for inner in item.address.names():
                self._need(inner)
        elif isinstance(item, scalar.Compute) and self._price(name) <= (
            IN_MEMORY if isinstance(block.loop, scalar.NestLoop) else IN_REGISTERS
        ):
            for operand in item.operands:
                self._need(operand)
        elif name in self._stored and self._lasts(self._stored[name]):
            self.reloaded[name] = self._stored[name]
        else:
            self.saved[name] = None
        self.provided.setdefault(id(block), []).append(name)

    def _last_nest(self) -> int:
        """Return where the last nest stands, if no pullback behind it reads what it, or what comes later, computes."""
        items, read = self.expansion.root.items, set[str]()
        for at in range(len(items) - 1, -1, -1):
            item = items[at]
            if isinstance(item, scalar.StepLoop | scalar.CallKernel):
                return -1
            if isinstance(item, scalar.NestLoop):
                later = {
                    name
                    for name, (_, definition) in self.expansion.defined.items()
                    if any(definition is part for part in items[at:])
                }
                return at if not read & later and self.adjoint.reached else -1
            if isinstance(item, scalar.Compute) and item.name in self.adjoint.reached:
                read |= names_read(item)
        return -1

    def joint_loop(self) -> scalar.NestLoop | None:
        """Return the joint nest, if each of its steps runs forward through inner nests, then backward through them."""
        inner = self._nest is not None and any(isinstance(part, scalar.NestLoop) for part in self._nest.body.items)
        return self._nest if inner and not self.chained else None

    def _lasts(self, address: scalar.Address) -> bool:
        """Whether an element of memory is still there in the reverse; that of a loop gets a row for each step."""
        value = self.expansion.program.values[address.value]
        if value.written:
            return False
        if value.loop >= 0 or self.adjoint.home(address.value) != address.value:
            self.histories.add(self.adjoint.home(address.value))
        return True

    def _price(self, name: str) -> int:
        """Return what providing a name costs, in additions."""
        known = self.expansion.defined.get(name)
        if known is None or known[0] is self.expansion.root or name in self.saved or name in self.reloaded:
            return 0
        item: Any = known[1]
        if isinstance(item, scalar.Load):
            return 0 if not self.expansion.program.values[item.address.value].written else _NEVER
        if not isinstance(item, scalar.Compute):
            return _NEVER
        price = item.operation.forward.price
        for operand in set(item.operands):
            if price > IN_MEMORY:
                break
            price += self._price(operand)
        return price


def _chain(nest: scalar.NestLoop) -> list[scalar.ScalarBlock]:
    """Return the bodies of nests each of which is the last item of the one around it; none where others are within."""
    inner = [part for part in nest.body.items if isinstance(part, scalar.NestLoop)]
    if not inner:
        return [nest.body]
    bodies = _chain(inner[0]) if inner == nest.body.items[-1:] else []
    return [nest.body, *bodies] if bodies else []


def names_read(item: scalar.Compute) -> set[str]:
    """Return what the pullbacks of an operation read, but for the cotangent."""
    known = dict(zip(item.operation.inputs, item.operands, strict=True)) | {"y": item.name}
    return {known[read] for _, rule in item.pullbacks() for read in rule.reads if read != "g"}


# Which gradients surely have a contribution, so that pullbacks need not ask whether their cotangent is nothing.
#
# A gradient that nothing contributed to is -0.0, which is not 0.0: a pullback that multiplied it by inf would make
# nan. What is nothing comes from reads of parts, from pullbacks that cut, and from last steps of loops.

_LARGEST = 1 << 24  # elements of a value up to which it is looked at which of them are read


class CertainGradients:
    """``names`` and ``homes`` have gradients that are never nothing; homes are those of :class:`Adjoint`.

    With those of the ``last`` step of each outermost loop, these are of all other steps. With ``ends``, those of the
    steps with which recorded loops in others end, these are of all others of such a loop.
    """

    def __init__(
        self, adjoint: Adjoint, last: CertainGradients | None = None, ends: CertainGradients | None = None
    ) -> None:
        self.adjoint, self.last, self.ends = adjoint, last, ends
        self.program = adjoint.expansion.program
        self.names, self.homes = set(adjoint.reached), set(adjoint.buffered)
        self._needs: dict[str, list[tuple[str | int, ...]]] = defaultdict(list)
        """Names and homes whose certain gradients together make that of a name certain; any of these will do."""
        self._loads: dict[int, list[tuple[scalar.ScalarBlock, scalar.Load]]] = defaultdict(list)
        self._covered: dict[int, list[int]] = defaultdict(list)
        self._around: dict[int, set[int]] = {}
        for block, item in walk(adjoint.expansion.root):
            self._item(block, item)
        # what is not certain goes, until nothing changes
        before = -1
        while before != len(self.names) + len(self.homes):
            before = len(self.names) + len(self.homes)
            known = self.names | self.homes
            self.names = {name for name in self.names if any(map(known.issuperset, self._needs[name]))}
            self.homes = {home for home in self.homes if adjoint.seeds.get(home) == -1 or self._is_covered(home)}

    def _item(self, block: scalar.ScalarBlock, item: object) -> None:
        if isinstance(item, scalar.CallKernel) and item.call.covers:
            self._operands(block, item)
        if isinstance(item, scalar.Compute):
            for operand, rule in item.pullbacks():
                if not rule.cuts and self._is_reached(operand, block):
                    self._needs[operand].append((item.name,))
        elif isinstance(item, scalar.Store):
            if item.wanted and self._is_reached(item.operand, block):
                self._needs[item.operand].append((self.adjoint.home(item.address.value),))
        elif isinstance(item, scalar.Accumulate) and item.wanted and self._is_reached(item.operand, block):
            self._needs[item.operand].append((item.total,))
        elif isinstance(item, scalar.Load) and self._is_read(item.address, block):
            self._loads[item.address.value].append((block, item))
        elif isinstance(item, scalar.StepLoop):
            self._carried_numbers(item)

    def _operands(self, block: scalar.ScalarBlock, item: scalar.CallKernel) -> None:
        """Note that the gradients of operands have contributions throughout where that of the result has."""
        for address, wanted, size in zip(item.operands, item.wanted, item.sizes, strict=True):
            is_whole = (
                address == scalar.Address(address.value, 0) and self.program.values[address.value].spec.size == size
            )
            if wanted and is_whole and self._is_read(address, block):
                self._covered[address.value].append(self.adjoint.home(item.target.value))

    def _is_reached(self, name: str, block: scalar.ScalarBlock) -> bool:
        """Whether a block that reads a name runs if the one does that gives it: a recorded loop may have no step."""
        known = self.adjoint.expansion.defined.get(name)
        return known is not None and self._recorded(block) == self._recorded(known[0])

    def _is_read(self, address: scalar.Address, block: scalar.ScalarBlock) -> bool:
        """Whether a block that reads memory runs where that is made, or, behind loops, where these have ended."""
        loops = self.program.loops_around(address.value)
        around = {loop for loop in loops[: len(loops) - len(address.at)] if self.program.loops[loop].ends is not None}
        return self._recorded(block) == around

    def _recorded(self, block: scalar.ScalarBlock) -> set[int]:
        """Return the recorded loops around what is in a block, by number."""
        known = self._around.get(id(block))
        if known is None:
            steps = block.steps()
            known = self._around[id(block)] = {step.loop.number for step in steps if step.loop.ends is not None}
        return known

    def _carried_numbers(self, item: scalar.StepLoop) -> None:
        if item.loop.ends is not None:
            self._carried_to_the_end(item)
            return
        after = {inner: name for name, inner in item.exits}
        steady = self.last if item.loop.parent < 0 else None
        for number in item.numbers:
            if steady is not None and number.name in steady.names:
                self._needs[number.update].append(())
            self._needs[number.initial].append((number.name,))
            last = after.get(number.update)
            if last is not None:
                self._needs[number.update].append((number.name, last))

    def _carried_to_the_end(self, item: scalar.StepLoop) -> None:
        """Note that any step of a recorded loop may be the last, and that there may be none."""
        ends = {name: after for after, name in item.ends}
        last = self.ends.names if self.ends is not None and item.loop.parent >= 0 else None
        for number in item.numbers:
            both = number.name, ends.get(number.name, "")
            self._needs[number.initial].append(both)
            if last is None or number.name in last:
                self._needs[number.update].append(both if last is None else ())

    @cached_property
    def before_ends(self) -> CertainGradients:
        """What is certain besides in all but the last steps of recorded loops in others."""
        return CertainGradients(self.adjoint, self.last, self)

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
                extents = {loop.index: loop.extent for loop in block.loops() if isinstance(loop, scalar.NestLoop)}
                places = np.array([load.address.constant // item])
                for name, step in load.address.terms:
                    places = np.add.outer(places, np.arange(extents[name]) * (step // item)).ravel()
                mask[places] = True
        return bool(mask.all())

    def _is_seen(self, loop: int, load: scalar.Load) -> bool:
        """Whether a load reads what a step of a loop gave in that step, or what the last one gave."""
        address = load.address
        if any(name[0] != "i" for name, _ in address.terms):
            return False
        if not address.at:
            return True
        count = self.program.loops[loop].count
        return len(address.at) == 1 and address.at[0] == (count - 1, ())
