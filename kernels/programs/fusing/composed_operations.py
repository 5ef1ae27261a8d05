"""Operations that records describe as several: run on traced arrays, these become statements."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.arrays.specs import Strides, broadcast, dense, intern_spec
from kernels.kinds.elementwise import Elementwise
from kernels.programs.fusing.scalar_rules import COPY, FLOAT64, elementwise
from kernels.programs.fusing.statements import Access, Statement, mapped
from kernels.programs.rolling.rolled_program import Index, Ref, RolledProgram, Uncompiled, Value
from kernels.records.op import OPS


class Trace:
    """The statements of one operation, appended as its parts run."""

    def __init__(self, program: RolledProgram, loop: int) -> None:
        self.program, self.loop = program, loop
        self.statements: list[Statement] = []

    def value(self, shape: Strides, dtype: np.dtype[Any], *, wanted: bool) -> Ref:
        """Return a new value, dense."""
        strides = dense(shape, dtype.itemsize)
        size = int(np.prod(shape, dtype=np.int64))
        spec = intern_spec(shape, strides, dtype, strides, size)
        self.program.values.append(Value(spec, loop=self.loop, differentiable=wanted))
        return Ref(len(self.program.values) - 1, Index(0), spec, wanted)


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the program on which parts run: operators, ufuncs, and sums and maxima that keep their dims."""

    def __init__(self, ref: Ref, trace: Trace) -> None:
        self.ref, self.trace = ref, trace

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> TracedArray:
        if method == "reduce":
            return self._reduced(ufunc, **kwargs)
        op = OPS.get(ufunc.__name__)
        if method != "__call__" or kwargs or not isinstance(op, Elementwise):
            raise Uncompiled(f"np.{ufunc.__name__}.{method} in parts of an operation")
        return self._mapped(op, inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> TracedArray:
        if func is not np.where or kwargs:
            raise Uncompiled(f"np.{func.__name__} in parts of an operation")
        op = OPS[func.__name__]
        assert isinstance(op, Elementwise)
        return self._mapped(op, args)

    def _mapped(self, op: Elementwise, inputs: tuple[Any, ...]) -> TracedArray:
        operands = tuple([x.ref if isinstance(x, TracedArray) else float(x) for x in inputs])
        refs = [operand for operand in operands if isinstance(operand, Ref)]
        shape = np.broadcast_shapes(*(ref.spec.shape for ref in refs))
        dtype = _result_of(op.ufunc)
        wanted = tuple([isinstance(operand, Ref) and operand.wanted for operand in operands])
        target = self.trace.value(shape, dtype, wanted=any(wanted))
        operation = elementwise(op, (), dtype, FLOAT64)
        self.trace.statements.append(mapped(operation, shape, operands, target, target.spec.strides, wanted))
        return TracedArray(target, self.trace)

    def _reduced(self, ufunc: np.ufunc, axis: Any = None, keepdims: bool = False, **_: Any) -> TracedArray:
        axes = (axis,) if isinstance(axis, int) else tuple(axis)
        axes = tuple([a % len(self.ref.spec.shape) for a in axes])
        if not keepdims or ufunc not in (np.add, np.maximum):
            raise Uncompiled(f"np.{ufunc.__name__}.reduce in parts of an operation")
        shape = self.ref.spec.shape
        reduced = tuple([1 if a in axes else n for a, n in enumerate(shape)])
        wanted = self.ref.wanted and ufunc is np.add
        target = self.trace.value(reduced, FLOAT64, wanted=wanted)
        strides = tuple([0 if a in axes else s for a, s in enumerate(target.spec.strides)])
        made = mapped(COPY, shape, (self.ref,), target, strides, (wanted,), reduces=ufunc)
        self.trace.statements.append(made)
        return TracedArray(target, self.trace)


def _result_of(function: Any) -> np.dtype[Any]:
    """Return the dtype that a function has of floats: masks are the results of some ufuncs."""
    if not isinstance(function, np.ufunc):
        return FLOAT64
    return function.resolve_dtypes((*[FLOAT64] * function.nin, None))[-1]


def composed(parts: Any, operand: Ref, params: dict[str, Any], target: Access, program: RolledProgram) -> Any:
    """Return the statements of an operation on one array, whose result, with dims of 1 kept, goes to ``target``."""
    trace = Trace(program, program.values[target.ref.value].loop)
    result = parts(TracedArray(operand, trace), **params)
    shape = result.ref.spec.shape
    source = Access(result.ref, broadcast(shape, result.ref.spec.strides, shape))
    trace.statements.append(mapped(COPY, shape, (source,), target.ref, target.strides, (result.ref.wanted,)))
    return trace.statements
