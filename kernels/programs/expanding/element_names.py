"""Names of elements: what computed an element, if that is still in a register, or a load as far out as may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.foundation.specs import Strides
from kernels.native.memory import where
from kernels.programs.expanding.scalar_program import Address, Load, Operation, ScalarBlock, StepLoop, Terms
from kernels.programs.fusing.fusion import Placed
from kernels.programs.fusing.statements import (
    COPY,
    FLOAT64,
    FLOATS,
    INT64,
    Access,
    ScalarOperation,
    Source,
    Statement,
    constant_value,
)
from kernels.programs.rolled_program import Index, Numbers, RolledProgram
from kernels.rules.symbols import literal_of


class Scope:
    """What is known in a block: names of elements, and of operations that were done."""

    def __init__(self, block: ScalarBlock, outer: Scope | None) -> None:
        self.block, self.outer = block, outer
        self.elements: dict[Address, str] = {}
        self.operations: dict[Any, str] = {}
        self.indices: set[str] = set()

    def outward(self) -> Iterator[Scope]:
        """Return it and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def element(self, address: Address) -> str | None:
        """Return the name of an element; None if it is in no register."""
        return next((scope.elements[address] for scope in self.outward() if address in scope.elements), None)

    def operation(self, key: Any) -> str | None:
        """Return the name of what an operation gave; None if it has not been done."""
        return next((scope.operations[key] for scope in self.outward() if key in scope.operations), None)


class ElementNames:
    """Gives names to elements; ``defined`` says in which block, and by what, a name is given, ``dtypes`` what it is."""

    def __init__(self, program: RolledProgram) -> None:
        self.program = program
        self.defined: dict[str, tuple[ScalarBlock, Any]] = {}
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.root = ScalarBlock()
        self.scope = Scope(self.root, None)
        self.scopes: dict[int, Scope] = {}
        """Of the bodies of loops of the program, by the loops' numbers, when they are complete."""
        self._count = 0
        self._constants: dict[tuple[Any, ...], int] = {}

    def name(self, item: Any, dtype: np.dtype[Any], prefix: str = "v") -> str:
        """Return a new name, given in the present block."""
        self._count += 1
        name = f"{prefix}{self._count}"
        self.define(name, item, dtype)
        return name

    def define(self, name: str, item: Any, dtype: np.dtype[Any]) -> None:
        """Take note of a name that the present block gives."""
        self.defined[name] = self.scope.block, item
        self.dtypes[name] = dtype

    def emit(self, item: Any) -> None:
        """Append an item to the present block."""
        self.scope.block.items.append(item)

    def constant(self, array: np.ndarray[Any, Any], dtype: np.dtype[Any] = INT64) -> int:
        """Return a constant value for an array of the program, as one of this dtype."""
        key = where(array), array.shape, array.strides, dtype
        if key not in self._constants:
            self._constants[key] = constant_value(self.program, np.ascontiguousarray(array, dtype)).value
        return self._constants[key]

    def address(self, access: Access, placed: Placed, point: dict[int, int]) -> Address:
        """Return where an access is at a point of the unrolled axes."""
        constant, terms, at = self._indexed(access.ref.offset), {}, []
        terms.update(constant[1])
        offset = constant[0]
        for axis, stride in enumerate(access.strides):
            name = placed.names[axis]
            if name is None:
                offset += stride * point[axis]
            elif stride:
                terms[name] = terms.get(name, 0) + stride
        if isinstance(access.places, Access):
            name = self.read(self.address(access.places, placed, point), INT64)
            terms[name] = access.ref.spec.dtype.itemsize
        elif access.places is not None:
            width = access.ref.spec.dtype.itemsize
            if any(placed.names):
                terms[self._place(access.places, placed, point)] = width
            else:
                offset += width * int(access.places[tuple(point.values())])
        for step in access.ref.at:
            number, more = self._indexed(step)
            at.append((number, tuple(sorted((self._behind(name), n) for name, n in more.items()))))
        if access.steps:
            at[-1] = self._along(at[-1], access.steps, placed, point)
        return Address(access.ref.value, offset, tuple(sorted(terms.items())), tuple(at))

    @staticmethod
    def _along(at: tuple[int, Terms], steps: Strides, placed: Placed, point: dict[int, int]) -> tuple[int, Terms]:
        """Return which step of a loop a point reads, where the first one reads ``at``."""
        number, terms = at[0], dict(at[1])
        for axis, step in enumerate(steps):
            name = placed.names[axis]
            if name is None:
                number += step * point[axis]
            elif step:
                terms[name] = terms.get(name, 0) + step
        return number, tuple(sorted(terms.items()))

    def _behind(self, name: str) -> str:
        """Return the name of a step of a loop, behind it that of its end."""
        is_step = name[0] == "k" and int(name[1:]) in self.scopes
        return f"m{name[1:]}" if is_step and self.program.loops[int(name[1:])].ends is not None else name

    def _place(self, places: np.ndarray[Any, Any], placed: Placed, point: dict[int, int]) -> str:
        """Return the name of how many elements further an element is."""
        value, offset, terms = self.constant(places), 0, []
        for axis, stride in enumerate(self.program.values[value].spec.strides):
            name = placed.names[axis]
            if name is None:
                offset += stride * point[axis]
            else:
                terms.append((name, stride))
        return self.read(Address(value, offset, tuple(sorted(terms))), INT64)

    def _indexed(self, index: Index) -> tuple[int, dict[str, int]]:
        terms = {f"k{loop}": step for loop, step in index.terms if step}
        if index.table is not None:
            loops, table = index.table
            value = self.constant(table)
            strides = self.program.values[value].spec.strides
            places = tuple(sorted((f"k{loop}", stride) for loop, stride in zip(loops, strides, strict=True)))
            terms[self.read(Address(value, 0, places), INT64)] = 1
        return index.constant, terms

    def read(self, address: Address, dtype: np.dtype[Any]) -> str:
        """Return the name of an element: of what computed it, or of a load."""
        known = self.scope.element(address)
        if known is not None:
            return known
        if address.at:
            ends = self.program.loops[self.program.values[address.value].loop].ends
            name = self._exit(address) if ends is None else self._end(address)
            if name is not None:
                self.scope.elements[address] = name
                return name
        here, self.scope = self.scope, self._hoisted(address)
        item = Load("", address)
        item.name = self.name(item, dtype, "n" if dtype == INT64 else "v")
        self.emit(item)
        self.scope.elements[address] = item.name
        self.scope = here
        return item.name

    def _hoisted(self, address: Address) -> Scope:
        """Return the outermost scope in which a load may stand."""
        value, scope = self.program.values[address.value], self.scope
        if value.written:
            return scope
        names, loops = address.names(), self.program.loops_around(address.value)
        made_in = loops[: len(loops) - len(address.at)]
        while scope.outer is not None:
            around = scope.block.loop
            binds = bool(scope.indices & names) or any(
                name in names and self.defined.get(name, (None,))[0] is scope.block for name in names
            )
            if binds or (isinstance(around, StepLoop) and around.loop.number in made_in):
                break
            scope = scope.outer
        return scope

    def _exit(self, address: Address) -> str | None:
        """Return the name, behind loops, of what an element was in their last steps; None where that is in memory."""
        loop = self.program.loops[self.program.values[address.value].loop]
        inner = self.scopes.get(loop.number)
        if inner is None or address.terms or address.at[-1] != (loop.count - 1, ()):
            return None
        steps = inner.block.loop
        assert isinstance(steps, StepLoop)
        name = inner.elements.get(address._replace(at=()))
        if name is None or name not in self.defined:
            return name
        if inner.outer is not self.scope and len(address.at) > 1:
            return None
        block = self.defined[name][0]
        if block is not inner.block:
            return name if block in self.scope.block.path() else None
        outer = inner.outer
        assert outer is not None
        if outer.block not in self.scope.block.path() or len(address.at) > 1:
            return None
        return self._left(steps, steps.exits, outer, name)

    def _end(self, address: Address) -> str | None:
        """Return the name, behind a recorded loop, of what it carries in the end; None where that is in memory."""
        inner = self.scopes.get(self.program.values[address.value].loop)
        steps = inner.block.loop if inner is not None else None
        if inner is None or inner.outer is None or not isinstance(steps, StepLoop):
            return None
        name = inner.elements.get(address._replace(at=()))
        if name is None or all(name != number.name for number in steps.numbers):
            return None
        return self._left(steps, steps.ends, inner.outer, name)

    def _left(self, steps: StepLoop, pairs: list[tuple[str, str]], outer: Scope, name: str) -> str:
        """Return the name, behind a loop, for what a name in it was last, or is in the end: of ``pairs``, or new."""
        known = next((after for after, before in pairs if before == name), None)
        if known is None:
            here, self.scope = self.scope, outer
            known = self.name(steps, self.dtypes[name], "x")
            self.scope = here
            pairs.append((known, name))
        return known


# Names of operations and of their operands: an operation that was done before on the same is not done again.

_LITERALS = {dtype: literal_of(dtype) for dtype in FLOATS}


def literal(value: float, dtype: np.dtype[Any] = FLOAT64) -> str:
    """Return a number among operands of a dtype as text."""
    return _LITERALS.get(dtype, _LITERALS[FLOAT64])(value)


def numbers_of(statement: Statement) -> np.dtype[Any]:
    """Return the dtype of the numbers that a statement has as operands: that of its floats, or integers."""
    dtypes = [access.ref.spec.dtype for access in (*statement.accesses(), statement.target)]
    return next((dtype for kinds in (FLOATS, (INT64,)) for dtype in dtypes if dtype in kinds), FLOAT64)


class OperationNames(ElementNames):
    """Gives names to what operations give, and finds those of their operands."""

    def operated(
        self, operation: ScalarOperation, operands: tuple[str, ...], wanted: tuple[bool, ...], dtype: np.dtype[Any]
    ) -> str:
        """Return the name of what an operation gives: of one that was done before, of that."""
        key = operation.name, operation.forward, operands, wanted
        known = self.scope.operation(key)
        if known is None:
            item = Operation("", operation, operands, wanted)
            known = item.name = self.scope.operations[key] = self.name(item, dtype)
            self.emit(item)
        return known

    def operand(self, source: Source, dtype: np.dtype[Any], placed: Placed, point: dict[int, int]) -> str:
        """Return the name of an operand; numbers are of a dtype."""
        if isinstance(source, Access):
            return self.read(self.address(source, placed, point), source.ref.spec.dtype)
        if isinstance(source, Numbers):
            value = self.constant(source.table, dtype)
            strides = self.program.values[value].spec.strides
            terms = tuple(sorted((f"k{loop}", stride) for loop, stride in zip(source.loops, strides, strict=True)))
            return self.read(Address(value, 0, terms), dtype)
        return literal(float(source), dtype)

    def cut(self, name: str, dtype: np.dtype[Any], *, wanted: bool) -> str:
        """Return a name, or another for the same value that has no gradient to hand on."""
        return name if wanted else self.operated(COPY, (name,), (False,), dtype)
