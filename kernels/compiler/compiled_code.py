"""What the compiler makes of a program: source, machine code, and how it is called."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from kernels.compiler.fusion import FusedBlock, FusedLoop, Fusion, Nest, Placed
from kernels.compiler.statements import CallStatement
from kernels.compiler.storage import Storage
from kernels.foundation.specs import Array, Spec
from kernels.foundation.tables import dataclass
from kernels.programs.rolled_program import Loop, RolledInstruction, RolledProgram

# What became of a program that was compiled: its loops, its nests, what kept two of these apart, and its workspace.

ROLES = {
    "w": ("values", "values"),
    "d": ("gradients", "gradients"),
    "t": ("intermediates", "values saved for the way back"),
    "z": ("checkpoints", "what a loop carries at the begin of each block of steps"),
    "u": ("intermediates", "what a guard found"),
    "q": ("intermediates", "addresses"),
    "f": ("intermediates", "sums over parts of loops, and what pieces hand on"),
}
"""What the regions of a workspace hold, by the first letters of their names: the kind of memory, and in words."""


@dataclass(slots=True, frozen=True)
class LoopAccount:
    """A loop: how often, the steps in the recipe of its own operations, and how many loops are around it.

    With ``ends`` it was recorded as one, that guards or a value end.
    """

    count: int
    steps: tuple[int, ...]
    depth: int
    ends: bool = False


@dataclass(slots=True, frozen=True)
class NestAccount:
    """A nest: how many statements, over how many elements, their steps in the recipe.

    ``apart`` are the step of a statement in an earlier nest over as many, and that of the statement here that could not
    join it; None where there is no such nest.
    """

    statements: int
    elements: int
    steps: tuple[int, ...]
    apart: tuple[int, int] | None


@dataclass(slots=True, frozen=True)
class CallAccount:
    """A call between nests: what is called, what runs it, its step in the recipe, and how often."""

    name: str
    by: str
    step: int
    times: int


@dataclass(slots=True, frozen=True)
class Account:
    """What a compiled program is made of; steps are those of the recipe."""

    lines: int
    """Of source, for value and gradient."""
    loops: tuple[LoopAccount, ...]
    nests: tuple[NestAccount, ...]
    calls: tuple[CallAccount, ...]
    straight: tuple[int, ...]
    """Steps that are in no loop."""
    memory: dict[str, tuple[int, int]]
    """By kind of what stands in the workspace, how many, and their bytes."""


@dataclass(slots=True, eq=False)
class CompiledCode:
    """One native function, ``int64 run(int64 table)``, and what it takes.

    The table is the address of int64 words: the addresses of the arguments, of the constants, of the results, and
    that of ``work`` bytes of workspace, aligned to 64; behind that, if there are ``parts``, the address of these.
    An argument has the strides of its spec; a result is dense, in C order: the outputs, then the gradients of the
    first output by the arguments in ``differentiated``. The function returns -1, or the number of the guard that
    missed, or how many guards there are where a call gave up; then results are undefined. It keeps nothing between
    calls and writes to results and workspace alone. If there are ``owners``, Python may run in it: whoever calls it
    need not hold the interpreter's lock, but must not keep others from it.
    """

    address: int
    source: str
    """Native source that does the same without threads: a module in the part of Python that
    kernels/language/statements.py translates, whose cfunc is called ``run``."""
    arguments: list[Spec]
    constants: list[Array]
    outputs: list[Spec]
    gradients: list[Spec]
    differentiated: list[int]
    work: int
    elements: int
    """How many elements are computed, about: the work of a call."""
    owners: list[Any] = field(default_factory=list)
    """What has to live as long as it: what native functions that it calls belong to."""
    parts: Array | None = None
    """Addresses of what it calls: parts of its loops, behind what runs them in threads, and pieces of a long one."""
    account: Account | None = None
    """What became of the program; None of one that was written by hand."""


# The account of a program that is being compiled.


def account_of(program: RolledProgram, fusion: Fusion, storage: Storage, lines: int) -> Account:
    """Return the account of a program whose source, of so many lines, has been printed."""
    loops: list[LoopAccount] = []
    straight = _steps(program.body)
    _loops(program.body, loops, storage.nested_history, 0)
    nests: list[NestAccount] = []
    _nests(fusion.root, nests, fusion.apart)
    memory: dict[str, tuple[int, int]] = {}
    for region in storage.regions:
        if region.role == "work":
            kind, _ = ROLES[region.name[0]]
            count, size = memory.get(kind, (0, 0))
            memory[kind] = count + 1, size + region.size
    calls = tuple(calls_of(program, fusion))
    return Account(lines, tuple(loops), tuple(nests), calls, straight, memory)


def _steps(body: list[RolledInstruction | Loop]) -> tuple[int, ...]:
    return tuple([item.line for item in body if isinstance(item, RolledInstruction)])


def calls_of(program: RolledProgram, fusion: Fusion) -> Iterator[CallAccount]:
    """Yield the calls of a program."""
    for placed in fusion.placed:
        statement = placed.statement
        if isinstance(statement, CallStatement):
            times = math.prod([program.loops[loop].count for loop in program.loops_around(statement.result.value)])
            yield CallAccount(statement.call.name, statement.call.by, statement.line, times)


def _loops(body: list[RolledInstruction | Loop], loops: list[LoopAccount], rows: Mapping[int, int], depth: int) -> None:
    for item in body:
        if isinstance(item, Loop):
            most = rows.get(item.number, item.count)
            loops.append(LoopAccount(most, _steps(item.body), depth, item.ends is not None))
            _loops(item.body, loops, rows, depth + 1)


def _nests(block: FusedBlock, nests: list[NestAccount], apart: dict[str, tuple[int, int]]) -> None:
    for item in block.items:
        if isinstance(item, FusedLoop):
            _nests(item.body, nests, apart)
        elif isinstance(item, Nest):
            placed = _placed(item.body)
            elements = max(math.prod(p.statement.space) for p in placed)
            steps = tuple([p.statement.line for p in placed])
            nests.append(NestAccount(len(placed), elements, steps, apart.get(item.name)))


def _placed(block: FusedBlock) -> list[Placed]:
    """Return the statements of a block and of the nests in it."""
    statements: list[Placed] = []
    for item in block.items:
        statements += [item] if isinstance(item, Placed) else _placed(item.body)
    return statements
