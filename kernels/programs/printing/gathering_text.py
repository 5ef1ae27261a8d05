"""Nests that read one value at several places along an axis, backward: each element of its gradient is gathered."""

from __future__ import annotations

from kernels.programs.differentiating.gathered_gradients import Gather, Shift, gather_of
from kernels.programs.expanding.scalar_program import Load, NestLoop, Operation
from kernels.programs.printing.forward_text import begun
from kernels.programs.printing.reverse_text import NOTHING, ReverseText


class GatheringReverse(ReverseText):
    """The reverse pass in which nests that read one value at several places are gathers."""

    def on_NestLoop(self, item: NestLoop) -> None:  # noqa: N802
        """Print the reverse of a nest, as a gather if it is a stencil."""
        gather = gather_of(item, self.adjoint)
        if gather is None:
            super().on_NestLoop(item)
            return
        for loop in gather.loops:
            self.start_totals(loop)
        if id(item.body) in self.kept.joint:
            self.text.put(*begun(item, self.storage))
        Gathering(self, gather).run()


class Gathering:
    """Prints a nest so that each element of a gradient gets all that shifted reads of it contribute at once.

    Adding at several places in each step would keep the loop from being vectorised. Here the steps are those of the
    gradient's elements; each contribution is computed as in the step that it comes from.
    """

    def __init__(self, reverse: ReverseText, gather: Gather) -> None:
        self.reverse, self.gather, self.text = reverse, gather, reverse.text
        self.places = [f"{loop.index}j" for loop in gather.loops]
        self.joint = id(gather.body) in reverse.kept.joint
        self.names = {name for name, (block, _) in reverse.defined.items() if block is gather.body}

    def run(self) -> None:
        """Print the steps in which all contribute, then those at the ends."""
        depth = self.text.depth
        extents, most = [loop.extent for loop in self.gather.loops], self.gather.most
        inner, place, last = extents[-1], self.places[-1], most[-1]
        ends = f"{place} = {place}e if {place}e < {last} else {inner - last} + {place}e"
        count = str(2 * last)
        if len(extents) > 1:
            row, first = self.places[0], most[0]
            self.text.put(f"for {row} in range({extents[0] + first}):")
            self.text.depth += 1
            self.text.put(f"whole = {row} >= {first} and {row} < {extents[0]}")
            ends = f"{place} = {place}e if {place}e < {last} or not whole else {inner - last} + {place}e"
            count = f"{2 * last} if whole else {inner + last}"
            self.text.put("if whole:")
            self.text.depth += 1
        self._inside(f"for {place} in range({last}, {inner}):")
        if len(extents) > 1:
            self.text.depth -= 1
            self.text.put(f"count = {count}")
            count = "count"
        if last or len(extents) > 1:
            self._at_ends(f"for {place}e in range({count}):", ends)
        self.text.depth = depth

    def _inside(self, head: str) -> None:
        """Print the steps in which all contribute."""
        self.text.put(head)
        self.text.depth += 1
        for shift in self.gather.shifts:
            self._instance(shift)
        for (element, sign), group in zip(self._elements(), self.gather.groups, strict=True):
            terms = [self._variable(load) for load, _ in group.loads]
            ending = " + 0.0" if self.reverse.is_delivered(group.value) and sign == "=" else ""
            self.text.put(f"{element} {sign} {' + '.join(terms)}{ending}")
        self.text.depth -= 1

    def _at_ends(self, head: str, place: str) -> None:
        """Print the steps in which only some contribute."""
        self.text.put(head)
        self.text.depth += 1
        self.text.put(place)
        elements = self._elements()
        self.text.put(*[f"{element} = {NOTHING}" for element, sign in elements if sign == "="])
        for shift in self.gather.shifts:
            bounds = zip(self.places, shift, self.gather.loops, strict=True)
            tests = [f"{name} >= {by} and {name} < {loop.extent + by}" for name, by, loop in bounds]
            self.text.put(f"if {' and '.join(tests)}:")
            self.text.depth += 1
            self._instance(shift)
            for (element, _), group in zip(elements, self.gather.groups, strict=True):
                self.text.put(*[f"{element} += {self._variable(load)}" for load, by in group.loads if by == shift])
            self.text.depth -= 1
        for (element, sign), group in zip(elements, self.gather.groups, strict=True):
            if self.reverse.is_delivered(group.value) and sign == "=":
                self.text.put(f"{element} += 0.0")
        self.text.depth -= 1

    @staticmethod
    def _variable(load: Load) -> str:
        return f"h_{load.name}"

    def _instance(self, shift: Shift) -> None:
        """Print what the step that is so far back contributes; one of them does all else that the nest does."""
        reverse, body = self.reverse, self.gather.body
        is_main = shift == self.gather.shifts[len(self.gather.shifts) // 2]
        for loop, name, by in zip(self.gather.loops, self.places, shift, strict=True):
            self.text.put(f"{loop.index} = {name}{f' - {by}' if by else ''}")
        if self.joint:
            for item in body.items:
                if is_main or isinstance(item, Load | Operation):
                    reverse.forward.item(item)
        else:
            reverse.provide(body)
        loads = [pair for group in self.gather.groups for pair in group.loads]
        taken = {load.name: self._variable(load) for load, by in loads if by == shift}
        reverse.started -= self.names
        reverse.only = None if is_main else self._leading_to({*taken})
        reverse.taken = {load.name: "_" for load, _ in loads} | taken if is_main else taken
        reverse.at.append(body)
        reverse.items(body)
        reverse.at.pop()
        reverse.only, reverse.taken = None, {}

    def _leading_to(self, names: set[str]) -> set[str]:
        """Return the names of the body whose gradients lead to those of others."""
        for item in self.gather.body.items:
            if isinstance(item, Operation) and any(
                wanted and operand in names for operand, wanted in zip(item.operands, item.wanted, strict=True)
            ):
                names.add(item.name)
        return names

    def _elements(self) -> list[tuple[str, str]]:
        """Return the elements of gradients that a step is of, and whether they are stored or added to."""
        indices = {loop.index: name for loop, name in zip(self.gather.loops, self.places, strict=True)}
        elements = []
        for group in self.gather.groups:
            address = group.loads[0][0].address
            terms = tuple((indices.get(name, name), step) for name, step in address.terms)
            first = self.reverse.first.blocks.get(address.value) is self.gather.body
            moved = address._replace(constant=group.constant, terms=terms)
            elements.append((self.reverse.storage.gradient(moved), "=" if first else "+="))
        return elements
