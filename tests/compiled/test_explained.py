"""What compiled functions tell: what runs a program and why, its loops as text; checks of what has been compiled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.programs.program import ProgramError

if TYPE_CHECKING:
    from tests.conftest import Fresh

pytestmark = pytest.mark.quick
GRID = np.linspace(0.0, 1.0, 100)


def predators(y: Any) -> Any:
    a, b = y[0], y[1]
    for _ in range(50):
        a, b = a + 0.01 * (a - a * b), b + 0.01 * (a * b - b)
    return a


def normed(u: Any) -> Any:
    total = (u * u).sum()
    return ((u / total) ** 3).sum()


def shrinking(x: Any) -> Any:
    for _ in range(30):
        x = tape.sin(x[1:]) * 2.0
    return x.sum()


def told(function: Any, *args: Any, mode: str = "max", calls: int = 3) -> str:
    """Return what a compiled gradient explains after some calls."""
    compiled = tape.compile(tape.value_and_grad(function), mode=mode)
    for _ in range(calls):
        compiled(*args)
    return compiled.explain()  # type: ignore[no-any-return]


def test_machine_code_is_told_by_loops_and_nests() -> None:
    text = told(predators, np.array([1.0, 2.0]))
    assert re.search(r"machine code: \d+ lines, [\d,]+ bytes of workspace", text), text
    first = predators.__code__.co_firstlineno
    assert f"loop, 50 times 8 operations at test_explained.py:{first + 3}: a, b = a + " in text
    text = told(normed, GRID)
    assert re.search(r"nest of 2 statements over 100 elements at test_explained.py:\d+: total = ", text), text
    assert "not part of the nest before: all, or other elements, of what is computed at" in text


def test_what_keeps_a_line_from_being_a_loop_is_told() -> None:
    text = told(shrinking, GRID)
    assert "60 of these in 30 times of test_explained.py" in text
    assert "no loop: sin float64[98] is sin float64[97] at the next time" in text


def test_calls_between_nests_are_told() -> None:
    text = told(lambda x: (tape.median(x) * x).sum(), GRID)
    assert re.search(r"\n *1 call of median_all by Python at test_explained.py:\d+: text = ", text), text
    text = told(lambda x: (tape.cumsum(x, 0) * x).sum(), GRID)
    assert "1 call of cumsum by a kernel at test_explained.py" in text


def test_what_stays_with_the_interpreter_is_told() -> None:
    text = told(lambda x: (tape.median(x[:3]) * x[:3]).sum(), GRID, mode="default", calls=120_000)
    assert re.search(r"interpreter: calls of median_all take most of the time, at .*test_explained.py:\d+: ", text), (
        text
    )
    assert re.search(r"interpreter, for [\d,]+ more calls", told(normed, GRID, mode="default"))
    assert 'the mode is "eager"' in told(normed, GRID, mode="eager")
    writing = tape.compile(lambda x: x.mul_(2.0), mode="max")
    for _ in range(4):
        writing(np.ones(3))
    assert "interpreter: " in writing.explain()


def test_the_loops_of_a_program_fit_on_a_page() -> None:
    compiled = tape.compile(tape.value_and_grad(predators))
    with pytest.raises(ProgramError, match="no program yet"):
        compiled.loops()
    for _ in range(3):
        compiled(np.array([1.0, 2.0]))
    text = compiled.loops()
    assert "count0 is 50" in text
    assert text.count("for k0 in range(count0):") == 1
    assert len(re.findall(r"for k0 in range\(count0 - [12], -1, -1\):", text)) == 1
    assert len(text.splitlines()) < 80
    assert "# a0: argument 0, float64[2]" in text
    assert "gradient by argument 0, float64[2]" in text
    assert len(compiled.loops(reverse=False).splitlines()) < len(text.splitlines())
    assert text == compiled.programs[0].loops(reverse=True)


def test_what_is_told_fits_on_a_screen() -> None:
    """Of many guards, ways, shapes and things that are read the first ones are told, and how many more there are."""
    branches = "".join(f"    y = y * 1.01 if y[{k % 4}] > {k} - 50 else y + u{k % 40}\n" for k in range(100))
    names = {f"u{k}": tape.tensor(float(k)) for k in range(40)}
    exec(f"def f(y):\n{branches}    return y.sum()", names)  # noqa: S102 (written here)
    compiled = tape.compile(names["f"])
    for size in range(4, 12):
        for start in (1.0, 1.0, 1.0, 30.0, 30.0, -60.0, -60.0, -20.0, -20.0, -40.0, -40.0):
            compiled(np.full(size, start))
    text = compiled.explain()
    assert len(text.splitlines()) < 60, text
    assert "guarded lines more" in text
    assert "things more" in text
    assert "and 2 programs more, replayed" in text
    assert "and 5 signatures before" in text


LISTED = """
import numpy as np
import tape

compiled = tape.compile(lambda x: (x * x).sum(), mode="max")
for _ in range(3):
    compiled(np.ones(100))
"""


def test_an_environment_variable_prints_what_is_compiled(fresh: Fresh) -> None:
    for value, count in (("1", 1), ("", 0)):
        output, errors = fresh(LISTED, TAPE_LOOPS=value, TAPE_QUIET="1").communicate(timeout=300)
        assert output == ""
        assert errors.count("def program(") == count, errors


def test_the_first_replay_of_machine_code_is_checked() -> None:
    """Whenever a program is compiled, the next call is compared with dynamic mode."""
    compiled = tape.compile(tape.value_and_grad(normed))
    for _ in range(30):
        compiled(GRID)
    (program,) = compiled.programs
    checked = compiled.calls["checked"]
    program._compile(reverse=True)
    assert isinstance(program._first[True], CompiledMachine)
    assert compiled.calls["checked"] == checked
    compiled(GRID)
    assert compiled.calls["checked"] == checked + 1
    for _ in range(10):
        compiled(GRID)
    assert compiled.calls["checked"] == checked + 1


def test_a_wrong_program_is_found_by_its_first_check() -> None:
    compiled = tape.compile(tape.value_and_grad(normed))
    for _ in range(10):
        expected = compiled(GRID)
    (program,) = compiled.programs
    program._code(reverse=True)
    wrong = tape.compile(tape.value_and_grad(lambda u: u.sum()), mode="max")
    for _ in range(3):
        wrong(GRID)
    program._machines[True][:] = [wrong.programs[0]._first[True]]
    with pytest.warns(tape.errors.CompileWarning, match="stays interpreted"):
        value, gradient = compiled(GRID)
    assert value == expected[0]
    np.testing.assert_array_equal(gradient, expected[1])
    assert compiled(GRID)[0] == expected[0]
    assert "more than rounding" in compiled.explain()


@pytest.mark.parametrize("function", [predators, normed, shrinking])
def test_memory_is_that_of_the_machine(function: Any) -> None:
    compiled = tape.compile(tape.value_and_grad(function), mode="max")
    for _ in range(3):
        compiled(GRID)
    (program,) = compiled.programs
    use, machine = compiled.memory(), program._first[True]
    assert use.reverse
    assert use.block == machine.code.work == machine._work.size
    assert sum(share.bytes for share in use.kinds.values()) <= use.block
    assert use.constants == sum(constant.nbytes for constant in machine.code.constants)
    assert use.kinds["arguments"].bytes == use.kinds["results"].bytes == 0
    assert f"block {use.block:,}" in re.sub(r" +", " ", str(use))
    assert compiled.memory(reverse=False).groups  # that has not been compiled


def test_a_fault_of_the_compiler_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter serves where compiling fails."""

    def failing(*_: Any, **__: Any) -> None:
        raise KeyError("v1")

    monkeypatch.setattr("tape.programs.program.compiled_machine", failing)
    compiled = tape.compile(normed, mode="max")
    with pytest.warns(tape.errors.CompileWarning, match="the compiler failed"):
        results = [compiled(GRID) for _ in range(4)]
    assert results == [results[0]] * 4
    assert "the compiler failed: KeyError('v1')" in compiled.explain()
