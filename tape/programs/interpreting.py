"""A program run on tensors, operation by operation: recorded, mapped and differentiated as in dynamic mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.foundation.specs import dense
from kernels.kinds.custom import LoopBegin
from kernels.programs.program import ProgramNode, Recipe
from kernels.programs.structs import HEAD, StepKind, bodies_of
from tape.batching.run import ProgramRun
from tape.engine.kinds import GuardDiffersError
from tape.operations import writes
from tape.recording import record, views
from tape.tensors import modes
from tape.tensors.tensor import Tensor, as_array, constant_tensor, scalar_or_array


def interpreted(recipe: Recipe, arguments: Sequence[Any]) -> list[Tensor]:
    """Run a program on checked arguments; return results that share no memory. Arguments that it writes are written."""
    run = _UnbatchedRun(recipe, arguments)
    modes.call_given(None, run.steps, 0, len(recipe.steps))
    results = [run.result(node) for node in recipe.outputs]
    run.write_back(arguments)
    return results


class _UnbatchedRun(ProgramRun):
    """One run of a program with its loops and guards."""

    unreachable = (
        "a program that writes to a part, with gaps, of memory from outside cannot be differentiated as a part of "
        "another function; let the function copy it first"
    )

    def __init__(self, recipe: Recipe, arguments: Sequence[Any]) -> None:
        super().__init__(recipe, recipe.steps.numbers, {})
        self._kinds, self._words, self._starts = recipe.steps.kinds, recipe.steps.words, recipe.steps.starts
        for node, argument in zip(recipe.arguments, arguments, strict=True):
            if node in recipe.written and isinstance(argument, Tensor):
                writes.check(argument, "program")
            self.values[node] = self._taken(node, argument)

    def _taken(self, node: int, argument: Any) -> Tensor:
        """Return an argument as a C-contiguous tensor that may be written to, if the program does."""
        spec = self.nodes[node].spec
        if not isinstance(argument, Tensor):
            return constant_tensor(scalar_or_array(np.array(argument, spec.dtype, order="C")))
        x = argument if argument.spec.dtype == spec.dtype else record.to_dtype(argument, spec.dtype)
        ordered = x.spec.strides == dense(spec.shape, spec.dtype.itemsize)
        return views.clone(x) if node in self.recipe.written or not ordered else x

    def first(self, node: int) -> None:
        """Compute a constant, or a view that no step made."""
        entry, base = self.nodes[node], self.nodes[self.recipe.base_of(node)]
        self.values[node] = self.part(node) if base.constant is None else _constant(entry, base)

    def steps(self, at: int, stop: int) -> None:
        """Run some steps, in order; loops as often as they go on."""
        while at < stop:
            kind, operands, result = self._step_at(at)
            if isinstance(kind.op, LoopBegin):
                at = self._loop(at, kind, operands)
            else:
                self.step(kind, operands, result, graded=kind.form is not None)
                at += 1

    def _step_at(self, at: int) -> tuple[StepKind, Sequence[int], int]:
        start = self._starts[at]
        kind = self._kinds[self._words[start]]
        return kind, self._words[start + HEAD : start + HEAD + kind.count], self._words[start + 1]

    def _loop(self, begin: int, kind: StepKind, operands: Sequence[int]) -> int:
        """Run a loop; return the step behind it."""
        (limit, has_count, counted, line), bodies = kind.params, bodies_of(self.recipe.steps, begin)
        phis = operands[: len(operands) - has_count]
        most = int(as_array(self.tensor(operands[-1]))) if has_count else limit
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
                return list(map(self.tensor, self._step_at(last)[1]))
            except GuardDiffersError:
                pass
            finally:  # each iteration makes its own
                self.values = dict(before)
        return None

    def result(self, node: int) -> Tensor:
        """Return a result of its own memory."""
        entry, x = self.nodes[node], self.tensor(node)
        unshared = entry.base is None and entry.constant is None and not entry.argument
        return x if unshared and self.recipe.outputs.count(node) == 1 and node not in self._seen() else views.clone(x)

    def _seen(self) -> set[int]:
        """Return the nodes of which a result is a view."""
        return {self.recipe.base_of(o) for o in self.recipe.outputs if self.nodes[o].base is not None}

    def write_back(self, arguments: Sequence[Any]) -> None:
        """Write the final values of written arguments into the caller's tensors and arrays."""
        for node, argument in zip(self.recipe.arguments, arguments, strict=True):
            if node in self.recipe.written and isinstance(argument, Tensor):
                argument.copy_(self.values[node])
            elif node in self.recipe.written and isinstance(argument, np.ndarray):
                argument[...] = as_array(self.values[node])


def _constant(node: ProgramNode, base: ProgramNode) -> Tensor:
    """Return a constant, or a part of one, as a tensor of its own."""
    spec, memory = node.spec, base.constant
    assert memory is not None
    if not spec.size:
        return constant_tensor(np.empty(spec.shape, spec.dtype))
    part = np.ndarray(spec.shape, spec.dtype, memory.ravel("K"), node.offset, spec.strides)
    return constant_tensor(scalar_or_array(part.copy(order="K" if node.base is None else "C")))
