"""Instructions of a program as statements, by the kinds of their records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kernels.foundation.specs import Strides, broadcast, is_dense, part_of
from kernels.kinds.custom import Guard
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.reduction import Contraction, Reduction, Select, counted
from kernels.kinds.routine import Routine
from kernels.kinds.views import Copy, Gather, Join, Write
from kernels.programs.fusing import statements as fused
from kernels.programs.fusing.called_instructions import called, product, wanted_of
from kernels.programs.fusing.composed_operations import composed, evenly, first
from kernels.programs.fusing.statements import FLOATS, INT64, AnyStatement, mapped
from kernels.programs.rolled_program import Index, Numbers, Ref, RolledInstruction, RolledProgram, Uncompiled
from kernels.rules.rows import LARGEST_LOOP, matrices
from kernels.rules.scalar_loops import spread

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
    op = instruction.op
    results = () if instruction.result < 0 else (fused.ref_to_all(program, instruction.result, wanted=False),)
    for operand in (*instruction.operands, instruction.target, *results):
        if isinstance(operand, Ref) and operand.spec.dtype not in _DTYPES:
            raise Uncompiled(f"{op.name} of {operand.spec.dtype}")
    maker = _MAKERS.get(type(op))
    if maker is None:
        raise Uncompiled(f"{op.name} is run by the interpreter")
    return maker(instruction, program)  # type: ignore[no-any-return]


def _elementwise(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    op = instruction.op
    assert isinstance(op, Elementwise)
    target = fused.ref_to_all(program, instruction.result, wanted=instruction.form is not None)
    operands, made = instruction.operands, list[AnyStatement]()
    kinds = {o.spec.dtype for o in operands[op.condition :] if isinstance(o, Ref)}
    if len(kinds) > 1:
        widest, loop = np.result_type(*kinds), program.values[instruction.result].loop
        if widest not in FLOATS:
            raise Uncompiled(f"{op.name} of several dtypes")
        floats = [_as_float(o, widest, loop, program, made) for o in operands[op.condition :]]
        operands, kinds = (*operands[: op.condition], *floats), {widest}
    numeric = kinds.pop() if kinds else target.spec.dtype
    if numeric in FLOATS and target.spec.dtype not in (numeric, fused.BOOL):
        raise Uncompiled(f"{op.name} of {numeric} gives {target.spec.dtype}")
    if numeric == fused.FLOAT32 and target.spec.dtype == fused.BOOL and any(isinstance(o, Numbers) for o in operands):
        raise Uncompiled(f"{numeric} compared with numbers that may be constants in {fused.FLOAT64}")
    if numeric == INT64 and instruction.params:
        raise Uncompiled(f"{op.name} of integers")
    if numeric == INT64:
        operation, operands = fused.of_integers(op), tuple([_integer(o, program) for o in operands])
    else:
        operation = fused.elementwise(op, instruction.params, numeric)
    shape, strides = target.spec.shape, target.spec.strides
    return [*made, mapped(operation, shape, operands, target, strides, wanted_of(instruction))]


def _as_float(operand: Any, dtype: np.dtype[Any], loop: int, program: RolledProgram, made: list[AnyStatement]) -> Any:
    """Return an operand as floats of a dtype."""
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


def _copy(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    target = fused.ref_to_all(program, instruction.result, wanted=instruction.form is not None)
    (operand,), operation = instruction.operands, fused.COPY
    if isinstance(operand, Ref) and (operand.spec.dtype != target.spec.dtype or operand.spec.dtype == INT64):
        cast = fused.CONVERSIONS.get((operand.spec.dtype, target.spec.dtype))
        if cast is None or (target.wanted and cast.pullbacks[0] is None):
            raise Uncompiled(f"a cast of {operand.spec.dtype}")
        operation = cast
    return [mapped(operation, target.spec.shape, (operand,), target, target.spec.strides, wanted_of(instruction))]


def _write(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    op, target = instruction.op, instruction.target
    assert isinstance(op, Write)
    assert target is not None
    shape, strides, places = target.spec.shape, target.spec.strides, None
    value, *old = instruction.operands
    if instruction.params:
        places = _places_of(instruction.params, adds=op.adds)
        shape, strides = places.shape, (0,) * places.ndim
    elif old and program.values[target.value].written:  # places: what was there before is an operand of versions
        (index,), old, shape = old, [], old[0].spec.shape
        places, strides = fused.Access(index, index.spec.strides), (0,) * len(shape)
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


def _places_of(params: tuple[Any, ...], *, adds: bool) -> np.ndarray[Any, Any]:
    """Return the places that are written; Uncompiled where the order of writes matters."""
    memory, gradient = params
    places = np.ascontiguousarray(memory, np.int64)
    if memory is not gradient:
        raise Uncompiled("a write to places that are others in the gradient")
    if not adds and len(np.unique(places)) < places.size:
        raise Uncompiled("several writes to one place")
    return places


def _join(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    axis, new = instruction.params
    result = fused.ref_to_all(program, instruction.result, wanted=instruction.form is not None)
    strides, start, made = list(result.spec.strides), 0, []
    stride = strides.pop(axis) if new else strides[axis]
    if any(operand.spec.dtype != result.spec.dtype for operand in instruction.operands):
        raise Uncompiled("arrays of several dtypes side by side")
    for operand, count in _in_steps(instruction.operands):
        width = 1 if new else operand.spec.shape[axis]
        if operand.spec.size:
            target = result._replace(
                offset=Index(start * stride), spec=part_of(operand.spec, operand.spec.shape, tuple(strides))
            )
            shape = (count, *operand.spec.shape)
            source = fused.Access(
                operand, (0, *operand.spec.strides), None, (1, *(0 for _ in strides)) if count > 1 else ()
            )
            onto = (width * stride, *strides)
            made.append(mapped(fused.COPY, shape, (source,), target, onto, (operand.wanted,)))
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


def _reduction(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    op, (axes, keepdims) = instruction.op, instruction.params
    (operand,) = instruction.operands
    assert isinstance(op, Reduction)
    parts = op.parts
    if op.selects and op.ufunc in (np.maximum, np.minimum):
        parts = partial(evenly, largest=op.ufunc is np.maximum, pullback=op.pullback[0])
    is_float = isinstance(operand, Ref) and operand.spec.dtype in FLOATS
    if is_float and program.values[instruction.result].spec.dtype != operand.spec.dtype:
        raise Uncompiled(f"{op.name} in another dtype")
    if parts is not None and is_float:
        into = fused.ref_to_all(program, instruction.result, wanted=operand.wanted)
        strides = _with_dims(into.spec.strides, len(operand.spec.shape), axes, keepdims=keepdims)
        return composed(parts, (operand,), {"axes": axes}, fused.Access(into, strides), program)
    if isinstance(operand, Ref) and not is_float:
        return _integers_reduced(instruction, operand, program)
    if op.ufunc is not np.add or not isinstance(operand, Ref):
        raise Uncompiled(f"{op.name} is run by the interpreter")
    result = instruction.result
    shape, wanted = operand.spec.shape, wanted_of(instruction)
    total = fused.new_value(program, result) if op.scale else result
    into = fused.ref_to_all(program, total, wanted=instruction.form is not None)
    strides = spread(into.spec.strides, len(shape), axes, keepdims)
    made = [mapped(fused.COPY, shape, (operand,), into, strides, wanted, reduces=np.add)]
    if op.scale:
        mean = fused.ref_to_all(program, result, wanted=instruction.form is not None)
        divided = (into, float(counted(shape, axes)))
        made.append(mapped(fused.SCALED, mean.spec.shape, divided, mean, mean.spec.strides, (wanted[0], False)))
    return made


def _integers_reduced(instruction: RolledInstruction, operand: Ref, program: RolledProgram) -> list[AnyStatement]:
    """Return a number of flags, or an extremum of integers, as statements."""
    op, (axes, keepdims) = instruction.op, instruction.params
    target = fused.ref_to_all(program, instruction.result, wanted=False)
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


def _select(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    op, (axis, keepdims, *of_places) = instruction.op, instruction.params
    (operand,) = instruction.operands
    assert isinstance(op, Select)
    if of_places or not isinstance(operand, Ref) or operand.spec.dtype not in FLOATS or not operand.spec.shape:
        raise Uncompiled("a place of an extremum")
    into = fused.ref_to_all(program, instruction.result, wanted=operand.wanted)
    strides = _with_dims(into.spec.strides, len(operand.spec.shape), (axis,), keepdims=keepdims)
    parts = partial(first, largest=op.locate is np.argmax)
    return composed(parts, (operand,), {"axis": axis}, fused.Access(into, strides), program)


def _with_dims(strides: Strides, rank: int, axes: Strides, *, keepdims: bool) -> Strides:
    """Return the strides of a reduction's result with the dims of 1 that it has, or would have."""
    remaining = iter(strides)
    return tuple([next(remaining) if keepdims or axis not in axes else 0 for axis in range(rank)])


def _routine(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    op, refs = instruction.op, instruction.operands
    assert isinstance(op, Routine)
    into = fused.ref_to_all(program, instruction.result, wanted=any(wanted_of(instruction)))
    dtypes = [operand.spec.dtype if isinstance(operand, Ref) else None for operand in refs]
    flags = into.spec.dtype == fused.BOOL and all(dtype in (*FLOATS, fused.BOOL) for dtype in dtypes)
    same = into.spec.dtype in FLOATS and all(dtype == into.spec.dtype for dtype in dtypes)
    if op.parts is None or not (same or flags) or instruction.params[1:]:
        raise Uncompiled(f"{op.name} is run by the interpreter")
    target = fused.Access(into, into.spec.strides)
    return composed(op.parts, refs, dict(instruction.params[0]), target, program)


def _contraction(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    a, b = instruction.operands
    if not isinstance(a, Ref) or not isinstance(b, Ref) or a.spec.dtype not in FLOATS or b.spec.dtype != a.spec.dtype:
        raise Uncompiled("a product that is no matrix product of floats")
    target = fused.ref_to_all(program, instruction.result, wanted=instruction.form is not None)
    (m, k, n), left, right, result = matrices(
        a.spec.shape, a.spec.strides, b.spec.shape, b.spec.strides, target.spec.strides
    )
    if m * k * n > LARGEST_LOOP:
        return product(instruction, program)
    operands = (fused.Access(a, (left[0], 0, left[1])), fused.Access(b, (0, right[1], right[0])))
    strides = (result[0], result[1], 0)
    return [mapped(fused.PRODUCT, (m, n, k), operands, target, strides, wanted_of(instruction), reduces=np.add)]


def _gather(instruction: RolledInstruction, program: RolledProgram) -> list[AnyStatement]:
    target = fused.ref_to_all(program, instruction.result, wanted=instruction.form is not None)
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


def _guard(instruction: RolledInstruction, program: RolledProgram) -> list[fused.GuardStatement]:
    del program
    x, expected = instruction.operands
    if not isinstance(x, Ref) or not isinstance(expected, Ref) or x.spec.size != 1:
        raise Uncompiled("a guard of an array")
    return [fused.GuardStatement((fused.Access(x, ()), fused.Access(expected, ())), ())]


_MAKERS: dict[type, Any] = {
    Elementwise: _elementwise,
    Copy: _copy,
    Write: _write,
    Join: _join,
    Reduction: _reduction,
    Routine: _routine,
    Select: _select,
    Contraction: _contraction,
    Gather: _gather,
    Guard: _guard,
}
"""What makes statements of an instruction, by its kind."""
