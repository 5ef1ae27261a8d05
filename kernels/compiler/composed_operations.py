"""Statements of one instruction: printed from its record, or composed of NumPy's functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from kernels.compiler import statements as fused
from kernels.compiler.called_instructions import called, called_directly, guard_of_array, of_nothing, product, wanted_of
from kernels.compiler.statements import COPY, FLOATS, INT64, Access, AnyStatement, mapped
from kernels.foundation.specs import Strides, broadcast, is_dense, part_of
from kernels.kinds.elementwise import Contraction, Elementwise, Reduction, Select, counted
from kernels.kinds.routine import Guard, Routine
from kernels.kinds.views import Copy, Gather, Join, Write
from kernels.native.memory import where
from kernels.programs.rolled_program import Index, Numbers, Ref, RolledInstruction, RolledProgram, Uncompiled
from kernels.rules.loop_printer import LARGEST_LOOP, matrices
from kernels.rules.op import OPS, cut
from kernels.rules.scalar_loops import spread

# Operations that records describe as several: run on traced arrays, these become statements.


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


_NOTHING = np.zeros(1, np.int8)  # stands for memory where only places in it are computed
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
        if func is np.stack:
            return self._stacked(*args, **kwargs)
        if func is not np.where or kwargs:
            raise Uncompiled(f"np.{func.__name__} in parts of an operation")
        op = OPS[func.__name__]
        assert isinstance(op, Elementwise)
        return self._mapped(op, args)

    def _stacked(self, parts: list[TracedArray], axis: int) -> TracedArray:
        """Return arrays of one shape side by side along a new axis."""
        shape, wanted = list(self.shape), any(part.ref.wanted for part in parts)
        shape.insert(axis % (len(shape) + 1), len(parts))
        target = self.trace.value(tuple(shape), self.dtype, wanted=wanted)
        strides = list(target.spec.strides)
        stride = strides.pop(axis)
        for k, part in enumerate(parts):
            place = target._replace(offset=target.offset._replace(constant=k * stride))
            _put(part, place, tuple(strides), self.trace)
        return TracedArray(target, self.trace)

    def _mapped(self, op: Elementwise, inputs: tuple[Any, ...]) -> TracedArray:
        arrays = [self.trace.constant(x) if isinstance(x, np.ndarray) else x for x in inputs]
        operands = tuple([x.ref if isinstance(x, TracedArray) else float(x) for x in arrays])
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
) -> list[AnyStatement] | None:
    """Return the statements of an operation, whose result, with dims of 1 kept, goes to ``target``.

    Parts return an array, or lists of what is side by side along the last axes; NotImplemented where they do not suit,
    which is None here.
    """
    dtype = target.ref.spec.dtype
    trace = StatementTrace(
        program, program.values[target.ref.value].loop, fused.FLOAT64 if dtype == fused.BOOL else dtype
    )
    result = parts(*[TracedArray(operand, trace) for operand in operands], **params)
    if result is NotImplemented:
        return None
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
    places, place = _place(fixed, y, axis)
    rule = fused.rule_of(lambda g, i, n: cut(i != n, g), x.dtype)
    return x.reduced_by(_picked(("x", "top", "i", "n"), rule), (x, y, places, place), axes)


def first_place(x: TracedArray, axis: int, *, largest: bool) -> TracedArray:
    """Return where the extrema stand along an axis."""
    fixed = x.constant()
    return _place(fixed, _extremum(fixed, (axis,), largest=largest), axis)[1]


def _place(x: TracedArray, y: TracedArray, axis: int) -> tuple[TracedArray, TracedArray]:
    """Return the places along an axis, and those where x is first y."""
    count = x.shape[axis]
    if count > 1 / np.finfo(x.dtype).eps:
        raise Uncompiled(f"places that are no numbers in {x.dtype}")
    shape = [1] * len(x.shape)
    shape[axis] = count
    places = x.trace.constant(np.arange(float(count)).reshape(shape))
    return places, -np.maximum.reduce(np.where(_is_extremum(x, y), -places, -math.inf), axis=(axis,), keepdims=True)


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


# Instructions of a program as statements, by the kinds of their records.

_DTYPES = (*FLOATS, fused.BOOL, INT64)


def statements(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    """Return an instruction as statements; raise Uncompiled for what is none."""
    count = len(program.values)
    try:
        made = _fused(instruction, program)
    except Uncompiled as refused:
        del program.values[count:]
        try:
            made = called(instruction, program)
        except Uncompiled as uncalled:
            reasons = dict.fromkeys((refused.reason, uncalled.reason))
            raise Uncompiled("; ".join(reasons), instruction.line) from None
    for statement in made:
        statement.line = instruction.line
    return made


def _fused(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    """Return an instruction as statements that fuse with others."""
    op, target = instruction.op, instruction.target  # of a write
    if instruction.result >= 0:
        target = fused.ref_to_all(program, instruction.result, wanted=instruction.form is not None)
    sizes = {operand.spec.size for operand in instruction.operands if isinstance(operand, Ref)}
    if target is not None and not target.spec.size:
        return []
    if instruction.result >= 0 and sizes == {0}:
        return [of_nothing(instruction, target, program)]
    made = list[AnyStatement]()
    narrow = [isinstance(operand, Ref) and operand.spec.dtype == fused.INT32 for operand in instruction.operands]
    if any(narrow) and instruction.result >= 0:
        loop, pairs = program.values[instruction.result].loop, zip(instruction.operands, narrow, strict=True)
        operands = [_as_dtype(o, INT64, loop, program, made) if is_narrow else o for o, is_narrow in pairs]
        instruction = replace(instruction, operands=tuple(operands))
    for operand in (*instruction.operands, None if isinstance(op, Copy) else target):
        if isinstance(operand, Ref) and operand.spec.dtype not in _DTYPES:
            raise Uncompiled(f"{op.name} of {operand.spec.dtype}")
    maker = _MAKERS.get(type(op))
    if maker is None:
        raise Uncompiled(f"{op.name} is run by the interpreter")
    return [*made, *maker(instruction, target, program)]


def _elementwise(instruction: RolledInstruction, target: Any, program: RolledProgram) -> list[AnyStatement]:
    op = instruction.op
    assert isinstance(op, Elementwise)
    operands, made = instruction.operands, list[AnyStatement]()
    kinds = {o.spec.dtype for o in operands[op.condition :] if isinstance(o, Ref)}
    if kinds == {fused.BOOL} and target.spec.dtype == INT64:
        kinds.add(INT64)  # truths with whole numbers
    if len(kinds) > 1:
        widest, loop = np.result_type(*kinds), program.values[instruction.result].loop
        if widest not in (*FLOATS, INT64):
            raise Uncompiled(f"{op.name} of several dtypes")
        alike = [_as_dtype(o, widest, loop, program, made) for o in operands[op.condition :]]
        operands, kinds = (*operands[: op.condition], *alike), {widest}
    numeric = kinds.pop() if kinds else target.spec.dtype
    if numeric in FLOATS and target.spec.dtype not in (numeric, fused.BOOL):
        raise Uncompiled(f"{op.name} of {numeric} gives {target.spec.dtype}")
    if numeric == fused.FLOAT32 and target.spec.dtype == fused.BOOL and any(isinstance(o, Numbers) for o in operands):
        raise Uncompiled(f"{numeric} compared with numbers that may be constants in {fused.FLOAT64}")
    if numeric == INT64 and instruction.params:
        raise Uncompiled(f"{op.name} of integers")
    if numeric == INT64:
        operation = fused.of_integers(op, operands)
        operands = tuple([_integer(o, program) for o in operands])
    else:
        operation = fused.elementwise(op, instruction.params, numeric)
    shape, strides = target.spec.shape, target.spec.strides
    return [*made, mapped(operation, shape, operands, target, strides, wanted_of(instruction))]


def _as_dtype(operand: Any, dtype: np.dtype[Any], loop: int, program: RolledProgram, made: list[AnyStatement]) -> Any:
    """Return an operand in a wider dtype."""
    if not isinstance(operand, Ref) or operand.spec.dtype == dtype:
        return operand
    operation = fused.CONVERSIONS.get((operand.spec.dtype, dtype))
    if operation is None:
        raise Uncompiled(f"a cast of {operand.spec.dtype}")
    copy = fused.dense_value(program, operand.spec.shape, dtype, loop, wanted=operand.wanted)
    made.append(mapped(operation, copy.spec.shape, (operand,), copy, copy.spec.strides, (operand.wanted,)))
    return copy


def _integer(operand: Any, program: RolledProgram) -> Any:
    """Return an operand of an operation of integers: numbers, which are whole, a single one as a constant."""
    if isinstance(operand, Ref):
        return operand
    numbers = np.asarray(operand.table if isinstance(operand, Numbers) else operand)
    if not np.array_equal(numbers, np.rint(numbers)):
        raise Uncompiled(f"integers and {operand}")
    return operand if isinstance(operand, Numbers) else fused.constant_value(program, np.array(int(operand)))


def _copy(instruction: RolledInstruction, target: Any, _: RolledProgram) -> list[AnyStatement]:
    (operand,), operation = instruction.operands, fused.COPY
    if isinstance(operand, Ref) and (operand.spec.dtype != target.spec.dtype or operand.spec.dtype == INT64):
        cast = fused.CONVERSIONS.get((operand.spec.dtype, target.spec.dtype))
        if cast is None or (target.wanted and cast.pullbacks[0] is None):
            raise Uncompiled(f"a cast of {operand.spec.dtype}")
        operation = cast
    return [mapped(operation, target.spec.shape, (operand,), target, target.spec.strides, wanted_of(instruction))]


def _write(instruction: RolledInstruction, target: Any, program: RolledProgram) -> list[AnyStatement]:
    op = instruction.op
    assert isinstance(op, Write)
    shape, strides, places = target.spec.shape, target.spec.strides, None
    value, *old = instruction.operands
    if instruction.params:
        memory, gradient = instruction.params
        places = np.ascontiguousarray(memory, np.int64)
        if memory is not gradient and places.size:
            raise Uncompiled("a write to places that are others in the gradient")
        if not op.adds and len(np.unique(places)) < places.size:
            raise Uncompiled("several writes to one place")
        shape, strides = places.shape, (0,) * places.ndim
    elif old and program.values[target.value].written:  # places: what was there before is an operand of versions
        (index,), old, shape = old, [], old[0].spec.shape
        places, strides = fused.Access(index, index.spec.strides), (0,) * len(shape)
    if 0 in shape:
        return []
    is_wanted = wanted_of(instruction)[:1]
    operation, operands, wanted = fused.COPY, (value,), is_wanted
    before = old[0] if old else target._replace(wanted=target.spec.dtype in FLOATS)
    assert isinstance(before, Ref)
    if isinstance(value, Ref) and value.spec.dtype != target.spec.dtype:
        raise Uncompiled(f"{value.spec.dtype} written to {target.spec.dtype}")
    clears = instruction.form is not None
    adds = op.adds and (bool(old) or program.values[target.value].written)  # not where the rest of a version is copied
    if adds or (old and not clears and before.wanted):
        read = before if places is None else fused.Access(before, strides, places)
        operation, operands, wanted = fused.ADDITION if adds else fused.PUT, (read, value), (before.wanted, *is_wanted)
    made = mapped(operation, shape, operands, target, strides, wanted, places=places)
    made.clears = clears
    return [made]


def _join(instruction: RolledInstruction, target: Any, _: RolledProgram) -> list[AnyStatement]:
    axis, new = instruction.params
    strides, start, made = list(target.spec.strides), 0, []
    stride = strides.pop(axis) if new else strides[axis]
    if any(operand.spec.dtype != target.spec.dtype for operand in instruction.operands):
        raise Uncompiled("arrays of several dtypes side by side")
    for operand, count in _in_steps(instruction.operands):
        width = 1 if new else operand.spec.shape[axis]
        if operand.spec.size:
            spec = part_of(operand.spec, operand.spec.shape, tuple(strides))
            part = target._replace(offset=Index(start * stride), spec=spec)
            shape = (count, *operand.spec.shape)
            source = fused.Access(
                operand, (0, *operand.spec.strides), None, (1, *(0 for _ in strides)) if count > 1 else ()
            )
            onto = (width * stride, *strides)
            made.append(mapped(fused.COPY, shape, (source,), part, onto, (operand.wanted,)))
        start += count * width
    return made


def _in_steps(operands: tuple[Any, ...]) -> Iterator[tuple[Ref, int]]:
    """Yield operands; of those that one step after another of a loop gave the first, and how many there are."""
    first, count = operands[0], 1
    for operand in operands[1:]:
        if _follows(first, operand, count):
            count += 1
        else:
            yield first, count
            first, count = operand, 1
    yield first, count


def _follows(first: Ref, other: Ref, count: int) -> bool:
    """Whether a reference is to what a loop gave so many steps later."""
    if not first.at or len(first.at) != len(other.at) or first.at[-1].terms or first.at[-1].table is not None:
        return False
    later = first.at[-1]._replace(constant=first.at[-1].constant + count)
    return other == first._replace(at=(*first.at[:-1], later))


def _reduction(instruction: RolledInstruction, target: Any, program: RolledProgram) -> list[AnyStatement]:
    op, (axes, keepdims) = instruction.op, instruction.params
    (operand,) = instruction.operands
    assert isinstance(op, Reduction)
    parts = op.parts
    if op.selects and op.ufunc in (np.maximum, np.minimum):
        parts = partial(evenly, largest=op.ufunc is np.maximum, pullback=op.pullback[0])
    is_float = isinstance(operand, Ref) and operand.spec.dtype in FLOATS
    if is_float and target.spec.dtype != operand.spec.dtype:
        raise Uncompiled(f"{op.name} in another dtype")
    if parts is not None and is_float:
        strides = spread(target.spec.strides, len(operand.spec.shape), axes, keepdims)
        into = fused.Access(target._replace(wanted=operand.wanted), strides)
        return composed(parts, (operand,), {"axes": axes}, into, program)
    if isinstance(operand, Ref) and not is_float:
        return _integers_reduced(instruction, operand, target, program)
    if op.ufunc is not np.add or not isinstance(operand, Ref):
        raise Uncompiled(f"{op.name} is run by the interpreter")
    shape, wanted = operand.spec.shape, wanted_of(instruction)
    into = target._replace(value=fused.new_value(program, target.value)) if op.scale else target
    strides = spread(into.spec.strides, len(shape), axes, keepdims)
    made = [mapped(fused.COPY, shape, (operand,), into, strides, wanted, reduces=np.add)]
    if op.scale:
        divided = (into, float(counted(shape, axes)))
        made.append(mapped(fused.SCALED, target.spec.shape, divided, target, target.spec.strides, (wanted[0], False)))
    return made


def _integers_reduced(
    instruction: RolledInstruction, operand: Ref, target: Ref, program: RolledProgram
) -> list[AnyStatement]:
    """Return a number of flags, or an extremum of integers, as statements."""
    op, (axes, keepdims) = instruction.op, instruction.params
    shape, dtype = operand.spec.shape, operand.spec.dtype
    assert isinstance(op, Reduction)
    known = op.ufunc is np.add if dtype == fused.BOOL else op.ufunc in (np.maximum, np.minimum)
    if target.spec.dtype != INT64 or op.scale or not known:
        raise Uncompiled(f"{op.name} of {dtype}")
    if op.ufunc is np.add:  # counted in floats, which are exact
        first, last, ufunc, middle = fused.CONVERSIONS[fused.BOOL, fused.FLOAT64], fused.WHOLE, np.add, fused.FLOAT64
    else:
        first = last = fused.CONVERSIONS[INT64, INT64] if op.ufunc is np.maximum else fused.TURNED
        ufunc, middle = fused.LARGEST_INTEGER, INT64
    spec = target.spec
    total = fused.dense_value(program, spec.shape, middle, program.values[target.value].loop)
    onto = spread(total.spec.strides, len(shape), axes, keepdims)
    return [
        mapped(first, shape, (operand,), total, onto, (False,), reduces=ufunc),
        mapped(last, spec.shape, (total,), target, spec.strides, (False,)),
    ]


def _select(instruction: RolledInstruction, target: Any, program: RolledProgram) -> list[AnyStatement]:
    op, (axis, keepdims, *of_places) = instruction.op, instruction.params
    (operand,) = instruction.operands
    assert isinstance(op, Select)
    if not isinstance(operand, Ref) or operand.spec.dtype not in FLOATS or not operand.spec.shape:
        raise Uncompiled("an extremum of integers, or of a number")
    into, largest, shape = target._replace(wanted=operand.wanted), op.locate is np.argmax, target.spec.shape
    if of_places:
        into = fused.dense_value(program, shape, operand.spec.dtype, program.values[target.value].loop)
    parts = partial(first_place if of_places else first, largest=largest)
    strides = spread(into.spec.strides, len(operand.spec.shape), (axis,), keepdims)
    made = composed(parts, (operand,), {"axis": axis}, fused.Access(into, strides), program)
    if of_places:
        made.append(mapped(fused.WHOLE, shape, (into,), target, target.spec.strides, (False,)))
    return made


def _routine(instruction: RolledInstruction, target: Any, program: RolledProgram) -> list[AnyStatement]:
    op, refs = instruction.op, instruction.operands
    assert isinstance(op, Routine)
    into = target._replace(wanted=any(wanted_of(instruction)))
    dtypes = [operand.spec.dtype if isinstance(operand, Ref) else None for operand in refs]
    flags = into.spec.dtype == fused.BOOL and all(dtype in (*FLOATS, fused.BOOL) for dtype in dtypes)
    same = into.spec.dtype in FLOATS and all(dtype == into.spec.dtype for dtype in dtypes)
    counted = into.spec.dtype == INT64 and all(dtype == fused.FLOAT64 for dtype in dtypes)
    if not (same or flags or counted) or instruction.params[1:]:
        raise Uncompiled(f"{op.name} is run by the interpreter")
    params = dict(instruction.params[0])
    shape, strides = into.spec.shape, into.spec.strides
    if counted and op.parts is not None:
        numbers = fused.dense_value(program, shape, fused.FLOAT64, program.values[into.value].loop)
        made = composed(op.parts, refs, params, fused.over_itself(numbers), program)
        if made is not None:
            return [*made, mapped(fused.WHOLE, shape, (numbers,), into, strides, (False,))]
    made = None if op.parts is None or counted else composed(op.parts, refs, params, fused.over_itself(into), program)
    if made is not None:
        return made
    direct = None if counted else op.direct
    function, numbers = ("", {}) if direct is None else direct(*[ref.spec.shape for ref in refs], **params)
    if not function:
        raise Uncompiled(f"{op.name} is run by the interpreter")
    return called_directly(instruction, program, function, numbers)


def _contraction(instruction: RolledInstruction, target: Any, program: RolledProgram) -> list[AnyStatement]:
    a, b = instruction.operands
    if not isinstance(a, Ref) or not isinstance(b, Ref) or a.spec.dtype not in FLOATS or b.spec.dtype != a.spec.dtype:
        raise Uncompiled("a product that is no matrix product of floats")
    (m, k, n), left, right, result = matrices(
        a.spec.shape, a.spec.strides, b.spec.shape, b.spec.strides, target.spec.strides
    )
    if m * k * n > LARGEST_LOOP:
        return product(instruction, program)
    operands = (fused.Access(a, (left[0], 0, left[1])), fused.Access(b, (0, right[1], right[0])))
    strides = (result[0], result[1], 0)
    return [mapped(fused.PRODUCT, (m, n, k), operands, target, strides, wanted_of(instruction), reduces=np.add)]


def _gather(instruction: RolledInstruction, target: Any, _: RolledProgram) -> list[AnyStatement]:
    source, *more = instruction.operands
    assert isinstance(source, Ref)
    shape, rank = target.spec.shape, len(target.spec.shape)
    if source.spec.dtype == INT64:
        raise Uncompiled("integers that are picked")
    if more:
        (index,) = more
        if not isinstance(index, Ref) or index.spec.dtype != INT64 or instruction.params or not is_dense(source.spec):
            raise Uncompiled("an index that is computed")
        places: Any = fused.Access(index, broadcast(index.spec.shape, index.spec.strides, shape))
    elif instruction.params[0] is not instruction.params[1]:
        raise Uncompiled("places that are others in the gradient")
    else:
        places = np.ascontiguousarray(instruction.params[0], np.int64)
    access = fused.Access(source, (0,) * rank, places)
    return [mapped(fused.COPY, shape, (access,), target, target.spec.strides, (source.wanted,))]


def _guard(instruction: RolledInstruction, _: Any, program: RolledProgram) -> list[AnyStatement]:
    x, expected = instruction.operands
    if not isinstance(x, Ref) or not isinstance(expected, Ref):
        raise Uncompiled("a guard of a number")
    if x.spec.size != 1:
        return guard_of_array(instruction, x, program) if x.spec.size else []
    return [fused.GuardStatement((fused.Access(x, ()), fused.Access(expected, ())), ())]


_MAKERS: dict[type, Any] = {
    Elementwise: _elementwise, Copy: _copy, Write: _write, Join: _join, Reduction: _reduction, Routine: _routine,
    Select: _select, Contraction: _contraction, Gather: _gather, Guard: _guard,
}  # fmt: skip
"""What makes statements of an instruction, by its kind."""
