"""Statements in their nests as scalar operations: elements that are computed stay in registers where they are read."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from kernels.compiler import scalar_program as scalar
from kernels.compiler import statements as fused
from kernels.compiler.fusion import FusedBlock, FusedLoop, Fusion, Nest, Placed, is_fixed
from kernels.compiler.scalar_program import literal, numbers_of, walk
from kernels.compiler.statements import FLOAT64, Access, AnyStatement, Statement
from kernels.foundation.specs import Spec
from kernels.programs.rolled_program import SMALL, Loop, Numbers, Phi, Ref, RolledProgram, Uncompiled

# Scalar operations that need not wait for the nests before them go in front: their gradients are then added last.
#
# What a nest contributes to the gradient of a whole value can so be stored, where, say, the ends of a grid are read
# apart.


def move_early(block: scalar.ScalarBlock) -> None:
    """Reorder the items of a block, and of those in it."""
    early, late = list[scalar.ScalarItem](), list[scalar.ScalarItem]()  # the first nest, and what has to stay behind it
    names, values = set[str](), set[int]()  # that late items give, or store
    is_closed = False
    for item in block.items:
        is_first = isinstance(item, scalar.NestLoop) and not late
        if not is_first and not (late and (is_closed or _waits(item, names, values))):
            early.append(item)
            continue
        late.append(item)
        if isinstance(item, scalar.NestLoop):
            names |= item.totals.keys()
            values |= {part.address.value for _, part in walk(item.body) if isinstance(part, scalar.Store)}
        elif isinstance(item, scalar.Load | scalar.Compute):
            names.add(item.name)
        elif isinstance(item, scalar.Store):
            values.add(item.address.value)
        else:
            is_closed = True  # loops of the program, products, guards: nothing moves past them
    block.items[:] = [*early, *late]
    for item in block.items:
        if isinstance(item, scalar.NestLoop | scalar.StepLoop):
            move_early(item.body)


def _waits(item: scalar.ScalarItem, names: set[str], values: set[int]) -> bool:
    """Whether an item has to stay behind those that give these names, and store these values."""
    if isinstance(item, scalar.Load):
        return item.address.value in values or bool(item.address.names() & names)
    if isinstance(item, scalar.Compute):
        return not names.isdisjoint(item.operands)
    if not isinstance(item, scalar.Store) or item.overwrites or item.reduces is not None:
        return True
    return item.operand in names or bool(item.address.names() & names)


# Which loops a statement sums over, and where in memory the sums stand that are not complete behind one loop.


def summed_by(placed: Placed) -> str | None:
    """Return the index of the outermost loop that a statement sums over; None if it sums over none."""
    statement = placed.statement
    if not isinstance(statement, Statement) or statement.reduces is None:
        return None
    for name, stride in zip(placed.names, statement.target.strides, strict=True):
        if name is not None and not stride:
            return name
    return None


def inner_part(placed: Placed, target: scalar.Address, bound: set[str]) -> tuple[scalar.Address, int]:
    """Return where the elements begin that a statement gives in one step of the nests ``bound``, and how many.

    Where those of all points are apart, they are those of the point of ``target`` alone.
    """
    access = placed.statement.target  # type: ignore[union-attr]
    axes = [
        (stride, extent, name)
        for name, stride, extent in zip(placed.names, access.strides, placed.statement.space, strict=True)
        if name not in bound and stride
    ]
    item = access.ref.spec.dtype.itemsize
    terms = tuple([term for term in target.terms if term[0] in bound or term[0][0] != "i"])
    elements = elements_side_by_side([(stride, extent) for stride, extent, _ in axes], item)
    if elements:
        return scalar.Address(target.value, access.ref.offset.constant, terms, target.at), elements
    elements = elements_side_by_side([(stride, extent) for stride, extent, name in axes if name is not None], item)
    if not elements:
        raise Uncompiled("sums over a middle axis, apart in memory")
    return scalar.Address(target.value, target.constant, terms, target.at), elements


def elements_side_by_side(axes: list[tuple[int, int]], item: int) -> int:
    """Return how many elements axes, strides and extents, go through, if these fill their memory; else 0."""
    width = item
    for stride, extent in sorted(axes):
        if stride != width:
            return 0
        width *= extent
    return width // item


def is_scattered(placed: Placed) -> bool:
    """Whether a statement sums over a loop with a loop in it that it does not sum over: the sums stand in memory."""
    statement = placed.statement
    assert isinstance(statement, Statement)
    pairs = zip(placed.names, statement.target.strides, strict=True)
    strides = [stride for name, stride in pairs if name is not None]
    summed = [not stride for stride in strides]
    return any(summed) and not all(summed[summed.index(True) :])


_FEW_TERMS = 1 << 10  # terms of a sum that is as exact in float32 as NumPy's, which adds up some hundred at a time


class Row(NamedTuple):
    """A phi in memory: ``start`` is what it is at first, ``update`` what it becomes; all three stand in rows of one."""

    loop: int
    phi: int
    start: int
    update: int


class Expansion(scalar.ScalarNames):
    """The scalar program of a fused one."""

    def __init__(self, program: RolledProgram, fusion: Fusion) -> None:
        super().__init__(program)
        self.fusion = fusion
        # by nest, the sums that are complete behind it
        sums: dict[str, list[Placed]] = defaultdict(list)
        for placed in fusion.placed:
            name = summed_by(placed)
            if name is not None and not is_scattered(placed):
                sums[name].append(placed)
        self._complete = sums
        self._guard_numbers = {step: number for number, step in enumerate(program.guards)}
        self.guards: dict[int, np.dtype[Any]] = {}
        """Guards that stop the program, by number, with the dtypes of what they look at."""
        self.rows: list[Row] = []  # what loops carry in memory
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
            read = [] if isinstance(statement, fused.GuardStatement) else statement.accesses()
            if isinstance(statement, Statement):
                read = [access for access in read if not is_fixed(access, placed.names)]
            in_memory |= phis.intersection(access.ref.value for access in read)
        return in_memory

    def _block(self, block: FusedBlock) -> None:
        for item in block.items:
            if isinstance(item, Placed):
                if isinstance(item.statement, fused.GuardStatement):
                    statement = item.statement
                    if not statement.is_recorded:
                        self._check_always(statement)
                    names = tuple([self.read(self.address(a, item, {}), a.ref.spec.dtype) for a in statement.pairs])
                    number, terms = self._number_of(statement) if statement.is_recorded else (scalar.GIVE_UP, ())
                    self.emit(scalar.GuardCheck((names[0], names[1]), number, terms))
                elif isinstance(item.statement, fused.CallStatement):
                    self._call(item, item.statement)
                else:
                    self._statement(item)
            elif isinstance(item, Nest):
                outer = self.scope
                loop = scalar.NestLoop(item.name, item.extent, scalar.ScalarBlock(outer.block))
                loop.body.loop = loop
                self.scope = scalar.BlockScope(loop.body, outer)
                self.scope.indices = {item.name}
                self._block(item.body)
                self.scope = outer
                self.emit(loop)
                for placed in self._complete[item.name]:
                    statement = placed.statement
                    assert isinstance(statement, Statement)
                    for (owner, target), total in [*self._open.items()]:
                        if owner == id(placed):
                            del self._open[owner, target]
                            assert statement.reduces is not None
                            loop.totals[total] = statement.reduces
                            dtype, wanted = _dtype_of_totals(statement), (any(statement.wanted),)
                            self.define(total, loop, dtype)
                            wide = statement.target.ref.spec.dtype == fused.FLOAT32 != dtype
                            name = self.operated(fused.ROUNDED, (total,), wanted, fused.FLOAT32) if wide else total
                            self._give(target, name, statement)
            else:
                self._steps(item)

    # Statements

    def _statement(self, placed: Placed) -> None:
        statement = placed.statement
        assert isinstance(statement, Statement)
        if statement.is_indirect():
            self._check_always(statement)
        sums: dict[scalar.Address, str] = {}
        for point in _points(placed):
            target = self.address(statement.target, placed, point)
            name = self._operation(statement, placed, point)
            if statement.reduces is None:
                self._give(target, name, statement)
            elif target in sums:
                reduction, both = fused.REDUCTIONS[statement.reduces], (any(statement.wanted),) * 2
                dtype = statement.target.ref.spec.dtype
                sums[target] = self.operated(reduction, (sums[target], name), both, dtype)
            else:
                sums[target] = name
        for target, name in sums.items():
            wanted = any(statement.wanted)
            summed = summed_by(placed)
            if summed is None:
                self._give(target, name, statement)
            elif is_scattered(placed):
                assert statement.reduces is not None
                self._fill(target, placed, statement.reduces)
                self.emit(scalar.Store(target, name, wanted, statement.reduces))
            else:
                key = id(placed), target
                total = self._open.get(key)
                if total is None:
                    self._count += 1
                    total = self._open[key] = f"s{self._count}"
                assert statement.reduces is not None
                self.emit(scalar.Accumulate(total, name, wanted, statement.reduces))

    def _operation(self, statement: Statement, placed: Placed, point: dict[int, int]) -> str:
        dtype = numbers_of(statement)
        operands = tuple([self.operand(o, dtype, placed, point) for o in statement.operands])
        wanted = statement.wanted
        if statement.operation is fused.COPY and (wanted[0] or not isinstance(statement.operands[0], Access)):
            return operands[0]
        return self.operated(statement.operation, operands, wanted, statement.target.ref.spec.dtype)

    def _give(self, target: scalar.Address, name: str, statement: Statement) -> None:
        """Let an element be what a name says."""
        written = self.program.values[target.value].written
        if written:
            self._forget(target.value)
        if statement.clears or not written:
            self.scope.elements[target] = name
        self.emit(scalar.Store(target, name, any(statement.wanted), overwrites=written, clears=statement.clears))

    def _forget(self, value: int) -> None:
        """Know no element of a value any more, which is written."""
        made_in = self.scopes.get(self.program.values[value].loop)  # where what its last step gave is read, too
        for known in (*self.scope.elements.maps, *([] if made_in is None else [made_in.here])):
            for address in [address for address in known if address.value == value]:
                del known[address]

    def _fill(self, target: scalar.Address, placed: Placed, reduces: np.ufunc) -> None:
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
            block.items.append(scalar.FillMemory(begin, elements, reduces))

    # Loops of the program

    def _steps(self, steps: FusedLoop) -> None:
        outer, loop = self.scope, steps.loop
        item = scalar.StepLoop(loop, f"k{loop.number}", scalar.ScalarBlock(outer.block))
        item.body.loop = item
        inner = scalar.BlockScope(item.body, outer)
        inner.indices = {item.index}
        item.limit = self._limit(loop)
        open_phis, in_memory = [], []
        for phi in loop.phis:
            self.scope = outer
            if phi.value in self._dynamic:
                spec = self.program.values[phi.value].spec
                if self.program.values[phi.value].written:
                    raise Uncompiled("a loop carries what is written in place")
                start = fused.new_value(self.program, phi.value)
                self.program.values[start].loop = loop.parent
                self._copy(phi.initial, fused.ref_to_all(self.program, start, wanted=True), spec)
                in_memory.append((phi, start))
            else:
                open_phis += self._carry(phi, item, outer, inner)
        self.scope = inner
        for placed in steps.body.placed():
            if isinstance(placed.statement, Statement):
                written = placed.statement.target.ref.value
                if self.program.values[written].written:
                    self._forget(written)  # what it was before the loop holds in the first step alone
        self._block(steps.body)
        for number, address, dtype, wanted in open_phis:
            number.update = self.cut(self.read(address, dtype), dtype, wanted=wanted)
        for phi, start in in_memory:
            self.rows.append(Row(loop.number, phi.value, start, self._next(phi, loop)))
        self.scope = outer
        self.scopes[loop.number] = inner
        self.emit(item)
        for name in item.behind:
            self.define(name, item, fused.INT64)

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

    def _next(self, phi: Phi, loop: Loop) -> int:
        """Return the value that is what a phi in memory becomes, and stands where that does: a copy if need be."""
        update, values = phi.update, self.program.values
        value, spec = values[update.value], values[phi.value].spec
        taken = {row.update for row in self.rows} | {p.value for p in loop.phis}
        same = value.spec.shape == spec.shape and value.spec.strides == spec.strides and fused.is_whole(update, value)
        if same and value.loop == loop.number and update.value not in taken and not value.written and not update.at:
            return update.value
        copy = fused.new_value(self.program, phi.value)
        self._copy(update, fused.ref_to_all(self.program, copy, wanted=True), spec)
        return copy

    def _copy(self, source: Any, target: Ref, spec: Spec) -> None:
        wanted = (isinstance(source, Ref) and source.wanted,)
        block = FusedBlock()
        self.fusion.place(fused.mapped(fused.COPY, spec.shape, (source,), target, spec.strides, wanted), block)
        self._block(block)

    def _carry(
        self, phi: Phi, item: scalar.StepLoop, outer: scalar.BlockScope, inner: scalar.BlockScope
    ) -> list[tuple[scalar.CarriedNumber, scalar.Address, np.dtype[Any], bool]]:
        """Carry the elements of a small phi in registers."""
        spec, opened = self.program.values[phi.value].spec, []
        for point in np.ndindex(spec.shape):
            offset = sum(i * stride for i, stride in zip(point, spec.strides, strict=True))
            self.scope = outer
            initial = self._initial(phi, point)
            self.scope = inner
            number = scalar.CarriedNumber("", initial)
            number.name = self.name(item, spec.dtype, "p")
            inner.elements[scalar.Address(phi.value, offset)] = number.name
            item.numbers.append(number)
            update = phi.update
            at = update.offset.constant + sum(i * s for i, s in zip(point, update.spec.strides, strict=True))
            opened.append((number, scalar.Address(update.value, at), spec.dtype, update.wanted))
        return opened

    def _initial(self, phi: Phi, point: tuple[int, ...]) -> str:
        initial, spec = phi.initial, self.program.values[phi.value].spec
        if isinstance(initial, Numbers):
            return self.operand(initial, spec.dtype, _NOWHERE, {})
        if not isinstance(initial, tuple):
            return literal(float(initial), spec.dtype)
        if initial.spec.shape != spec.shape:
            raise Uncompiled("a loop carries values of several shapes")
        start = initial.offset.constant + sum(i * s for i, s in zip(point, initial.spec.strides, strict=True))
        first = initial._replace(offset=initial.offset._replace(constant=start))
        name = self.operand(Access(first, ()), spec.dtype, _NOWHERE, {})
        return self.cut(name, initial.spec.dtype, wanted=initial.wanted)

    def _call(self, placed: Placed, statement: fused.CallStatement) -> None:
        if any(self.program.values[access.ref.value].written for access in (*statement.accesses(), statement.target)):
            raise Uncompiled("a call of what is written in place", statement.line)
        self._check_always(statement)
        operands = tuple([self._begin_of(ref, placed) for ref in statement.operands])
        sizes = tuple([ref.spec.size for ref in statement.operands])
        target = self._begin_of(statement.result, placed)
        number, terms = self._number_of(statement) if statement.guards else (scalar.GIVE_UP, ())
        self.emit(scalar.CallKernel(statement.call, operands, target, statement.wanted, sizes, number, terms))

    def _begin_of(self, ref: Ref, placed: Placed) -> scalar.Address:
        """Return where the first element of a reference stands."""
        return self.address(Access(ref, ()), placed, {})

    def _check_always(self, statement: AnyStatement) -> None:
        """Raise Uncompiled for what may fail, read anywhere, or make a nan of nothing, where the program does not."""
        if statement.line in self.program.conditional:
            raise Uncompiled("a call, or a look-up, in some ways alone that a loop's iterations go", statement.line)

    def _number_of(self, statement: fused.GuardStatement | fused.CallStatement) -> tuple[int, scalar.Terms]:
        """Return the number of a guard that was recorded, with what steps add, or what it does instead of stopping."""
        steps = self.scope.block.steps()
        if any(step.loop.ends is not None for step in steps):
            left = [step.loop.ends is not None and not step.loop.ends.counted for step in steps]
            return scalar.LEAVE if left[-1] else scalar.LEAVE_ALL if any(left) else scalar.GIVE_UP, ()
        number = self._guard_numbers[statement.line]
        if isinstance(statement, fused.GuardStatement):
            self.guards[number] = statement.pairs[0].ref.spec.dtype
        return number, tuple([(step.index, step.loop.guards) for step in steps])


_NOWHERE = Placed(fused.GuardStatement((Access(None, ()),) * 2, ()), None, ())  # type: ignore[arg-type]


def _dtype_of_totals(statement: Statement) -> np.dtype[Any]:
    """Return the dtype that a statement's terms are added up in: long sums of float32 in float64."""
    dtype = statement.target.ref.spec.dtype
    terms = math.prod([n for n, step in zip(statement.space, statement.target.strides, strict=True) if not step])
    return FLOAT64 if statement.reduces is np.add and terms > _FEW_TERMS else dtype


def _points(placed: Placed) -> Iterable[dict[int, int]]:
    """Return the points of the unrolled axes, row by row."""
    axes = [axis for axis, name in enumerate(placed.names) if name is None]
    extents = [range(placed.statement.space[axis]) for axis in axes]
    for point in itertools.product(*extents):
        yield dict(zip(axes, point, strict=True))
