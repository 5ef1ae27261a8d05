"""Programs of loops, run step by step in plain NumPy; and unrolled again, to be compared with straight ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kernels.kinds.elementwise import Contraction, Elementwise, Reduction, reduced
from kernels.kinds.routine import Guard
from kernels.kinds.views import Copy, Join, Write
from kernels.programs.rolled_program import (
    Index,
    Loop,
    Numbers,
    Operand,
    Ref,
    RolledInstruction,
    RolledProgram,
)

Array = np.ndarray[Any, Any]
Steps = dict[int, int]
"""The steps that loops are at, by their numbers."""
Instance = tuple[int, tuple[int, ...]]
"""A value, and the steps of the loops around it that it was made in."""


def instructions(body: list[RolledInstruction | Loop]) -> int:
    """Return how many instructions there are, in loops too."""
    return sum(1 if isinstance(item, RolledInstruction) else instructions(item.body) for item in body)


def resolved_index(index: Index, steps: Steps) -> int:
    """Return what an index is at these steps."""
    number = index.constant + sum(steps[loop] * step for loop, step in index.terms)
    if index.table is not None:
        loops, table = index.table
        assert table.dtype == np.int64
        number += int(table[tuple([steps[loop] for loop in loops])])
    return number


def number_of(operand: float | Numbers, steps: Steps) -> float:
    """Return what a number is at these steps."""
    if isinstance(operand, Numbers):
        return float(operand.table[tuple([steps[loop] for loop in operand.loops])])
    assert type(operand) is float
    return operand


class Reference:
    """A program's arithmetic; everything that its loops compute is kept."""

    def __init__(self, program: RolledProgram) -> None:
        self.program = program
        assert [loop.number for loop in program.loops] == [*range(len(program.loops))]
        self.memory: dict[Instance, tuple[Array, int]] = {}
        """Bytes, and where the first element stands among them."""

    def outputs(self, *arguments: Any) -> list[Array]:
        """Return what the program returns for these arguments."""
        for value in range(len(self.program.values)):
            entry = self.program.values[value]
            if entry.argument >= 0:
                assert self.program.arguments[entry.argument] == value
                self._make((value, ()), np.asarray(arguments[entry.argument], entry.spec.dtype))
            elif entry.constant is not None:
                assert entry.loop < 0
                self._make((value, ()), entry.constant)
        self._run(self.program.body, {}, -1)
        return [self.read(ref, {}, -1).copy() for ref in self.program.outputs]

    def path(self, loop: int) -> list[int]:
        """Return a loop and those around it, outermost first."""
        loops: list[int] = []
        while loop >= 0:
            loops.insert(0, loop)
            loop = self.program.loops[loop].parent
        return loops

    def instance(self, ref: Ref, steps: Steps, loop: int) -> Instance:
        """Return which of the values a reference means, read in a loop."""
        around, mine = self.path(loop), self.path(self.program.values[ref.value].loop)
        shared = sum(a == b for a, b in zip(around, mine, strict=False))
        assert around[:shared] == mine[:shared]
        assert len(ref.at) == len(mine) - shared, "one step for each loop that is not around the reader"
        at = [resolved_index(index, steps) for index in ref.at]
        counts = [self.program.loops[number].count for number in mine[shared:]]
        assert all(0 <= step < count for step, count in zip(at, counts, strict=True))
        return ref.value, (*[steps[number] for number in mine[:shared]], *at)

    def read(self, ref: Ref, steps: Steps, loop: int) -> Array:
        """Return the memory that a reference means; an error if that is not there, or not yet made."""
        memory, first = self.memory[self.instance(ref, steps, loop)]
        spec = ref.spec
        first += resolved_index(ref.offset, steps)
        reach = [(n - 1) * stride for n, stride in zip(spec.shape, spec.strides, strict=True)] if spec.size else [0]
        low, high = first + sum(min(r, 0) for r in reach), first + sum(max(r, 0) for r in reach)
        assert low >= 0, "a part begins before its value"
        assert high + spec.dtype.itemsize * (spec.size > 0) <= len(memory), "a part ends behind its value"
        return np.ndarray(spec.shape, spec.dtype, memory, first, spec.strides)

    def _make(self, instance: Instance, content: Any) -> None:
        """Make the memory of a value, and fill it."""
        assert instance not in self.memory, "made twice"
        spec = self.program.values[instance[0]].spec
        reach = [(n - 1) * stride for n, stride in zip(spec.shape, spec.strides, strict=True)] if spec.size else [0]
        first = -sum(min(r, 0) for r in reach)
        memory = np.zeros(first + sum(max(r, 0) for r in reach) + spec.dtype.itemsize, np.uint8)
        self.memory[instance] = memory, first
        target: Array = np.ndarray(spec.shape, spec.dtype, memory, first, spec.strides)
        if isinstance(content, float):
            content = np.full(spec.shape, content, spec.dtype)
        assert content.shape == spec.shape
        assert content.dtype == spec.dtype
        target[...] = content

    def _run(self, body: list[RolledInstruction | Loop], steps: Steps, loop: int) -> None:
        path = tuple([steps[number] for number in self.path(loop)])
        for item in body:
            if isinstance(item, Loop):
                assert item.parent == loop
                self._loop(item, steps)
                continue
            operands = [self._operand(operand, steps, loop) for operand in item.operands]
            if isinstance(item.op, Write):
                assert item.target is not None
                assert self.program.values[item.target.value].written
                part = self.read(item.target, steps, loop)
                part[...] = part + operands[0] if item.op.adds else operands[0]
            elif isinstance(item.op, Guard):
                assert np.asarray(operands[0]).tobytes() == np.asarray(operands[1]).tobytes()
            else:
                assert self.program.values[item.result].loop == loop
                dtype = self.program.values[item.result].spec.dtype
                self._make((item.result, path), np.asarray(computed(item, operands, dtype)))

    def _loop(self, item: Loop, outer: Steps) -> None:
        path = tuple([outer[number] for number in self.path(item.parent)])
        for k in range(item.count):
            steps, before = outer | {item.number: k}, outer | {item.number: k - 1}
            contents = [
                self._operand(phi.initial, outer, item.parent)
                if k == 0
                else self.read(phi.update, before, item.number).copy()
                for phi in item.phis
            ]
            for phi, content in zip(item.phis, contents, strict=True):
                assert self.program.values[phi.value].loop == item.number
                self._make((phi.value, (*path, k)), content.copy() if isinstance(content, np.ndarray) else content)
            self._run(item.body, steps, item.number)

    def _operand(self, operand: Operand, steps: Steps, loop: int) -> Any:
        return self.read(operand, steps, loop) if isinstance(operand, Ref) else number_of(operand, steps)


def computed(item: RolledInstruction, operands: list[Any], dtype: np.dtype[Any]) -> Any:
    """Return the result of an instruction, by NumPy."""
    op, params = item.op, item.params
    with np.errstate(all="ignore"):
        if isinstance(op, Elementwise):
            if params and params[0] in op.variants:
                return op.variants[params[0]](*operands)
            return op.ufunc(*operands, *params)
        if isinstance(op, Reduction):
            return reduced(op, operands[0], axes=params[0], keepdims=params[1])
        if isinstance(op, Join):
            return op.join(operands, axis=params[0])
        if isinstance(op, Copy):
            return operands[0].astype(dtype)
        if isinstance(op, Contraction):
            return operands[0] @ operands[1]
    raise AssertionError(op.name)


# Unrolled again


class Read(NamedTuple):
    """What a slot reads, loops and what they carry being gone: a number, or a part of what a row computes."""

    instance: Instance
    offset: int
    pattern: Any
    wanted: bool


class Row(NamedTuple):
    """An instruction in one of the steps of its loops."""

    item: RolledInstruction
    operands: tuple[Read | float, ...]
    target: Read | None


class Unrolled:
    """A program's rows: ``made`` by what they compute, ``writes`` by what they write to, in order; and outputs."""

    def __init__(self, program: RolledProgram) -> None:
        self.program, self.reference = program, Reference(program)
        self.phis = {phi.value: (phi, loop) for loop in program.loops for phi in loop.phis}
        self.made: dict[Instance, Row] = {}
        self.writes: dict[Instance, list[Row]] = {}
        for instance, row in self._rows(program.body, {}, -1):
            if row.target is not None:
                self.writes.setdefault(row.target.instance, []).append(row)
            elif instance[0] >= 0:
                self.made[instance] = row
        self.outputs = [self._read(ref, {}, -1) for ref in program.outputs]

    def _rows(self, body: list[RolledInstruction | Loop], steps: Steps, loop: int) -> Iterator[tuple[Instance, Row]]:
        for item in body:
            if isinstance(item, Loop):
                for k in range(item.count):
                    yield from self._rows(item.body, steps | {item.number: k}, item.number)
                continue
            operands = tuple([self._read(operand, steps, loop) for operand in item.operands])
            target = None if item.target is None else self._read(item.target, steps, loop)
            assert not isinstance(target, float)
            yield (item.result, tuple([steps[n] for n in self.reference.path(loop)])), Row(item, operands, target)

    def _read(self, operand: Operand, steps: Steps, loop: int) -> Read | float:
        """Return what an operand reads, behind what loops carry."""
        if not isinstance(operand, Ref):
            return number_of(operand, steps)
        value, at = self.reference.instance(operand, steps, loop)
        offset, spec, wanted = resolved_index(operand.offset, steps), operand.spec, operand.wanted
        while value in self.phis:
            phi, around = self.phis[value]
            steps = dict(zip(self.reference.path(around.number), at, strict=True))
            source: Any = phi.update if at[-1] else phi.initial
            loop = around.number if at[-1] else around.parent
            steps[around.number] -= 1
            if not isinstance(source, Ref):
                return number_of(source, steps)
            if source.spec.strides != self.program.values[phi.value].spec.strides:
                assert spec.shape == source.spec.shape
                spec = source.spec
            offset, wanted = offset + resolved_index(source.offset, steps), wanted and source.wanted
            value, at = self.reference.instance(source, steps, loop)
        strides = tuple([stride for stride, n in zip(spec.strides, spec.shape, strict=True) if n != 1])
        return Read((value, at), offset, (spec.shape, spec.dtype, strides), wanted)


def differences(program: RolledProgram, straight: RolledProgram) -> list[str]:
    """Return where a program, unrolled again, is another than a straight one, of all that its outputs come from."""
    return _Comparison(Unrolled(program), Unrolled(straight)).faults


class _Comparison:
    """Follows two unrolled programs from their outputs back, pair by pair."""

    def __init__(self, mine: Unrolled, other: Unrolled) -> None:
        self.mine, self.other = mine, other
        self.faults: list[str] = []
        self.pairs: dict[Instance, Instance] = {}
        self.waiting = [(a, b, "an output") for a, b in zip(mine.outputs, other.outputs, strict=True)]
        while self.waiting:
            a, b, where = self.waiting.pop()
            if not self._agree(a, b):
                self.faults.append(f"{where}: {a} for {b}")

    def _agree(self, a: Read | float, b: Read | float) -> bool:
        if isinstance(a, float) or isinstance(b, float) or self._constant(self.mine, a) is not None:
            contents = [
                x if isinstance(x, float) else self._constant(unrolled, x)
                for unrolled, x in ((self.mine, a), (self.other, b))
            ]
            return all(c is not None for c in contents) and len({np.asarray(c).tobytes() for c in contents}) == 1
        if a.pattern != b.pattern or a.offset != b.offset or (a.wanted != b.wanted and self._leads_on(b.instance)):
            return False
        if a.instance not in self.pairs:
            self.pairs[a.instance] = b.instance
            self._look_into(a.instance, b.instance)
        places = [u.program.values[x.instance[0]].argument for u, x in ((self.mine, a), (self.other, b))]
        return self.pairs[a.instance] == b.instance and places[0] == places[1]

    def _look_into(self, a: Instance, b: Instance) -> None:
        """Compare what two values come from: the rows that make them, and those that write to them."""
        mine, other = ([u.made[x]] if x in u.made else [] for u, x in ((self.mine, a), (self.other, b)))
        mine, other = [*mine, *self.mine.writes.get(a, [])], [*other, *self.other.writes.get(b, [])]
        if len(mine) != len(other):
            self.faults.append(f"{a}: {len(mine)} rows for {len(other)}")
        for one, two in zip(mine, other, strict=False):
            if one.item.op is not two.item.op or repr(one.item.params) != repr(two.item.params):
                self.faults.append(f"row {two.item.line}: {one.item.op.name} for {two.item.op.name}")
            pairs = [*zip(one.operands, two.operands, strict=True)]
            if one.target is not None and two.target is not None:
                pairs.append((one.target, two.target))
            self.waiting += [(x, y, f"row {two.item.line}") for x, y in pairs]

    @staticmethod
    def _constant(unrolled: Unrolled, read: Read) -> Array | None:
        """Return the elements of a constant that are read; None of other values."""
        constant = unrolled.program.values[read.instance[0]].constant
        if constant is None:
            return None
        shape, dtype, strides = read.pattern
        every = iter(strides)
        full = [0 if n == 1 else next(every) for n in shape]
        start: Array = constant.view()
        address = start.__array_interface__["data"][0] + read.offset
        interface = {"shape": shape, "typestr": dtype.str, "data": (address, True), "strides": tuple(full)}
        return np.array(_Exposed(interface | {"version": 3}, constant))

    def _leads_on(self, instance: Instance) -> bool:
        """Whether a gradient of a value of the straight program goes anywhere."""
        rows = [self.other.made[instance]] if instance in self.other.made else []
        rows += self.other.writes.get(instance, [])
        operands = [operand for row in rows for operand in row.operands]
        is_argument = self.other.program.values[instance[0]].argument >= 0
        return is_argument or any(isinstance(operand, Read) and operand.wanted for operand in operands)


class _Exposed:
    """Memory as NumPy takes it from others; ``owner`` stays alive."""

    def __init__(self, interface: dict[str, Any], owner: Array) -> None:
        self.__array_interface__, self.owner = interface, owner
