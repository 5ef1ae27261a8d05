"""The program element by element: blocks of scalar operations, loads and stores, in loops; each name is given once."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kernels.compiler import statements as fused
from kernels.compiler.fusion import Placed
from kernels.compiler.statements import FLOAT64, INT64, Access, Statement
from kernels.foundation.specs import Strides
from kernels.foundation.tables import dataclass
from kernels.native.memory import where
from kernels.programs.rolled_program import Index, Loop, Numbers, RolledProgram
from kernels.rules.op import literal_of

Terms: TypeAlias = tuple[tuple[str, int], ...]


class Address(NamedTuple):
    """Where an element stands: bytes from the begin of a value's memory, and multiples of what names say.

    ``at``: iteration indices, outermost first, for loops that enclose the definition but not this use; each is a number
    and multiples of names, and selects which iteration's value is read.
    """

    value: int
    constant: int
    terms: Terms = ()
    at: tuple[tuple[int, Terms], ...] = ()

    def names(self) -> set[str]:
        """Return the names of integers that it depends on."""
        return {name for name, _ in (*self.terms, *(term for _, terms in self.at for term in terms))}


@dataclass(slots=True, eq=False)
class Compute:
    """``name = operation(operands)``; an operand is a name or the text of a number. Gradients go to the ``wanted``."""

    name: str
    operation: fused.ScalarOperation
    operands: tuple[str, ...]
    wanted: tuple[bool, ...]

    def pullbacks(self) -> list[tuple[str, fused.ScalarRule]]:
        """Return the operands whose gradients are wanted, and how they come of the result's."""
        triples = zip(self.operands, self.wanted, self.operation.pullbacks, strict=True)
        return [(operand, rule) for operand, wanted, rule in triples if wanted and rule is not None]


@dataclass(slots=True, eq=False)
class Load:
    """``name`` is an element of memory."""

    name: str
    address: Address


@dataclass(slots=True, eq=False)
class Store:
    """An element of memory becomes ``operand``, a name or the text of a number.

    ``reduces``: ``np.add`` if the element is a sum, to which it is added, ``np.maximum`` if the larger of both is kept,
    ``np.positive`` if both are the same.
    ``overwrites``: what was there has a gradient of its own, which ends here if this ``clears`` it.
    """

    address: Address
    operand: str
    wanted: bool
    reduces: np.ufunc | None = None
    overwrites: bool = False
    clears: bool = True


@dataclass(slots=True, eq=False)
class FillMemory:
    """Elements of a value that follow each other become what ``reduces`` starts from, before it stores there."""

    address: Address
    elements: int
    reduces: np.ufunc


@dataclass(slots=True, eq=False)
class Accumulate:
    """A name is added to a total, which the nest around it starts at -0.0; or the larger of the two is kept.

    ``reduces``: ``np.add``, ``np.maximum``, or ``np.positive`` where all terms are the same.
    """

    total: str
    operand: str
    wanted: bool
    reduces: np.ufunc


GIVE_UP, LEAVE, LEAVE_ALL = -1, -2, -3
"""In the place of a guard's number: the program gives up; a recorded loop ends; it does, and the loops within it."""


@dataclass(slots=True, eq=False)
class GuardCheck:
    """The program stops with ``number``, gives up, or leaves a loop, where the bits of two elements differ."""

    names: tuple[str, str]
    number: int
    terms: Terms = ()  # what is added to the number in the steps of loops


@dataclass(slots=True, eq=False)
class NestLoop:
    """A loop over an axis, any of whose steps may come first; ``totals`` are sums, or maxima, over all of them."""

    index: str
    extent: int
    body: ScalarBlock
    totals: dict[str, np.ufunc] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CarriedNumber:
    """A number that a loop carries: ``name`` is ``initial``, then what ``update`` was in the step before."""

    name: str
    initial: str
    update: str = ""


@dataclass(slots=True, eq=False)
class StepLoop:
    """A loop of the program, step after step; ``exits`` are names behind it for what names in it were last.

    Of one that was recorded ``ends`` are names for what it carries in the end, and ``limit`` says the most steps.
    """

    loop: Loop
    index: str
    body: ScalarBlock
    numbers: list[CarriedNumber] = field(default_factory=list)
    exits: list[tuple[str, str]] = field(default_factory=list)
    ends: list[tuple[str, str]] = field(default_factory=list)
    limit: str = ""

    @property
    def behind(self) -> list[str]:
        """Names after a dynamic-trip loop: its trip count; if nested, the history row of its last iteration."""
        n = self.loop.number
        return [] if self.loop.ends is None else [f"m{n}"] if self.loop.parent < 0 else [f"m{n}", f"row{n}"]


@dataclass(slots=True, eq=False)
class CallKernel:
    """``target = call(operands)``, arrays in memory that begin at these addresses.

    Where it fails, that is as where a guard with ``number`` and ``terms`` finds what differs.
    """

    call: fused.NativeCall
    operands: tuple[Address, ...]
    target: Address
    wanted: tuple[bool, ...]
    sizes: tuple[int, ...]  # elements of the operands
    number: int = GIVE_UP
    terms: Terms = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Of the operands and of the target."""
        return (*self.operands, self.target)


ScalarItem: TypeAlias = Compute | Load | Store | FillMemory | Accumulate | GuardCheck | CallKernel | NestLoop | StepLoop


@dataclass(slots=True, eq=False)
class ScalarBlock:
    """Items in order, and the loop that it is the body of."""

    parent: ScalarBlock | None = None
    loop: NestLoop | StepLoop | None = None
    items: list[ScalarItem] = field(default_factory=list)

    def path(self) -> list[ScalarBlock]:
        """Return the blocks around it, from the outermost to itself."""
        return [*(self.parent.path() if self.parent is not None else ()), self]

    def loops(self) -> list[NestLoop | StepLoop]:
        """Return the loops around it, outermost first."""
        return [block.loop for block in self.path() if block.loop is not None]

    def steps(self) -> list[StepLoop]:
        """Return the loops of the program around it, outermost first."""
        return [loop for loop in self.loops() if isinstance(loop, StepLoop)]


def walk(block: ScalarBlock) -> Iterator[tuple[ScalarBlock, ScalarItem]]:
    """Return all items with their blocks, in order; a loop comes before what is in it."""
    for item in block.items:
        yield block, item
        if isinstance(item, NestLoop | StepLoop):
            yield from walk(item.body)


# Names of elements: what computed an element, if that is still in a register, or a load as far out as may be.


class BlockScope:
    """What is known in a block: names of elements, and of operations that were done, in it or around it."""

    def __init__(self, block: ScalarBlock, outer: BlockScope | None) -> None:
        self.block, self.outer = block, outer
        self.elements: ChainMap[Address, str] = ChainMap() if outer is None else outer.elements.new_child()
        self.operations: ChainMap[Any, str] = ChainMap() if outer is None else outer.operations.new_child()
        self.indices: set[str] = set()

    @property
    def here(self) -> MutableMapping[Address, str]:
        """The elements that got their names in the block itself."""
        return self.elements.maps[0]


class ScalarNames:
    """Gives names to elements and operations: what was read or done before on the same is not done again.

    ``defined`` says in which block, and by what, a name is given, ``dtypes`` what it is.
    """

    def __init__(self, program: RolledProgram) -> None:
        self.program = program
        self.defined: dict[str, tuple[ScalarBlock, Any]] = {}
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.root = ScalarBlock()
        self.scope = BlockScope(self.root, None)
        self.scopes: dict[int, BlockScope] = {}
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
            self._constants[key] = fused.constant_value(self.program, np.ascontiguousarray(array, dtype)).value
        return self._constants[key]

    def address(self, access: Access, placed: Placed, point: dict[int, int]) -> Address:
        """Return where an access is at a point of the unrolled axes."""
        offset, terms = _moved(*self._indexed(access.ref.offset), access.strides, placed, point)
        at = []
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
            number, more = _moved(at[-1][0], dict(at[-1][1]), access.steps, placed, point)
            at[-1] = number, tuple(sorted(more.items()))
        return Address(access.ref.value, offset, tuple(sorted(terms.items())), tuple(at))

    def _behind(self, name: str) -> str:
        """Return the name of a step of a loop, behind it that of its end."""
        is_step = name[0] == "k" and int(name[1:]) in self.scopes
        return f"m{name[1:]}" if is_step and self.program.loops[int(name[1:])].ends is not None else name

    def _place(self, places: np.ndarray[Any, Any], placed: Placed, point: dict[int, int]) -> str:
        """Return the name of how many elements further an element is."""
        value = self.constant(places)
        offset, terms = _moved(0, {}, self.program.values[value].spec.strides, placed, point)
        return self.read(Address(value, offset, tuple(sorted(terms.items()))), INT64)

    def _indexed(self, index: Index) -> tuple[int, dict[str, int]]:
        terms = {f"k{loop}": step for loop, step in index.terms if step}
        if index.table is not None:
            terms[self._in_table(*index.table, INT64)] = 1
        return index.constant, terms

    def _in_table(self, loops: tuple[int, ...], table: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> str:
        """Return the name of what a table, with an axis for each of these loops, has at their steps."""
        value = self.constant(table, dtype)
        strides = self.program.values[value].spec.strides
        terms = tuple(sorted((f"k{loop}", stride) for loop, stride in zip(loops, strides, strict=True)))
        return self.read(Address(value, 0, terms), dtype)

    def read(self, address: Address, dtype: np.dtype[Any]) -> str:
        """Return the name of an element: of what computed it, or of a load."""
        known = self.scope.elements.get(address)
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
        dtype = INT64 if dtype == fused.INT32 else dtype
        item.name = self.name(item, dtype, "n" if dtype == INT64 else "v")
        self.emit(item)
        self.scope.elements[address] = item.name
        self.scope = here
        return item.name

    def _hoisted(self, address: Address) -> BlockScope:
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
        name = inner.here.get(address._replace(at=()))
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
        name = inner.here.get(address._replace(at=()))
        if name is None or all(name != number.name for number in steps.numbers):
            return None
        return self._left(steps, steps.ends, inner.outer, name)

    def _left(self, steps: StepLoop, pairs: list[tuple[str, str]], outer: BlockScope, name: str) -> str:
        """Return the name, behind a loop, for what a name in it was last, or is in the end: of ``pairs``, or new."""
        known = next((after for after, before in pairs if before == name), None)
        if known is None:
            here, self.scope = self.scope, outer
            known = self.name(steps, self.dtypes[name], "x")
            self.scope = here
            pairs.append((known, name))
        return known

    def operated(
        self,
        operation: fused.ScalarOperation,
        operands: tuple[str, ...],
        wanted: tuple[bool, ...],
        dtype: np.dtype[Any],
    ) -> str:
        """Return the name of what an operation gives: of one that was done before, of that."""
        key = operation.name, operation.forward, operands, wanted
        known = self.scope.operations.get(key)
        if known is None:
            item = Compute("", operation, operands, wanted)
            known = item.name = self.scope.operations[key] = self.name(item, dtype)
            self.emit(item)
        return known

    def operand(self, source: fused.Source, dtype: np.dtype[Any], placed: Placed, point: dict[int, int]) -> str:
        """Return the name of an operand; numbers are of a dtype."""
        if isinstance(source, Access):
            return self.read(self.address(source, placed, point), source.ref.spec.dtype)
        if isinstance(source, Numbers):
            return self._in_table(source.loops, source.table, dtype)
        return literal(float(source), dtype)

    def cut(self, name: str, dtype: np.dtype[Any], *, wanted: bool) -> str:
        """Return a name, or another for the same value that has no gradient to hand on."""
        return name if wanted else self.operated(fused.COPY, (name,), (False,), dtype)


def _moved(
    number: int, terms: dict[str, int], strides: Strides, placed: Placed, point: dict[int, int]
) -> tuple[int, dict[str, int]]:
    """Return a number and multiples of names, moved along the axes of a space to a point of the unrolled ones."""
    for axis, stride in enumerate(strides):
        name = placed.names[axis]
        if name is None:
            number += stride * point[axis]
        elif stride:
            terms[name] = terms.get(name, 0) + stride
    return number, terms


_LITERALS = {dtype: literal_of(dtype) for dtype in fused.FLOATS}


def literal(value: float, dtype: np.dtype[Any] = FLOAT64) -> str:
    """Return a number among operands of a dtype as text."""
    return _LITERALS.get(dtype, _LITERALS[FLOAT64])(value)


def numbers_of(statement: Statement) -> np.dtype[Any]:
    """Return the dtype of the numbers that a statement has as operands: that of its floats, or integers."""
    dtypes = [access.ref.spec.dtype for access in (*statement.accesses(), statement.target)]
    return next((dtype for kinds in (fused.FLOATS, (INT64,)) for dtype in dtypes if dtype in kinds), FLOAT64)
