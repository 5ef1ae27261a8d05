"""Steps that are lowered as one before them was: the same calls, on their own nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernels.lowered_elements import Elements
from kernels.op import Contraction, Copy, Elementwise, Join, Reduction
from kernels.program import HEAD, Node
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
    """Remembers how steps were lowered, and repeats it."""

    def __init__(self, lowering: Elements, extra: dict[int, int]) -> None:
        self.lowering, self.extra = lowering, extra
        self.flat, self.nodes, self.tasks = lowering.recipe.steps.flat, lowering.recipe.nodes, lowering.tasks
        self._patterns: dict[Any, Pattern] = {}
        self._numbers: dict[Any, dict[int, int]] = {}
        self._key: Any = None
        self._before = (0, 0, 0)

    def repeat(self, at: int, start: int) -> bool:
        """Lower the step that begins at ``start`` as one like it; False if there was none, or it differs each time."""
        flat, nodes, tasks = self.flat, self.nodes, self.tasks
        op, form, params, result, count = flat[start : start + HEAD]
        kind = type(op)
        if kind not in _KINDS or (kind is Elementwise and form is None and params):  # 0.0 and -0.0 are equal, not alike
            self._key = None
            return False
        operands = flat[start + HEAD : start + HEAD + count]
        specs = [nodes[o].spec if type(o) is int else type(o) for o in operands]
        key = (op, form, () if kind is Elementwise else params, nodes[result].spec, *specs)
        pattern = self._patterns.get(key)
        if pattern is None:
            self._key, self._before = key, (len(tasks), len(tasks.places), len(nodes))
            return False
        for k, dtype, known in pattern.numbers:
            given = operands[k]
            node = known.get(id(given))  # the list of steps keeps it
            operands[k] = known.setdefault(id(given), self.lowering.number(given, dtype)) if node is None else node
        if pattern.order is not None:
            operands.insert(pattern.order and count, result)
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
        key, self._key = self._key, None
        if key is None:
            return
        flat, tasks, (before, place, node) = self.flat, self.tasks, self._before
        operands = flat[start + HEAD : start + HEAD + flat[start + HEAD - 1]]
        pattern = Pattern(
            list(tasks.what[before:]),
            list(tasks.adds[before:]),
            list(tasks.places[place:]),
            [(k - place, offset) for k, offset in tasks.offsets.items() if k >= place] if tasks.offsets else [],
            [one for one in self.nodes[node:] if one.constant is None],
            self.extra.get(at),
        )
        if any(isinstance(tasks.calls[what], PythonCall) for what in pattern.calls):
            return
        result = flat[start + 3]
        if self._in_order(pattern, operands, result) or self._by_nodes(pattern, operands, result, node):
            self._patterns[key] = pattern

    def _in_order(self, pattern: Pattern, operands: list[Any], result: int) -> bool:
        """Whether there is one call, of all operands in order, its result first or last."""
        count, places = len(operands), pattern.places
        if len(pattern.calls) != 1 or len(places) != 1 + count or pattern.extra is not None or pattern.temporaries:
            return False
        for order, own in enumerate((places[1:], places[:-1])):
            pairs = list(zip(own, operands, strict=True))
            alike = all(self._is_number(place) if type(o) is not int else place == o for place, o in pairs)
            if alike and places[-order] == result and not pattern.offsets:
                pattern.order = order
                dtypes = [(k, self.nodes[own[k]].spec.dtype) for k, o in enumerate(operands) if type(o) is not int]
                pattern.numbers = [(k, dtype, self._numbers.setdefault(dtype, {})) for k, dtype in dtypes]
                return True
        return False

    def _by_nodes(self, pattern: Pattern, operands: list[Any], result: int, first: int) -> bool:
        """Name the places by the nodes that stand there; whether these tell them apart."""
        named = {result: _RESULT}
        for k, o in enumerate(operands):
            if type(o) is not int or o in named:
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
