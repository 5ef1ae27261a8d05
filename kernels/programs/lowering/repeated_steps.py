"""Patterns of the tasks that steps of a kind are lowered to, learnt from the first of them."""

from __future__ import annotations

from typing import Any

from kernels.codegen.tasks import PythonCall
from kernels.native.tape_structs import VIEW
from kernels.programs.lowering.intermediates import Intermediates
from kernels.programs.lowering.task_blocks import NODE, OPERAND, RESULT, TEMPORARY, Blocks, Pattern, Source
from kernels.programs.recording.notifying_structs import HEAD


class Repeating:
    """Remembers how the first step of each kind was lowered, and lowers others in the same way."""

    def __init__(self, lowering: Intermediates, extra: dict[int, int]) -> None:
        self.extra, self.steps = extra, lowering.recipe.steps
        self.nodes, self.tasks = lowering.recipe.nodes, lowering.tasks
        self.words = self.steps.words.tolist()
        self.blocks = Blocks(lowering.recipe, lowering.tasks, lowering.number, extra)
        self._patterns: dict[int, int] = {}
        self._silent = {number for number, kind in enumerate(self.steps.kinds) if kind.op.tape_kind == VIEW}
        self._before = (0, 0, 0)

    def repeat(self, at: int, start: int) -> bool:
        """Lower the step that begins at ``start`` like an earlier one of its kind; False if none can be repeated."""
        kind = self.words[start]
        pattern = self._patterns.get(kind)
        if pattern is None:
            if kind in self._silent:
                return True
            self.blocks.flush()
            self._before = (len(self.tasks), len(self.tasks.places), len(self.nodes))
            return False
        self.blocks.order.append(pattern)
        self.blocks.steps.append(at)
        return True

    def remember(self, at: int, start: int) -> None:
        """Remember how a step was lowered, if others can be lowered in the same way."""
        kind, result = self.words[start : start + HEAD]
        op, _, _, count = self.steps.kinds[kind]
        tasks, (before, place, node) = self.tasks, self._before
        if not op.repeatable or any(
            isinstance(tasks.calls[number], PythonCall) for number in tasks.call_numbers[before:]
        ):
            return
        operands, places = self.words[start + HEAD : start + HEAD + count], tasks.places[place:].tolist()
        temporaries = [k for k in range(node, len(self.nodes)) if self.nodes[k].constant is None]
        asked = [*places, self.extra[at]] if at in self.extra else places
        single = len(tasks.call_numbers) - before == 1 and not temporaries and not tasks.offsets
        names = self._in_order(asked, operands, result) if single else None
        names = names or self._by_nodes(asked, operands, result, temporaries)
        if names is not None:
            pattern = Pattern(
                tasks.call_numbers[before:].tolist(),
                tasks.adds[before:].tolist(),
                names[: len(places)],
                [(k - place, offset) for k, offset in tasks.offsets.items() if k >= place] if tasks.offsets else [],
                [self.nodes[k] for k in temporaries],
                names[-1] if at in self.extra else None,
                self._dtypes(places, names),
            )
            self._patterns[kind] = self.blocks.add(pattern)

    def _in_order(self, places: list[int], operands: list[int], result: int) -> list[Source] | None:
        """Describe the places of a single call on all operands in order, its result first or last."""
        if len(places) != 1 + len(operands):
            return None
        for order, places_of_operands in enumerate((places[1:], places[:-1])):
            pairs = zip(places_of_operands, operands, strict=True)
            if places[-order] == result and all(self._is_number(n) if o < 0 else n == o for n, o in pairs):
                names = [(OPERAND, k) for k in range(len(operands))]
                return [*names, (RESULT, 0)] if order else [(RESULT, 0), *names]
        return None

    def _by_nodes(
        self, places: list[int], operands: list[int], result: int, temporaries: list[int]
    ) -> list[Source] | None:
        """Describe the places by the nodes that they hold; None where these are not unique."""
        named: dict[int, Source] = {result: (RESULT, 0)}
        for k, o in enumerate(operands):
            if o < 0 or o in named:
                return None
            named[o] = OPERAND, k
        named |= {node: (TEMPORARY, k) for k, node in enumerate(temporaries)}
        if not all(node in named or self._is_number(node) for node in places):
            return None
        return [named.get(node, (NODE, node)) for node in places]

    def _dtypes(self, places: list[int], names: list[Source]) -> dict[int, Any]:
        """Return the dtypes of operands that are numbers."""
        return {
            k: self.nodes[node].spec.dtype
            for node, (source, k) in zip(places, names, strict=False)
            if source == OPERAND and self._is_number(node)
        }

    def _is_number(self, node: int) -> bool:
        if node < 0:
            return False
        constant = self.nodes[node].constant
        return constant is not None and not constant.ndim
