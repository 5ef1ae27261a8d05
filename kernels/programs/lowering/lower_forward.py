"""From steps to calls: which native code computes each operation forward, with which layouts.

Correctly rounded elementwise operations, copies and joins run as printed kernels; everything else runs through
NumPy's own inner loops, so that a replay agrees with dynamic mode in every bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Strides, broadcast, dense, spec_of
from kernels.codegen.forward_loops import same, spread, tie
from kernels.codegen.loop_printer import Loop
from kernels.codegen.matmul import Factor, Product, matrices
from kernels.codegen.operand_spaces import Operand
from kernels.codegen.rows.extrema import Pick
from kernels.codegen.tasks import Call, Fill, Place, PythonCall, Tasks, UfuncCall, initial
from kernels.instructions.jitted_functions import Custom, CustomKernel
from kernels.instructions.routine_calls import computed, packed
from kernels.programs.lowering.lower_elementwise import Elements, node_of
from kernels.programs.lowering.overwrites import Overwriting
from kernels.programs.lowering.repeated_steps import Repeating
from kernels.programs.recording.program import Node, Recipe
from kernels.programs.recording.program_words import NodeRef, Step
from kernels.records.kinds import (
    Contraction,
    Copy,
    Elementwise,
    Gather,
    Join,
    Part,
    Reduction,
    Routine,
    Select,
    View,
    Write,
)

_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)


class Lowering(Elements):
    """Turns the steps of a recipe into forward tasks."""

    def __init__(self, recipe: Recipe, *, reverse: bool = True) -> None:
        super().__init__(recipe)
        self.overwriting = Overwriting(recipe) if reverse else None
        self.extra: dict[int, int] = {}
        """Nodes made for the pullback of a step."""
        self.extras: dict[int, tuple[int, ...]] = {}
        """The further results of a routine."""
        self.copies: dict[int, dict[str, int]] = {}
        """Those of saved values of a step that a later write replaces."""
        self.resets = {node: kept for kept, node in recipe.resets}

    def run(self) -> Tasks:
        """Lower each step; return the tasks in order. Memory from outside is set right before its first use."""
        steps, repeating = self.recipe.steps, Repeating(self, self.extra)
        for at, start in enumerate(steps.starts):
            fresh = not self.resets  # else memory from outside is set right step by step
            if not fresh or not repeating.repeat(at, start):
                self._lower(steps[at])
                if fresh:
                    repeating.remember(at, start)
            if self.overwriting is not None and self.overwriting.written:
                self.overwriting.read_at(at)
        self._reset(self.recipe.outputs)
        repeating.blocks.finish()
        return self.tasks

    def _lower(self, step: Step) -> None:
        """Lower a step by its kind."""
        if self.resets:
            self._reset([*(o.node for o in step.operands if isinstance(o, NodeRef)), step.result])
        if isinstance(step.op, Routine) and not step.params[1:]:
            after = self.recipe.steps[step.at + 1 : step.at + 1 + len(step.op.extras)]
            self.extras[step.at] = tuple(s.result for s in after)
        lower = _BY_KIND[type(step.op)]
        if lower is not None:
            lower(self, step)

    def _reset(self, nodes: Iterable[int]) -> None:
        """Let memory from outside hold what it held when the program was recorded."""
        for node in nodes:
            base = self.recipe.base_of(node)
            if base in self.resets:
                self.copy_between(self.resets.pop(base), base)

    def reduction(self, step: Step) -> None:
        """Fill with what NumPy starts from, then run its loop; count ties where the pullback needs them."""
        op, result = step.op, self.spec(step.result)
        axes, keepdims = step.params
        assert isinstance(op, Reduction)
        if not isinstance(op.ufunc, np.ufunc):
            self._reduced(step)
            return
        source = self._dense(node_of(step.operands[0]), result.dtype)
        spec = self.spec(source)
        onto = spread(result.strides, len(spec.shape), axes, keepdims)
        self.tasks.append(Fill(Place(step.result), result.size, result.dtype, initial(op.ufunc, spec, result.dtype)))
        loop = numpy_loops.find(op.ufunc, (result.dtype,) * 3)
        places = (Place(step.result), Place(source), Place(step.result))
        self.tasks.append(UfuncCall(loop, spec.shape, (onto, spec.strides, onto), places))
        if op.scale:
            count = math.prod(spec.shape[axis] for axis in axes)
            self.ufunc(np.divide, (NodeRef(step.result), float(count)), step.result)
        if step.form is not None and "n" in step.form.saved and self.overwriting is not None:
            self.extra[step.at] = (
                self._count(step, source, onto) if op.selects else self.number(math.prod(spec.shape[a] for a in axes))
            )

    def _reduced(self, step: Step) -> None:
        """Reduce in Python, by what is no ufunc."""
        op, (axes, keepdims), node = step.op, step.params, node_of(step.operands[0])
        assert isinstance(op, Reduction)
        reduce = op.ufunc.reduce

        def run(arrays: list[np.ndarray[Any, Any]]) -> None:
            arrays[0][...] = reduce(np.ascontiguousarray(arrays[1]), axis=axes, keepdims=keepdims)

        nodes = (step.result, node)
        self.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(Place, nodes))))

    def _dense(self, node: int, dtype: np.dtype[Any]) -> int:
        """Return a node, or a C-contiguous copy of it, in the dtype of the reduction."""
        spec = self.spec(node)
        if spec.dtype == dtype and spec.strides == dense(spec.shape, dtype.itemsize):
            return node
        return self.cast(node, dtype)

    def _count(self, step: Step, source: int, onto: Strides) -> int:
        """Count, for each result of an extremum, the elements that tie."""
        result, spec = self.spec(step.result), self.spec(source)
        count = self.temporary(result.shape, result.dtype)
        self.tasks.append(Fill(Place(count), result.size, result.dtype, -0.0))
        operands = (
            Operand("target", result.dtype, 0, onto),
            Operand("x", spec.dtype, 1, spec.strides),
            Operand("y", result.dtype, 2, onto),
        )
        loop = Loop(tie, spec.shape, operands, skips=False)
        self.tasks.append(Call(loop, (Place(count), Place(source), Place(step.result)), accumulate=True))
        return count

    def select(self, step: Step) -> None:
        """Pick the extremum along an axis and its place."""
        axis, _, *what = step.params
        if what:
            return  # the places were computed with the values
        source = node_of(step.operands[0])
        spec, result = self.spec(source), self.spec(step.result)
        pairs = [s for s in self.recipe.steps if s.op is step.op and s.operands == step.operands and s.params[2:]]
        pairs = [s for s in pairs if s.result > step.result]
        places = pairs[0].result if pairs else self.temporary(result.shape, _INT64)
        self.extra[step.at] = places
        pick = Pick(spec, axis, largest=step.op.name == "max")
        self.tasks.append(Call(pick, (Place(step.result), Place(places), Place(source))))

    def contraction(self, step: Step) -> None:
        """Multiply matrices or vectors by BLAS, as NumPy does."""
        nodes = [node_of(o) for o in step.operands]
        a, b = map(self.spec, nodes)
        result = self.spec(step.result)
        (m, k, n), left, right, target = matrices(a.shape, a.strides, b.shape, b.strides, result.strides)
        product = Product(result.dtype, (m, n, k), Factor(0, target), Factor(1, left), Factor(2, right))
        self.tasks.append(Call(product, (Place(step.result), *map(Place, nodes))))

    def _places(self, places: Any) -> int:
        """Return the node of a constant array of places."""
        self.recipe.nodes.append(Node(spec_of(places), constant=places))
        return len(self.recipe.nodes) - 1

    def gather(self, step: Step) -> None:
        """Copy the elements that places pick."""
        memory, picked = step.params
        source, result = self.spec(node_of(step.operands[0])), self.spec(step.result)
        places = self._places(memory)
        self.extra[step.at] = places if picked is memory else self._places(picked)
        operands = (
            Operand("target", result.dtype, 0, result.strides),
            Operand("x", source.dtype, 1, (0,) * len(result.shape)),
            Operand("i", _INT64, 2, self.spec(places).strides),
        )
        loop = Loop(same, result.shape, operands, pullback=False, gather=source.dtype.itemsize)
        self.tasks.append(Call(loop, (Place(step.result), Place(node_of(step.operands[0])), Place(places))))

    def write(self, step: Step) -> None:
        """Copy a value into part of a base; what pullbacks need of that part is saved before."""
        assert isinstance(step.op, Write)
        for node, waiting in self.overwriting.by(step) if self.overwriting is not None else ():
            spec = self.spec(node)
            kept = self.temporary(spec.shape, spec.dtype)
            self.copy_between(node, kept)
            for other, name in waiting:
                self.copies.setdefault(other, {})[name] = kept
        part = self.spec(step.result)
        value = self.operand(step.operands[1], part.dtype)
        if not step.params:
            self.copy_between(value, step.result, adds=step.op.adds)
            return
        memory, picked = step.params
        places = self._places(memory)
        self.extra[step.at] = places if picked is memory else self._places(picked)
        given = self.spec(value)
        operands = (
            Operand("target", part.dtype, 0, (0,) * memory.ndim),
            Operand("x", given.dtype, 1, broadcast(given.shape, given.strides, memory.shape)),
            Operand("i", _INT64, 2, self.spec(places).strides),
        )
        loop = Loop(same, memory.shape, operands, pullback=False, scatter=part.dtype.itemsize, adds=step.op.adds)
        self.tasks.append(Call(loop, (Place(step.result), Place(value), Place(places))))

    def routine(self, step: Step) -> None:
        """Call NumPy or SciPy; the extras, steps of their own, are computed with the results."""
        op, (frozen, *extra) = step.op, step.params
        assert isinstance(op, Routine)
        if extra:
            return
        outputs, params = (step.result, *self.extras[step.at]), dict(frozen)

        def run(arrays: list[np.ndarray[Any, Any]]) -> None:
            found = computed(op, arrays[len(outputs) :], params)
            parts = found if isinstance(found, tuple) else (found,)
            arrays[0][...] = packed(parts[: len(op.results)])
            for place, value in zip(arrays[1:], parts[len(op.results) :], strict=False):
                place[...] = value

        nodes = (*outputs, *map(node_of, step.operands))
        self.tasks.append(PythonCall(run, tuple((n, False) for n in nodes), tuple(map(Place, nodes))))

    def custom(self, step: Step) -> None:
        """Call the user's own function."""
        assert isinstance(step.op, Custom)
        result = self.spec(step.result)
        kernel = CustomKernel(step.op, step.params[0], result.shape, result.dtype, pulls=False)
        self.tasks.append(Call(kernel, (Place(step.result), Place(node_of(step.operands[0])))))

    def join(self, step: Step) -> None:
        """Copy each operand to its part of the result."""
        axis, new = step.params
        result = self.spec(step.result)
        strides = list(result.strides)
        step_bytes = strides[axis]
        if new:
            strides.pop(axis)
        at = 0
        for given in step.operands:
            node = node_of(given)
            self.copy_between(node, step.result, tuple(strides), at * step_bytes)
            at += 1 if new else self.spec(node).shape[axis]


_BY_KIND: dict[type, Callable[[Lowering, Step], None] | None] = {
    Elementwise: Lowering.elementwise,
    Reduction: Lowering.reduction,
    Select: Lowering.select,
    Contraction: Lowering.contraction,
    Join: Lowering.join,
    Copy: Lowering.copy,
    View: None,
    Gather: Lowering.gather,
    Write: Lowering.write,
    Custom: Lowering.custom,
    Routine: Lowering.routine,
    Part: None,
}
