"""A program run on tensors, operation by operation: recorded, mapped and differentiated as in dynamic mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.foundation.specs import dense
from kernels.kinds.custom import LoopBegin
from kernels.kinds.views import View
from kernels.operations.registry import OPS
from kernels.programs.program import ProgramNode, Recipe
from kernels.programs.structs import Step, bodies_of
from kernels.rules.scalar_loops import NodeRef, node_of
from tape.engine.kind_rules import Operand
from tape.engine.kinds import GuardDiffersError, run_batched
from tape.operations import writes
from tape.recording import record, views
from tape.tensors import modes
from tape.tensors.tensor import Tensor, as_array, constant_tensor, scalar_or_array

_AS_STRIDED: Any = OPS["as_strided"]


def interpreted(recipe: Recipe, arguments: Sequence[Any]) -> list[Tensor]:
    """Run a program on checked arguments; return results that share no memory. Arguments that it writes are written."""
    run = _Run(recipe, arguments)
    modes.call_given(None, run.steps, 0, len(recipe.steps))
    results = [run.result(node) for node in recipe.outputs]
    run.write_back(arguments)
    return results


class _Run:
    """One run: the tensor of each node."""

    def __init__(self, recipe: Recipe, arguments: Sequence[Any]) -> None:
        self.recipe = recipe
        self.values: dict[int, Tensor] = {}
        for node, argument in zip(recipe.arguments, arguments, strict=True):
            if node in recipe.written and isinstance(argument, Tensor):
                writes.check(argument, "program")
            self.values[node] = self._taken(node, argument)

    def _taken(self, node: int, argument: Any) -> Tensor:
        """Return an argument as a C-contiguous tensor that may be written to, if the program does."""
        spec = self.recipe.nodes[node].spec
        if not isinstance(argument, Tensor):
            return constant_tensor(scalar_or_array(np.array(argument, spec.dtype, order="C")))
        x = argument if argument.spec.dtype == spec.dtype else record.to_dtype(argument, spec.dtype)
        ordered = x.spec.strides == dense(spec.shape, spec.dtype.itemsize)
        return views.clone(x) if node in self.recipe.written or not ordered else x

    def _constant(self, node: ProgramNode) -> Tensor:
        """Return a constant, or a part of one, as a tensor of its own."""
        base = node if node.base is None else self.recipe.nodes[node.base]
        assert base.constant is not None
        spec = node.spec
        if not spec.size:
            return constant_tensor(np.empty(spec.shape, spec.dtype))
        part = np.ndarray(spec.shape, spec.dtype, base.constant.ravel("K"), node.offset, spec.strides)
        return constant_tensor(scalar_or_array(part.copy(order="K" if node.base is None else "C")))

    def steps(self, at: int, stop: int) -> None:
        """Run some steps, in order; loops as often as they go on."""
        while at < stop:
            step = self.recipe.steps[at]
            if isinstance(step.op, LoopBegin):
                at = self._loop(step)
            else:
                self.step(step)
                at += 1

    def _loop(self, begin: Step) -> int:
        """Run a loop; return the step behind it."""
        (limit, has_count, counted, line), bodies = begin.params, bodies_of(self.recipe.steps, begin.at)
        phis = [node_of(o) for o in begin.operands[: len(begin.operands) - has_count]]
        most = int(as_array(self.tensor(node_of(begin.operands[-1])))) if has_count else limit
        done = 0
        while most is None or done < most:
            updates = self._iteration(bodies)
            if updates is None and counted:
                raise GuardDiffersError(f"the loop at {line} goes another way than when the program was recorded")
            if updates is None:
                break
            self.values.update(zip(phis, updates, strict=True))
            done += 1
        return bodies[-1][1] + 2

    def _iteration(self, bodies: list[tuple[int, int]]) -> list[Tensor] | None:
        """Run the body whose guards hold; return what the next iteration starts from, None if there is none."""
        before = dict(self.values)
        for first, last in bodies:
            try:
                self.steps(first, last)
                return [self.tensor(node_of(o)) for o in self.recipe.steps[last].operands]
            except GuardDiffersError:
                pass
            finally:  # each iteration makes its own
                self.values = dict(before)
        return None

    def step(self, step: Step) -> None:
        """Run a step, recorded if it was."""
        mode = modes.current()
        operands = [self._operand(o) for o in step.operands]
        node = self.recipe.nodes[step.result]
        try:
            modes.set_mode(mode._replace(grad=mode.grad and step.form is not None))
            if isinstance(step.op, View) and node.family is None:
                result: Any = operands[0].value.detach()
            else:
                result = run_batched(step, operands, node.spec)
        finally:
            modes.restore(mode)
        if result is not None:
            self.values[step.result] = result

    def _operand(self, operand: Any) -> Operand:
        if not isinstance(operand, NodeRef):
            return Operand(operand)
        return Operand(self.tensor(operand.node), spec=self.recipe.nodes[operand.node].spec)

    def tensor(self, node: int) -> Tensor:
        """Return the tensor of a node; a constant, or a view that no step made, is computed at its first use."""
        if node not in self.values:
            entry = self.recipe.nodes[node]
            base = self.recipe.nodes[self.recipe.base_of(node)]
            if base.constant is not None:
                self.values[node] = self._constant(entry)
            else:
                self.values[node] = self._part(entry)
        return self.values[node]

    def _part(self, entry: ProgramNode) -> Tensor:
        """Return a view that no step made, as a part of its family or of constant memory, by its pattern."""
        above = entry.family if entry.family is not None else entry.base
        assert above is not None
        whole, x = self.recipe.nodes[above], self.tensor(above)
        if entry.family is None:
            x = x.detach()
        item = whole.spec.dtype.itemsize if entry.spec.dtype == whole.spec.dtype else 0
        order = sorted(range(len(whole.spec.shape)), key=lambda axis: (-whole.spec.strides[axis], axis))
        strides = tuple(stride // item for stride in entry.spec.strides)
        params = (entry.spec.shape, strides, (entry.offset - whole.offset) // item)
        try:
            return record.view(_AS_STRIDED, views.permute(x, tuple(order)), params)
        except (ValueError, ZeroDivisionError):
            raise NotImplementedError(
                "a program that writes to a part, with gaps, of memory from outside cannot be differentiated as a part "
                "of another function; let the function copy it first"
            ) from None

    def result(self, node: int) -> Tensor:
        """Return a result of its own memory."""
        entry, x = self.recipe.nodes[node], self.tensor(node)
        unshared = entry.base is None and entry.constant is None and not entry.argument
        return x if unshared and self.recipe.outputs.count(node) == 1 and node not in self._seen() else views.clone(x)

    def _seen(self) -> set[int]:
        """Return the nodes of which a result is a view."""
        return {self.recipe.base_of(o) for o in self.recipe.outputs if self.recipe.nodes[o].base is not None}

    def write_back(self, arguments: Sequence[Any]) -> None:
        """Write the final values of written arguments into the caller's tensors and arrays."""
        for node, argument in zip(self.recipe.arguments, arguments, strict=True):
            if node in self.recipe.written and isinstance(argument, Tensor):
                argument.copy_(self.values[node])
            elif node in self.recipe.written and isinstance(argument, np.ndarray):
                argument[...] = as_array(self.values[node])
