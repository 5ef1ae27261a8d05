"""A program as the compiler sees it: values, instructions without views, and loops that stand for repeats."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernels.foundation.specs import Array, Spec, is_dense, part_of
from kernels.foundation.tables import dataclass
from kernels.kinds.form import Form
from kernels.rules.op import Op

SMALL = 8
"""Elements of an array up to which each is a number of its own, in a register, where the others stand in memory."""


class Index(NamedTuple):
    """An integer: ``constant``, plus a multiple of each loop's step, plus what a table has at its loops' steps."""

    constant: int
    terms: tuple[tuple[int, int], ...] = ()  # numbers of loops, with what one step adds
    table: tuple[tuple[int, ...], Array] | None = None  # numbers of loops, and int64 integers, an axis a loop


def moves_alike(one: Index, other: Index) -> bool:
    """Whether two indices differ by the same number in all steps of all loops."""
    if one.terms != other.terms or (one.table is None) != (other.table is None):
        return False
    if one.table is None or other.table is None:
        return True
    return one.table[0] == other.table[0] and np.array_equal(one.table[1], other.table[1])


class Numbers(NamedTuple):
    """A Python number that changes with the steps of loops: float64, an axis a loop, outermost first."""

    loops: tuple[int, ...]
    table: Array


class Ref(NamedTuple):
    """Elements of a value: its memory, at ``offset`` bytes, in the pattern of ``spec``.

    ``at``: iteration indices, outermost first, for loops that enclose the definition but not this use; they select
    which iteration's value is read. ``wanted``: the gradient flows to the same place in the value's gradient.
    """

    value: int
    offset: Index
    spec: Spec
    wanted: bool
    at: tuple[Index, ...] = ()


Operand: TypeAlias = Ref | float | Numbers


@dataclass(slots=True, eq=False)
class Value:
    """Memory of the program in the pattern of ``spec``: an argument, a constant, a result or what a loop carries."""

    spec: Spec
    argument: int = -1  # its place among the arguments; -1 for others
    constant: Array | None = None
    loop: int = -1  # the innermost loop that it is made in; -1 outside of loops
    written: bool = False  # whether a write changes it
    differentiable: bool = False


@dataclass(slots=True, eq=False)
class RolledInstruction:
    """One operation; ``form`` if a gradient was recorded. A write has a ``target``, and no result."""

    op: Op
    params: tuple[Any, ...]
    form: Form | None
    operands: tuple[Operand, ...]
    result: int
    target: Ref | None = None
    line: int = -1  # the step of the recorded program that it stands for: the first of many in a loop
    extras: tuple[tuple[tuple[Any, ...], Spec], ...] = ()
    """The steps behind it for its results that have no gradient: their parameters and what they give."""


class Phi(NamedTuple):
    """What a loop carries: ``value`` is ``initial`` in its first step, then what ``update`` was in the step before."""

    value: int
    initial: Operand
    update: Ref


class Ends(NamedTuple):
    """Exit of a dynamic-trip loop. It runs at most ``limit`` iterations (None: no bound).

    If ``counted``, exactly ``limit``; otherwise it leaves when a guard fails, and that iteration has no effect.
    """

    limit: Operand | None
    counted: bool


@dataclass(slots=True, eq=False)
class Loop:
    """``count`` steps of ``body``, at most so many with ``ends``; ``number`` is what indices know it by.

    After a loop with ``ends``, indexing a carried value by the loop's own counter means its final value.
    """

    number: int
    count: int
    parent: int  # the number of the loop around it; -1 for none
    phis: list[Phi] = field(default_factory=list)
    body: list[RolledInstruction | Loop] = field(default_factory=list)
    ends: Ends | None = None
    guards: int = 0
    """How many guards of the recorded program one of its steps stands for; of a recorded loop they have no numbers."""


@dataclass(slots=True, eq=False)
class RolledProgram:
    """The whole program: ``values`` by number; ``loops`` by number."""

    values: list[Value]
    body: list[RolledInstruction | Loop]
    loops: list[Loop]
    arguments: list[int]
    outputs: list[Ref]
    guards: list[int] = field(default_factory=list)  # the steps of the recorded program that are guards, in order
    conditional: frozenset[int] = frozenset()
    """Those that some ways through a loop's iterations do, but not all, where all are run."""

    @property
    def length(self) -> int:
        """How many instructions it has, those of a loop counted once."""
        return sum(len(body) for body in [self.body, *[loop.body for loop in self.loops]])

    def loops_around(self, value: int) -> list[int]:
        """Return the numbers of the loops that a value is made in, outermost first."""
        around: list[int] = []
        loop = self.values[value].loop
        while loop >= 0:
            around.insert(0, loop)
            loop = self.loops[loop].parent
        return around


class Uncompiled(Exception):  # noqa: N818 (no error: the interpreter serves)
    """A program has something that the compiler does not know; the message says what, at which step."""

    def __init__(self, reason: str, step: int = -1) -> None:
        super().__init__(reason)
        self.reason, self.step = reason, step


# Memory that is written in place becomes values that are given once: each write makes the next version, of the parts
# that were written and copies of all else. What a loop writes is then carried from step to step as other values are, is
# saved where it is given, and stencils of it are gathered on the way back. That pays where writes that follow each
# other cover half of the memory, or it is small.

Box: TypeAlias = tuple[tuple[int, int], ...]  # where a part of an array begins and ends, along each axis
_MOST = 16  # parts of a version, at most


@dataclass(slots=True, eq=False)
class Group:
    """Writes that follow each other: together they make one version. ``parts`` are apart from each other."""

    writes: list[RolledInstruction] = field(default_factory=list)
    parts: list[Box] = field(default_factory=list)


def make_ssa_memory(program: RolledProgram) -> None:
    """Replace memory that is written by versions, where that pays."""
    phis = {phi.value for loop in program.loops for phi in loop.phis}  # whose memory may be that of others
    written = {k for k, value in enumerate(program.values) if value.written and _is_plain(program, k)} - phis
    if written:
        groups = _Groups(program, written)
        if groups.chosen:
            _Versions(program, groups).run()


def _is_plain(program: RolledProgram, number: int) -> bool:
    value = program.values[number]
    is_made = value.argument < 0 and value.constant is None
    return is_made and value.spec.size > 0 and is_dense(value.spec)


class _Groups:
    """Which writes make a version together, by value; ``chosen`` are the values of which all do so."""

    def __init__(self, program: RolledProgram, written: set[int]) -> None:
        self.program, self.chosen = program, written
        self.groups: dict[int, list[Group]] = defaultdict(list)
        self.of: dict[int, Group] = {}  # by the identity of an instruction that writes
        self.inside: dict[int, set[int]] = defaultdict(set)  # by number of a loop: what is written in it
        self._open: dict[int, Group] = {}
        self._body(program.body, ())
        self.chosen = {value for value in self.chosen & self.groups.keys() if self._pays(value)}

    def from_outside(self, loop: Loop) -> set[int]:
        """Return what is written in a loop, but made outside of it."""
        return {v for v in self.inside[loop.number] if loop.number not in self.program.loops_around(v)}

    def _pays(self, value: int) -> bool:
        shape = self.program.values[value].spec.shape
        size = math.prod(shape)
        for group in self.groups[value] if size > SMALL else ():
            covered = sum(math.prod(high - low for low, high in part) for part in group.parts)
            if 2 * covered < size or len(remainder(shape, group.parts)) > _MOST:
                return False
        return True

    def _body(self, body: list[RolledInstruction | Loop], path: tuple[int, ...]) -> None:
        for item in body:
            if isinstance(item, Loop):
                self._open.clear()
                self._body(item.body, (*path, item.number))
                if item.ends is not None:  # which may have no step at all
                    self.chosen -= self.from_outside(item)
                continue
            for operand in item.operands:
                # a version ends if what is read of it is not in a written part, nor apart from all
                if isinstance(operand, Ref) and operand.value in self._open:
                    parts = self._open[operand.value].parts
                    box = box_of(operand, self.program)
                    if box is None or not (any(_within(box, part) for part in parts) or _is_apart(box, parts)):
                        del self._open[operand.value]
            if item.target is not None and item.target.value in self.chosen:
                self._write(item, item.target, path)
        self._open.clear()

    def _write(self, item: RolledInstruction, target: Ref, path: tuple[int, ...]) -> None:
        box = box_of(target, self.program)
        if box is None or item.params or len(item.operands) > 1 or target.spec.size == 0:
            self.chosen.discard(target.value)
            return
        group = self._open.get(target.value)
        if group is None or not _is_apart(box, group.parts):
            group = self._open[target.value] = Group()
            self.groups[target.value].append(group)
        group.writes.append(item)
        group.parts.append(box)
        self.of[id(item)] = group
        for loop in path:
            self.inside[loop].add(target.value)


class _Versions:
    """Renames what reads memory to its versions; goes through the program once, in its order."""

    def __init__(self, program: RolledProgram, groups: _Groups) -> None:
        self.program, self.groups = program, groups
        self.current: dict[int, Ref] = {k: self._whole(k) for k in groups.chosen}
        """What the memory is at this place, as it is read where that was made."""
        self._open: dict[int, tuple[Ref, list[Box]]] = {}
        """The version that is being made, and the parts that it has by now."""

    def run(self) -> None:
        """Replace all chosen memory."""
        self.program.body[:] = self._body(self.program.body, -1)
        self.program.outputs[:] = [self._renamed(ref) for ref in self.program.outputs]
        for value in self.groups.chosen:
            self.program.values[value].written = False

    def _whole(self, value: int, at: tuple[Index, ...] = ()) -> Ref:
        entry = self.program.values[value]
        return Ref(value, Index(0), entry.spec, entry.spec.dtype.kind == "f", at)

    def _new(self, like: int, loop: int) -> int:
        self.program.values.append(Value(self.program.values[like].spec, loop=loop, differentiable=True))
        return len(self.program.values) - 1

    def _renamed(self, ref: Ref) -> Ref:
        now = self.current.get(ref.value)
        if now is None:
            return ref
        if ref.value in self._open:
            new, parts = self._open[ref.value]
            box = box_of(ref, self.program)
            if box is not None and any(_within(box, part) for part in parts):
                now = new
        return ref._replace(value=now.value, at=(*ref.at, *now.at))

    def _operand(self, operand: Operand) -> Operand:
        return self._renamed(operand) if isinstance(operand, Ref) else operand

    def _body(self, body: list[RolledInstruction | Loop], loop: int) -> list[RolledInstruction | Loop]:
        made: list[RolledInstruction | Loop] = []
        for item in body:
            if isinstance(item, Loop):
                self._loop(item)
                made.append(item)
                continue
            item.operands = tuple([self._operand(operand) for operand in item.operands])
            made.append(item)
            if item.target is not None and item.target.value in self.groups.chosen:
                made += self._write(item, item.target, loop)
        return made

    def _write(self, item: RolledInstruction, target: Ref, loop: int) -> list[RolledInstruction]:
        """Let a write be one of a part of a version; return, behind the last part, copies of the rest."""
        group, value = self.groups.of[id(item)], target.value
        if item is group.writes[0]:
            self._open[value] = self._whole(self._new(value, loop)), []
        new, parts = self._open[value]
        old = self.current[value]
        before = target._replace(value=old.value, at=old.at, wanted=old.wanted)
        item.operands, item.target = (*item.operands, before), target._replace(value=new.value)
        parts.append(group.parts[len(parts)])
        if item is not group.writes[-1]:
            return []
        rest = remainder(new.spec.shape, parts)
        copies = [RolledInstruction(item.op, (), None, (_part(old, b),), -1, _part(new, b), item.line) for b in rest]
        self.current[value] = new
        del self._open[value]
        return copies

    def _loop(self, loop: Loop) -> None:
        if loop.ends is not None and loop.ends.limit is not None:
            loop.ends = loop.ends._replace(limit=self._operand(loop.ends.limit))
        loop.phis[:] = [phi._replace(initial=self._operand(phi.initial)) for phi in loop.phis]
        phis = []
        for value in sorted(self.groups.from_outside(loop) & self.groups.chosen):
            phi = self._new(value, loop.number)
            phis.append((value, phi, self.current[value]))
            self.current[value] = self._whole(phi)
        loop.body[:] = self._body(loop.body, loop.number)
        loop.phis[:] = [phi._replace(update=self._renamed(phi.update)) for phi in loop.phis]
        for value, phi, initial in phis:
            update = self.current[value]
            loop.phis.append(Phi(phi, initial, update))
            self.current[value] = self._whole(update.value, (Index(loop.count - 1), *update.at))


def box_of(ref: Ref, program: RolledProgram) -> Box | None:
    """Return which part of a dense array a reference is; None of what moves, or is no slice of step 1."""
    value = program.values[ref.value]
    if ref.offset.terms or ref.offset.table is not None or ref.at:
        return None
    at, strides, box = ref.offset.constant, list(ref.spec.strides), []
    extents = [n for n, stride in zip(ref.spec.shape, strides, strict=True) if n != 1]
    steps = [stride for n, stride in zip(ref.spec.shape, strides, strict=True) if n != 1]
    for extent, stride in zip(value.spec.shape, value.spec.strides, strict=True):
        start, at = divmod(at, stride) if extent > 1 else (0, at)
        many = extents[steps.index(stride)] if extent > 1 and stride in steps else 1
        if start + many > extent:
            return None
        box.append((start, start + many))
    known = at == 0 and len({*steps}) == len(steps) and math.prod(extents) == math.prod(b - a for a, b in box)
    return tuple(box) if known else None


def _part(ref: Ref, box: Box) -> Ref:
    strides = ref.spec.strides
    start = sum(low * stride for (low, _), stride in zip(box, strides, strict=True))
    shape = tuple([high - low for low, high in box])
    return ref._replace(offset=Index(start), spec=part_of(ref.spec, shape, strides))


def remainder(shape: tuple[int, ...], parts: list[Box]) -> list[Box]:
    """Return boxes, apart from each other, that are all of an array but for parts of it."""
    boxes: list[Box] = [tuple([(0, extent) for extent in shape])]
    for part in parts:
        boxes = [rest for box in boxes for rest in _without(box, part)]
    return boxes


def _without(box: Box, part: Box) -> list[Box]:
    """Return boxes that are one box but for what another has of it."""
    if _is_apart(box, [part]):
        return [box]
    rest, inner = [], list(box)
    for axis, ((low, high), (first, last)) in enumerate(zip(box, part, strict=True)):
        for begin, end in ((low, max(low, first)), (min(high, last), high)):
            if begin < end:
                rest.append((*inner[:axis], (begin, end), *inner[axis + 1 :]))
        inner[axis] = max(low, first), min(high, last)
    return [tuple(each) for each in rest]


def _within(box: Box, part: Box) -> bool:
    return all(first <= low and high <= last for (low, high), (first, last) in zip(box, part, strict=True))


def _is_apart(box: Box, parts: list[Box]) -> bool:
    return all(
        any(high <= first or last <= low for (low, high), (first, last) in zip(box, part, strict=True))
        for part in parts
    )
