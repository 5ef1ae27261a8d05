"""A recipe to machine code: rolled, fused, expanded, printed, and compiled by LLVM."""

from __future__ import annotations

import functools
import math

from kernels.arrays.specs import dense, intern_spec
from kernels.compiler import jit
from kernels.programs.compiler.account import ROLES
from kernels.programs.compiler.accounting import account_of
from kernels.programs.compiler.adjoint import Adjoint
from kernels.programs.compiler.compiled_code import CompiledCode
from kernels.programs.compiler.forward_text import ForwardText, Text
from kernels.programs.compiler.gathering_text import GatheringReverse
from kernels.programs.compiler.kept_values import KeptValues
from kernels.programs.compiler.storage import POINTERS, Region, Storage
from kernels.programs.fusing.expansion import Expansion
from kernels.programs.fusing.fusion import Fusion
from kernels.programs.fusing.scalar_rules import BOOL, COPY, FLOAT64
from kernels.programs.fusing.statements import AnyStatement, GuardStatement, is_dense, mapped, whole
from kernels.programs.parts.loops_in_parts import LoopsInParts
from kernels.programs.parts.part_text import IMPORTS
from kernels.programs.recording.program import Recipe, describe
from kernels.programs.rolling.roll import rolled
from kernels.programs.rolling.rolled_program import Ref, Uncompiled, Value

_LONGEST = 6_000
"""Lines of source that are compiled; more stay with the interpreter."""

_HEAD = '''"""Compiled by tape-autograd: a program{derivative}."""

import math

import numpy as np

from kernels import vectormath
from kernels.compiler.jit import cfunc, njit
from kernels.native import accumulators
from kernels.native.memory import begin_of, bits_of, call_kernel, load_i8, pointer_b1, pointer_f8, pointer_i8{imports}

MINUS_ZERO = -(1 << 63)
masked = range
CONTRACT = True
NOALIAS = True
{functions}

@njit(error_model="numpy")
def program({pointers}):
{body}
    return -1


@cfunc("int64(int64)", cache=True, error_model="numpy")
def run(table):
    return program({addresses})
'''


class Compilation:
    """One program on its way to :class:`CompiledCode`."""

    def __init__(self, recipe: Recipe, *, reverse: bool, roll: bool = True) -> None:
        self.program = rolled(recipe, roll=roll)
        self.reverse = reverse
        self._check()
        self.fusion = Fusion(self.program)
        self.outputs = [self._output(ref) for ref in self.program.outputs]
        self.expansion = Expansion(self.program, self.fusion)
        seed = self.outputs[0] if reverse and self._has_gradient() else None
        self.adjoint = Adjoint(self.expansion, seed)
        self.kept = KeptValues(self.expansion, self.adjoint)
        self.storage = Storage(self.expansion, self.adjoint, self.kept, self.outputs)
        self._added: list[Region] = []
        """Memory that loops in parts need besides."""
        self.seed = seed

    def _check(self) -> None:
        for value in self.program.arguments:
            spec = self.program.values[value].spec
            if spec.dtype not in (FLOAT64, BOOL) or (spec.dtype != FLOAT64 and not spec.shape) or not is_dense(spec):
                raise Uncompiled(f"an argument of {spec.dtype} with strides {spec.strides}")

    def _has_gradient(self) -> bool:
        ref = self.program.outputs[0]
        return ref.spec.size == 1 and ref.spec.dtype == FLOAT64

    def _output(self, ref: Ref) -> int:
        """Copy an output to a value of its own, in C order; return that."""
        shape, dtype = ref.spec.shape, ref.spec.dtype
        if dtype not in (FLOAT64, BOOL):
            raise Uncompiled(f"a result of {dtype}")
        strides = dense(shape, dtype.itemsize)
        spec = intern_spec(shape, strides, dtype, strides, ref.spec.size)
        self.program.values.append(Value(spec))
        number = len(self.program.values) - 1
        target = whole(self.program, number, wanted=ref.wanted)
        self.fusion.place(mapped(COPY, shape, (ref,), target, strides, (ref.wanted,)), self.fusion.root)
        return number

    def source(self) -> str:
        """Return the program as native source for one thread; Uncompiled where that is too long."""
        text = self._text
        if len(text.lines) > _LONGEST:
            raise Uncompiled(f"the program is {len(text.lines)} lines long")
        return self._filled(text.lines)

    def _filled(self, lines: list[str], parts: LoopsInParts | None = None) -> str:
        regions = self._regions() + (self._added if parts is not None else [])
        pointers, addresses = [region.name for region in regions], self._addresses(regions)
        if parts is not None:
            pointers.append("parts")
            addresses.append(f"pointer_i8(load_i8(table + {8 * self._first()['work'] + 8}))")
        return _HEAD.format(
            derivative=" and its gradient" if self.reverse else "",
            pointers=", ".join(pointers),
            body="\n".join(lines) or "    pass",
            addresses=", ".join(addresses),
            imports=IMPORTS if parts is not None else "",
            functions="".join(parts.functions) if parts is not None else "",
        )

    @functools.cached_property
    def _parts(self) -> LoopsInParts:
        """The printed program, its large loops cut into parts that threads may run."""
        lines = self._text.lines  # printing adds to the storage
        memory = [self.storage.memory(region) for region in self._regions()]
        booleans = {name for name in self.expansion.defined if self.storage.dtype(name) == BOOL}
        return LoopsInParts(lines, memory, booleans, self._add)

    def _add(self, kind: str, count: int) -> str:
        """Add to the workspace; return the name of the pointer."""
        self._added.append(self.storage.partial(count) if kind == "f8" else self.storage.table(count))
        return self._added[-1].name

    def listing(self) -> str:
        """Return the program alone, below what its memory is: for people to read."""
        text = self._text
        memory = [f"# {region.name}: {self._meaning(region)}" for region in self._regions()]
        pointers = ", ".join([region.name for region in self._regions()])
        return "\n".join([*memory, f"def program({pointers}):", *text.lines, "    return -1"])

    @functools.cached_property
    def _text(self) -> Text:
        """The printed program. Printing adds to the storage, so that it is done once."""
        text = Text()
        self._passes(text)
        return text

    def _regions(self) -> list[Region]:
        """Return the memory of the printed program."""
        used = [region for region in self.storage.regions if region not in self._added]
        return [region for region in used if self.reverse or region.role != "gradient"]

    def _meaning(self, region: Region) -> str:
        """Return what the memory of a pointer is, as text."""
        if region.role == "work":
            return f"workspace, {region.size:,} bytes: {ROLES[region.name[0]][1]}"
        if region.role == "constant":
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

    def _passes(self, text: Text) -> None:
        """Print the forward pass, then the reverse; the last nest runs both ways at once, if it can."""
        forward, root = ForwardText(text, self.storage, self.kept), self.expansion.root
        if not self.reverse:
            forward.block(root)
            return
        last = self.kept.last if self.kept.last >= 0 else len(root.items)
        for item in root.items[:last]:
            forward.item(item)
        back = GatheringReverse(text, self.storage, self.kept, self.adjoint, -1 if self.seed is None else self.seed)
        back.start()
        for item in reversed(root.items[last:]):
            back.item(item)
        for item in root.items[last + 1 :]:
            forward.item(item)
        for item in reversed(root.items[:last]):
            back.item(item)
        back.finish()

    def _first(self) -> dict[str, int]:
        """Return where in the table the addresses of a role begin."""
        counts = [len(self.program.arguments), len(self.storage.constants), len(self.outputs)]
        first = {"argument": 0, "constant": counts[0], "output": sum(counts[:2]), "gradient": sum(counts)}
        return first | {"work": sum(counts) + (len(self.storage.differentiated()) if self.reverse else 0)}

    def _addresses(self, regions: list[Region]) -> list[str]:
        """Return pointers as text, read from the table."""
        first, (begins, _) = self._first(), self.storage.work()
        texts = []
        for region in regions:
            if region.role == "work":
                address = f"load_i8(table + {8 * first['work']}) + {begins[region.name]}"
            else:
                address = f"load_i8(table + {8 * (first[region.role] + region.place)})"
            texts.append(f"{POINTERS.get(region.dtype, 'pointer_b1')}({address})")
        return texts

    def guard_places(self) -> list[tuple[int, int]]:
        """Return where in the workspace guards leave what they found, and how many bytes that is."""
        begins, _ = self.storage.work()
        return [(begins[region.name], region.dtype.itemsize) for region in self.storage.checked]

    def code(self) -> CompiledCode:
        """Compile."""
        source, parts = self.source(), self._parts
        cut = source if parts.words is None else self._filled(parts.lines, parts)
        module = jit.load_source("program", cut)
        parts.enter(module)
        gradients = self.storage.differentiated() if self.reverse else []
        return CompiledCode(
            int(module.run.address),
            source,
            [self.program.values[value].spec for value in self.program.arguments],
            self.storage.constants,
            [self.program.values[value].spec for value in self.outputs],
            [self.program.values[value].spec for value in gradients],
            [self.program.arguments.index(value) for value in gradients],
            self.storage.work()[1],
            self.elements,
            self.storage.owners,
            parts.words,
            account_of(self.program, self.fusion, self.storage.regions, len(self._text.lines)),
        )

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
