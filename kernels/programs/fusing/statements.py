"""Statements over an iteration space: ``target[...] = operation(operands[...])``, or sums of that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernels.arrays.specs import Strides, broadcast, dense, intern_spec, spec_of
from kernels.foundation.data_classes import dataclass
from kernels.programs.fusing.native_call import NativeCall
from kernels.programs.fusing.scalar_rules import ScalarOperation
from kernels.programs.rolling.rolled_program import Index, Numbers, Ref, RolledProgram, Uncompiled, Value

Array = np.ndarray[Any, Any]


class Access(NamedTuple):
    """Elements of a value over a space: those of ``ref``, with the strides of the space's axes.

    With ``places``, int64 over the space, they are so many elements further: constants, or what the program computes.
    With ``steps`` they are what a loop's later steps gave: so many along each axis.
    """

    ref: Ref
    strides: Strides
    places: Array | Access | None = None
    steps: Strides = ()

    def extent(self, space: Strides, axes: Iterator[int] | range) -> tuple[int, int]:
        """Return the first and the last byte offset, relative to the reference's, along these axes of the space."""
        low = high = 0
        for axis in axes:
            reach = self.strides[axis] * (space[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


Source: TypeAlias = Access | float | Numbers


@dataclass(slots=True, eq=False)
class Statement:
    """``target = operation(operands)`` at each point of ``space``, whose extents are all larger than 1.

    ``reduces``: ``np.add`` if the results at all points of one target element are summed, ``np.maximum`` if the largest
    is taken, ``np.positive`` if all are the same. ``wanted``: which operands' gradients.
    """

    operation: ScalarOperation
    space: Strides
    operands: tuple[Source, ...]
    target: Access
    wanted: tuple[bool, ...]
    reduces: np.ufunc | None = None
    line: int = -1
    clears: bool = True
    """Whether the gradient of what it overwrites ends here: not that of a write where gradients are off."""

    def accesses(self) -> list[Access]:
        """Return what it reads of values."""
        read = [operand for operand in self.operands if isinstance(operand, Access)]
        return [*read, *(access.places for access in (*read, self.target) if isinstance(access.places, Access))]

    def is_indirect(self) -> bool:
        """Whether it reads or writes elements whose places the program computes."""
        return any(isinstance(access.places, Access) for access in (*self.accesses(), self.target))


@dataclass(slots=True, eq=False)
class CallStatement:
    """``target = call(operands)``, whole arrays in memory; ``wanted``: which operands' gradients."""

    call: NativeCall
    operands: tuple[Ref, ...]
    result: Ref
    wanted: tuple[bool, ...]
    line: int = -1

    @property
    def target(self) -> Access:
        """What it writes."""
        return over_itself(self.result)

    @property
    def space(self) -> Strides:
        """The space of the result."""
        return self.result.spec.shape

    def accesses(self) -> list[Access]:
        """Return what it reads of values."""
        return [over_itself(operand) for operand in self.operands]


@dataclass(slots=True, eq=False)
class GuardStatement:
    """Stops the program where elements of two values differ in their bits."""

    pairs: tuple[Access, Access]
    space: Strides
    line: int = -1
    is_recorded: bool = True
    """Whether the program that was recorded has it; if not, the program gives up."""

    def accesses(self) -> list[Access]:
        """Return what it reads of values."""
        return [*self.pairs]


AnyStatement: TypeAlias = Statement | CallStatement | GuardStatement


def over_itself(ref: Ref) -> Access:
    """Return an access to all elements of a reference, over its own shape."""
    return Access(ref, ref.spec.strides)


def whole(program: RolledProgram, value: int, *, wanted: bool) -> Ref:
    """Return all of a value."""
    return Ref(value, Index(0), program.values[value].spec, wanted)


def dense_value(
    program: RolledProgram, shape: Strides, dtype: np.dtype[Any], loop: int = -1, *, wanted: bool = False
) -> Ref:
    """Return all of a new value in C order, made in a loop; -1: outside of loops."""
    strides = dense(shape, dtype.itemsize)
    spec = intern_spec(shape, strides, dtype, strides, math.prod(shape))
    program.values.append(Value(spec, loop=loop, differentiable=wanted))
    return whole(program, len(program.values) - 1, wanted=wanted)


def constant_value(program: RolledProgram, array: Array) -> Ref:
    """Return all of a new constant."""
    program.values.append(Value(spec_of(array), constant=array))
    return whole(program, len(program.values) - 1, wanted=False)


def new_value(program: RolledProgram, like: int) -> int:
    """Return another value of the spec of one, made where that is."""
    old = program.values[like]
    program.values.append(Value(old.spec, loop=old.loop, differentiable=old.differentiable))
    return len(program.values) - 1


def mapped(
    operation: ScalarOperation,
    shape: Strides,
    operands: tuple[Any, ...],
    target: Ref,
    strides: Strides,
    wanted: tuple[bool, ...],
    *,
    reduces: np.ufunc | None = None,
    places: Array | Access | None = None,
) -> Statement:
    """Return a statement over a shape: operands are references, broadcast to it, accesses or numbers.

    ``places`` are those of the target's elements, over the shape; of such as are one several times they are taken in
    order.
    """
    if 0 in shape:
        raise Uncompiled("an array has no elements")
    kept = [axis for axis, extent in enumerate(shape) if extent > 1]
    space = tuple([shape[axis] for axis in kept])

    def over(operand: Any) -> Source:
        if isinstance(operand, Ref):
            operand = Access(operand, broadcast(operand.spec.shape, operand.spec.strides, shape))
        return along(operand) if isinstance(operand, Access) else operand  # type: ignore[no-any-return]

    def along(access: Access) -> Access:
        places = access.places
        if isinstance(places, Access):
            places = along(places)
        elif places is not None:
            places = places.reshape(space)
        steps = tuple([access.steps[axis] for axis in kept]) if access.steps else ()
        return Access(access.ref, tuple([access.strides[axis] for axis in kept]), places, steps)

    place = along(Access(target, strides, places))
    return Statement(operation, space, tuple(map(over, operands)), place, wanted, reduces)


def is_whole(ref: Ref, value: Value) -> bool:
    """Whether a reference is all of a value, as it stands in memory."""
    start = not (ref.offset.constant or ref.offset.terms or ref.offset.table)
    return start and ref.spec.shape == value.spec.shape and ref.spec.strides == value.spec.strides
