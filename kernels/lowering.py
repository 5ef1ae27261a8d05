"""From steps to calls: which native code computes each operation forward, with which layouts.

Correctly rounded elementwise operations, copies and joins run as printed kernels; everything else runs through
NumPy's own inner loops, so that a replay agrees with dynamic mode in every bit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import loops
from kernels.blas import Factor, Product
from kernels.custom import Custom, CustomKernel
from kernels.forms import matrices
from kernels.layouts import Spec, Strides, broadcast, dense, intern_spec, spec_of
from kernels.lowered_loops import forward, same, spread, tie
from kernels.op import Contraction, Copy, Elementwise, Gather, Join, Reduction, Select, View, Write
from kernels.overwriting import Overwriting
from kernels.program import Node, NodeRef, ProgramError, Recipe, Step
from kernels.selects import Pick
from kernels.source import Loop, Operand
from kernels.tasks import Call, Fill, Place, Task, UfuncCall, initial

_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)


class Lowering:
    """Turns the steps of a recipe into forward tasks; adds nodes for temporaries and numbers."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.tasks: list[Task] = []
        self._numbers: dict[tuple[bytes, np.dtype[Any]], int] = {}
        self._loops: dict[tuple[Any, ...], Loop] = {}
        self.overwriting = Overwriting(recipe)

    def run(self) -> list[Task]:
        """Lower each step; return the tasks in order."""
        for fresh, node in self.recipe.resets:
            self._copy_between(fresh, node)
        for step in self.recipe.steps:
            lower = _BY_KIND[type(step.op)]
            if lower is not None:
                lower(self, step)
            self.overwriting.mentioned(step)
        return self.tasks

    def spec(self, node: int) -> Spec:
        """Return the spec of a node."""
        return self.recipe.nodes[node].spec

    def number(self, value: float, dtype: np.dtype[Any] = _FLOAT64) -> int:
        """Return the node of a constant number."""
        key = (struct.pack("d", value), dtype)  # by bits: -0.0 and nan are keys of their own
        if key not in self._numbers:
            spec = intern_spec((), (), dtype, (), 1)
            self.recipe.nodes.append(Node(spec, constant=np.array(value, dtype)))
            self._numbers[key] = len(self.recipe.nodes) - 1
        return self._numbers[key]

    def temporary(self, shape: Strides, dtype: np.dtype[Any]) -> int:
        """Return a new node for a dense intermediate."""
        strides = dense(shape, dtype.itemsize)
        self.recipe.nodes.append(Node(intern_spec(shape, strides, dtype, strides, math.prod(shape))))
        return len(self.recipe.nodes) - 1

    def _operand(self, given: Any, dtype: np.dtype[Any]) -> int:
        """Return an operand as a node of this dtype, cast if it has another."""
        if not isinstance(given, NodeRef):
            return self.number(given, dtype)
        spec = self.spec(given.node)
        return given.node if spec.dtype == dtype else self._cast(given.node, dtype)

    def _cast(self, node: int, dtype: np.dtype[Any]) -> int:
        result = self.temporary(self.spec(node).shape, dtype)
        self._copy_between(node, result)
        return result

    def _copy_between(
        self, source: int, target: int, strides: Strides | None = None, offset: int = 0, *, adds: bool = False
    ) -> None:
        """Copy a node into another, broadcast; or into a part of it that has these strides."""
        a, b = self.spec(source), self.spec(target)
        shape = b.shape if strides is None else a.shape
        operands = (
            Operand("target", b.dtype, 0, b.strides if strides is None else strides, offset),
            Operand("x", a.dtype, 1, broadcast(a.shape, a.strides, shape)),
        )
        loop = Loop(same, shape, operands, pullback=False, adds=adds)
        self.tasks.append(Call(loop, "copy", (Place(target), Place(source))))

    def copy(self, step: Step) -> None:
        """Copy elements to another layout or dtype."""
        self._copy_between(_node(step.operands[0]), step.result)

    def elementwise(self, step: Step) -> None:
        """Print the expression where that rounds as NumPy does; else run the ufunc."""
        op, result = step.op, self.spec(step.result)
        assert isinstance(op, Elementwise)
        if not isinstance(op.ufunc, np.ufunc):
            self._printed(step, [_BOOL if rule is None else result.dtype for rule in op.pullback])
        elif op.exact and result.dtype.kind == "f" and all(self._fits(o, result.dtype) for o in step.operands):
            self._printed(step, [result.dtype] * len(step.operands))
        else:
            ufunc = op.variants.get(step.params[0], op.ufunc) if step.params else op.ufunc
            given = (*step.operands, step.params[0]) if step.params and ufunc is op.ufunc else step.operands
            self._ufunc(ufunc, given, step.result)

    def _fits(self, operand: Any, dtype: np.dtype[Any]) -> bool:
        return not isinstance(operand, NodeRef) or self.spec(operand.node).dtype == dtype

    def _printed(self, step: Step, dtypes: list[np.dtype[Any]]) -> None:
        op, result = step.op, self.spec(step.result)
        assert isinstance(op, Elementwise)
        nodes = [self._operand(o, dtype) for o, dtype in zip(step.operands, dtypes, strict=True)]
        specs = tuple([self.spec(node) for node in nodes])
        loop = self._loops.get((op, result, specs))
        if loop is None:
            loop = self._loops[op, result, specs] = forward(op, result, specs)
        self.tasks.append(Call(loop, op.name, (Place(step.result), *map(Place, nodes))))

    def _ufunc(self, ufunc: Any, given: tuple[Any, ...], result: int) -> None:
        out = self.spec(result)
        kinds = [self.spec(o.node).dtype if isinstance(o, NodeRef) else type(o) for o in given]
        dtypes = ufunc.resolve_dtypes((*kinds, None))
        nodes = [self._operand(o, dtype) for o, dtype in zip(given, dtypes[:-1], strict=True)]
        target = result if dtypes[-1] == out.dtype else self.temporary(out.shape, dtypes[-1])
        self._loop(ufunc, dtypes, [*nodes, target], out.shape)
        if target != result:
            self._copy_between(target, result)

    def _loop(self, ufunc: Any, dtypes: tuple[np.dtype[Any], ...], nodes: list[int], shape: Strides) -> None:
        try:
            loop = loops.find(ufunc, dtypes)
        except LookupError as error:
            raise ProgramError(f"{ufunc.__name__} cannot be replayed: {error}") from None
        specs = [self.spec(node) for node in nodes]
        strides = tuple(broadcast(s.shape, s.strides, shape) for s in specs)
        self.tasks.append(UfuncCall(loop, shape, strides, tuple(map(Place, nodes))))

    def reduction(self, step: Step) -> None:
        """Fill with what NumPy starts from, then run its loop; count ties where the pullback needs them."""
        op, result = step.op, self.spec(step.result)
        axes, keepdims = step.params
        assert isinstance(op, Reduction)
        source = self._dense(_node(step.operands[0]), result.dtype)
        spec = self.spec(source)
        onto = spread(result.strides, len(spec.shape), axes, keepdims)
        self.tasks.append(Fill(Place(step.result), result.size, result.dtype, initial(op.ufunc, spec, result.dtype)))
        loop = loops.find(op.ufunc, (result.dtype,) * 3)
        places = (Place(step.result), Place(source), Place(step.result))
        self.tasks.append(UfuncCall(loop, spec.shape, (onto, spec.strides, onto), places))
        if op.scale:
            count = math.prod(spec.shape[axis] for axis in axes)
            self._ufunc(np.divide, (NodeRef(step.result), float(count)), step.result)
        if step.form is not None and "n" in step.form.saved:
            step.extra = (
                self._count(step, source, onto) if op.selects else self.number(math.prod(spec.shape[a] for a in axes))
            )

    def _dense(self, node: int, dtype: np.dtype[Any]) -> int:
        """Return a node, or a C-contiguous copy of it, in the dtype of the reduction."""
        spec = self.spec(node)
        if spec.dtype == dtype and spec.strides == dense(spec.shape, dtype.itemsize):
            return node
        return self._cast(node, dtype)

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
        self.tasks.append(Call(loop, "ties", (Place(count), Place(source), Place(step.result)), accumulate=True))
        return count

    def select(self, step: Step) -> None:
        """Pick the extremum along an axis and its place."""
        axis, _, *what = step.params
        if what:
            return  # the places were computed with the values
        source = _node(step.operands[0])
        spec, result = self.spec(source), self.spec(step.result)
        pairs = [s for s in self.recipe.steps if s.op is step.op and s.operands == step.operands and s.params[2:]]
        pairs = [s for s in pairs if s.result > step.result]
        places = pairs[0].result if pairs else self.temporary(result.shape, _INT64)
        step.extra = places
        pick = Pick(spec, axis, largest=step.op.name == "max")
        self.tasks.append(Call(pick, "pick", (Place(step.result), Place(places), Place(source))))

    def contraction(self, step: Step) -> None:
        """Multiply matrices or vectors by BLAS, as NumPy does."""
        nodes = [_node(o) for o in step.operands]
        a, b = map(self.spec, nodes)
        result = self.spec(step.result)
        (m, k, n), left, right, target = matrices(a.shape, a.strides, b.shape, b.strides, result.strides)
        product = Product(result.dtype, (m, n, k), Factor(0, target), Factor(1, left), Factor(2, right))
        self.tasks.append(Call(product, "product", (Place(step.result), *map(Place, nodes))))

    def _places(self, places: Any) -> int:
        """Return the node of a constant array of places."""
        self.recipe.nodes.append(Node(spec_of(places), constant=places))
        return len(self.recipe.nodes) - 1

    def gather(self, step: Step) -> None:
        """Copy the elements that places pick."""
        memory, picked = step.params
        source, result = self.spec(_node(step.operands[0])), self.spec(step.result)
        places = self._places(memory)
        step.extra = places if picked is memory else self._places(picked)
        operands = (
            Operand("target", result.dtype, 0, result.strides),
            Operand("x", source.dtype, 1, (0,) * len(result.shape)),
            Operand("i", _INT64, 2, self.spec(places).strides),
        )
        loop = Loop(same, result.shape, operands, pullback=False, gather=source.dtype.itemsize)
        self.tasks.append(Call(loop, "gather", (Place(step.result), Place(_node(step.operands[0])), Place(places))))

    def write(self, step: Step) -> None:
        """Copy a value into part of a base; what pullbacks need of that part is saved before."""
        assert isinstance(step.op, Write)
        for node, waiting in self.overwriting.by(step):
            spec = self.spec(node)
            kept = self.temporary(spec.shape, spec.dtype)
            self._copy_between(node, kept)
            for other, name in waiting:
                other.copies[name] = kept
        part = self.spec(step.result)
        value = self._operand(step.operands[1], part.dtype)
        if not step.params:
            self._copy_between(value, step.result, adds=step.op.adds)
            return
        memory, picked = step.params
        places = self._places(memory)
        step.extra = places if picked is memory else self._places(picked)
        given = self.spec(value)
        operands = (
            Operand("target", part.dtype, 0, (0,) * memory.ndim),
            Operand("x", given.dtype, 1, broadcast(given.shape, given.strides, memory.shape)),
            Operand("i", _INT64, 2, self.spec(places).strides),
        )
        loop = Loop(same, memory.shape, operands, pullback=False, scatter=part.dtype.itemsize, adds=step.op.adds)
        self.tasks.append(Call(loop, "put", (Place(step.result), Place(value), Place(places))))

    def custom(self, step: Step) -> None:
        """Call the user's own function."""
        assert isinstance(step.op, Custom)
        result = self.spec(step.result)
        kernel = CustomKernel(step.op, step.params[0], result.shape, result.dtype, pulls=False)
        self.tasks.append(Call(kernel, step.op.name, (Place(step.result), Place(_node(step.operands[0])))))

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
            node = _node(given)
            self._copy_between(node, step.result, tuple(strides), at * step_bytes)
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
}
_BOOL = np.dtype(np.bool_)


def _node(operand: Any) -> int:
    assert isinstance(operand, NodeRef)
    return operand.node
