"""Elementwise operations lowered to calls: printed kernels where they round as NumPy does, else NumPy's loops."""

from __future__ import annotations

import math
import struct
from types import FunctionType
from typing import Any

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Spec, Strides, broadcast, dense, intern_spec
from kernels.codegen.forward_loops import forward, same
from kernels.codegen.loop_printer import Loop
from kernels.codegen.operand_spaces import Operand
from kernels.codegen.tasks import Call, Place, Tasks, UfuncCall
from kernels.codegen.vectorized_forward import suits
from kernels.programs.recording.program import Node, ProgramError, Recipe
from kernels.programs.recording.program_words import NodeRef, Step
from kernels.records.kinds import OPS, Elementwise
from kernels.records.scipy_ufuncs import resolved, ufunc_of
from kernels.records.symbols import Symbol, Unprinted, traced

_FLOAT64 = np.dtype(np.float64)
_BOOL = np.dtype(np.bool_)


class Elements:
    """Adds tasks for elementwise operations, casts and copies, and nodes for temporaries and numbers."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.tasks = Tasks()
        self._numbers: dict[tuple[bytes, np.dtype[Any]], int] = {}
        self._loops: dict[tuple[Any, ...], Loop] = {}

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

    def operand(self, given: Any, dtype: np.dtype[Any]) -> int:
        """Return an operand as a node of this dtype, cast if it has another."""
        if not isinstance(given, NodeRef):
            return self.number(given, dtype)
        spec = self.spec(given.node)
        return given.node if spec.dtype == dtype else self.cast(given.node, dtype)

    def cast(self, node: int, dtype: np.dtype[Any]) -> int:
        """Return the node of a dense copy in this dtype."""
        result = self.temporary(self.spec(node).shape, dtype)
        self.copy_between(node, result)
        return result

    def copy_between(
        self, source: int, target: int, strides: Strides | None = None, offset: int | None = None, *, adds: bool = False
    ) -> None:
        """Copy a node into another, broadcast; or into a part of it that has these strides."""
        a, b = self.spec(source), self.spec(target)
        key = (a, b, strides, offset, adds)
        loop = self._loops.get(key)
        if loop is None:
            shape = b.shape if strides is None else a.shape
            operands = (
                Operand("target", b.dtype, 0, b.strides if strides is None else strides, offset),
                Operand("x", a.dtype, 1, broadcast(a.shape, a.strides, shape)),
            )
            loop = self._loops[key] = Loop(same, shape, operands, pullback=False, adds=adds)
        self.tasks.append(Call(loop, (Place(target), Place(source))))

    def copy(self, step: Step) -> None:
        """Copy elements to another layout or dtype."""
        self.copy_between(node_of(step.operands[0]), step.result)

    def elementwise(self, step: Step) -> None:
        """Print the expression where that rounds as NumPy does; else run the ufunc."""
        op, result = step.op, self.spec(step.result)
        assert isinstance(op, Elementwise)
        if op.condition:
            self._printed(op, step.operands, [_BOOL, result.dtype, result.dtype], step.result)
        elif self._is_printed(op, step.operands, result):
            self._printed(op, step.operands, [result.dtype] * len(step.operands), step.result)
        else:
            self._by_ufuncs(op, step)

    def _by_ufuncs(self, op: Elementwise, step: Step) -> None:
        """Run the ufunc, or the expression of ufuncs, that dynamic mode runs."""
        ufunc = op.variants.get(step.params[0], op.ufunc) if step.params else op.ufunc
        if op.composed or isinstance(ufunc, FunctionType):
            static = {"p": step.params[0]} if step.params else {}
            names = dict(zip(op.inputs, step.operands, strict=True))
            expression = traced(op.forward if op.composed else ufunc, Unprinted, static)
            self._composed(expression, names, step.result)
        else:
            given = (*step.operands, step.params[0]) if step.params and ufunc is op.ufunc else step.operands
            self.ufunc(resolved(ufunc), given, step.result)

    def _composed(self, expression: Any, names: dict[str, Any], result: int | None = None) -> Any:
        """Run an expression ufunc by ufunc, as NumPy does; into ``result``, or return the node or number it is."""
        if not isinstance(expression, Symbol):
            return expression
        if not expression.parts:
            return names[expression.head]
        given = tuple([self._composed(part, names) for part in expression.parts])
        shape = np.broadcast_shapes(*(self.spec(o.node).shape for o in given if isinstance(o, NodeRef)))
        kinds = [self.spec(o.node).dtype if isinstance(o, NodeRef) else type(o) for o in given]
        if expression.head == "where":
            dtype = np.result_type(*[np.zeros((), k) if isinstance(k, np.dtype) else k() for k in kinds[1:]])
            into = self.temporary(shape, dtype) if result is None else result
            self._printed(OPS["where"], given, [_BOOL, dtype, dtype], into)  # type: ignore[arg-type]
            return NodeRef(into)
        ufunc = ufunc_of(expression.head)
        into = self.temporary(shape, ufunc.resolve_dtypes((*kinds, None))[-1]) if result is None else result
        self.ufunc(ufunc, given, into)
        return NodeRef(into)

    def _is_printed(self, op: Elementwise, operands: tuple[Any, ...], result: Spec) -> bool:
        """Whether a kernel gives what dynamic mode gives: an exact operation, or one that our own kernel computes."""
        specs = tuple([self.spec(o.node) for o in operands if isinstance(o, NodeRef)])
        if len(specs) == len(operands) and suits(op, result, specs):
            return True
        return op.exact and result.dtype.kind == "f" and all(spec.dtype == result.dtype for spec in specs)

    def _printed(self, op: Elementwise, given: tuple[Any, ...], dtypes: list[np.dtype[Any]], into: int) -> None:
        result = self.spec(into)
        nodes = [self.operand(o, dtype) for o, dtype in zip(given, dtypes, strict=True)]
        specs = tuple([self.spec(node) for node in nodes])
        loop = self._loops.get((op, result, specs))
        if loop is None:
            loop = self._loops[op, result, specs] = forward(op, result, specs)
        self.tasks.append(Call(loop, (Place(into), *map(Place, nodes))))

    def ufunc(self, ufunc: Any, given: tuple[Any, ...], result: int) -> None:
        """Run a ufunc in the dtype that NumPy would choose."""
        out = self.spec(result)
        kinds = [self.spec(o.node).dtype if isinstance(o, NodeRef) else type(o) for o in given]
        dtypes = ufunc.resolve_dtypes((*kinds, None))
        nodes = [self.operand(o, dtype) for o, dtype in zip(given, dtypes[:-1], strict=True)]
        target = result if dtypes[-1] == out.dtype else self.temporary(out.shape, dtypes[-1])
        self._loop(ufunc, dtypes, [*nodes, target], out.shape)
        if target != result:
            self.copy_between(target, result)

    def _loop(self, ufunc: Any, dtypes: tuple[np.dtype[Any], ...], nodes: list[int], shape: Strides) -> None:
        try:
            loop = numpy_loops.find(ufunc, dtypes)
        except LookupError as error:
            raise ProgramError(f"{ufunc.__name__} cannot be replayed: {error}") from None
        specs = [self.spec(node) for node in nodes]
        strides = tuple(broadcast(s.shape, s.strides, shape) for s in specs)
        self.tasks.append(UfuncCall(loop, shape, strides, tuple(map(Place, nodes))))


def node_of(operand: Any) -> int:
    """Return the node of an operand that is one."""
    assert isinstance(operand, NodeRef)
    return operand.node
