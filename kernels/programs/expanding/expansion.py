"""Statements in their nests as scalar operations: elements that are computed stay in registers where they are read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kernels.arrays.specs import Spec
from kernels.programs.expanding.early_items import move_early
from kernels.programs.expanding.element_names import Scope
from kernels.programs.expanding.operation_names import OperationNames, literal, numbers_of
from kernels.programs.expanding.scalar_program import (
    GIVE_UP,
    LEAVE,
    LEAVE_ALL,
    Address,
    Call,
    CarriedNumber,
    Check,
    Fill,
    NestLoop,
    ScalarBlock,
    StepLoop,
    Store,
    Term,
    Terms,
)
from kernels.programs.expanding.summed_axes import complete_sums, inner_part, is_scattered, summed_by
from kernels.programs.fusing.fusion import Block as FusedBlock
from kernels.programs.fusing.fusion import Fusion, Nest, Placed, Steps, is_fixed
from kernels.programs.fusing.scalar_rules import (
    COPY,
    FLOAT32,
    FLOAT64,
    INT64,
    REDUCTIONS,
    ROUNDED,
)
from kernels.programs.fusing.statements import (
    Access,
    AnyStatement,
    CallStatement,
    GuardStatement,
    Statement,
    is_whole,
    mapped,
    new_value,
    whole,
)
from kernels.programs.rolling.rolled_program import SMALL, Loop, Numbers, Phi, Ref, RolledProgram, Uncompiled

_FEW_TERMS = 1 << 10
"""Terms of a sum that is as exact in float32 as NumPy's, which adds up some hundred at a time."""


class Row(NamedTuple):
    """A phi in memory: ``start`` is what it is at first, ``update`` what it becomes; all three stand in rows of one."""

    loop: int
    phi: int
    start: int
    update: int


class Expansion(OperationNames):
    """The scalar program of a fused one."""

    def __init__(self, program: RolledProgram, fusion: Fusion) -> None:
        super().__init__(program)
        self.fusion = fusion
        self._complete = complete_sums(fusion.placed)
        self._guard_numbers = {step: number for number, step in enumerate(program.guards)}
        self.guards: dict[int, np.dtype[Any]] = {}
        """Guards that stop the program, by number, with the dtypes of what they look at."""
        self.rows: list[Row] = []
        """What loops carry in memory."""
        self._open: dict[Any, str] = {}
        """Totals of sums that are not complete, by statement and target; and sums in memory that start at -0.0."""
        self._dynamic = self._phis_in_memory()
        self._block(fusion.root)
        move_early(self.root)

    def _phis_in_memory(self) -> set[int]:
        """Return the phis that loops over elements read, or calls, that are large, or become a part that moves."""
        values, in_memory = self.program.values, set()
        updates = {phi.value: phi.update for loop in self.program.loops for phi in loop.phis}
        phis = {*updates}
        in_memory |= {phi for phi in phis if values[phi].spec.size > SMALL or values[phi].written}
        in_memory |= {phi for phi, ref in updates.items() if ref.offset.terms or ref.offset.table or ref.at}
        for placed in self.fusion.placed:
            statement = placed.statement
            read = [] if isinstance(statement, GuardStatement) else statement.accesses()
            if isinstance(statement, Statement):
                read = [access for access in read if not is_fixed(access, placed.names)]
            in_memory |= phis.intersection(access.ref.value for access in read)
        return in_memory

    def _block(self, block: FusedBlock) -> None:
        for item in block.items:
            if isinstance(item, Placed):
                if isinstance(item.statement, GuardStatement):
                    self._guard(item)
                elif isinstance(item.statement, CallStatement):
                    self._call(item, item.statement)
                else:
                    self._statement(item)
            elif isinstance(item, Nest):
                self._nest(item)
            else:
                self._steps(item)

    def _nest(self, nest: Nest) -> None:
        outer = self.scope
        loop = NestLoop(nest.name, nest.extent, ScalarBlock(outer.block))
        loop.body.loop = loop
        self.scope = Scope(loop.body, outer)
        self.scope.indices = {nest.name}
        self._block(nest.body)
        self.scope = outer
        self.emit(loop)
        for placed in self._complete[nest.name]:
            self._totals(placed, loop)

    # Statements

    def _statement(self, placed: Placed) -> None:
        statement = placed.statement
        assert isinstance(statement, Statement)
        if statement.is_indirect():
            self._check_always(statement)
        sums: dict[Address, str] = {}
        for point in _points(placed):
            target = self.address(statement.target, placed, point)
            name = self._operation(statement, placed, point)
            if statement.reduces is None:
                self._give(target, name, statement)
            elif target in sums:
                reduction, both = REDUCTIONS[statement.reduces], (any(statement.wanted),) * 2
                dtype = statement.target.ref.spec.dtype
                sums[target] = self.operated(reduction, (sums[target], name), both, dtype)
            else:
                sums[target] = name
        for target, name in sums.items():
            self._sum(target, name, statement, placed)

    def _operation(self, statement: Statement, placed: Placed, point: dict[int, int]) -> str:
        dtype = numbers_of(statement)
        operands = tuple([self.operand(o, dtype, placed, point) for o in statement.operands])
        wanted = statement.wanted
        if statement.operation is COPY and (wanted[0] or not isinstance(statement.operands[0], Access)):
            return operands[0]
        return self.operated(statement.operation, operands, wanted, statement.target.ref.spec.dtype)

    def _give(self, target: Address, name: str, statement: Statement) -> None:
        """Let an element be what a name says."""
        written = self.program.values[target.value].written
        if written:
            self._forget(target.value)
        if statement.clears or not written:
            self.scope.elements[target] = name
        self.emit(Store(target, name, any(statement.wanted), overwrites=written, clears=statement.clears))

    def _forget(self, value: int) -> None:
        """Know no element of a value any more, which is written."""
        made_in = self.scopes.get(self.program.values[value].loop)  # where what its last step gave is read, too
        for scope in (*self.scope.outward(), *([] if made_in is None else [made_in])):
            scope.elements = {address: name for address, name in scope.elements.items() if address.value != value}

    def _sum(self, target: Address, name: str, statement: Statement, placed: Placed) -> None:
        """Add what the points of a block give to the element that they are summed in."""
        wanted = any(statement.wanted)
        summed = summed_by(placed)
        if summed is None:
            self._give(target, name, statement)
        elif is_scattered(placed):
            assert statement.reduces is not None
            self._fill(target, placed, statement.reduces)
            self.emit(Store(target, name, wanted, statement.reduces))
        else:
            total = self._total(target, placed)
            assert statement.reduces is not None
            self.emit(Term(total, name, wanted, statement.reduces))

    def _total(self, target: Address, placed: Placed) -> str:
        """Return the name of the total for a target; it is given by the outermost nest that is summed over."""
        key = id(placed), target
        known = self._open.get(key)
        if known is None:
            self._count += 1
            known = self._open[key] = f"s{self._count}"
        return known

    def _totals(self, placed: Placed, loop: NestLoop) -> None:
        """Give the totals of a statement behind the nest that they were summed in."""
        statement = placed.statement
        assert isinstance(statement, Statement)
        for (owner, target), total in [*self._open.items()]:
            if owner == id(placed):
                del self._open[owner, target]
                assert statement.reduces is not None
                loop.totals[total] = statement.reduces
                dtype, wanted = _dtype_of_totals(statement), (any(statement.wanted),)
                self.define(total, loop, dtype)
                wide = statement.target.ref.spec.dtype == FLOAT32 != dtype
                name = self.operated(ROUNDED, (total,), wanted, FLOAT32) if wide else total
                self._give(target, name, statement)

    def _fill(self, target: Address, placed: Placed, reduces: np.ufunc) -> None:
        """Have the memory of scattered sums start, before the outermost nest that is summed over."""
        outermost = summed_by(placed)
        around = self.scope
        while outermost not in around.indices:
            assert around.outer is not None
            around = around.outer
        assert around.outer is not None
        block = around.outer.block
        begin, elements = inner_part(placed, target, {loop.index for loop in block.loops()})
        key = "filled", (id(placed), id(block), begin)
        if key not in self._open:
            self._open[key] = ""
            block.items.append(Fill(begin, elements, reduces))

    # Loops of the program

    def _steps(self, steps: Steps) -> None:
        outer, loop = self.scope, steps.loop
        item = StepLoop(loop, f"k{loop.number}", ScalarBlock(outer.block))
        item.body.loop = item
        inner = Scope(item.body, outer)
        inner.indices = {item.index}
        item.limit = self._limit(loop)
        open_phis, in_memory = [], []
        for phi in loop.phis:
            self.scope = outer
            if phi.value in self._dynamic:
                in_memory.append(self._begin(phi, loop))
            else:
                open_phis += self._carry(phi, item, outer, inner)
        self.scope = inner
        for value in _written_in(steps.body, self.program):
            self._forget(value)  # what it was before the loop holds in the first step alone
        self._block(steps.body)
        for number, address, dtype, wanted in open_phis:
            number.update = self.cut(self.read(address, dtype), dtype, wanted=wanted)
        for phi, start in in_memory:
            self.rows.append(Row(loop.number, phi.value, start, self._next(phi, loop)))
        self.scope = outer
        self.scopes[loop.number] = inner
        self.emit(item)
        for name in item.behind:
            self.define(name, item, INT64)

    def _limit(self, loop: Loop) -> str:
        """Return the most steps of a recorded loop, as text; "" of others."""
        if loop.ends is None:
            return ""
        limit = loop.ends.limit
        if not isinstance(limit, Ref):
            return str(1 << 60 if limit is None else int(limit))  # type: ignore[arg-type]
        if limit.spec.dtype != FLOAT64:
            raise Uncompiled(f"a number of iterations of {limit.spec.dtype}")
        return self.read(self.address(Access(limit, ()), _NOWHERE, {}), FLOAT64)

    def _begin(self, phi: Phi, loop: Loop) -> tuple[Phi, int]:
        """Store what a phi in memory is at first; return the value that is that."""
        spec = self.program.values[phi.value].spec
        if self.program.values[phi.value].written:
            raise Uncompiled("a loop carries what is written in place")
        start = new_value(self.program, phi.value)
        self.program.values[start].loop = loop.parent
        self._copy(phi.initial, whole(self.program, start, wanted=True), spec)
        return phi, start

    def _next(self, phi: Phi, loop: Loop) -> int:
        """Return the value that is what a phi in memory becomes, and stands where that does: a copy if need be."""
        update, values = phi.update, self.program.values
        value, spec = values[update.value], values[phi.value].spec
        taken = {row.update for row in self.rows} | {p.value for p in loop.phis}
        same = value.spec.shape == spec.shape and value.spec.strides == spec.strides and is_whole(update, value)
        if same and value.loop == loop.number and update.value not in taken and not value.written and not update.at:
            return update.value
        copy = new_value(self.program, phi.value)
        self._copy(update, whole(self.program, copy, wanted=True), spec)
        return copy

    def _copy(self, source: Any, target: Ref, spec: Spec) -> None:
        wanted = (isinstance(source, Ref) and source.wanted,)
        block = FusedBlock()
        self.fusion.place(mapped(COPY, spec.shape, (source,), target, spec.strides, wanted), block)
        self._block(block)

    def _carry(
        self, phi: Phi, item: StepLoop, outer: Scope, inner: Scope
    ) -> list[tuple[CarriedNumber, Address, np.dtype[Any], bool]]:
        """Carry the elements of a small phi in registers."""
        spec, opened = self.program.values[phi.value].spec, []
        for point in np.ndindex(spec.shape):
            offset = sum(i * stride for i, stride in zip(point, spec.strides, strict=True))
            self.scope = outer
            initial = self._initial(phi, point)
            self.scope = inner
            number = CarriedNumber("", initial)
            number.name = self.name(item, spec.dtype, "p")
            inner.elements[Address(phi.value, offset)] = number.name
            item.numbers.append(number)
            update = phi.update
            at = update.offset.constant + sum(i * s for i, s in zip(point, update.spec.strides, strict=True))
            opened.append((number, Address(update.value, at), spec.dtype, update.wanted))
        return opened

    def _initial(self, phi: Phi, point: tuple[int, ...]) -> str:
        initial, spec = phi.initial, self.program.values[phi.value].spec
        if isinstance(initial, Numbers):
            return self.operand(initial, spec.dtype, _NOWHERE, {})
        if not isinstance(initial, tuple):
            return literal(float(initial), spec.dtype)
        strides = initial.spec.strides
        if initial.spec.shape != spec.shape:
            raise Uncompiled("a loop carries values of several shapes")
        constant, terms = self._indexed(initial.offset)
        offset = constant + sum(i * s for i, s in zip(point, strides, strict=True))
        at = tuple((n, tuple(sorted(t.items()))) for n, t in map(self._indexed, initial.at))
        address = Address(initial.value, offset, tuple(sorted(terms.items())), at)
        dtype = initial.spec.dtype
        return self.cut(self.read(address, dtype), dtype, wanted=initial.wanted)

    def _call(self, placed: Placed, statement: CallStatement) -> None:
        if any(self.program.values[access.ref.value].written for access in (*statement.accesses(), statement.target)):
            raise Uncompiled("a call of what is written in place", statement.line)
        self._check_always(statement)
        operands = tuple([self._begin_of(ref, placed) for ref in statement.operands])
        sizes = tuple([ref.spec.size for ref in statement.operands])
        target = self._begin_of(statement.result, placed)
        self.emit(Call(statement.call, operands, target, statement.wanted, sizes))

    def _begin_of(self, ref: Ref, placed: Placed) -> Address:
        """Return where the first element of a reference stands."""
        return self.address(Access(ref, ()), placed, {})

    def _guard(self, placed: Placed) -> None:
        statement = placed.statement
        assert isinstance(statement, GuardStatement)
        if not statement.is_recorded:
            self._check_always(statement)
        names = tuple([self.read(self.address(a, placed, {}), a.ref.spec.dtype) for a in statement.pairs])
        number, terms = self._number_of(statement) if statement.is_recorded else (GIVE_UP, ())
        self.emit(Check((names[0], names[1]), number, terms))

    def _check_always(self, statement: AnyStatement) -> None:
        """Raise Uncompiled for what may fail, read anywhere, or make a nan of nothing, where the program does not."""
        if statement.line in self.program.conditional:
            raise Uncompiled("a call, or a look-up, in some ways alone that a loop's iterations go", statement.line)

    def _number_of(self, statement: GuardStatement) -> tuple[int, Terms]:
        """Return the number of a guard that was recorded, with what steps add, or what it does instead of stopping."""
        steps = self.scope.block.steps()
        if any(step.loop.ends is not None for step in steps):
            left = [step.loop.ends is not None and not step.loop.ends.counted for step in steps]
            return LEAVE if left[-1] else LEAVE_ALL if any(left) else GIVE_UP, ()
        number = self._guard_numbers[statement.line]
        self.guards[number] = statement.pairs[0].ref.spec.dtype
        return number, tuple([(step.index, step.loop.guards) for step in steps])


_NOWHERE = Placed(GuardStatement((Access(None, ()),) * 2, ()), None, ())  # type: ignore[arg-type]


def _dtype_of_totals(statement: Statement) -> np.dtype[Any]:
    """Return the dtype that a statement's terms are added up in: long sums of float32 in float64."""
    dtype = statement.target.ref.spec.dtype
    terms = math.prod([n for n, step in zip(statement.space, statement.target.strides, strict=True) if not step])
    return FLOAT64 if statement.reduces is np.add and terms > _FEW_TERMS else dtype


def _written_in(block: FusedBlock, program: RolledProgram) -> set[int]:
    """Return the values that the statements of a block, and of those in it, write in place."""
    written: set[int] = set()
    for item in block.items:
        if isinstance(item, Nest | Steps):
            written |= _written_in(item.body, program)
        elif isinstance(item.statement, Statement) and program.values[item.statement.target.ref.value].written:
            written.add(item.statement.target.ref.value)
    return written


def _points(placed: Placed) -> Iterable[dict[int, int]]:
    """Return the points of the unrolled axes, row by row."""
    axes = [axis for axis, name in enumerate(placed.names) if name is None]
    extents = [range(placed.statement.space[axis]) for axis in axes]
    for point in itertools.product(*extents):
        yield dict(zip(axes, point, strict=True))
