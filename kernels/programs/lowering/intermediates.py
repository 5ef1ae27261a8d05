"""What the tasks of a program need between its nodes: numbers, constants, casts, copies, NumPy's loops."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.arrays import numpy_loops
from kernels.arrays.specs import Spec, Strides, broadcast, dense, intern_spec, spec_of
from kernels.codegen.forward_loops import same
from kernels.codegen.loop_printer import Loop
from kernels.codegen.operand_spaces import Operand
from kernels.codegen.tasks import Call, NodeRef, Place, Tasks, UfuncCall
from kernels.programs.recording.program import Node, ProgramError, Recipe

_FLOAT64 = np.dtype(np.float64)


class Intermediates:
    """Adds nodes for what stands between the nodes of a program, and the tasks that fill them."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.tasks = Tasks()
        self._numbers: dict[tuple[bytes, np.dtype[Any]], int] = {}
        self._kernels: dict[Any, Any] = {}

    def spec(self, node: int) -> Spec:
        """Return the spec of a node."""
        return self.recipe.nodes[node].spec

    def kernel(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the kernel of a key, made at its first use in this program."""
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = make()
        return kernel

    def number(self, value: float, dtype: np.dtype[Any] = _FLOAT64) -> int:
        """Return the node of a constant number."""
        key = (struct.pack("d", value), dtype)  # by bits: -0.0 and nan are keys of their own
        if key not in self._numbers:
            spec = intern_spec((), (), dtype, (), 1)
            self.recipe.nodes.append(Node(spec, constant=np.array(value, dtype)))
            self._numbers[key] = len(self.recipe.nodes) - 1
        return self._numbers[key]

    def constant(self, array: np.ndarray[Any, Any]) -> int:
        """Return a new node for a constant array."""
        self.recipe.nodes.append(Node(spec_of(array), constant=array))
        return len(self.recipe.nodes) - 1

    def temporary(self, shape: Strides, dtype: np.dtype[Any]) -> int:
        """Return a new node for a dense intermediate."""
        strides = dense(shape, dtype.itemsize)
        self.recipe.nodes.append(Node(intern_spec(shape, strides, dtype, strides, math.prod(shape))))
        return len(self.recipe.nodes) - 1

    def operand(self, operand: Any, dtype: np.dtype[Any]) -> int:
        """Return an operand as a node of this dtype, cast if it has another."""
        if not isinstance(operand, NodeRef):
            return self.number(operand, dtype)
        return operand.node if self.spec(operand.node).dtype == dtype else self.cast(operand.node, dtype)

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

        def loop() -> Loop:
            shape = b.shape if strides is None else a.shape
            operands = (
                Operand("target", b.dtype, 0, b.strides if strides is None else strides, offset),
                Operand("x", a.dtype, 1, broadcast(a.shape, a.strides, shape)),
            )
            return Loop(same, shape, operands, pullback=False, adds=adds)

        kernel = self.kernel((a, b, strides, offset, adds), loop)
        self.tasks.append(Call(kernel, (Place(target), Place(source))))

    def ufunc(self, ufunc: Any, operands: tuple[Any, ...], result: int) -> None:
        """Run a ufunc in the dtype that NumPy would choose."""
        out = self.spec(result)
        kinds = [self.spec(o.node).dtype if isinstance(o, NodeRef) else type(o) for o in operands]
        dtypes = ufunc.resolve_dtypes((*(np.dtype(bool) if kind is bool else kind for kind in kinds), None))
        nodes = [self.operand(o, dtype) for o, dtype in zip(operands, dtypes[:-1], strict=True)]
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
