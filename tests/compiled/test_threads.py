"""Loops of compiled programs in parts: the same bits by any number of threads, wherever they are called from."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import tape
from kernels.compiler import parallel_loops
from kernels.compiler.compiled_code import printed
from kernels.compiler.compiling import Compilation
from kernels.machine_code.c_source import c_files
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.native import threads as threads_module
from kernels.native.threads import MOST_PARTS, WORKERS, Workers
from kernels.programs.rolled_program import Uncompiled
from tests.compiled.test_compiled_programs_at_random import Case, quiet
from tests.support.random_programs import program_of
from tests.support.representatives import examples

pytestmark = pytest.mark.usefixtures("one_thread")
CHANCE = np.random.default_rng(0)
EXAMPLES = int(os.environ.get("TAPE_PROGRAM_EXAMPLES", "300")) // 10


def elementwise(x: Any, y: Any) -> Any:
    return (tape.exp(-x * x) * y + tape.sin(x) / (1.0 + y * y)).sum()


def stencil(x: Any, y: Any) -> Any:
    return ((x[1:] - x[:-1]) ** 2 * y[1:]).sum() + (x[2:] * x[:-2]).sum()


def rows(x: Any, w: Any) -> Any:
    return (tape.softmax(x, 1) * w).sum() + tape.logsumexp(x, 1).sum()


def columns(x: Any, w: Any) -> Any:
    return (tape.softmax(x, 0) * w).sum()


def broadcast(x: Any, b: Any, s: Any) -> Any:
    return (tape.tanh(x * s + b) ** 2).sum()


def extrema(x: Any, w: Any) -> Any:
    return (x * w).max() + tape.maximum(x, w).sum() + (x.sum(0) * w[0]).sum()


def wave(u: Any, c: Any) -> Any:
    v = u.clone()
    for _ in range(6):
        w = 2.0 * u - v
        w[1:-1, 1:-1] += c * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1])
        u, v = w, u
    return (u * u).sum()


def diffusion(u: Any, c: Any) -> Any:
    for _ in range(5):
        inner = u[1:-1] + c * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        u = tape.cat([u[:1], inner, u[-1:]])
    return (u * u).sum()


def many_steps(u: Any, c: Any) -> Any:
    """Run a loop whose number of steps is no part of the source, and whose steps are kept."""
    for _ in range(20):
        u = tape.cat([u[:1], u[1:-1] + c * u[1:-1] * (u[2:] - u[:-2]), u[-1:]])
    return (u * u).sum()


def many_steps_on_a_grid(u: Any, c: Any) -> Any:
    for _ in range(18):
        u = tape.sin(u) + c * u
        u[1:-1] *= 0.9
    return (u * u).sum()


def normal(*shape: int) -> Any:
    return CHANCE.normal(size=shape)


LARGE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (elementwise, (normal(30_001), normal(30_001))),
    "2d": (elementwise, (normal(173, 181), normal(173, 181))),
    "stencil": (stencil, (normal(70_001), normal(70_001))),
    "softmax of rows": (rows, (normal(211, 97), normal(211, 97))),
    "softmax of columns": (columns, (normal(307, 101), normal(307, 101))),
    "broadcast": (broadcast, (normal(311, 127), normal(127), 0.7)),
    "extrema": (extrema, (normal(401, 301), normal(401, 301))),
    "wave": (wave, (normal(361, 363), 0.2)),
    "diffusion": (diffusion, (normal(60_000), 0.1)),
    "many steps": (many_steps, (0.1 * normal(60_000), 0.1)),
    "many steps on a grid": (many_steps_on_a_grid, (normal(301, 211), 0.2)),
}


class Runs:
    """A program's machine code: its results, as bytes, by so many threads."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], *, reverse: bool = True) -> None:
        self.arguments = [*arguments]
        self.compilation = Compilation(tape.record(function, *arguments)._recipe, reverse=reverse)
        self.code = self.compilation.code()
        self.machine = CompiledMachine(self.code)

    @property
    def loops(self) -> int:
        """How many loops are cut into parts."""
        return 0 if self.code.parts is None else len(self.code.parts) - 2

    def results(self, threads: int) -> list[bytes]:
        """Run."""
        tape.set_num_threads(threads)
        return [np.asarray(x).tobytes() for x in self.machine.whole(self.arguments)]


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("reverse", [False, True])
def test_results_have_the_same_bits_by_any_number_of_threads(name: str, reverse: bool) -> None:
    function, arguments = LARGE[name]
    runs = Runs(function, arguments, reverse=reverse)
    assert runs.loops
    expected, before = runs.results(1), WORKERS.shared()
    for threads in (2, 3, 1, 5):
        assert runs.results(threads) == expected
    assert WORKERS.shared()[0] > before[0]
    value, gradients = tape.value_and_grad(function, tuple(range(len(arguments))))(*arguments)
    for got, wanted in zip(
        runs.machine.whole(runs.arguments), [value, *gradients] if reverse else [value], strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.quick
def test_parts_are_run_by_workers() -> None:
    function, arguments = LARGE["elementwise"]
    runs = Runs(function, arguments)
    before = WORKERS.shared()
    expected = runs.results(1)
    assert WORKERS.shared() == before
    for _ in range(1000):
        assert runs.results(2) == expected
        if WORKERS.shared()[1] > before[1] + 2 * 128:  # beyond those of the self-check
            return
    pytest.fail("workers ran nothing")


@pytest.mark.usefixtures("short_parts")
@pytest.mark.quick
@pytest.mark.parametrize("size", [1, 2, 7, 8, 63, 64, 65, 127, 128, 129, 1000])
def test_sizes_around_the_ends_of_parts(size: int) -> None:
    """With parts of whole vectors, and of any length."""
    parallel_loops._VECTORS = 1 if size % 2 else 64  # undone by the fixture
    for function in (elementwise, stencil) if size > 2 else (elementwise,):
        runs = Runs(function, (normal(size), normal(size)))
        expected = runs.results(1)
        assert all(runs.results(threads) == expected for threads in (2, 3))
        gradients = tape.value_and_grad(function, (0, 1))(*runs.arguments)[1]
        for got, wanted in zip(runs.machine.whole(runs.arguments)[1:], gradients, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", [many_steps, many_steps_on_a_grid])
def test_loops_in_loops_of_many_steps_are_cut(function: Callable[..., Any]) -> None:
    """There and back, not only in front of the steps and behind them."""
    runs = Runs(function, LARGE["many steps" if function is many_steps else "many steps on a grid"][1])
    inside = [
        line for line in printed(runs.compilation._parts.body) if line.startswith("        ") and "call_at(" in line
    ]
    assert len(inside) >= 2


@pytest.mark.usefixtures("short_parts")
@examples(5, EXAMPLES)
def test_random_programs(count: int) -> None:
    """Programs of many kinds, all of their loops in parts of a few steps, against dynamic mode."""
    cut = 0
    for seed in range(count):
        case = Case(program_of(random.Random(seed), seed))  # noqa: S311 (no secret)
        if not case.is_tame():
            continue
        try:
            compilation = case.compiled(roll=seed % 4 != 0, reverse=seed % 5 != 0)
            machine = CompiledMachine(compilation.code())
        except Uncompiled:
            continue
        cut += machine.code.parts is not None
        found: list[set[tuple[bytes, ...]]] = [set(), set()]
        with quiet():
            for call, threads in itertools.product((0, 1), (1, 2, 3)):
                tape.set_num_threads(threads)
                results = [np.asarray(x).tobytes() for x in machine.whole(case.calls[call].arguments)]
                found[call].add(tuple(results))
            assert [len(results) for results in found] == [1, 1], f"seed {seed}"
            case.calls[1].compare(machine, reverse=seed % 5 != 0)
    assert cut > count // 2


@pytest.mark.usefixtures("short_parts")
@pytest.mark.quick
def test_what_is_left_on_one_thread() -> None:
    """Steps that write what others read, and sums that are read, are no parts; loops in them are."""
    runs = Runs(lambda x: (x / x.sum()).sum() + x.prod(), (normal(50),))
    lines = runs.compilation._parts.body
    assert runs.results(2) == runs.results(1)
    small = Runs(elementwise, (normal(3), normal(3)))
    assert small.loops or lines


@pytest.mark.quick
def test_small_programs_are_as_they_were() -> None:
    runs = Runs(elementwise, (normal(1000), normal(1000)))
    assert not runs.loops
    assert "parts" not in runs.code.source


def test_several_python_threads_call_at_once() -> None:
    function, arguments = LARGE["2d"]
    runs = Runs(function, arguments)
    expected, results = runs.results(2), []

    def call() -> None:
        machine = runs.machine.copy()
        results.extend([[np.asarray(x).tobytes() for x in machine.whole(runs.arguments)] for _ in range(30)])

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 90


def test_compiled_functions() -> None:
    function, arguments = LARGE["stencil"]
    compiled = tape.compile(tape.value_and_grad(function, (0, 1)), mode="max")
    for _ in range(3):
        compiled(*arguments)
    results, before = set(), WORKERS.shared()
    for threads in (1, 2, 3):
        tape.set_num_threads(threads)
        value, gradients = compiled(*arguments)
        results.add(tuple([np.asarray(x).tobytes() for x in (value, *gradients)]))
    assert len(results) == 1
    assert WORKERS.shared()[0] > before[0] + 2  # beyond those of the self-check


def test_native_callers() -> None:
    function, arguments = LARGE["elementwise"]
    compiled = tape.compile(tape.value_and_grad(function, (0, 1)), mode="max")
    for _ in range(3):
        expected, _ = compiled(*arguments)
    native, gradients = compiled.native, [np.empty_like(x) for x in arguments]

    @numba.njit
    def called(x: Any, y: Any, gx: Any, gy: Any) -> Any:
        return native(x, y, gx, gy)[1]

    for threads in (1, 2):
        tape.set_num_threads(threads)
        assert called(*arguments, *gradients) == expected


@pytest.mark.quick
def test_exported_c_has_one_thread() -> None:
    runs = Runs(*LARGE["elementwise"])
    assert runs.loops
    header, text = c_files({"energy": (runs.code, ["x", "y"])}, "energy.h", "Energy.")
    assert "for (" in text
    assert "part" not in header + text.replace("tape_", "").replace("apart", "")


FORKED = """
import os
import numpy as np
import tape
from kernels.native.threads import WORKERS

def f(x):
    return (tape.exp(-x * x) * tape.sin(x)).sum()

x = np.linspace(0.0, 1.0, 50_000)
program = tape.compile(f, mode="max")
tape.set_num_threads(2)
expected = [program(x) for _ in range(5)][-1]
child = os.fork()
if not child:
    ok = tape.get_num_threads() == 1 and program(x) == expected
    tape.set_num_threads(2)
    before = WORKERS.shared()[0]
    ok = ok and program(x) == expected and WORKERS.shared()[0] > before
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert program(x) == expected
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_processes() -> None:
    """A child has one thread, until it asks for more; both end."""
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED], check=True, timeout=120)


def test_the_process_ends_while_threads_work() -> None:
    text = FORKED.split("child =", maxsplit=1)[0] + (
        "import threading\n"
        "def more():\n    while True:\n        program(x)\n"
        "threading.Thread(target=more, daemon=True).start()\n"
        "assert program(x) == expected\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=120)


@pytest.mark.quick
@pytest.mark.parametrize("wrong", [0, -1, 2.0, "2", None, True])
def test_wrong_arguments(wrong: Any) -> None:
    with pytest.raises(RuntimeError, match="set_num_threads expects a"):
        tape.set_num_threads(wrong)
    assert tape.get_num_threads() == 1


@pytest.mark.quick
def test_the_number_is_as_it_was_set() -> None:
    for threads in (2, np.int64(3), 1000, 1):
        tape.set_num_threads(threads)  # type: ignore[arg-type]
        assert tape.get_num_threads() == threads
    assert len(WORKERS.threads) < MOST_PARTS


@pytest.mark.quick
def test_code_that_runs_parts_wrongly_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, programs are one piece, and any number of threads may be asked for."""
    wrong = Workers()
    monkeypatch.setattr(threads_module, "called", lambda *_: 0)
    assert wrong.native is None
    wrong.use(3)
    assert (wrong.wanted, wrong.words[0]) == (3, 1)
    monkeypatch.setattr(parallel_loops, "WORKERS", wrong)
    assert not Runs(*LARGE["elementwise"]).loops
