"""The account of a program that is being compiled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from kernels.programs.compiler.account import ROLES, Account, CallAccount, LoopAccount, NestAccount
from kernels.programs.differentiating.storage import Storage
from kernels.programs.fusing.fusion import Block, Fusion, Nest, Placed, Steps
from kernels.programs.fusing.statements import CallStatement
from kernels.programs.rolling.rolled_program import Instruction, Loop, RolledProgram


def account_of(program: RolledProgram, fusion: Fusion, storage: Storage, lines: int) -> Account:
    """Return the account of a program whose source, of so many lines, has been printed."""
    loops: list[LoopAccount] = []
    straight = _steps(program.body)
    _loops(program.body, loops, storage.within, 0)
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


def _steps(body: list[Instruction | Loop]) -> tuple[int, ...]:
    return tuple([item.line for item in body if isinstance(item, Instruction)])


def calls_of(program: RolledProgram, fusion: Fusion) -> Iterator[CallAccount]:
    """Yield the calls of a program."""
    for placed in fusion.placed:
        statement = placed.statement
        if isinstance(statement, CallStatement):
            times = math.prod([program.loops[loop].count for loop in program.loops_around(statement.result.value)])
            yield CallAccount(statement.call.name, statement.call.by, statement.line, times)


def _loops(body: list[Instruction | Loop], loops: list[LoopAccount], rows: Mapping[int, int], depth: int) -> None:
    for item in body:
        if isinstance(item, Loop):
            most = rows.get(item.number, item.count)
            loops.append(LoopAccount(most, _steps(item.body), depth, item.ends is not None))
            _loops(item.body, loops, rows, depth + 1)


def _nests(block: Block, nests: list[NestAccount], apart: dict[str, tuple[int, int]]) -> None:
    for item in block.items:
        if isinstance(item, Steps):
            _nests(item.body, nests, apart)
        elif isinstance(item, Nest):
            placed = _placed(item.body)
            elements = max(math.prod(p.statement.space) for p in placed)
            steps = tuple([p.statement.line for p in placed])
            nests.append(NestAccount(len(placed), elements, steps, apart.get(item.name)))


def _placed(block: Block) -> list[Placed]:
    """Return the statements of a block and of the nests in it."""
    statements: list[Placed] = []
    for item in block.items:
        statements += [item] if isinstance(item, Placed) else _placed(item.body)
    return statements
