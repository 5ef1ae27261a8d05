"""Loops of long programs as functions of their own: the same results."""

from __future__ import annotations

import ast
import random
import time

import pytest

from kernels.compiler import compiling
from kernels.language import lanes, statements
from kernels.machine_code.compiled_machine import CompiledMachine
from tests.compiled.test_compiled_programs_at_random import FOUND, IN_BLOCKS, Case, in_blocks, quiet, written
from tests.support.quick_compiles import MarkedCompilation
from tests.support.random_programs import program_of
from tests.support.representatives import examples, few

pytestmark = pytest.mark.usefixtures("few_passes")


class Marked(MarkedCompilation):
    """A program whose source says that its loops are apart."""

    mark = "APART = True"


def check(case: Case, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare a program whose loops are all apart with dynamic mode; return how many loops that are."""
    found: list[ast.For] = []

    def noted(tree: ast.FunctionDef) -> dict[ast.For, lanes.LoopUses]:
        loops = lanes.loops_apart(tree)
        found.extend(loops)
        return loops

    monkeypatch.setattr(lanes, "LONG", 0)
    monkeypatch.setattr(statements, "loops_apart", noted)
    monkeypatch.setattr(compiling, "storage_within", in_blocks)
    for memory in (None, IN_BLOCKS):
        with quiet():
            machine = CompiledMachine(Marked(case.recorded._recipe, reverse=True, memory=memory).code())
            for call in (0, 1, 0):
                case.calls[call].compare(machine, reverse=True)
    return len(found)


@pytest.mark.parametrize("most", few([3, 40, 1000], 2))
@examples(2, 8)
def test_results_are_those_of_dynamic_mode(most: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST", most)
    for seed in range(count):
        case = Case(program_of(random.Random(9000 + seed), 9000 + seed))  # noqa: S311 (no secret)
        if case.is_tame():
            check(case, monkeypatch)
    for shape, seed, body in list(FOUND.values())[most % 2 : 2 * count : 2]:
        check(Case(written(body, shape, seed)), monkeypatch)


def test_a_loop_that_is_called_again_knows_what_it_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
        z, a = tape.softmax(y, 0), tape.tanh(y.mean())
        for k in range(4):
            s = s.detach() + s
            for _ in range(3):
                for l in range(4):
                    x = tape.sigmoid(x.T.clone().T)
                    a = a + 0.1 * l
        return x.sum() + z[0].sum() + a
    """
    monkeypatch.setattr(Marked, "mark", f"APART = {time.time_ns()}")  # no file holds its machine code
    assert check(Case(written(body, (5, 3), 3)), monkeypatch) > 4


def test_what_a_loop_reads_and_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse("""
def f(a, n):
    total = 0.0
    unread = 1.0
    for i in range(n):
        last = a[i]
        total += last
        unread = last
    for i in range(n):
        if a[i] > total:
            return 1
    return last
""").body[0]
    assert isinstance(tree, ast.FunctionDef)
    (loop,) = [node for node in tree.body[:3] if isinstance(node, ast.For)]
    monkeypatch.setattr(lanes, "LONG", 0)
    uses = lanes.loops_apart(tree)[loop]
    assert (uses.assigned, uses.read_elsewhere) == (["i", "last", "total", "unread"], {"i", "last", "total"})
    loops: list[ast.For] = []
    lanes._collect(tree.body, loops)
    assert loops == [loop]  # the other one returns
