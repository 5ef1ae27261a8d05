"""Random programs with loops that values end, compiled, against dynamic mode: forward and back, in short blocks."""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tape
from kernels.programs.compiler import compiling
from tape.errors import CompileWarning
from tests.compiled.test_compiled_programs_at_random import Comparison, quiet
from tests.support.random_programs import RandomProgram
from tests.support.random_while_loops import while_program_of

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
    program = while_program_of(random.Random(seed), seed)  # noqa: S311 (no secret)
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
    counts["interpreted"] += "interpreter" in explained


@pytest.mark.parametrize("block", [2, 3, 1024])
def test_random_loops(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES // 3, deadline=None, derandomize=EXAMPLES <= 300, phases=[Phase.generate])
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        run_seed(seed * 3 + block % 3, counts)

    monkeypatch.setattr(compiling, "_BLOCK", block)
    check()
    print(counts)  # noqa: T201 (read with -s)
    assert counts["compiled loops"] > EXAMPLES // 3 // 4
