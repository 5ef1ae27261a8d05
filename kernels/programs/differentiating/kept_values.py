"""What pullbacks read of the forward pass: loaded again, computed again or saved, whichever moves less memory."""

from __future__ import annotations

from typing import Any

from kernels.programs.differentiating.adjoint import Adjoint
from kernels.programs.expanding.expansion import Expansion
from kernels.programs.expanding.scalar_program import (
    Address,
    Call,
    Load,
    NestLoop,
    Operation,
    ScalarBlock,
    StepLoop,
    Store,
    walk,
)

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
        self.reloaded: dict[str, Address] = {}
        """Names that stand in the memory of values, too."""
        self.provided: dict[int, list[str]] = {}
        self.histories: set[int] = set()
        self.names_read: set[str] = set()
        self.last = self._last_nest()
        """Where the joint nest stands among the items of the program; -1 if there is none."""
        bodies = [] if self.last < 0 else self._bodies(expansion.root.items[self.last])
        self.joint = {id(body): body for body in bodies}
        self.chained = len(bodies) > 1
        self._known: set[str] = set()
        self._order = self._positions()
        self._stored = self._stores()
        for name in sorted(self._read_by_pullbacks(), key=lambda name: self._order[name]):
            self._need(name)
        for _, item in walk(expansion.root):
            reached = isinstance(item, Load) and item.name in adjoint.reached
            if reached or (isinstance(item, Store) and adjoint.home(item.address.value) in adjoint.buffered):
                for name in item.address.names():  # where the gradient stands
                    self._need(name)
            if isinstance(item, StepLoop) and item.loop.parent >= 0 and adjoint.reached:  # its steps are counted down
                for name in item.behind:
                    self._need(name)
            if isinstance(item, Call) and adjoint.home(item.target.value) in adjoint.buffered:
                for operand in item.call.read_back():
                    self._lasts(item.addresses[operand])
        for names in self.provided.values():
            names.sort(key=lambda name: self._order[name])

    def _positions(self) -> dict[str, int]:
        order: dict[str, int] = {}
        for _, item in walk(self.expansion.root):
            if isinstance(item, Operation | Load):
                order[item.name] = len(order)
            elif isinstance(item, NestLoop):
                order.update({total: len(order) + k for k, total in enumerate(item.totals)})
            elif isinstance(item, StepLoop):
                for number in item.numbers:
                    order[number.name] = len(order)
                for after in (*[after for after, _ in (*item.exits, *item.ends)], *item.behind):
                    order[after] = len(order)
        return order

    def _stores(self) -> dict[str, Address]:
        """Return where names are stored in values that stand in memory, in the block that gives the name."""
        items = [*walk(self.expansion.root)]
        read = {item.address.value for _, item in items if isinstance(item, Load)}
        read |= {address.value for _, item in items if isinstance(item, Call) for address in item.addresses}
        return {
            item.operand: item.address
            for block, item in items
            if isinstance(item, Store)
            and not (item.reduces is not None or item.overwrites)
            and item.address.value in read
            and item.operand in self.expansion.defined
            and self.expansion.defined[item.operand][0] is block
        }

    def _read_by_pullbacks(self) -> set[str]:
        names: set[str] = set()
        for _, item in walk(self.expansion.root):
            if isinstance(item, Operation) and item.name in self.adjoint.reached:
                names |= names_read(item)
        self.names_read = {name for name in names if name in self.expansion.defined}
        return self.names_read

    def _need(self, name: str) -> None:
        """Decide how a name is provided to the reverse of the block that gives it."""
        if name in self._known or name not in self.expansion.defined:
            return
        self._known.add(name)
        block, item = self.expansion.defined[name]
        if block is self.expansion.root or id(block) in self.joint:
            return
        if isinstance(item, Load) and self._lasts(item.address):
            for inner in item.address.names():
                self._need(inner)
        elif isinstance(item, Operation) and self._price(name) <= self._limit(block):
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
            if isinstance(item, StepLoop | Call):
                return -1
            if isinstance(item, NestLoop):
                later = {
                    name
                    for name, (_, definition) in self.expansion.defined.items()
                    if any(definition is part for part in items[at:])
                }
                return at if not read & later and self.adjoint.reached else -1
            if isinstance(item, Operation) and item.name in self.adjoint.reached:
                read |= names_read(item)
        return -1

    def _bodies(self, item: Any) -> list[ScalarBlock]:
        """Return the body of a nest, and if its last item is its only inner nest, that one's, and so on."""
        body = item.body
        nests = [part for part in body.items if isinstance(part, NestLoop)]
        if not nests:
            return [body]
        inner = self._bodies(nests[0]) if nests == body.items[-1:] else []
        return [body, *inner] if inner and self._is_chain(nests[0]) else [body]

    def _is_chain(self, item: Any) -> bool:
        """Whether a nest has no inner nest but as its last item, and so on."""
        nests = [part for part in item.body.items if isinstance(part, NestLoop)]
        return not nests or (nests == item.body.items[-1:] and self._is_chain(nests[0]))

    def joint_loop(self) -> NestLoop | None:
        """Return the joint nest, if each of its steps runs forward through inner nests, then backward through them."""
        item = self.expansion.root.items[self.last] if self.last >= 0 else None
        inner = isinstance(item, NestLoop) and any(isinstance(part, NestLoop) for part in item.body.items)
        return item if inner and not self.chained and isinstance(item, NestLoop) else None

    @staticmethod
    def _limit(block: ScalarBlock) -> int:
        return IN_MEMORY if isinstance(block.loop, NestLoop) else IN_REGISTERS

    def _lasts(self, address: Address) -> bool:
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
        if isinstance(item, Load):
            return 0 if not self.expansion.program.values[item.address.value].written else _NEVER
        if not isinstance(item, Operation):
            return _NEVER
        price = item.operation.forward.price
        for operand in set(item.operands):
            if price > IN_MEMORY:
                break
            price += self._price(operand)
        return price


def names_read(item: Operation) -> set[str]:
    """Return what the pullbacks of an operation read, but for the cotangent."""
    names: set[str] = set()
    operation = item.operation
    known = dict(zip(operation.inputs, item.operands, strict=True)) | {"y": item.name}
    for wanted, rule in zip(item.wanted, operation.pullbacks, strict=True):
        if wanted and rule is not None:
            names |= {known[read] for read in rule.reads if read != "g"}
    return names
