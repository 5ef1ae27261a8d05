"""Long programs in pieces that are compiled one by one: the same results, whatever is handed on between them."""

from __future__ import annotations

import random
import re
from typing import Any

import numba
import numpy as np
import pytest

import tape
from kernels.compiler import compiling, parallel_loops
from kernels.compiler.compiled_code import ProgramText
from kernels.compiler.compiling import Compilation
from kernels.compiler.parallel_loops import SplitProgram
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.programs.rolled_program import Uncompiled
from tests.compiled.test_compiled_programs_at_random import FOUND, IN_BLOCKS, Case, in_blocks, quiet, written
from tests.support.quick_compiles import QuickCompilation, honour_marks
from tests.support.random_programs import program_of
from tests.support.representatives import examples

HANDED = [
    ["v1 = a0[0]", "q[0] = bits_of(v1)"],
    ["n2 = c1[3]", "q[1] = n2"],
    ["v1 = double_of(q[0])", "v3 = v1 < 0.5", "q[3] = bits_of(v3)"],
    ["v1 = double_of(q[0])", "v4 = v1 * 2.0", "q[2] = bits_of(v4)"],
    ["n2 = q[1]", "v4 = double_of(q[2])", "for i in range(3):", "    w6[i] = v4 + a0[n2 + i]"],
    ["v3 = (q[3] != 0)", "v4 = double_of(q[2])", "if v3:", "    v4 = v4 + 1.0", "q[2] = bits_of(v4)"],
    ["v3 = (q[3] != 0)", "v4 = double_of(q[2])", "v4 += w6[0] if v3 else 1.0", "q[2] = bits_of(v4)"],
    ["v4 = double_of(q[2])", "v5 = v4 + 1.0", "q[4] = bits_of(v5)"],
    ["v5 = double_of(q[4])", "v5 = v5 * 2.0 + 1.0", "q[4] = bits_of(v5)"],
    ["v5 = double_of(q[4])", "r7[0] = v5"],
]
"""What pieces of one statement each are."""
TAKEN = re.compile(r"\w+ = (double_of)?\(?q\[|q\[")
"""A line that takes a variable over, or hands it on."""


def printed_lines() -> ProgramText:
    """Return the program that these pieces are of."""
    text = ProgramText()
    for body in HANDED:
        for line in [line for line in body if not TAKEN.match(line)]:
            if line.endswith(":"):
                text.opened(line)
            else:
                text.put(line.strip())
                text.depth = 1
    return text


def dtype_of(name: str) -> Any:
    return np.dtype({"v3": np.bool_, "n2": np.int64}.get(name, np.float64))


def test_what_a_piece_takes_over_and_hands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_loops, "LONG", 0)
    monkeypatch.setattr(parallel_loops, "PIECE", 1)
    added = []

    def add(kind: str, count: int) -> str:
        added.append((kind, count))
        return "q"

    split = SplitProgram(printed_lines().body, dtype_of, add)
    bodies = [[line.removeprefix("    ") for line in body] for body in split.bodies]
    assert bodies == HANDED
    assert added == [("i8", 5)]
    assert split.longest == 2
    assert {"a0", "w6", "q"} == split.names[4] & {"a0", "c1", "w6", "r7", "q"}


def test_a_short_program_is_one_function() -> None:
    split = SplitProgram(printed_lines().body, dtype_of, lambda *_: pytest.fail("memory"))
    assert (split.bodies, split.longest) == ([], 0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all programs cut, into pieces of few lines."""
    monkeypatch.setattr(parallel_loops, "LONG", 0)
    monkeypatch.setattr(parallel_loops, "PIECE", 9)
    monkeypatch.setattr(compiling, "storage_within", in_blocks)
    honour_marks(monkeypatch)


def check(case: Case) -> int:
    """Compare a program in pieces with dynamic mode; return how many they are."""
    count = 0
    for memory in (None, IN_BLOCKS):
        with quiet():
            compilation = QuickCompilation(case.recorded._recipe, reverse=True, memory=memory)
            code = compilation.code()
            count += 0 if code.parts is None else len(code.parts)
            machine = CompiledMachine(code)
            for call in (0, 1, 0):
                case.calls[call].compare(machine, reverse=True)
    return count


@pytest.mark.usefixtures("small")
@examples(3, 12)
def test_results_are_those_of_dynamic_mode(count: int) -> None:
    pieces = 0
    for seed in range(count):
        case = Case(program_of(random.Random(7700 + seed), 7700 + seed))  # noqa: S311 (no secret)
        if case.is_tame():
            pieces += check(case)
    for shape, seed, body in list(FOUND.values())[:: 36 // count]:
        pieces += check(Case(written(body, shape, seed)))
    assert pieces > 200 * count // 12, pieces


@pytest.mark.usefixtures("small")
def test_loops_for_threads_stand_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_loops, "LARGE", 1 << 12)
    monkeypatch.setattr(parallel_loops, "GRAIN", 1 << 11)
    monkeypatch.setattr(parallel_loops, "_FEW", 1 << 8)

    def f(x: Any) -> Any:
        y = x
        for k in range(4):
            y = tape.sin(y) * (1.0 + k * k) + y.mean()
        return (y * y).sum()

    x = np.linspace(0.1, 1.0, 4000)
    value, gradient = tape.value_and_grad(f)(x)
    code = QuickCompilation(tape.record(f, x)._recipe, reverse=True).code()
    assert code.parts is not None
    assert code.parts[0] != 0  # what runs parts of loops stands first
    assert len(code.parts) > 6
    for _ in range(2):
        got = CompiledMachine(code).whole([x])
        np.testing.assert_allclose(np.asarray(got[0]), value, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(got[1]), gradient, rtol=0, atol=1e-12 * np.abs(gradient).max())


@pytest.mark.usefixtures("small")
def test_a_guard_in_a_later_piece_stops_the_program() -> None:
    def f(x: Any) -> Any:
        y = x
        for k in range(8):
            y = tape.sin(y) * (0.9 + 0.1 * k * k)
        if y.sum() > 0.0:
            y = y * 2.0
        for k in range(8):
            y = tape.cos(y) * (0.9 + 0.1 * k * k)
        return y.sum()

    compiled = tape.compile(tape.value_and_grad(f), mode="max", check="never")
    x = np.full(3, 0.2)
    for scale in (1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 1.0):
        value, gradient = compiled(scale * x)
        expected, slope = tape.value_and_grad(f)(scale * x)
        assert value == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(gradient, slope, rtol=1e-12)
    assert len(compiled.programs) == 2
    for program in compiled.programs:
        assert program._first[True].code.parts is not None
    assert "missed 0 times" not in compiled.explain()


@pytest.mark.usefixtures("small")
def test_native_code_calls_a_program_in_pieces() -> None:
    def f(x: Any) -> Any:
        for k in (3, 1, 4, 1, 5, 9, 2, 6):
            x = tape.sin(x) * k + (0.1 * x if k > 4 else x.mean())
        return (x * x).sum()

    compiled = tape.compile(tape.value_and_grad(f), mode="max", check="never")
    x = np.linspace(0.1, 0.9, 20)
    for _ in range(4):
        value, gradient = compiled(x)
    assert compiled.programs[0]._first[True].code.parts is not None
    native = compiled.native

    @numba.njit
    def called(x: Any, out: Any) -> Any:
        return native(x, out)

    out = np.zeros(20)
    assert called(x, out) == (0, value)
    np.testing.assert_array_equal(out, gradient)
    np.testing.assert_allclose(gradient, tape.value_and_grad(f)(x)[1], rtol=1e-11)


@pytest.mark.quick
def test_a_program_without_repeats_is_compiled_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    honour_marks(monkeypatch)
    chance = random.Random(0)  # noqa: S311 (no secret)
    steps = [(chance.randrange(1, 9), chance.random()) for _ in range(3000)]

    def f(x: Any, y: Any) -> Any:
        recent = [x, y]
        for back, c in steps:
            recent.append(recent[-1] * 0.9 - recent[-min(back, len(recent))] * c)
            recent = recent[-10:]
        return recent[-1]

    recorded = tape.record(f, 0.3, 0.4)
    compilation = QuickCompilation(recorded._recipe, reverse=True)
    assert len(compilation.source().splitlines()) > parallel_loops.LONG
    code = compilation.code()
    assert code.parts is not None
    assert len(code.parts) > 2
    value, gradients = tape.value_and_grad(f, (0, 1))(0.3, 0.4)
    got = CompiledMachine(code).whole([0.3, 0.4])
    np.testing.assert_allclose([float(x) for x in got], [value, *gradients], rtol=1e-12)


def test_what_is_too_long_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        for _ in range(20):
            x = tape.sin(x) * 1.1
        return x.sum()

    recipe = tape.record(f, np.ones(3))._recipe
    monkeypatch.setattr(parallel_loops, "LONG", 0)
    monkeypatch.setattr(compiling, "_LONGEST_STATEMENT", 3)
    with pytest.raises(Uncompiled, match=r"a loop of the program is .* lines long"):
        Compilation(recipe, reverse=True).code()
    monkeypatch.setattr(compiling, "_LONGEST", 10)
    with pytest.raises(Uncompiled, match=r"the program is .* lines long"):
        Compilation(recipe, reverse=True).code()
