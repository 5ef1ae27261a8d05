"""A recipe to machine code: rolled, fused, expanded, printed, and compiled by LLVM."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.compiler import compiled_code
from kernels.compiler import scalar_program as scalar
from kernels.compiler import statements as fused
from kernels.compiler.adjoint import Adjoint, KeptValues
from kernels.compiler.compiled_code import CompiledCode, ProgramText, arrange_memory, printed
from kernels.compiler.expansion import Expansion, elements_side_by_side
from kernels.compiler.forward_text import ForwardText
from kernels.compiler.fusion import Fusion
from kernels.compiler.parallel_loops import ParallelLoops, SplitProgram, call_pieces
from kernels.compiler.reverse_text import ReverseText
from kernels.compiler.roll import MOST_ITERATIONS, rolled
from kernels.compiler.scalar_program import walk
from kernels.compiler.statements import BOOL, FLOATS, INT32, INT64, AnyStatement, GuardStatement
from kernels.compiler.storage import Blocks, HistoryRows, Region, Storage, storage_within
from kernels.foundation.specs import is_dense
from kernels.foundation.tables import cached_property
from kernels.language import jit
from kernels.language.jit import MOST_COPIES
from kernels.programs.program import Recipe, describe
from kernels.programs.rolled_program import Ref, Uncompiled, make_ssa_memory

# Lines of a program as the source of a native module: a function of pointers, read from a table of addresses.

_MODULE = '''"""Compiled by tape-autograd: {title}."""

from __future__ import annotations

import math

import numpy as np

from kernels.language import vectormath
from kernels.rules import accumulators, banded_native, dense_native
from kernels.native.memory import begin_of, bits_of, call_at, call_kernel, double_of, load_i8
from kernels.native.memory import local_b1, local_f4, local_f8, local_i8, pointer_b1, pointer_f4, pointer_f8, pointer_i4
from kernels.native.memory import pointer_i8

MINUS_ZERO = -(1 << 63)
masked = range
CONTRACT = {contract}
NOALIAS = True
INTERLEAVE = True
{functions}

def program({pointers}):
{body}
    return -1


def run({signature}) -> Word:
    return program({addresses})
'''
_UNUSED = "unused", "unused_too", "unused_as_well"

_BLOCK = math.isqrt(MOST_ITERATIONS)
"""Steps of a block of a loop that was recorded, and blocks, if these do not need much memory."""
_ROWS, _ROWS_OF_STEP = 1 << 16, 16
"""Minimum history rows for nested dynamic-trip loops: per checkpoint block of the enclosing loop, and per iteration of
an enclosing fixed-trip loop. Fewer where these need much memory."""
_LEAST_BLOCK = 2
"""Minimum iterations per block: the loop's final state must not share a row with the aborted last iteration."""
_MOST_MEMORY = 1 << 30  # bytes of a workspace that such loops may have, unless another limit is given
_LONGEST = 500_000  # lines of source that are compiled; more stay with the interpreter
_LONGEST_STATEMENT = 6_000  # lines of a loop, which is no two pieces
_OF_INSTRUCTION = 0.25e-3
"""Seconds that planning and printing take for each operation, while calls have Python's lock half of the time."""
_SECONDS, _OF_LINE, _OF_LOOP, _OF_COPY, _OF_CALL = 50e-3, 0.3e-3, 8e-3, 12e-3, 5e-3
"""What making machine code takes then: at least, for each line, and for each loop and vector function besides."""


class Compilation:
    """One program on its way to :class:`CompiledCode`.

    With ``memory`` loops run in blocks where that brings the workspace down to so many bytes. ``expected`` is told how
    many seconds planning and printing take, about. With ``cotangents`` the reverse starts from outputs, by their
    numbers, whose cotangents are arguments, by theirs, and marks what nothing reached by -0.0.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        reverse: bool,
        roll: bool = True,
        memory: int | None = None,
        expected: Callable[[float], None] | None = None,
        cotangents: Mapping[int, int] | None = None,
    ) -> None:
        self.program = rolled(recipe, roll=roll)
        if expected is not None:
            expected(_OF_INSTRUCTION * self.program.length)
        self.reverse = reverse
        self._check()
        self._argument_specs = [self.program.values[value].spec for value in self.program.arguments]
        first = [self._in_order(k, value) for k, value in enumerate(self.program.arguments) if self._is_turned(value)]
        make_ssa_memory(self.program)
        self.fusion = Fusion(self.program, first)
        self.outputs = [self._output(ref) for ref in self.program.outputs]
        self.expansion = Expansion(self.program, self.fusion)
        first = self.program.outputs[0].spec
        seeds = {self.outputs[0]: -1} if reverse and first.size == 1 and first.dtype in FLOATS else {}
        if cotangents:
            seeds = {self.outputs[k]: self.program.arguments[i] for k, i in cotangents.items()}
        self.adjoint = Adjoint(self.expansion, seeds)
        self._marks = cotangents is not None
        self.kept = KeptValues(self.expansion, self.adjoint)
        place = self._within(memory or _MOST_MEMORY)
        self.storage = place({}) if memory is None else storage_within(memory, self.expansion, place)
        self._added: list[Region] = []  # memory that loops in parts need besides
        self._sizes: Region | None = None
        """A constant with numbers of steps, begins of the workspace's regions, and extents."""

    def _within(self, memory: int) -> Callable[[Blocks], Storage]:
        """Return what places a program, whose recorded loops have as many steps as they need within memory, in blocks.

        Those that are in no other have blocks themselves.
        """
        recorded = [loop for loop in self.program.loops if loop.ends is not None and self.adjoint.reached]
        outer, block, rows = [loop for loop in recorded if loop.parent < 0], _BLOCK, HistoryRows(_ROWS, _ROWS_OF_STEP)

        def place(blocks: Blocks) -> Storage:
            every = {loop.number: block for loop in outer} | blocks
            return Storage(self.expansion, self.adjoint, self.kept, self.outputs, every, rows)

        while recorded and block > _LEAST_BLOCK and place({}).work()[1] > memory:
            block = max(block // 2, _LEAST_BLOCK)
            rows = HistoryRows(rows.least // 2, max(rows.of_step // 2, _LEAST_BLOCK))
            for loop in outer:
                loop.count = block * block
        return place

    def _check(self) -> None:
        for value in self.program.arguments:
            spec = self.program.values[value].spec
            known = spec.dtype in (*FLOATS, INT64, INT32, BOOL)
            axes = [(stride, extent) for stride, extent in zip(spec.strides, spec.shape, strict=True) if extent > 1]
            if not known or (spec.size and elements_side_by_side(axes, spec.dtype.itemsize) != spec.size):
                raise Uncompiled(f"an argument of {spec.dtype} with strides {spec.strides}")

    def _is_turned(self, value: int) -> bool:
        """Whether an argument that has a gradient is in another order than C's, which that is in."""
        return self.program.values[value].differentiable and not is_dense(self.program.values[value].spec)

    def _in_order(self, place: int, value: int) -> AnyStatement:
        """Let a value be what an argument is given as, and another, in C order, have the gradient; return the copy."""
        values, spec = self.program.values, self.program.values[value].spec
        ordered = fused.dense_value(self.program, spec.shape, spec.dtype, wanted=True)
        values.append(replace(values[value], differentiable=False))
        values[ordered.value].argument, values[value].argument = place, -1
        self.program.arguments[place] = ordered.value
        target = fused.ref_to_all(self.program, value, wanted=True)
        operands = fused.ref_to_all(self.program, len(values) - 1, wanted=False), ordered
        return fused.mapped(fused.FIRST, spec.shape, operands, target, spec.strides, (False, True))

    def _output(self, ref: Ref) -> int:
        """Copy an output to a value of its own, in C order; return that."""
        shape, dtype = ref.spec.shape, ref.spec.dtype
        if dtype not in (*FLOATS, BOOL, INT64, INT32):
            raise Uncompiled(f"a result of {dtype}")
        target = fused.dense_value(self.program, shape, dtype)._replace(wanted=ref.wanted)
        if target.spec.size:
            copy = fused.mapped(fused.COPY, shape, (ref,), target, target.spec.strides, (ref.wanted,))
            self.fusion.place(copy, self.fusion.root)
        return target.value

    def source(self) -> str:
        """Return the program as native source for one thread; Uncompiled where that is too long."""
        lines = self._lines
        if len(lines) > _LONGEST:
            raise Uncompiled(f"the program is {len(lines)} lines long")
        return self._module(lines, self._addresses(self._regions()))

    def _module(
        self,
        lines: Iterable[str],
        pointers: Mapping[str, str],
        *,
        functions: Iterable[str] = (),
        is_piece: bool = False,
    ) -> str:
        """Return the source of a program; ``pointers`` are names, and how they are read from ``table``.

        ``functions`` are some that it calls by their addresses. ``is_piece``: others call it.
        """
        parameters = ("table", *_UNUSED) if is_piece else ("table",)
        return _MODULE.format(
            title=f"a {'piece of a ' if is_piece else ''}program{' and its gradient' if self.reverse else ''}",
            contract=self._contracts,
            functions="".join(functions),
            pointers=", ".join(pointers),
            body="\n".join(lines) or "    pass",
            signature=", ".join(f"{name}: Word" for name in parameters),
            addresses=", ".join(pointers.values()),
        )

    @property
    def _contracts(self) -> bool:
        """Whether products may be added to before they are rounded: not where that may end a loop elsewhere.

        Iterations that run until nothing but rounding is left go on as often as in dynamic mode.
        """
        return all(loop.ends is None for loop in self.program.loops)

    def seconds(self) -> float:
        """Return how long making machine code of the printed program takes, about."""
        lines = self._lines
        loops = sum(line.lstrip().startswith(("for ", "while ")) for line in lines)
        functions = sum(line.count("vectormath.") for line in lines)
        of_functions = _OF_COPY * functions if functions <= MOST_COPIES else _OF_CALL * functions
        return _SECONDS + _OF_LINE * len(lines) + _OF_LOOP * loops + of_functions

    @cached_property
    def _parts(self) -> ParallelLoops:
        """The printed program, its large loops cut into parts that threads may run."""
        text = self._text  # printing adds to the storage
        return ParallelLoops(text, self.storage.dtype, self._add, self._sizes.name if self._sizes else "")

    def _add(self, kind: str, count: int) -> str:
        """Add to the workspace; return the name of the pointer."""
        self._added.append(self.storage.scratch(kind, count))
        return self._added[-1].name

    def listing(self) -> str:
        """Return the program alone, below what its memory is: for people to read."""
        lines = self._lines
        regions = [region for region in self._regions() if self.storage.counted or region is not self._sizes]
        memory = [f"# {region.name}: {self._meaning(region)}" for region in regions]
        pointers = ", ".join([region.name for region in regions])
        return "\n".join([*memory, f"def program({pointers}):", *lines, "    return -1"])

    @cached_property
    def _text(self) -> ProgramText:
        """The printed program. Printing adds to the storage, so that it is done once."""
        text = ProgramText()
        if self.storage.counted:
            self._sizes = self.storage.constant(np.zeros(0, np.int64))
        for k, loop in enumerate(self.storage.counted):
            n = loop.number
            text.put(f"count{n} = {self._sizes.name}[{k}]")
            text.double_buffer(f"y{n}", f"count{n}", f"yo{n}")
        self._passes(text)
        if self._sizes is None and self._extents:
            self._sizes = self.storage.constant(np.zeros(0, np.int64))
        kept = [region for region, _ in self._guard_memory().values()]  # what is read behind the program
        work = [region for region in self.storage.regions if region.role == "work" and region not in kept]
        self.storage.drop(arrange_memory(text.body, work))
        return text

    @cached_property
    def _lines(self) -> list[str]:
        return printed(self._text.body)

    def _regions(self) -> list[Region]:
        """Return the memory of the printed program."""
        used = [region for region in self.storage.regions if region not in self._added]
        return [region for region in used if self.reverse or region.role != "gradient"]

    def _meaning(self, region: Region) -> str:
        """Return what the memory of a pointer is, as text."""
        if region.role == "work":
            meanings = dict.fromkeys([compiled_code.ROLES[name[0]][1] for name in (region.name, *region.names)])
            return f"workspace, {region.size:,} bytes: {', then '.join(meanings)}"
        if region.role == "constant":
            if self.storage.counted and region is self._sizes:
                return ", ".join([f"count{loop.number} is {loop.count:,}" for loop in self.storage.counted])
            return f"constant, {self.storage.constants[region.place].size:,} elements"
        values = {
            "argument": self.program.arguments,
            "output": self.outputs,
            "gradient": self.storage.differentiated(),
        }[region.role]
        spec = describe(self.program.values[values[region.place]].spec)
        if region.role == "gradient":
            return f"gradient by argument {self.program.arguments.index(values[region.place])}, {spec}"
        return f"{'argument' if region.role == 'argument' else 'result'} {region.place}, {spec}"

    def _passes(self, text: ProgramText) -> None:
        """Print the forward pass, then the reverse; the last nest runs both ways at once, if it can."""
        forward, root = ForwardText(text, self.storage, self.kept), self.expansion.root
        if not self.reverse:
            forward.block(root)
            return
        last = self.kept.last if self.kept.last >= 0 else len(root.items)
        for item in root.items[:last]:
            forward.item(item)
        back = ReverseText(text, self.storage, self.kept, self.adjoint, marks=self._marks)
        back.start()
        for item in reversed(root.items[last:]):
            back.item(item)
        for item in root.items[last + 1 :]:
            forward.item(item)
        for item in reversed(root.items[:last]):
            back.item(item)
        back.finish()

    @cached_property
    def _extents(self) -> set[int]:
        """The extents of nests that are arguments."""
        nests = [item for _, item in walk(self.expansion.root) if isinstance(item, scalar.NestLoop)]
        return {nest.extent for nest in nests if nest.extent >= compiled_code.LEAST}

    def _first(self) -> dict[str, int]:
        """Return where in the table the addresses of a role begin."""
        counts = [len(self.program.arguments), len(self.storage.constants), len(self.outputs)]
        first = {"argument": 0, "constant": counts[0], "output": sum(counts[:2]), "gradient": sum(counts)}
        return first | {"work": sum(counts) + (len(self.storage.differentiated()) if self.reverse else 0)}

    def _begins(self) -> dict[str, str]:
        """Return where the regions of the workspace begin, as text: read from a constant if there are sizes."""
        begins, _ = self.storage.work()
        if self._sizes is None:
            return {name: str(begin) for name, begin in begins.items()}
        numbers = [loop.count for loop in self.storage.counted]
        self.storage.constants[self._sizes.place] = np.array([*numbers, *begins.values()], np.int64)
        sizes = f"load_i8(table + {8 * (self._first()['constant'] + self._sizes.place)})"
        return {name: f"load_i8({sizes} + {8 * (len(numbers) + k)})" for k, name in enumerate(begins)}

    def _addresses(self, regions: list[Region]) -> dict[str, str]:
        """Return how pointers are read from the table, as text."""
        first, begins = self._first(), self._begins()
        texts = {}
        for region in regions:
            if region.role == "work":
                address = f"load_i8(table + {8 * first['work']}) + {begins[region.name]}"
            else:
                address = f"load_i8(table + {8 * (first[region.role] + region.place)})"
            texts[region.name] = f"pointer_{region.kind}({address})"
        return texts

    def guard_places(self) -> list[tuple[int, int]]:
        """Return where in the workspace guards leave what they found, -1 if nowhere, and how many bytes that is."""
        begins, _ = self.storage.work()
        places = [(-1, 0)] * len(self.program.guards)
        for item, (region, size) in self._guard_memory().items():
            counts = [self.program.loops[int(name[1:])].count for name, _ in item.terms]
            for steps in np.ndindex(*counts):
                number = item.number + sum(k * more for k, (_, more) in zip(steps, item.terms, strict=True))
                places[number] = begins[region.name], size
        return places

    def _guard_memory(self) -> dict[scalar.GuardCheck | scalar.CallKernel, tuple[Region, int]]:
        """Return where guards leave what they found, and how many bytes that is."""
        places: dict[scalar.GuardCheck | scalar.CallKernel, tuple[Region, int]] = {}
        for _, item in walk(self.expansion.root):
            if isinstance(item, scalar.GuardCheck) and item.number in self.storage.checked:
                region = self.storage.checked[item.number]
                places[item] = region, region.dtype.itemsize
            elif isinstance(item, scalar.CallKernel) and item.number >= 0:
                value = item.target.value
                places[item] = self.storage.placements[value].region, self.storage.bytes_of(value)
        return places

    def code(self) -> CompiledCode:
        """Compile."""
        source = self.source()
        run, words = self._run(source)
        gradients = self.storage.differentiated() if self.reverse else []
        return CompiledCode(
            int(run.address),
            source,
            self._argument_specs,
            [*self.storage.constants],
            [self.program.values[value].spec for value in self.outputs],
            [self.program.values[value].spec for value in gradients],
            [self.program.arguments.index(value) for value in gradients],
            self.storage.work()[1],
            self.elements,
            self.storage.owners,
            words,
            compiled_code.account_of(self.program, self.fusion, self.storage, len(self._lines)),
        )

    def _run(self, source: str) -> tuple[Any, np.ndarray[Any, Any] | None]:
        """Return the native function that runs the program, and the words by which it calls others."""
        parts = self._parts
        pieces = SplitProgram(parts.body, self.storage.dtype, self._add)
        if pieces.longest > _LONGEST_STATEMENT:
            raise Uncompiled(f"a loop of the program is {pieces.longest} lines long")
        if not parts.functions and not pieces.bodies:
            return self._loaded(source).run, None
        pointers = self._addresses(self._regions() + self._added)
        pointers["parts"] = f"pointer_i8(load_i8(table + {8 * self._first()['work'] + 8}))"
        named = zip(pieces.bodies, pieces.names, strict=True)
        sources = [self._module(body, self._used(names, pointers), is_piece=True) for body, names in named]
        addresses = [self._loaded(text).run.address for text in sources]
        body = parts.body
        if addresses:
            body = call_pieces("parts", parts.words, len(addresses))
            pointers = self._used((), pointers) | {"table": "table"}
        source = self._module(printed(body), pointers, functions=parts.functions)
        module = self._loaded(source)
        return module.run, np.array([*parts.addresses(module), *addresses], np.int64)

    def _used(self, names: Container[str], pointers: dict[str, str]) -> dict[str, str]:
        """Return the pointers among names, and those of what any part of the program reads."""
        always = "parts", "" if self._sizes is None else self._sizes.name
        return {name: text for name, text in pointers.items() if name in names or name in always}

    def _loaded(self, source: str) -> Any:
        """Return the module of native source."""
        return jit.load_source("program", self._shared(source))

    def _shared(self, source: str) -> str:
        """Return source that is the same for other extents; these go to the constant of sizes."""
        if self._sizes is None or not self._extents:
            return source
        constants, place = self.storage.constants, self._sizes.place
        shared = compiled_code.SharedSizes(source, self._extents, self._sizes.name, constants[place].size)
        constants[place] = np.concatenate([constants[place], np.array(shared.numbers, np.int64)])
        return shared.text

    @property
    def operations(self) -> int:
        """How many statements are run."""
        return sum(self._times(placed.statement) for placed in self.fusion.placed)

    @property
    def elements(self) -> int:
        """How many elements are computed, about."""
        return sum(math.prod(p.statement.space) * self._times(p.statement) for p in self.fusion.placed)

    def _times(self, statement: AnyStatement) -> int:
        """Return how often a statement is run."""
        if isinstance(statement, GuardStatement):
            return 1
        return math.prod(
            [self.program.loops[loop].count for loop in self.program.loops_around(statement.target.ref.value)]
        )
