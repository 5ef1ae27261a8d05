"""The tensors that a recorder knows, for backwards that it follows: what an instruction saved is one of them."""

from __future__ import annotations

from typing import Any

from kernels.codegen.tasks import NodeRef
from kernels.instructions.entries import Instruction
from kernels.kinds.contraction import Contraction
from kernels.kinds.copy import Copy
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.gather import Gather
from kernels.kinds.join import Join
from kernels.kinds.reduction import Reduction
from kernels.kinds.routine import Routine
from kernels.kinds.write import Write
from kernels.native.tape_structs import ADDS, CLEARS, PULLS, VIEW
from kernels.programs.recording.notifying import Tables
from kernels.programs.recording.program import Recipe
from kernels.programs.recording.program_words import Step
from tape.recording.routine_calls import TensorCall
from tape.tensors.tensor import Tensor, constant_tensor, scalar_or_array

_FOLLOWED = (Elementwise, Contraction, Reduction, Copy, Join, Routine)
"""Kinds of operations whose pullbacks compute with tensors alone."""
_PART_AND_VALUE = 2


class KnownTensors:
    """The tensors of a recorder by node and by slot, and the steps that made them."""

    def __init__(self, tables: Tables, recipe: Recipe) -> None:
        self._tables, self._recipe = tables, recipe
        self._seen = self._steps = 0
        self._by_node: dict[int, int] = {}
        """Where they are among those that are held, so that nothing more holds them."""
        self._by_slot: dict[int, int] = {}
        self._made: dict[int, int] = {}
        self._written: dict[int, int] = {}
        """The last step that wrote to the memory of a node."""
        self._places_vary = False
        """Whether a write was to places that are an operand."""
        self.earliest = 0
        """The first step whose gradient was asked for, since it was set."""

    def _catch_up(self) -> None:
        tables = self._tables
        held = tables.held
        for at in range(self._seen, len(held)):
            node = tables.known.get(id(held[at])) if isinstance(held[at], Tensor) else None
            if node is not None:
                self._by_node[node] = at
                if type(held[at]._slot) is int:
                    self._by_slot[held[at]._slot] = node
        self._seen = len(held)
        count = len(tables.steps)
        for at in range(self._steps, count):
            step = tables.steps[at]
            if isinstance(step.op, Write):
                self._written[self._recipe.base_of(step.result)] = at
                self._places_vary |= len(step.operands) > _PART_AND_VALUE
            else:
                self._made[step.result] = at
        self._steps = count

    def saved_by(self, instruction: Instruction) -> tuple[Any, ...] | None:
        """Return what an instruction saved, as tensors that are known; None where that is not possible."""
        form = instruction.form
        self._catch_up()
        node = self._by_slot.get(instruction.slot, -1)
        self.earliest = min(self.earliest, self._made.get(node, self._steps))
        if form.kind in (CLEARS, ADDS) and type(instruction.operands[0]) is int:
            self._by_slot.setdefault(instruction.operands[0], node)  # the version before, of the same node
        if form.kind == VIEW or (form.kind in (CLEARS, ADDS) and not self._places_vary):
            return instruction.saved  # where it is, which does not vary
        if node not in self._made:
            return None
        step = self._tables.steps[self._made[node]]
        runs_routine = isinstance(form.op, Routine) and type(next(iter(instruction.saved), None)) is TensorCall
        if step.op is not form.op or not (form.kind == PULLS or runs_routine):
            return None
        if isinstance(form.op, Gather):
            return instruction.saved if step.params else None
        if not isinstance(form.op, _FOLLOWED):
            return None
        pairs = zip(form.saved, instruction.saved, strict=True)
        saved = tuple([self._saved(name, value, instruction, step) for name, value in pairs])
        return None if any(x is None for x in saved) else saved

    def _saved(self, name: str, value: Any, instruction: Instruction, step: Step) -> Any:
        """Return a saved value as a tensor, or number, that is known; None where it is not."""
        op = instruction.form.op
        if name == "y":
            return self._wanted(step.result, instruction.slot, step.at)
        if name not in op.inputs:  # how many elements a shape has, if that is all it is; a routine's parameters
            return value if type(value) is TensorCall or (name == "n" and not getattr(op, "selects", False)) else None
        i = op.inputs.index(name)
        operand = step.operands[i]
        if not isinstance(operand, NodeRef):
            return value
        if instruction.operands[i] is not None:
            return self._wanted(operand.node, instruction.operands[i], step.at)
        return self._constant(operand.node, value, step.at)

    def _wanted(self, node: int, slot: Any, since: int) -> Tensor | None:
        x = self._tables.held[self._by_node[node]] if node in self._by_node else None
        return x if isinstance(x, Tensor) and x._slot == slot and not self._is_written(node, since) else None

    def _constant(self, node: int, value: Any, since: int) -> Tensor | None:
        """Return a new tensor that does not require grad for what a node holds."""
        if self._is_written(node, since):
            return None
        constant = constant_tensor(scalar_or_array(value))
        self._tables.held.append(constant)
        self._tables.known[id(constant)] = node
        return constant

    def _is_written(self, node: int, since: int) -> bool:
        return self._written.get(self._recipe.base_of(node), -1) > since
