"""Steps that are lowered as one before them was: the same calls, on their own nodes."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from kernels.lowered_elements import Elements
from kernels.noting_words import HEAD
from kernels.op import Contraction, Copy, Elementwise, Join, Reduction
from kernels.program import Node
from kernels.structs import dataclass
from kernels.tasks import PythonCall

_KINDS = {Elementwise, Reduction, Contraction, Copy, Join}
"""Kinds of operations whose calls depend on specs and parameters alone."""
_RESULT = -1
_FIXED = 1 << 32


@dataclass(slots=True)
class Pattern:
    """The calls of a step, and what each place in them is.

    An operand by its number, the result as -1, a temporary as -2, -3 ..., a number that all share as its node above
    ``_FIXED``.
    """

    count: int
    """Operands."""
    calls: list[int]
    adds: list[int]
    places: list[int]
    offsets: list[tuple[int, int]]
    temporaries: list[Node]
    extra: int | None
    """What the pullback needs beside."""
    order: int | None = None
    """Of one call of all operands, whether the result comes first, 0, or last, 1."""
    numbers: list[tuple[int, Any, dict[int, int]]] = field(default_factory=list)
    """Of operands that are Python numbers: which, the dtype, and the nodes of known ones by their id."""


class Repeating:
    """Remembers how steps were lowered, by their kind, and repeats it."""

    def __init__(self, lowering: Elements, extra: dict[int, int]) -> None:
        self.lowering, self.extra = lowering, extra
        self.steps, self.nodes, self.tasks = lowering.recipe.steps, lowering.recipe.nodes, lowering.tasks
        self.words, self.numbers = self.steps.words.tolist(), self.steps.numbers
        self._patterns: dict[int, Pattern] = {}
        self._known: dict[Any, dict[int, int]] = {}
        self._before = (0, 0, 0)

    def repeat(self, at: int, start: int) -> bool:
        """Lower the step that begins at ``start`` as one of its kind; False if none can be repeated."""
        words = self.words
        pattern = self._patterns.get(words[start])
        if pattern is None:
            self._before = (len(self.tasks), len(self.tasks.places), len(self.nodes))
            return False
        operands = words[start + HEAD : start + HEAD + pattern.count]
        for k, dtype, known in pattern.numbers:
            given = self.numbers[~operands[k]]
            node = known.get(id(given))  # the list of numbers keeps it
            operands[k] = known.setdefault(id(given), self.lowering.number(given, dtype)) if node is None else node
        tasks, result = self.tasks, words[start + 1]
        if pattern.order is not None:
            operands.insert(pattern.order and pattern.count, result)
            tasks.places.extend(operands)
        else:
            self._place(pattern, at, operands, result)
        tasks.what.extend(pattern.calls)
        tasks.adds.extend(pattern.adds)
        return True

    def _place(self, pattern: Pattern, at: int, operands: list[int], result: int) -> None:
        """Add the places of calls that are not one call of all operands, with the nodes that they make."""
        first, begin = len(self.nodes), len(self.tasks.places)

        def node(k: int) -> int:
            if k >= _FIXED:
                return k - _FIXED
            return operands[k] if k >= 0 else result if k == _RESULT else first - 2 - k

        self.nodes.extend(pattern.temporaries)
        self.tasks.places.extend([node(k) for k in pattern.places])
        for place, offset in pattern.offsets:
            self.tasks.offsets[begin + place] = offset
        if pattern.extra is not None:
            self.extra[at] = node(pattern.extra)

    def remember(self, at: int, start: int) -> None:
        """Remember how the step was lowered that could not be repeated, if others can be lowered as it was."""
        kind, result = self.words[start : start + HEAD]
        op, _, _, count = self.steps.kinds[kind]
        if type(op) not in _KINDS:
            return
        tasks, (before, place, node) = self.tasks, self._before
        pattern = Pattern(
            count,
            list(tasks.what[before:]),
            list(tasks.adds[before:]),
            list(tasks.places[place:]),
            [(k - place, offset) for k, offset in tasks.offsets.items() if k >= place] if tasks.offsets else [],
            [one for one in self.nodes[node:] if one.constant is None],
            self.extra.get(at),
        )
        if any(isinstance(tasks.calls[what], PythonCall) for what in pattern.calls):
            return
        operands = self.words[start + HEAD : start + HEAD + count]
        if self._in_order(pattern, operands, result) or self._by_nodes(pattern, operands, result, node):
            self._patterns[kind] = pattern

    def _in_order(self, pattern: Pattern, operands: list[int], result: int) -> bool:
        """Whether there is one call, of all operands in order, its result first or last."""
        count, places = len(operands), pattern.places
        if len(pattern.calls) != 1 or len(places) != 1 + count or pattern.extra is not None or pattern.temporaries:
            return False
        for order, own in enumerate((places[1:], places[:-1])):
            pairs = list(zip(own, operands, strict=True))
            alike = all(self._is_number(place) if o < 0 else place == o for place, o in pairs)
            if alike and places[-order] == result and not pattern.offsets:
                pattern.order = order
                dtypes = [(k, self.nodes[own[k]].spec.dtype) for k, o in enumerate(operands) if o < 0]
                pattern.numbers = [(k, dtype, self._known.setdefault(dtype, {})) for k, dtype in dtypes]
                return True
        return False

    def _by_nodes(self, pattern: Pattern, operands: list[int], result: int, first: int) -> bool:
        """Name the places by the nodes that stand there; whether these tell them apart."""
        named = {result: _RESULT}
        for k, o in enumerate(operands):
            if o < 0 or o in named:
                return False
            named[o] = k
        temporaries = [node for node in range(first, len(self.nodes)) if self.nodes[node].constant is None]
        if temporaries and temporaries != list(range(first, first + len(temporaries))):
            return False  # numbers between them are not made again
        named |= {node: -2 - k for k, node in enumerate(temporaries)}
        asked = [*pattern.places, *([] if pattern.extra is None else [pattern.extra])]
        if not all(node in named or self._is_number(node) for node in asked):
            return False
        names = [named.get(node, _FIXED + node) for node in asked]
        pattern.places = names[: len(pattern.places)]
        pattern.extra = None if pattern.extra is None else names[-1]
        return True

    def _is_number(self, node: int) -> bool:
        constant = self.nodes[node].constant
        return constant is not None and not constant.ndim
