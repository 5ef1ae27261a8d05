"""Which loops statements share: each goes to the earliest nest behind what it depends on that runs over its space."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from kernels.compiler import statements as fused
from kernels.compiler.composed_operations import statements
from kernels.compiler.statements import Access, AnyStatement, GuardStatement, Source, Statement
from kernels.foundation.specs import Strides
from kernels.foundation.tables import dataclass
from kernels.kinds.views import Join
from kernels.programs.rolled_program import SMALL, Index, Loop, Ref, RolledInstruction, RolledProgram, moves_alike

# Statements split where what they read was joined: each part reads one operand of the join, and the join is not made.
#
# ``roll(u, 1)`` is ``u`` joined from two parts; what is computed of it elementwise falls into a first element and
# others.

_MOST = 8  # parts of a statement, at most
_SHORT = 16  # elements up to which a statement stays whole


class JoinedPart(NamedTuple):
    """Elements of a vector from ``start`` to ``stop``: those of a reference, in its order."""

    start: int
    stop: int
    ref: Ref


class Splitting:
    """Knows which vectors were joined; splits statements that read them, and those that these exchange values with."""

    def __init__(self, program: RolledProgram) -> None:
        self.program = program
        self.joined: dict[int, list[JoinedPart]] = {}

    def note(self, instruction: RolledInstruction) -> None:
        """Take note of a join of vectors."""
        if not isinstance(instruction.op, Join) or instruction.params != (0, False):
            return
        refs = [operand for operand in instruction.operands if isinstance(operand, Ref)]
        whole = self.program.values[instruction.result]
        if len(refs) < len(instruction.operands) or len(whole.spec.shape) != 1 or whole.written:
            return
        if any(self.program.values[ref.value].written for ref in refs):
            return  # what was joined may be overwritten before the join is read
        pieces, start = [], 0
        for ref in refs:
            if ref.spec.size:
                pieces.append(JoinedPart(start, start + ref.spec.size, ref))
            start += ref.spec.size
        self.joined[instruction.result] = pieces

    def split(self, statements: list[AnyStatement]) -> list[AnyStatement]:
        """Return statements that follow each other, in parts."""
        if not self.joined:
            return statements
        groups = self._groups(statements)
        borders: dict[int, set[int]] = defaultdict(set)
        for k, statement in enumerate(statements):
            if groups[k] >= 0 and isinstance(statement, Statement):
                borders[groups[k]] |= {b for o in statement.operands for b in self._borders(o, statement.space[0])}
        made: list[AnyStatement] = []
        for k, statement in enumerate(statements):
            inner = sorted(borders[groups[k]]) if groups[k] >= 0 else []
            if not isinstance(statement, Statement) or groups[k] < 0 or len(inner) >= _MOST:
                made.append(statement)
                continue
            ends = [0, *inner, statement.space[0]]
            made += [self._part(statement, low, high) for low, high in pairwise(ends)]
        return made

    def _groups(self, statements: list[AnyStatement]) -> list[int]:
        """Return for each statement the first of those that it exchanges vectors with; -1 for what stays whole."""
        simple = [isinstance(s, Statement) and not s.reduces and len(s.space) == 1 for s in statements]
        first = [k if simple[k] and s.space[0] > _SHORT else -1 for k, s in enumerate(statements)]
        makers: dict[int, int] = {}

        def root(k: int) -> int:
            while first[k] != k:
                k = first[k]
            return k

        for k, statement in enumerate(statements):
            if first[k] < 0 or not isinstance(statement, Statement):
                continue
            for operand in statement.operands:
                maker = makers.get(operand.ref.value) if isinstance(operand, Access) else None
                same = maker is not None and self._first(operand) == 0
                if maker is not None and same and statements[maker].space == statement.space:
                    one, other = sorted((root(k), root(maker)))
                    first[other] = one
            makers[statement.target.ref.value] = k
        return [root(k) if at >= 0 else -1 for k, at in enumerate(first)]

    def _borders(self, operand: Source, extent: int) -> list[int]:
        """Return the places along a statement at which an operand goes on with another part of a join."""
        first = self._first(operand)
        if first is None or not isinstance(operand, Access):
            return []
        pieces = self.joined.get(operand.ref.value, ())
        return [piece.start - first for piece in pieces if 0 < piece.start - first < extent]

    def _first(self, operand: Source) -> int | None:
        """Return the element of a vector that an operand reads first, if it reads on one by one; None of others."""
        if not isinstance(operand, Access) or operand.places is not None or operand.ref.at:
            return None
        value, offset = self.program.values[operand.ref.value], operand.ref.offset
        if len(value.spec.shape) != 1 or operand.strides != value.spec.strides or offset.terms or offset.table:
            return None
        return offset.constant // value.spec.strides[0]

    def _part(self, statement: Statement, low: int, high: int) -> Statement:
        operands = tuple([self._operand(operand, low, high) for operand in statement.operands])
        target = _moved(statement.target, low, high)
        space = (high - low,) if high - low > 1 else ()
        return replace(statement, space=space, operands=operands, target=target)

    def _operand(self, operand: Source, low: int, high: int) -> Source:
        if not isinstance(operand, Access):
            return operand
        first = self._first(operand)
        pieces = self.joined.get(operand.ref.value, ()) if first is not None else ()
        for piece in pieces:
            start = (first or 0) + low - piece.start
            if start >= 0 and start + high - low <= piece.stop - piece.start:
                ref = piece.ref._replace(wanted=operand.ref.wanted and piece.ref.wanted)
                return _moved(Access(ref, ref.spec.strides), start, start + high - low)
        return _moved(operand, low, high)


def _moved(access: Access, low: int, high: int) -> Access:
    """Return the elements of an access to a vector from one on to another."""
    (stride,) = access.strides
    ref = access.ref
    offset = Index(ref.offset.constant + low * stride, ref.offset.terms, ref.offset.table)
    places = access.places
    if isinstance(places, Access):
        places = _moved(places, low, high)
    elif places is not None:
        places = places[low:high].reshape((high - low,)[: high - low > 1])
    ref = ref._replace(offset=offset)
    if access.steps:
        (step,) = access.steps
        last = ref.at[-1]._replace(constant=ref.at[-1].constant + low * step)
        ref = ref._replace(at=(*ref.at[:-1], last))
    several = high - low > 1
    return Access(ref, (stride,) if several else (), places, access.steps if several else ())


NARROW = 4  # the extent of an axis up to which it is no loop within a larger space
_WIDE = 9  # elements side by side in the innermost loop, at most
_UNROLLED = 64  # elements of a space of narrow axes alone, up to which it is no loop
_LONGEST = 150  # statements of a nest, at most: beyond, registers run out


_VECTOR_FUNCTION, _FUNCTIONS = 10, 12
"""What computing a vector function costs, at least, in additions; and the statements that it stands for."""


@dataclass(slots=True, eq=False)
class FusedBlock:
    """Items in order: of the program, of the body of a loop or of a nest."""

    parent: FusedBlock | None = None
    within: Nest | FusedLoop | None = None  # what it is the body of
    items: list[Item] = field(default_factory=list)
    place: int = -1  # where the nest or loop that it is the body of stands among the items of its parent

    def path(self) -> list[FusedBlock]:
        """Return the blocks around it, from the outermost to itself."""
        return [*(self.parent.path() if self.parent is not None else ()), self]

    def placed(self) -> Iterator[Placed]:
        """Yield the statements in it, and in the nests and loops in it."""
        for item in self.items:
            if isinstance(item, Placed):
                yield item
            else:
                yield from item.body.placed()


@dataclass(slots=True, eq=False)
class Nest:
    """A loop over an axis that its statements share; ``name`` is its index."""

    name: str
    extent: int
    body: FusedBlock
    is_inner: bool  # whether the first statement in it has no further loop
    size: int = 0  # statements in it


@dataclass(slots=True, eq=False)
class FusedLoop:
    """A loop of the program: its body, statement by statement."""

    loop: Loop
    body: FusedBlock


@dataclass(slots=True, eq=False)
class Placed:
    """A statement in its block; ``names`` are the indices of the axes that are loops, None of those that are not."""

    statement: AnyStatement
    block: FusedBlock
    names: tuple[str | None, ...]
    position: int = -1

    def stride(self, access: Access, name: str) -> int:
        """Return the stride of an access along a loop; 0 if it has none."""
        return access.strides[self.names.index(name)] if name in self.names else 0


Item: TypeAlias = Placed | Nest | FusedLoop
Conflict: TypeAlias = tuple[Placed, Access, Access]
"""A statement that another comes after, and the accesses of both to the same memory."""


def looped(space: Strides) -> tuple[int, ...]:
    """Return the axes of a space that are loops; the others are unrolled."""
    if math.prod(space) <= SMALL or (max(space) <= NARROW and math.prod(space) <= _UNROLLED):
        return ()
    axes = {axis for axis, extent in enumerate(space) if extent > NARROW}
    while math.prod(extent for axis, extent in enumerate(space) if axis not in axes) > _WIDE or not axes:
        axes.add(max((axis for axis in range(len(space)) if axis not in axes), key=space.__getitem__))
    return tuple(sorted(axes))


class Fusion:
    """Places the statements of a program; ``root`` is the tree of blocks."""

    def __init__(self, program: RolledProgram, first: Iterable[AnyStatement] = ()) -> None:
        self.program = program
        self.root = FusedBlock()
        self.writers: dict[int, list[Placed]] = defaultdict(list)
        self.readers: dict[int, list[Placed]] = defaultdict(list)
        self.placed: list[Placed] = []
        self.apart: dict[str, tuple[int, int]] = {}
        """By name of a nest that could not be an earlier one of its extent: the steps of the statements that met."""
        self._names = 0
        self.splitting = Splitting(program)
        for statement in first:
            self.place(statement, self.root)
        self._body(self.root, program.body)

    def _body(self, block: FusedBlock, body: list[RolledInstruction | Loop]) -> None:
        run: list[AnyStatement] = []
        for item in body:
            if isinstance(item, Loop):
                self._run(block, run)
                run = []
                steps = FusedLoop(item, FusedBlock(block, place=len(block.items)))
                steps.body.within = steps
                block.items.append(steps)
                self._body(steps.body, item.body)
                self._carried_on(item, steps.body)
            else:
                run += statements(item, self.program)
                self.splitting.note(item)
        self._run(block, run)

    def _carried_on(self, loop: Loop, body: FusedBlock) -> None:
        """Let what is read of a recorded loop's phis behind it come after the loop."""
        for phi in loop.phis if loop.ends is not None else ():
            spec = self.program.values[phi.value].spec
            target = fused.ref_to_all(self.program, phi.value, wanted=phi.update.wanted)
            update = Access(phi.update, phi.update.spec.strides)
            statement = fused.mapped(fused.COPY, spec.shape, (update,), target, spec.strides, (phi.update.wanted,))
            self.writers[phi.value].append(Placed(statement, body, (None,) * len(statement.space), len(body.items)))

    def _run(self, block: FusedBlock, run: list[AnyStatement]) -> None:
        """Place statements that follow each other."""
        for statement in self._small_first(self.splitting.split(run)):
            self.place(statement, block)

    def _small_first(self, run: list[AnyStatement]) -> list[AnyStatement]:
        """Return statements, up to each guard first those that need no loop: others may then share their loops."""
        ordered, others, late = list[AnyStatement](), list[AnyStatement](), set[int]()
        for statement in run:
            if self._is_small(statement, late):
                ordered.append(statement)
                continue
            others.append(statement)
            if fused.is_guard(statement):
                ordered, others, late = [*ordered, *others], [], set()
            else:
                late.add(statement.target.ref.value)
        return [*ordered, *others]

    def _is_small(self, statement: AnyStatement, late: set[int]) -> bool:
        if not isinstance(statement, Statement) or statement.reduces is not None or looped(statement.space):
            return False
        values = {access.ref.value for access in (*statement.accesses(), statement.target)}
        return values.isdisjoint(late) and not any(self.program.values[value].written for value in values)

    def place(self, statement: AnyStatement, block: FusedBlock) -> None:
        """Put a statement into a block of the program or into nests of it."""
        axes = looped(statement.space) if statement.space and isinstance(statement, Statement) else ()
        placed = Placed(statement, block, (None,) * len(statement.space))
        before = self._before(statement)
        for axis in axes:
            nest = self._nest(placed, block, axis, before, is_inner=axis == axes[-1])
            placed.names = tuple([nest.name if k == axis else name for k, name in enumerate(placed.names)])
            is_long = isinstance(statement, Statement) and statement.operation.forward.price >= _VECTOR_FUNCTION
            nest.size += _FUNCTIONS if is_long else 1
            block = nest.body
        placed.block, placed.position = block, len(block.items)
        block.items.append(placed)
        self.placed.append(placed)
        if not isinstance(statement, GuardStatement):
            self.writers[statement.target.ref.value].append(placed)
        for access in statement.accesses():
            self.readers[access.ref.value].append(placed)

    def _before(self, statement: AnyStatement) -> list[Conflict]:
        """Return what a statement comes after: the other, its access and that of the statement to the same memory."""
        before = [(p, _target(p), read) for read in statement.accesses() for p in self.writers[read.ref.value]]
        if not isinstance(statement, GuardStatement) and self.program.values[statement.target.ref.value].written:
            target = statement.target
            before += [(p, _target(p), target) for p in self.writers[target.ref.value]]
            for p in self.readers[target.ref.value]:
                before += [(p, read, target) for read in p.statement.accesses() if read.ref.value == target.ref.value]
        return [(p, theirs, ours) for p, theirs, ours in before if self._overlap(p.statement, theirs, statement, ours)]

    @staticmethod
    def _overlap(other: AnyStatement, theirs: Access, statement: AnyStatement, ours: Access) -> bool:
        """Whether two accesses to one value may meet."""
        if not _same_steps(theirs.ref, ours.ref) or theirs.places is not None or ours.places is not None:
            return True
        first, second = _range(other, theirs), _range(statement, ours)
        return first[0] <= second[1] and second[0] <= first[1]

    def _nest(self, placed: Placed, block: FusedBlock, axis: int, before: list[Conflict], *, is_inner: bool) -> Nest:
        """Return the nest of a block in which an axis of a statement is the loop: one that is there, or a new one.

        One that is there has loops within as the statement has, or computes what that reads.
        """
        extent = placed.statement.space[axis]
        fences = [(_item_of(p, block), p, theirs, ours) for p, theirs, ours in before]
        first = max((place for place, *_ in fences if place is not None), default=0)
        if isinstance(placed.statement, Statement) and placed.statement.is_indirect():
            for place, item in enumerate(block.items):
                if isinstance(item, Placed) and fused.is_guard(item.statement):
                    first = max(first, place)  # the guard may say that places are within bounds
        obstacle: Placed | None = None
        for place in range(first, len(block.items)):
            nest = block.items[place]
            if isinstance(nest, Nest) and nest.extent == extent and nest.size < _LONGEST:
                inside = [(p, theirs, ours) for at, p, theirs, ours in fences if at == place]
                met = [p for p, theirs, ours in inside if not _aligned(nest, p, theirs, placed, ours, axis)]
                if not met and (inside or nest.is_inner == is_inner):
                    return nest
                obstacle = met[0] if met else obstacle
        self._names += 1
        nest = Nest(f"i{self._names}", extent, FusedBlock(block, place=len(block.items)), is_inner)
        if obstacle is not None:
            self.apart[nest.name] = obstacle.statement.line, placed.statement.line
        nest.body.within = nest
        block.items.append(nest)
        return nest


def _target(placed: Placed) -> Access:
    assert not isinstance(placed.statement, GuardStatement)
    return placed.statement.target


def _range(statement: AnyStatement, access: Access) -> tuple[int, int]:
    """Return the first and the last byte offset of an access, but for the steps of loops."""
    space = access.ref.spec.shape if isinstance(statement, fused.CallStatement) else statement.space
    low, high = access.extent(space, range(len(space)))
    start = access.ref.offset.constant
    return start + low, start + high


def _item_of(placed: Placed, block: FusedBlock) -> int | None:
    """Return where the item of a block stands that a statement is in; None if it is in none."""
    around = placed.block
    if around is block:
        return placed.position
    while around is not None:
        if around.parent is block:
            return around.place
        around = around.parent  # type: ignore[assignment]
    return None


def _aligned(nest: Nest, other: Placed, theirs: Access, placed: Placed, ours: Access, axis: int) -> bool:
    """Whether in a nest each step of a statement would meet another only where that is at the same step."""
    if nest.name not in other.names:
        return False  # in a loop of the program within the nest, or complete after it
    stride = other.stride(theirs, nest.name)
    if ours.places is not None or theirs.places is not None or stride == 0 or stride != ours.strides[axis]:
        return False
    if not _same_steps(theirs.ref, ours.ref):
        return False
    low, high = _slice(other, theirs, nest.name)
    first, last = _slice(placed, ours, None, axis)
    return low <= first and last <= high and high - low < abs(stride)


def _same_steps(one: Ref, other: Ref) -> bool:
    """Whether two references move alike in the steps of loops, within what the same steps gave."""
    pairs = zip(one.at, other.at, strict=False)
    same = len(one.at) == len(other.at) and all(a.constant == b.constant and moves_alike(a, b) for a, b in pairs)
    return same and moves_alike(one.offset, other.offset)


def _slice(placed: Placed, access: Access, name: str | None, axis: int = -1) -> tuple[int, int]:
    """Return the first and the last byte offset of an access in one step of the loops up to a nest."""
    names, space = placed.names, placed.statement.space
    bound = [k for k, known in enumerate(names) if known is not None]
    if name is not None:
        bound = bound[: bound.index(names.index(name)) + 1]
    fixed = {*bound, axis}
    low, high = access.extent(space, [k for k in range(len(space)) if k not in fixed])
    return access.ref.offset.constant + low, access.ref.offset.constant + high


def is_fixed(access: Access, names: tuple[str | None, ...]) -> bool:
    """Whether an access is to the same elements in each step of all loops of its statement."""
    ref: Ref = access.ref
    moves = any(name is not None and stride for name, stride in zip(names, access.strides, strict=True))
    return (
        not moves and not access.steps and access.places is None and not ref.offset.terms and ref.offset.table is None
    )
