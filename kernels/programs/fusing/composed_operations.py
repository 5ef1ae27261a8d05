"""Operations that records describe as several: run on traced arrays, these become statements."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from kernels.foundation.specs import Strides, broadcast, part_of
from kernels.kinds.elementwise import Elementwise
from kernels.native.memory import where
from kernels.programs.fusing import statements as fused
from kernels.programs.fusing.statements import COPY, Access, AnyStatement, mapped
from kernels.programs.rolled_program import Ref, RolledProgram, Uncompiled
from kernels.rules.op import OPS
from kernels.rules.symbols import cut


class StatementTrace:
    """The statements of one operation on floats of a dtype, appended as its parts run."""

    def __init__(self, program: RolledProgram, loop: int, dtype: np.dtype[Any]) -> None:
        self.program, self.loop, self.dtype = program, loop, dtype
        self.statements: list[AnyStatement] = []

    def value(self, shape: Strides, dtype: np.dtype[Any], *, wanted: bool) -> Ref:
        """Return a new value, dense."""
        return fused.dense_value(self.program, shape, dtype, self.loop, wanted=wanted)

    def constant(self, array: np.ndarray[Any, Any]) -> TracedArray:
        """Return a constant array."""
        return TracedArray(fused.constant_value(self.program, array.astype(self.dtype)), self)


_NOTHING = np.zeros(1, np.int8)
"""Stands for memory where only places in it are computed."""
Computed: TypeAlias = tuple[fused.ScalarOperation, tuple[Ref, ...], tuple[bool, ...]]
"""An operation, its operands, and which of these have gradients."""


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the program on which parts run: operators, ufuncs, and sums and maxima that keep their dims."""

    def __init__(self, ref: Ref, trace: StatementTrace) -> None:
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
        dtype = self.trace.dtype
        if isinstance(op.ufunc, np.ufunc):  # masks are the results of some
            dtype = op.ufunc.resolve_dtypes((*[dtype] * op.ufunc.nin, None))[-1]
        wanted = tuple([isinstance(operand, Ref) and operand.wanted for operand in operands])
        target = self.trace.value(shape, dtype, wanted=any(wanted))
        numeric = [operand.spec.dtype for operand in operands[op.condition :] if isinstance(operand, Ref)]
        operation = fused.elementwise(op, (), numeric[0] if numeric else self.trace.dtype)
        self.trace.statements.append(mapped(operation, shape, operands, target, target.spec.strides, wanted))
        return TracedArray(target, self.trace)

    @property
    def shape(self) -> Strides:
        """The extents."""
        return self.ref.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """What its elements are."""
        return self.ref.spec.dtype

    def __getitem__(self, key: tuple[int | slice | None, ...]) -> TracedArray:
        """Return a part, by integers, slices and None alone, after ``...`` or not."""
        whole = np.lib.stride_tricks.as_strided(_NOTHING, self.shape, self.ref.spec.strides)  # views, never read
        part = whole[key if Ellipsis in key else (*key, ...)]
        start = where(part) - where(whole)
        spec = part_of(self.ref.spec, part.shape, part.strides)
        offset = self.ref.offset._replace(constant=self.ref.offset.constant + start)
        return TracedArray(self.ref._replace(offset=offset, spec=spec), self.trace)

    def give_up_where(self) -> None:
        """Have the program give up where an element, of bools, is true."""
        flags = np.where(self, 1.0, 0.0)
        axes = tuple(range(len(self.shape)))
        largest = np.maximum.reduce(flags, axis=axes, keepdims=True) if axes else flags
        zero = self.trace.constant(np.zeros(1))
        whole = (Access(largest[(0,) * len(axes)].ref, ()), Access(zero[0,].ref, ()))
        self.trace.statements.append(fused.GuardStatement(whole, (), is_recorded=False))

    def _reduced(self, ufunc: np.ufunc, axis: Any = None, keepdims: bool = False, **_: Any) -> TracedArray:
        axes = (axis,) if isinstance(axis, int) else tuple(axis)
        axes = tuple([a % len(self.ref.spec.shape) for a in axes])
        if not keepdims or ufunc not in (np.add, np.maximum):
            raise Uncompiled(f"np.{ufunc.__name__}.reduce in parts of an operation")
        return self._over((COPY, (self.ref,), (self.ref.wanted and ufunc is np.add,)), axes, ufunc)

    def reduced_by(
        self, operation: fused.ScalarOperation, arrays: tuple[TracedArray, ...], axes: Strides
    ) -> TracedArray:
        """Return what an operation gives over axes of this array: the same for all of an element."""
        refs = tuple([array.ref for array in arrays])
        wanted = tuple([rule is not None and ref.wanted for rule, ref in zip(operation.pullbacks, refs, strict=True)])
        return self._over((operation, refs, wanted), axes, np.positive)

    def _over(self, computed: Computed, axes: Strides, ufunc: np.ufunc) -> TracedArray:
        """Return what is computed over this array's shape, reduced over axes."""
        operation, operands, wanted = computed
        shape = self.ref.spec.shape
        reduced = tuple([1 if a in axes else n for a, n in enumerate(shape)])
        target = self.trace.value(reduced, self.trace.dtype, wanted=any(wanted))
        strides = tuple([0 if a in axes else s for a, s in enumerate(target.spec.strides)])
        self.trace.statements.append(mapped(operation, shape, operands, target, strides, wanted, reduces=ufunc))
        return TracedArray(target, self.trace)

    def constant(self) -> TracedArray:
        """Return the same without a gradient."""
        return TracedArray(self.ref._replace(wanted=False), self.trace)


def composed(
    parts: Any, operands: tuple[Ref, ...], params: dict[str, Any], target: Access, program: RolledProgram
) -> list[AnyStatement]:
    """Return the statements of an operation, whose result, with dims of 1 kept, goes to ``target``.

    Parts return an array, or lists of what is side by side along the last axes; NotImplemented where they do not suit.
    """
    dtype = target.ref.spec.dtype
    trace = StatementTrace(
        program, program.values[target.ref.value].loop, fused.FLOAT64 if dtype == fused.BOOL else dtype
    )
    result = parts(*[TracedArray(operand, trace) for operand in operands], **params)
    if result is NotImplemented:
        raise Uncompiled("too large for its parts")
    _put(result, target.ref, target.strides, trace)
    return trace.statements


def _put(result: Any, target: Ref, strides: Strides, trace: StatementTrace) -> None:
    """Copy a result, or lists of results, to where it goes."""
    depth, entry = 0, result
    while isinstance(entry, list):
        depth, entry = depth + 1, entry[0]
    if not depth:
        source = Access(result.ref, broadcast(result.shape, result.ref.spec.strides, result.shape))
        trace.statements.append(mapped(COPY, result.shape, (source,), target, strides, (result.ref.wanted,)))
        return
    axis = len(strides) - depth
    for k, part in enumerate(result):
        start = target.offset._replace(constant=target.offset.constant + k * strides[axis])
        _put(part, target._replace(offset=start), (*strides[:axis], *strides[axis + 1 :]), trace)


# Extrema over axes as statements: a pass finds the extremum, another says where it stands, for the gradient.

Axes = tuple[int, ...]


def evenly(x: TracedArray, axes: Axes, *, largest: bool, pullback: Any) -> TracedArray:
    """Return extrema whose ties, nan included, share the gradient as the record's ``pullback`` says."""
    fixed = x.constant()
    y = _extremum(fixed, axes, largest=largest)
    if not x.ref.wanted:
        return y
    ties = np.add.reduce(np.where(_is_extremum(fixed, y), 1.0, 0.0), axis=axes, keepdims=True)
    operation = _picked(("x", "top", "n"), fused.rule_of(pullback, x.dtype))
    return x.reduced_by(operation, (x, y, ties), axes)


def first(x: TracedArray, axis: int, *, largest: bool) -> TracedArray:
    """Return extrema along an axis; the first of equals, a nan if there is one, has the gradient."""
    fixed, axes = x.constant(), (axis,)
    y = _extremum(fixed, axes, largest=largest)
    if not x.ref.wanted:
        return y
    count = x.ref.spec.shape[axis]
    if count > 1 / np.finfo(x.dtype).eps:
        raise Uncompiled(f"places that are no numbers in {x.dtype}")
    shape = [1] * len(x.ref.spec.shape)
    shape[axis] = count
    places = x.trace.constant(np.arange(float(count)).reshape(shape))
    place = -np.maximum.reduce(np.where(_is_extremum(fixed, y), -places, -math.inf), axis=axes, keepdims=True)
    rule = fused.rule_of(lambda g, i, n: cut(i != n, g), x.dtype)
    return x.reduced_by(_picked(("x", "top", "i", "n"), rule), (x, y, places, place), axes)


def _picked(inputs: tuple[str, ...], pullback: fused.ScalarRule) -> fused.ScalarOperation:
    """Return the operation whose result is ``top``, with the gradient that ``x`` has of it."""
    return fused.scalar_operation("picked", inputs, "{top}", 0, pullback, *[None] * (len(inputs) - 1))


def _extremum(x: Any, axes: Axes, *, largest: bool) -> Any:
    """Return extrema with dims of 1 in the place of axes: nan where there is one."""
    known = x == x
    top = np.maximum.reduce(np.where(known, x if largest else -x, -math.inf), axis=axes, keepdims=True)
    unknown = np.add.reduce(np.where(known, 0.0, 1.0), axis=axes, keepdims=True)
    return np.where(unknown > 0.0, math.nan, top if largest else -top)


def _is_extremum(x: Any, y: Any) -> Any:
    return np.logical_or(x == y, np.logical_and(x != x, y != y))
