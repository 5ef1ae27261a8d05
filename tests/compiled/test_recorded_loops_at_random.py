"""Random programs with loops that values end, compiled, against dynamic mode: forward and back, in short blocks."""

from __future__ import annotations

import os
import random
import re
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tape
from kernels.compiler import compiling
from tape.errors import CompileWarning
from tests.compiled.test_compiled_programs_at_random import Comparison, quiet
from tests.support.random_programs import STEPS, RandomProgram, program_of
from tests.support.random_while_loops import while_program_of
from tests.support.representatives import examples

pytestmark = pytest.mark.usefixtures("few_passes")

EXAMPLES = int(os.environ.get("TAPE_LOOP_EXAMPLES", "90"))
CALLS = (0, 1, 2, 0, 3, 1, 4)
"""Arguments that a function is called with: loops have other numbers of iterations for each."""
LARGEST = 1e6


class Called:
    """A compiled function in place of the machine that runs it."""

    def __init__(self, program: RandomProgram) -> None:
        self.has_aux = program.has_aux
        gradient = tape.value_and_grad(program.function, (0, 1, 2, 3, 4), has_aux=program.has_aux)
        self.function = tape.compile(gradient, mode="max", check="never")

    def whole(self, arguments: list[Any]) -> list[Any]:
        """Return values and gradients."""
        found, gradients = self.function(*arguments)
        return [*([found[0], *found[1]] if self.has_aux else [found]), *gradients]


def run_seed(seed: int, counts: Counter[str]) -> None:
    """Compare the program of a seed with dynamic mode in several calls."""
    run(while_program_of(random.Random(seed), seed), counts)  # noqa: S311 (no secret)


def run(program: RandomProgram, counts: Counter[str]) -> None:
    """Compare a program with dynamic mode in several calls."""
    with quiet():
        warnings.simplefilter("error", CompileWarning)
        comparisons = {call: Comparison(program, call) for call in set(CALLS)}
        if any(comparison.size() > LARGEST for comparison in comparisons.values()):
            counts["too large"] += 1
            return
        called: Any = Called(program)
        for call in CALLS:
            comparisons[call].compare(called, reverse=True)
    explained = called.function.explain()
    counts["compiled loops"] += "until it ends" in explained
    counts["loops in loops"] += "\n          loop, until it ends" in explained
    counts["interpreted"] += "interpreter" in explained


@examples(4, EXAMPLES // 3)
@pytest.mark.parametrize("block", [2, 3, 1024])
def test_random_loops(block: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, derandomize=EXAMPLES <= 300, phases=[Phase.generate])
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        run_seed(seed * 3 + block % 3, counts)

    monkeypatch.setattr(compiling, "_BLOCK", block)
    check()
    print(counts)  # noqa: T201 (read with -s)
    assert counts["compiled loops"] > count // 4
    assert counts["loops in loops"] > count // 40


HEAD = re.compile(r"^( +)(for \w+ in range\()(\d+)\)", re.MULTILINE)
MORE = 0, 1, 30, -2, 0, -20, 30
"""How many more iterations the loops have in calls than they are written with; each has one at least."""


def with_counts(program: RandomProgram) -> RandomProgram:
    """Return a program whose counted loops have ``more`` iterations, a global that it reads; those in others a few."""
    counts = sorted({int(count) for _, _, count in HEAD.findall(program.text)})
    head, _, body = program.text.partition("\n")
    named = [f"    many_{n}, few_{n} = max(1, {n} + more), max(1, {n} + min(more, 2))" for n in counts]
    body = HEAD.sub(lambda found: f"{found[1]}{found[2]}{'many' if len(found[1]) == 4 else 'few'}_{found[3]})", body)
    return replace(program, text="\n".join([head, *named, body]), steps=STEPS + max(MORE))


def run_with_counts(seed: int, counts: Counter[str]) -> None:
    """Compare a program with dynamic mode, each number of iterations in three calls."""
    make = program_of if seed % 3 else while_program_of
    program = with_counts(make(random.Random(seed), seed))  # noqa: S311 (no secret)
    with quiet():
        warnings.simplefilter("error", CompileWarning)
        called: Any = Called(program)
        for k, more in enumerate(MORE):
            program.function.__globals__["more"] = more
            try:
                comparisons = [Comparison(program, call + k % 2) for call in range(2)]
            except IndexError:  # of a list that a shorter loop has made
                counts["too short"] += 1
                continue
            if any(comparison.size() > LARGEST for comparison in comparisons):
                counts["too large"] += 1
                continue
            for comparison in (*comparisons, comparisons[0]):
                comparison.compare(called, reverse=True)
            counts["compared"] += 1
    counts["with loops"] += "loop, " in called.function.explain()


@examples(3, EXAMPLES // 3)
def test_random_programs_with_other_counts(count: int) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, derandomize=EXAMPLES <= 300, phases=[Phase.generate])
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        run_with_counts(seed, counts)

    check()
    print(counts)  # noqa: T201 (read with -s)
    assert counts["compared"] > 2 * count
    assert counts["with loops"] > count // 4


FOUND: dict[str, tuple[tuple[int, ...], int, str]] = {
    "what a loop carries, read in the last nest alone": (
        (10, 9),
        1165,
        """
    z, a = ((y.detach() * x) + (0.5 * tape.logaddexp(x, x))) * 0.5, 0.1 * y.reshape(-1)[0]
    m2 = 5.0 * abs(a)
    t1 = 0.0 * s
    while t1 < m2:
        q3 = (tape.cat([z.narrow(-1, -1, 1), z.narrow(-1, 0, z.shape[-1] - 1)], -1)).detach() * z
        with tape.no_grad():
            q4 = tape.flip(z, (-1,))
        z = z + 0.1 * q4
        a = 0.7 * s + 0.2 * s
        if tape.sin(9.0 * s) > 0.2:
            x = tape.tanh(y @ M + w)
        elif y.sum() > s:
            y = abs(z)
        t1 = t1 + 1.0
    a = 0.5 * a + 0.1 * t1
    m8 = 3.3 + s
    t7 = 0.1 * s
    while t7 < m8:
        s = tape.stack([s, a]).mean()
        with tape.no_grad():
            q9 = tape.tanh((0.8 * x * z))
        z = z + 0.1 * q9
        if tape.sin(9.0 * a) > 0.2:
            z = 0.3 * (y @ w)[..., None] + y
        elif z.mean() < 0.1 * a:
            a = 0.7 * a + 0.2 * a
        t7 = t7 + 0.6 + 0.2 * tape.sin(y).mean()
    x = tape.tanh(y @ M + w)
    return 0.1 * x.reshape(-1)[0] + z.square().sum() * 0.05
""",
    ),
}
"""Programs that were compiled wrongly once: the shape of the arrays, the seed of the values, the function's body."""


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_were_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_BLOCK", 3)
    shape, seed, body = FOUND[name]
    run(RandomProgram("def f(x, y, s, w, weights):\n" + body.rstrip(), shape, seed), Counter())
