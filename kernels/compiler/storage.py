"""Where values, gradients and saved numbers stand in memory, and how an element is named in the printed program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Mapping
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from kernels.compiler import scalar_program as scalar
from kernels.compiler.adjoint import Adjoint, KeptValues
from kernels.compiler.expansion import Expansion
from kernels.compiler.scalar_program import walk
from kernels.compiler.statements import BOOL, FLOAT32, FLOAT64, INT32, INT64
from kernels.foundation.specs import Array
from kernels.foundation.tables import dataclass
from kernels.programs.rolled_program import Loop, RolledProgram, Uncompiled

# Regions of memory that a program's pointers are, where values stand in them, and elements as text.

Dtype = np.dtype[Any]
KINDS = {FLOAT64: "f8", FLOAT32: "f4", BOOL: "b1", INT64: "i8", INT32: "i4"}


@dataclass(slots=True, eq=False)
class Region:
    """Memory of one pointer, ``name``; of ``role`` argument, constant, result or work, the ``place``-th of these."""

    name: str
    role: str
    place: int
    dtype: Dtype
    size: int = 0  # bytes, of workspace
    begin: int = 0  # bytes behind a line of the cache that it begins at, in a workspace
    names: list[str] = field(default_factory=list)  # names of memory in whose place it is used afterwards

    @property
    def kind(self) -> str:
        """What its elements are: ``f8``, ``f4``, ``b1`` or ``i8``."""
        return KINDS.get(self.dtype, "b1")

    @property
    def count(self) -> int:
        """Elements."""
        return self.size // self.dtype.itemsize


@dataclass(slots=True, eq=False)
class Placement:
    """Where a value stands: a region, bytes from its begin, and bytes for the steps of loops."""

    region: Region
    constant: int = 0
    rows: list[tuple[int, int]] = field(default_factory=list)
    """The loops of which each step has a row, outermost first, with its bytes."""
    parity: tuple[int, int] | None = None  # the loop of which rows alternate between two, and the bytes of one
    without: str = ""  # the index of a nest whose steps all use the same memory
    blocked: list[int] = field(default_factory=list)  # the loops in blocks of which the rows are those of one block


class Element(NamedTuple):
    """An element of a region: bytes from its begin, and multiples of what names say. It prints as native source."""

    region: Region
    constant: int
    terms: scalar.Terms = ()

    @property
    def index(self) -> str:
        """Which element it is, as text; Uncompiled where bytes are no whole elements."""
        item = self.region.dtype.itemsize
        if self.constant % item or any(step % item for name, step in self.terms if name[0] in "ikeojryc"):
            raise Uncompiled("elements are not aligned")
        parts = []
        for name, step in self.terms:
            if step % item:  # bytes that are looked up
                parts.append(f"{step} * {name} // {item}")
            elif step:
                parts.append(name if step == item else f"{step // item} * {name}")
        if self.constant or not parts:
            parts.append(str(self.constant // item))
        return " + ".join(parts)

    def __str__(self) -> str:
        return f"{self.region.name}[{self.index}]"


class HistoryRows(NamedTuple):
    """History rows of nested dynamic-trip loops: ``of_step`` per iteration of the fixed-trip loops around each.

    At ``least`` so many; of a checkpointed loop around it the iterations of one block count.
    """

    least: int
    of_step: int

    def of(self, program: RolledProgram, blocks: Mapping[int, int]) -> dict[int, int]:
        """Return the rows by the loops' numbers."""
        rows = {}
        for loop in program.loops:
            steps, around = 1, loop.parent
            while around >= 0:
                outer = program.loops[around]
                steps *= blocks.get(around, outer.count) if outer.ends is None else 1
                around = outer.parent
            if loop.ends is not None and loop.parent >= 0:
                rows[loop.number] = max(self.least, self.of_step * steps)
        return rows


_FEW = 16  # steps of a loop up to which their number is part of the source: LLVM may take such a loop apart


class Storage:
    """All regions; elements of values, of their gradients and of what is saved, as text."""

    def __init__(
        self,
        expansion: Expansion,
        adjoint: Adjoint,
        kept: KeptValues,
        outputs: list[int],
        blocks: dict[int, int],
        rows: HistoryRows,
    ) -> None:
        self.expansion, self.adjoint, self.kept = expansion, adjoint, kept
        self.blocks = blocks  # loops that run in blocks of so many steps, by number
        self.program = expansion.program
        self.nested_history = rows.of(self.program, blocks) if adjoint.reached else {}
        """History length of each nested dynamic-trip loop, summed over its entries."""
        loops = [item.loop for item in expansion.root.items if isinstance(item, scalar.StepLoop)]
        self.counted = [loop for loop in loops if loop.ends is None and loop.number not in blocks and loop.count > _FEW]
        """Loops whose number of steps is no part of the source, so that other numbers share code: 3's is ``count3``."""
        self.regions: list[Region] = []
        self.constants: list[Array] = []
        self.placements: dict[int, Placement] = {}
        self.buffers: dict[int, Placement] = {}
        self.places: dict[str, tuple[Placement, scalar.Terms]] = {}
        """Of saved names: the home, and bytes for the steps of loops."""
        self._rows = {value: row for row in expansion.rows for value in (row.phi, row.start, row.update)}
        self.owners: list[Any] = []  # what native functions that are called belong to
        self.checked = {k: Region(f"u{k}", "work", k, dtype, 8) for k, dtype in expansion.guards.items()}
        """Where guards leave the values that they found, by number."""
        self.regions += self.checked.values()
        self._numbers = itertools.count(len(self.regions))
        """Of names; those of regions that were dropped are not given again."""
        self._place_values(outputs)
        self._place_buffers()
        self._place_saved()
        self.checkpoints = {loop: self._place_checkpoints(loop) for loop in blocks}
        """Of loops in blocks, where each thing that they carry is kept: numbers by name, values by number."""

    def _region(self, prefix: str, role: str, place: int, dtype: Dtype, size: int = 0) -> Region:
        region = Region(f"{prefix}{next(self._numbers)}", role, place, dtype, size)
        self.regions.append(region)
        return region

    def _result(self, prefix: str, role: str, place: int, value: int) -> Region:
        return self._region(prefix, role, place, self.program.values[value].spec.dtype, self.bytes_of(value))

    def drop(self, regions: Container[Region]) -> None:
        """Forget regions, in whose place others are used."""
        self.regions = [region for region in self.regions if region not in regions]

    def constant(self, array: Array) -> Region:
        """Return the region of a constant array."""
        self.constants.append(array)
        return self._region("c", "constant", len(self.constants) - 1, array.dtype)

    def scratch(self, kind: str, count: int) -> Region:
        """Return a region for so many integers, such as addresses, or floats, such as sums over parts of loops."""
        return self._region(*(("f", "work", 0, FLOAT64) if kind == "f8" else ("q", "work", 0, INT64)), 8 * count)

    def needed(self) -> set[int]:
        """Return the homes of the values that stand in memory."""
        needed = {self.adjoint.home(row.phi) for row in self.expansion.rows}
        for _, item in walk(self.expansion.root):
            if isinstance(item, scalar.Load | scalar.FillMemory) or (
                isinstance(item, scalar.Store) and item.reduces is not None
            ):
                needed.add(self.adjoint.home(item.address.value))
            elif isinstance(item, scalar.CallKernel):
                needed |= {self.adjoint.home(address.value) for address in item.addresses}
        return needed

    def _place_values(self, outputs: list[int]) -> None:
        looked_back = self._looked_back(reached=False)
        cotangents = {value for value in self.adjoint.seeds.values() if value >= 0}
        for value in sorted(self.needed() | set(outputs) | cotangents):
            entry = self.program.values[value]
            if entry.argument >= 0:
                self.placements[value] = Placement(self._region("a", "argument", entry.argument, entry.spec.dtype))
            elif entry.constant is not None:
                self.placements[value] = Placement(self.constant(entry.constant))
            elif value in outputs:
                self.placements[value] = Placement(self._result("r", "output", outputs.index(value), value))
            else:
                every, back = value in self.kept.histories, looked_back.get(value, 0)
                self.placements[value] = self._placed(value, "w", every=every, back=back)

    def _looked_back(self, *, reached: bool) -> dict[int, int]:
        """Return the homes of which more than the last steps are read behind loops: behind how many, innermost first.

        If ``reached``, where the gradient is wanted.
        """
        back: dict[int, int] = {}
        reads: list[tuple[scalar.Address, bool]] = []  # what memory is read, and whether its gradient is wanted
        for _, item in walk(self.expansion.root):
            if isinstance(item, scalar.Load):
                reads.append((item.address, item.name in self.adjoint.reached))
            elif isinstance(item, scalar.CallKernel):
                pulls = self.adjoint.pulls_back(item)
                reads += [(x, wanted and pulls) for x, wanted in zip(item.operands, item.wanted, strict=True)]
        for address, wanted in reads:
            loops = self.program.loops_around(address.value)[-len(address.at) :] if address.at else ()
            entries = zip(address.at, map(self.program.loops.__getitem__, loops), strict=True)
            inside = any(loop.ends is None and at != (loop.count - 1, ()) for at, loop in entries)
            if inside and (wanted or not reached):  # a step that is not the last, nor stands for a loop's end
                home = self.adjoint.home(address.value)
                back[home] = max(back.get(home, 0), len(address.at))
        return back

    def steps_of(self, loop: Loop, less: int = 0) -> str:
        """Return the number of a loop's steps, or so many less, as text."""
        if loop not in self.counted:
            return str(loop.count - less)
        return f"count{loop.number} - {less}" if less else f"count{loop.number}"

    def _placed(self, value: int, prefix: str, *, every: bool, back: int) -> Placement:
        """Place a value in the workspace.

        ``every``: keep one row per iteration of all enclosing loops; else one row. The innermost ``back`` loops always
        keep all rows, because the value is read after them. For checkpointed loops, keep one block's rows.
        """
        size, loops = self.bytes_of(value), self.program.loops_around(value)
        is_carried = any(row.phi == value for row in self.expansion.rows)
        home = Placement(self._region(prefix, "work", 0, self.program.values[value].spec.dtype))
        around = loops[: len(loops) - back]
        home.blocked = [loop for loop in around if loop in self.blocks] if every else []
        total = size
        for loop in reversed(loops if every else loops[len(around) :]):
            home.rows.insert(0, (loop, total))
            count = self.blocks[loop] if loop in home.blocked else self._count(loop)
            total *= count + (is_carried and loop == loops[-1]) * (1 + (loop in self.nested_history))
            if loop in self.nested_history:
                break
        if is_carried and not home.rows:
            home.parity = loops[-1], size
            total *= 2
        home.region.size = total
        return home

    def _count(self, loop: int) -> int:
        """Return the most steps of a loop, or of all loops that are this one within others."""
        return self.nested_history.get(loop, self.program.loops[loop].count)

    def index_of(self, loop: int) -> str:
        """Return the name of the row that a step of a loop has in histories."""
        return f"{'row' if loop in self.nested_history else 'j' if loop in self.blocks else 'k'}{loop}"

    def _place_checkpoints(self, loop: int) -> dict[str | int, Region]:
        """Return a region for each number, and each value in memory, that a loop carries, with a row a block."""
        count = -(-self.program.loops[loop].count // self.blocks[loop])
        steps = next(
            item for item in self.expansion.root.items if isinstance(item, scalar.StepLoop) and item.loop.number == loop
        )
        sizes: dict[str | int, tuple[Dtype, int]] = {
            number.name: (self.dtype(number.name), self.dtype(number.name).itemsize) for number in steps.numbers
        }
        for row in self.expansion.rows:
            if row.loop == loop:
                dtype = self.program.values[row.phi].spec.dtype
                sizes[row.phi] = dtype, self.bytes_of(row.phi)
        return {key: self._region("z", "work", 0, dtype, size * count) for key, (dtype, size) in sizes.items()}

    def bytes_of(self, value: int) -> int:
        """Return the bytes of a value's memory."""
        spec = self.program.values[value].spec
        if any(stride < 0 for stride in spec.strides):
            raise Uncompiled("an array runs backward through its memory")
        item = spec.dtype.itemsize
        reach = sum((n - 1) * stride for n, stride in zip(spec.shape, spec.strides, strict=True))
        return (reach + item) // item * item

    def ith(self, address: scalar.Address) -> scalar.Address:
        """Return where the i-th element from an address on stands."""
        return address._replace(terms=(*address.terms, ("i", self.program.values[address.value].spec.dtype.itemsize)))

    def _place_buffers(self) -> None:
        gradients = {value: k for k, value in enumerate(self.differentiated())}
        looked_back = self._looked_back(reached=True)
        for value in sorted(self.adjoint.buffered | set(gradients)):
            if value in gradients:
                self.buffers[value] = Placement(self._result("g", "gradient", gradients[value], value))
            elif value not in self.placements or self.placements[value].region.role != "output":
                self.buffers[value] = self._placed(value, "d", every=False, back=looked_back.get(value, 0))

    def differentiated(self) -> list[int]:
        """Return the arguments that the gradients are by."""
        return [value for value in self.program.arguments if self.program.values[value].differentiable]

    def _place_saved(self) -> None:
        """Save what a loop's body gives side by side, a row a step; what a nest gives in arrays."""
        together: dict[tuple[int, Dtype], list[str]] = {}
        for name in self.kept.saved:
            block = self.expansion.defined[name][0]
            if isinstance(block.loop, scalar.StepLoop):
                together.setdefault((id(block), self.dtype(name)), []).append(name)
            else:
                self._save([name])
        for names in together.values():
            self._save(names)

    def _save(self, names: list[str]) -> None:
        block, dtype = self.expansion.defined[names[0]][0], self.dtype(names[0])
        width = dtype.itemsize * len(names)
        terms: list[tuple[str, int]] = []
        joint = self.kept.joint_loop()
        for loop in reversed([loop for loop in block.loops() if loop is not joint]):
            is_nest = isinstance(loop, scalar.NestLoop)
            number = -1 if is_nest else loop.loop.number
            count = loop.extent if is_nest else self.blocks.get(number, self._count(number))
            terms.append((loop.index if is_nest else self.index_of(number), width))
            width *= count
            if number in self.nested_history:
                break
        home = Placement(self._region("t", "work", 0, dtype, width))
        for k, name in enumerate(names):
            self.places[name] = Placement(home.region, k * dtype.itemsize), tuple(terms)

    def dtype(self, name: str) -> Dtype:
        """Return the dtype of a variable; gradients, and what else is made of a name, ``g_v1``, have that of the name.

        Variables that count steps, rows and blocks are integers.
        """
        return self.expansion.dtypes.get(name[2:] if name[1:2] == "_" else name, INT64)

    def contract(self, stored: Container[int]) -> None:
        """Array contraction: values produced and consumed within one iteration of the joint nest share its storage.

        So do gradients, if the first contribution to each element is ``stored``.
        """
        joint = self.kept.joint_loop()
        if joint is None:
            return
        inside = [item for _, item in walk(joint.body) if isinstance(item, scalar.Load | scalar.Store)]
        items = [item for _, item in walk(self.expansion.root)]
        everything = [item for item in items if isinstance(item, scalar.Load | scalar.Store | scalar.FillMemory)]
        whole = {address.value for item in items if isinstance(item, scalar.CallKernel) for address in item.addresses}
        for value in {item.address.value for item in inside} - whole - self._rows.keys():
            mine = [item for item in everything if item.address.value == value]
            steps = {dict(item.address.terms).get(joint.index, 0) for item in mine}
            if len(steps) > 1 or 0 in steps or any(item not in inside for item in mine):
                continue
            for homes in (self.placements, self.buffers):
                home = homes.get(value)
                if home is not None and home.region.role == "work" and (homes is self.placements or value in stored):
                    home.without = joint.index
                    home.region.size = max(home.region.size // joint.extent, steps.copy().pop())

    # Elements

    def element(self, address: scalar.Address) -> Element:
        """Return an element of a value's memory."""
        return self._element(self.placements[self.adjoint.home(address.value)], address)

    def gradient(self, address: scalar.Address) -> Element:
        """Return an element of the gradient of a value's memory."""
        return self._element(self.buffers[self.adjoint.home(address.value)], address)

    def begin(self, address: scalar.Address, *, gradient: bool = False) -> str:
        """Return the address of an element, or of its gradient, as text."""
        element = self.gradient(address) if gradient else self.element(address)
        item = self.program.values[address.value].spec.dtype.itemsize
        return f"begin_of({element.region.name}) + {item} * ({element.index})"

    def saved(self, name: str) -> Element:
        """Return where a name is saved."""
        home, terms = self.places[name]
        return Element(home.region, home.constant, terms)

    def _element(self, home: Placement, address: scalar.Address) -> Element:
        constant, terms = home.constant + address.constant, dict(address.terms)
        terms.pop(home.without, None)
        steps, ahead = self._steps(address), self._ahead(address.value)
        for loop, width in home.rows:
            number, more = self._row(home, loop, steps)
            if home.rows[-1][0] == loop:
                if ahead is None and loop not in self.nested_history:  # what the loop starts from
                    continue
                number, more = (1, ((f"row{loop}", 1),)) if ahead is None else (number + ahead, more)
            constant += number * width
            for name, step in more:
                terms[name] = terms.get(name, 0) + step * width
        if home.parity is not None and ahead is not None:
            loop, width = home.parity
            which = self._parity(loop, steps, ahead)
            if isinstance(which, str):
                terms[which] = width
            else:
                constant += which * width
        return Element(home.region, constant, tuple(terms.items()))

    def _row(self, home: Placement, loop: int, steps: dict[int, tuple[int, scalar.Terms]]) -> tuple[int, scalar.Terms]:
        """Return which row of a loop an address with these steps is in: a number, and multiples."""
        if loop not in steps:
            return 0, ((f"k{loop}" if loop in self.blocks and loop not in home.blocked else self.index_of(loop), 1),)
        number, more = steps[loop]
        if self._is_counted_last(loop, steps):
            return -1, ((f"count{loop}", 1),)
        if self.program.loops[loop].ends is not None:
            return number, ((f"row{loop}", 1),)
        return (number % self.blocks[loop] if loop in home.blocked else number), more

    def _parity(self, loop: int, steps: dict[int, tuple[int, scalar.Terms]], ahead: int) -> int | str:
        """Return which of two rows that is, or the name of what says so."""
        if loop not in steps:
            return f"{'o' if ahead else 'e'}{loop}"
        if self._is_counted_last(loop, steps):
            return f"{'y' if ahead else 'yo'}{loop}"
        return f"y{loop}" if self.program.loops[loop].ends is not None else (steps[loop][0] + ahead) % 2

    def _is_counted_last(self, loop: int, steps: dict[int, tuple[int, scalar.Terms]]) -> bool:
        """Whether it is the last step of a loop that is read, whose number is no part of the source."""
        entry = self.program.loops[loop]
        return entry in self.counted and steps.get(loop) == (entry.count - 1, ())

    def _steps(self, address: scalar.Address) -> dict[int, tuple[int, scalar.Terms]]:
        loops = self.program.loops_around(address.value)
        return dict(zip(loops[len(loops) - len(address.at) :], address.at, strict=True)) if address.at else {}

    def _ahead(self, value: int) -> int | None:
        """Return how many rows behind its step's a value stands: a phi none, its update one; None of its start."""
        row = self._rows.get(value)
        if row is None or row.phi == value:
            return 0
        return 1 if row.update == value else None

    def work(self) -> tuple[dict[str, int], int]:
        """Return where the regions of the workspace begin, in bytes, and how many there are."""
        at, begins = 0, {}
        for region in self.regions:
            if region.role == "work":
                begins[region.name] = at + region.begin
                at += math.ceil((region.begin + region.size) / 64) * 64
        return begins, at


# Loops in blocks of steps: histories have the rows of one block, and what a loop carries is kept at each one's begin.
#
# The reverse runs the steps of a block forward again from there: see Griewank, "Achieving logarithmic growth of
# temporal and spatial complexity in reverse automatic differentiation" (1992). One level costs at most one more
# forward pass, and needs memory for about as many steps as the root of their number.

Blocks = dict[int, int]  # steps of a block, by the numbers of loops


def storage_within(budget: int, expansion: Expansion, place: Callable[[Blocks], Storage]) -> Storage:
    """Return a storage whose workspace fits into so many bytes, if that can be; else one that is as small as it gets.

    ``place`` makes it for these blocks. No more loops have blocks than is needed, those with the most steps first; a
    block is as long as fits.
    """
    best, blocks = place({}), Blocks()
    for item in _restartable(expansion):
        if best.work()[1] <= budget:
            break
        number, count = item.loop.number, item.loop.count
        lengths = [-(-count >> k) for k in range(1, count.bit_length())]  # half of the steps, a quarter, and so on
        for storage in (place({**blocks, number: length}) for length in lengths if length < count):
            if storage.work()[1] < best.work()[1]:
                best, blocks = storage, storage.blocks
            if best.work()[1] <= budget:
                break
    return best


def _restartable(expansion: Expansion) -> list[scalar.StepLoop]:
    """Return the outermost loops that change nothing from before them, those with the most steps first."""
    around = expansion.program.loops_around
    loops = [item for item in expansion.root.items if isinstance(item, scalar.StepLoop) and item.loop.ends is None]
    for item in [*loops]:
        stores = [part for _, part in walk(item.body) if isinstance(part, scalar.Store)]
        if any(item.loop.number not in around(store.address.value) for store in stores if store.overwrites):
            loops.remove(item)
    return sorted(loops, key=lambda item: -item.loop.count)
